//! What exists, as plain types: the normalised objects of the cluster, whatever they were read from.
//!
//! Numbers and addresses are checked where the model is made; references are by number ([`Vni`], [`TableId`]) or, for
//! nodes, by name. Maps are ordered, so that whoever walks a model does it in one order. `origin` is opaque: text for
//! people that tells where an object was read.

use crate::id::{Identity, IfIndex, MacAddr, TableId, Vni, VpcId};
use core::fmt;
use core::net::{IpAddr, SocketAddr};
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Everything that tables are compiled from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Model {
    /// Nodes by name.
    pub nodes: BTreeMap<String, Node>,
    /// VPCs by number.
    pub vpcs: BTreeMap<VpcId, Vpc>,
    /// Subnets by VNI.
    pub subnets: BTreeMap<Vni, Subnet>,
    /// Route tables by number.
    pub tables: BTreeMap<TableId, RouteTable>,
    /// Endpoints by what they hold: an address in a VPC.
    #[cfg_attr(feature = "serde", serde(serialize_with = "values"))]
    pub endpoints: BTreeMap<(VpcId, IpAddr), Endpoint>,
    /// Services by `namespace/name`. One that is the same object as before was not changed.
    #[cfg_attr(feature = "serde", serde(serialize_with = "shared"))]
    pub services: BTreeMap<String, Arc<Service>>,
}

/// A list: the key is not text, and the values repeat it.
#[cfg(feature = "serde")]
fn values<S: serde::Serializer>(
    endpoints: &BTreeMap<(VpcId, IpAddr), Endpoint>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(endpoints.values())
}

#[cfg(feature = "serde")]
fn shared<S: serde::Serializer>(services: &BTreeMap<String, Arc<Service>>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(services.iter().map(|(name, service)| (name, &**service)))
}

/// A node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Node {
    /// Its InternalIP, which is its VTEP.
    pub internal_ip: IpAddr,
    /// Where it was read.
    pub origin: String,
}

/// A tenant's network.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Vpc {
    /// Its number, the scope of its addresses.
    pub id: VpcId,
    /// Its name.
    pub name: String,
    /// Where it was read.
    pub origin: String,
}

/// A prefix of a VPC, one layer-2 segment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Subnet {
    /// Its VXLAN network identifier.
    pub vni: Vni,
    /// Its name.
    pub name: String,
    /// The VPC that it belongs to.
    pub vpc: VpcId,
    /// Its prefix, without host bits.
    pub prefix: IpNet,
    /// Its gateway, an address of the prefix.
    pub gateway: IpAddr,
    /// The gateway's MAC address, the same on every node.
    pub gateway_mac: MacAddr,
    /// The route table of what its endpoints send; without one they reach nothing.
    pub table: Option<TableId>,
    /// Where it was read.
    pub origin: String,
}

/// The routes of a VPC's Subnets.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RouteTable {
    /// Its number.
    pub id: TableId,
    /// Its name.
    pub name: String,
    /// The VPC that it belongs to.
    pub vpc: VpcId,
    /// Its routes.
    pub routes: Vec<Route>,
    /// Where it was read.
    pub origin: String,
}

/// One route.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Route {
    /// The destinations that it is for, without host bits.
    pub prefix: IpNet,
    /// Where they are.
    pub target: RouteTarget,
}

/// Where a route leads.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum RouteTarget {
    /// To the Subnet with this VNI: the destination itself is the endpoint.
    Connected(Vni),
    /// To an endpoint of the same VPC, which forwards.
    Endpoint(IpAddr),
    /// To the Services whose addresses the prefix holds.
    Service,
    /// Nowhere: what the route names does not exist or cannot be used. The text says why.
    Gone(String),
}

/// What an endpoint is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum EndpointKind {
    /// An interface of a Pod.
    #[default]
    Pod,
    /// A node itself: its node port, behind which its other addresses are, too.
    Node,
}

/// What holds an address in a VPC: an interface of a Pod on some node, or a node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Endpoint {
    /// `namespace/name`; what a node attaches is named so.
    pub name: String,
    /// What it is.
    #[cfg_attr(feature = "serde", serde(default))]
    pub kind: EndpointKind,
    /// The scope of its address.
    pub vpc: VpcId,
    /// Its Subnet.
    pub subnet: Vni,
    /// Its address.
    pub address: IpAddr,
    /// Its MAC address.
    pub mac: MacAddr,
    /// The node that it is on.
    pub node: String,
    /// Its identity in policy.
    pub identity: Identity,
    /// Its policy is known; otherwise it is closed.
    pub policy_ready: bool,
    /// The Pod's uid: the same for all interfaces of one Pod. Empty for a node.
    pub pod: String,
    /// Where it was read.
    pub origin: String,
}

/// A Service as this node has to serve it. What its endpoints' conditions, the traffic policies and the topology make of
/// it is decided already: see [`ServicePort::internal`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Service {
    /// `namespace/name`.
    pub name: String,
    /// The VPC that owns it: the scope of its addresses, and of its backends'.
    pub vpc: VpcId,
    /// Where it is met: its cluster address and its external ones.
    pub addresses: BTreeSet<IpAddr>,
    /// Seconds that a client stays with its backend; `None` is each connection for itself.
    pub affinity: Option<u32>,
    /// Its ports, each {protocol, port} once.
    pub ports: Vec<ServicePort>,
    /// Where it was read.
    pub origin: String,
}

/// A port of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ServicePort {
    /// Its name; empty where a Service has one port.
    pub name: String,
    /// The protocol.
    pub protocol: Protocol,
    /// The port.
    pub port: u16,
    /// Every endpoint that exists, whether it takes connections or not: established ones go on as long as it does.
    pub backends: BTreeMap<SocketAddr, BackendState>,
    /// Who takes new connections of this node's endpoints.
    pub internal: Choice,
}

/// What a backend does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct BackendState {
    /// It serves: ready, or shutting down in order. One that does not keeps its established TCP connections alone.
    pub serving: bool,
}

/// Backends among which new connections choose.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Choice {
    /// Those that take new connections; each is one of [`ServicePort::backends`].
    pub backends: BTreeSet<SocketAddr>,
    /// Backends on other nodes are not taken. Without a backend, connections are dropped then, not rejected.
    pub local_only: bool,
}

/// A protocol that Services have ports of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP: its ports are not translated.
    Sctp,
}

impl Protocol {
    /// The IP protocol's number.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        })
    }
}

/// A local fact: the endpoint is attached to this node. From whoever attached it, never from objects.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Attachment {
    /// The host veth.
    pub ifindex: IfIndex,
    /// The host veth's MAC address.
    pub host_mac: MacAddr,
    /// The sandbox, so that a late removal of an old one is told apart.
    pub container_id: String,
}

/// Attached endpoints by their `namespace/name`.
pub type Attachments = BTreeMap<String, Attachment>;

/// Something wrong with an object, and what to do about it. It costs that object, nothing else.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Problem {
    /// What it is about: `Subnet/red-a`, `NetworkEndpoint/red/a1.eth0`, `file red.yaml`, `map jn_routes`.
    pub object: String,
    /// What is wrong, one sentence without a full stop.
    pub message: String,
    /// What to do, one sentence without a full stop.
    pub remedy: String,
    /// Where the object was read; empty if that is nowhere.
    pub origin: String,
}

impl Problem {
    /// A problem of an object.
    #[must_use]
    pub fn new(object: impl Into<String>, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { object: object.into(), message: message.into(), remedy: remedy.into(), origin: String::new() }
    }

    /// The same, with the place where the object was read.
    #[must_use]
    pub fn at(mut self, origin: impl Into<String>) -> Self {
        self.origin = origin.into();
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.object)?;
        if !self.origin.is_empty() {
            write!(f, " ({})", self.origin)?;
        }
        write!(f, ": {}; {}", self.message, self.remedy)
    }
}

#[cfg(test)]
mod tests {
    use super::Problem;

    #[test]
    fn a_problem_reads_as_one_line() {
        let problem = Problem::new("Subnet/red-a", "VNI 1 is not within 2..=16777215", "give it a free one");
        assert_eq!(problem.to_string(), "Subnet/red-a: VNI 1 is not within 2..=16777215; give it a free one");
        assert_eq!(
            problem.at("red.yaml, document 3").to_string(),
            "Subnet/red-a (red.yaml, document 3): VNI 1 is not within 2..=16777215; give it a free one"
        );
    }
}
