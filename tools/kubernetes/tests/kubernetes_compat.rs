//! Manifests written for the Go implementation, and the objects that it stores (`juneau-api/tests/compat`), on a real API
//! server: they are applied as they are, in both ways of kubectl, and come back whole.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

#[path = "../../../juneau-api/tests/common/contains.rs"]
mod contains;

use contains::assert_contains;
use juneau_controlplane::ControlPlane;
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// kubectl that must succeed, with this on its standard input; its standard output, and its warnings.
fn kubectl(control_plane: &ControlPlane, arguments: &[&str], input: &str) -> (String, String) {
    let mut command = control_plane.kubectl();
    command.args(arguments).current_dir(repository());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "kubectl {arguments:?}: {said}");
    (String::from_utf8(output.stdout).unwrap(), said)
}

#[test]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
fn manifests_of_the_go_implementation_are_applied_and_come_back_whole() {
    let control_plane = ControlPlane::shared().unwrap();
    let control_plane = &*control_plane;
    kubectl(control_plane, &["apply", "--server-side", "-k", "deploy/crds"], "");
    kubectl(control_plane, &["wait", "--for=condition=Established", "--timeout=30s", "crd", "--all"], "");
    kubectl(control_plane, &["create", "namespace", "shop"], "");
    let files = ["juneau-api/tests/compat/networks.yaml", "juneau-api/tests/compat/objects.yaml"];
    let mut documents: Vec<Value> = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(repository().join(file)).unwrap();
        documents.extend(serde_saphyr::from_multiple::<Value>(&text).unwrap());
    }
    assert!(documents.len() > 15, "{}", documents.len());
    // The status is a resource of its own.
    let without_status = |document: &Value| {
        let mut document = document.clone();
        document.as_object_mut().unwrap().remove("status");
        document
    };
    let manifests = documents.iter().map(|document| without_status(document).to_string()).collect::<Vec<_>>();
    let manifests = manifests.join("\n---\n");
    // As it was read, with what the server adds.
    let stored = || {
        let (text, _) = kubectl(control_plane, &["get", "-f", files[0], "-f", files[1], "-o", "json"], "");
        let list: Value = serde_json::from_str(&text).unwrap();
        let items = list["items"].as_array().unwrap().clone();
        assert_eq!(items.len(), documents.len());
        let of = |document: &Value| {
            let place = |object: &Value| (object["kind"].clone(), object["metadata"]["name"].clone());
            items.iter().find(|item| place(item) == place(document)).unwrap().clone()
        };
        documents.iter().map(of).collect::<Vec<Value>>()
    };
    let name = |document: &Value| format!("{}/{}", document["kind"].as_str().unwrap(), document["metadata"]["name"]);
    // By the client, which keeps what it applied in an annotation; by the server; by the one after the other.
    for ways in
        [&[&[][..]][..], &[&["--server-side"][..]][..], &[&[][..], &["--server-side", "--force-conflicts"][..]][..]]
    {
        for (turn, way) in ways.iter().enumerate() {
            let apply = ["apply", "--validate=strict", "-f", "-"];
            let (_, warnings) = kubectl(control_plane, &[&apply[..], way].concat(), &manifests);
            assert!(!warnings.contains("unknown field"), "{way:?}: {warnings}");
            if way.is_empty() {
                let (again, _) = kubectl(control_plane, &apply, &manifests);
                assert!(again.lines().all(|line| line.ends_with("unchanged")), "turn {turn}: {again}");
            }
            for (item, document) in stored().iter().zip(&documents) {
                assert_contains(item, &without_status(document), &format!("{way:?}: {}", name(document)));
            }
        }
        // What the other implementation wrote there.
        let with_status: Vec<&Value> = documents.iter().filter(|document| !document["status"].is_null()).collect();
        assert!(with_status.len() > 5);
        let text = with_status.iter().map(|document| document.to_string()).collect::<Vec<_>>().join("\n---\n");
        let arguments = ["apply", "--server-side", "--validate=strict", "--subresource=status", "--field-manager=go"];
        kubectl(control_plane, &[&arguments[..], &["--force-conflicts", "-f", "-"]].concat(), &text);
        for (item, document) in stored().iter().zip(&documents) {
            assert_contains(item, document, &name(document));
        }
        // Their end, with nobody who would take finalizers away.
        for document in documents.iter().filter(|document| !document["metadata"]["finalizers"].is_null()) {
            let (kind, object) = (document["kind"].as_str().unwrap(), document["metadata"]["name"].as_str().unwrap());
            let patch = r#"{"metadata":{"finalizers":null}}"#;
            let namespace = document["metadata"]["namespace"].as_str().unwrap();
            kubectl(control_plane, &["patch", kind, object, "-n", namespace, "--type=merge", "-p", patch], "");
        }
        kubectl(control_plane, &["delete", "-f", files[0], "-f", files[1]], "");
    }
}
