//! A cluster as seen by one node: a model made of a list of endpoints, and the tables compiled from it.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net};
use juneau_core::compile::{Limits, NodeContext, compile};
use juneau_core::id::{IdError, Identity, IfIndex, MacAddr, TableId, Vni, VpcId};
use juneau_core::model::{
    Attachment, Attachments, BackendState, Choice, Endpoint, EndpointKind, Model, Node, Protocol, Route, RouteTable,
    RouteTarget, Service, ServicePort, Subnet, Vpc,
};
use juneau_core::tables::Tables;

use crate::error::{Error, Result};
use crate::namespace::Mac;

/// The VPC of paths that need one only.
pub const VPC: u32 = 7;
/// The range of Services.
const SERVICES: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(10, 96, 0, 0), 12);
/// MAC address of every gateway.
pub const GATEWAY_MAC: Mac = [2, 0, 0, 0, 0, 1];
/// The node whose tables are compiled.
pub const HERE: &str = "here";
const IDENTITY: u32 = 1;
const SUBNET_LENGTH: u8 = 24;
const OVERHEAD: u16 = 50;
/// Connections of a VPC; the benchmarks open as many as there are ports.
const FLOWS: u32 = 1 << 20;

/// An endpoint of a VPC.
#[derive(Debug, Clone, Copy)]
pub struct Member {
    /// Its VPC.
    pub vpc: u32,
    /// Its address; its Subnet is the /24 around it.
    pub address: Ipv4Addr,
    /// Its MAC address.
    pub mac: Mac,
    /// Where it is.
    pub place: Place,
}

/// Where an endpoint is.
#[derive(Debug, Clone, Copy)]
pub enum Place {
    /// On this node, behind this host veth.
    Here(u32),
    /// On the node with this VTEP.
    There(Ipv4Addr),
}

/// What the tables of a node are compiled from.
#[derive(Debug, Clone)]
pub struct Cluster {
    /// The objects.
    pub model: Model,
    /// What is attached to the node.
    pub attachments: Attachments,
    /// The node.
    pub context: NodeContext,
}

impl Cluster {
    /// The cluster in which `members` are all endpoints, seen by the node with `vtep`, with Pods of `pod_mtu`.
    ///
    /// # Errors
    /// [`Error::NotOurs`] when a number or an address is none that is allowed.
    pub fn new(vtep: Ipv4Addr, pod_mtu: u16, members: &[Member]) -> Result<Self> {
        let mut context = NodeContext::new(HERE, vtep, pod_mtu.saturating_add(OVERHEAD));
        context.limits = Limits { flows: FLOWS, embryonic: FLOWS, ..Limits::default() };
        let mut cluster = Self { model: Model::default(), attachments: BTreeMap::new(), context };
        cluster.model.nodes.insert(HERE.into(), node(vtep));
        for member in members {
            cluster.add(member).map_err(|error| Error::NotOurs(format!("{member:?}: {error}")))?;
        }
        Ok(cluster)
    }

    /// Adds a Service of a VPC with a UDP port that leads to one backend.
    ///
    /// # Errors
    /// [`Error::NotOurs`] when the VPC has no number that is allowed.
    pub fn serve(&mut self, vpc: u32, address: Ipv4Addr, port: u16, backend: SocketAddrV4) -> Result<()> {
        let id = VpcId::new(vpc).map_err(|error| Error::NotOurs(format!("VPC {vpc}: {error}")))?;
        let name = format!("vpc-{vpc}/{address}-{port}");
        let backend = SocketAddr::V4(backend);
        let service = Service {
            name: name.clone(),
            vpc: id,
            addresses: [address.into()].into(),
            affinity: None,
            ports: vec![ServicePort {
                name: String::new(),
                protocol: Protocol::Udp,
                port,
                backends: [(backend, BackendState { serving: true })].into(),
                internal: Choice { backends: [backend].into(), local_only: false },
            }],
            origin: String::new(),
        };
        self.model.services.insert(name, Arc::new(service));
        for table in self.model.tables.values_mut().filter(|table| table.vpc == id) {
            let route = Route { prefix: IpNet::V4(SERVICES), target: RouteTarget::Service };
            if !table.routes.contains(&route) {
                table.routes.push(route);
            }
        }
        Ok(())
    }

    /// The tables of the node.
    ///
    /// # Errors
    /// [`Error::NotOurs`] when something cannot be programmed.
    pub fn tables(&self) -> Result<Tables> {
        let (tables, problems) = compile(&self.model, &self.context, &self.attachments);
        match problems.first() {
            None => Ok(tables),
            Some(problem) => Err(Error::NotOurs(problem.to_string())),
        }
    }

    fn add(&mut self, member: &Member) -> std::result::Result<(), IdError> {
        let id = VpcId::new(member.vpc)?;
        let vni = member.vni()?;
        let table = TableId::new(member.vpc)?;
        let name = format!("vpc-{}", member.vpc);
        let model = &mut self.model;
        model.vpcs.entry(id).or_insert_with(|| Vpc { id, name: name.clone(), origin: String::new() });
        if let std::collections::btree_map::Entry::Vacant(free) = model.subnets.entry(vni) {
            let prefix = member.subnet();
            free.insert(Subnet {
                vni,
                name: format!("{name}-{prefix}"),
                vpc: id,
                prefix,
                gateway: member.gateway().into(),
                gateway_mac: MacAddr::new(GATEWAY_MAC)?,
                table: Some(table),
                origin: String::new(),
            });
            let new = || RouteTable { id: table, name, vpc: id, routes: Vec::new(), origin: String::new() };
            let routes = &mut model.tables.entry(table).or_insert_with(new).routes;
            routes.push(Route { prefix, target: RouteTarget::Connected(vni) });
        }
        let name = format!("vpc-{}/{}", member.vpc, member.address);
        let node_name = match member.place {
            Place::Here(_) => HERE.to_owned(),
            Place::There(vtep) => {
                let name = vtep.to_string();
                model.nodes.entry(name.clone()).or_insert_with(|| node(vtep));
                name
            }
        };
        if let Place::Here(ifindex) = member.place {
            let attachment = Attachment {
                ifindex: IfIndex::new(ifindex)?,
                host_mac: MacAddr::new(GATEWAY_MAC)?,
                container_id: String::new(),
            };
            self.attachments.insert(name.clone(), attachment);
        }
        let endpoint = Endpoint {
            vpc: id,
            subnet: vni,
            address: member.address.into(),
            mac: MacAddr::new(member.mac)?,
            node: node_name,
            identity: Identity::new(IDENTITY)?,
            policy_ready: true,
            kind: EndpointKind::Pod,
            pod: name.clone(),
            name,
            origin: String::new(),
        };
        model.endpoints.insert((id, member.address.into()), endpoint);
        Ok(())
    }
}

impl Member {
    /// One for each third octet of each VPC.
    fn vni(&self) -> std::result::Result<Vni, IdError> {
        let [_, _, subnet, _] = self.address.octets();
        Vni::new((self.vpc << 8) | u32::from(subnet))
    }

    fn subnet(&self) -> IpNet {
        IpNet::V4(Ipv4Net::new_assert(self.address, SUBNET_LENGTH).trunc())
    }

    fn gateway(&self) -> Ipv4Addr {
        let [a, b, c, _] = self.address.octets();
        Ipv4Addr::new(a, b, c, 1)
    }
}

fn node(vtep: Ipv4Addr) -> Node {
    Node { internal_ip: vtep.into(), origin: String::new() }
}

/// A cluster of `vpcs` VPCs whose `endpoints` are spread evenly over `nodes` nodes, one of them this one. With as many
/// nodes as VPCs, every VPC has an endpoint on every node, so that every node needs to know every endpoint.
#[must_use]
pub fn spread(vpcs: u32, endpoints: u32, nodes: u32) -> Vec<Member> {
    (0..endpoints)
        .map(|n| {
            let (vpc, inside) = (n % vpcs, n / vpcs);
            let [_, _, high, low] = (inside + 1).to_be_bytes();
            let place = match (vpc + inside) % nodes {
                0 => Place::Here(100 + vpc),
                other => Place::There(Ipv4Addr::from(0xc0a8_0000 + 1 + other)),
            };
            Member {
                vpc: 2 + vpc,
                // The last octet stays clear of the gateway and the ends of the Subnet.
                address: Ipv4Addr::new(10, high, low / 100, 10 + low % 100),
                mac: [2, 1, 0, 0, high, low],
                place,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const VTEP: Ipv4Addr = Ipv4Addr::new(192, 168, 9, 1);

    #[test]
    fn a_node_knows_both_ends_and_the_way() {
        let end = |last, place| Member {
            vpc: VPC,
            address: Ipv4Addr::new(10, 0, last, 2),
            mac: [2, 0, 0, 0, 1, last],
            place,
        };
        let members = [end(1, Place::Here(5)), end(2, Place::There(Ipv4Addr::new(192, 168, 9, 2)))];
        let tables = Cluster::new(VTEP, 1450, &members).unwrap().tables().unwrap();
        assert_eq!(tables.endpoints.len(), 2);
        assert_eq!(tables.routes.len(), 2);
        assert_eq!(tables.policies.len(), 2);
        let counts = [tables.interfaces.len(), tables.macs.len(), tables.segments.len(), tables.vteps.len()];
        assert_eq!(counts, [1, 1, 1, 1]);
        assert!(tables.interfaces.values().all(|interface| interface.mtu == 1450));
    }

    #[test]
    fn a_spread_cluster_is_complete_and_without_problems() {
        let members = spread(100, 10_000, 100);
        let cluster = Cluster::new(VTEP, 1450, &members).unwrap();
        assert_eq!(cluster.model.endpoints.len(), 10_000);
        assert_eq!(cluster.model.vpcs.len(), 100);
        assert_eq!(cluster.model.nodes.len(), 100);
        let tables = cluster.tables().unwrap();
        assert_eq!(tables.interfaces.len(), 100);
        assert_eq!(tables.endpoints.len(), 10_000);
    }
}
