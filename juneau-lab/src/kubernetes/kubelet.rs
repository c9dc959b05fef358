//! What a kubelet tells the API server: that its node lives, what became of its Pods, and that one which was to end has
//! ended. There is no real one yet; it plays all nodes, each under that node's own name.

use super::{Done, node, pod};
use crate::error::Result;
use futures::StreamExt;
use juneau_controlplane::ControlPlane;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::Api;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Client, ResourceExt};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How often a node says that it lives. The controllers take one for lost after 16 s without a word.
const HEARTBEAT: Duration = Duration::from_secs(4);

/// Plays the kubelets until nobody has anything to tell any more.
pub async fn run(control_plane: &ControlPlane, client: &Client, mut done: watch::Receiver<Done>) {
    let (nodes, node_events) = reflect::<Node>(client);
    let (pods, pod_events) = reflect::<Pod>(client);
    let mut events = futures::stream::select(node_events, pod_events);
    let mut kubelets = Kubelets { control_plane, clients: BTreeMap::new(), said: BTreeMap::new() };
    let mut heartbeat = tokio::time::interval(HEARTBEAT);
    heartbeat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let mut beat = false;
        tokio::select! {
            _ = heartbeat.tick() => beat = true,
            event = events.next() => if event.is_none() { return },
            changed = done.changed() => if changed.is_err() { return },
        }
        // Clients and objects are looked at again at the next event, at the latest at the next beat.
        let done = done.borrow_and_update().clone();
        for node in nodes.state() {
            if let Err(error) = kubelets.tend_node(&node, &done, beat).await {
                tracing::warn!("node {}: {error}", node.name_any());
            }
        }
        kubelets.forget(&nodes.state(), &pods.state());
        for pod in pods.state() {
            if let Err(error) = kubelets.tend_pod(&pod, &done).await {
                tracing::warn!("Pod {}/{}: {error}", pod.namespace().unwrap_or_default(), pod.name_any());
            }
        }
    }
}

/// By which a kubelet is itself.
pub(super) fn kubeconfig(control_plane: &ControlPlane, node: &str) -> Result<PathBuf> {
    Ok(control_plane.user_kubeconfig(&format!("system:node:{node}"), Some("system:nodes"))?)
}

fn reflect<K>(client: &Client) -> (reflector::Store<K>, futures::stream::BoxStream<'static, ()>)
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + Sync + 'static,
{
    let (store, writer) = reflector::store();
    let events = watcher(Api::<K>::all(client.clone()), watcher::Config::default()).default_backoff();
    (store, events.reflect(writer).map(drop).boxed())
}

/// The kubelets of all nodes.
struct Kubelets<'a> {
    control_plane: &'a ControlPlane,
    clients: BTreeMap<String, Client>,
    /// The versions that objects have since what was last said about them, by uid.
    said: BTreeMap<String, u64>,
}

/// A version as a number: later ones are greater.
fn version(object: &impl ResourceExt) -> u64 {
    object.resource_version().and_then(|text| text.parse().ok()).unwrap_or(0)
}

impl Kubelets<'_> {
    /// Whether what was said last does not show in this object yet: it would be said twice.
    fn is_stale(&self, object: &impl ResourceExt) -> bool {
        let said = object.uid().and_then(|uid| self.said.get(&uid).copied());
        said.is_some_and(|said| version(object) < said)
    }

    /// Forgets what was said about objects that are gone.
    fn forget(&mut self, nodes: &[Arc<Node>], pods: &[Arc<Pod>]) {
        let living: BTreeSet<String> =
            nodes.iter().filter_map(|node| node.uid()).chain(pods.iter().filter_map(|pod| pod.uid())).collect();
        self.said.retain(|uid, _| living.contains(uid));
    }

    fn remember(&mut self, said: Option<impl ResourceExt>) {
        if let Some(object) = said
            && let Some(uid) = object.uid()
        {
            self.said.insert(uid, version(&object));
        }
    }

    /// A client that is this node.
    async fn client(&mut self, node: &str) -> Result<Client> {
        if let Some(client) = self.clients.get(node) {
            return Ok(client.clone());
        }
        let client = juneau_controlplane::client(&kubeconfig(self.control_plane, node)?).await?;
        self.clients.insert(node.to_owned(), client.clone());
        Ok(client)
    }

    async fn tend_node(&mut self, object: &Node, done: &Done, beat: bool) -> Result<()> {
        let name = object.name_any();
        let Some(ready) = done.nodes.get(&name) else { return Ok(()) };
        let client = self.client(&name).await?;
        if !self.is_stale(object) {
            let said = node::report(&client, object, *ready).await?;
            self.remember(said);
        }
        if beat {
            node::renew_lease(&client, &name).await?;
        }
        Ok(())
    }

    async fn tend_pod(&mut self, object: &Pod, done: &Done) -> Result<()> {
        let node = object.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
        let Some(node) = node.filter(|node| done.nodes.contains_key(*node)) else { return Ok(()) };
        if self.is_stale(object) {
            return Ok(());
        }
        let name = format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any());
        let here = done.pods.get(&name).filter(|here| Some(&here.uid) == object.metadata.uid.as_ref());
        let client = self.client(node).await?;
        match here {
            Some(here) if object.metadata.deletion_timestamp.is_none() => match &here.address {
                Some(address) => {
                    let said = pod::report(&client, object, address).await?;
                    self.remember(said);
                    Ok(())
                }
                None => Ok(()),
            },
            None if object.metadata.deletion_timestamp.is_some() => {
                pod::remove(&client, object).await?;
                if let Some(uid) = object.uid() {
                    // Nothing is said about it any more.
                    self.said.insert(uid, u64::MAX);
                }
                Ok(())
            }
            // Not begun, or not ended yet.
            _ => Ok(()),
        }
    }
}
