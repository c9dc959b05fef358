//! What is at rest is passed over, and nothing else. That a plan is the same with what is remembered and without, every
//! test here holds to: [`planned`] compares the two.

use super::*;

/// Objects of a Pod with one interface: itself, its interface, endpoint, claim and lease.
const UNIT: usize = 5;

fn settled(pods: usize) -> Cluster {
    let mut cluster = Cluster::with("red", "10.0.0.0/24");
    for pod in 0..pods {
        cluster.pod("red", &format!("p{pod}"));
    }
    cluster.settle();
    assert_eq!(cluster.memory.at_rest(), pods * UNIT);
    cluster
}

impl Cluster {
    /// How much was at rest before this plan and still is, or came to rest.
    fn at_rest(&mut self) -> usize {
        planned(&mut self.memory, self.objects.view(), &self.config, self.now);
        self.memory.at_rest()
    }
}

#[test]
fn what_rests_is_passed_over_while_others_come_and_go() {
    let mut cluster = settled(20);
    cluster.pod("red", "new");
    while cluster.step() > 0 {
        assert!(cluster.memory.at_rest() >= 20 * UNIT, "{}", cluster.memory.at_rest());
    }
    assert_eq!(cluster.memory.at_rest(), 21 * UNIT);
    cluster.remove(Kind::Pod, "red/p7");
    while cluster.step() > 0 {
        assert!(cluster.memory.at_rest() >= 20 * UNIT, "{}", cluster.memory.at_rest());
    }
    assert_eq!(cluster.memory.at_rest(), 20 * UNIT);
    assert!(!cluster.exists(Kind::NetworkEndpoint, "red/p7.eth0"));

    // A Pod with two interfaces, and Pods that have none.
    let networks = json!([{"interface": "eth0", "subnet": "red"}, {"interface": "net1", "subnet": "red"}]);
    cluster.pod_with("red", "two", json!({"juneau.loutres.me/networks": networks.to_string()}));
    cluster.put(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "red", "name": "host"},
        "spec": {"nodeName": "n1", "hostNetwork": true, "containers": []}}));
    cluster.put(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "red", "name": "waits"},
        "spec": {"containers": []}}));
    cluster.settle();
    assert_eq!(cluster.memory.at_rest(), 20 * UNIT + 9 + 2);
}

#[test]
fn what_is_told_of_is_not_at_rest() {
    let mut cluster = settled(3);
    // A Pod whose network is missing is told of in each plan, and so is one whose interface waits for another's end.
    cluster.pod_with("red", "lost", json!({"juneau.loutres.me/subnet": "nowhere"}));
    cluster.settle();
    assert_eq!(cluster.memory.at_rest(), 3 * UNIT);
    assert!(!cluster.notices().is_empty());
    cluster.pod_of("red", "p1", "uid-of-another", json!({"juneau.loutres.me/subnet": "red"}), json!([]));
    cluster.settle();
    assert_eq!(cluster.nic("red/p1.eth0").spec.pod_ref.uid, "uid-of-another");
    assert_eq!(cluster.memory.at_rest(), 3 * UNIT);
}

#[test]
fn what_surrounds_all_is_looked_at_for_all() {
    let mut cluster = settled(4);
    let node = |address: &str| {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
            "status": {"addresses": [{"type": "InternalIP", "address": address}]}})
    };
    cluster.put(node("192.0.2.99"));
    assert_eq!(cluster.step(), 4, "each endpoint has its node's address");
    cluster.settle();
    assert_eq!(cluster.memory.at_rest(), 4 * UNIT);
    // Nobody may be there any more: who is there stays, and is told of.
    let closed = json!({"allowedNamespaces": {"matchLabels": {"no": "body"}}});
    cluster.put(json!({"apiVersion": JUNEAU, "kind": "Vpc", "metadata": {"name": "red"}, "spec": closed}));
    cluster.settle();
    assert_eq!((cluster.notices().len(), cluster.memory.at_rest()), (4, 0));
    cluster
        .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "red", "labels": {"no": "body"}}}));
    cluster.settle();
    assert_eq!((cluster.notices().len(), cluster.memory.at_rest()), (0, 4 * UNIT));
    cluster.config.require_namespace_binding = true;
    assert_eq!(cluster.at_rest(), 4 * UNIT, "all is judged anew, and is as it was");
}

#[test]
fn a_subnet_that_ends_waits_for_those_at_rest() {
    let mut cluster = settled(2);
    cluster.delete(Kind::Subnet, "red");
    cluster.settle();
    assert_eq!(cluster.at_rest(), 2 * UNIT);
    let (ready, reason, message) = cluster.ready(Kind::Subnet, "red");
    assert_eq!((ready, reason.as_str()), (false, "InUse"), "{message}");
    assert!(message.contains("red/p0.eth0") && message.contains("red/p1.eth0"), "{message}");
    // What their status says is not all that counts.
    for pod in ["p0", "p1"] {
        let mut nic = cluster.nic(&format!("red/{pod}.eth0"));
        Arc::make_mut(&mut nic).status = None;
        cluster.objects.put(Object::NetworkInterface(nic));
    }
    assert!(cluster.step() > 0);
    assert!(cluster.exists(Kind::Subnet, "red"));
}

#[test]
fn who_names_what_is_at_rest_ends_its_rest() {
    let cluster = settled(3);
    let nic = cluster.nic("red/p0.eth0");
    let view = cluster.objects.view();
    let claim = view.claims.values().find(|claim| claim.spec.resource_ref.uid == nic.metadata.uid).unwrap();
    let lease = view.leases.values().find(|lease| lease.spec.claim_ref.uid == claim.metadata.uid).unwrap();
    let endpoint = &view.network_endpoints[&key("red/p0.eth0")];
    let renamed = |object: Object, uid: Option<&str>| {
        let mut object = object;
        // Before all, and after all.
        object.metadata_mut().name = Some("zz".to_owned());
        object.metadata_mut().uid = Some(uid.map_or_else(|| "of-its-own".to_owned(), str::to_owned));
        object
    };
    let own = |metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| metadata.uid.clone();
    for intruder in [
        renamed(Object::AllocationClaim(Arc::clone(claim)), None),
        renamed(Object::AllocationClaim(Arc::clone(claim)), own(&claim.metadata).as_deref()),
        renamed(Object::AllocationLease(Arc::clone(lease)), None),
        renamed(Object::NetworkInterface(Arc::clone(&nic)), None),
        renamed(Object::NetworkInterface(Arc::clone(&nic)), own(&nic.metadata).as_deref()),
        renamed(Object::NetworkEndpoint(Arc::clone(endpoint)), None),
        renamed(Object::Pod(Arc::clone(&view.pods[&key("red/p0")])), Some("uid-red-p0")),
    ] {
        for name in ["zz", "0"] {
            let mut cluster = cluster.clone();
            let mut intruder = intruder.clone();
            intruder.metadata_mut().name = Some(name.to_owned());
            let shown = format!("{}/{}", intruder.kind(), intruder.name());
            cluster.objects.put(intruder);
            // In each plan from here on there are two to compare.
            for _ in 0..10 {
                cluster.step();
            }
            let rest = cluster.at_rest();
            assert!(rest >= 2 * UNIT, "{shown}: {rest}");
        }
    }
}
