//! Answers of the debug methods. Names in them are those of `juneau_core::verdict` and of the objects.

use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

/// Answer to [`super::Method::Drops`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drops {
    /// Every {hook, reason, answered} that was counted at least once.
    pub drops: Vec<Drop>,
    /// Delivered packets by VPC.
    pub delivered: Vec<Delivered>,
}

/// One counter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drop {
    /// Where: `pod`, `overlay`, `vxlan`, `cgroup`.
    pub hook: String,
    /// Why: `source-mac`; the handbook has a section for each.
    pub reason: String,
    /// An answer (ARP, ICMP) left in the packets' stead.
    pub answered: bool,
    /// Packets.
    pub packets: u64,
    /// One line for people.
    pub text: String,
}

/// Delivered packets of one VPC, in one direction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivered {
    /// VPC id.
    pub vpc: u32,
    /// `from-pod` or `from-overlay`.
    pub direction: String,
    /// Packets.
    pub packets: u64,
    /// Bytes, Ethernet header included.
    pub bytes: u64,
}

/// Parameters of [`super::Method::Flows`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowFilter {
    /// Only entries with this address as source or destination.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub address: Option<Ipv4Addr>,
    /// At most so many entries; 0 means all.
    #[serde(default)]
    pub limit: usize,
}

/// Answer to [`super::Method::Flows`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flows {
    /// Entries; a connection has two, one a direction.
    pub flows: Vec<Flow>,
    /// Entries that matched beyond the limit.
    pub left_off: usize,
}

/// One direction of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// `vpc 100`, `vni 4096` (as it arrives from another node) or `transit 12` (through the router behind ifindex 12).
    pub scope: String,
    /// `tcp`, `udp`, `icmp` or a number.
    pub protocol: String,
    /// Source address.
    pub source: Ipv4Addr,
    /// Source port; the identifier of ICMP echo.
    pub source_port: u16,
    /// Destination address.
    pub destination: Ipv4Addr,
    /// Destination port.
    pub destination_port: u16,
    /// Where it goes: `peer`, `encap` or `unresolved`.
    pub egress: String,
    /// Target ifindex of `peer`.
    pub ifindex: u32,
    /// The other node, if any.
    pub vtep: Option<Ipv4Addr>,
    /// VNI of `encap`.
    pub vni: u32,
    /// The answering direction.
    pub reply: bool,
    /// Not answered yet.
    pub embryonic: bool,
    /// TCP flags seen, as letters: `SFR.`.
    pub tcp_flags: String,
    /// Milliseconds since its last packet, as coarse as the stamp (256 jiffies).
    pub idle_milliseconds: u64,
}

/// Answer to [`super::Method::Routes`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Routes {
    /// Routes, sorted by table and prefix.
    pub routes: Vec<Route>,
}

/// A route as the map holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Route table id.
    pub table: u32,
    /// Destination prefix.
    pub prefix: String,
    /// `connected`, `endpoint`, `service` or `target-gone`.
    pub kind: String,
    /// Next hop of `endpoint`.
    pub next_hop: Option<Ipv4Addr>,
    /// VNI of `connected`.
    pub vni: Option<u32>,
}

/// Parameters of [`super::Method::Services`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceFilter {
    /// Only as this VPC meets them: its name, or its id.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub vpc: Option<String>,
}

/// Answer to [`super::Method::Services`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Services {
    /// Ports of Services, sorted by VPC, address and port.
    pub services: Vec<ServicePort>,
}

/// A port of a Service at one of its addresses, as the maps hold it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServicePort {
    /// The VPC whose endpoints meet it there.
    pub vpc: u32,
    /// The address.
    pub address: Ipv4Addr,
    /// `tcp`, `udp`, `sctp` or a number.
    pub protocol: String,
    /// The port.
    pub port: u16,
    /// The Service, if known: `red/web`.
    pub object: Option<String>,
    /// Seconds that a client stays with its backend.
    pub affinity: Option<u32>,
    /// Only backends of this node; without one, connections are dropped and not rejected.
    pub local_only: bool,
    /// Where it leads.
    pub backends: Vec<Backend>,
}

/// Where a Service leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backend {
    /// The VPC that its address is in.
    pub vpc: u32,
    /// Its address.
    pub address: Ipv4Addr,
    /// Its port.
    pub port: u16,
    /// The endpoint, if known: `red/a.eth0`.
    pub object: Option<String>,
    /// `chosen`: new connections go there; `serving`: only those that it has; `ending`: only those of TCP.
    pub state: String,
}

/// Answer to [`super::Method::Endpoints`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoints {
    /// Endpoints, sorted by VPC and address.
    pub endpoints: Vec<Endpoint>,
}

/// An endpoint as the map holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// VPC id.
    pub vpc: u32,
    /// Address in that VPC.
    pub address: Ipv4Addr,
    /// The object behind it, if known: `red/a.eth0`.
    pub object: Option<String>,
    /// MAC address.
    pub mac: String,
    /// VNI of its Subnet.
    pub vni: u32,
    /// ifindex on this node, 0 for an endpoint of another node.
    pub ifindex: u32,
    /// The other node's VTEP.
    pub vtep: Option<Ipv4Addr>,
    /// Identity in policies.
    pub identity: u32,
    /// Next hop of an endpoint route.
    pub router: bool,
    /// Policy is programmed; else the endpoint is closed.
    pub policy_ready: bool,
}

/// Parameters of [`super::Method::Explain`]: a packet that a Pod of this node would send, or get by the overlay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainRequest {
    /// The Pod's Kubernetes namespace.
    pub namespace: String,
    /// The Pod's name.
    pub name: String,
    /// The interface in it; absent: `eth0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The packet comes from another node; absent: from the Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incoming: Option<Incoming>,
    /// Destination address.
    pub destination: Ipv4Addr,
    /// `icmp`, `tcp` or `udp`.
    #[serde(default = "icmp")]
    pub protocol: String,
    /// Destination port; the identifier of ICMP echo.
    #[serde(default)]
    pub port: u16,
    /// Source port.
    #[serde(default = "source_port")]
    pub source_port: u16,
}

/// How a packet comes to this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incoming {
    /// The node that sends it, by its VTEP.
    pub vtep: Ipv4Addr,
    /// The VNI in which it does.
    pub vni: u32,
    /// The packet's source address.
    pub source: Ipv4Addr,
}

fn icmp() -> String {
    "icmp".into()
}

fn source_port() -> u16 {
    40_000
}

/// Answer to [`super::Method::Explain`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// `peer`, `encap`, `device`, `answer` or `drop`.
    pub action: String,
    /// Why: `ok`, or a drop reason.
    pub reason: String,
    /// One line for people.
    pub text: String,
    /// An answer would leave in the packet's stead.
    pub answered: bool,
    /// Target interface on this node, if any.
    pub ifindex: Option<u32>,
    /// Target node, if any.
    pub vtep: Option<Ipv4Addr>,
    /// VNI towards that node.
    pub vni: Option<u32>,
    /// The stages that the packet went through, in order.
    pub steps: Vec<Step>,
}

/// One stage of an explanation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// `parse`, `flow`, `policy`, `route`, `deliver`, `commit` or `emit`.
    pub stage: String,
    /// What it found, for people.
    pub text: String,
    /// The stage's code.
    pub code: u32,
    /// What was looked up and found, as the programs recorded it.
    pub values: [u32; 4],
}
