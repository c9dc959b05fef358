//! Routes, one by one.

use super::*;

impl Cluster {
    fn table(&mut self, name: &str, vpc: &str, routes: Value) {
        let spec = json!({"vpc": vpc, "routes": routes});
        self.put(json!({"apiVersion": JUNEAU, "kind": "RouteTable", "metadata": {"name": name}, "spec": spec}));
    }

    fn routes(&self, name: &str) -> Vec<String> {
        let status = self.objects.view().route_tables[name].status.clone().unwrap();
        status.routes.iter().map(|route| format!("{} {:?}", route.dst, route.via.kind)).collect()
    }

    fn rejected(&self, name: &str) -> Vec<(String, String)> {
        let status = self.objects.view().route_tables[name].status.clone().unwrap();
        status.rejected_routes.into_iter().map(|route| (route.dst, route.reason)).collect()
    }
}

fn endpoint(dst: &str, name: &str) -> Value {
    json!({"dst": dst, "via": {"type": "endpoint", "endpointName": name}})
}

#[test]
fn every_table_has_the_subnets_of_its_vpc() {
    let mut cluster = Cluster::with("red", "10.0.1.0/24");
    cluster.subnet("red-b", "red", "10.0.0.0/24");
    cluster.tenant("blue", "10.0.1.0/24");
    cluster.table("red-own", "red", json!([]));
    cluster.settle();
    for table in ["red", "red-own"] {
        assert_eq!(cluster.routes(table), ["10.0.0.0/24 Connected", "10.0.1.0/24 Connected"]);
    }
    assert_eq!(cluster.routes("blue"), ["10.0.1.0/24 Connected"]);
    let ids: std::collections::BTreeSet<_> =
        cluster.objects.view().route_tables.values().map(|t| t.status.as_ref().unwrap().table_id).collect();
    assert_eq!(ids.len(), 4);
}

#[test]
fn one_bad_route_costs_that_route_and_nothing_else() {
    let mut cluster = Cluster::with("red", "10.0.0.0/24");
    cluster.tenant("blue", "10.0.0.0/24");
    for (namespace, pod) in [("red", "gw"), ("red", "twin"), ("blue", "twin"), ("blue", "other")] {
        cluster.pod(namespace, pod);
    }
    cluster.settle();
    cluster.table(
        "red",
        "red",
        json!([
            endpoint("0.0.0.0/0", "gw.eth0"),
            endpoint("10.1.0.0/16", "gone.eth0"),
            endpoint("10.2.0.0/16", "other.eth0"),
            endpoint("10.3.0.0/16", "twin.eth0"),
            endpoint("10.4.0.0/16", "red/gw.eth0"),
            endpoint("10.4.0.0/16", "gw.eth0"),
            endpoint("10.0.0.0/24", "gw.eth0"),
            endpoint("10.5.0.1/16", "gw.eth0"),
            endpoint("nonsense", "gw.eth0"),
            {"dst": "10.6.0.0/16", "via": {"type": "natGateway", "natGateway": "nat"}},
            {"dst": "10.7.0.0/16", "via": {"type": "internetGateway"}},
            {"dst": "10.8.0.0/16", "via": {"type": "teleport"}},
            {"dst": "10.9.0.0/16", "via": {"type": "service"}},
            endpoint("10.10.0.0/16", "blue/twin.eth0"),
        ]),
    );
    cluster.settle();
    assert_eq!(
        cluster.rejected("red").iter().map(|(d, r)| (d.as_str(), r.as_str())).collect::<Vec<_>>(),
        [
            ("10.1.0.0/16", "TargetNotFound"),
            ("10.2.0.0/16", "TargetInAnotherVpc"),
            ("10.4.0.0/16", "DuplicateDestination"),
            ("10.0.0.0/24", "AutomaticRouteExists"),
            ("10.5.0.1/16", "InvalidDestination"),
            ("nonsense", "InvalidDestination"),
            ("10.6.0.0/16", "NotImplemented"),
            ("10.7.0.0/16", "NotImplemented"),
            ("10.8.0.0/16", "NotImplemented"),
            ("10.9.0.0/16", "ReconcileFailed"),
            ("10.10.0.0/16", "TargetInAnotherVpc"),
        ]
    );
    // One that leads nowhere stays, so that no wider route takes its packets.
    let routes = cluster.routes("red");
    for good in ["10.0.0.0/24 Connected", "0.0.0.0/0 Endpoint", "10.3.0.0/16 Endpoint", "10.4.0.0/16 Endpoint"] {
        assert_eq!(routes.iter().filter(|route| *route == good).count(), 1, "{good}");
    }
    assert!(routes.contains(&"10.1.0.0/16 Endpoint".to_owned()));
    assert!(!routes.iter().any(|route| route.contains("10.5") || route.contains("nonsense")));
    let (ready, reason, message) = cluster.ready(Kind::RouteTable, "red");
    assert_eq!((ready, reason.as_str()), (false, "RoutesRejected"));
    assert!(message.contains("NetworkEndpoint/gone.eth0 does not exist"), "{message}");
    assert!(cluster.notices().iter().any(|n| n.reason == "RoutesRejected"));
    for (kind, name) in [(Kind::Vpc, "red"), (Kind::Subnet, "red"), (Kind::NetworkInterface, "red/gw.eth0")] {
        assert!(cluster.ready(kind, name).0, "{kind}");
    }
}

#[test]
fn a_route_comes_and_goes_with_its_target() {
    let mut cluster = Cluster::with("red", "10.0.0.0/24");
    cluster.table("red", "red", json!([endpoint("10.1.0.0/16", "gw.eth0")]));
    cluster.settle();
    assert_eq!(cluster.rejected("red")[0].1, "TargetNotFound");
    cluster.pod("red", "gw");
    cluster.settle();
    assert_eq!(cluster.rejected("red"), []);
    assert!(cluster.ready(Kind::RouteTable, "red").0);
    // Two of one name in one Vpc: the name alone is not enough.
    cluster.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "red-2"}}));
    cluster.pod_with("red-2", "gw", json!({"juneau.loutres.me/subnet": "red"}));
    cluster.settle();
    assert_eq!(cluster.rejected("red")[0].1, "TargetAmbiguous");
    cluster.table("red", "red", json!([endpoint("10.1.0.0/16", "red-2/gw.eth0")]));
    cluster.settle();
    assert_eq!(cluster.rejected("red"), []);
}

#[test]
fn a_route_that_an_automatic_one_makes_superfluous_is_only_told() {
    let mut cluster = Cluster::with("red", "10.0.0.0/24");
    cluster.pod("red", "gw");
    cluster.table("red", "red", json!([endpoint("10.0.0.0/24", "gw.eth0")]));
    cluster.settle();
    assert_eq!(cluster.rejected("red")[0].1, "AutomaticRouteExists");
    assert!(cluster.ready(Kind::RouteTable, "red").0);
    assert_eq!(cluster.routes("red"), ["10.0.0.0/24 Connected"]);
}

#[test]
fn a_table_of_the_wrong_vpc_is_told_by_all() {
    let mut cluster = Cluster::with("red", "10.0.0.0/24");
    cluster.tenant("blue", "10.0.0.0/24");
    cluster.table("blue-own", "blue", json!([]));
    let spec = json!({"vpc": "red", "cidr": "10.0.0.0/24", "routeTable": "blue-own"});
    cluster.put(json!({"apiVersion": JUNEAU, "kind": "Subnet", "metadata": {"name": "red"}, "spec": spec}));
    cluster.table("lost", "nowhere", json!([]));
    cluster.settle();
    assert_eq!(cluster.ready(Kind::Subnet, "red").2, "RouteTable/blue-own is of Vpc/blue, not of Vpc/red");
    assert_eq!(cluster.ready(Kind::RouteTable, "lost").1, "VpcNotFound");
    cluster.table("green", "blue", json!([]));
    cluster.put(json!({"apiVersion": JUNEAU, "kind": "Vpc", "metadata": {"name": "green"}, "spec": {}}));
    cluster.settle();
    assert_eq!(cluster.ready(Kind::Vpc, "green").2, "RouteTable/green is of Vpc/blue, not of this one");
}
