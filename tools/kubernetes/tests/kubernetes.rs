//! The control plane itself: starts, answers, counts, and leaves nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

use juneau_controlplane::{ControlPlane, Network, Options, Programs, client};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, ServiceAccount};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use serde_json::json;
use std::path::Path;
use std::time::Duration;

fn programs() -> Programs {
    Programs::find_or_build(&mut |line| println!("{line}")).unwrap()
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(work)
}

fn object<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
    serde_json::from_value(value).unwrap()
}

async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), work).await.unwrap_or_else(|_| panic!("{what}: not within 30 s"))
}

#[test]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
fn it_comes_up_answers_and_leaves_nothing() {
    let start = std::time::Instant::now();
    let control_plane = ControlPlane::start(&programs(), &Options::default()).unwrap();
    println!("ready after {:.1} s", start.elapsed().as_secs_f32());
    let output = control_plane.kubectl().args(["version", "-o", "json"]).output().unwrap();
    let version: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(version["serverVersion"]["gitVersion"], version["clientVersion"]["gitVersion"], "{version}");
    let (dir, processes) = (control_plane.dir().to_owned(), control_plane.processes());
    assert_eq!(processes.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["etcd", "kube-apiserver"]);
    assert!(control_plane.ended().is_none());
    drop(control_plane);
    assert!(!dir.exists());
    for (name, pid) in processes {
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "{name} still runs");
    }
}

#[test]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
fn two_of_them_share_nothing() {
    let programs = programs();
    let (one, other) = std::thread::scope(|scope| {
        let start = || ControlPlane::start(&programs, &Options::default()).unwrap();
        let (one, other) = (scope.spawn(start), scope.spawn(start));
        (one.join().unwrap(), other.join().unwrap())
    });
    let made = one.kubectl().args(["create", "namespace", "here"]).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let get =
        |control_plane: &ControlPlane| control_plane.kubectl().args(["get", "namespace", "here"]).output().unwrap();
    assert!(get(&one).status.success());
    assert!(!get(&other).status.success());
}

#[test]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
fn a_program_that_dies_is_told() {
    let control_plane = ControlPlane::start(&programs(), &Options::default()).unwrap();
    let (_, pid) = control_plane.processes()[0];
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.cast_signed()), nix::sys::signal::Signal::SIGKILL).unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    let error = loop {
        if let Some(error) = control_plane.ended() {
            break error.to_string();
        }
        assert!(std::time::Instant::now() < deadline, "nothing is told");
        std::thread::yield_now();
    };
    assert!(error.starts_with("etcd ended (signal: 9"), "{error}");
}

#[test]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
fn what_is_shared_is_one_and_ends_with_its_last_holder() {
    let one = ControlPlane::shared().unwrap();
    let other = ControlPlane::shared().unwrap();
    assert_eq!(one.kubeconfig(), other.kubeconfig());
    drop(one);
    assert!(other.kubeconfig().exists());
}

#[test]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
fn the_audit_log_counts_writes_and_what_was_forbidden_for_each_user() {
    let control_plane = ControlPlane::start(&programs(), &Options::default()).unwrap();
    block_on(async {
        let admin = control_plane.client().await.unwrap();
        let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), "default");
        let account = object(json!({ "metadata": { "name": "reader" } }));
        accounts.create(&PostParams::default(), &account).await.unwrap();
        let config = control_plane.service_account_kubeconfig("default", "reader", None).await.unwrap();
        let reader: Api<ConfigMap> = Api::namespaced(client(&config).await.unwrap(), "default");
        let since = control_plane.audit().from_now().unwrap();
        assert!(matches!(reader.list(&Default::default()).await, Err(kube::Error::Api(status)) if status.code == 403));
        let maps: Api<ConfigMap> = Api::namespaced(admin, "default");
        let map = object(json!({ "metadata": { "name": "a" }, "data": { "x": "1" } }));
        maps.create(&PostParams::default(), &map).await.unwrap();
        maps.create(&PostParams::default(), &map).await.unwrap_err();
        maps.delete("a", &DeleteParams::default()).await.unwrap();

        let count = |verb: &str| ((verb.to_owned(), "configmaps".to_owned()), 1);
        let expected = [count("create"), count("delete")].into();
        soon("the last event", async {
            while since.writes_of("kubernetes-admin").unwrap() != expected {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
        let forbidden = since.forbidden().unwrap();
        assert_eq!(forbidden.len(), 1, "{forbidden:?}");
        assert_eq!(forbidden[0].user, "system:serviceaccount:default:reader");
        assert_eq!((forbidden[0].verb.as_str(), forbidden[0].resource.as_str()), ("list", "configmaps"));
    });
}

#[test]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
fn a_token_that_is_bound_to_a_node_carries_its_name() {
    let control_plane = ControlPlane::start(&programs(), &Options::default()).unwrap();
    block_on(async {
        let admin = control_plane.client().await.unwrap();
        let nodes: Api<Node> = Api::all(admin.clone());
        nodes.create(&PostParams::default(), &object(json!({ "metadata": { "name": "node-1" } }))).await.unwrap();
        let accounts: Api<ServiceAccount> = Api::namespaced(admin, "default");
        let account = object(json!({ "metadata": { "name": "agent" } }));
        accounts.create(&PostParams::default(), &account).await.unwrap();
        let config = control_plane.service_account_kubeconfig("default", "agent", Some("node-1")).await.unwrap();
        let mut command = control_plane.kubectl();
        command.arg("--kubeconfig").arg(config).args(["auth", "whoami", "-o", "json"]);
        let output = command.output().unwrap();
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let user = &answer["status"]["userInfo"];
        assert_eq!(user["username"], "system:serviceaccount:default:agent");
        assert_eq!(user["extra"]["authentication.kubernetes.io/node-name"], json!(["node-1"]), "{answer}");
        let nobody = control_plane.service_account_kubeconfig("default", "agent", Some("node-9")).await;
        nobody.unwrap_err();
    });
}

#[test]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
fn controllers_bind_pods_and_make_default_service_accounts() {
    let control_plane = ControlPlane::start(&programs(), &Options::default().controllers()).unwrap();
    block_on(async {
        let admin = control_plane.client().await.unwrap();
        let namespaces: Api<Namespace> = Api::all(admin.clone());
        let namespace = object(json!({ "metadata": { "name": "red" } }));
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), "red");
        let there = |account: Option<&ServiceAccount>| account.is_some();
        soon("the default ServiceAccount", await_condition(accounts, "default", there)).await.unwrap();

        let nodes: Api<Node> = Api::all(admin.clone());
        let node: Node = object(json!({
            "metadata": { "name": "node-1" },
            "status": {
                "capacity": { "cpu": "8", "memory": "8Gi", "pods": "100" },
                "allocatable": { "cpu": "8", "memory": "8Gi", "pods": "100" },
                "conditions": [{ "type": "Ready", "status": "True" }],
            },
        }));
        nodes.create(&PostParams::default(), &node).await.unwrap();
        let pods: Api<Pod> = Api::namespaced(admin, "red");
        let pod: Pod = object(json!({
            "metadata": { "name": "a" },
            "spec": {
                "containers": [{ "name": "c", "image": "none" }],
                "tolerations": [{ "operator": "Exists" }],
            },
        }));
        pods.create(&PostParams::default(), &pod).await.unwrap();
        let bound = |pod: Option<&Pod>| pod.and_then(|pod| pod.spec.as_ref()?.node_name.as_ref()).is_some();
        let pod = soon("the Pod's node", await_condition(pods.clone(), "a", bound)).await.unwrap().unwrap();
        assert_eq!(pod.spec.unwrap().node_name.unwrap(), "node-1");

        // What an owner leaves behind is collected.
        let owner = pods.get("a").await.unwrap();
        let reference = json!({ "apiVersion": "v1", "kind": "Pod", "name": "a", "uid": owner.uid().unwrap() });
        let map: ConfigMap = object(json!({ "metadata": { "name": "left", "ownerReferences": [reference] } }));
        let maps: Api<ConfigMap> = Api::namespaced(pods.into_client(), "red");
        let left = maps.create(&PostParams::default(), &map).await.unwrap().uid().unwrap();
        let pods: Api<Pod> = Api::namespaced(maps.clone().into_client(), "red");
        pods.delete("a", &DeleteParams::default().grace_period(0)).await.unwrap();
        soon("the end of what it owned", await_condition(maps, "left", conditions::is_deleted(&left))).await.unwrap();
    });
}

#[test]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
fn in_a_namespace_of_its_own_it_is_reached_from_inside_and_outside() {
    use std::process::Command;
    let name = format!("juneau-cp-{}", std::process::id());
    let ip = |arguments: &[&str]| {
        let output = Command::new("ip").args(arguments).output().unwrap();
        assert!(output.status.success(), "ip {arguments:?}: {output:?}");
    };
    ip(&["netns", "add", &name]);
    for arguments in [&["link", "set", "lo", "up"][..], &["address", "add", "192.0.2.1/32", "dev", "lo"]] {
        ip(&[&["-n", &name], arguments].concat());
    }
    let network =
        Network::Namespace { namespace: Path::new("/run/netns").join(&name), address: "192.0.2.1".parse().unwrap() };
    let control_plane = ControlPlane::start(&programs(), &Options::default().network(network)).unwrap();
    let outside = control_plane.kubectl().args(["get", "namespaces"]).output().unwrap();
    let kubectl = control_plane.kubectl();
    let inside = Command::new("ip")
        .args(["netns", "exec", &name])
        .arg(kubectl.get_program())
        .args(["get", "namespaces", "--kubeconfig"])
        .arg(control_plane.inner_kubeconfig())
        .output()
        .unwrap();
    drop(control_plane);
    ip(&["netns", "delete", &name]);
    for output in [outside, inside] {
        assert!(
            output.status.success() && String::from_utf8_lossy(&output.stdout).contains("kube-system"),
            "{output:?}"
        );
    }
}
