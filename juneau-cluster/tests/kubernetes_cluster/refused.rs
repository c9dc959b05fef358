//! Pods that cannot be had as they ask: they are told why, and nobody else notices.

use crate::fixture::{Fixture, until};
use crate::programs::succeeds;
use crate::workload::{reaches, server};
use serde_json::{Value, json};

/// A Pod that has its addresses and never starts: it waits for a volume.
fn holder(namespace: &str, name: &str, node: &str, annotations: &[(&str, &str)]) -> Value {
    let mut pod = server(namespace, name, node, annotations);
    pod["spec"]["volumes"] = json!([{ "name": "missing", "configMap": { "name": "missing" } }]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{ "name": "missing", "mountPath": "/missing" }]);
    pod
}

#[test]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
fn pods_of_a_full_subnet_wait_and_start_when_an_address_is_free() {
    let fixture = Fixture::shared();
    let _together = fixture.together();
    // Eleven addresses, ten of which one Pod has.
    fixture.tenant("tight", &[("tight-a", "10.0.9.0/28")]);
    let more: Vec<Value> =
        (1..10).map(|number| json!({ "interface": format!("eth{number}"), "subnet": "tight-a" })).collect();
    let subnet = ("subnet", "tight-a");
    fixture.make(&[holder("tight", "holder", "node-2", &[subnet, ("networks", &json!(more).to_string())])]);
    fixture.start(&[server("tight", "last", "node-1", &[subnet])]);
    until("ten addresses are taken", || {
        let leases = succeeds(&mut fixture.kubectl("get allocationleases -o name"));
        let taken = leases.lines().filter(|lease| lease.contains("/subnet-ip-tight-a--")).count();
        if taken == 11 { Ok(()) } else { Err(taken.to_string()) }
    });
    fixture.make(&[server("tight", "waits", "node-1", &[subnet])]);
    fixture.expect_event("tight", "waits", &["SubnetExhausted", "Subnet/tight-a (10.0.9.0/28) has no free address"]);
    fixture.expect_event("tight", "waits", &["FailedCreatePodSandBox", "tight/waits"]);
    assert!(!fixture.is_ready("tight", "waits"));
    let last = fixture.address("tight", "last");
    reaches(&fixture.inside("tight", "last"), &last, "tight/last");

    succeeds(&mut fixture.kubectl("-n tight delete pod last --timeout=60s"));
    fixture.wait_for_pod_again("tight", "waits");
    assert_eq!(fixture.address("tight", "waits"), last, "the one that came free");
    fixture.empty("tight");
}

#[test]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
fn pods_that_may_not_join_or_cannot_be_read_are_told_so_and_hurt_nobody() {
    let fixture = Fixture::shared();
    let _together = fixture.together();
    fixture.tenant("closed", &[("closed-a", "10.0.1.0/24")]);
    fixture.namespace("stranger");
    let huge = |bytes: usize| {
        let entry = json!({ "interface": "eth1", "subnet": "closed-a" });
        let count = bytes / entry.to_string().len();
        Value::Array(vec![entry; count]).to_string()
    };
    let (large, too_large) = (huge(250_000), huge(1_000_000));
    /// A name, annotations, and what a refusal says.
    type Wrong<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a [&'a str]);
    let wrong: [Wrong<'_>; 5] = [
        ("may-not", &[("subnet", "closed-a")], &["stranger", "closed"]),
        ("too-large", &[("networks", &too_large)], &["Too long"]),
        ("large", &[("networks", &large)], &["juneau.loutres.me/networks"]),
        ("no-json", &[("networks", "[{")], &["juneau.loutres.me/networks"]),
        ("no-address", &[("subnet", "closed-a"), ("address", "10.0.1.300")], &["juneau.loutres.me/address"]),
    ];
    // Whoever makes such a Pod is told at once.
    for (name, annotations, parts) in &wrong {
        let refused = fixture.try_create(&server("stranger", name, "node-1", annotations)).unwrap_err();
        assert!(parts.iter().all(|part| refused.contains(part)), "{name}: {refused:.2000}");
        assert!(refused.len() < 4000, "{name}: {} bytes", refused.len());
    }
    // Where nobody is asked, as while no operator runs, they come in, and get no network.
    let unasked: Vec<_> = wrong.iter().filter(|(name, ..)| *name != "too-large").collect();
    for (name, annotations, _) in &unasked {
        fixture.try_create(&server("kube-system", name, "node-1", annotations)).unwrap();
    }
    // Others start meanwhile on the same node, and go on.
    fixture.start(&[
        server("closed", "near", "node-1", &[("subnet", "closed-a")]),
        server("closed", "away", "node-2", &[("subnet", "closed-a")]),
    ]);
    fixture.expect_event("kube-system", "may-not", &["NamespaceNotAllowed", "kube-system", "closed"]);
    for name in ["large", "no-json", "no-address"] {
        fixture.expect_event("kube-system", name, &["InvalidAnnotation", "juneau.loutres.me/"]);
    }
    for (name, ..) in &unasked {
        fixture.expect_event("kube-system", name, &["FailedCreatePodSandBox", name]);
        assert!(!fixture.is_ready("kube-system", name));
    }
    reaches(&fixture.inside("closed", "near"), &fixture.address("closed", "away"), "closed/away");
    fixture.wait_for_agent("node-1");
    fixture.start(&[server("closed", "later", "node-1", &[("subnet", "closed-a")])]);
    let names: Vec<&str> = unasked.iter().map(|(name, ..)| *name).collect();
    succeeds(fixture.kubectl("-n kube-system delete pod --timeout=60s").args(names));
    fixture.empty("closed");
}
