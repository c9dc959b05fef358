//! What the agent tells an API server: where its Pods are attached, and which endpoints of its node it refuses.
//!
//! Nothing waits for it, and no packet depends on it. A task of its own holds what is to be told against what it has
//! told, and tries again what failed.

use super::Engine;
use juneau_api::kinds::{self, Attachment, NetworkEndpoint};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{Patch, PatchParams};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Api, Client};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// Who the agent is among those that write to an object.
const MANAGER: &str = "juneau-agent";
/// First and longest pause after a write that failed.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// So many different things are remembered as said.
const RECORDERS: usize = 256;

/// What is to be told, by `namespace/name` of endpoints.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Where Pods are attached.
    attachments: BTreeMap<String, Attachment>,
    /// Why endpoints are refused.
    refused: BTreeMap<String, String>,
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
        let (recorders, attached, refused) = Default::default();
        let teller = Teller { client, reporter, recorders, attached, refused };
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
        let endpoints = self.objects.model().endpoints.values();
        let here: BTreeSet<&str> =
            endpoints.filter(|endpoint| endpoint.node == self.options.node).map(|e| e.name.as_str()).collect();
        let attachments = self.attachments().into_iter().filter(|(name, _)| here.contains(name.as_str()));
        let attachments = attachments.map(|(name, attachment)| {
            let told = Attachment {
                ifindex: attachment.ifindex.get(),
                host_mac_address: Some(attachment.host_mac.to_string()),
                container_id: Some(attachment.container_id),
            };
            (name, told)
        });
        let problems = self.objects.problems().iter();
        let refused = problems.filter_map(|problem| {
            let name = problem.object.strip_prefix("NetworkEndpoint/")?;
            // Whoever is not here is another node's to judge.
            let is_here = self.objects.node_of_endpoint(name)? == self.options.node && !here.contains(name);
            is_here.then(|| (name.to_owned(), format!("{}; {}", problem.message, problem.remedy)))
        });
        writer.set(Wanted { attachments: attachments.collect(), refused: refused.collect() });
    }
}

/// The task.
struct Teller {
    client: Client,
    reporter: Reporter,
    /// By what an Event says. A recorder takes Events that differ in that alone for one, and counts the later ones.
    recorders: BTreeMap<String, Recorder>,
    /// What the server took.
    attached: BTreeMap<String, Attachment>,
    /// Which Events it took.
    refused: BTreeMap<String, String>,
}

impl Teller {
    async fn run(mut self, mut wanted: watch::Receiver<Wanted>) {
        let mut pause = PAUSE.0;
        loop {
            let now = wanted.borrow_and_update().clone();
            let done = self.tell(&now).await;
            if done {
                pause = PAUSE.0;
                if wanted.changed().await.is_err() {
                    return;
                }
            } else {
                tokio::select! {
                    changed = wanted.changed() => if changed.is_err() { return },
                    () = sleep(pause) => pause = (pause * 2).min(PAUSE.1),
                }
            }
        }
    }

    /// Whether the server knows everything now.
    async fn tell(&mut self, wanted: &Wanted) -> bool {
        let mut done = true;
        let gone = self.attached.keys().filter(|name| !wanted.attachments.contains_key(*name));
        for name in gone.cloned().collect::<Vec<_>>() {
            done &= self.attach(&name, None).await;
        }
        for (name, attachment) in &wanted.attachments {
            if self.attached.get(name) != Some(attachment) {
                done &= self.attach(name, Some(attachment)).await;
            }
        }
        self.refused.retain(|name, _| wanted.refused.contains_key(name));
        for (name, why) in &wanted.refused {
            if self.refused.get(name) != Some(why) {
                done &= self.refuse(name, why).await;
            }
        }
        done
    }

    fn api(&self, namespace: &str) -> Api<NetworkEndpoint> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Applies `spec.attachment`, of which this agent is the only manager; without one it is taken away.
    async fn attach(&mut self, endpoint: &str, attachment: Option<&Attachment>) -> bool {
        let Some((namespace, name)) = endpoint.split_once('/') else { return true };
        let spec = attachment.map_or_else(|| json!({}), |attachment| json!({ "attachment": attachment }));
        let object = json!({
            "apiVersion": kinds::API_VERSION,
            "kind": "NetworkEndpoint",
            "metadata": { "namespace": namespace, "name": name },
            "spec": spec,
        });
        let patched =
            self.api(namespace).patch(name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(object)).await;
        match (patched, attachment) {
            (Ok(_), Some(attachment)) => {
                self.attached.insert(endpoint.to_owned(), attachment.clone());
                true
            }
            (Ok(_), None) => {
                self.attached.remove(endpoint);
                true
            }
            // The endpoint is gone, and to apply a part of it does not make one.
            (Err(kube::Error::Api(status)), None) if matches!(status.code, 404 | 422) => {
                self.attached.remove(endpoint);
                true
            }
            (Err(error), _) => {
                tracing::warn!(%endpoint, %error, "the API server cannot be told of an attachment; trying again");
                false
            }
        }
    }

    /// Says by an Event why an endpoint is refused, once for each reason.
    async fn refuse(&mut self, endpoint: &str, why: &str) -> bool {
        let Some((namespace, name)) = endpoint.split_once('/') else { return true };
        if self.recorders.len() >= RECORDERS {
            self.recorders.clear();
        }
        let recorder = self
            .recorders
            .entry(why.to_owned())
            .or_insert_with(|| Recorder::new(self.client.clone(), self.reporter.clone()))
            .clone();
        let told = async {
            let Some(found) = self.api(namespace).get_metadata_opt(name).await? else { return Ok(()) };
            let reference = ObjectReference {
                api_version: Some(kinds::API_VERSION.to_owned()),
                kind: Some("NetworkEndpoint".to_owned()),
                namespace: Some(namespace.to_owned()),
                name: Some(name.to_owned()),
                uid: found.metadata.uid,
                ..ObjectReference::default()
            };
            let event = Event {
                type_: EventType::Warning,
                reason: "Rejected".to_owned(),
                note: Some(shortened(why)),
                action: "Program".to_owned(),
                secondary: None,
            };
            recorder.publish(&event, &reference).await
        };
        match told.await {
            Ok(()) => {
                self.refused.insert(endpoint.to_owned(), why.to_owned());
                true
            }
            Err(error) => {
                tracing::warn!(%endpoint, %error, "an Event cannot be written; trying again");
                false
            }
        }
    }
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
