//! Which virtual machines exist: addresses are kept for them (`spec.retainWhile` of a lease).
//!
//! KubeVirt may be installed long after the operator, or never. So its definition of VirtualMachine is watched by its
//! name, and machines are watched while the cluster serves them.

use super::watch::config;
use crate::state::State;
use crate::view::Retaining;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use juneau_api::view::ObjectName;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, PartialObjectMeta};
use kube::core::GroupVersionKind;
use kube::runtime::{WatchStreamExt as _, watcher};
use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// The name of the definition.
pub(crate) const DEFINITION: &str = "virtualmachines.kubevirt.io";
const GROUP: &str = "kubevirt.io";
const VERSION: &str = "v1";
const KIND: &str = "VirtualMachine";

/// Leases that come one after the other are looked at together.
const GATHER: Duration = Duration::from_millis(100);

/// Whether the watches here tell of such objects.
pub(super) fn are(object: &Retaining) -> bool {
    object.kind == KIND && object.api_version.split('/').next() == Some(GROUP)
}

/// Whether machines can be watched.
fn serves(definition: &CustomResourceDefinition) -> bool {
    let conditions = definition.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let established = conditions.into_iter().any(|one| one.type_ == "Established" && one.status == "True");
    established
        && definition.metadata.deletion_timestamp.is_none()
        && definition.spec.versions.iter().any(|version| version.name == VERSION && version.served)
}

/// The machines that are known.
#[derive(Debug, Default)]
struct Machines {
    known: BTreeSet<ObjectName>,
    listed: BTreeSet<ObjectName>,
    /// Whether `known` is all of them: after a list, or where the kind is not served.
    complete: bool,
}

impl Machines {
    /// Takes in what the watch told; whether something is to be looked at.
    fn handle(&mut self, event: watcher::Event<PartialObjectMeta<DynamicObject>>) -> bool {
        let name = |machine: PartialObjectMeta<DynamicObject>| {
            let metadata = machine.metadata;
            ObjectName::new(metadata.namespace.unwrap_or_default(), metadata.name.unwrap_or_default())
        };
        match event {
            watcher::Event::Init => {
                self.listed.clear();
                false
            }
            watcher::Event::InitApply(machine) => {
                self.listed.insert(name(machine));
                false
            }
            watcher::Event::InitDone => {
                self.known = std::mem::take(&mut self.listed);
                self.complete = true;
                true
            }
            watcher::Event::Apply(machine) => self.known.insert(name(machine)),
            watcher::Event::Delete(machine) => self.known.remove(&name(machine)),
        }
    }

    /// Tells the state of every machine that an address is kept for.
    fn tell(&self, state: &State) {
        if !self.complete {
            return;
        }
        let wanted: BTreeSet<Retaining> = state.read(|view| {
            let wishes = view.leases.values().filter_map(|lease| lease.spec.retain_while.as_ref());
            wishes.map(Retaining::from).filter(are).collect()
        });
        for machine in &wanted {
            state.retain(machine, self.known.contains(&machine.name));
        }
    }
}

type Watched = Result<watcher::Event<PartialObjectMeta<DynamicObject>>, watcher::Error>;

fn watch(client: &kube::Client, patience: Duration) -> BoxStream<'static, Watched> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, VERSION, KIND));
    let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client.clone(), &resource);
    watcher(api, config(patience)).default_backoff().boxed()
}

/// What the watch of the definition told: whether machines can be watched now; nothing while a list is read. `listed` is
/// kept between its events.
fn is_served(event: watcher::Event<CustomResourceDefinition>, listed: &mut bool) -> Option<bool> {
    match event {
        watcher::Event::Init => {
            *listed = false;
            None
        }
        watcher::Event::InitApply(definition) => {
            *listed = serves(&definition);
            None
        }
        watcher::Event::InitDone => Some(*listed),
        watcher::Event::Apply(definition) => Some(serves(&definition)),
        watcher::Event::Delete(_) => Some(false),
    }
}

/// Keeps the state told of them, for ever. A connection without a word is given up after `patience`.
pub(super) async fn follow(client: kube::Client, patience: Duration, state: Arc<State>) {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let one = config(patience).fields(&format!("metadata.name={DEFINITION}"));
    let mut definition = pin!(watcher(definitions, one).default_backoff());
    let mut listed = false;
    let mut changes = state.changes();
    let mut machines = Machines::default();
    let mut watched: Option<BoxStream<'static, Watched>> = None;
    let mut served = None;
    let mut look: Option<Instant> = None;
    loop {
        let due = async {
            match look {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let told = async {
            match &mut watched {
                Some(stream) => stream.next().await,
                None => std::future::pending().await,
            }
        };
        let now = Instant::now();
        tokio::select! {
            next = definition.next() => match next {
                Some(Ok(event)) => {
                    if let Some(is_served) = is_served(event, &mut listed)
                        && served != Some(is_served)
                    {
                        tracing::info!(served = is_served, "VirtualMachines of {GROUP}/{VERSION}");
                        served = Some(is_served);
                        machines = Machines { complete: !is_served, ..Machines::default() };
                        watched = is_served.then(|| watch(&client, patience));
                        look.get_or_insert(now);
                    }
                }
                Some(Err(error)) => tracing::warn!(%error, "watch of the definition of VirtualMachine"),
                None => return,
            },
            told = told => match told {
                Some(Ok(event)) => if machines.handle(event) {
                    look.get_or_insert(now);
                },
                Some(Err(error)) => tracing::warn!(%error, "watch of VirtualMachines"),
                None => watched = Some(watch(&client, patience)),
            },
            changed = changes.changed() => match changed {
                Ok(()) => drop(look.get_or_insert(now + GATHER)),
                Err(_) => return,
            },
            () = due => {
                look = None;
                machines.tell(&state);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn machine(name: &str) -> PartialObjectMeta<DynamicObject> {
        serde_json::from_value(json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {"namespace": "red", "name": name}}))
        .unwrap()
    }

    #[test]
    fn a_list_replaces_what_was_known_only_when_it_is_whole() {
        let mut machines = Machines::default();
        machines.handle(watcher::Event::Init);
        machines.handle(watcher::Event::InitApply(machine("a")));
        assert!(!machines.complete);
        assert!(machines.handle(watcher::Event::InitDone));
        assert!(machines.handle(watcher::Event::Apply(machine("b"))));
        assert!(!machines.handle(watcher::Event::Apply(machine("b"))), "it was known");
        machines.handle(watcher::Event::Init);
        machines.handle(watcher::Event::InitApply(machine("b")));
        assert_eq!(machines.known.len(), 2);
        machines.handle(watcher::Event::InitDone);
        assert_eq!(machines.known, BTreeSet::from([ObjectName::new("red", "b")]));
        assert!(machines.handle(watcher::Event::Delete(machine("b"))));
    }

    #[test]
    fn machines_are_watched_while_their_version_is_served() {
        let definition = |served: bool, established: &str| {
            let version = json!({"name": "v1", "served": served, "storage": true});
            let condition = json!({"type": "Established", "status": established, "lastTransitionTime": null,
                "reason": "", "message": ""});
            let names = json!({"kind": "VirtualMachine", "plural": "virtualmachines"});
            let spec = json!({"group": "kubevirt.io", "names": names, "scope": "Namespaced", "versions": [version]});
            let status = json!({"conditions": [condition], "storedVersions": [], "acceptedNames": names});
            serde_json::from_value(json!({"metadata": {"name": DEFINITION}, "spec": spec, "status": status})).unwrap()
        };
        assert!(serves(&definition(true, "True")));
        assert!(!serves(&definition(false, "True")));
        assert!(!serves(&definition(true, "False")));
        let mut listed = true;
        let mut told = |event| is_served(event, &mut listed);
        assert_eq!(told(watcher::Event::Init), None);
        assert_eq!(told(watcher::Event::InitDone), Some(false), "there is none");
        assert_eq!(told(watcher::Event::Init), None);
        assert_eq!(told(watcher::Event::InitApply(definition(true, "True"))), None);
        assert_eq!(told(watcher::Event::InitDone), Some(true));
        assert_eq!(told(watcher::Event::Apply(definition(false, "True"))), Some(false));
        assert_eq!(told(watcher::Event::Delete(definition(true, "True"))), Some(false));
    }
}
