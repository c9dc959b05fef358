//! Services and VpcEndpoints.

use super::*;

const VPC: &str = "juneau.loutres.me/vpc";
const SHARED: &str = "juneau.loutres.me/shared-service";
const CONSUMERS: &str = "juneau.loutres.me/shared-service-allowed-consumer-vpcs";

fn service(namespace: &str, annotations: Value) -> (Kind, Value) {
    let metadata = json!({"name": "s", "namespace": namespace, "annotations": annotations});
    (Kind::Service, json!({"metadata": metadata, "spec": {"clusterIP": "10.96.0.9"}}))
}

fn endpoint(vpc: &str, service: &str) -> (Kind, Value) {
    let spec = json!({"vpc": vpc, "service": {"namespace": "red", "name": service}});
    (Kind::VpcEndpoint, json!({"metadata": {"name": "e"}, "spec": spec}))
}

/// [`tenants`], with Vpc `red` as a provider and Vpc `shop` open to all.
fn with_provider() -> View {
    let mut view = tenants();
    let provides = json!({"service": {"provider": {"natSourceSubnet": "red-a"}}, "endpointPool": {"cidrs": ["10.9.0.0/24"]},
        "allowedNamespaces": {"matchLabels": {"tenant": "red"}}});
    let (kind, document) = vpc("red", provides);
    view.insert(Object::from_json(kind, document).unwrap());
    view
}

#[test]
fn a_service_is_of_a_vpc_that_routes_services_and_lets_its_namespace_in() {
    let view = with_provider();
    let red = |annotations: Value| create(&view, service("red", annotations));
    assert_eq!(red(json!({})), Ok(vec![]));
    assert_eq!(red(json!({VPC: "red"})), Ok(vec![]));
    assert_eq!(create(&view, service("blue", json!({VPC: "shop"}))), Ok(vec![]));
    refused(red(json!({VPC: "green"})), &["Service red/s", "Vpc green does not exist"]);
    refused(red(json!({VPC: "Red"})), &["Service red/s", "cannot be the name of a Vpc"]);
    refused(red(json!({VPC: "red", "juneau.loutres.me/subnet": "red-a"})), &["is for Pods and Namespaces"]);
    refused(create(&tenants(), service("red", json!({VPC: "red"}))), &["Vpc red routes no Services", "spec.service"]);
    refused(create(&view, service("blue", json!({VPC: "red"}))), &["Namespace/blue may not enter Vpc/red"]);
    let denial = create(&view, service("new", json!({VPC: "red"}))).unwrap_err();
    assert_eq!(denial.missing, Some((Kind::Namespace, ObjectName::new("", "new"))));
    let denial = red(json!({VPC: "green"})).unwrap_err();
    assert_eq!(denial.missing, Some((Kind::Vpc, ObjectName::new("", "green"))));
    // Before the operator made Vpc default.
    assert_eq!(create(&View::default(), service("red", json!({VPC: ""}))), Ok(vec![]));
}

#[test]
fn a_service_is_shared_by_a_provider_and_with_consumers() {
    let view = with_provider();
    let red = |annotations: Value| create(&view, service("red", annotations));
    assert_eq!(red(json!({VPC: "red", SHARED: "true"})), Ok(vec![]));
    assert_eq!(red(json!({VPC: "red", SHARED: "true", CONSUMERS: "default"})), Ok(vec![]));
    assert_eq!(red(json!({VPC: "shop", SHARED: "yes"})), Ok(vec![]), "it is not shared");
    refused(red(json!({VPC: "shop", SHARED: "true"})), &["Vpc shop provides no Services", "spec.service.provider"]);
    refused(red(json!({VPC: "red", SHARED: "true", CONSUMERS: "green"})), &["Vpc green does not exist"]);
    refused(red(json!({VPC: "red", SHARED: "true", CONSUMERS: "default,shop"})), &["Vpc shop does not consume"]);
    refused(red(json!({VPC: "red", SHARED: "true", CONSUMERS: ""})), &["is empty"]);
    refused(red(json!({VPC: "red", SHARED: "true", CONSUMERS: "default,default"})), &["names Vpc/default twice"]);
    refused(red(json!({VPC: "red", CONSUMERS: "default"})), &["is not shared"]);
}

#[test]
fn a_service_that_is_there_is_asked_about_what_changed_alone() {
    let view = with_provider();
    let bad = service("red", json!({VPC: "green"})).1;
    let mut new = bad.clone();
    new["metadata"]["annotations"]["other"] = "x".into();
    new["spec"]["clusterIP"] = "None".into();
    assert_eq!(update(&view, Kind::Service, bad.clone(), new), Ok(vec![]));
    refused(
        update(&view, Kind::Service, bad.clone(), service("red", json!({VPC: "grey"})).1),
        &["Vpc grey does not exist"],
    );
    assert_eq!(update(&view, Kind::Service, bad.clone(), service("red", json!({VPC: "red"})).1), Ok(vec![]));
    let mut deleting = service("red", json!({VPC: "grey"})).1;
    deleting["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    assert_eq!(update(&view, Kind::Service, bad, deleting), Ok(vec![]));
    assert_eq!(delete(&view, Kind::Service, "s"), Ok(vec![]));
}

#[test]
fn an_endpoint_is_of_a_vpc_with_a_pool() {
    let mut view = with_provider();
    let warned = create(&view, endpoint("red", "absent")).unwrap();
    assert!(warned[0].contains("Service red/absent does not exist"), "{warned:?}");
    view.insert(Object::from_json(Kind::Service, service("red", json!({})).1).unwrap());
    assert_eq!(create(&view, endpoint("red", "s")), Ok(vec![]));
    refused(create(&view, endpoint("blue", "s")), &["VpcEndpoint e", "Vpc blue has no endpointPool"]);
    refused(create(&view, endpoint("green", "s")), &["Vpc green does not exist"]);
    // The pool counts when it is made; the plan says so afterwards.
    assert_eq!(update(&view, Kind::VpcEndpoint, endpoint("blue", "x").1, endpoint("blue", "s").1), Ok(vec![]));
    assert_eq!(delete(&view, Kind::VpcEndpoint, "e"), Ok(vec![]));
}

#[test]
fn a_vpc_keeps_what_its_endpoints_have_and_shares_by_a_subnet_of_its_own() {
    let mut view = with_provider();
    let mut held = endpoint("red", "s").1;
    held["status"] = json!({"address": "10.9.0.2"});
    view.insert(Object::from_json(Kind::VpcEndpoint, held).unwrap());
    let spec = |cidrs: &[&str]| json!({"metadata": {"name": "red"}, "spec": {"endpointPool": {"cidrs": cidrs}}});
    let old = spec(&["10.9.0.0/24"]);
    assert_eq!(update(&view, Kind::Vpc, old.clone(), spec(&["10.9.0.0/28", "10.8.0.0/24"])), Ok(vec![]));
    refused(update(&view, Kind::Vpc, old.clone(), spec(&["10.9.0.128/25"])), &["VpcEndpoint e has 10.9.0.2"]);
    let gone = json!({"metadata": {"name": "red"}, "spec": {}});
    refused(update(&view, Kind::Vpc, old.clone(), gone), &["VpcEndpoint e has 10.9.0.2"]);
    // What is lost already holds up nothing.
    assert_eq!(update(&view, Kind::Vpc, spec(&["10.7.0.0/24"]), spec(&["10.8.0.0/24"])), Ok(vec![]));
    refused(delete(&view, Kind::Vpc, "red"), &["Vpc red is in use by Subnet red-a, VpcEndpoint e"]);

    let share = |subnet: &str| {
        let provider = json!({"service": {"provider": {"natSourceSubnet": subnet}}});
        update(&view, Kind::Vpc, old.clone(), json!({"metadata": {"name": "blue"}, "spec": provider}))
    };
    assert_eq!(share("blue-a"), Ok(vec![]));
    assert_eq!(share("later"), Ok(vec![]), "whichever of the two is made first");
    refused(share("red-a"), &["natSourceSubnet", "Subnet red-a is of Vpc red"]);
}
