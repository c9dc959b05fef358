//! What the manifests say that matters to the lab: which nodes and Pods there should be, and who should reach whom.

use ipnet::Ipv4Net;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

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
    /// Prefixes that the route table of its Subnet leads to, but for those whose target does not exist.
    pub routes: Vec<Ipv4Net>,
}

impl Pod {
    /// Whether its route table leads to this address.
    #[must_use]
    pub fn routes_to(&self, address: Ipv4Addr) -> bool {
        self.routes.iter().any(|route| route.contains(&address))
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
            routes: vec!["10.0.1.0/24".parse().unwrap(), "10.0.2.0/24".parse().unwrap()],
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
}
