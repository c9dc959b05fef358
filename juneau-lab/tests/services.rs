//! Tenants' Services on two nodes, from plain manifests through the operator and the agents to real connections.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::Lab;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

/// What the lab's Pods listen at.
const RESPONDER: u16 = 7777;
const SERVICE: &str = "10.96.1.10";

/// A Service of a tenant without a selector, and its endpoints: the Pod of the first Subnet on each node.
fn service(tenant: &str) -> String {
    let mut text = format!(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\n  namespace: {tenant}\n  annotations:\n    \
         juneau.loutres.me/vpc: {tenant}\nspec:\n  clusterIP: {SERVICE}\n  clusterIPs: [{SERVICE}]\n  ports:\n    - port: 80\n      \
         protocol: TCP\n      targetPort: {RESPONDER}\n---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  \
         name: web-1\n  namespace: {tenant}\n  labels:\n    kubernetes.io/service-name: web\naddressType: IPv4\nports:\n  - port: \
         {RESPONDER}\n    protocol: TCP\nendpoints:\n"
    );
    for (node, address) in [("node-1", "10.0.1.10"), ("node-2", "10.0.1.20")] {
        let _ = writeln!(
            text,
            "  - addresses: [{address}]\n    nodeName: {node}\n    conditions: {{ready: true, serving: true, terminating: false}}"
        );
    }
    text
}

/// The tenants of the examples, with Services.
fn manifests(directory: &Path) {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/tenants");
    for tenant in ["red", "blue"] {
        let text = std::fs::read_to_string(examples.join(format!("{tenant}.yaml"))).unwrap();
        let vpc = text.replacen("spec:\n  allowedNamespaces:", "spec:\n  service: {}\n  allowedNamespaces:", 1);
        assert_ne!(vpc, text, "the example's Vpc");
        std::fs::write(directory.join(format!("{tenant}.yaml")), format!("{vpc}\n---\n{}", service(tenant))).unwrap();
    }
}

/// What a connection of a Pod to an address and port is answered: a Pod's name, or how it failed.
fn ask(lab: &Lab, pod: &str, address: &str, port: u16) -> String {
    let script = format!("exec 3<>/dev/tcp/{address}/{port} && echo x >&3 && head -n 1 <&3");
    let output = lab.run(&["exec", pod, "--", "timeout", "5", "bash", "-c", &script]);
    match output.status.code() {
        Some(0) => String::from_utf8(output.stdout).unwrap().trim().to_owned(),
        Some(124) => "silence".to_owned(),
        _ if String::from_utf8_lossy(&output.stderr).contains("refused") => "refused".to_owned(),
        _ => String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

#[test]
fn tenants_with_equal_addresses_have_services_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    manifests(directory.path());
    let lab = Lab::new("services");
    lab.expect(&["up", "--no-check", "--directory", directory.path().to_str().unwrap()]);
    for tenant in ["red", "blue"] {
        for client in ["b1", "b2"] {
            let pod = format!("{tenant}/{client}");
            let answers: BTreeSet<String> = (0..16).map(|_| ask(&lab, &pod, SERVICE, 80)).collect();
            let own = [format!("{tenant}/a1"), format!("{tenant}/a2")];
            assert_eq!(answers, own.into(), "{pod}");
            assert_eq!(ask(&lab, &pod, SERVICE, 81), "refused", "a port that the Service does not have");
        }
        // It reaches itself, too: of several connections some come back to the sender.
        let own = format!("{tenant}/a1");
        assert!((0..16).any(|_| ask(&lab, &own, SERVICE, 80) == own));
    }
    assert_eq!(ask(&lab, "red/b1", "10.96.1.11", 80), "silence", "an address that no Service has");
}
