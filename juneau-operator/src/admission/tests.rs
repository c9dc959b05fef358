mod services;

use super::*;
use crate::view::{Kind, Object};
use serde_json::json;

fn view(objects: &[(Kind, Value)]) -> View {
    let mut view = View::default();
    for (kind, document) in objects {
        view.insert(Object::from_json(*kind, document.clone()).unwrap());
    }
    view
}

fn vpc(name: &str, spec: Value) -> (Kind, Value) {
    (Kind::Vpc, json!({"metadata": {"name": name}, "spec": spec}))
}

fn subnet(name: &str, vpc: &str, cidr: &str) -> (Kind, Value) {
    (Kind::Subnet, json!({"metadata": {"name": name}, "spec": {"vpc": vpc, "cidr": cidr}}))
}

fn table(name: &str, vpc: &str, routes: Value) -> (Kind, Value) {
    (Kind::RouteTable, json!({"metadata": {"name": name}, "spec": {"vpc": vpc, "routes": routes}}))
}

fn namespace(name: &str, tenant: &str, subnet: Option<&str>) -> (Kind, Value) {
    let mut object = json!({"metadata": {"name": name, "labels": {"tenant": tenant}, "annotations": {}}});
    if let Some(subnet) = subnet {
        object["metadata"]["annotations"]["juneau.loutres.me/subnet"] = subnet.into();
    }
    (Kind::Namespace, object)
}

/// Two tenants with the same addresses.
fn tenants() -> View {
    let only = |tenant: &str| json!({"allowedNamespaces": {"matchLabels": {"tenant": tenant}}});
    let mut red = only("red");
    red["endpointPool"] = json!({"cidrs": ["10.9.0.0/24"]});
    view(&[
        vpc("default", json!({"service": {"consume": true}})),
        vpc("red", red),
        vpc("blue", only("blue")),
        vpc("shop", json!({"service": {}})),
        subnet("default", "default", "10.16.0.0/16"),
        subnet("red-a", "red", "10.0.1.0/24"),
        subnet("blue-a", "blue", "10.0.1.0/24"),
        table("red", "red", json!([])),
        table("red-extra", "red", json!([])),
        table("blue", "blue", json!([])),
        namespace("red", "red", Some("red-a")),
        namespace("blue", "blue", None),
        (
            Kind::NetworkEndpoint,
            json!({"metadata": {"name": "a.eth0", "namespace": "blue"},
                   "spec": {"kind": "Pod", "nodeName": "n", "subnet": "blue-a"}}),
        ),
    ])
}

fn config() -> Config {
    Config { service_cidrs: vec!["10.96.0.0/12".parse().unwrap()], ..Config::default() }
}

fn ask(view: &View, operation: &str, kind: Kind, old: Value, new: Value) -> Verdict {
    let group = kind.api_version().split_once('/').map_or("", |(group, _)| group);
    let object = if new.is_null() { &old } else { &new };
    let metadata = &object["metadata"];
    let request = serde_json::from_value(json!({
        "uid": "u", "kind": {"group": group, "version": "v", "kind": kind.as_str()}, "operation": operation,
        "name": metadata["name"].as_str().unwrap_or_default(),
        "namespace": metadata["namespace"].as_str().unwrap_or_default(),
        "object": new, "oldObject": old,
    }))
    .unwrap();
    review(view, &config(), &request)
}

fn create(view: &View, (kind, object): (Kind, Value)) -> Verdict {
    ask(view, "CREATE", kind, Value::Null, object)
}

fn update(view: &View, kind: Kind, old: Value, new: Value) -> Verdict {
    ask(view, "UPDATE", kind, old, new)
}

fn delete(view: &View, kind: Kind, name: &str) -> Verdict {
    ask(view, "DELETE", kind, json!({"metadata": {"name": name}}), Value::Null)
}

#[track_caller]
fn refused(verdict: Verdict, parts: &[&str]) {
    let denial = verdict.expect_err("allowed");
    for part in parts {
        assert!(denial.message.contains(part), "{part:?} is not in {:?}", denial.message);
    }
    assert!(denial.message.contains("; ") || denial.message.contains(": "), "no remedy: {}", denial.message);
}

#[test]
fn ranges_of_one_vpc_do_not_overlap() {
    let view = tenants();
    assert_eq!(create(&view, subnet("red-b", "red", "10.0.2.0/24")), Ok(vec![]));
    // The same range in another Vpc is what VPCs are for.
    assert_eq!(create(&view, subnet("shop-a", "shop", "10.0.1.0/24")), Ok(vec![]));
    refused(create(&view, subnet("red-b", "red", "10.0.0.0/16")), &["Subnet red-b", "10.0.0.0/16", "Subnet red-a"]);
    refused(create(&view, subnet("red-b", "red", "10.0.1.128/25")), &["Subnet red-a (10.0.1.0/24)"]);
    refused(create(&view, subnet("red-b", "red", "10.9.0.0/20")), &["endpoint pool of Vpc red (10.9.0.0/24)"]);
    // Service addresses are taken only where Services are routed.
    assert_eq!(create(&view, subnet("red-b", "red", "10.96.0.0/24")), Ok(vec![]));
    refused(create(&view, subnet("shop-a", "shop", "10.96.1.0/24")), &["Service range 10.96.0.0/12", "Vpc shop"]);
}

#[test]
fn a_vpc_is_changed_only_as_its_subnets_allow() {
    let view = tenants();
    let old = |spec: Value| json!({"metadata": {"name": "red"}, "spec": spec});
    let pool = |cidrs: &[&str]| json!({"endpointPool": {"cidrs": cidrs}});
    assert_eq!(update(&view, Kind::Vpc, old(json!({})), old(pool(&["10.8.0.0/24", "10.8.1.0/24"]))), Ok(vec![]));
    refused(update(&view, Kind::Vpc, old(json!({})), old(pool(&["10.0.0.0/20"]))), &["10.0.0.0/20", "Subnet red-a"]);
    refused(update(&view, Kind::Vpc, old(json!({})), old(pool(&["10.97.0.0/24"]))), &["Service range 10.96.0.0/12"]);
    refused(
        update(&view, Kind::Vpc, old(json!({})), old(pool(&["10.8.0.0/24", "10.8.0.128/25"]))),
        &["10.8.0.0/24", "10.8.0.128/25", "overlap"],
    );
    // What is wrong already keeps nobody from changing labels, and no deletion from ending.
    assert_eq!(update(&view, Kind::Vpc, old(pool(&["10.0.0.0/20"])), old(pool(&["10.0.0.0/20"]))), Ok(vec![]));
    let mut deleting = old(pool(&["10.0.0.0/20"]));
    deleting["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    assert_eq!(update(&view, Kind::Vpc, old(json!({})), deleting), Ok(vec![]));

    let mut with = tenants();
    with.insert(Object::from_json(Kind::Subnet, subnet("red-s", "red", "10.100.0.0/24").1).unwrap());
    let services = old(json!({"service": {"consume": true}}));
    refused(update(&with, Kind::Vpc, old(json!({})), services.clone()), &["Subnet red-s", "Service range"]);
    assert_eq!(update(&view, Kind::Vpc, old(json!({})), services), Ok(vec![]));
}

#[test]
fn references_exist_and_stay_in_one_vpc() {
    let view = tenants();
    refused(create(&view, subnet("x", "green", "10.0.0.0/24")), &["Subnet x", "Vpc green does not exist"]);
    let with = |table: &str| {
        let (kind, mut object) = subnet("red-b", "red", "10.0.2.0/24");
        object["spec"]["routeTable"] = table.into();
        (kind, object)
    };
    assert_eq!(create(&view, with("red-extra")), Ok(vec![]));
    refused(create(&view, with("absent")), &["RouteTable absent does not exist"]);
    refused(create(&view, with("blue")), &["RouteTable blue belongs to Vpc blue", "Vpc red"]);
    let old = subnet("red-b", "red", "10.0.2.0/24").1;
    refused(update(&view, Kind::Subnet, old.clone(), with("blue").1), &["RouteTable blue"]);
    assert_eq!(update(&view, Kind::Subnet, old, with("red-extra").1), Ok(vec![]));
    // A table that is gone is no reason to refuse other changes.
    assert_eq!(update(&view, Kind::Subnet, with("absent").1, with("absent").1), Ok(vec![]));

    refused(create(&view, table("t", "green", json!([]))), &["RouteTable t", "Vpc green does not exist"]);
    refused(create(&view, table("shop", "red", json!([]))), &["main RouteTable of Vpc shop"]);
    assert_eq!(create(&view, table("shop", "shop", json!([]))), Ok(vec![]));
}

#[test]
fn default_is_the_only_subnet_of_default() {
    let view = tenants();
    refused(create(&view, subnet("x", "default", "10.1.0.0/24")), &["Vpc default has one Subnet"]);
    refused(create(&view, subnet("default", "red", "10.1.0.0/24")), &["must be in Vpc default"]);
    let old = subnet("default", "default", "10.16.0.0/16").1;
    let mut new = old.clone();
    new["spec"]["routeTable"] = "red".into();
    refused(update(&view, Kind::Subnet, old, new), &["leave spec.routeTable out"]);
    refused(delete(&view, Kind::Vpc, "default"), &["cannot be deleted"]);
    refused(delete(&view, Kind::Subnet, "default"), &["cannot be deleted"]);
}

#[test]
fn routes_neither_hide_a_subnet_nor_lead_out_of_the_vpc() {
    let view = tenants();
    let route = |dst: &str, target: &str| json!([{"dst": dst, "via": {"type": "endpoint", "endpointName": target}}]);
    refused(create(&view, table("t", "red", route("10.0.1.0/24", "b.eth0"))), &["spec.routes[0]", "Subnet red-a"]);
    refused(
        create(&view, table("t", "red", route("0.0.0.0/0", "a.eth0"))),
        &["NetworkEndpoint blue/a.eth0 is in Vpc blue", "Vpc red"],
    );
    assert_eq!(create(&view, table("t", "blue", route("0.0.0.0/0", "a.eth0"))), Ok(vec![]));
    assert_eq!(create(&view, table("t", "blue", route("0.0.0.0/0", "blue/a.eth0"))), Ok(vec![]));
    let warned = create(&view, table("t", "blue", route("0.0.0.0/0", "red/a.eth0"))).unwrap();
    assert!(warned[0].contains("NetworkEndpoint red/a.eth0 does not exist"), "{warned:?}");
    // What another tenant calls a Pod is in nobody's way; of several in the Vpc one has to be chosen.
    let endpoint = |namespace: &str, subnet: &str| {
        (
            Kind::NetworkEndpoint,
            json!({"metadata": {"name": "a.eth0", "namespace": namespace},
                   "spec": {"kind": "Pod", "nodeName": "n", "subnet": subnet}}),
        )
    };
    let mut more = tenants();
    let mut add = |(kind, document): (Kind, Value)| more.insert(Object::from_json(kind, document).unwrap());
    add(endpoint("red", "red-a"));
    add(endpoint("zebra", "blue-a"));
    assert_eq!(create(&more, table("t", "red", route("0.0.0.0/0", "a.eth0"))), Ok(vec![]));
    refused(
        create(&more, table("t", "blue", route("0.0.0.0/0", "a.eth0"))),
        &["several of Vpc blue: blue/a.eth0, zebra/a.eth0", "namespace/name"],
    );
    assert_eq!(create(&more, table("t", "blue", route("0.0.0.0/0", "zebra/a.eth0"))), Ok(vec![]));
    // A route that was admitted once does not hold up the others.
    let old = table("t", "red", route("10.0.1.0/24", "b.eth0")).1;
    let mut new = old.clone();
    new["spec"]["routes"].as_array_mut().unwrap().push(route("10.7.0.0/24", "b.eth0")[0].clone());
    assert_eq!(update(&view, Kind::RouteTable, old, new).unwrap().len(), 1);
}

#[test]
fn what_is_in_use_is_not_deleted() {
    let mut view = tenants();
    refused(delete(&view, Kind::Vpc, "red"), &["Vpc red is in use by Subnet red-a"]);
    assert_eq!(delete(&view, Kind::Vpc, "shop"), Ok(vec![]));
    assert_eq!(delete(&view, Kind::Subnet, "red-a"), Ok(vec![]));
    refused(delete(&view, Kind::RouteTable, "red"), &["main one of Vpc red"]);
    assert_eq!(delete(&view, Kind::RouteTable, "red-extra"), Ok(vec![]));

    for n in 0..14 {
        let nic = json!({"metadata": {"name": format!("p{n:02}.eth0"), "namespace": "red"},
            "spec": {"podRef": {"uid": "u", "name": format!("p{n:02}"), "interface": "eth0"}, "nodeName": "n", "subnet": "red-a"}});
        view.insert(Object::from_json(Kind::NetworkInterface, nic).unwrap());
    }
    refused(delete(&view, Kind::Subnet, "red-a"), &["NetworkInterface red/p00.eth0", "red/p09.eth0 and 4 more"]);
    let user = json!({"metadata": {"name": "red-b"}, "spec": {"vpc": "red", "cidr": "10.0.2.0/24", "routeTable": "red-extra"}});
    view.insert(Object::from_json(Kind::Subnet, user.clone()).unwrap());
    refused(delete(&view, Kind::RouteTable, "red-extra"), &["in use by Subnet red-b"]);
    let mut going = user;
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    view.insert(Object::from_json(Kind::Subnet, going).unwrap());
    assert_eq!(delete(&view, Kind::RouteTable, "red-extra"), Ok(vec![]));
}

fn pod(namespace: &str, annotations: Value) -> (Kind, Value) {
    let metadata = json!({"name": "p", "namespace": namespace, "annotations": annotations});
    (Kind::Pod, json!({"metadata": metadata, "spec": {"containers": []}}))
}

#[test]
fn a_pod_enters_only_the_vpc_of_its_namespace_by_every_way_in() {
    let view = tenants();
    let key = "juneau.loutres.me/subnet";
    assert_eq!(create(&view, pod("red", json!({}))), Ok(vec![]), "by its Namespace");
    assert_eq!(create(&view, pod("red", json!({key: "red-a"}))), Ok(vec![]));
    assert_eq!(create(&view, pod("blue", json!({}))), Ok(vec![]), "into Vpc default");
    let both = ["Namespace/blue may not enter Vpc/red", "Subnet red-a"];
    refused(create(&view, pod("blue", json!({key: "red-a"}))), &both);
    let list = |subnet: &str| json!({"juneau.loutres.me/networks": json!([{"interface": "eth1", "subnet": subnet}]).to_string()});
    refused(create(&view, pod("blue", list("red-a"))), &both);
    assert_eq!(create(&view, pod("blue", list("blue-a"))), Ok(vec![]));
    let primary = json!({"juneau.loutres.me/networks": r#"[{"interface": "eth0", "subnet": "red-a"}]"#});
    refused(create(&view, pod("blue", primary)), &both);
    // By the annotation of the Namespace itself.
    refused(create(&view, namespace("blue", "blue", Some("red-a"))), &both);
    let (_, old) = namespace("blue", "blue", None);
    refused(update(&view, Kind::Namespace, old, namespace("blue", "blue", Some("red-a")).1), &both);
    assert_eq!(create(&view, namespace("red2", "red", Some("red-a"))), Ok(vec![]));
    // Labels that were changed: what is there already is not asked about again, its Pods are.
    let moved = namespace("red", "blue", Some("red-a"));
    assert_eq!(update(&view, Kind::Namespace, moved.1.clone(), moved.1.clone()), Ok(vec![]));
    let mut view = view;
    view.insert(Object::from_json(moved.0, moved.1).unwrap());
    refused(create(&view, pod("red", json!({}))), &["Namespace/red may not enter Vpc/red"]);
}

#[test]
fn annotations_of_pods_are_checked() {
    let view = tenants();
    refused(
        create(&view, pod("red", json!({"juneau.loutres.me/subnet": "absent"}))),
        &["Pod red/p", "Subnet absent does not exist"],
    );
    refused(create(&view, pod("red", json!({"juneau.loutres.me/networks": "[{"}))), &["Pod red/p", "networks"]);
    for (address, says) in [
        ("10.0.2.4", "is not one of Subnet red-a"),
        ("10.0.1.1", "is the gateway"),
        ("10.0.1.2", "DNS"),
        ("10.0.1.3", "reserved"),
        ("10.0.1.0", "network"),
        ("10.0.1.255", "broadcast"),
        ("10.0.1.300", "10.0.1.300"),
    ] {
        refused(create(&view, pod("red", json!({"juneau.loutres.me/address": address}))), &["Pod red/p", says]);
    }
    assert_eq!(create(&view, pod("red", json!({"juneau.loutres.me/address": "10.0.1.4"}))), Ok(vec![]));
    // Pods of the node's own network have no interfaces.
    let (kind, mut host) = pod("red", json!({"juneau.loutres.me/subnet": "absent"}));
    host["spec"]["hostNetwork"] = true.into();
    assert_eq!(create(&view, (kind, host)), Ok(vec![]));

    let old = pod("red", json!({"juneau.loutres.me/subnet": "red-a"})).1;
    for key in FIXED_KEYS {
        let mut new = old.clone();
        new["metadata"]["annotations"][key] = "other".into();
        refused(update(&view, Kind::Pod, old.clone(), new), &["Pod red/p", key, "cannot change"]);
    }
    let mut new = old.clone();
    new["metadata"]["annotations"]["juneau.loutres.me/security-groups"] = "web".into();
    new["metadata"]["labels"] = json!({"a": "b"});
    assert_eq!(update(&view, Kind::Pod, old, new), Ok(vec![]));
}

const FIXED_KEYS: [&str; 4] = [
    "juneau.loutres.me/subnet",
    "juneau.loutres.me/address",
    "juneau.loutres.me/elastic-ip",
    "juneau.loutres.me/networks",
];

#[test]
fn a_refusal_that_a_newer_view_may_lift_says_so() {
    let view = tenants();
    let lag = |verdict: Verdict| verdict.unwrap_err().lag;
    assert!(lag(create(&view, subnet("x", "green", "10.0.0.0/24"))));
    assert!(lag(delete(&view, Kind::Vpc, "red")));
    assert!(!lag(delete(&view, Kind::Vpc, "default")));
    assert!(!lag(create(&view, pod("red", json!({"juneau.loutres.me/networks": "["})))));
}

#[test]
fn kinds_and_objects_that_are_not_understood_are_refused() {
    let view = tenants();
    let request: Request = serde_json::from_value(json!({
        "uid": "u", "kind": {"group": "apps", "version": "v1", "kind": "Deployment"}, "operation": "CREATE",
    }))
    .unwrap();
    refused(review(&view, &config(), &request), &["Deployment of group \"apps\""]);
    refused(create(&view, (Kind::Subnet, json!({"metadata": {"name": "x"}, "spec": {"vpc": 7}}))), &["Subnet x"]);
    refused(create(&view, (Kind::Pod, json!({"metadata": {"name": "x"}, "spec": "none"}))), &["Pod"]);
}
