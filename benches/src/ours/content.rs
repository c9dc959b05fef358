//! The tables of a node: endpoints of one or more VPCs, routes between their Subnets, one rule that allows everything.

use std::net::Ipv4Addr;

use juneau_core::layout::{
    Be16, EGRESS, EP_LOCAL, EP_POLICY_READY, Endpoint, EndpointKey, IDENTITY_ANY, INGRESS, Interface, KIND_POD, MacKey,
    POLICY_ALLOW, Policy, PolicyKey, ROUTE_CONNECTED, Route, RouteKey, Segment, Vpc, Vtep, be32, endpoint_generation,
};
use juneau_core::tables::Tables;

use crate::namespace::Mac;
use crate::peers::UNDERLAY_MTU;

/// The VPC of paths that need one only.
pub const VPC: u32 = 7;
/// MAC address of every gateway.
pub const GATEWAY_MAC: Mac = [2, 0, 0, 0, 0, 1];

const IDENTITY: u32 = 1;
const POLICY: u32 = 1;
const SUBNET_LENGTH: u8 = 24;
/// Connections of a VPC; the benchmarks open as many as there are ports.
const FLOW_LIMIT: u32 = 1 << 20;

/// An endpoint of a VPC.
#[derive(Debug, Clone, Copy)]
pub struct Member {
    /// Its VPC, which is also the number of its route table.
    pub vpc: u32,
    /// The VPC's number on the node.
    pub vpc_index: u16,
    /// Its address; its Subnet is the /24 around it.
    pub address: Ipv4Addr,
    /// Its MAC address.
    pub mac: Mac,
    /// Its MTU.
    pub mtu: u16,
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

impl Member {
    /// VNI of its Subnet: one for each third octet of each VPC.
    fn vni(&self) -> u32 {
        let [_, _, subnet, _] = self.address.octets();
        (self.vpc << 8) | u32::from(subnet)
    }

    fn subnet(&self) -> Ipv4Addr {
        let [a, b, c, _] = self.address.octets();
        Ipv4Addr::new(a, b, c, 0)
    }

    fn gateway(&self) -> Ipv4Addr {
        let [a, b, c, _] = self.address.octets();
        Ipv4Addr::new(a, b, c, 1)
    }

    fn generation(&self) -> u32 {
        endpoint_generation(self.vpc, be32(self.address))
    }

    fn interface(&self) -> Interface {
        Interface {
            vpc: self.vpc,
            vni: self.vni(),
            table: self.vpc,
            flags: EP_POLICY_READY,
            address: be32(self.address),
            gateway: be32(self.gateway()),
            mac: self.mac,
            gateway_mac: GATEWAY_MAC,
            mtu: self.mtu,
            vpc_index: self.vpc_index,
            kind: KIND_POD,
            prefix_length: SUBNET_LENGTH,
            identity: IDENTITY,
            policy: POLICY,
            generation: self.generation(),
            ..Interface::default()
        }
    }

    fn endpoint(&self) -> Endpoint {
        let (flags, ifindex, vtep) = match self.place {
            Place::Here(ifindex) => (EP_POLICY_READY | EP_LOCAL, ifindex, Ipv4Addr::UNSPECIFIED),
            Place::There(vtep) => (EP_POLICY_READY, 0, vtep),
        };
        Endpoint {
            flags,
            ifindex,
            vtep: be32(vtep),
            vni: self.vni(),
            mac: self.mac,
            gateway_mac: GATEWAY_MAC,
            mtu: self.mtu,
            kind: KIND_POD,
            identity: IDENTITY,
            policy: POLICY,
            generation: self.generation(),
            table: self.vpc,
            ..Endpoint::default()
        }
    }

    fn segment(&self) -> Segment {
        Segment {
            vpc: self.vpc,
            vpc_index: self.vpc_index,
            mtu: self.mtu,
            gateway: be32(self.gateway()),
            gateway_mac: GATEWAY_MAC,
            prefix_length: SUBNET_LENGTH,
            table: self.vpc,
            ..Segment::default()
        }
    }
}

/// The content of all tables of the node on which `members` see each other.
#[must_use]
pub fn node_tables(members: &[Member]) -> Tables {
    let mut tables = Tables::default();
    for member in members {
        let key = EndpointKey { vpc: member.vpc, address: be32(member.address) };
        tables.endpoints.insert(key, member.endpoint());
        let route = Route { kind: ROUTE_CONNECTED, vni: member.vni(), ..Route::default() };
        tables.routes.insert(RouteKey::new(member.vpc, member.subnet(), SUBNET_LENGTH), route);
        let limits = Vpc { vpc: member.vpc, flow_limit: FLOW_LIMIT, embryonic_limit: FLOW_LIMIT, icmp_limit: 100 };
        tables.vpcs.insert(member.vpc_index.into(), limits);
        match member.place {
            Place::Here(ifindex) => {
                tables.interfaces.insert(ifindex, member.interface());
                tables.segments.insert(member.vni(), member.segment());
                let key = MacKey { vni: member.vni(), mac: member.mac, ..MacKey::default() };
                let mac = juneau_core::layout::Mac { address: be32(member.address), ifindex };
                tables.macs.insert(key, mac);
            }
            Place::There(vtep) => {
                let mtu = u16::try_from(UNDERLAY_MTU).unwrap_or(u16::MAX);
                tables.vteps.insert(be32(vtep), Vtep { next_hop: be32(vtep), mtu, ..Vtep::default() });
            }
        }
    }
    for direction in [EGRESS, INGRESS] {
        let key = PolicyKey {
            identity: IDENTITY,
            policy: POLICY,
            peer: IDENTITY_ANY,
            direction,
            protocol: 0,
            port: Be16::new(0),
        };
        tables.policies.insert(key, Policy { action: POLICY_ALLOW, rule: 1 });
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_knows_both_ends_and_the_way() {
        let end = |last, place| Member {
            vpc: VPC,
            vpc_index: 1,
            address: Ipv4Addr::new(10, 0, last, 2),
            mac: [2, 0, 0, 0, 1, last],
            mtu: 1450,
            place,
        };
        let tables = node_tables(&[end(1, Place::Here(5)), end(2, Place::There(Ipv4Addr::new(192, 168, 9, 2)))]);
        assert_eq!(tables.endpoints.len(), 2);
        assert_eq!(tables.routes.len(), 2);
        assert_eq!(tables.policies.len(), 2);
        let counts = [tables.interfaces.len(), tables.macs.len(), tables.segments.len(), tables.vteps.len()];
        assert_eq!(counts, [1, 1, 1, 1]);
    }
}
