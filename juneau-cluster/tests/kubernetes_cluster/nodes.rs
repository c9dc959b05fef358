//! Nodes go away: one starts again, one dies for good.

use crate::fixture::{Fixture, PODS, until};
use crate::programs::succeeds;
use std::collections::BTreeMap;

const NODE: &str = "node-2";

/// The sandboxes of the Pods that are always on the node.
fn sandboxes(fixture: &Fixture) -> BTreeMap<(&'static str, &'static str), String> {
    let here = PODS.iter().filter(|(_, _, node, _)| *node == NODE);
    here.map(|(tenant, name, _, _)| ((*tenant, *name), fixture.sandbox(tenant, name))).collect()
}

#[test]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
fn a_node_that_starts_again_brings_its_pods_back() {
    let fixture = Fixture::shared();
    let _turn = fixture.turn();
    let (before, sandboxes_before) = (fixture.settled(), sandboxes(&fixture));
    let red_a = fixture.inside("red", "a");
    assert_eq!(red_a.ask("10.0.1.20").as_deref(), Some("red/b"));
    fixture.cluster().power_off(NODE).unwrap();
    assert_eq!(red_a.ask("10.0.1.20"), None, "nobody is there");
    assert_eq!(red_a.ask("10.0.1.40").as_deref(), Some("red/c"), "the other node goes on");
    drop(red_a);

    fixture.cluster().power_on(NODE).unwrap();
    // Each in another sandbox, with the address that it had.
    let mut asked = 0;
    until("all Pods have another sandbox", || {
        asked += 1;
        if asked % 10 == 0 && fixture.agent(NODE, "status --ready").is_ok() {
            // Those that were tried before there was an agent.
            ["red", "blue"].iter().for_each(|tenant| fixture.hurry(tenant, &["b"]));
        }
        let now = sandboxes(&fixture);
        let same: Vec<_> = now.iter().filter(|(pod, id)| id.is_empty() || sandboxes_before[*pod] == **id).collect();
        if same.is_empty() { Ok(()) } else { Err(format!("{same:?}")) }
    });
    fixture.expect_pods();
    fixture.wait_for_agent(NODE);
    for (tenant, name, _, address) in PODS {
        let shown =
            succeeds(&mut fixture.kubectl(&format!("-n {tenant} get pod {name} -o jsonpath={{.status.podIP}}")));
        assert_eq!(shown, address, "{tenant}/{name}");
    }
    fixture.expect_network();
    fixture.expect_as_many(&before);
}

#[test]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
fn a_node_that_dies_is_forgotten_and_its_addresses_come_free() {
    let fixture = Fixture::shared();
    let _turn = fixture.turn();
    let before = fixture.settled();
    let here: Vec<_> = PODS.iter().filter(|(_, _, node, _)| *node == NODE).collect();
    let known = || -> Result<Vec<String>, String> {
        let endpoints = fixture.agent("node-1", "endpoints")?;
        let remote = endpoints["endpoints"].as_array().unwrap().iter().filter(|endpoint| !endpoint["vtep"].is_null());
        Ok(remote.map(|endpoint| endpoint["address"].as_str().unwrap().to_owned()).collect())
    };
    let knows =
        |known: &[String]| here.iter().filter(|(.., address)| known.iter().any(|other| other == address)).count();
    assert_eq!(knows(&known().unwrap()), here.len(), "the positive control of what is forgotten below");

    fixture.cluster().power_off(NODE).unwrap();
    // What an administrator does about it, who knows that it does not run any more.
    for (tenant, name, _, _) in &here {
        succeeds(&mut fixture.kubectl(&format!("-n {tenant} delete pod {name} --force --grace-period=0")));
    }
    succeeds(&mut fixture.kubectl(&format!("delete node {NODE}")));
    until("the other node forgets its endpoints", || match known()? {
        known if knows(&known) == 0 => Ok(()),
        known => Err(format!("{known:?}")),
    });
    until("their leases are gone", || {
        let leases = succeeds(&mut fixture.kubectl("get allocationleases -A -o jsonpath={.items[*].spec.value}"));
        if leases.contains("10.0.1.20") || leases.contains("10.0.1.30") { Err(leases) } else { Ok(()) }
    });
    assert!(before.iter().any(|entry| entry.contains("lease")), "the positive control");
    // Somebody else may have them, at once.
    fixture.start_pod("red", "heir", "node-1", "10.0.1.20");
    assert_eq!(fixture.inside("red", "a").ask("10.0.1.20").as_deref(), Some("red/heir"));
    fixture.delete_pod("red", "heir");

    // It comes back with what it remembers: Pods that are not wanted any more go, others come.
    fixture.cluster().power_on(NODE).unwrap();
    succeeds(&mut fixture.kubectl(&format!("wait --for=create node/{NODE} --timeout=60s")));
    succeeds(&mut fixture.kubectl(&format!("wait --for=condition=Ready node/{NODE} --timeout=90s")));
    fixture.wait_for_agent(NODE);
    fixture.expect_pods();
    fixture.expect_network();
    fixture.expect_as_many(&before);
}
