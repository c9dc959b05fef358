//! Services: routes for them, and what is said about those that cannot be met.

use super::*;

impl Cluster {
    /// A cluster that knows the range of Services, with a Vpc and a Subnet `red`.
    pub(super) fn with_services(vpc: Value) -> Self {
        let mut cluster = Self::new();
        cluster.config.service_cidrs = vec!["10.96.0.0/12".parse().unwrap()];
        cluster.tenant("red", "10.0.1.0/24");
        cluster.vpc_spec("red", vpc);
        cluster.settle();
        cluster
    }

    pub(super) fn vpc_spec(&mut self, name: &str, spec: Value) {
        self.put(json!({"apiVersion": JUNEAU, "kind": "Vpc", "metadata": {"name": name}, "spec": spec}));
    }

    pub(super) fn service(&mut self, name: &str, annotations: Value, spec: Value) {
        let (namespace, name) = name.split_once('/').unwrap();
        let metadata = json!({"namespace": namespace, "name": name, "annotations": annotations});
        self.put(json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}));
    }

    /// Destinations and types of a table's routes.
    fn routed(&self, table: &str) -> Vec<String> {
        let status = self.objects.view().route_tables[table].status.clone().unwrap();
        status.routes.iter().map(|route| format!("{} {:?}", route.dst, route.via.kind)).collect()
    }

    fn told(&self, kind: Kind, name: &str) -> Vec<(&'static str, String)> {
        let notices = self.notices().into_iter();
        let of = notices.filter(|notice| notice.object.kind == kind && notice.object.name == key(name));
        of.map(|notice| (notice.reason, notice.message)).collect()
    }
}

const VPC: &str = "juneau.loutres.me/vpc";
const SHARED: &str = "juneau.loutres.me/shared-service";
const CONSUMERS: &str = "juneau.loutres.me/shared-service-allowed-consumer-vpcs";

#[test]
fn every_table_of_a_vpc_with_services_routes_their_range() {
    let mut cluster = Cluster::with_services(json!({"service": {"consume": true}}));
    cluster
        .put(json!({"apiVersion": JUNEAU, "kind": "RouteTable", "metadata": {"name": "own"}, "spec": {"vpc": "red"}}));
    cluster.settle();
    for table in ["red", "own"] {
        assert_eq!(cluster.routed(table), ["10.0.1.0/24 Connected", "10.96.0.0/12 Service"]);
    }
    // Vpc default has Services from the start.
    assert_eq!(cluster.routed("default"), ["10.16.0.0/16 Connected", "10.96.0.0/12 Service"]);
    // A provider's Vpc as well, and one that only has the switch.
    for spec in [json!({"service": {}}), json!({"service": {"provider": {"natSourceSubnet": "red"}}})] {
        cluster.vpc_spec("red", spec);
        cluster.settle();
        assert_eq!(cluster.routed("red")[1], "10.96.0.0/12 Service");
    }
    cluster.vpc_spec("red", json!({}));
    cluster.settle();
    assert_eq!(cluster.routed("red"), ["10.0.1.0/24 Connected"]);
    cluster.config.service_cidrs.push("10.112.0.0/16".parse().unwrap());
    cluster.vpc_spec("red", json!({"service": {}}));
    cluster.settle();
    assert_eq!(cluster.routed("red")[1..], ["10.96.0.0/12 Service", "10.112.0.0/16 Service"]);
}

#[test]
fn external_addresses_are_routed_in_the_owner_alone() {
    let mut cluster = Cluster::with_services(json!({"service": {}, "endpointPool": {"cidrs": ["10.50.0.0/24"]}}));
    let spec = |ips: &[&str]| json!({"clusterIP": "10.96.0.9", "externalIPs": ips});
    cluster.service("red/a", json!({VPC: "red"}), spec(&["198.51.100.50", "198.51.100.7", "fd00::1"]));
    cluster.service("red/b", json!({VPC: "red"}), spec(&["198.51.100.50"]));
    cluster.service("red/c", json!({}), spec(&["203.0.113.1"]));
    cluster.service("red/bad", json!({VPC: "red"}), spec(&["10.0.1.9", "10.50.0.9", "127.0.0.1", "203.0.113.2"]));
    cluster.settle();
    let always = ["10.0.1.0/24 Connected", "10.96.0.0/12 Service"];
    let externals = ["198.51.100.7/32 Service", "198.51.100.50/32 Service", "203.0.113.2/32 Service"];
    assert_eq!(cluster.routed("red"), [&always[..], &externals, &["10.50.0.0/24 VpcEndpoint"]].concat());
    assert_eq!(cluster.routed("default")[2..], ["203.0.113.1/32 Service"]);
    let told = cluster.told(Kind::Service, "red/bad");
    assert_eq!(told.len(), 3);
    assert!(told.iter().all(|(reason, _)| *reason == "InvalidExternalIP"), "{told:?}");
    assert!(told.iter().any(|(_, why)| why.contains("10.0.1.9 is one of a Subnet of the Vpc")), "{told:?}");
    // It goes with its Service; an own route to one of them is only superfluous.
    cluster.remove(Kind::Service, "red/a");
    cluster.remove(Kind::Service, "red/bad");
    let routes = json!([{"dst": "198.51.100.50/32", "via": {"type": "endpoint", "endpointName": "x.eth0"}}]);
    let spec = json!({"vpc": "red", "routes": routes});
    cluster.put(json!({"apiVersion": JUNEAU, "kind": "RouteTable", "metadata": {"name": "red"}, "spec": spec}));
    cluster.settle();
    assert_eq!(cluster.routed("red")[2..], ["198.51.100.50/32 Service", "10.50.0.0/24 VpcEndpoint"]);
    let status = cluster.objects.view().route_tables["red"].status.clone().unwrap();
    assert_eq!(status.rejected_routes[0].reason, "AutomaticRouteExists");
    assert!(cluster.ready(Kind::RouteTable, "red").0);
}

#[test]
fn a_service_that_cannot_be_met_is_told_and_has_no_route() {
    let mut cluster = Cluster::with_services(json!({"allowedNamespaces": {"matchLabels": {"tenant": "red"}}}));
    cluster.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "blue"}}));
    let spec = json!({"clusterIP": "10.96.0.9", "externalIPs": ["198.51.100.50"]});
    let mut told = |annotations: Value, vpc: Value| {
        cluster.vpc_spec("red", vpc);
        cluster.service("blue/a", annotations, spec.clone());
        cluster.settle();
        let routed = cluster.routed("red").iter().any(|route| route.starts_with("198."));
        (cluster.told(Kind::Service, "blue/a"), routed)
    };
    let (open, closed) =
        (json!({"service": {}}), json!({"service": {}, "allowedNamespaces": {"matchLabels": {"tenant": "red"}}}));
    for (annotations, vpc, reason, message) in [
        (json!({VPC: "Red"}), &open, "InvalidAnnotation", "cannot be the name of a Vpc"),
        (json!({VPC: "red", "juneau.loutres.me/subnet": "red"}), &open, "InvalidAnnotation", "is for Pods"),
        (json!({VPC: "red", CONSUMERS: "x"}), &open, "InvalidAnnotation", "is not shared"),
        (json!({VPC: "green"}), &open, "VpcNotFound", "Vpc/green does not exist"),
        (json!({VPC: "red"}), &json!({}), "ServiceRoutingDisabled", "Vpc/red routes no Services"),
        (json!({VPC: "red"}), &closed, "NamespaceNotAllowed", "Namespace/blue may not enter Vpc/red"),
    ] {
        let (told, routed) = told(annotations, vpc.clone());
        assert_eq!((told.len(), told[0].0, routed), (1, reason, false), "{told:?}");
        assert!(told[0].1.contains(message), "{told:?}");
    }
    // What cannot be shared is its own Vpc's all the same.
    let shared = json!({VPC: "red", SHARED: "true", CONSUMERS: "default,green,red"});
    let (said, routed) = told(shared.clone(), open.clone());
    assert_eq!(
        said.iter().map(|(reason, _)| *reason).collect::<Vec<_>>(),
        ["ConsumerUnavailable", "NotAServiceProvider"]
    );
    assert!(said[0].1.contains("Vpc/green, which") && routed, "{said:?}");
    let provider = json!({"service": {"provider": {"natSourceSubnet": "red"}}});
    assert_eq!(told(json!({VPC: "red", SHARED: "true"}), provider), (vec![], true));
    assert_eq!(told(json!({VPC: "red"}), open), (vec![], true));
}

#[test]
fn ranges_that_stand_against_each_other_are_told_and_cost_themselves() {
    let mut cluster = Cluster::with_services(json!({}));
    cluster.subnet("red-s", "red", "10.100.0.0/24");
    cluster.settle();
    assert!(cluster.ready(Kind::Vpc, "red").0);
    let pools = ["10.0.1.128/25", "10.50.0.0/24", "10.50.0.128/25", "10.97.0.0/16", "10.0.0.0/8", "no", "10.51.0.9/24"];
    cluster.vpc_spec("red", json!({"service": {}, "endpointPool": {"cidrs": pools}}));
    cluster.settle();
    let (ready, reason, message) = cluster.ready(Kind::Vpc, "red");
    assert_eq!((ready, reason.as_str()), (false, "RangeConflict"));
    assert!(message.contains("10.0.1.128/25 overlaps Subnet/red (10.0.1.0/24)"), "{message}");
    assert!(message.ends_with("and 3 more"), "{message}");
    let conflicts = cluster.told(Kind::Vpc, "red");
    assert_eq!(conflicts.len(), 1);
    assert!(cluster.ready(Kind::Subnet, "red").0 && cluster.ready(Kind::RouteTable, "red").0);
    assert_eq!(
        cluster.routed("red"),
        [
            "10.0.1.0/24 Connected",
            "10.100.0.0/24 Connected",
            "10.96.0.0/12 Service",
            "10.50.0.0/24 VpcEndpoint",
            "10.51.0.0/24 VpcEndpoint"
        ]
    );
    cluster.vpc_spec("red", json!({"service": {}}));
    cluster.settle();
    assert!(
        cluster.ready(Kind::Vpc, "red").2.contains("Subnet/red-s (10.100.0.0/24) overlaps the Services' 10.96.0.0/12")
    );
    cluster.delete(Kind::Subnet, "red-s");
    cluster.settle();
    assert!(cluster.ready(Kind::Vpc, "red").0);
}
