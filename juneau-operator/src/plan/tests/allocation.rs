//! Numbers and addresses: who gets which, and when they come back.

use super::*;

fn stateful() -> Value {
    json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "set", "controller": true}])
}

fn red() -> Value {
    json!({"juneau.loutres.me/subnet": "red"})
}

#[test]
fn numbers_are_the_smallest_free_ones() {
    let mut cluster = Cluster::new();
    for name in ["a", "b", "c"] {
        cluster.tenant(name, "10.0.0.0/24");
    }
    cluster.settle();
    let ids = |cluster: &Cluster| {
        ["a", "b", "c"]
            .map(|name| cluster.objects.view().vpcs.get(name).map(|vpc| vpc.status.clone().unwrap().vpc_id.unwrap()))
    };
    assert_eq!(ids(&cluster), [Some(2), Some(3), Some(4)]);
    cluster.remove(Kind::Subnet, "b");
    cluster.delete(Kind::Vpc, "b");
    cluster.settle();
    cluster.sleep(61);
    cluster.settle();
    cluster.tenant("d", "10.0.0.0/24");
    cluster.settle();
    assert_eq!(cluster.vpc("d").status.as_ref().unwrap().vpc_id, Some(3));
    cluster.assert_unique();
}

#[test]
fn addresses_go_round_and_rest_before_they_come_again() {
    let mut cluster = Cluster::with("red", "10.0.0.0/28");
    for n in 0..3 {
        cluster.pod("red", &format!("p{n}"));
        cluster.settle();
        cluster.sleep(1);
    }
    assert_eq!(cluster.address("red/p2.eth0"), "10.0.0.6");
    cluster.remove(Kind::Pod, "red/p0");
    cluster.settle();
    // It rests, and is not next even when it is free.
    assert!(cluster.leases("subnet-ip-red").contains_key("10.0.0.4"));
    cluster.pod("red", "p3");
    cluster.settle();
    assert_eq!(cluster.address("red/p3.eth0"), "10.0.0.7");
    let wake = plan(cluster.objects.view(), &cluster.config, cluster.now).wake.unwrap();
    assert_eq!(wake.as_second() - cluster.now.as_second(), 60);
    cluster.sleep(60);
    cluster.settle();
    assert!(!cluster.leases("subnet-ip-red").contains_key("10.0.0.4"));
    assert_eq!(plan(cluster.objects.view(), &cluster.config, cluster.now).wake, None);
    cluster.pod("red", "p4");
    cluster.settle();
    assert_eq!(cluster.address("red/p4.eth0"), "10.0.0.8");
}

#[test]
fn a_subnet_says_how_long_its_addresses_rest() {
    let mut cluster = Cluster::with("red", "10.0.0.0/28");
    let spec = json!({"vpc": "red", "cidr": "10.0.0.0/28", "quarantine": "5m"});
    cluster.put(json!({"apiVersion": JUNEAU, "kind": "Subnet", "metadata": {"name": "red"}, "spec": spec}));
    cluster.pod("red", "a");
    cluster.settle();
    cluster.remove(Kind::Pod, "red/a");
    cluster.settle();
    cluster.sleep(299);
    cluster.settle();
    assert_eq!(cluster.leases("subnet-ip-red").len(), 1);
    cluster.sleep(1);
    cluster.settle();
    assert!(cluster.leases("subnet-ip-red").is_empty());
}

#[test]
fn an_exhausted_subnet_takes_resting_addresses_oldest_first() {
    let mut cluster = Cluster::with("red", "10.0.0.0/28");
    for n in 0..11 {
        cluster.pod("red", &format!("p{n:02}"));
    }
    cluster.settle();
    cluster.pod("red", "more");
    cluster.settle();
    let (ready, reason, message) = cluster.ready(Kind::NetworkInterface, "red/more.eth0");
    assert_eq!((ready, reason.as_str()), (false, "SubnetExhausted"));
    assert_eq!(message, "Subnet/red (10.0.0.0/28) has no free address");
    assert!(cluster.notices().iter().any(|n| n.object.name.name == "more" && n.reason == "SubnetExhausted"));
    assert_eq!(cluster.step(), 0, "nothing is written while it waits");
    let oldest = cluster.address("red/p05.eth0");
    cluster.remove(Kind::Pod, "red/p05");
    cluster.settle();
    assert_eq!(cluster.address("red/more.eth0"), oldest, "at once");
    // A roll in a full Subnet never stands still.
    for n in 0..30 {
        cluster.sleep(1);
        cluster
            .remove(Kind::Pod, &format!("red/{}", if n == 0 { "more".to_owned() } else { format!("roll{}", n - 1) }));
        cluster.pod("red", &format!("roll{n}"));
        cluster.settle();
        assert!(cluster.ready(Kind::NetworkInterface, &format!("red/roll{n}.eth0")).0, "{n}");
        cluster.assert_unique();
    }
}

#[test]
fn a_stateful_pod_finds_its_address_again() {
    let mut cluster = Cluster::with("red", "10.0.0.0/28");
    cluster.pod_of("red", "web-0", "u1", red(), stateful());
    cluster.settle();
    let address = cluster.address("red/web-0.eth0");
    cluster.remove(Kind::Pod, "red/web-0");
    cluster.settle();
    let Object::AllocationLease(lease) = cluster.get(Kind::AllocationLease, "subnet-ip-red--10-0-0-4") else {
        panic!()
    };
    assert_eq!(lease.status.as_ref().unwrap().phase, Some(kinds::LeasePhase::Released));
    assert!(lease.status.as_ref().unwrap().expires_at.is_some());
    // Others take the rest of the Subnet, but not this one.
    for n in 0..11 {
        cluster.pod("red", &format!("p{n}"));
    }
    cluster.sleep(1800);
    cluster.settle();
    assert!(!cluster.ready(Kind::NetworkInterface, "red/p9.eth0").0);
    cluster.pod_of("red", "web-0", "u2", red(), stateful());
    cluster.settle();
    assert_eq!(cluster.address("red/web-0.eth0"), address);
    assert_eq!(cluster.nic("red/web-0.eth0").spec.pod_ref.uid, "u2");
    cluster.assert_unique();
    // An hour without it, and the address is anybody's.
    cluster.remove(Kind::Pod, "red/web-0");
    cluster.settle();
    cluster.sleep(3600);
    cluster.settle();
    assert!((0..11).all(|n| cluster.ready(Kind::NetworkInterface, &format!("red/p{n}.eth0")).0));
}

#[test]
fn a_virtual_machine_keeps_its_address_from_pod_to_pod() {
    let mut cluster = Cluster::with("red", "10.0.0.0/28");
    let launcher = |cluster: &mut Cluster, name: &str| {
        cluster.put(json!({"apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": "n1", "containers": []},
            "metadata": {"namespace": "red", "name": name, "uid": name, "annotations": red(), "labels": {"vm.kubevirt.io/name": "db"}}}));
    };
    launcher(&mut cluster, "virt-1");
    let machine = crate::view::Retaining {
        api_version: "kubevirt.io/v1".to_owned(),
        kind: "VirtualMachine".to_owned(),
        name: key("red/db"),
    };
    let mut view = cluster.objects.view().clone();
    view.retaining.insert(machine);
    cluster.objects = Objects::from(view.clone());
    cluster.settle();
    let address = cluster.address("red/virt-1.eth0");
    cluster.remove(Kind::Pod, "red/virt-1");
    cluster.settle();
    cluster.sleep(100_000);
    cluster.settle();
    assert!(cluster.leases("subnet-ip-red").contains_key(&address), "as long as the machine exists");
    launcher(&mut cluster, "virt-2");
    cluster.settle();
    assert_eq!(cluster.address("red/virt-2.eth0"), address);
}

#[test]
fn a_claim_with_two_leases_keeps_the_one_that_it_has() {
    let mut cluster = Cluster::with("red", "10.0.0.0/28");
    cluster.pod("red", "a");
    cluster.settle();
    let Object::AllocationLease(lease) = cluster.get(Kind::AllocationLease, "subnet-ip-red--10-0-0-4") else {
        panic!()
    };
    let mut second = kinds::AllocationLease::clone(&lease);
    second.metadata.name = Some("subnet-ip-red--10-0-0-9".to_owned());
    second.metadata.uid = None;
    second.spec.value.ip = Some("10.0.0.9".to_owned());
    cluster.objects.put(second.into());
    cluster.settle();
    assert_eq!(cluster.leases("subnet-ip-red").keys().collect::<Vec<_>>(), ["10.0.0.4"]);
    assert_eq!(cluster.address("red/a.eth0"), "10.0.0.4");
}

#[test]
fn a_lease_that_a_hand_deleted_is_made_again_and_its_value_given_to_nobody() {
    let mut cluster = Cluster::with("red", "10.0.0.0/28");
    for n in 0..11 {
        cluster.pod("red", &format!("p{n:02}"));
    }
    cluster.settle();
    cluster.remove(Kind::AllocationLease, "subnet-ip-red--10-0-0-4");
    cluster.pod("red", "thief");
    cluster.settle();
    assert!(cluster.exists(Kind::AllocationLease, "subnet-ip-red--10-0-0-4"));
    assert!(!cluster.ready(Kind::NetworkInterface, "red/thief.eth0").0);
    cluster.assert_unique();
    // Somebody else's lease by force: who lost it is told, and holds nothing.
    let mut lease = match cluster.get(Kind::AllocationLease, "subnet-ip-red--10-0-0-4") {
        Object::AllocationLease(lease) => kinds::AllocationLease::clone(&lease),
        _ => panic!(),
    };
    let thief = &cluster.objects.view().claims["subnet-ip-red--networkinterface--red--thief-eth0--address"];
    lease.spec.claim_ref = kinds::ClaimRef { name: "thief".to_owned(), uid: thief.metadata.uid.clone() };
    cluster.objects.put(lease.into());
    cluster.settle();
    let held: Vec<_> =
        (0..11).filter(|n| cluster.ready(Kind::NetworkInterface, &format!("red/p{n:02}.eth0")).0).collect();
    assert_eq!(held.len(), 10);
    let lost = cluster.objects.view().claims.values().find(|claim| {
        let value = claim.status.as_ref().and_then(|s| s.value.as_ref()).and_then(|v| v.ip.as_deref());
        value == Some("10.0.0.4") && !claim.metadata.name.as_ref().unwrap().contains("thief")
    });
    let lost = lost.unwrap().metadata.name.clone().unwrap();
    assert_eq!(cluster.ready(Kind::AllocationClaim, &lost).1, "AllocationFailed");
}

#[test]
fn a_new_object_whose_owner_is_not_seen_yet_is_left_alone() {
    let mut cluster = Cluster::with("red", "10.0.0.0/24");
    cluster.config.settle = Duration::from_secs(10);
    cluster.pod("red", "a");
    cluster.settle();
    let Object::Pod(pod) = cluster.get(Kind::Pod, "red/a") else { panic!() };
    cluster.remove(Kind::Pod, "red/a");
    assert_eq!(cluster.step(), 0, "its watch may be behind");
    cluster.objects.put(Object::Pod(pod));
    cluster.sleep(60);
    assert_eq!(cluster.step(), 0);
    cluster.remove(Kind::Pod, "red/a");
    cluster.settle();
    assert!(!cluster.exists(Kind::NetworkInterface, "red/a.eth0"));
}
