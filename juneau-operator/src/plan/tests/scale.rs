//! Many objects.

use super::*;
use std::time::Instant;

fn many(tenants: usize, pods: usize) -> Cluster {
    let mut cluster = Cluster::new();
    for tenant in 0..tenants {
        cluster.tenant(&format!("t{tenant:03}"), "10.0.0.0/16");
    }
    for pod in 0..pods {
        cluster.pod(&format!("t{:03}", pod % tenants), &format!("p{pod:05}"));
    }
    cluster
}

#[test]
fn two_hundred_vpcs_and_a_thousand_interfaces_at_once() {
    let mut cluster = many(200, 1000);
    cluster.settle();
    cluster.assert_unique();
    let view = cluster.objects.view();
    assert_eq!((view.vpcs.len(), view.network_endpoints.len()), (201, 1000));
    for nic in view.network_interfaces.keys() {
        assert!(cluster.ready(Kind::NetworkInterface, &nic.to_string()).0, "{nic}");
    }
    let per_pod = cluster.writes.iter().filter(|write| write.contains("p00007")).count();
    assert_eq!(per_pod, 7, "{:?}", cluster.writes.iter().filter(|w| w.contains("p00007")).collect::<Vec<_>>());
}

/// Twice the objects cost about twice the time, not four times.
#[test]
fn a_plan_is_linear() {
    let settled = |pods: usize| {
        let mut cluster = many(50, pods);
        cluster.settle();
        cluster
    };
    let clusters = [settled(1000), settled(4000)];
    let mut times = [std::time::Duration::MAX; 2];
    // In turn, so that a busy machine is busy for both.
    for _ in 0..15 {
        for (cluster, time) in clusters.iter().zip(&mut times) {
            let start = Instant::now();
            assert!(plan(cluster.objects.view(), &cluster.config, cluster.now).changes.is_empty());
            *time = start.elapsed().min(*time);
        }
    }
    let [small, large] = times;
    assert!(large < small * 8, "{small:?} for 1000 endpoints, {large:?} for 4000");
}
