//! Objects that are wrong, contradict each other or were changed behind the operator's back. There is no webhook here:
//! what it would refuse comes past it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use serde_json::{Value, json};
use std::collections::BTreeSet;
use support::{Cluster, OPERATOR, Operator, delete, is_ready, merge, object, pod, port, put, ready};

const SUBNET: &str = "juneau.loutres.me/subnet";
const ADDRESS: &str = "juneau.loutres.me/address";
const OURS: &str = "/apis/juneau.loutres.me/v1alpha1";

/// Waits until the condition Ready of an object gives this reason; its message.
async fn because(cluster: &Cluster, operator: &Operator, kind: &str, name: &str, reason: &str) -> String {
    let condition = async |cluster: &Cluster| {
        let object = cluster.get(kind, name).await.unwrap_or_default();
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|condition| condition["type"] == "Ready").unwrap_or_default()
    };
    let what = format!("{kind} {name}: {reason}");
    cluster.until(&what, &[operator], async |cluster| condition(cluster).await["reason"] == reason).await;
    condition(cluster).await["message"].as_str().unwrap_or_default().to_owned()
}

async fn network(cluster: &Cluster, operator: &Operator, vpc: &str, cidr: &str) {
    put(cluster, &object("Vpc", vpc, json!({}))).await;
    put(cluster, &object("Subnet", &format!("{vpc}-a"), json!({"vpc": vpc, "cidr": cidr}))).await;
    ready(cluster, operator, "Subnet", &format!("{vpc}-a")).await;
}

fn in_red(name: &str, subnet: &str) -> String {
    pod("red", name, "node-a", json!({SUBNET: subnet}))
}

async fn remove_pod(cluster: &Cluster, name: &str) {
    delete(&cluster.client, &format!("/api/v1/namespaces/red/pods/{name}")).await.unwrap();
}

/// The Events about an object with this reason.
async fn events(cluster: &Cluster, name: &str, reason: &str) -> Vec<String> {
    let all = support::ask(&cluster.client, "GET", "/apis/events.k8s.io/v1/events", None).await.unwrap();
    let all = all["items"].as_array().unwrap().iter();
    let of = all.filter(|event| event["regarding"]["name"] == name && event["reason"] == reason);
    of.map(|event| event["note"].as_str().unwrap_or_default().to_owned()).collect()
}

async fn told(cluster: &Cluster, operator: &Operator, name: &str, reason: &str, note: &str) {
    cluster
        .until(&format!("Event {reason} about {name}"), &[operator], async |cluster| {
            events(cluster, name, reason).await.iter().any(|one| one.contains(note))
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
async fn bad_objects_cost_themselves() {
    let cluster = Cluster::start(false).await;
    cluster.namespace("red", json!({}));
    let operator = Operator::start(&cluster, port()).await;
    let operator = &operator;
    ready(&cluster, operator, "Subnet", "default").await;
    tokio::join!(
        names_at_the_limit_and_names_that_fold_together(&cluster, operator),
        annotations_that_cannot_be_read(&cluster, operator),
        two_pods_that_ask_for_one_address(&cluster, operator),
        an_exhausted_subnet(&cluster, operator),
        a_subnet_that_is_resized_or_deleted_while_it_is_used(&cluster, operator),
        objects_that_a_hand_changed(&cluster, operator),
        a_vpc_that_is_deleted_by_force(&cluster, operator),
    );
    cluster.nothing_was_forbidden();
    // The last: the definitions change for all.
    a_definition_of_an_older_release(&cluster, operator).await;
    cluster.nothing_was_forbidden();
}

async fn names_at_the_limit_and_names_that_fold_together(cluster: &Cluster, operator: &Operator) {
    let long = |part: &str, length: usize| {
        let label = format!("{part}{}", "x".repeat(60 - part.len()));
        let mut name = vec![label; length.div_ceil(61)].join(".");
        name.truncate(length);
        name
    };
    let (vpc, subnet) = (long("v", 253), long("s", 253));
    put(cluster, &object("Vpc", &vpc, json!({}))).await;
    put(cluster, &object("Subnet", &subnet, json!({"vpc": vpc, "cidr": "10.0.1.0/24"}))).await;
    ready(cluster, operator, "Subnet", &subnet).await;
    ready(cluster, operator, "RouteTable", &vpc).await;
    let (one, other) = (long("p", 253), format!("{}y", long("p", 252)));
    let names = ["f.a", "f-a", "f.a.b", "f-a.b", "f.a-b", &one, &other];
    for name in names {
        put(cluster, &in_red(name, &subnet)).await;
    }
    let mine = async |cluster: &Cluster| {
        let nics = cluster.list("NetworkInterface").await;
        let mine = nics.into_iter().filter(|nic| nic["spec"]["subnet"] == subnet && is_ready(nic));
        mine.map(|nic| (nic["spec"]["podRef"]["name"].to_string(), nic["status"]["address"].to_string())).collect()
    };
    cluster
        .until("each has its interface", &[operator], async |cluster| {
            let all: Vec<(String, String)> = mine(cluster).await;
            all.len() == names.len()
        })
        .await;
    let all = mine(cluster).await;
    let addresses: BTreeSet<_> = all.iter().map(|(_, address)| address).collect();
    let pods: BTreeSet<_> = all.iter().map(|(pod, _)| pod).collect();
    assert_eq!((pods.len(), addresses.len()), (names.len(), names.len()), "{all:?}");
}

async fn annotations_that_cannot_be_read(cluster: &Cluster, operator: &Operator) {
    network(cluster, operator, "read", "10.0.1.0/24").await;
    for (name, key, value, says) in [
        ("no-json", "juneau.loutres.me/networks", "[{\"interface\":", "JSON"),
        ("no-list", "juneau.loutres.me/networks", "{}", "networks"),
        ("unknown", "juneau.loutres.me/networks", r#"[{"interface":"eth1","subnet":"read-a","vlan":7}]"#, "vlan"),
        ("no-address", ADDRESS, "10.0.1", "address"),
    ] {
        put(cluster, &pod("red", name, "node-a", json!({SUBNET: "read-a", key: value}))).await;
        told(cluster, operator, name, "InvalidAnnotation", says).await;
        assert!(cluster.get("NetworkInterface", &format!("{name}.eth0")).await.is_none());
    }
    put(cluster, &in_red("readable", "read-a")).await;
    ready(cluster, operator, "NetworkInterface", "readable.eth0").await;
}

async fn two_pods_that_ask_for_one_address(cluster: &Cluster, operator: &Operator) {
    network(cluster, operator, "one", "10.0.1.0/24").await;
    let asking = |name: &str, address: &str| pod("red", name, "node-a", json!({SUBNET: "one-a", ADDRESS: address}));
    put(cluster, &asking("first", "10.0.1.77")).await;
    ready(cluster, operator, "NetworkInterface", "first.eth0").await;
    put(cluster, &asking("second", "10.0.1.77")).await;
    let said = because(cluster, operator, "NetworkInterface", "second.eth0", "RequestedIPInUse").await;
    assert!(said.contains("10.0.1.77") && said.contains("first"), "{said}");
    told(cluster, operator, "second", "RequestedIPInUse", "10.0.1.77").await;
    assert!(cluster.get("NetworkEndpoint", "second.eth0").await.is_none());
    put(cluster, &asking("reserved", "10.0.1.1")).await;
    because(cluster, operator, "NetworkInterface", "reserved.eth0", "InvalidRequestedIP").await;
    put(cluster, &asking("outside", "10.9.9.9")).await;
    because(cluster, operator, "NetworkInterface", "outside.eth0", "InvalidRequestedIP").await;
    // The first goes, and the second has it.
    remove_pod(cluster, "first").await;
    let nic = ready(cluster, operator, "NetworkInterface", "second.eth0").await;
    assert_eq!(nic["status"]["address"], "10.0.1.77/24");
}

async fn an_exhausted_subnet(cluster: &Cluster, operator: &Operator) {
    network(cluster, operator, "full", "10.0.1.0/28").await;
    for n in 0..11 {
        put(cluster, &in_red(&format!("full-{n}"), "full-a")).await;
    }
    for n in 0..11 {
        ready(cluster, operator, "NetworkInterface", &format!("full-{n}.eth0")).await;
    }
    for name in ["wait-0", "wait-1"] {
        put(cluster, &in_red(name, "full-a")).await;
        let said = because(cluster, operator, "NetworkInterface", &format!("{name}.eth0"), "SubnetExhausted").await;
        assert!(said.contains("Subnet/full-a (10.0.1.0/28)"), "{said}");
        told(cluster, operator, name, "SubnetExhausted", "no free address").await;
    }
    let freed = cluster.get("NetworkInterface", "full-5.eth0").await.unwrap()["status"]["address"].clone();
    remove_pod(cluster, "full-5").await;
    let served = async |cluster: &Cluster| {
        let nics = cluster.list("NetworkInterface").await;
        nics.into_iter()
            .filter(|nic| nic["spec"]["podRef"]["name"].as_str().unwrap().starts_with("wait-") && is_ready(nic))
            .collect::<Vec<_>>()
    };
    cluster.until("one that waited starts", &[operator], async |cluster| !served(cluster).await.is_empty()).await;
    let served = served(cluster).await;
    assert_eq!((served.len(), &served[0]["status"]["address"]), (1, &freed));
}

async fn a_subnet_that_is_resized_or_deleted_while_it_is_used(cluster: &Cluster, operator: &Operator) {
    network(cluster, operator, "used", "10.0.1.0/24").await;
    put(cluster, &in_red("user", "used-a")).await;
    let nic = ready(cluster, operator, "NetworkInterface", "user.eth0").await;
    let path = format!("{OURS}/subnets/used-a");
    for change in [json!({"cidr": "10.0.0.0/16"}), json!({"cidr": "10.0.1.0/25"}), json!({"vpc": "default"})] {
        let said = merge(&cluster.client, &path, json!({"spec": change})).await.unwrap_err();
        assert!(said.contains("cannot be changed") || said.contains("immutable"), "{said}");
    }
    delete(&cluster.client, &path).await.unwrap();
    let said = because(cluster, operator, "Subnet", "used-a", "InUse").await;
    assert!(said.contains("NetworkInterface/red/user.eth0"), "{said}");
    // Who is in goes on; who comes is not let in.
    put(cluster, &in_red("comer", "used-a")).await;
    let said = because(cluster, operator, "NetworkInterface", "comer.eth0", "NetworkNotReady").await;
    assert!(said.contains("being deleted"), "{said}");
    let now = cluster.get("NetworkInterface", "user.eth0").await.unwrap();
    assert_eq!((is_ready(&now), &now["status"]["address"]), (true, &nic["status"]["address"]));
    assert!(cluster.get("NetworkEndpoint", "user.eth0").await.is_some());
    // The Vpc waits for the Subnet.
    delete(&cluster.client, &format!("{OURS}/vpcs/used")).await.unwrap();
    let said = because(cluster, operator, "Vpc", "used", "InUse").await;
    assert!(said.contains("Subnet/used-a"), "{said}");
    remove_pod(cluster, "user").await;
    for (kind, name) in [("Subnet", "used-a"), ("Vpc", "used")] {
        cluster
            .until(&format!("{kind} {name} goes"), &[operator], async |cluster| cluster.get(kind, name).await.is_none())
            .await;
    }
    because(cluster, operator, "NetworkInterface", "comer.eth0", "SubnetNotFound").await;
}

async fn objects_that_a_hand_changed(cluster: &Cluster, operator: &Operator) {
    network(cluster, operator, "hand", "10.0.1.0/24").await;
    put(cluster, &in_red("held", "hand-a")).await;
    put(cluster, &in_red("other", "hand-a")).await;
    let nic = ready(cluster, operator, "NetworkInterface", "held.eth0").await;
    ready(cluster, operator, "NetworkInterface", "other.eth0").await;
    let subnet = cluster.get("Subnet", "hand-a").await.unwrap();
    let claim = nic["status"]["allocationClaim"].as_str().unwrap().to_owned();
    let lease = format!("subnet-ip-hand-a--{}", nic["status"]["address"].as_str().unwrap().replace('.', "-"));
    let lease = lease.split('/').next().unwrap().to_owned();
    let before = |kind: &'static str, name: String| async move {
        (kind, name.clone(), cluster.get(kind, &name).await.unwrap_or_else(|| panic!("{kind} {name}")))
    };
    let endpoint = format!("{OURS}/namespaces/red/networkendpoints/held.eth0");
    let changes = [
        (
            before("NetworkEndpoint", "held.eth0".to_owned()).await,
            endpoint.clone(),
            json!({"spec": {"address": "10.0.1.200/24"}}),
        ),
        (
            before("NetworkEndpoint", "held.eth0".to_owned()).await,
            endpoint.clone(),
            json!({"spec": {"nodeName": "node-b"}}),
        ),
        (
            before("NetworkEndpoint", "held.eth0".to_owned()).await,
            endpoint.clone(),
            json!({"spec": {"macAddress": "02:00:00:00:00:77"}}),
        ),
        (
            before("NetworkEndpoint", "held.eth0".to_owned()).await,
            format!("{endpoint}/status"),
            json!({"status": {"nodeIP": "192.0.2.99"}}),
        ),
        (
            before("NetworkInterface", "held.eth0".to_owned()).await,
            format!("{OURS}/namespaces/red/networkinterfaces/held.eth0/status"),
            json!({"status": {"address": "10.0.1.200/24", "phase": "Failed"}}),
        ),
        (
            before("Subnet", "hand-a".to_owned()).await,
            format!("{OURS}/subnets/hand-a/status"),
            json!({"status": {"vni": 4242, "gateway": "10.0.1.99", "mtu": 9000}}),
        ),
        (
            before("Vpc", "hand".to_owned()).await,
            format!("{OURS}/vpcs/hand/status"),
            json!({"status": {"vpcID": 4242}}),
        ),
        (
            before("RouteTable", "hand".to_owned()).await,
            format!("{OURS}/routetables/hand/status"),
            json!({"status": {"tableID": 4242, "routes": []}}),
        ),
        (
            before("AllocationPool", "subnet-ip-hand-a".to_owned()).await,
            format!("{OURS}/allocationpools/subnet-ip-hand-a"),
            json!({"spec": {"ip": {"excluded": []}}}),
        ),
    ];
    for ((kind, name, before), path, change) in changes {
        merge(&cluster.client, &path, change.clone()).await.unwrap_or_else(|error| panic!("{path}: {error}"));
        let conditions = |object: &Value| {
            let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
            all.into_iter()
                .map(|one| (one["type"].clone(), one["status"].clone(), one["reason"].clone()))
                .collect::<Vec<_>>()
        };
        let part = if change["spec"].is_null() { "status" } else { "spec" };
        let fields: Vec<String> = change[part].as_object().unwrap().keys().cloned().collect();
        cluster
            .until(&format!("{path} is put right after {change}"), &[operator], async |cluster| {
                let now = cluster.get(kind, &name).await.unwrap_or_default();
                fields.iter().all(|field| now[part][field] == before[part][field])
                    && conditions(&now) == conditions(&before)
            })
            .await;
    }
    // Deleted: made again with the same value.
    for (kind, name, path) in [
        ("AllocationLease", lease.as_str(), format!("{OURS}/allocationleases/{lease}")),
        ("AllocationPool", "subnet-ip-hand-a", format!("{OURS}/allocationpools/subnet-ip-hand-a")),
        ("NetworkEndpoint", "held.eth0", endpoint),
        ("AllocationClaim", claim.as_str(), format!("{OURS}/allocationclaims/{claim}")),
    ] {
        let uid = cluster.get(kind, name).await.unwrap()["metadata"]["uid"].clone();
        delete(&cluster.client, &path).await.unwrap();
        cluster
            .until(&format!("{kind} {name} is made again"), &[operator], async |cluster| {
                cluster.get(kind, name).await.is_some_and(|now| now["metadata"]["uid"] != uid)
            })
            .await;
    }
    let again = ready(cluster, operator, "NetworkInterface", "held.eth0").await;
    let endpoint = ready(cluster, operator, "NetworkEndpoint", "held.eth0").await;
    assert_eq!(again["status"]["address"], endpoint["spec"]["address"]);
    assert_eq!(cluster.get("Subnet", "hand-a").await.unwrap()["status"]["vni"], subnet["status"]["vni"]);
    assert_ne!(
        again["status"]["address"],
        cluster.get("NetworkInterface", "other.eth0").await.unwrap()["status"]["address"]
    );
    // One claim is given another's value by a hand: the value stays whose it was.
    let other = cluster.get("NetworkInterface", "other.eth0").await.unwrap();
    let theirs = other["status"]["address"].as_str().unwrap().split('/').next().unwrap().to_owned();
    let path = format!("{OURS}/allocationclaims/{claim}/status");
    merge(&cluster.client, &path, json!({"status": {"value": {"ip": theirs}}})).await.unwrap();
    let said = because(cluster, operator, "NetworkInterface", "held.eth0", "AllocationFailed").await;
    assert!(said.contains("other-eth0"), "{said}");
    let endpoints = cluster.list("NetworkEndpoint").await;
    let holders = endpoints
        .iter()
        .filter(|one| one["spec"]["subnet"] == "hand-a" && one["spec"]["address"] == other["status"]["address"]);
    assert_eq!(holders.count(), 1);
}

async fn a_vpc_that_is_deleted_by_force(cluster: &Cluster, operator: &Operator) {
    network(cluster, operator, "gone", "10.0.1.0/24").await;
    put(cluster, &in_red("stranded", "gone-a")).await;
    ready(cluster, operator, "NetworkInterface", "stranded.eth0").await;
    let path = format!("{OURS}/vpcs/gone");
    let uid = cluster.get("Vpc", "gone").await.unwrap()["metadata"]["uid"].clone();
    delete(&cluster.client, &path).await.unwrap();
    let said = because(cluster, operator, "Vpc", "gone", "InUse").await;
    assert!(said.contains("Subnet/gone-a"), "{said}");
    merge(&cluster.client, &path, json!({"metadata": {"finalizers": null}})).await.unwrap();
    because(cluster, operator, "Subnet", "gone-a", "VpcNotFound").await;
    put(cluster, &in_red("newcomer", "gone-a")).await;
    because(cluster, operator, "NetworkInterface", "newcomer.eth0", "NetworkNotReady").await;
    // Others do not notice, and a new one of its name takes over what is there.
    put(cluster, &in_red("elsewhere", "default")).await;
    ready(cluster, operator, "NetworkInterface", "elsewhere.eth0").await;
    put(cluster, &object("Vpc", "gone", json!({}))).await;
    let vpc = ready(cluster, operator, "Vpc", "gone").await;
    assert_ne!(vpc["metadata"]["uid"], uid);
    ready(cluster, operator, "Subnet", "gone-a").await;
    ready(cluster, operator, "NetworkInterface", "stranded.eth0").await;
    ready(cluster, operator, "NetworkInterface", "newcomer.eth0").await;
    let vpcs = cluster.list("Vpc").await;
    let ids: Vec<_> = vpcs.iter().filter_map(|vpc| vpc["status"]["vpcID"].as_u64()).collect();
    assert_eq!(ids.len(), ids.iter().collect::<BTreeSet<_>>().len(), "{ids:?}");
}

/// The server forgets a field that the operator writes: it goes on with what is kept, says so, and is silent.
async fn a_definition_of_an_older_release(cluster: &Cluster, operator: &Operator) {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/subnets.juneau.loutres.me";
    let current = support::ask(&cluster.client, "GET", path, None).await.unwrap();
    let mut versions = current["spec"]["versions"].clone();
    let properties = "/0/schema/openAPIV3Schema/properties/status/properties";
    versions.pointer_mut(properties).unwrap().as_object_mut().unwrap().remove("mtu").unwrap();
    let log = cluster.control_plane.audit().from_now().unwrap();
    merge(&cluster.client, path, json!({"spec": {"versions": versions}})).await.unwrap();
    put(cluster, &object("Vpc", "older", json!({}))).await;
    let made = std::cell::Cell::new(0);
    let name = || format!("older-{}", made.get());
    cluster
        .until("the field is not kept", &[operator], async |cluster| {
            // The server takes a moment to go by the new definition.
            made.set(made.get() + 1);
            let spec = json!({"vpc": "older", "cidr": format!("10.0.{}.0/24", made.get())});
            put(cluster, &object("Subnet", &name(), spec)).await;
            ready(cluster, operator, "Subnet", &name()).await["status"]["mtu"].is_null()
                && operator.log().contains("status.mtu")
        })
        .await;
    let name = name();
    told(cluster, operator, &name, "FieldsDropped", "status.mtu").await;
    assert!(operator.log().contains("juneau-operator crds"), "{}", operator.log());
    // Whoever is in that Subnet is served all the same.
    put(cluster, &in_red("older", &name)).await;
    ready(cluster, operator, "NetworkInterface", "older.eth0").await;
    let writes = || {
        let events = log.events().unwrap().into_iter();
        let status =
            events.filter(|event| event.user == OPERATOR && event.is_write() && event.resource == "subnets/status");
        status.filter(|event| event.name == name).count()
    };
    // Something for the operator to plan again and again.
    let mut before = None;
    for n in 0..10 {
        merge(
            &cluster.client,
            &format!("{OURS}/subnets/{name}"),
            json!({"metadata": {"labels": {"n": n.to_string()}}}),
        )
        .await
        .unwrap();
        put(cluster, &in_red(&format!("older-{n}"), &name)).await;
        ready(cluster, operator, "NetworkInterface", &format!("older-{n}.eth0")).await;
        // How many it took until here depends on what was there when it planned; from now on it takes none.
        before = before.or_else(|| Some(writes()));
    }
    assert_eq!(Some(writes()), before, "it writes what is not kept");
    // An object that would be made without a part of it is not made, and that is said.
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/allocationclaims.juneau.loutres.me";
    let claims = support::ask(&cluster.client, "GET", path, None).await.unwrap();
    let mut versions = claims["spec"]["versions"].clone();
    let properties = "/0/schema/openAPIV3Schema/properties/spec/properties/resourceRef/properties";
    versions.pointer_mut(properties).unwrap().as_object_mut().unwrap().remove("uid").unwrap();
    merge(&cluster.client, path, json!({"spec": {"versions": versions}})).await.unwrap();
    let made = std::cell::Cell::new(0);
    cluster
        .until("a claim is refused", &[operator], async |cluster| {
            made.set(made.get() + 1);
            put(cluster, &in_red(&format!("strict-{}", made.get()), &name)).await;
            let nic = format!("strict-{}.eth0", made.get());
            cluster
                .until("its interface", &[operator], async |cluster| {
                    let log = operator.log();
                    log.contains("resourceRef.uid")
                        || cluster.get("NetworkInterface", &nic).await.is_some_and(|nic| is_ready(&nic))
                })
                .await;
            operator.log().contains("resourceRef.uid")
        })
        .await;
    let merge_back = json!({"spec": {"versions": claims["spec"]["versions"]}});
    merge(&cluster.client, path, merge_back).await.unwrap();
    ready(cluster, operator, "NetworkInterface", &format!("strict-{}.eth0", made.get())).await;
}
