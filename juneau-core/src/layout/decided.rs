//! What was decided: written by user space, read by programs.

use super::{Be16, Be32, mirror};

mirror! {
    /// An interface of this node (`jn_interfaces` by ifindex): what its Pod may do, and where its packets start.
    Interface = "jn_interface" {
        /// The VPC: scope of the Pod's addresses.
        vpc: u32,
        /// The Subnet's VNI.
        vni: u32,
        /// Route table of what the Pod sends.
        table: u32,
        /// `EP_*`.
        flags: u32,
        /// The Pod's address.
        address: Be32,
        /// The Subnet's gateway.
        gateway: Be32,
        /// The Pod's MAC address.
        mac: [u8; 6],
        /// The Subnet's gateway MAC address, the same on every node.
        gateway_mac: [u8; 6],
        /// The Pod's MTU, in bytes of IP.
        mtu: u16,
        /// The VPC's number on this node.
        vpc_index: u16,
        /// `KIND_*`; 0 is no record.
        kind: u8,
        /// Length of the Subnet's prefix.
        prefix_length: u8,
        /// Padding.
        zero1: u16,
        /// The Pod's identity in policy.
        identity: u32,
        /// Generation of the policy tables.
        policy: u32,
        /// Slot in the generations.
        generation: u32,
        /// Padding.
        zero2: [u32; 2],
    }

    /// Key of `jn_endpoints`.
    EndpointKey = "jn_endpoint_key" {
        /// The scope.
        vpc: u32,
        /// The tenant's address.
        address: Be32,
    }

    /// What holds an address, on this node or another.
    Endpoint = "jn_endpoint" {
        /// `EP_*`.
        flags: u32,
        /// The host veth; 0 on another node.
        ifindex: u32,
        /// The node's VTEP; 0 on this node.
        vtep: Be32,
        /// The Subnet's VNI.
        vni: u32,
        /// The endpoint's MAC address.
        mac: [u8; 6],
        /// The Subnet's gateway MAC address.
        gateway_mac: [u8; 6],
        /// The endpoint's MTU, in bytes of IP.
        mtu: u16,
        /// `KIND_*`.
        kind: u8,
        /// Padding.
        zero1: u8,
        /// Identity in policy.
        identity: u32,
        /// Generation of the policy tables.
        policy: u32,
        /// Slot in the generations.
        generation: u32,
        /// Route table of what the endpoint sends.
        table: u32,
        /// The same for all interfaces of one Pod; 0 is unknown.
        pod: u32,
        /// Padding.
        zero2: u32,
    }

    /// Key of `jn_macs`: overlay delivery, endpoints of this node only.
    MacKey = "jn_mac_key" {
        /// The Subnet's VNI.
        vni: u32,
        /// The inner destination.
        mac: [u8; 6],
        /// Padding.
        zero: u16,
    }

    /// Whose MAC address it is.
    Mac = "jn_mac" {
        /// The endpoint's address.
        address: Be32,
        /// The host veth.
        ifindex: u32,
    }

    /// A Subnet that has an endpoint on this node (`jn_segments` by VNI).
    Segment = "jn_segment" {
        /// The Subnet's VPC.
        vpc: u32,
        /// The VPC's number on this node.
        vpc_index: u16,
        /// The Subnet's MTU, in bytes of IP.
        mtu: u16,
        /// The Subnet's gateway.
        gateway: Be32,
        /// Its MAC address.
        gateway_mac: [u8; 6],
        /// Length of the Subnet's prefix.
        prefix_length: u8,
        /// Padding.
        zero: u8,
        /// The Subnet's route table.
        table: u32,
    }

    /// Key of `jn_routes`, a longest-prefix-match trie.
    RouteKey = "jn_route_key" {
        /// Bits that count: 32 of the table and those of the address.
        prefix_length: u32,
        /// The route table.
        table: u32,
        /// The prefix.
        address: Be32,
    }

    /// Where a prefix leads.
    Route = "jn_route" {
        /// `ROUTE_*`.
        kind: u32,
        /// The Subnet of a connected route.
        vni: u32,
        /// The Pod of an endpoint route.
        next_hop: Be32,
        /// Padding.
        zero: u32,
    }

    /// Another node (`jn_vteps` by its VTEP address).
    Vtep = "jn_vtep" {
        /// The VTEP itself, or the router towards it.
        next_hop: Be32,
        /// MTU of the underlay towards it, in outer bytes.
        mtu: u16,
        /// Padding.
        zero: u16,
    }

    /// Key of `jn_policies`.
    PolicyKey = "jn_policy_key" {
        /// Whose policy.
        identity: u32,
        /// Generation of the policy tables.
        policy: u32,
        /// The peer's identity, or `IDENTITY_ANY`.
        peer: u32,
        /// `EGRESS` or `INGRESS`.
        direction: u8,
        /// IP protocol; 0 is any.
        protocol: u8,
        /// Destination port; 0 is any.
        port: Be16,
    }

    /// A rule of policy.
    Policy = "jn_policy" {
        /// `POLICY_*`.
        action: u32,
        /// The rule's number, for events and explanations.
        rule: u32,
    }

    /// A VPC's limits (`jn_vpcs` by VPC index).
    Vpc = "jn_vpc" {
        /// The VPC; 0 is free.
        vpc: u32,
        /// Connections, answered or not.
        flow_limit: u32,
        /// Connections that were not answered yet.
        embryonic_limit: u32,
        /// Answers by ICMP error and RST in one unit of the stamp (256 jiffies).
        icmp_limit: u32,
    }

    /// IPv6 form of [`EndpointKey`]; not programmed yet.
    Endpoint6Key = "jn_endpoint6_key" {
        /// The scope.
        vpc: u32,
        /// The tenant's address.
        address: [u8; 16],
    }

    /// IPv6 form of [`RouteKey`]; not programmed yet.
    Route6Key = "jn_route6_key" {
        /// Bits that count: 32 of the table and those of the address.
        prefix_length: u32,
        /// The route table.
        table: u32,
        /// The prefix.
        address: [u8; 16],
    }
}

impl MacKey {
    /// Key of a MAC address in a Subnet.
    #[must_use]
    pub const fn new(vni: u32, mac: [u8; 6]) -> Self {
        Self { vni, mac, zero: 0 }
    }
}

impl RouteKey {
    /// Bits of the key that hold the table.
    pub const TABLE_BITS: u32 = 32;

    /// Key of a prefix in a table; `length` counts the address' bits only. Bits behind the prefix are cleared.
    #[must_use]
    pub const fn new(table: u32, address: core::net::Ipv4Addr, length: u8) -> Self {
        let length = if length > 32 { 32 } else { length as u32 };
        let mask = if length == 0 { 0 } else { u32::MAX << (32 - length) };
        Self { prefix_length: Self::TABLE_BITS + length, table, address: Be32::new(address.to_bits() & mask) }
    }
}
