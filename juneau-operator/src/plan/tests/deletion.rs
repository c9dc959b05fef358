//! Deletion in any order ends, or says what it waits for.

use super::*;

fn tenant() -> Cluster {
    let mut cluster = Cluster::with("red", "10.0.0.0/24");
    let spec = json!({"vpc": "red", "routes": []});
    cluster.put(json!({"apiVersion": JUNEAU, "kind": "RouteTable", "metadata": {"name": "own"}, "spec": spec}));
    let spec = json!({"vpc": "red", "cidr": "10.0.0.0/24", "routeTable": "own"});
    cluster.put(json!({"apiVersion": JUNEAU, "kind": "Subnet", "metadata": {"name": "red"}, "spec": spec}));
    cluster.pod("red", "a");
    cluster.settle();
    cluster
}

#[test]
fn what_is_used_stays_and_names_its_users() {
    let mut cluster = tenant();
    for (kind, name, users) in [
        (Kind::Vpc, "red", "Subnet/red, RouteTable/own"),
        (Kind::Subnet, "red", "NetworkInterface/red/a.eth0"),
        (Kind::RouteTable, "own", "Subnet/red"),
        (Kind::RouteTable, "red", ""),
    ] {
        cluster.delete(kind, name);
        cluster.settle();
        let expected = (false, "InUse".to_owned(), format!("is being deleted and waits for {users}"));
        if !users.is_empty() {
            assert_eq!(cluster.ready(kind, name), expected);
        }
    }
    assert!(cluster.ready(Kind::NetworkInterface, "red/a.eth0").0, "who is there is not disturbed");
    // Nobody new comes in.
    cluster.pod("red", "late");
    cluster.settle();
    assert_eq!(cluster.ready(Kind::NetworkInterface, "red/late.eth0").1, "NetworkNotReady");
    cluster.remove(Kind::Pod, "red/a");
    cluster.settle();
    for (kind, name) in
        [(Kind::Vpc, "red"), (Kind::Subnet, "red"), (Kind::RouteTable, "own"), (Kind::RouteTable, "red")]
    {
        assert!(!cluster.exists(kind, name), "{kind}/{name}");
    }
    assert_eq!(cluster.ready(Kind::NetworkInterface, "red/late.eth0").1, "SubnetNotFound");
    cluster.sleep(61);
    cluster.settle();
    let view = cluster.objects.view();
    let claims = view.leases.values().map(|lease| &lease.spec.claim_ref.name).chain(view.claims.keys());
    let left: Vec<_> = claims.filter(|name| !name.contains("default")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn any_order_ends() {
    let all = [(Kind::Vpc, "red"), (Kind::Subnet, "red"), (Kind::RouteTable, "own"), (Kind::Pod, "red/a")];
    for first in 0..4 {
        for second in 0..4 {
            for third in 0..4 {
                let mut order: Vec<usize> = vec![first, second, third];
                order.extend(0..4);
                let mut cluster = tenant();
                let mut done = std::collections::BTreeSet::new();
                for index in order {
                    if !done.insert(index) {
                        continue;
                    }
                    let (kind, name) = all[index];
                    if kind == Kind::Pod {
                        cluster.remove(kind, name);
                    } else {
                        cluster.delete(kind, name);
                    }
                    if (first + second) % 2 == 0 {
                        cluster.settle();
                    }
                }
                cluster.settle();
                cluster.sleep(61);
                cluster.settle();
                let view = cluster.objects.view();
                assert_eq!((view.vpcs.len(), view.subnets.len(), view.route_tables.len()), (1, 1, 1));
                assert_eq!((view.network_interfaces.len(), view.claims.len(), view.pools.len()), (0, 1, 4));
            }
        }
    }
}

#[test]
fn a_vpc_that_is_torn_out_costs_its_subnets_and_can_come_back() {
    let mut cluster = tenant();
    let (id, nic) = (cluster.vpc("red").status.as_ref().unwrap().vpc_id, cluster.address("red/a.eth0"));
    cluster.remove(Kind::Vpc, "red");
    cluster.settle();
    assert_eq!(cluster.ready(Kind::Subnet, "red").1, "VpcNotFound");
    assert!(cluster.ready(Kind::Subnet, "default").0);
    cluster.put(json!({"apiVersion": JUNEAU, "kind": "Vpc", "metadata": {"name": "red", "uid": "new"}, "spec": {}}));
    cluster.settle();
    assert!(cluster.ready(Kind::Vpc, "red").0 && cluster.ready(Kind::Subnet, "red").0);
    assert_eq!(cluster.vpc("red").status.as_ref().unwrap().vpc_id, id, "its number rested meanwhile");
    assert!(cluster.ready(Kind::NetworkInterface, "red/a.eth0").0);
    assert_eq!(cluster.address("red/a.eth0"), nic);
}

#[test]
fn a_subnet_that_is_torn_out_and_made_with_another_prefix_starts_anew() {
    let mut cluster = tenant();
    cluster.remove(Kind::Subnet, "red");
    cluster.settle();
    assert_eq!(cluster.ready(Kind::NetworkInterface, "red/a.eth0").1, "SubnetNotFound");
    let spec = json!({"vpc": "red", "cidr": "10.8.0.0/24"});
    cluster
        .put(json!({"apiVersion": JUNEAU, "kind": "Subnet", "metadata": {"name": "red", "uid": "new"}, "spec": spec}));
    cluster.pod("red", "b");
    cluster.settle();
    assert_eq!(cluster.address("red/b.eth0"), "10.8.0.4");
    let pool = &cluster.objects.view().pools["subnet-ip-red"];
    assert_eq!(pool.metadata.owner_references.as_ref().unwrap()[0].uid, "new");
}

#[test]
fn a_finalizer_that_a_hand_removed_comes_back() {
    let mut cluster = tenant();
    let mut nic = kinds::NetworkInterface::clone(&cluster.nic("red/a.eth0"));
    nic.metadata.finalizers = None;
    cluster.objects.put(nic.into());
    cluster.settle();
    assert_eq!(cluster.nic("red/a.eth0").metadata.finalizers.as_ref().unwrap().len(), 1);
}

#[test]
fn an_interface_that_is_deleted_under_a_pod_is_made_again() {
    let mut cluster = tenant();
    let before = cluster.nic("red/a.eth0");
    cluster.delete(Kind::NetworkInterface, "red/a.eth0");
    cluster.settle();
    let after = cluster.nic("red/a.eth0");
    assert_ne!(before.metadata.uid, after.metadata.uid);
    assert_eq!(cluster.address("red/a.eth0"), "10.0.0.4", "nobody else had its address");
    assert!(cluster.ready(Kind::NetworkInterface, "red/a.eth0").0);
}

#[test]
fn an_address_of_a_subnet_that_was_made_anew_with_another_range_is_told() {
    let mut cluster = Cluster::with("red", "10.0.0.0/24");
    cluster.pod("red", "a");
    cluster.settle();
    cluster.remove(Kind::Subnet, "red");
    cluster.settle();
    assert_eq!(cluster.ready(Kind::NetworkInterface, "red/a.eth0").1, "SubnetNotFound");
    cluster.sleep(61);
    cluster.subnet("red", "red", "10.0.9.0/24");
    cluster.pod("red", "b");
    cluster.settle();
    let (ready, reason, message) = cluster.ready(Kind::NetworkInterface, "red/a.eth0");
    assert_eq!((ready, reason.as_str()), (false, "AllocationFailed"));
    assert!(message.contains("10.0.0.4 is outside Subnet/red (10.0.9.0/24)") && message.contains("anew"), "{message}");
    assert!(cluster.ready(Kind::NetworkInterface, "red/b.eth0").0);
    // Its Pod, made anew, has one of the new range.
    cluster.remove(Kind::Pod, "red/a");
    cluster.settle();
    cluster.pod_of("red", "a", "uid-again", json!({"juneau.loutres.me/subnet": "red"}), json!([]));
    cluster.settle();
    assert!(cluster.address("red/a.eth0").starts_with("10.0.9."), "{}", cluster.address("red/a.eth0"));
    assert!(cluster.ready(Kind::NetworkInterface, "red/a.eth0").0);
}
