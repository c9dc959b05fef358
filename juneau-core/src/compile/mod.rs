//! From the model to tables: pure, total, deterministic.
//!
//! [`compile`] yields the exact content of every table on one node, and what could not be programmed. Only what the
//! node needs is there: VPCs that have an endpoint on it, whether attached yet or not, and what those can reach. What
//! is wrong costs as little as possible: a broken route is programmed as unreachable, an endpoint that cannot be is
//! left out, and nothing else changes.

mod context;
mod endpoints;
mod nodes;
mod routes;
mod services;
mod vpcs;

pub use context::{Limits, NodeContext, UnderlayPath};
pub use services::ServiceTables;
pub use vpcs::vpc_indices;

use crate::id::{Vni, VpcId};
use crate::layout::{EGRESS, IDENTITY_ANY, INGRESS, POLICY_ALLOW, Policy, PolicyKey, Vtep, be32};
use crate::model::{Attachments, Endpoint, Model, Problem, Subnet};
use crate::tables::{Table, Tables};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};

/// The generation of the policy tables, in every record. Policy is one allow rule, which never changes.
pub const POLICY_GENERATION: u32 = 1;
/// The number of the rule that allows everything, in events and explanations.
pub const ALLOW_ALL_RULE: u32 = 1;

/// What the steps share.
struct Compilation<'a> {
    model: &'a Model,
    node: &'a NodeContext,
    attachments: &'a Attachments,
    memory: &'a mut services::Memory,
    tables: Tables,
    problems: Vec<Problem>,
    /// Addresses of nodes besides those of their node ports, which every route table of the VPC leads to, and the VNI
    /// that they are behind.
    behind_nodes: BTreeMap<(VpcId, Ipv4Addr), Vni>,
}

/// The content of every table on the node `node`, and what could not be programmed.
///
/// A table that holds more than [`NodeContext::capacities`] allows is a problem, but is not cut: who writes it keeps
/// what is there and leaves out what does not fit.
#[must_use]
pub fn compile(model: &Model, node: &NodeContext, attachments: &Attachments) -> (Tables, Vec<Problem>) {
    Compiler::new().compile(model, node, attachments)
}

/// Compiles again and again, and remembers the last time: it yields what [`compile`] yields, but of many Services only
/// those cost time that changed, as long as [`NodeContext::services`] is what it yielded.
#[derive(Debug, Default)]
pub struct Compiler {
    services: services::Memory,
}

impl Compiler {
    /// Without a memory.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// As [`compile`].
    #[must_use]
    pub fn compile(&mut self, model: &Model, node: &NodeContext, attachments: &Attachments) -> (Tables, Vec<Problem>) {
        let mut compilation = Compilation {
            model,
            node,
            attachments,
            memory: &mut self.services,
            tables: Tables::default(),
            problems: Vec::new(),
            behind_nodes: BTreeMap::new(),
        };
        compilation.run();
        let Compilation { tables, mut problems, .. } = compilation;
        problems.sort();
        problems.dedup();
        (tables, problems)
    }
}

impl Compilation<'_> {
    fn run(&mut self) {
        let here = self.vpcs_here();
        let vpcs = self.number_vpcs(&here);
        self.vteps();
        let segments = self.endpoints(&vpcs);
        self.routes(&segments);
        self.services(&vpcs);
        self.policies();
        self.check_capacities();
    }

    /// VPCs with an endpoint on this node.
    fn vpcs_here(&self) -> BTreeSet<VpcId> {
        self.model.endpoints.values().filter(|e| e.node == self.node.name).map(|e| e.vpc).collect()
    }

    /// Every other node: what may send to us, and what no socket of this node may send to.
    fn vteps(&mut self) {
        let mut known: BTreeMap<Ipv4Addr, &str> = BTreeMap::new();
        for (name, node) in &self.model.nodes {
            let object = || format!("Node/{name}");
            let IpAddr::V4(address) = node.internal_ip else {
                self.problems.push(
                    Problem::new(
                        object(),
                        format!("InternalIP {} is not IPv4, which is all that is programmed", node.internal_ip),
                        "give the node an IPv4 InternalIP",
                    )
                    .at(&node.origin),
                );
                continue;
            };
            if *name == self.node.name {
                if address != self.node.vtep {
                    self.problems.push(
                        Problem::new(
                            object(),
                            format!("InternalIP is {address}, but this node's VTEP is {}", self.node.vtep),
                            "give a device of this node the new address, or restore the old one",
                        )
                        .at(&node.origin),
                    );
                }
                continue;
            }
            let other =
                if address == self.node.vtep { Some(self.node.name.as_str()) } else { known.insert(address, name) };
            if let Some(other) = other {
                self.problems.push(
                    Problem::new(
                        object(),
                        format!("InternalIP {address} is Node/{other}'s as well"),
                        "give each node an address of its own",
                    )
                    .at(&node.origin),
                );
                continue;
            }
            let path = self.node.path(address);
            let record = Vtep { next_hop: be32(path.next_hop), mtu: path.mtu, zero: 0 };
            self.tables.vteps.insert(be32(address), record);
        }
    }

    /// One rule for each direction: everybody may.
    fn policies(&mut self) {
        let identities: BTreeSet<u32> = self.tables.interfaces.values().map(|interface| interface.identity).collect();
        for identity in identities {
            for direction in [EGRESS, INGRESS] {
                let key = PolicyKey {
                    identity,
                    policy: POLICY_GENERATION,
                    peer: IDENTITY_ANY,
                    direction,
                    ..PolicyKey::default()
                };
                self.tables.policies.insert(key, Policy { action: POLICY_ALLOW, rule: ALLOW_ALL_RULE });
            }
        }
    }

    fn check_capacities(&mut self) {
        for table in Table::ALL {
            let (needed, capacity) = (self.tables.len(table), self.node.capacities.get(table));
            if needed > capacity {
                self.problems.push(Problem::new(
                    format!("map {}", table.map_name()),
                    format!("{needed} elements are needed, {capacity} fit"),
                    "spread Pods over more nodes, or raise the map's capacity",
                ));
            }
        }
    }
}

/// The endpoints of one VPC.
fn endpoints_of(model: &Model, vpc: VpcId) -> impl Iterator<Item = &Endpoint> {
    let first = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let last = IpAddr::V6(Ipv6Addr::from_bits(u128::MAX));
    model.endpoints.range((vpc, first)..=(vpc, last)).map(|(_, endpoint)| endpoint)
}

/// A Subnet's IPv4 parts: prefix length and gateway.
fn ipv4_of(subnet: &Subnet) -> Option<(u8, Ipv4Addr)> {
    match (subnet.prefix, subnet.gateway) {
        (IpNet::V4(prefix), IpAddr::V4(gateway)) => Some((prefix.prefix_len(), gateway)),
        _ => None,
    }
}

/// Subnets with an endpoint on this node.
type Segments = BTreeSet<Vni>;

#[cfg(test)]
mod tests;
