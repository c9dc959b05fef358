//! From nothing to a network.

use crate::fixture::Fixture;

#[test]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
fn the_operator_comes_up_without_a_network_and_nodes_get_ready_with_their_agents() {
    let fixture = Fixture::shared();
    let _together = fixture.together();
    let installation = fixture.installation();
    for (node, (ready, why)) in &installation.without_agents {
        assert!(!ready && why.contains("cni plugin not initialized"), "{node}: {why}");
    }
    assert_eq!(installation.with_agents.len(), 2);
    assert!(installation.with_agents.values().all(|(ready, _)| *ready), "{installation:?}");
    let secret = fixture.get("-n juneau-system secret webhook-certs");
    assert!(secret["data"]["tls.crt"].is_string(), "the webhook's certificate");
    // Whoever asks it gets an answer.
    let refused = fixture.try_create(&serde_json::json!({
        "apiVersion": "juneau.loutres.me/v1alpha1", "kind": "Subnet", "metadata": { "name": "nowhere" },
        "spec": { "vpc": "nowhere", "cidr": "10.0.1.0/24" },
    }));
    assert!(refused.as_ref().is_err_and(|text| text.contains("Vpc nowhere does not exist")), "{refused:?}");
}
