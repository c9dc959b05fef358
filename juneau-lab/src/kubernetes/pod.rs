//! What is said about Pods.

use super::node::failed;
use crate::error::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

fn api(client: &Client, pod: &Pod) -> Api<Pod> {
    Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default())
}

/// Says that a Pod runs at `address`, unless that is what is known already. Returns what it is then.
pub(super) async fn report(client: &Client, pod: &Pod, address: &str) -> Result<Option<Pod>> {
    let known = pod.status.as_ref();
    let runs = known.and_then(|status| status.phase.as_deref()) == Some("Running");
    if runs && known.and_then(|status| status.pod_ip.as_deref()) == Some(address) {
        return Ok(None);
    }
    let patch = Patch::Strategic(pod_status(pod, address));
    let patched = api(client, pod).patch_status(&pod.name_any(), &PatchParams::default(), &patch).await;
    patched.map(Some).or_else(gone).map_err(failed("telling its status".to_owned()))
}

fn pod_status(pod: &Pod, address: &str) -> Value {
    let now = k8s_openapi::jiff::Timestamp::now();
    let condition = |kind: &str| json!({ "type": kind, "status": "True", "lastTransitionTime": now });
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers).map(|container| {
        json!({
            "name": container.name, "image": container.image.clone().unwrap_or_default(), "imageID": "",
            "ready": true, "started": true, "restartCount": 0, "state": { "running": { "startedAt": now } },
        })
    });
    let conditions = ["Initialized", "ContainersReady", "Ready"].map(condition);
    json!({ "status": {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{ "ip": address }],
        "startTime": now,
        "conditions": conditions,
        "containerStatuses": containers.collect::<Vec<_>>(),
    }})
}

/// Removes a Pod that was to end and has.
pub(super) async fn remove(client: &Client, pod: &Pod) -> Result<()> {
    let preconditions = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }.grace_period(0);
    let removed = api(client, pod).delete(&pod.name_any(), &params).await;
    removed.map(|_| None::<Pod>).or_else(gone).map(drop).map_err(failed("removing it".to_owned()))
}

/// One that is gone, or is another one now, is as it should be.
fn gone(error: kube::Error) -> std::result::Result<Option<Pod>, kube::Error> {
    match &error {
        kube::Error::Api(status) if status.code == 404 || status.code == 409 => Ok(None),
        _ => Err(error),
    }
}
