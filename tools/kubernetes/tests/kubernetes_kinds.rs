//! Juneau's kinds on a real API server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use juneau_controlplane::ControlPlane;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use std::io::Write;
use std::process::{Output, Stdio};
use std::sync::Arc;

/// As they are committed, rules included.
fn definitions() -> Vec<CustomResourceDefinition> {
    juneau_api::crd::definitions().unwrap()
}

/// kubectl, with this on its standard input.
fn kubectl(control_plane: &ControlPlane, arguments: &[&str], input: &str) -> Output {
    let mut command = control_plane.kubectl();
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// kubectl that must succeed; its standard output.
fn succeed(control_plane: &ControlPlane, arguments: &[&str], input: &str) -> String {
    let output = kubectl(control_plane, arguments, input);
    assert!(output.status.success(), "kubectl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A control plane that serves the kinds.
fn with_kinds() -> Arc<ControlPlane> {
    let control_plane = ControlPlane::shared().unwrap();
    let items = serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": definitions() });
    succeed(&control_plane, &["apply", "--server-side", "--force-conflicts", "-f", "-"], &items.to_string());
    let names: Vec<String> = definitions().iter().map(|definition| format!("crd/{}", definition.name_any())).collect();
    let mut arguments = vec!["wait", "--for=condition=Established", "--timeout=30s"];
    arguments.extend(names.iter().map(String::as_str));
    succeed(&control_plane, &arguments, "");
    control_plane
}

#[test]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
fn definitions_are_established_without_a_complaint() {
    let control_plane = with_kinds();
    let served = succeed(&control_plane, &["get", "crd", "-o", "json"], "");
    let served: serde_json::Value = serde_json::from_str(&served).unwrap();
    let ours = |item: &&serde_json::Value| item["spec"]["group"] == juneau_api::kinds::GROUP;
    let served: Vec<_> = served["items"].as_array().unwrap().iter().filter(ours).collect();
    assert_eq!(served.len(), definitions().len());
    for item in served {
        let conditions = item["status"]["conditions"].as_array().unwrap();
        let bad = conditions.iter().find(|condition| condition["type"] == "NonStructuralSchema");
        assert!(bad.is_none(), "{}: {bad:?}", item["metadata"]["name"]);
    }
}

#[test]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
fn every_field_of_a_spec_is_explained() {
    let control_plane = with_kinds();
    for definition in definitions() {
        let plural = &definition.spec.names.plural;
        let text = succeed(&control_plane, &["explain", &format!("{plural}.spec")], "");
        assert!(text.contains("FIELDS:"), "{text}");
        let fields = text.split("FIELDS:").nth(1).unwrap();
        for field in fields.split("\n  ").filter(|field| !field.trim().is_empty() && !field.starts_with(' ')) {
            assert!(!field.contains("<no description>"), "{plural}.spec: {field}");
        }
    }
}

#[test]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
fn objects_are_listed_with_their_columns() {
    let control_plane = with_kinds();
    let vpc = "{apiVersion: juneau.loutres.me/v1alpha1, kind: Vpc, metadata: {name: shown}, spec: {}}";
    let subnet = "{apiVersion: juneau.loutres.me/v1alpha1, kind: Subnet, metadata: {name: shown-a}, \
                  spec: {vpc: shown, cidr: 10.0.1.0/24}}";
    for manifest in [vpc, subnet] {
        succeed(&control_plane, &["apply", "-f", "-"], manifest);
    }
    let text = succeed(&control_plane, &["get", "vpc,subnet,iface", "-A"], "");
    assert!(text.contains("shown-a") && text.contains("10.0.1.0/24"), "{text}");
    assert!(text.contains("CIDR") && text.contains("VPC"), "{text}");
    // By every short name, the added `nic` among them.
    for name in ["nic", "iface", "interface", "nwiface", "nwinterface", "nwep"] {
        let said = kubectl(&control_plane, &["get", name, "-A"], "");
        assert!(said.status.success(), "{name}: {}", String::from_utf8_lossy(&said.stderr));
    }
    for manifest in [subnet, vpc] {
        succeed(&control_plane, &["delete", "-f", "-"], manifest);
    }
}
