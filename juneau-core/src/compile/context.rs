//! What is known about the node that tables are for.

use super::ServiceTables;
use crate::id::{VpcId, VpcIndex};
use crate::layout::ENCAP_OVERHEAD;
use crate::tables::Capacities;
use core::net::Ipv4Addr;
use std::collections::{BTreeMap, BTreeSet};

/// The node that tables are compiled for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeContext {
    /// Its name.
    pub name: String,
    /// Its address on the underlay.
    pub vtep: Ipv4Addr,
    /// MTU of the underlay, in outer bytes, where `paths` says nothing else.
    pub underlay_mtu: u16,
    /// MTU of Pods, in bytes of IP.
    pub pod_mtu: u16,
    /// Ways to other nodes, by their VTEP, that are not direct or have another MTU.
    pub paths: BTreeMap<Ipv4Addr, UnderlayPath>,
    /// Numbers that VPCs have had on this node. A VPC keeps its number, and a number that was another's is taken last.
    pub vpc_indices: BTreeMap<VpcId, VpcIndex>,
    /// What the tables of Services hold: numbers and slots are kept, and what is in use is not given to others.
    pub services: ServiceTables,
    /// Limits of each VPC.
    pub limits: Limits,
    /// How much fits into each table.
    pub capacities: Capacities,
    /// Addresses that the node has besides `vtep` and that of its node port. Pods of the nodes' VPC on this node reach
    /// them, and are reached from them.
    pub addresses: BTreeSet<Ipv4Addr>,
}

/// The way to another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnderlayPath {
    /// The node's VTEP itself, or the router towards it.
    pub next_hop: Ipv4Addr,
    /// MTU towards it, in outer bytes.
    pub mtu: u16,
}

/// What one VPC may use of this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections, answered or not.
    pub flows: u32,
    /// Connections that were not answered yet.
    pub embryonic: u32,
    /// ICMP errors in one unit of the stamp (256 jiffies).
    pub icmp: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { flows: 65536, embryonic: 16384, icmp: 100 }
    }
}

impl NodeContext {
    /// A node with this name and VTEP on an underlay of this MTU: Pods get what encapsulation leaves of it.
    #[must_use]
    pub fn new(name: impl Into<String>, vtep: Ipv4Addr, underlay_mtu: u16) -> Self {
        let overhead = u16::try_from(ENCAP_OVERHEAD).unwrap_or_default();
        Self {
            name: name.into(),
            vtep,
            underlay_mtu,
            pod_mtu: underlay_mtu.saturating_sub(overhead),
            paths: BTreeMap::new(),
            vpc_indices: BTreeMap::new(),
            services: ServiceTables::default(),
            limits: Limits::default(),
            capacities: Capacities::default(),
            addresses: BTreeSet::new(),
        }
    }

    /// The way to another node.
    #[must_use]
    pub fn path(&self, vtep: Ipv4Addr) -> UnderlayPath {
        self.paths.get(&vtep).copied().unwrap_or(UnderlayPath { next_hop: vtep, mtu: self.underlay_mtu })
    }
}
