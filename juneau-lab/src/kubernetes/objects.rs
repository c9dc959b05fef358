//! Objects of the API server, as the view that a directory gives.

use super::Told;
use crate::cluster::Cluster;
use crate::error::{Context, LabError, Result};
use futures::{StreamExt, TryStreamExt};
use juneau_api::source::decode;
use juneau_api::view::{Kind, Origin, View};
use juneau_controlplane::client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, ResourceExt};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// What the lab needs to know.
const KINDS: [Kind; 5] = [Kind::Node, Kind::Pod, Kind::Subnet, Kind::RouteTable, Kind::NetworkEndpoint];

/// How many events are taken in before anybody is told.
const BATCH: usize = 256;

/// Objects by kind, namespace and name.
type Objects = BTreeMap<(Kind, String, String), Value>;

fn api(client: &Client, kind: Kind) -> Api<DynamicObject> {
    let (group, version) = kind.api_version().split_once('/').unwrap_or(("", kind.api_version()));
    let kind = GroupVersionKind::gvk(group, version, kind.as_str());
    Api::all_with(client.clone(), &ApiResource::from_gvk(&kind))
}

/// A runtime for requests.
pub(super) fn runtime() -> Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context(|| "starting a runtime for the API server's client")
}

/// Reads what exists now, by a kubeconfig.
///
/// # Errors
/// When the API server does not answer.
pub fn read(kubeconfig: &Path) -> Result<Cluster> {
    Ok(tell(&list(kubeconfig, &KINDS)?).cluster)
}

/// Every object of these kinds, by a kubeconfig.
///
/// # Errors
/// When the API server does not answer.
pub fn list(kubeconfig: &Path, kinds: &[Kind]) -> Result<Vec<Value>> {
    runtime()?.block_on(async {
        let client = client(kubeconfig).await?;
        let mut objects = Objects::new();
        for kind in kinds {
            let list = api(&client, *kind).list(&ListParams::default()).await;
            let list = list.map_err(|error| LabError::Kubernetes(format!("listing {kind}s: {error}")))?;
            for object in list {
                put(&mut objects, *kind, &object);
            }
        }
        Ok(objects.into_values().collect())
    })
}

/// Follows what exists, until `told` says that nobody listens any more.
pub(super) async fn follow(client: &Client, mut told: impl FnMut(Told) -> bool) {
    let streams = KINDS.map(|kind| {
        let events = watcher(api(client, kind), watcher::Config::default()).default_backoff();
        events.map_ok(move |event| (kind, event)).map_err(move |error| format!("watching {kind}s: {error}")).boxed()
    });
    let mut events = futures::stream::select_all(streams).ready_chunks(BATCH);
    let mut objects = Objects::new();
    // What a list says is put together on the side: until it is whole, what was known stays.
    let mut listed: BTreeMap<Kind, Objects> = BTreeMap::new();
    let mut known = 0;
    while let Some(batch) = events.next().await {
        let mut problems = Vec::new();
        for event in batch {
            match event {
                Ok((kind, Event::Init)) => drop(listed.insert(kind, Objects::new())),
                Ok((kind, Event::InitApply(object))) => put(listed.entry(kind).or_default(), kind, &object),
                Ok((kind, Event::InitDone)) => {
                    known |= 1_u32 << (kind as u32);
                    objects.retain(|(of, _, _), _| *of != kind);
                    objects.extend(listed.remove(&kind).unwrap_or_default());
                }
                Ok((kind, Event::Apply(object))) => put(&mut objects, kind, &object),
                Ok((kind, Event::Delete(object))) => drop(objects.remove(&key(kind, &object))),
                Err(problem) => problems.push(problem),
            }
        }
        // Half of what exists is nothing to act on.
        if KINDS.iter().all(|kind| known & (1 << (*kind as u32)) != 0) || !problems.is_empty() {
            let mut now = tell(objects.values());
            now.problems.extend(problems);
            if !told(now) {
                return;
            }
        }
    }
}

fn key(kind: Kind, object: &DynamicObject) -> (Kind, String, String) {
    (kind, object.namespace().unwrap_or_default(), object.name_any())
}

fn put(objects: &mut Objects, kind: Kind, object: &DynamicObject) {
    let Ok(mut value) = serde_json::to_value(object) else { return };
    // In a list, objects do not say their kind.
    value["apiVersion"] = kind.api_version().into();
    value["kind"] = kind.as_str().into();
    objects.insert(key(kind, object), value);
}

fn tell<'a>(objects: impl IntoIterator<Item = &'a Value>) -> Told {
    let mut view = View::default();
    let (mut problems, mut waiting) = (Vec::new(), Vec::new());
    for value in objects {
        // A Pod that is to end is not wanted any more.
        if value.pointer("/metadata/deletionTimestamp").is_some() && value["kind"] == Kind::Pod.as_str() {
            continue;
        }
        if value["kind"] == Kind::Pod.as_str() && value.pointer("/spec/nodeName").is_none() {
            let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            waiting.push(format!(
                "Pod {}/{} to be bound to a node",
                text("/metadata/namespace"),
                text("/metadata/name")
            ));
            continue;
        }
        match decode::object(value.clone()) {
            Ok((key, object)) => {
                let origin = Origin { file: "API server".into(), document: 1 };
                // Each is there once: they come from a map.
                view.insert(&key.name, &object, origin).ok();
            }
            Err(rejected) => problems.push(rejected.problem().to_string()),
        }
    }
    let cluster = Cluster::from(&view);
    // The operator writes endpoints and routes one after the other.
    let unrouted = cluster.pods.iter().filter(|(_, pod)| pod.address.is_some_and(|at| pod.route(at).is_none()));
    waiting.extend(unrouted.map(|(name, _)| format!("Pod {name}: its Subnet to be in its route table")));
    Told { cluster, waiting, problems }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_that_are_to_end_are_not_wanted_and_what_does_not_decode_is_named() {
        let mut objects = Objects::new();
        for (kind, text) in [
            (
                Kind::Pod,
                r#"{"metadata": {"name": "a", "namespace": "red", "uid": "1"}, "spec": {"nodeName": "n", "containers": []}}"#,
            ),
            (
                Kind::Pod,
                r#"{"metadata": {"name": "b", "namespace": "red", "uid": "2", "deletionTimestamp": "2026-01-01T00:00:00Z"},
                    "spec": {"nodeName": "n", "containers": []}}"#,
            ),
            (Kind::Pod, r#"{"metadata": {"name": "c", "namespace": "red", "uid": "3"}, "spec": {"containers": []}}"#),
            (Kind::Subnet, r#"{"metadata": {"name": "s"}, "spec": {"vpc": 7}}"#),
        ] {
            put(&mut objects, kind, &serde_json::from_str(text).unwrap());
        }
        let told = tell(objects.values());
        assert_eq!(told.cluster.pods.keys().collect::<Vec<_>>(), ["red/a"]);
        assert_eq!(told.waiting, ["Pod red/c to be bound to a node"]);
        assert!(told.problems.len() == 1 && told.problems[0].contains("Subnet/s"), "{:?}", told.problems);
    }
}
