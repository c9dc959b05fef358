//! One stored object of every kind of ours that does not decode, as an older definition or a hand may leave it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use juneau_api::source::watch::WatchSource;
use juneau_operator::rights::WATCHED;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use support::{Cluster, Operator, ask, create, delete, is_ready, merge, object, pod, port, put, ready};

const SUBNET: &str = "juneau.loutres.me/subnet";
const OURS: &str = "/apis/juneau.loutres.me/v1alpha1";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Each kind: its plural, whether it has a namespace, a spec that no version of ours reads, and a change that makes an
/// object such a one.
fn broken() -> Vec<(&'static str, &'static str, bool, Value, Value)> {
    vec![
        ("Vpc", "vpcs", false, json!({"allowedNamespaces": "red"}), json!({"allowedNamespaces": "red"})),
        ("Subnet", "subnets", false, json!({"vpc": 7, "cidr": "10.0.1.0/24"}), json!({"routeTable": 7})),
        ("RouteTable", "routetables", false, json!({"vpc": "red", "routes": "none"}), json!({"routes": "none"})),
        ("NetworkInterface", "networkinterfaces", true, json!({"podRef": 7}), json!({"securityGroups": 7})),
        ("NetworkEndpoint", "networkendpoints", true, json!({"kind": "Pod", "podRef": 7}), json!({"podRef": 7})),
        ("ServiceNATAttachment", "servicenatattachments", false, json!({"vpc": 7}), json!({"vpc": 7})),
        ("VpcEndpoint", "vpcendpoints", false, json!({"vpc": "red", "service": 7}), json!({"service": 7})),
        ("AllocationPool", "allocationpools", false, json!({"ip": 7}), json!({"ip": 7})),
        ("AllocationClaim", "allocationclaims", false, json!({"poolRefs": 7}), json!({"poolRefs": 7})),
        ("AllocationLease", "allocationleases", false, json!({"value": 7}), json!({"value": 7})),
    ]
}

fn path(plural: &str, namespaced: bool, name: &str) -> String {
    let namespace = if namespaced { "/namespaces/red" } else { "" };
    format!("{OURS}{namespace}/{plural}/{name}")
}

/// Makes a tenant with one Pod, and waits until it has its endpoint.
async fn tenant(cluster: &Cluster, operator: &Operator, name: &str) -> Value {
    put(cluster, &object("Vpc", name, json!({}))).await;
    put(cluster, &object("Subnet", &format!("{name}-a"), json!({"vpc": name, "cidr": "10.0.1.0/24"}))).await;
    put(cluster, &pod("red", name, "node-a", json!({SUBNET: format!("{name}-a")}))).await;
    ready(cluster, operator, "RouteTable", name).await;
    ready(cluster, operator, "NetworkInterface", &format!("{name}.eth0")).await
}

/// What a tenant has: if any of it changes, something was lost.
async fn holdings(cluster: &Cluster, name: &str) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for (kind, name) in [
        ("Vpc", name.to_owned()),
        ("Subnet", format!("{name}-a")),
        ("RouteTable", name.to_owned()),
        ("NetworkInterface", format!("{name}.eth0")),
        ("NetworkEndpoint", format!("{name}.eth0")),
        ("AllocationPool", format!("subnet-ip-{name}-a")),
        ("ServiceNATAttachment", "node-a.default".to_owned()),
        ("NetworkEndpoint", "juneau-nat.node-a.default".to_owned()),
    ] {
        let object = cluster.get(kind, &name).await.unwrap_or_else(|| panic!("{kind} {name} is gone"));
        all.insert(format!("{kind}/{name}"), object["metadata"]["uid"].clone());
        for field in ["vpcID", "vni", "tableID", "address", "assignedIP"] {
            let value = &object["status"][field];
            if !value.is_null() {
                all.insert(format!("{kind}/{name} {field}"), value.clone());
            }
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
async fn an_object_of_each_kind_that_does_not_decode_costs_itself() {
    let cluster = Cluster::start(false).await;
    cluster.namespace("red", json!({}));
    let metrics = port();
    let flag = format!("--metrics-bind-address=127.0.0.1:{metrics}");
    let operator = Operator::start_with(&cluster, port(), &[&flag, "--metrics-secure=false"]).await;
    ready(&cluster, &operator, "Subnet", "default").await;
    tenant(&cluster, &operator, "kept").await;
    ready(&cluster, &operator, "ServiceNATAttachment", "node-a.default").await;
    let service = json!({"namespace": "red", "name": "none"});
    put(&cluster, &object("VpcEndpoint", "kept", json!({"vpc": "kept", "service": service}))).await;
    let node = WatchSource::start(&cluster.client, "node-a", std::time::Duration::from_secs(60), || {});
    cluster
        .until("the node's source has all", &[&operator], async |_| {
            let snapshot = node.read();
            snapshot.problems.is_empty() && snapshot.view.vpcs.contains_key("kept")
        })
        .await;
    let before = holdings(&cluster, "kept").await;
    let nic = cluster.get("NetworkInterface", "kept.eth0").await.unwrap();
    let claim = nic["status"]["allocationClaim"].as_str().unwrap().to_owned();
    let address = nic["status"]["address"].as_str().unwrap().split('/').next().unwrap().replace('.', "-");
    let lease = format!("subnet-ip-kept-a--{address}");
    let pool = cluster.get("AllocationPool", "subnet-ip-kept-a").await.unwrap();
    let own = |kind: &str| match kind {
        "Vpc" | "RouteTable" | "VpcEndpoint" => "kept".to_owned(),
        "ServiceNATAttachment" => "node-a.default".to_owned(),
        "Subnet" => "kept-a".to_owned(),
        "AllocationPool" => "subnet-ip-kept-a".to_owned(),
        "AllocationClaim" => claim.clone(),
        "AllocationLease" => lease.clone(),
        _ => "kept.eth0".to_owned(),
    };

    // A definition that allows anything, objects that only it allows, and the strict one again.
    let mut strict = Vec::new();
    for (_, plural, ..) in broken() {
        let path = format!("{DEFINITIONS}/{plural}.juneau.loutres.me");
        let versions = ask(&cluster.client, "GET", &path, None).await.unwrap()["spec"]["versions"].clone();
        let mut loose = versions.clone();
        loose[0]["schema"] =
            json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        // Only what the schema names can be selected by.
        loose[0].as_object_mut().unwrap().remove("selectableFields");
        merge(&cluster.client, &path, json!({"spec": {"versions": loose}})).await.unwrap();
        strict.push((path, versions));
    }
    for (kind, plural, namespaced, spec, change) in broken() {
        let mut bad: Value = serde_json::from_str(&object(kind, "broken", spec)).unwrap();
        if namespaced {
            bad["metadata"]["namespace"] = json!("red");
        }
        cluster
            .until(&format!("a broken {kind}"), &[&operator], async |cluster| {
                create(&cluster.client, &bad.to_string()).await.is_ok()
            })
            .await;
        merge(&cluster.client, &path(plural, namespaced, &own(kind)), json!({"spec": change})).await.unwrap();
    }
    for (path, versions) in &strict {
        merge(&cluster.client, path, json!({"spec": {"versions": versions}})).await.unwrap();
    }
    it_is_said(&cluster, &operator, metrics, &node, &own).await;
    tenant(&cluster, &operator, "others").await;
    assert_eq!(holdings(&cluster, "kept").await, before);
    // Who is in a network whose last good version is known is served as before.
    put(&cluster, &pod("red", "late", "node-a", json!({SUBNET: "others-a"}))).await;
    ready(&cluster, &operator, "NetworkInterface", "late.eth0").await;
    operator.stop();

    // One that never saw a good version: it knows that there is something, and gives nothing away.
    let operator = Operator::start_with(&cluster, port(), &[&flag, "--metrics-secure=false"]).await;
    it_is_said(&cluster, &operator, metrics, &node, &own).await;
    tenant(&cluster, &operator, "after").await;
    let node = WatchSource::start(&cluster.client, "node-a", std::time::Duration::from_secs(60), || {});
    cluster
        .until("a new source has the others", &[&operator], async |_| {
            let view = node.read().view;
            view.vpcs.contains_key("after") && view.subnets.contains_key("after-a") && !view.vpcs.contains_key("broken")
        })
        .await;
    // Longer than what a new operator waits before it takes something for left over.
    tokio::time::sleep(std::time::Duration::from_secs(11)).await;
    assert_eq!(holdings(&cluster, "kept").await, before);

    // Mended, all is as it was; what was never good can be deleted.
    for (kind, plural, namespaced, ..) in broken() {
        delete(&cluster.client, &path(plural, namespaced, "broken")).await.unwrap();
        cluster
            .until(&format!("the broken {kind} goes"), &[&operator], async |cluster| {
                cluster.list(kind).await.iter().all(|object| object["metadata"]["name"] != "broken")
            })
            .await;
    }
    let good = [
        ("Vpc", "vpcs", false, json!({"allowedNamespaces": null})),
        ("Subnet", "subnets", false, json!({"routeTable": null})),
        ("RouteTable", "routetables", false, json!({"routes": null})),
        ("NetworkInterface", "networkinterfaces", true, json!({"securityGroups": null})),
        ("AllocationPool", "allocationpools", false, json!({"ip": pool["spec"]["ip"]})),
        ("VpcEndpoint", "vpcendpoints", false, json!({"service": service})),
    ];
    for (kind, plural, namespaced, change) in good {
        merge(&cluster.client, &path(plural, namespaced, &own(kind)), json!({"spec": change})).await.unwrap();
    }
    ready(&cluster, &operator, "Subnet", "kept-a").await;
    ready(&cluster, &operator, "Vpc", "kept").await;
    assert_eq!(holdings(&cluster, "kept").await, before);
    // What cannot be mended, since it cannot be changed, is made anew when it is deleted.
    let uid = &before["NetworkEndpoint/kept.eth0"];
    for (kind, plural, namespaced) in [
        ("NetworkEndpoint", "networkendpoints", true),
        ("AllocationClaim", "allocationclaims", false),
        ("AllocationLease", "allocationleases", false),
        ("ServiceNATAttachment", "servicenatattachments", false),
    ] {
        delete(&cluster.client, &path(plural, namespaced, &own(kind))).await.unwrap();
    }
    cluster
        .until("the Pod has a new endpoint", &[&operator], async |cluster| {
            let endpoint = cluster.get("NetworkEndpoint", "kept.eth0").await.unwrap_or_default();
            is_ready(&endpoint) && endpoint["metadata"]["uid"] != *uid
        })
        .await;
    ready(&cluster, &operator, "NetworkInterface", "kept.eth0").await;
    ready(&cluster, &operator, "ServiceNATAttachment", "node-a.default").await;
    cluster.nothing_was_forbidden();
    operator.stop();
}

/// By the log, a metric and an Event of the operator, and by a problem of a node.
async fn it_is_said(
    cluster: &Cluster,
    operator: &Operator,
    metrics: u16,
    node: &WatchSource,
    own: &dyn Fn(&str) -> String,
) {
    let ours = broken();
    assert_eq!(ours.len() + 4, WATCHED.len(), "Namespaces, Nodes, Pods and Services are Kubernetes' own");
    for (kind, ..) in &ours {
        for name in ["broken", &own(kind)] {
            cluster
                .until(&format!("an Event about {kind} {name}"), &[operator], async |cluster| {
                    let events = ask(&cluster.client, "GET", "/apis/events.k8s.io/v1/events", None).await.unwrap();
                    events["items"].as_array().unwrap().iter().any(|event| {
                        event["regarding"]["kind"] == *kind
                            && event["regarding"]["name"] == name
                            && event["reason"] == "Undecodable"
                    })
                })
                .await;
        }
        cluster
            .until(&format!("the metric of {kind}"), &[operator], async |_| {
                let text = scrape(metrics).await;
                let label = format!("juneau_operator_undecodable_total{{kind=\"{kind}\"}} ");
                text.lines()
                    .any(|line| line.strip_prefix(&label).is_some_and(|count| count.parse::<u64>().unwrap() > 0))
            })
            .await;
        assert!(operator.log().contains("cannot be decoded"));
        // What nodes read.
        if !kind.starts_with("Allocation") && !["ServiceNATAttachment", "VpcEndpoint"].contains(kind) {
            cluster
                .until(&format!("a node's problem of {kind}"), &[operator], async |_| {
                    let problems = node.read().problems;
                    problems.iter().any(|problem| {
                        format!("{problem:?}").contains(&format!("{kind}/"))
                            && format!("{problem:?}").contains("broken")
                    })
                })
                .await;
        }
    }
}

async fn scrape(port: u16) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let Ok(mut stream) = tokio::net::TcpStream::connect(("127.0.0.1", port)).await else { return String::new() };
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text).await;
    text
}
