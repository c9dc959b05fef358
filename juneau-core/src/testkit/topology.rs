//! Two tenants with the same Subnets and the same addresses, on two nodes.
//!
//! Each VPC has Subnets 10.0.1.0/24 and 10.0.2.0/24. In each Subnet .10 and .11 are Pods of node 0, .20 and .21 Pods of
//! node 1. 10.0.1.30 is a router of node 0: 10.9.0.0/16 leads to it from both Subnets. The target of 10.8.0.0/16 is
//! gone. Everything may talk inside its VPC.
//!
//! Tenant 0 is in the VPC that nodes are in: 10.0.1.5 and .6 are their node ports. Nodes have their VTEP besides, and one
//! address each that no other node knows. Routes of tenant 0 lead to all these.
//!
//! .10 of both Subnets are two interfaces of one Pod. 10.96.0.0/16 is for Services, of which [`super::services`] tells;
//! there is no other route.

use super::services;
use crate::layout::{
    Be32, EGRESS, EP_LOCAL, EP_NODE, EP_POLICY_READY, EP_ROUTER, Endpoint, EndpointKey, IDENTITY_ANY, INGRESS,
    Interface, KIND_NODE, KIND_POD, Mac, MacKey, POLICY_ALLOW, Policy, PolicyKey, ROUTE_CONNECTED, ROUTE_ENDPOINT,
    ROUTE_SERVICE, ROUTE_TARGET_GONE, Route, RouteKey, Seeds, Segment, Vpc, Vtep, be32, endpoint_generation,
};
use crate::pipeline::{Config, Limits, Pipeline};
use crate::tables::{Diff, Tables};
use core::net::Ipv4Addr;

/// MTU of every Pod.
pub const MTU: u16 = 1450;
/// MTU of the underlay.
pub const UNDERLAY_MTU: u16 = 1500;
/// Hosts of each Subnet on node 0 and on node 1.
pub const HOSTS: [[u8; 2]; 2] = [[10, 11], [20, 21]];
/// The router's host in Subnet 1, on node 0.
pub const ROUTER: u8 = 30;
/// The nodes' own hosts in Subnet 1 of tenant 0.
pub const NODES: [u8; 2] = [5, 6];

/// A Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pod {
    /// Tenant 0 or 1.
    pub tenant: u8,
    /// Subnet 1 or 2.
    pub subnet: u8,
    /// Last byte of the address.
    pub host: u8,
}

impl Pod {
    /// A Pod of the topology.
    #[must_use]
    pub const fn new(tenant: u8, subnet: u8, host: u8) -> Self {
        Self { tenant, subnet, host }
    }

    /// The router of a tenant.
    #[must_use]
    pub const fn router(tenant: u8) -> Self {
        Self::new(tenant, 1, ROUTER)
    }

    /// The node port of a node.
    #[must_use]
    pub const fn node_port(node: usize) -> Self {
        Self::new(0, 1, NODES[node])
    }

    /// It is a node port, not a Pod.
    #[must_use]
    pub const fn is_node(self) -> bool {
        self.tenant == 0 && self.subnet == 1 && (self.host == NODES[0] || self.host == NODES[1])
    }

    /// Its address, which the other tenant has, too.
    #[must_use]
    pub const fn address(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, self.subnet, self.host)
    }

    /// Its MAC address, which the other tenant has, too.
    #[must_use]
    pub const fn mac(self) -> [u8; 6] {
        [2, 0, 10, 0, self.subnet, self.host]
    }

    /// The MAC address of its gateway.
    #[must_use]
    pub const fn gateway_mac(self) -> [u8; 6] {
        [2, 0, 0xff, 0, self.subnet, 1]
    }

    /// Its gateway.
    #[must_use]
    pub const fn gateway(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, self.subnet, 1)
    }

    /// Its VPC.
    #[must_use]
    pub const fn vpc(self) -> u32 {
        5 + self.tenant as u32
    }

    /// Its Subnet's VNI.
    #[must_use]
    pub const fn vni(self) -> u32 {
        (self.tenant as u32 + 1) * 100 + self.subnet as u32
    }

    /// Its Subnet's route table.
    #[must_use]
    pub const fn table(self) -> u32 {
        1000 + self.vni()
    }

    /// Its VPC's number, the same on both nodes.
    #[must_use]
    pub const fn vpc_index(self) -> u16 {
        self.tenant as u16
    }

    /// Its node.
    #[must_use]
    pub const fn node(self) -> usize {
        if self.host == HOSTS[1][0] || self.host == HOSTS[1][1] || self.host == NODES[1] { 1 } else { 0 }
    }

    /// Its host veth.
    #[must_use]
    pub const fn ifindex(self) -> u32 {
        1000 + self.tenant as u32 * 100 + self.subnet as u32 * 40 + self.host as u32
    }

    /// Its identity, the same for all Pods of a tenant, and for all nodes.
    #[must_use]
    pub const fn identity(self) -> u32 {
        if self.is_node() { 20 } else { 10 + self.tenant as u32 }
    }

    /// The number of the Pod that the interface belongs to; 0 of a node.
    #[must_use]
    pub const fn pod(self) -> u32 {
        match self.host {
            _ if self.is_node() => 0,
            host if host == HOSTS[0][0] => 1 + self.tenant as u32,
            _ => self.ifindex(),
        }
    }

    const fn is_router(self) -> bool {
        self.subnet == 1 && self.host == ROUTER
    }

    const fn flags(self) -> u32 {
        EP_POLICY_READY | if self.is_router() { EP_ROUTER } else { 0 } | if self.is_node() { EP_NODE } else { 0 }
    }

    const fn kind(self) -> u8 {
        if self.is_node() { KIND_NODE } else { KIND_POD }
    }

    /// Its interface record on its own node.
    #[must_use]
    pub fn interface(self) -> Interface {
        Interface {
            vpc: self.vpc(),
            vni: self.vni(),
            table: self.table(),
            flags: self.flags(),
            address: be32(self.address()),
            gateway: be32(self.gateway()),
            mac: self.mac(),
            gateway_mac: self.gateway_mac(),
            mtu: MTU,
            vpc_index: self.vpc_index(),
            kind: self.kind(),
            prefix_length: 24,
            identity: self.identity(),
            policy: 1,
            generation: endpoint_generation(self.vpc(), be32(self.address())),
            pod: self.pod(),
            ..Interface::default()
        }
    }

    /// Its endpoint record on a node.
    #[must_use]
    pub fn endpoint(self, node: usize) -> Endpoint {
        let local = self.node() == node;
        Endpoint {
            flags: self.flags() | if local { EP_LOCAL } else { 0 },
            ifindex: if local { self.ifindex() } else { 0 },
            vtep: if local { Be32::ZERO } else { be32(vtep(self.node())) },
            vni: self.vni(),
            mac: self.mac(),
            gateway_mac: self.gateway_mac(),
            mtu: MTU,
            kind: self.kind(),
            identity: self.identity(),
            policy: 1,
            generation: endpoint_generation(self.vpc(), be32(self.address())),
            table: self.table(),
            pod: self.pod(),
            ..Endpoint::default()
        }
    }
}

/// Every Pod of both tenants.
#[must_use]
pub fn pods() -> Vec<Pod> {
    let mut pods = Vec::new();
    for tenant in 0..2 {
        for subnet in 1..=2 {
            pods.extend(HOSTS.as_flattened().iter().map(|host| Pod::new(tenant, subnet, *host)));
        }
        pods.push(Pod::router(tenant));
    }
    pods
}

/// A node's address on the underlay.
#[must_use]
pub const fn vtep(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, 1 + node as u8)
}

/// An address of a node that no other node knows.
#[must_use]
pub const fn own_address(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(203, 0, 113, 200 + node as u8)
}

/// The addresses that nodes have besides that of their node port, as the tables of `node` hold them, with the node.
#[must_use]
pub const fn node_addresses(node: usize) -> [(Ipv4Addr, usize); 3] {
    [(vtep(0), 0), (vtep(1), 1), (own_address(node), node)]
}

/// What a node's tables hold.
#[must_use]
pub fn tables(node: usize) -> Tables {
    let mut tables = Tables::default();
    let other = be32(vtep(1 - node));
    tables.vteps.insert(other, Vtep { next_hop: other, mtu: UNDERLAY_MTU, zero: 0 });
    for pod in pods().into_iter().chain([Pod::node_port(0), Pod::node_port(1)]) {
        let address = be32(pod.address());
        tables.endpoints.insert(EndpointKey { vpc: pod.vpc(), address }, pod.endpoint(node));
        tables.vpcs.insert(
            u32::from(pod.vpc_index()),
            Vpc { vpc: pod.vpc(), flow_limit: 1000, embryonic_limit: 500, icmp_limit: 10 },
        );
        if pod.node() == node {
            tables.interfaces.insert(pod.ifindex(), pod.interface());
            tables.macs.insert(MacKey::new(pod.vni(), pod.mac()), Mac { address, ifindex: pod.ifindex() });
        }
        let segment = Segment {
            vpc: pod.vpc(),
            vpc_index: pod.vpc_index(),
            mtu: MTU,
            gateway: be32(pod.gateway()),
            gateway_mac: pod.gateway_mac(),
            prefix_length: 24,
            zero: 0,
            table: pod.table(),
        };
        tables.segments.insert(pod.vni(), segment);
        for subnet in 1..=2 {
            let vni = Pod::new(pod.tenant, subnet, 0).vni();
            let key = RouteKey::new(pod.table(), Ipv4Addr::new(10, 0, subnet, 0), 24);
            tables.routes.insert(key, Route { kind: ROUTE_CONNECTED, vni, ..Route::default() });
        }
        tables.routes.insert(
            RouteKey::new(pod.table(), Ipv4Addr::new(10, 9, 0, 0), 16),
            Route { kind: ROUTE_ENDPOINT, next_hop: be32(Pod::router(pod.tenant).address()), ..Route::default() },
        );
        tables
            .routes
            .insert(RouteKey::new(pod.table(), services::RANGE, 16), Route { kind: ROUTE_SERVICE, ..Route::default() });
        tables.routes.insert(
            RouteKey::new(pod.table(), Ipv4Addr::new(10, 8, 0, 0), 16),
            Route { kind: ROUTE_TARGET_GONE, ..Route::default() },
        );
        for (address, of) in node_addresses(node).into_iter().filter(|_| pod.tenant == 0) {
            let (key, generation) = (be32(address), endpoint_generation(pod.vpc(), be32(address)));
            let endpoint = Endpoint { generation, ..Pod::node_port(of).endpoint(node) };
            tables.endpoints.insert(EndpointKey { vpc: pod.vpc(), address: key }, endpoint);
            let route = Route { kind: ROUTE_CONNECTED, vni: endpoint.vni, ..Route::default() };
            tables.routes.insert(RouteKey::new(pod.table(), address, 32), route);
        }
        if pod.is_node() {
            continue;
        }
        for direction in [EGRESS, INGRESS] {
            let key = PolicyKey {
                identity: pod.identity(),
                policy: 1,
                peer: IDENTITY_ANY,
                direction,
                ..PolicyKey::default()
            };
            tables.policies.insert(key, Policy { action: POLICY_ALLOW, rule: 1 });
        }
    }
    services::add(&mut tables, &services::all());
    tables
}

/// What a node's data path is told.
#[must_use]
pub const fn config(node: usize) -> Config {
    Config::new(vtep(node), Seeds { first: 0x9e37_79b9_7f4a_7c15, second: 0xc2b2_ae3d_27d4_eb4f })
}

/// A node's data path with its tables.
#[must_use]
pub fn node(node: usize) -> Pipeline {
    node_with(node, &Limits::default())
}

/// The same with other limits.
#[must_use]
pub fn node_with(node: usize, limits: &Limits) -> Pipeline {
    let mut pipeline = Pipeline::new(config(node), limits);
    pipeline.apply(&Diff::between(&Tables::default(), &tables(node))).expect("there is room for the tables");
    pipeline
}
