//! Addresses that outlive Pods: of StatefulSets and of virtual machines.

use crate::fixture::{Fixture, until};
use crate::programs::succeeds;
use crate::workload::{container, reaches, server};
use serde_json::{Value, json};

/// A StatefulSet of one Pod on a node.
fn database(node: &str) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": { "namespace": "state", "name": "db" },
        "spec": {
            "serviceName": "db",
            "replicas": 1,
            "selector": { "matchLabels": { "app": "db" } },
            "template": {
                "metadata": { "labels": { "app": "db" }, "annotations": { "juneau.loutres.me/subnet": "state-a" } },
                "spec": {
                    "nodeSelector": { "kubernetes.io/hostname": node },
                    "terminationGracePeriodSeconds": 1,
                    "containers": [container("state", "db-0")],
                },
            },
        },
    })
}

#[test]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
fn a_stateful_pod_keeps_its_address_and_is_found_where_it_went() {
    let fixture = Fixture::shared();
    let _together = fixture.together();
    fixture.tenant("state", &[("state-a", "10.0.6.0/24")]);
    let subnet = [("subnet", "state-a")];
    fixture.make(&[database("node-1")]);
    fixture.start(&[server("state", "here", "node-1", &subnet), server("state", "there", "node-2", &subnet)]);
    let peers = ["here", "there"].map(|name| (name, fixture.inside("state", name), fixture.address("state", name)));
    let mut before: Option<Value> = None;
    // At first, deleted, and on the other node.
    for (step, node) in ["node-1", "node-1", "node-2"].into_iter().enumerate() {
        match step {
            1 => drop(succeeds(&mut fixture.kubectl("-n state delete pod db-0 --wait=false"))),
            2 => fixture.make(&[database("node-2")]),
            _ => {}
        }
        let uid = |pod: &Value| pod["metadata"]["uid"].clone();
        let now = until("another Pod of the StatefulSet is there", || {
            let pods = fixture.get("-n state pod -l app=db");
            let other = |pod: &&Value| before.as_ref().is_none_or(|before| uid(before) != uid(pod));
            pods["items"].as_array().unwrap().iter().find(other).cloned().ok_or_else(|| "none".to_owned())
        });
        fixture.wait_for_pod("state", "db-0");
        let now = json!({ "metadata": now["metadata"], "address": fixture.address("state", "db-0") });
        assert_eq!(fixture.get("-n state pod db-0")["spec"]["nodeName"], node);
        if let Some(before) = &before {
            assert_eq!(before["address"], now["address"], "it keeps its address");
        }
        let address = now["address"].as_str().unwrap();
        let inside = fixture.inside("state", "db-0");
        for (name, peer, theirs) in &peers {
            reaches(peer, address, "state/db-0");
            reaches(&inside, theirs, &format!("state/{name}"));
        }
        before = Some(now);
    }
    drop(peers);
    fixture.empty("state");
}

/// A Pod in which a virtual machine runs.
fn launcher(name: &str, machine: &str, node: &str) -> Value {
    let mut pod = server("machines", name, node, &[("subnet", "machines-a")]);
    pod["metadata"]["labels"] = json!({ "vm.kubevirt.io/name": machine });
    pod
}

#[test]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
fn a_machine_keeps_its_address_from_pod_to_pod_and_node_to_node() {
    let fixture = Fixture::shared();
    let _together = fixture.together();
    fixture.tenant("machines", &[("machines-a", "10.0.5.0/24")]);
    fixture.make(&[json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "virtualmachines.kubevirt.io" },
        "spec": { "group": "kubevirt.io", "scope": "Namespaced",
            "names": { "kind": "VirtualMachine", "plural": "virtualmachines", "singular": "virtualmachine" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true } } }] } })]);
    let machine = |name: &str| {
        json!({ "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": { "namespace": "machines", "name": name } })
    };
    fixture.make(&[machine("stays"), machine("moves")]);
    let subnet = [("subnet", "machines-a")];
    fixture.start(&[
        server("machines", "peer", "node-2", &subnet),
        launcher("stays-1", "stays", "node-1"),
        launcher("moves-1", "moves", "node-1"),
    ]);
    let (peer, theirs) = (fixture.inside("machines", "peer"), fixture.address("machines", "peer"));
    let talk = |pod: &str, address: &str| {
        reaches(&peer, address, &format!("machines/{pod}"));
        reaches(&fixture.inside("machines", pod), &theirs, "machines/peer");
    };
    let address = |pod: &str| fixture.address("machines", pod);
    let [stays, moves] = ["stays-1", "moves-1"].map(address);
    assert_ne!(stays, moves);
    talk("stays-1", &stays);
    talk("moves-1", &moves);
    succeeds(&mut fixture.kubectl("-n machines delete pod stays-1 moves-1 --timeout=60s"));
    // Somebody else gets another one meanwhile; the machines find theirs, one of them on the peer's node.
    fixture.start(&[
        server("machines", "stranger", "node-1", &subnet),
        launcher("stays-2", "stays", "node-1"),
        launcher("moves-2", "moves", "node-2"),
    ]);
    assert!(![&stays, &moves].contains(&&address("stranger")));
    assert_eq!([address("stays-2"), address("moves-2")], [stays.clone(), moves.clone()]);
    talk("stays-2", &stays);
    talk("moves-2", &moves);

    // A second Pod of a machine that runs, as during a migration.
    fixture.start(&[launcher("stays-3", "stays", "node-2")]);
    assert_ne!(address("stays-3"), stays);
    talk("stays-3", &address("stays-3"));
    talk("stays-2", &stays);
    let lease = fixture.get(&format!("allocationlease subnet-ip-machines-a--{}", stays.replace('.', "-")));
    let claim = fixture.get("-n machines networkinterface stays-2.eth0")["status"]["allocationClaim"].clone();
    assert_eq!(lease["spec"]["claimRef"]["name"], claim, "the first one's");
    drop(peer);
    fixture.empty("machines");
}
