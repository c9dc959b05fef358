//! `deploy/` as a whole at a real API server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use juneau_controlplane::{ControlPlane, Options, Program, Programs};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

fn deploy() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy").canonicalize().unwrap()
}

/// kubectl; what it said, on both outputs.
fn kubectl(control_plane: &ControlPlane, arguments: &[&str]) -> Result<(String, String), String> {
    let output = control_plane.kubectl().args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(output.stdout), text(output.stderr));
    if output.status.success() { Ok((out, err)) } else { Err(err) }
}

/// The version of everything that `deploy/` holds, as the server has it.
fn versions(control_plane: &ControlPlane) -> BTreeMap<String, String> {
    let whole = deploy();
    let (text, _) = kubectl(control_plane, &["get", "-k", whole.to_str().unwrap(), "-o", "json"]).unwrap();
    let list: Value = serde_json::from_str(&text).unwrap();
    let items = list["items"].as_array().unwrap();
    items
        .iter()
        .map(|item| {
            let (kind, metadata) = (item["kind"].as_str().unwrap(), &item["metadata"]);
            let name = format!("{kind}/{}/{}", metadata["namespace"].as_str().unwrap_or(""), metadata["name"]);
            // Some get a status after they were made; what has none has no generation.
            let version = Some(&metadata["generation"]).filter(|generation| !generation.is_null());
            (name, version.unwrap_or(&metadata["resourceVersion"]).to_string())
        })
        .collect()
}

fn apply(control_plane: &ControlPlane, how: &[&str]) -> String {
    let whole = deploy();
    let arguments = [&["apply"], how, &["-k", whole.to_str().unwrap()]].concat();
    let (said, warned) = kubectl(control_plane, &arguments).unwrap_or_else(|error| panic!("{how:?}: {error}"));
    assert_eq!(warned, "", "{how:?}");
    said
}

/// With controllers, since without them a namespace does not end.
fn start() -> ControlPlane {
    let programs = Programs::find_or_build(&mut |_| {}).unwrap();
    ControlPlane::start(&programs, &Options::default().controllers()).unwrap()
}

#[test]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
fn the_whole_is_taken_either_way_and_a_second_time_changes_nothing() {
    for how in [&["--server-side"][..], &[]] {
        let control_plane = start();
        let said = apply(&control_plane, how);
        for object in ["namespace/juneau-system", "daemonset.apps/juneau-agent", "deployment.apps/juneau-operator"] {
            assert!(said.lines().any(|line| line.starts_with(object)), "{object} is not in {said}");
        }
        kubectl(&control_plane, &["wait", "--for=condition=Established", "--timeout=30s", "crd", "--all"]).unwrap();
        let first = versions(&control_plane);
        assert!(first.len() > 40, "{} objects", first.len());
        let again = apply(&control_plane, how);
        if how.is_empty() {
            assert!(again.lines().all(|line| line.ends_with("unchanged")), "{again}");
        }
        assert_eq!(versions(&control_plane), first, "{how:?}");
        pods_are_taken(&control_plane);
        the_handbook_s_overlay_renders(&control_plane);
        if !how.is_empty() {
            the_handbook_s_removal_leaves_nothing(&control_plane);
        }
    }
}

/// Applies one object for which the server need not have a kubelet.
fn apply_one(control_plane: &ControlPlane, object: &Value, how: &[&str]) -> Result<(String, String), String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), object.to_string()).unwrap();
    kubectl(control_plane, &[&["apply", "-f", file.path().to_str().unwrap()], how].concat())
}

/// The Pods that the workloads would make pass admission under the namespace's Pod security level, and would not under
/// another one.
fn pods_are_taken(control_plane: &ControlPlane) {
    let labels = json!({"pod-security.kubernetes.io/enforce": "baseline"});
    let strict = json!({"name": "strict", "labels": labels});
    apply_one(control_plane, &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": strict}), &[]).unwrap();
    for workload in ["daemonset/juneau-agent", "deployment/juneau-operator"] {
        let (text, _) = kubectl(control_plane, &["get", "-n", "juneau-system", workload, "-o", "json"]).unwrap();
        let workload: Value = serde_json::from_str(&text).unwrap();
        let name = &workload["metadata"]["name"];
        for (namespace, is_taken) in [("juneau-system", true), ("strict", false)] {
            let account = json!({"name": name, "namespace": namespace});
            let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account});
            apply_one(control_plane, &account, &["--server-side"]).unwrap();
            let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": workload["spec"]["template"]["spec"]});
            pod["metadata"] = json!({"name": name, "namespace": namespace});
            match apply_one(control_plane, &pod, &["--dry-run=server"]) {
                Ok((_, warned)) => assert!(is_taken && warned.is_empty(), "{name} in {namespace}: {warned}"),
                Err(why) => assert!(!is_taken && why.contains("violates PodSecurity"), "{name} in {namespace}: {why}"),
            }
        }
    }
}

/// What is left is nothing, though objects have finalizers that nobody takes away and a webhook that nobody answers.
fn the_handbook_s_removal_leaves_nothing(control_plane: &ControlPlane) {
    // Made while nobody is asked.
    kubectl(control_plane, &["delete", "validatingwebhookconfiguration", "juneau"]).unwrap();
    let ours = |kind: &str, metadata: Value, spec: Value| json!({"apiVersion": "juneau.loutres.me/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec});
    let held = |name: &str, finalizer: &str| json!({"name": name, "finalizers": [finalizer]});
    let subnet = json!({"vpc": "red", "cidr": "10.0.1.0/24"});
    let mut nic = held("a.eth0", "interface.juneau.loutres.me/in-use");
    nic["namespace"] = "strict".into();
    let of_pod = json!({"podRef": {"name": "a", "interface": "eth0", "uid": "u"}, "nodeName": "n", "subnet": "red-a"});
    for object in [
        ours("Vpc", held("red", "vpc.juneau.loutres.me/in-use"), json!({})),
        ours("Subnet", held("red-a", "subnet.juneau.loutres.me/in-use"), subnet),
        ours("NetworkInterface", nic, of_pod),
    ] {
        // A policy or a definition that came a moment ago may not be in force yet.
        apply_one(control_plane, &object, &["--server-side"]).unwrap();
    }
    apply(control_plane, &["--server-side", "--force-conflicts"]);
    let handbook = include_str!("../../docs/install.md");
    let (_, rest) = handbook.split_once("```sh\n").unwrap();
    let (script, _) = rest.split_once("```").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let copied = Command::new("cp").arg("-r").arg(deploy()).arg(directory.path().join("juneau")).status().unwrap();
    assert!(copied.success());
    let kubectl_program = Programs::find_or_build(&mut |_| {}).unwrap().path(Program::Kubectl);
    let path = format!("{}:{}", kubectl_program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let output = Command::new("timeout")
        .args(["60", "sh", "-euc", script])
        .current_dir(directory.path())
        .env("PATH", path)
        .env("KUBECONFIG", control_plane.kubeconfig())
        .env("KUBECACHEDIR", directory.path().join("cache"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let kinds = "crd,validatingwebhookconfiguration,mutatingwebhookconfiguration,validatingadmissionpolicy,\
                 validatingadmissionpolicybinding,clusterrole,clusterrolebinding";
    let (left, _) = kubectl(control_plane, &["get", kinds, "-o", "name"]).unwrap();
    let left: Vec<_> = left.lines().filter(|name| name.contains("juneau")).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// `kubectl kustomize`, with what docs/install.md says to set.
fn the_handbook_s_overlay_renders(control_plane: &ControlPlane) {
    let directory = tempfile::tempdir().unwrap();
    // A kustomization names others by relative paths.
    let link = directory.path().join("juneau");
    let copied = Command::new("cp").arg("-r").arg(deploy()).arg(&link).status().unwrap();
    assert!(copied.success());
    let handbook = include_str!("../../docs/install.md");
    let (_, rest) = handbook.split_once("```yaml\n# kustomization.yaml\n").unwrap();
    let (overlay, _) = rest.split_once("```").unwrap();
    std::fs::write(directory.path().join("kustomization.yaml"), overlay).unwrap();
    let (text, _) = kubectl(control_plane, &["kustomize", directory.path().to_str().unwrap()]).unwrap();
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    let address = documents.iter().find(|document| document["kind"] == "ConfigMap").unwrap();
    assert!(address["data"]["KUBERNETES_SERVICE_HOST"].is_string(), "{address}");
    let deployment = documents.iter().find(|document| document["kind"] == "Deployment").unwrap();
    assert_eq!(deployment["spec"]["replicas"], 3);

    let registry = deploy().join("overlays/registry");
    let (text, _) = kubectl(control_plane, &["kustomize", registry.to_str().unwrap()]).unwrap();
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    let images =
        documents.iter().filter_map(|document| document["spec"]["template"]["spec"]["containers"][0]["image"].as_str());
    let mut images: Vec<_> = images.map(|image| image.split_once(':').unwrap().0).collect();
    images.sort_unstable();
    assert_eq!(images, ["registry.example/juneau-agent", "registry.example/juneau-operator"]);
    assert!(documents.iter().any(|document| document["kind"] == "CustomResourceDefinition"));
}
