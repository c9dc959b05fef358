//! What was decided: written by user space, read by programs.

use super::hash::{fnv1a, native};
use super::{Be16, Be32, mirror};
use zerocopy::IntoBytes;

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
        /// The same for all interfaces of one Pod; 0 is unknown.
        pod: u32,
        /// Padding.
        zero2: u32,
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

    /// Key of `jn_frontends`: where a Service is met.
    FrontendKey = "jn_frontend_key" {
        /// The VPC of who asks.
        scope: u32,
        /// The Service's address there.
        address: Be32,
        /// Its port; 0 stands for the address itself.
        port: Be16,
        /// IP protocol; 0 stands for the address itself.
        protocol: u8,
        /// Padding.
        zero: u8,
    }

    /// A Service port as it is met. Readers of shared memory take `tag_last`, copy, then `tag`: both equal, with the
    /// hash of the key that was looked up, or they read again. [`Frontend::tagged`] sets the tags.
    Frontend = "jn_frontend" {
        /// Hash of the key (high 32 bits), of the rest (low).
        tag: u64,
        /// The first slot: a multiple of `SLOTS`.
        base: u32,
        /// Slots; 0 is without backends.
        size: u32,
        /// The Service port's number on this node; 0 for an address itself.
        service: u32,
        /// `FRONTEND_*`.
        flags: u32,
        /// Seconds that a client stays with its backend; 0 is each connection for itself.
        affinity: u32,
        /// The VPC of the backends.
        owner: u32,
        /// Padding.
        zero: [u32; 6],
        /// The tag again.
        tag_last: u64,
    }

    /// Ids of backends (`jn_slots`), chosen by hash. A range is written before a front end points at it.
    Slots = "jn_slots" {
        /// The ids; 0 is none.
        backend: [u32; 16],
    }

    /// Where a Service port leads (`jn_backends` by id, from 1). An id belongs to one Service port. Readers of shared
    /// memory take `tag_last`, copy, then `tag`, and the record must be of the Service port that led to it.
    /// [`Backend::tagged`] sets the tags.
    Backend = "jn_backend" {
        /// Hash of the rest, never 0.
        tag: u32,
        /// The Service port's number on this node.
        service: u32,
        /// The address.
        address: Be32,
        /// The port.
        port: Be16,
        /// `BACKEND_*` kind.
        kind: u8,
        /// `BACKEND_SERVING`, `BACKEND_CHOSEN`.
        flags: u8,
        /// The scope of the address.
        vpc: u32,
        /// Padding.
        zero: [u32; 2],
        /// The tag again.
        tag_last: u32,
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

impl FrontendKey {
    /// Key of a Service port as a VPC's endpoints meet it.
    #[must_use]
    pub const fn new(scope: u32, address: Be32, port: Be16, protocol: u8) -> Self {
        Self { scope, address, port, protocol, zero: 0 }
    }

    /// Key of an address that is a Service's, whatever its ports.
    #[must_use]
    pub const fn of_address(scope: u32, address: Be32) -> Self {
        Self::new(scope, address, Be16::ZERO, 0)
    }

    /// The hash that a front end's tag carries.
    #[must_use]
    pub fn tag_hash(&self) -> u32 {
        let ports = u32::from(u16::from_ne_bytes(self.port.to_bytes())) << 16 | u32::from(self.protocol);
        let hash = self.scope.wrapping_mul(0x9E37_79B1) ^ native(self.address).wrapping_mul(0x85EB_CA77);
        (hash ^ hash >> 15).wrapping_add(ports.wrapping_mul(0xC2B2_AE3D))
    }
}

impl Frontend {
    /// The record with the tags of a key and of what it says.
    #[must_use]
    pub fn tagged(self, key: &FrontendKey) -> Self {
        let plain = Self { tag: 0, tag_last: 0, ..self };
        let tag = u64::from(key.tag_hash()) << 32 | u64::from(fnv1a(plain.as_bytes()));
        Self { tag, tag_last: tag, ..self }
    }

    /// Whether both tags are equal and of this key. An element of a map may have been recycled while it was read.
    #[must_use]
    pub fn is_of(&self, key: &FrontendKey) -> bool {
        self.tag == self.tag_last && (self.tag >> 32) as u32 == key.tag_hash()
    }
}

impl Backend {
    /// The record with the tag of what it says.
    #[must_use]
    pub fn tagged(self) -> Self {
        let tag = fnv1a(Self { tag: 0, tag_last: 0, ..self }.as_bytes()).max(1);
        Self { tag, tag_last: tag, ..self }
    }

    /// Whether it is a record, whole.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.tag != 0 && self.tag == self.tag_last
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
