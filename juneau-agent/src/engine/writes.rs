//! What the agent tells an API server: where its Pods and the node itself are attached, and which endpoints of its node it
//! refuses.
//!
//! Nothing waits for it, and no packet depends on it. A task of its own holds what is to be told against what it has
//! told, and tries again what failed.

use super::Engine;
use juneau_api::kinds::{self, Attachment, NetworkEndpoint};
use juneau_api::view::OwnEndpoint;
use juneau_core::model::Problem;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{Patch, PatchParams};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Api, Client};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

/// Who the agent is among those that write to an object.
const MANAGER: &str = "juneau-agent";
/// First and longest pause after a write that failed.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// A refusal is told when it has stood so long: watches of two kinds are not in step, so that an endpoint may be seen
/// before its NetworkInterface or its Pod is.
const SETTLE: Duration = Duration::from_secs(2);

/// So many different things are remembered as said.
const RECORDERS: usize = 256;

/// What is to be told, by `namespace/name` of endpoints.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Where Pods, and the node itself, are attached.
    attachments: BTreeMap<String, Told>,
    /// What the server says of Pods that are not attached: somebody has died before it could be taken back.
    left: BTreeMap<String, Left>,
    /// Why endpoints are refused.
    refused: BTreeMap<String, Refusal>,
}

/// The attachment of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Told {
    /// The endpoint's uid: another one of its name is not meant.
    uid: String,
    /// How it is.
    attachment: Attachment,
    /// The server is seen to say the same.
    is_said: bool,
}

/// An attachment that is none.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Left {
    uid: String,
    attachment: Attachment,
}

/// Why an endpoint is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Refusal {
    uid: String,
    why: String,
}

/// Tells an API server.
#[derive(Debug)]
pub(crate) struct Writer {
    wanted: watch::Sender<Wanted>,
    task: JoinHandle<()>,
}

impl Writer {
    /// Begins, in the runtime that this is called in.
    pub(super) fn start(client: Client, node: String) -> Self {
        let (wanted, receiver) = watch::channel(Wanted::default());
        let reporter = Reporter { controller: MANAGER.to_owned(), instance: Some(node) };
        let (recorders, attached, cleared, seen, refused) = Default::default();
        let teller = Teller { client, reporter, recorders, attached, cleared, seen, refused };
        Self { wanted, task: tokio::spawn(teller.run(receiver)) }
    }

    fn set(&self, wanted: Wanted) {
        self.wanted.send_if_modified(|before| {
            let changed = *before != wanted;
            *before = wanted;
            changed
        });
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Engine {
    /// Tells the API server what this node did and refused.
    pub(super) fn tell_cluster(&self) {
        let Some(writer) = self.source.writer() else { return };
        // Which Pods are attached is known when the devices were looked at, which is before the underlay is found.
        if self.underlay.is_none() {
            return;
        }
        let endpoints = self.objects.model().endpoints.values();
        let usable: BTreeSet<&str> =
            endpoints.filter(|endpoint| endpoint.node == self.options.node).map(|e| e.name.as_str()).collect();
        let problems = self.objects.problems().iter();
        let problems: BTreeMap<&str, &Problem> =
            problems.filter_map(|problem| Some((problem.object.strip_prefix("NetworkEndpoint/")?, problem))).collect();
        let mut attached = self.attachments();
        self.node_port.add_to(&mut attached);
        let mut wanted = Wanted::default();
        // Whoever is not here is another node's to judge.
        for (name, endpoint) in self.objects.own_endpoints() {
            let (uid, said) = endpoint.own.as_deref().map_or_else(Default::default, |own| {
                let OwnEndpoint { uid, attachment } = own.clone();
                (uid, attachment)
            });
            if !usable.contains(name.as_str())
                && let Some(problem) = problems.get(name.as_str())
            {
                let why = format!("{}; {}", problem.message, problem.remedy);
                wanted.refused.insert(name.clone(), Refusal { uid: uid.clone(), why });
            }
            match (attached.remove(&name), said) {
                (Some(pod), said) if usable.contains(name.as_str()) => {
                    let attachment = Attachment {
                        ifindex: pod.ifindex.get(),
                        host_mac_address: Some(pod.host_mac.to_string()),
                        // The node's own endpoint is in no container.
                        container_id: Some(pod.container_id).filter(|id| !id.is_empty()),
                    };
                    let is_said = said.as_ref() == Some(&attachment);
                    wanted.attachments.insert(name, Told { uid, attachment, is_said });
                }
                (None, Some(attachment)) => {
                    wanted.left.insert(name, Left { uid, attachment });
                }
                // A device of an endpoint that is refused is closed, and still there.
                _ => {}
            }
        }
        writer.set(wanted);
    }
}

/// The task.
struct Teller {
    client: Client,
    reporter: Reporter,
    /// By what an Event says. A recorder takes Events that differ in that alone for one, and counts the later ones.
    recorders: BTreeMap<String, Recorder>,
    /// What the server took.
    attached: BTreeMap<String, Told>,
    /// What it took back, and may still be seen to say.
    cleared: BTreeMap<String, Left>,
    /// Refusals, and since when.
    seen: BTreeMap<String, (Refusal, Instant)>,
    /// Which Events it took.
    refused: BTreeMap<String, Refusal>,
}

impl Teller {
    async fn run(mut self, mut wanted: watch::Receiver<Wanted>) {
        let mut pause = PAUSE.0;
        loop {
            let now = wanted.borrow_and_update().clone();
            let done = self.tell(&now).await;
            let due = self.due();
            let again = async {
                match (done, due) {
                    (false, _) => sleep(pause).await,
                    (true, Some(due)) => sleep_until(due).await,
                    (true, None) => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = wanted.changed() => if changed.is_err() { return },
                () = again => {}
            }
            pause = if done { PAUSE.0 } else { (pause * 2).min(PAUSE.1) };
        }
    }

    /// When the next refusal has stood long enough.
    fn due(&self) -> Option<Instant> {
        let open = self.seen.iter().filter(|(name, (refusal, _))| self.refused.get(*name) != Some(refusal));
        open.map(|(_, (_, since))| *since + SETTLE).min()
    }

    /// Whether the server knows everything now.
    async fn tell(&mut self, wanted: &Wanted) -> bool {
        let mut done = true;
        let gone = self.attached.iter().filter(|(name, _)| !wanted.attachments.contains_key(*name));
        let gone = gone.map(|(name, Told { uid, attachment, .. })| {
            (name.clone(), Left { uid: uid.clone(), attachment: attachment.clone() })
        });
        for (name, left) in gone.collect::<Vec<_>>() {
            done &= self.clear(&name, left).await;
        }
        self.cleared.retain(|name, left| wanted.left.get(name) == Some(left));
        for (name, left) in &wanted.left {
            if self.cleared.get(name) != Some(left) {
                done &= self.clear(name, left.clone()).await;
            }
        }
        for (name, told) in &wanted.attachments {
            match self.attached.get(name) {
                _ if told.is_said => {
                    self.attached.insert(name.clone(), told.clone());
                }
                // What was told is on its way, unless it was seen already and somebody changed it.
                Some(known) if !known.is_said && known == told => {}
                _ => done &= self.attach(name, told).await,
            }
        }
        self.refused.retain(|name, _| wanted.refused.contains_key(name));
        self.seen.retain(|name, (refusal, _)| wanted.refused.get(name) == Some(refusal));
        let now = Instant::now();
        for (name, refusal) in &wanted.refused {
            let (_, since) = self.seen.entry(name.clone()).or_insert_with(|| (refusal.clone(), now));
            if *since + SETTLE <= now && self.refused.get(name) != Some(refusal) {
                done &= self.refuse(name, refusal).await;
            }
        }
        done
    }

    fn api(&self, namespace: &str) -> Api<NetworkEndpoint> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Applies `spec.attachment`, of which this agent is the only manager.
    async fn attach(&mut self, endpoint: &str, told: &Told) -> bool {
        let Some((namespace, name)) = endpoint.split_once('/') else { return true };
        let object = json!({
            "apiVersion": kinds::API_VERSION,
            "kind": "NetworkEndpoint",
            // With a uid, what is applied to an endpoint that is gone does not make one.
            "metadata": { "namespace": namespace, "name": name, "uid": told.uid },
            "spec": { "attachment": told.attachment },
        });
        let patch = Patch::Apply(object);
        match self.api(namespace).patch(name, &PatchParams::apply(MANAGER).force(), &patch).await {
            Ok(_) => {
                self.cleared.remove(endpoint);
                self.attached.insert(endpoint.to_owned(), told.clone());
                true
            }
            // The endpoint has gone, which will be seen.
            Err(kube::Error::Api(status)) if is_gone(status.code) => true,
            Err(error) => {
                tracing::warn!(%endpoint, %error, "the API server cannot be told of an attachment; trying again");
                false
            }
        }
    }

    /// Takes `spec.attachment` away, whoever wrote it.
    async fn clear(&mut self, endpoint: &str, left: Left) -> bool {
        let Some((namespace, name)) = endpoint.split_once('/') else { return true };
        let patch = Patch::Merge(json!({ "metadata": { "uid": left.uid }, "spec": { "attachment": null } }));
        let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        match self.api(namespace).patch(name, &parameters, &patch).await {
            Err(kube::Error::Api(status)) if is_gone(status.code) => {}
            Ok(_) => tracing::info!(%endpoint, "the API server is told that the Pod is not attached"),
            Err(error) => {
                tracing::warn!(%endpoint, %error, "the API server cannot be told of a detachment; trying again");
                return false;
            }
        }
        self.attached.remove(endpoint);
        self.cleared.insert(endpoint.to_owned(), left);
        true
    }

    /// Says by an Event why an endpoint is refused, once for each reason.
    async fn refuse(&mut self, endpoint: &str, refusal: &Refusal) -> bool {
        let Some((namespace, name)) = endpoint.split_once('/') else { return true };
        let why = &refusal.why;
        if self.recorders.len() >= RECORDERS {
            self.recorders.clear();
        }
        let recorder = self
            .recorders
            .entry(why.clone())
            .or_insert_with(|| Recorder::new(self.client.clone(), self.reporter.clone()))
            .clone();
        let reference = ObjectReference {
            api_version: Some(kinds::API_VERSION.to_owned()),
            kind: Some("NetworkEndpoint".to_owned()),
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            uid: Some(refusal.uid.clone()),
            ..ObjectReference::default()
        };
        let event = Event {
            type_: EventType::Warning,
            reason: "Rejected".to_owned(),
            note: Some(shortened(why)),
            action: "Program".to_owned(),
            secondary: None,
        };
        match recorder.publish(&event, &reference).await {
            Ok(()) => {
                self.refused.insert(endpoint.to_owned(), refusal.clone());
                true
            }
            Err(error) => {
                tracing::warn!(%endpoint, %error, "an Event cannot be written; trying again");
                false
            }
        }
    }
}

/// 404: it is gone; 409: another one has its name, or none has.
const fn is_gone(code: u16) -> bool {
    matches!(code, 404 | 409)
}

/// An Event's note has at most 1 024 bytes.
fn shortened(text: &str) -> String {
    const LONGEST: usize = 1000;
    match text.char_indices().find(|(at, _)| *at > LONGEST) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
