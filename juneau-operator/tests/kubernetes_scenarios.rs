//! What is asked of allocators, leases, route tables and nodes' endpoints by an API server and the operator alone.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use juneau_controlplane::Options;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use support::{Cluster, Operator, ask, create, delete, is_ready, merge, object, pod, put, ready};

const SUBNET: &str = "juneau.loutres.me/subnet";
const VPC: &str = "juneau.loutres.me/vpc";
const SHARED: &str = "juneau.loutres.me/shared-service";
const OURS: &str = "/apis/juneau.loutres.me/v1alpha1";

/// A Vpc and its Subnet of the same name with `-a`.
async fn network(cluster: &Cluster, operator: &Operator, vpc: &str) {
    put(cluster, &object("Vpc", vpc, json!({}))).await;
    put(cluster, &object("Subnet", &format!("{vpc}-a"), json!({"vpc": vpc, "cidr": "10.0.1.0/24"}))).await;
    ready(cluster, operator, "Subnet", &format!("{vpc}-a")).await;
}

/// Makes a Pod and waits for its address.
async fn address(cluster: &Cluster, operator: &Operator, pod: &str, name: &str) -> String {
    put(cluster, pod).await;
    let nic = ready(cluster, operator, "NetworkInterface", &format!("{name}.eth0")).await;
    nic["status"]["address"].as_str().unwrap().split('/').next().unwrap().to_owned()
}

async fn gone(cluster: &Cluster, operator: &Operator, name: &str) {
    delete(&cluster.client, &format!("/api/v1/namespaces/red/pods/{name}")).await.unwrap();
    let nic = format!("{name}.eth0");
    cluster
        .until(&format!("{nic} is gone"), &[operator], async |cluster| {
            cluster.get("NetworkInterface", &nic).await.is_none()
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
async fn rows_of_allocators_leases_route_tables_and_nodes() {
    let cluster = Cluster::with(true, Options::default().controllers()).await;
    cluster.namespace("red", json!({}));
    nobody_waits_for_an_operator_but_who_names_a_vpc(&cluster).await;
    let operator = Operator::start(&cluster, cluster.webhook).await;
    let operator = &operator;
    ready(&cluster, operator, "Subnet", "default").await;
    let admitted = object("Vpc", "first", json!({}));
    cluster
        .until("a Vpc is admitted", &[operator], async |cluster| create(&cluster.client, &admitted).await.is_ok())
        .await;
    tokio::join!(
        alc_l1_numbers_are_distinct_and_claimed_once(&cluster, operator),
        alc_l2_and_l3_addresses_of_virtual_machines(&cluster, operator),
        alc_l2_a_plain_pod_gets_another_address(&cluster, operator),
        rtb_r1_and_r2_a_table_of_ones_own(&cluster, operator),
        rtb_r3_and_r4_users_routes_survive(&cluster, operator),
        nep_e1_the_endpoint_of_a_node_is_made_again(&cluster, operator),
        svc_t6_a_vpc_without_services_has_none(&cluster, operator),
        vpe_u1_an_endpoint_in_front_of_a_service_of_vpc_default(&cluster, operator),
    );
    cluster.nothing_was_forbidden();
}

fn service(name: &str, annotations: Value) -> String {
    let metadata = json!({"name": name, "namespace": "red", "annotations": annotations});
    let spec = json!({"ports": [{"port": 80, "protocol": "TCP"}]});
    json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}).to_string()
}

/// The webhook is there and nobody answers it.
async fn nobody_waits_for_an_operator_but_who_names_a_vpc(cluster: &Cluster) {
    put(cluster, &service("plain", json!({"note": "x"}))).await;
    let path = "/api/v1/namespaces/red/services/plain";
    merge(&cluster.client, path, json!({"metadata": {"labels": {"a": "b"}}})).await.unwrap();
    merge(&cluster.client, path, json!({"spec": {"externalIPs": ["198.51.100.7"]}})).await.unwrap();
    let refused = create(&cluster.client, &service("named", json!({VPC: "default"}))).await.unwrap_err();
    assert!(refused.contains("service.juneau.loutres.me"), "{refused}");
    let change = json!({"metadata": {"annotations": {VPC: "default"}}});
    let refused = merge(&cluster.client, path, change).await.unwrap_err();
    assert!(refused.contains("service.juneau.loutres.me"), "{refused}");
    delete(&cluster.client, path).await.unwrap();
}

/// Row 241.
async fn svc_t6_a_vpc_without_services_has_none(cluster: &Cluster, operator: &Operator) {
    put(cluster, &object("Vpc", "bare", json!({}))).await;
    let named = service("of-bare", json!({VPC: "bare"}));
    let refused = create(&cluster.client, &named).await.unwrap_err();
    assert!(refused.contains("Vpc bare routes no Services"), "{refused}");
    let path = "/api/v1/namespaces/red/services/of-bare";
    assert!(ask(&cluster.client, "GET", path, None).await.is_err(), "it was made");
    put(cluster, &object("Vpc", "routed", json!({"service": {"consume": true}}))).await;
    put(cluster, &service("of-routed", json!({VPC: "routed"}))).await;
    let refused =
        create(&cluster.client, &service("shared", json!({VPC: "routed", SHARED: "true"}))).await.unwrap_err();
    assert!(refused.contains("spec.service.provider"), "{refused}");
    let change = json!({"metadata": {"annotations": {VPC: "bare"}}});
    let path = "/api/v1/namespaces/red/services/of-routed";
    let refused = merge(&cluster.client, path, change).await.unwrap_err();
    assert!(refused.contains("Vpc bare routes no Services"), "{refused}");
    merge(&cluster.client, path, json!({"spec": {"externalIPs": ["198.51.100.50"]}})).await.unwrap();
    cluster
        .until("Services are routed", &[operator], async |cluster| {
            let table = cluster.get("RouteTable", "routed").await.unwrap_or_default();
            let routes = table["status"]["routes"].as_array().cloned().unwrap_or_default();
            let of_services = routes.iter().filter(|route| route["via"]["type"] == "service").count();
            of_services == 2 && routes.iter().any(|route| route["dst"] == "198.51.100.50/32")
        })
        .await;
}

/// Row 271, with each node's own address in Vpc default.
async fn vpe_u1_an_endpoint_in_front_of_a_service_of_vpc_default(cluster: &Cluster, operator: &Operator) {
    let attachment = ready(cluster, operator, "ServiceNATAttachment", "node-a.default").await;
    let address = attachment["status"]["assignedIP"].as_str().unwrap();
    let endpoint = ready(cluster, operator, "NetworkEndpoint", "juneau-nat.node-a.default").await;
    assert_eq!((&endpoint["spec"]["kind"], &endpoint["spec"]["nodeName"]), (&json!("ServiceNAT"), &json!("node-a")));
    assert!(endpoint["spec"]["address"].as_str().unwrap().starts_with(&format!("{address}/")));
    put(cluster, &service("shop", json!({}))).await;
    put(cluster, &object("Vpc", "caller", json!({"endpointPool": {"cidrs": ["10.80.255.0/28"]}}))).await;
    let spec = json!({"vpc": "caller", "service": {"namespace": "red", "name": "shop"}});
    put(cluster, &object("VpcEndpoint", "shop", spec)).await;
    let endpoint = ready(cluster, operator, "VpcEndpoint", "shop").await;
    assert_eq!(endpoint["status"]["address"], "10.80.255.2");
    cluster
        .until("the pool is routed", &[operator], async |cluster| {
            let table = cluster.get("RouteTable", "caller").await.unwrap_or_default();
            let routes = table["status"]["routes"].as_array().cloned().unwrap_or_default();
            routes.iter().any(|route| route["dst"] == "10.80.255.0/28" && route["via"]["type"] == "vpcEndpoint")
        })
        .await;
    let path = format!("{OURS}/vpcs/caller");
    let refused = merge(&cluster.client, &path, json!({"spec": {"endpointPool": null}})).await.unwrap_err();
    assert!(refused.contains("VpcEndpoint shop has 10.80.255.2"), "{refused}");
    let refused = delete(&cluster.client, &path).await.unwrap_err();
    assert!(refused.contains("VpcEndpoint shop"), "{refused}");
}

/// Rows 16 to 19.
async fn alc_l1_numbers_are_distinct_and_claimed_once(cluster: &Cluster, operator: &Operator) {
    for n in 0..10 {
        put(cluster, &object("Vpc", &format!("n{n}"), json!({}))).await;
    }
    for n in 0..10 {
        let spec = json!({"vpc": format!("n{n}"), "cidr": "10.0.1.0/24"});
        put(cluster, &object("Subnet", &format!("n{n}-a"), spec)).await;
    }
    for n in 0..10 {
        ready(cluster, operator, "Subnet", &format!("n{n}-a")).await;
        ready(cluster, operator, "RouteTable", &format!("n{n}")).await;
    }
    let claims = cluster.list("AllocationClaim").await;
    for (kind, suffix, field) in [("Vpc", "", "vpcID"), ("Subnet", "-a", "vni"), ("RouteTable", "", "tableID")] {
        let all = cluster.list(kind).await;
        let numbers: Vec<u64> = all.iter().filter_map(|object| object["status"][field].as_u64()).collect();
        let distinct: BTreeSet<_> = numbers.iter().collect();
        assert!(numbers.len() >= 10 && !numbers.contains(&0), "{kind}: {numbers:?}");
        assert_eq!(numbers.len(), distinct.len(), "{kind}: {numbers:?}");
        for n in 0..10 {
            let name = format!("n{n}{suffix}");
            let number = all.iter().find(|one| one["metadata"]["name"] == name).unwrap()["status"][field].clone();
            let of = |claim: &&Value| {
                let resource = &claim["spec"]["resourceRef"];
                let attribute = format!("status.{field}");
                resource["kind"] == kind && resource["name"] == name && claim["spec"]["attribute"] == attribute
            };
            let own: Vec<_> = claims.iter().filter(of).collect();
            assert_eq!(own.len(), 1, "{kind} {name}: {own:?}");
            let status = &own[0]["status"];
            assert_eq!((&status["phase"], &status["value"]["number"]), (&json!("Allocated"), &number), "{kind} {name}");
        }
    }
}

/// Rows 20, 21 and 23, and that the operator knows virtual machines whose kind is defined after its start.
async fn alc_l2_and_l3_addresses_of_virtual_machines(cluster: &Cluster, operator: &Operator) {
    network(cluster, operator, "vm").await;
    let launcher = |name: &str, machine: &str| {
        let mut pod: Value = serde_json::from_str(&pod("red", name, "node-a", json!({SUBNET: "vm-a"}))).unwrap();
        pod["metadata"]["labels"] = json!({"vm.kubevirt.io/name": machine});
        pod.to_string()
    };
    let lease = async |address: &str| {
        let name = format!("subnet-ip-vm-a--{}", address.replace('.', "-"));
        cluster.get("AllocationLease", &name).await.unwrap_or_else(|| panic!("no lease {name}"))
    };
    let phase = async |address: &str, phase: &str| {
        let what = format!("the lease of {address} is {phase}");
        cluster.until(&what, &[operator], async |_| lease(address).await["status"]["phase"] == phase).await;
    };
    // Without an object of the machine: its name alone brings the address back.
    let first = address(cluster, operator, &launcher("v-1", "v"), "v-1").await;
    let held = lease(&first).await;
    let claim = cluster.get("NetworkInterface", "v-1.eth0").await.unwrap()["status"]["allocationClaim"].clone();
    assert_eq!(held["spec"]["claimRef"]["name"], claim);
    assert!(held["status"]["phase"].is_null() || held["status"]["phase"] == "Active", "{held}");
    let keeps = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "namespace": "red", "name": "v"});
    assert_eq!(held["spec"]["retainWhile"], keeps);
    gone(cluster, operator, "v-1").await;
    phase(&first, "Released").await;
    assert!(!lease(&first).await["status"]["expiresAt"].is_null());
    let other = address(cluster, operator, &pod("red", "beside", "node-a", json!({SUBNET: "vm-a"})), "beside").await;
    assert_ne!(other, first, "it is reserved");
    assert_eq!(address(cluster, operator, &launcher("v-2", "v"), "v-2").await, first, "the machine's again");
    let held = lease(&first).await;
    let claim = cluster.get("NetworkInterface", "v-2.eth0").await.unwrap()["status"]["allocationClaim"].clone();
    assert_eq!(held["spec"]["claimRef"]["name"], claim);

    // KubeVirt comes long after the operator.
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "virtualmachines.kubevirt.io"},
        "spec": {"group": "kubevirt.io", "scope": "Namespaced",
            "names": {"kind": "VirtualMachine", "plural": "virtualmachines", "singular": "virtualmachine"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    put(cluster, &definition.to_string()).await;
    let machine = |name: &str| {
        let metadata = json!({"name": name, "namespace": "red"});
        json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": metadata}).to_string()
    };
    cluster
        .until("machines are served", &[operator], async |cluster| create(&cluster.client, &machine("w")).await.is_ok())
        .await;
    let kept = address(cluster, operator, &launcher("w-1", "w"), "w-1").await;
    gone(cluster, operator, "w-1").await;
    phase(&kept, "Retained").await;
    assert!(lease(&kept).await["status"]["expiresAt"].is_null(), "as long as the machine exists");
    // The machine goes; its address does an hour later.
    delete(&cluster.client, "/apis/kubevirt.io/v1/namespaces/red/virtualmachines/w").await.unwrap();
    phase(&kept, "Released").await;
    // It comes back, and then the whole kind goes.
    put(cluster, &machine("w")).await;
    phase(&kept, "Retained").await;
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/virtualmachines.kubevirt.io";
    delete(&cluster.client, path).await.unwrap();
    phase(&kept, "Released").await;
}

/// Row 22.
async fn alc_l2_a_plain_pod_gets_another_address(cluster: &Cluster, operator: &Operator) {
    network(cluster, operator, "plain").await;
    let plain = |name: &str| pod("red", name, "node-a", json!({SUBNET: "plain-a"}));
    let first = address(cluster, operator, &plain("plain-1"), "plain-1").await;
    gone(cluster, operator, "plain-1").await;
    assert_ne!(address(cluster, operator, &plain("plain-2"), "plain-2").await, first);
}

/// Rows 251 and 253.
async fn rtb_r1_and_r2_a_table_of_ones_own(cluster: &Cluster, operator: &Operator) {
    network(cluster, operator, "own").await;
    put(cluster, &object("RouteTable", "own-t", json!({"vpc": "own"}))).await;
    let spec = json!({"vpc": "own", "cidr": "10.0.2.0/24", "routeTable": "own-t"});
    put(cluster, &object("Subnet", "own-b", spec)).await;
    ready(cluster, operator, "Subnet", "own-b").await;
    let table = ready(cluster, operator, "RouteTable", "own-t").await;
    let main = ready(cluster, operator, "RouteTable", "own").await;
    let id = |table: &Value| table["status"]["tableID"].as_u64().unwrap();
    assert!(id(&table) != 0 && id(&table) != id(&main));
    let path = format!("{OURS}/routetables/own-t");
    let said = delete(&cluster.client, &path).await.unwrap_err();
    assert!(said.contains("in use by Subnet own-b"), "{said}");
    // When the Subnet names another one, it goes.
    merge(&cluster.client, &format!("{OURS}/subnets/own-b"), json!({"spec": {"routeTable": null}})).await.unwrap();
    cluster
        .until("the table goes", &[operator], async |cluster| {
            let _ = delete(&cluster.client, &path).await;
            cluster.get("RouteTable", "own-t").await.is_none()
        })
        .await;
}

/// Rows 254 and 255.
async fn rtb_r3_and_r4_users_routes_survive(cluster: &Cluster, operator: &Operator) {
    network(cluster, operator, "late").await;
    let routes = json!([{"dst": "10.77.0.0/24", "via": {"type": "endpoint", "endpointName": "router.eth0"}}]);
    // The main one is there, and the user's routes come.
    let before = cluster.get("RouteTable", "late").await.unwrap();
    cluster.apply(&object("RouteTable", "late", json!({"vpc": "late", "routes": routes})));
    // The user's own comes with the Vpc, the Vpc last.
    put(cluster, &object("Vpc", "early", json!({}))).await;
    cluster
        .until("the main table is the user's", &[operator], async |cluster| {
            let table = object("RouteTable", "early", json!({"vpc": "early", "routes": routes}));
            cluster.try_apply(&table).is_ok()
        })
        .await;
    let subnet = object("Subnet", "early-a", json!({"vpc": "early", "cidr": "10.0.1.0/24"}));
    put(cluster, &subnet).await;
    ready(cluster, operator, "Subnet", "early-a").await;
    // Something for the operator to do at both tables.
    put(cluster, &object("Subnet", "late-b", json!({"vpc": "late", "cidr": "10.0.2.0/24"}))).await;
    ready(cluster, operator, "Subnet", "late-b").await;
    for (name, connected) in [("late", "10.0.2.0/24"), ("early", "10.0.1.0/24")] {
        cluster
            .until("both kinds of route", &[operator], async |cluster| {
                let table = cluster.get("RouteTable", name).await.unwrap();
                let text = table["status"]["routes"].to_string();
                text.contains(connected) && text.contains("10.77.0.0/24")
            })
            .await;
        let table = cluster.get("RouteTable", name).await.unwrap();
        assert_eq!(table["spec"]["routes"], routes, "{name}");
        let owners = &table["metadata"]["ownerReferences"];
        assert_eq!((&owners[0]["kind"], &owners[0]["name"]), (&json!("Vpc"), &json!(name)), "{name}");
        assert_eq!(owners.as_array().unwrap().len(), 1, "{owners}");
    }
    assert_eq!(cluster.get("RouteTable", "late").await.unwrap()["metadata"]["uid"], before["metadata"]["uid"]);
}

/// Row 151, up to where a node's agent is needed.
async fn nep_e1_the_endpoint_of_a_node_is_made_again(cluster: &Cluster, operator: &Operator) {
    let name = "juneau-node.node-a";
    let first = ready(cluster, operator, "NetworkEndpoint", name).await;
    assert_eq!(first["metadata"]["namespace"], "juneau-system");
    let spec = &first["spec"];
    assert_eq!(
        (&spec["kind"], &spec["nodeName"], &spec["subnet"]),
        (&json!("Node"), &json!("node-a"), &json!("default"))
    );
    assert_eq!(first["status"]["nodeIP"], "192.0.2.1");
    let path = format!("{OURS}/namespaces/juneau-system/networkendpoints/{name}");
    delete(&cluster.client, &path).await.unwrap();
    cluster
        .until("it is made again", &[operator], async |cluster| {
            let now = cluster.get("NetworkEndpoint", name).await.unwrap_or_default();
            is_ready(&now) && now["metadata"]["uid"] != first["metadata"]["uid"]
        })
        .await;
    let again = cluster.get("NetworkEndpoint", name).await.unwrap();
    assert_eq!(again["spec"], first["spec"], "the same address and MAC address");
    // What a hand makes of it is put right.
    merge(&cluster.client, &path, json!({"spec": {"address": "10.244.9.9/16"}})).await.unwrap();
    cluster
        .until("it is put right", &[operator], async |cluster| {
            cluster.get("NetworkEndpoint", name).await.unwrap_or_default()["spec"] == first["spec"]
        })
        .await;
}
