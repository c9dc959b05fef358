//! What the manifests say that matters to the lab: which nodes and Pods there should be, and who should reach whom.

use ipnet::Ipv4Net;
use juneau_api::kinds::{Route, ViaType};
use juneau_api::view::{Text, View};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// The nodes that a lab begins with, unless manifests bring theirs: names, and addresses on the underlay.
pub const NODES: [(&str, Ipv4Addr); 2] =
    [("node-1", Ipv4Addr::new(192, 168, 77, 11)), ("node-2", Ipv4Addr::new(192, 168, 77, 12))];

/// The wanted cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cluster {
    /// Nodes by name, with their address on the underlay.
    pub nodes: BTreeMap<String, Ipv4Addr>,
    /// Pods by `NAMESPACE/NAME`.
    pub pods: BTreeMap<String, Pod>,
}

/// A wanted Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Its Kubernetes namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID: another one is another Pod.
    pub uid: String,
    /// The node that it should run on.
    pub node: String,
    /// The VPC of its first interface, once it has one.
    pub vpc: Option<String>,
    /// The address of its first interface, once it has one.
    pub address: Option<Ipv4Addr>,
    /// The MAC address of its first interface, once it has one.
    pub mac: Option<String>,
    /// What its Subnet's route table says, in no order.
    pub routes: Vec<(Ipv4Net, Target)>,
}

/// Where a route leads, as far as a check can foresee what comes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// To the Subnet itself.
    Connected,
    /// To another Pod, which does with packets what it likes.
    Router,
}

impl Pod {
    /// Where its route table leads packets for this address: the longest match decides.
    #[must_use]
    pub fn route(&self, address: Ipv4Addr) -> Option<Target> {
        let matching = self.routes.iter().filter(|(prefix, _)| prefix.contains(&address));
        matching.max_by_key(|(prefix, _)| prefix.prefix_len()).map(|(_, target)| *target)
    }
}

/// The interface of a Pod that the lab speaks of.
const INTERFACE: &str = "eth0";

impl From<&View> for Cluster {
    /// Objects that make no sense are left out: naming them is the agents' business.
    fn from(view: &View) -> Self {
        let nodes = view.nodes.iter().filter_map(|(name, item)| {
            let address = item.object.internal_ips.iter().find_map(|text| text.parse().ok())?;
            Some((name.to_string(), address))
        });
        let pods = view.workloads.iter().flat_map(|(namespace, inside)| {
            inside.pods.iter().filter_map(move |(name, item)| {
                let pod = &item.object;
                if pod.host_network {
                    return None;
                }
                let wanted = wanted_pod(view, namespace, name, &pod.uid, pod.node.as_ref()?);
                Some((format!("{namespace}/{name}"), wanted))
            })
        });
        Self { nodes: nodes.collect(), pods: pods.collect() }
    }
}

fn wanted_pod(view: &View, namespace: &str, name: &str, uid: &str, node: &str) -> Pod {
    let inside = view.workloads.get(namespace);
    let endpoint = inside
        .into_iter()
        .flat_map(|inside| inside.network_endpoints.values())
        .find(|item| item.object.pod.as_ref().is_some_and(|pod| *pod.name == *name && *pod.interface == *INTERFACE));
    let endpoint = endpoint.map(|item| &*item.object);
    let subnet = endpoint.and_then(|endpoint| view.subnets.get(endpoint.subnet.as_ref()?)).map(|item| &*item.object);
    let table = subnet.and_then(|subnet| view.route_tables.get(subnet.route_table.as_ref().unwrap_or(&subnet.vpc)));
    let routes = table.map(|item| item.object.routes.as_slice());
    let address = |text: &Text| text.split('/').next()?.parse().ok();
    Pod {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        node: node.to_owned(),
        vpc: subnet.map(|subnet| subnet.vpc.to_string()),
        address: endpoint.and_then(|endpoint| endpoint.address.as_ref()).and_then(address),
        mac: endpoint.and_then(|endpoint| endpoint.mac.as_deref()).map(str::to_owned),
        routes: routes.unwrap_or_default().iter().filter_map(|route| wanted_route(view, route)).collect(),
    }
}

fn wanted_route(view: &View, route: &Route) -> Option<(Ipv4Net, Target)> {
    let prefix = route.dst.parse().ok()?;
    match route.via.kind {
        ViaType::Connected => Some((prefix, Target::Connected)),
        ViaType::Endpoint => {
            let target = route.via.endpoint_name.as_ref()?;
            let exists = view.workloads.values().any(|inside| inside.network_endpoints.contains_key(target.as_str()));
            exists.then_some((prefix, Target::Router))
        }
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn pod(vpc: &str, name: &str, node: &str, address: &str) -> (String, Pod) {
        let pod = Pod {
            namespace: vpc.to_owned(),
            name: name.to_owned(),
            uid: format!("{vpc}-{name}"),
            node: node.to_owned(),
            vpc: Some(vpc.to_owned()),
            address: Some(address.parse().unwrap()),
            mac: None,
            routes: ["10.0.1.0/24", "10.0.2.0/24"].map(|prefix| (prefix.parse().unwrap(), Target::Connected)).into(),
        };
        (format!("{vpc}/{name}"), pod)
    }

    /// Two tenants with equal addresses, and one Pod whose address only blue has.
    pub(crate) fn two_tenants() -> Cluster {
        Cluster {
            nodes: [("node-1", 1), ("node-2", 2)]
                .map(|(name, last)| (name.to_owned(), Ipv4Addr::new(192, 168, 77, last)))
                .into(),
            pods: [
                pod("red", "a", "node-1", "10.0.1.10"),
                pod("red", "b", "node-2", "10.0.2.20"),
                pod("blue", "a", "node-1", "10.0.1.10"),
                pod("blue", "b", "node-2", "10.0.2.20"),
                pod("blue", "only", "node-1", "10.0.1.99"),
            ]
            .into(),
        }
    }

    #[test]
    fn the_longest_route_decides() {
        let (_, mut pod) = pod("red", "a", "node-1", "10.0.1.10");
        assert_eq!(pod.route(Ipv4Addr::new(10, 0, 2, 20)), Some(Target::Connected));
        assert_eq!(pod.route(Ipv4Addr::new(10, 0, 3, 1)), None);
        pod.routes.push(("10.0.2.20/32".parse().unwrap(), Target::Router));
        assert_eq!(pod.route(Ipv4Addr::new(10, 0, 2, 20)), Some(Target::Router));
    }

    #[test]
    fn manifests_become_a_cluster() {
        let text = "
apiVersion: v1
kind: Node
metadata: {name: node-1}
status: {addresses: [{type: Hostname, address: node-1}, {type: InternalIP, address: 192.168.77.1}]}
---
apiVersion: juneau.loutres.me/v1alpha1
kind: Subnet
metadata: {name: red-a}
spec: {vpc: red, cidr: 10.0.1.0/24}
---
apiVersion: juneau.loutres.me/v1alpha1
kind: RouteTable
metadata: {name: red}
spec: {vpc: red}
status: {tableID: 1, routes: [{dst: 10.0.1.0/24, via: {type: connected}}, {dst: 10.9.0.0/16, via: {type: endpoint, endpointName: nobody}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: red, uid: u1}
spec: {nodeName: node-1, containers: []}
---
apiVersion: juneau.loutres.me/v1alpha1
kind: NetworkEndpoint
metadata: {name: a.eth0, namespace: red}
spec: {kind: Pod, nodeName: node-1, subnet: red-a, address: 10.0.1.10/24, macAddress: '02:00:00:00:00:01', podRef: {name: a, interface: eth0, uid: u1}}
";
        let mut view = View::default();
        for value in juneau_api::source::decode::documents(text).unwrap() {
            let (key, object) = juneau_api::source::decode::object(value).unwrap();
            let origin = juneau_api::view::Origin { file: "test.yaml".into(), document: 1 };
            view.insert(&key.name, &object, origin).unwrap();
        }
        let cluster = Cluster::from(&view);
        assert_eq!(cluster.nodes["node-1"], Ipv4Addr::new(192, 168, 77, 1));
        let pod = &cluster.pods["red/a"];
        assert_eq!((pod.vpc.as_deref(), pod.address), (Some("red"), Some(Ipv4Addr::new(10, 0, 1, 10))));
        assert_eq!(pod.routes, [("10.0.1.0/24".parse().unwrap(), Target::Connected)], "the other one leads nowhere");
    }
}
