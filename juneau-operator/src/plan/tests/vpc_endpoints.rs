//! VpcEndpoints: their addresses, and what is said of their Services.

use super::*;

const VPC: &str = "juneau.loutres.me/vpc";

/// Vpcs `red`, which has the endpoints, and `blue`, which provides, with a Service `blue/shop`.
fn cluster(cidrs: &[&str]) -> Cluster {
    let mut cluster = Cluster::with_services(json!({"endpointPool": {"cidrs": cidrs}}));
    cluster.tenant("blue", "10.0.1.0/24");
    cluster.vpc_spec("blue", json!({"service": {"provider": {"natSourceSubnet": "blue"}}}));
    cluster.service("blue/shop", json!({VPC: "blue"}), json!({"clusterIP": "10.96.0.9"}));
    cluster.settle();
    cluster
}

fn put(cluster: &mut Cluster, name: &str, service: &str) {
    let (namespace, of) = service.split_once('/').unwrap();
    let spec = json!({"vpc": "red", "service": {"namespace": namespace, "name": of}});
    cluster.put(json!({"apiVersion": JUNEAU, "kind": "VpcEndpoint", "metadata": {"name": name}, "spec": spec}));
    cluster.settle();
}

fn address(cluster: &Cluster, name: &str) -> Option<String> {
    cluster.objects.view().vpc_endpoints[name].status.clone().unwrap().address
}

/// Reasons of the conditions AddressAllocated, ServiceAccepted and Ready; those that hold without the word False.
fn said(cluster: &Cluster, name: &str) -> Vec<String> {
    let status = cluster.objects.view().vpc_endpoints[name].status.clone().unwrap();
    let text = |one: Condition| if one.status == "True" { one.reason } else { format!("False {}", one.reason) };
    let kinds: Vec<_> = status.conditions.iter().map(|one| one.type_.as_str()).collect();
    assert_eq!(kinds, ["AddressAllocated", "ServiceAccepted", "Ready"]);
    status.conditions.into_iter().map(text).collect()
}

const GOOD: [&str; 3] = ["Allocated", "ServiceAccepted", "ReconcileSucceeded"];

#[test]
fn an_endpoint_has_an_address_of_the_pool_and_keeps_it() {
    let mut cluster = cluster(&["10.80.255.9/28"]);
    let routes = cluster.objects.view().route_tables["red"].status.clone().unwrap().routes;
    assert!(routes.iter().any(|route| route.dst == "10.80.255.0/28"), "the route is there before any endpoint");
    put(&mut cluster, "shop", "blue/shop");
    assert_eq!(said(&cluster, "shop"), GOOD);
    assert_eq!(address(&cluster, "shop").as_deref(), Some("10.80.255.2"), "the first host is kept free");
    let status = cluster.objects.view().vpc_endpoints["shop"].status.clone().unwrap();
    let claim = "endpoint-ip-red-10-80-255-0-28--vpcendpoint--shop--status-address";
    assert_eq!(status.allocation_claim.as_deref(), Some(claim));
    assert!(cluster.exists(Kind::AllocationClaim, claim));
    put(&mut cluster, "second", "blue/shop");
    assert_eq!(address(&cluster, "second").as_deref(), Some("10.80.255.3"));
    assert!(cluster.notices().is_empty(), "{:?}", cluster.notices());
    // Another Service: the address stays.
    cluster.service("blue/other", json!({VPC: "blue"}), json!({"clusterIP": "10.96.0.10"}));
    put(&mut cluster, "shop", "blue/other");
    assert_eq!(
        (said(&cluster, "shop"), address(&cluster, "shop").as_deref()),
        (GOOD.map(str::to_owned).into(), Some("10.80.255.2"))
    );
    cluster.assert_unique();
    assert_eq!(cluster.step(), 0);
    // What it held comes back; the pool and its route stay.
    cluster.delete(Kind::VpcEndpoint, "shop");
    cluster.settle();
    assert!(!cluster.exists(Kind::AllocationClaim, claim));
    assert!(cluster.exists(Kind::AllocationPool, "endpoint-ip-red-10-80-255-0-28"));
}

#[test]
fn what_an_endpoint_lacks_is_in_its_conditions() {
    let mut cluster = cluster(&["10.80.255.0/28"]);
    cluster.service("blue/headless", json!({VPC: "blue"}), json!({"clusterIP": "None"}));
    cluster.service("blue/lost", json!({VPC: "green"}), json!({"clusterIP": "10.96.0.11"}));
    cluster.service("blue/wrong", json!({VPC: "Blue"}), json!({"clusterIP": "10.96.0.12"}));
    cluster.service("red/own", json!({VPC: "red"}), json!({"clusterIP": "10.96.0.13"}));
    for (service, reason) in [
        ("blue/absent", "ServiceNotFound"),
        ("blue/headless", "ClusterIPUnavailable"),
        ("blue/lost", "ServiceVpcNotFound"),
        ("blue/wrong", "ServiceVpcNotFound"),
        ("red/own", "ServiceRoutingDisabled"),
    ] {
        put(&mut cluster, "e", service);
        assert_eq!(
            said(&cluster, "e"),
            ["Allocated", &format!("False {reason}"), "False ServiceNotAccepted"],
            "{service}"
        );
        let told = cluster.notices();
        assert!(told.iter().any(|one| one.object.kind == Kind::VpcEndpoint), "{told:?}");
    }
    // Services of the own Vpc need routing and no provider, those of another Vpc a provider.
    cluster.vpc_spec("red", json!({"service": {}, "endpointPool": {"cidrs": ["10.80.255.0/28"]}}));
    cluster.settle();
    assert_eq!(said(&cluster, "e"), GOOD);
    put(&mut cluster, "e", "blue/shop");
    cluster.vpc_spec("blue", json!({"service": {"consume": true}}));
    cluster.settle();
    assert_eq!(said(&cluster, "e"), ["Allocated", "False NotAServiceProvider", "False ServiceNotAccepted"]);
    // A Namespace that lost its right to the Vpc has no Service there.
    let provides = json!({"provider": {"natSourceSubnet": "blue"}});
    let closed = json!({"service": provides, "allowedNamespaces": {"matchLabels": {"a": "b"}}});
    cluster.vpc_spec("blue", closed);
    cluster.settle();
    assert_eq!(said(&cluster, "e")[1], "False ServiceVpcNotFound");
    cluster.vpc_spec("blue", json!({"service": provides}));
    cluster.settle();
    assert_eq!(said(&cluster, "e"), GOOD);
}

#[test]
fn an_endpoint_follows_the_pool_of_its_vpc() {
    let mut cluster = cluster(&["10.80.255.0/30"]);
    put(&mut cluster, "a", "blue/shop");
    put(&mut cluster, "b", "blue/shop");
    put(&mut cluster, "c", "blue/shop");
    assert_eq!(said(&cluster, "c"), ["False Allocating", "ServiceAccepted", "False AddressPending"]);
    // More room.
    cluster.vpc_spec("red", json!({"endpointPool": {"cidrs": ["10.80.255.0/30", "10.81.0.1/32", "10.82.0.0/31"]}}));
    cluster.settle();
    assert_eq!(address(&cluster, "c").as_deref(), Some("10.81.0.1"));
    put(&mut cluster, "d", "blue/shop");
    assert_eq!(address(&cluster, "d").as_deref(), Some("10.82.0.0"), "every address of /31");
    let before = address(&cluster, "c");
    // Less room: who is outside gets another address, the others keep theirs.
    cluster.vpc_spec("red", json!({"endpointPool": {"cidrs": ["10.81.0.1/32", "10.83.0.0/24"]}}));
    cluster.settle();
    assert_eq!(address(&cluster, "c"), before);
    for name in ["a", "b", "d"] {
        assert!(address(&cluster, name).unwrap().starts_with("10.83.0."), "{name}");
    }
    assert!(!cluster.exists(Kind::AllocationPool, "endpoint-ip-red-10-82-0-0-31"));
    assert!(cluster.exists(Kind::AllocationPool, "endpoint-ip-red-10-81-0-1-32"));
    cluster.assert_unique();
    cluster.vpc_spec("red", json!({}));
    cluster.settle();
    assert_eq!(said(&cluster, "a")[0], "False EndpointPoolNotConfigured");
    assert_eq!((said(&cluster, "a")[2].as_str(), address(&cluster, "a")), ("False EndpointPoolNotConfigured", None));
    assert!(!cluster.objects.view().pools.keys().any(|pool| pool.starts_with("endpoint-ip-")));
}

#[test]
fn a_vpc_waits_for_its_endpoints_and_one_without_it_says_so() {
    let mut cluster = cluster(&["10.80.255.0/28"]);
    put(&mut cluster, "shop", "blue/shop");
    cluster.delete(Kind::Subnet, "red");
    cluster.delete(Kind::Vpc, "red");
    cluster.settle();
    assert!(cluster.ready(Kind::Vpc, "red").2.contains("waits for VpcEndpoint/shop"));
    assert_eq!(said(&cluster, "shop"), GOOD, "it is used until it goes");
    cluster.delete(Kind::VpcEndpoint, "shop");
    cluster.settle();
    assert!(!cluster.exists(Kind::Vpc, "red"));
    assert!(!cluster.objects.view().pools.keys().any(|pool| pool.starts_with("endpoint-ip-")));
    put(&mut cluster, "orphan", "blue/shop");
    assert_eq!(said(&cluster, "orphan")[0], "False VpcUnavailable");
    assert_eq!(said(&cluster, "orphan")[2], "False VpcUnavailable");
}
