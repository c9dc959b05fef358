//! From a Pod to its endpoint, and what stands in the way.

use super::*;

#[test]
fn a_pod_starts_in_seven_writes_and_the_agents() {
    let mut cluster = Cluster::with("red", "10.0.0.0/24");
    cluster.writes.clear();
    cluster.pod("red", "a");
    cluster.settle();
    assert_eq!(
        cluster.writes,
        [
            "create NetworkInterface/red/a.eth0",
            "create AllocationClaim/subnet-ip-red--networkinterface--red--a-eth0--address",
            "create AllocationLease/subnet-ip-red--10-0-0-4",
            "status AllocationClaim/subnet-ip-red--networkinterface--red--a-eth0--address",
            "create NetworkEndpoint/red/a.eth0",
            "status NetworkEndpoint/red/a.eth0",
            "status NetworkInterface/red/a.eth0",
        ]
    );
    for (kind, name) in [
        (Kind::NetworkInterface, "red/a.eth0"),
        (Kind::AllocationClaim, "subnet-ip-red--networkinterface--red--a-eth0--address"),
        (Kind::AllocationLease, "subnet-ip-red--10-0-0-4"),
        (Kind::AllocationPool, "subnet-ip-red"),
        (Kind::NetworkEndpoint, "red/a.eth0"),
        (Kind::RouteTable, "red"),
        (Kind::Subnet, "red"),
        (Kind::Vpc, "red"),
    ] {
        assert!(cluster.ready(kind, name).0, "{kind}/{name}");
        let status = status(&cluster.get(kind, name)).unwrap();
        assert_eq!(status["observedGeneration"], 1, "{kind}/{name}");
        assert_eq!(status["conditions"][0]["observedGeneration"], 1, "{kind}/{name}");
    }
    let nic = cluster.nic("red/a.eth0");
    let status = nic.status.as_ref().unwrap();
    assert_eq!((status.phase, status.address.as_deref()), (Some(kinds::InterfacePhase::Ready), Some("10.0.0.4/24")));
    assert_eq!((status.routes[0].dst.as_str(), status.routes[0].gw.as_deref()), ("0.0.0.0/0", Some("10.0.0.1")));
    let types: Vec<_> = status.conditions.iter().map(|c| (c.type_.as_str(), c.status.as_str())).collect();
    assert_eq!(types, [("Allocated", "True"), ("Ready", "True")]);
    let Object::NetworkEndpoint(endpoint) = cluster.get(Kind::NetworkEndpoint, "red/a.eth0") else { panic!() };
    assert_eq!(endpoint.spec.address.as_deref(), Some("10.0.0.4/24"));
    assert_eq!(endpoint.spec.node_name, "n1");
    assert_eq!(endpoint.status.as_ref().unwrap().node_ip.as_deref(), Some("192.0.2.1"));
    // The agent's part costs no write of ours.
    let mut attached = kinds::NetworkEndpoint::clone(&endpoint);
    attached.spec.attachment = Some(kinds::Attachment { ifindex: 7, ..kinds::Attachment::default() });
    attached.metadata.generation = Some(2);
    cluster.objects.put(attached.into());
    assert_eq!(cluster.step(), 0);
}

#[test]
fn pods_that_have_no_interface_get_none() {
    let mut cluster = Cluster::with("red", "10.0.0.0/24");
    for (name, spec, status, annotations) in [
        ("host", json!({"nodeName": "n1", "hostNetwork": true, "containers": []}), json!({}), json!({})),
        ("unscheduled", json!({"containers": []}), json!({}), json!({})),
        ("done", json!({"nodeName": "n1", "containers": []}), json!({"phase": "Succeeded"}), json!({})),
        ("failed", json!({"nodeName": "n1", "containers": []}), json!({"phase": "Failed"}), json!({})),
        ("mirror", json!({"nodeName": "n1", "containers": []}), json!({}), json!({"kubernetes.io/config.mirror": "x"})),
    ] {
        cluster.put(json!({"apiVersion": "v1", "kind": "Pod", "spec": spec, "status": status,
            "metadata": {"namespace": "red", "name": name, "annotations": annotations}}));
    }
    assert_eq!(cluster.step(), 0);
    cluster.pod_with("red", "plain", json!({}));
    cluster.settle();
    assert_eq!(cluster.address("red/plain.eth0"), "10.16.0.4");
}

#[test]
fn a_finished_pod_gives_its_interface_back() {
    let mut cluster = Cluster::with("red", "10.0.0.0/24");
    cluster.pod("red", "a");
    cluster.settle();
    cluster.put(json!({"apiVersion": "v1", "kind": "Pod", "status": {"phase": "Succeeded"},
        "metadata": {"namespace": "red", "name": "a", "uid": "uid-red-a"}, "spec": {"nodeName": "n1", "containers": []}}));
    cluster.settle();
    assert!(!cluster.exists(Kind::NetworkInterface, "red/a.eth0"));
    assert!(!cluster.exists(Kind::NetworkEndpoint, "red/a.eth0"));
}

#[test]
fn more_interfaces_come_from_the_list_and_the_namespace_names_the_first() {
    let mut cluster = Cluster::with("red", "10.0.0.0/24");
    cluster.subnet("red-b", "red", "10.0.1.0/24");
    cluster.put(json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "red", "annotations": {"juneau.loutres.me/subnet": "red"}}}));
    let list = json!([{"interface": "eth1", "subnet": "red-b", "address": "10.0.1.9", "securityGroups": ["web"]}]);
    cluster.pod_with("red", "a", json!({"juneau.loutres.me/networks": list.to_string()}));
    cluster.settle();
    assert_eq!((cluster.address("red/a.eth0"), cluster.address("red/a.eth1")), ("10.0.0.4".into(), "10.0.1.9".into()));
    let second = cluster.nic("red/a.eth1");
    assert!(second.status.as_ref().unwrap().routes.is_empty());
    assert_eq!(second.spec.security_groups, ["web"]);
    // SecurityGroups follow the annotation; the network of a Pod that runs does not follow its Namespace.
    cluster.pod_with("red", "a", json!({"juneau.loutres.me/networks": list.to_string().replace("web", "db")}));
    cluster.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "red", "uid": "n"}}));
    let before = cluster.nic("red/a.eth0");
    cluster.settle();
    assert_eq!(cluster.nic("red/a.eth1").spec.security_groups, ["db"]);
    assert_eq!(cluster.nic("red/a.eth0"), before);
    // An interface that is not asked for any more goes.
    cluster.pod_with("red", "a", json!({}));
    cluster.settle();
    assert!(!cluster.exists(Kind::NetworkInterface, "red/a.eth1"));
    assert!(cluster.exists(Kind::NetworkEndpoint, "red/a.eth0"));
}

#[test]
fn a_bad_annotation_costs_that_pod_and_says_so() {
    let mut cluster = Cluster::with("red", "10.0.0.0/24");
    cluster.pod("red", "good");
    for (name, annotations) in [
        ("json", json!({"juneau.loutres.me/networks": "[{"})),
        ("long", json!({"juneau.loutres.me/networks": "x".repeat(256 * 1024)})),
        ("address", json!({"juneau.loutres.me/address": "10.0.0.999"})),
    ] {
        cluster.pod_with("red", name, annotations);
        cluster.settle();
        assert!(!cluster.exists(Kind::NetworkInterface, &format!("red/{name}.eth0")));
        let notices = cluster.notices();
        assert!(notices.iter().any(|n| n.object.name.name == name && n.reason == "InvalidAnnotation"), "{notices:?}");
    }
    assert_eq!(cluster.address("red/good.eth0"), "10.0.0.4");
    // A slip later cuts nobody off.
    cluster.pod_with("red", "good", json!({"juneau.loutres.me/networks": "[{"}));
    assert_eq!(cluster.step(), 0);
}

#[test]
fn what_stands_in_the_way_is_named_and_ends() {
    let mut cluster = Cluster::with("red", "10.0.0.0/28");
    let ask = |subnet: &str, address: &str| {
        let mut annotations = json!({"juneau.loutres.me/subnet": subnet});
        if !address.is_empty() {
            annotations["juneau.loutres.me/address"] = json!(address);
        }
        annotations
    };
    cluster.pod_with("red", "first", ask("red", "10.0.0.9"));
    cluster.settle();
    for (name, subnet, address, reason) in [
        ("second", "red", "10.0.0.9", "RequestedIPInUse"),
        ("outside", "red", "10.9.0.9", "InvalidRequestedIP"),
        ("gateway", "red", "10.0.0.1", "InvalidRequestedIP"),
        ("dns", "red", "10.0.0.2", "InvalidRequestedIP"),
        ("later", "red", "10.0.0.3", "InvalidRequestedIP"),
        ("network", "red", "10.0.0.0", "InvalidRequestedIP"),
        ("broadcast", "red", "10.0.0.15", "InvalidRequestedIP"),
        ("nowhere", "green", "", "SubnetNotFound"),
    ] {
        cluster.pod_with("red", name, ask(subnet, address));
        cluster.settle();
        let nic = format!("red/{name}.eth0");
        assert_eq!(cluster.ready(Kind::NetworkInterface, &nic).1, reason, "{name}");
        assert_eq!(cluster.nic(&nic).status.as_ref().unwrap().phase, Some(kinds::InterfacePhase::Failed), "{name}");
        assert!(cluster.notices().iter().any(|n| n.object.name.name == name && n.reason == reason), "{name}");
        assert!(!cluster.exists(Kind::NetworkEndpoint, &nic), "{name}");
    }
    // Its holder goes: the other gets the address, without waiting for a rest that nobody else needs.
    cluster.remove(Kind::Pod, "red/first");
    cluster.settle();
    assert_eq!(cluster.address("red/second.eth0"), "10.0.0.9");
    // The Subnet comes.
    cluster.tenant("green", "10.7.0.0/24");
    cluster.settle();
    assert_eq!(cluster.address("red/nowhere.eth0"), "10.7.0.4");
    cluster.assert_unique();
}

#[test]
fn namespaces_enter_only_where_they_may() {
    let mut cluster = Cluster::with("red", "10.0.0.0/24");
    let selector = json!({"allowedNamespaces": {"matchLabels": {"kubernetes.io/metadata.name": "red"}}});
    cluster.put(json!({"apiVersion": JUNEAU, "kind": "Vpc", "metadata": {"name": "red"}, "spec": selector}));
    cluster.tenant("blue", "10.0.0.0/24");
    let red = json!({"juneau.loutres.me/subnet": "red"});
    cluster.pod_with("red", "a", red.clone());
    cluster.pod_with("blue", "thief", red.clone());
    cluster.pod_with("ghost", "thief", red.clone());
    let list = json!([{"interface": "eth1", "subnet": "red"}]);
    cluster.pod_with("blue", "list", json!({"juneau.loutres.me/networks": list.to_string()}));
    cluster.put(json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "sly", "annotations": {"juneau.loutres.me/subnet": "red"}}}));
    cluster.pod_with("sly", "thief", json!({}));
    cluster.settle();
    assert_eq!(cluster.address("red/a.eth0"), "10.0.0.4");
    for nic in ["blue/thief.eth0", "ghost/thief.eth0", "blue/list.eth1", "sly/thief.eth0"] {
        assert_eq!(cluster.ready(Kind::NetworkInterface, nic).1, "NamespaceNotAllowed", "{nic}");
        assert!(!cluster.exists(Kind::NetworkEndpoint, nic), "{nic}");
    }
    assert_eq!(cluster.leases("subnet-ip-red").len(), 1);
    // Absent means none when a binding is required, but for the default Vpc.
    cluster.config.require_namespace_binding = true;
    cluster.pod("blue", "late");
    cluster.pod_with("blue", "plain", json!({}));
    cluster.settle();
    assert_eq!(cluster.ready(Kind::NetworkInterface, "blue/late.eth0").1, "NamespaceNotAllowed");
    assert!(cluster.ready(Kind::NetworkInterface, "blue/plain.eth0").0);
    // Who runs goes on running.
    cluster.put(json!({"apiVersion": JUNEAU, "kind": "Vpc", "metadata": {"name": "red"},
        "spec": {"allowedNamespaces": {"matchLabels": {"no": "body"}}}}));
    cluster.settle();
    assert!(cluster.ready(Kind::NetworkInterface, "red/a.eth0").0);
}

#[test]
fn an_endpoint_that_a_hand_changed_or_deleted_is_put_right() {
    let mut cluster = Cluster::with("red", "10.0.0.0/24");
    cluster.pod("red", "a");
    cluster.settle();
    let Object::NetworkEndpoint(good) = cluster.get(Kind::NetworkEndpoint, "red/a.eth0") else { panic!() };
    cluster.delete(Kind::NetworkEndpoint, "red/a.eth0");
    cluster.settle();
    let Object::NetworkEndpoint(again) = cluster.get(Kind::NetworkEndpoint, "red/a.eth0") else { panic!() };
    assert_eq!((&again.spec, again.metadata.uid == good.metadata.uid), (&good.spec, false));
    let mut stolen = kinds::NetworkEndpoint::clone(&again);
    stolen.spec.node_name = "n2".to_owned();
    stolen.spec.address = Some("10.0.0.7/24".to_owned());
    stolen.spec.attachment = Some(kinds::Attachment { ifindex: 7, ..kinds::Attachment::default() });
    cluster.objects.put(stolen.into());
    assert!(cluster.notices().iter().any(|n| n.reason == "EndpointMismatch"));
    cluster.settle();
    let Object::NetworkEndpoint(mended) = cluster.get(Kind::NetworkEndpoint, "red/a.eth0") else { panic!() };
    assert_eq!(mended.spec.attachment.as_ref().unwrap().ifindex, 7, "the agent's part stays");
    assert_eq!((&mended.spec.node_name, &mended.spec.address), (&good.spec.node_name, &good.spec.address));
    // One of another Pod is made anew; one of no interface goes.
    let mut foreign = kinds::NetworkEndpoint::clone(&mended);
    foreign.spec.pod_ref.as_mut().unwrap().uid = "somebody".to_owned();
    let mut orphan = foreign.clone();
    orphan.metadata.name = Some("b.eth0".to_owned());
    cluster.objects.put(foreign.into());
    cluster.objects.put(orphan.into());
    cluster.settle();
    let Object::NetworkEndpoint(last) = cluster.get(Kind::NetworkEndpoint, "red/a.eth0") else { panic!() };
    assert_eq!(last.spec.pod_ref, good.spec.pod_ref);
    assert!(!cluster.exists(Kind::NetworkEndpoint, "red/b.eth0"));
}

#[test]
fn a_pod_that_comes_again_or_moves_gets_a_new_interface() {
    let mut cluster = Cluster::with("red", "10.0.0.0/24");
    cluster.pod("red", "a");
    cluster.settle();
    let before = cluster.nic("red/a.eth0");
    cluster.pod_of("red", "a", "uid-2", json!({"juneau.loutres.me/subnet": "red"}), json!([]));
    cluster.settle();
    let after = cluster.nic("red/a.eth0");
    assert_ne!(after.metadata.uid, before.metadata.uid);
    assert_eq!(after.spec.pod_ref.uid, "uid-2");
    assert!(cluster.ready(Kind::NetworkInterface, "red/a.eth0").0);
    cluster.put(json!({"apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": "n2", "containers": []},
        "metadata": {"namespace": "red", "name": "a", "uid": "uid-2", "annotations": {"juneau.loutres.me/subnet": "red"}}}));
    cluster.settle();
    assert_eq!(cluster.nic("red/a.eth0").spec.node_name, "n2");
    cluster.assert_unique();
}

#[test]
fn a_node_that_is_not_known_yet_is_told_and_then_filled_in() {
    let mut cluster = Cluster::with("red", "10.0.0.0/24");
    cluster.put(json!({"apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": "n9", "containers": []},
        "metadata": {"namespace": "red", "name": "a", "uid": "u"}}));
    cluster.settle();
    assert_eq!(cluster.ready(Kind::NetworkEndpoint, "red/a.eth0").2, "Node/n9 does not exist");
    cluster.put(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n9"},
        "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.9"}]}}));
    cluster.settle();
    assert!(cluster.ready(Kind::NetworkEndpoint, "red/a.eth0").0);
}

#[test]
fn names_at_the_limit_and_names_that_fold_together_stay_apart() {
    let mut cluster = Cluster::with("red", "10.0.0.0/24");
    let long = format!("{}a", "a".repeat(252));
    for pod in ["a.b", "a-b", long.as_str()] {
        cluster.pod("red", pod);
    }
    cluster.settle();
    let nics: Vec<_> = cluster.objects.view().network_interfaces.values().cloned().collect();
    let addresses: std::collections::BTreeSet<_> =
        nics.iter().map(|nic| nic.status.as_ref().unwrap().address.clone().unwrap()).collect();
    assert_eq!((nics.len(), addresses.len()), (3, 3));
    assert_eq!(cluster.objects.view().claims.keys().filter(|name| name.len() > 253).count(), 0);
}

#[test]
fn networks_that_are_not_built_yet_are_named() {
    let mut cluster = Cluster::with("red", "10.0.0.0/24");
    let list = json!([{"interface": "eth1", "l2Network": "seg"}, {"interface": "eth2", "elasticIP": "eip"}]);
    cluster.pod_with("red", "a", json!({"juneau.loutres.me/networks": list.to_string()}));
    cluster.settle();
    for nic in ["red/a.eth1", "red/a.eth2"] {
        assert_eq!(cluster.ready(Kind::NetworkInterface, nic).1, "NotImplemented");
    }
    assert!(cluster.ready(Kind::NetworkInterface, "red/a.eth0").0);
}
