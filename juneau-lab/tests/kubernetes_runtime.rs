//! The lab's side of an API server: what a kubelet does there.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

mod common;

use common::eventually;
use juneau_controlplane::{ControlPlane, Options, Programs};
use juneau_lab::kubernetes::{Done, DonePod, add_node, kubelet};
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use kube::api::{Api, DeleteParams, PostParams};
use kube::runtime::wait::{Condition, await_condition, conditions};
use kube::{Client, ResourceExt};
use serde_json::json;
use std::net::Ipv4Addr;
use std::time::Duration;
use tokio::sync::watch;

/// Nothing here takes this long.
const LIMIT: Duration = Duration::from_secs(10);

async fn soon<K>(api: &Api<K>, name: &str, what: &str, condition: impl Condition<K>) -> Option<K>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + Sync + 'static,
{
    let waiting = tokio::time::timeout(Duration::from_secs(30), await_condition(api.clone(), name, condition)).await;
    waiting.unwrap_or_else(|_| panic!("{what}: not within 30 s")).unwrap()
}

fn node_is(status: &'static str) -> impl Condition<Node> {
    move |node: Option<&Node>| {
        let known = node.and_then(|node| node.status.as_ref()?.conditions.as_ref());
        known.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == status)
    }
}

fn is_bound(pod: Option<&Pod>) -> bool {
    pod.and_then(|pod| pod.spec.as_ref()?.node_name.as_ref()).is_some()
}

fn is_ending(pod: Option<&Pod>) -> bool {
    pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_some())
}

/// The life of a Pod as the API server sees it.
async fn live(client: &Client, done: &watch::Sender<Done>) {
    let nodes: Api<Node> = Api::all(client.clone());
    done.send(Done { nodes: [("node-1".to_owned(), false)].into(), ..Done::default() }).unwrap();
    soon(&nodes, "node-1", "a node whose agent is not ready", node_is("False")).await;
    done.send_modify(|done| {
        done.nodes.insert("node-1".to_owned(), true);
    });
    soon(&nodes, "node-1", "a node whose agent is ready", node_is("True")).await;

    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    let there = |account: Option<&ServiceAccount>| account.is_some();
    soon(&accounts, "default", "the default ServiceAccount", there).await;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let pod = json!({ "metadata": { "name": "a" }, "spec": { "containers": [{ "name": "c", "image": "none" }] } });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let pod = soon(&pods, "a", "a Pod without a node to be bound", is_bound).await.unwrap();
    let uid = pod.uid().unwrap();
    let pending = pod.status.unwrap_or_default().phase;
    assert_eq!(pending.as_deref(), Some("Pending"), "nobody has said that it runs");

    let here = DonePod { uid: uid.clone(), address: Some("10.0.1.10".to_owned()) };
    done.send_modify(|done| {
        done.pods.insert("default/a".to_owned(), here);
    });
    let pod = soon(&pods, "a", "a Pod that is attached to run", conditions::is_pod_running()).await.unwrap();
    let status = pod.status.unwrap();
    assert_eq!(status.pod_ip.as_deref(), Some("10.0.1.10"));
    assert!(
        status.conditions.unwrap().iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    );

    pods.delete("a", &DeleteParams::default()).await.unwrap();
    soon(&pods, "a", "a Pod that is to end", is_ending).await.unwrap();
    // The lab says something else meanwhile: the Pod is still there.
    done.send_modify(|done| {
        done.nodes.insert("node-2".to_owned(), true);
    });
    soon(&nodes, "node-2", "the other node", node_is("True")).await;
    assert_eq!(pods.get("a").await.unwrap().uid().as_deref(), Some(&*uid), "a Pod ends when its sandbox has");
    done.send_modify(|done| {
        done.pods.remove("default/a");
    });
    soon(&pods, "a", "a Pod that has ended to be removed", conditions::is_deleted(&uid)).await;
}

#[test]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
fn nodes_and_pods_have_the_status_of_what_the_lab_did_and_nothing_more_is_written() {
    let programs = Programs::find_or_build(&mut |line| println!("{line}")).unwrap();
    let control_plane = ControlPlane::start(&programs, &Options::default().controllers()).unwrap();
    for (name, last) in [("node-1", 11), ("node-2", 12)] {
        add_node(&control_plane.kubeconfig(), name, Ipv4Addr::new(192, 168, 77, last)).unwrap();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = control_plane.client().await.unwrap();
        let (done, changes) = watch::channel(Done::default());
        tokio::select! {
            () = live(&client, &done) => {}
            () = kubelet::run(&control_plane, &client, changes) => panic!("the kubelets ended"),
        }
    });
    let audit = control_plane.audit();
    let forbidden = audit.forbidden().unwrap();
    assert!(!forbidden.iter().any(|event| event.user.starts_with("system:node:")), "{forbidden:?}");
    let written = || {
        let mut writes = audit.writes_of("system:node:node-1").unwrap();
        writes.retain(|(_, resource), _| resource != "leases");
        writes
    };
    // The server logs a request after it has answered, and after others have seen what came of it.
    eventually("the last write is logged", LIMIT, || written().contains_key(&("delete".into(), "pods".into())));
    let writes = written();
    let count = |verb: &str, resource: &str, times| ((verb.to_owned(), resource.to_owned()), times);
    let expected = [count("patch", "nodes/status", 2), count("patch", "pods/status", 1), count("delete", "pods", 1)];
    assert_eq!(writes, expected.into());
}
