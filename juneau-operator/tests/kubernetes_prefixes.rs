//! Prefixes with host bits: taken, left as their users wrote them, and read without.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use serde_json::{Value, json};
use support::{Cluster, Operator, is_ready, object};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
async fn host_bits_mean_nothing_and_what_users_wrote_stays() {
    let cluster = Cluster::start(true).await;
    let operator = Operator::start(&cluster, cluster.webhook).await;
    let vpc = |pool: &str| object("Vpc", "red", json!({"endpointPool": {"cidrs": [pool]}}));
    let subnet = |name: &str, cidr: &str| object("Subnet", name, json!({"vpc": "red", "cidr": cidr}));
    // An API server takes a moment to learn whom to trust.
    let made = vpc("10.9.0.7/24");
    cluster.until("a Vpc is admitted", &[&operator], async |cluster| cluster.try_apply(&made).is_ok()).await;
    cluster.apply(&subnet("red-a", "10.0.1.77/24"));
    cluster
        .until("the Subnet is ready", &[&operator], async |cluster| {
            cluster.get("Subnet", "red-a").await.is_some_and(|found| is_ready(&found))
        })
        .await;
    let found = cluster.get("Subnet", "red-a").await.unwrap();
    assert_eq!((&found["spec"]["cidr"], &found["status"]["gateway"]), (&json!("10.0.1.77/24"), &json!("10.0.1.1")));
    let pool = cluster.get("AllocationPool", "subnet-ip-red-a").await.unwrap();
    assert_eq!(pool["spec"]["ip"]["cidrs"], json!(["10.0.1.0/24"]));
    let table = cluster.get("RouteTable", "red").await.unwrap();
    let dst = |route: &Value| route["dst"] == "10.0.1.0/24";
    assert!(table["status"]["routes"].as_array().unwrap().iter().any(dst), "{table}");

    // Whoever applies the same again, or the same prefix in its plain form, changes or breaks nothing.
    let generation = |object: Value| object["metadata"]["generation"].clone();
    cluster.apply(&subnet("red-a", "10.0.1.77/24"));
    cluster.apply(&vpc("10.9.0.7/24"));
    assert_eq!(generation(cluster.get("Subnet", "red-a").await.unwrap()), generation(found));
    let found = cluster.get("Vpc", "red").await.unwrap();
    assert_eq!(
        (&found["spec"]["endpointPool"]["cidrs"], generation(found.clone())),
        (&json!(["10.9.0.7/24"]), json!(1))
    );
    cluster.apply(&subnet("red-a", "10.0.1.0/24"));
    cluster.apply(&vpc("10.9.0.0/24"));
    let said = cluster.try_apply(&subnet("red-a", "10.0.2.0/24")).unwrap_err();
    assert!(said.contains("cidr"), "{said}");

    // What overlaps is seen through host bits on either side.
    cluster.apply(&vpc("10.9.0.7/24"));
    for (cidr, with) in [("10.0.1.130/25", "Subnet red-a"), ("10.9.0.200/25", "endpoint pool of Vpc red")] {
        let said = cluster.try_apply(&subnet("red-b", cidr)).unwrap_err();
        assert!(said.contains(with), "{with:?} is not in {said}");
    }
    cluster.apply(&subnet("red-b", "10.0.2.130/25"));
    cluster.nothing_was_forbidden();
    operator.stop();
}
