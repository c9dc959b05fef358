//! What is said about nodes.

use super::objects;
use crate::error::{LabError, Result};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::path::Path;

/// The field manager of what the lab writes.
pub(super) const MANAGER: &str = "juneau-lab";

/// Where kubelets say that they live.
const LEASES: &str = "kube-node-lease";

/// A failed request.
pub(super) fn failed(what: String) -> impl FnOnce(kube::Error) -> LabError {
    move |error| LabError::Kubernetes(format!("{what}: {error}"))
}

/// Makes a node that is to be brought up.
pub(super) async fn create(client: &Client, name: &str, address: Ipv4Addr) -> Result<()> {
    let what = || format!("making node {name}");
    let node = serde_json::from_value::<Node>(json!({
        "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name, "kubernetes.io/os": "linux" } },
        "status": { "addresses": [{ "type": "InternalIP", "address": address }] },
    }));
    let node = node.map_err(|error| LabError::Kubernetes(format!("{}: {error}", what())))?;
    Api::<Node>::all(client.clone()).create(&PostParams::default(), &node).await.map(drop).map_err(failed(what()))
}

/// Adds a node, by a kubeconfig.
///
/// # Errors
/// When the API server refuses.
pub fn add(kubeconfig: &Path, name: &str, address: Ipv4Addr) -> Result<()> {
    objects::runtime()?.block_on(async { create(&juneau_controlplane::client(kubeconfig).await?, name, address).await })
}

/// Says what a node can do, and whether it is ready, unless that is what is known already. Returns what it is then.
pub(super) async fn report(client: &Client, node: &Node, ready: bool) -> Result<Option<Node>> {
    let status = if ready { "True" } else { "False" };
    let known = node.status.as_ref().and_then(|known| known.conditions.as_ref());
    if known.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == status) {
        return Ok(None);
    }
    let name = node.name_any();
    let patch = Api::<Node>::all(client.clone())
        .patch_status(&name, &PatchParams::default(), &Patch::Strategic(node_status(ready)))
        .await;
    patch.map(Some).map_err(failed(format!("telling the status of node {name}")))
}

fn node_status(ready: bool) -> Value {
    let capacity = json!({ "cpu": "64", "memory": "64Gi", "pods": "500", "ephemeral-storage": "64Gi" });
    let (status, reason, message) = match ready {
        true => ("True", "AgentReady", "the node's agent has programmed everything"),
        false => ("False", "AgentNotReady", "the node's agent has not programmed everything"),
    };
    let now = k8s_openapi::jiff::Timestamp::now();
    json!({ "status": {
        "capacity": capacity,
        "allocatable": capacity,
        "conditions": [{
            "type": "Ready", "status": status, "reason": reason, "message": message,
            "lastTransitionTime": now, "lastHeartbeatTime": now,
        }],
        "nodeInfo": {
            "machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "", "osImage": "juneau-lab",
            "containerRuntimeVersion": "juneau-lab://0", "kubeletVersion": "v0.0.0", "kubeProxyVersion": "",
            "operatingSystem": "linux", "architecture": std::env::consts::ARCH,
        },
    }})
}

/// Says that a node lives.
pub(super) async fn renew_lease(client: &Client, name: &str) -> Result<()> {
    let now = MicroTime(k8s_openapi::jiff::Timestamp::now());
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": { "name": name },
        "spec": { "holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now },
    });
    let params = PatchParams::apply(MANAGER).force();
    let leases: Api<Lease> = Api::namespaced(client.clone(), LEASES);
    leases
        .patch(name, &params, &Patch::Apply(lease))
        .await
        .map(drop)
        .map_err(failed(format!("the lease of node {name}")))
}
