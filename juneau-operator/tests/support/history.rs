//! Every version of every object that holds a number or an address, as the server's watches tell it: what is given out
//! twice is noticed however short a time it lasted.

use futures::StreamExt as _;
use kube::api::{Api, DynamicObject, ListParams, WatchEvent, WatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::watcher;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::task::JoinSet;

/// What an object holds alone: a name for it, or nothing.
fn holds(kind: &str, object: &Value) -> Option<String> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let some = |value: &Value| (!value.is_null()).then(|| value.to_string());
    match kind {
        "Vpc" => some(&status["vpcID"]),
        "Subnet" => some(&status["vni"]),
        "RouteTable" => some(&status["tableID"]),
        "NetworkInterface" => Some(format!("{} {}", spec["subnet"], some(&status["address"])?)),
        "NetworkEndpoint" => Some(format!("{} {}", spec["subnet"], some(&spec["address"])?)),
        "AllocationClaim" => Some(format!("{} {}", spec["poolRefs"], some(&status["value"])?)),
        "AllocationLease" => Some(format!("{} {}", spec["poolRef"], spec["value"])),
        _ => None,
    }
}

const KINDS: [&str; 7] =
    ["Vpc", "Subnet", "RouteTable", "NetworkInterface", "NetworkEndpoint", "AllocationClaim", "AllocationLease"];

#[derive(Default)]
struct Seen {
    /// What each object holds, with its uid.
    objects: BTreeMap<String, (Value, String)>,
    /// Who holds it.
    holders: BTreeMap<String, String>,
    faults: Vec<String>,
    versions: usize,
}

impl Seen {
    fn apply(&mut self, kind: &str, object: &Value) {
        self.versions += 1;
        let metadata = &object["metadata"];
        let name = format!("{kind} {}/{}", metadata["namespace"], metadata["name"]);
        let now = holds(kind, object);
        if let Some((uid, before)) = self.objects.remove(&name) {
            if uid == metadata["uid"] && now.as_ref() != Some(&before) {
                self.faults.push(format!("{name} had {before} and now {now:?}"));
            }
            self.holders.remove(&format!("{kind} {before}"));
        }
        if let Some(now) = now {
            if let Some(other) = self.holders.insert(format!("{kind} {now}"), name.clone()) {
                self.faults.push(format!("{name} and {other} both have {now}"));
            }
            self.objects.insert(name, (metadata["uid"].clone(), now));
        }
    }

    fn gone(&mut self, kind: &str, object: &Value) {
        let name = format!("{kind} {}/{}", object["metadata"]["namespace"], object["metadata"]["name"]);
        if let Some((_, before)) = self.objects.remove(&name) {
            self.holders.remove(&format!("{kind} {before}"));
        }
    }
}

fn all(client: &kube::Client, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("juneau.loutres.me", "v1alpha1", kind));
    Api::all_with(client.clone(), &resource)
}

/// Waits until a watch goes on from where a list ended.
async fn is_kept(client: &kube::Client, kind: &str) {
    let api = all(client, kind);
    loop {
        let version = api.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
        // The server itself ends it after a second.
        let mut watch = api.watch(&WatchParams::default().timeout(1), &version).await.unwrap().boxed();
        let mut forgotten = false;
        while let Some(event) = watch.next().await {
            forgotten |= matches!(event.unwrap(), WatchEvent::Error(_));
        }
        if !forgotten {
            return;
        }
    }
}

/// Follows all of them until it is dropped.
pub struct History {
    seen: Arc<Mutex<Seen>>,
    _watches: JoinSet<()>,
}

impl History {
    /// Begins when the server keeps the history of all of them: one that has just learned of a kind forgets its first
    /// versions.
    pub async fn follow(client: &kube::Client) -> Self {
        futures::future::join_all(KINDS.map(|kind| is_kept(client, kind))).await;
        let seen = Arc::<Mutex<Seen>>::default();
        let mut watches = JoinSet::new();
        for kind in KINDS {
            let api = all(client, kind);
            let seen = Arc::clone(&seen);
            watches.spawn(async move {
                let mut events = std::pin::pin!(watcher::watcher(api, watcher::Config::default()));
                while let Some(event) = events.next().await {
                    let object = |object| serde_json::to_value::<DynamicObject>(object).unwrap();
                    let mut seen = seen.lock().unwrap();
                    match event {
                        Ok(watcher::Event::Apply(new) | watcher::Event::InitApply(new)) => {
                            seen.apply(kind, &object(new));
                        }
                        Ok(watcher::Event::Delete(old)) => seen.gone(kind, &object(old)),
                        Ok(watcher::Event::Init | watcher::Event::InitDone) => {}
                        Err(error) => seen.faults.push(format!("the watch of {kind} failed: {error:?}")),
                    }
                }
            });
        }
        Self { seen, _watches: watches }
    }

    /// Fails if anything was ever given to two, or taken from its holder. How many versions were looked at.
    pub fn nothing_was_given_twice(&self) -> usize {
        let seen = self.seen.lock().unwrap();
        assert!(seen.faults.is_empty(), "{:#?}", seen.faults);
        seen.versions
    }
}

#[test]
fn what_is_given_twice_is_noticed() {
    let vpc = |name: &str, uid: &str, id: u32| serde_json::json!({"metadata": {"name": name, "uid": uid}, "status": {"vpcID": id}});
    let mut seen = Seen::default();
    seen.apply("Vpc", &vpc("a", "1", 2));
    seen.apply("Vpc", &vpc("b", "2", 3));
    seen.gone("Vpc", &vpc("a", "1", 2));
    seen.apply("Vpc", &vpc("a", "3", 2));
    assert!(seen.faults.is_empty(), "{:?}", seen.faults);
    seen.apply("Vpc", &vpc("c", "4", 3));
    seen.apply("Vpc", &vpc("c", "4", 5));
    assert_eq!(seen.faults.len(), 2, "{:?}", seen.faults);
}
