//! The addresses that nodes have besides those of their node ports.

use super::{Compilation, ipv4_of};
use crate::id::VpcId;
use crate::layout::{self, EndpointKey, be32, endpoint_generation};
use crate::model::{Endpoint, Problem};
use crate::packet::is_forbidden;
use core::net::{IpAddr, Ipv4Addr};

/// An endpoint of a node that is programmed.
pub(super) struct NodePort<'m> {
    pub(super) endpoint: &'m Endpoint,
    pub(super) record: layout::Endpoint,
    /// The node; `None` is this one.
    pub(super) vtep: Option<Ipv4Addr>,
}

impl Compilation<'_> {
    /// Records for what lies behind node ports: of other nodes their VTEP, of this one whatever it sends from. This
    /// node's own come first where two claim an address.
    pub(super) fn behind_nodes(
        &mut self,
        mut nodes: Vec<NodePort<'_>>,
        records: &mut Vec<(EndpointKey, layout::Endpoint)>,
    ) {
        nodes.sort_by_key(|port| port.vtep);
        for NodePort { endpoint, record, vtep } in nodes {
            let own = [self.node.vtep].into_iter().chain(self.node.addresses.iter().copied());
            let addresses: Vec<Ipv4Addr> = vtep.map_or_else(|| own.collect(), |vtep| vec![vtep]);
            for address in addresses {
                let key = (endpoint.vpc, address);
                if IpAddr::V4(address) == endpoint.address
                    || is_forbidden(be32(address))
                    || self.behind_nodes.contains_key(&key)
                {
                    continue;
                }
                if let Some(subnet) = self.subnet_around(endpoint.vpc, address) {
                    self.problems.push(
                        Problem::new(
                            format!("NetworkEndpoint/{}", endpoint.name),
                            format!(
                                "the node's address {address} lies in Subnet/{subnet}; Pods of the VPC do not reach it, \
                                 nor it them"
                            ),
                            "give the Subnet or the node another address",
                        )
                        .at(&endpoint.origin),
                    );
                    continue;
                }
                let generation = endpoint_generation(endpoint.vpc.get(), be32(address));
                let key_of = EndpointKey { vpc: endpoint.vpc.get(), address: be32(address) };
                records.push((key_of, layout::Endpoint { generation, ..record }));
                self.behind_nodes.insert(key, endpoint.subnet);
            }
        }
    }

    /// The Subnet of a VPC that an address lies in: there it is somebody else's.
    fn subnet_around(&self, vpc: VpcId, address: Ipv4Addr) -> Option<&str> {
        let subnets = self.model.subnets.values().filter(|subnet| subnet.vpc == vpc && ipv4_of(subnet).is_some());
        let around = subnets.into_iter().find(|subnet| subnet.prefix.contains(&IpAddr::V4(address)));
        around.map(|subnet| subnet.name.as_str())
    }
}
