//! State: written by programs as packets pass.

use super::{Be16, Be32, mirror};
use super::{SCOPE_MASK, SCOPE_OVERLAY, SCOPE_PROTO_SHIFT, SCOPE_TRANSIT};

mirror! {
    /// What a VPC uses of its limits (`jn_vpc_states` by VPC index).
    VpcState = "jn_vpc_state" {
        /// Connections, answered or not.
        flows: i64,
        /// Connections that were not answered yet.
        embryonic: i64,
        /// Stamp of the running ICMP budget.
        icmp_stamp: u32,
        /// Answers sent at that stamp.
        icmp_used: u32,
    }

    /// Key of `jn_affinity`: a client of a Service port.
    AffinityKey = "jn_affinity_key" {
        /// The Service port's number on this node.
        service: u32,
        /// The VPC of the client.
        scope: u32,
        /// The client's address.
        client: Be32,
    }

    /// Which backend a client stays with.
    Affinity = "jn_affinity" {
        /// Its id.
        backend: u32,
        /// Stamp from which on it is void.
        expires: u32,
    }

    /// Key of `jn_flows`: one direction of a connection as its packets arrive at this node.
    FlowKey = "jn_flow_key" {
        /// Id, `SCOPE_*` bits and protocol.
        scope: u32,
        /// Source address.
        source: Be32,
        /// Destination address.
        destination: Be32,
        /// Source port; of an ICMP echo the identifier.
        source_port: Be16,
        /// Destination port; of an ICMP echo the identifier.
        destination_port: Be16,
    }

    /// IPv6 form of [`FlowKey`]; not programmed yet.
    Flow6Key = "jn_flow6_key" {
        /// Id, `SCOPE_*` bits and protocol.
        scope: u32,
        /// Source address.
        source: [u8; 16],
        /// Destination address.
        destination: [u8; 16],
        /// Source port.
        source_port: Be16,
        /// Destination port.
        destination_port: Be16,
    }

    /// One direction of a connection. The first 64 bytes are all that a hit needs. Readers of shared memory take
    /// `tag_last`, copy, then `tag`: both equal, with the hash of the key that was looked up, or it is a miss.
    Flow = "jn_flow" {
        /// Hash of the key (high 32 bits), birth (low).
        tag: u64,
        /// Epoch at which the generations were last found in force.
        epoch: u32,
        /// Low half of the tag again, so that {epoch, tag} is one word.
        tag_low: u32,
        /// Target of `EGRESS_PEER` and `EGRESS_NODE`; for `EGRESS_ENCAP` the underlay's next hop, in wire order.
        ifindex: u32,
        /// Target node (`EGRESS_ENCAP`), or the node that sends (overlay scope).
        vtep: Be32,
        /// VNI to send with.
        vni: u32,
        /// Largest packet, in inner bytes of IP.
        mtu: u16,
        /// Source port of the outer UDP header.
        outer_port: Be16,
        /// Destination MAC address.
        dmac: [u8; 6],
        /// Source MAC address.
        smac: [u8; 6],
        /// `EGRESS_*`.
        kind: u8,
        /// 1 where we route.
        ttl_decrement: u8,
        /// The VPC's number on this node.
        vpc_index: u16,
        /// Last seen, in units of 256 jiffies.
        stamp: u32,
        /// `FLOW_*`; TCP flags seen by this entry in bits 0 to 7, by its peer in bits 8 to 15.
        flags: u32,
        /// The tag again.
        tag_last: u64,
        /// Slots: source endpoint, destination endpoint (a translated flow's backend), route table, VTEP.
        generation: [u32; 4],
        /// Their values, and the node's.
        value: [u32; 5],
        /// `REWRITE_*`: what a translation (`FLOW_NAT`) changes.
        rewrite: u8,
        /// Padding.
        zero1: u8,
        /// One's complement sum of what the addresses change by, of words in wire order.
        address_difference: u16,
        /// The same of the ports.
        port_difference: u16,
        /// Padding.
        zero2: u16,
        /// The backend's id; 0 is none.
        backend: u32,
        /// Key of the other direction; the own key with `FLOW_SINGLE`.
        peer: FlowKey,
    }

    /// Key of `jn_fragments`.
    FragmentKey = "jn_fragment_key" {
        /// As in a flow key, without protocol.
        scope: u32,
        /// Hash of addresses, id and protocol, modulo `FRAGMENT_SLOTS`.
        slot: u32,
    }

    /// What a first fragment told.
    Fragment = "jn_fragment" {
        /// As in a flow key, without protocol.
        scope: u32,
        /// Source address.
        source: Be32,
        /// Destination address.
        destination: Be32,
        /// The datagram's identification.
        id: Be16,
        /// IP protocol.
        protocol: u8,
        /// Padding.
        zero1: u8,
        /// Source port.
        source_port: Be16,
        /// Destination port.
        destination_port: Be16,
        /// When.
        stamp: u32,
    }

    /// Path MTU of the underlay towards a VTEP, learned from ICMP 3/4 (`jn_pmtu` by VTEP address).
    Pmtu = "jn_pmtu" {
        /// In outer bytes.
        mtu: u32,
        /// Stamp from which on it is void.
        expires: u32,
    }

    /// Delivered packets (`jn_traffic` by VPC index × 2 + direction).
    Traffic = "jn_traffic" {
        /// Packets.
        packets: u64,
        /// Bytes.
        bytes: u64,
    }
}

impl FlowKey {
    /// The word that joins an id, its `SCOPE_*` bits and the six-bit protocol.
    #[must_use]
    pub const fn scope(id: u32, bits: u32, protocol: u32) -> u32 {
        (id & SCOPE_MASK) | bits | (protocol << SCOPE_PROTO_SHIFT)
    }

    /// The id: a VPC's, a VNI or an ifindex.
    #[must_use]
    pub const fn id(&self) -> u32 {
        self.scope & SCOPE_MASK
    }

    /// Whether the key is of packets that arrive from another node.
    #[must_use]
    pub const fn is_overlay(&self) -> bool {
        self.scope & SCOPE_OVERLAY != 0
    }

    /// Whether the key is of packets that a router forwards.
    #[must_use]
    pub const fn is_transit(&self) -> bool {
        self.scope & SCOPE_TRANSIT != 0
    }

    /// The six-bit protocol, `PROTO_*`.
    #[must_use]
    pub const fn protocol(&self) -> u32 {
        self.scope >> SCOPE_PROTO_SHIFT
    }

    /// The same key with addresses and ports exchanged.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self {
            scope: self.scope,
            source: self.destination,
            destination: self.source,
            source_port: self.destination_port,
            destination_port: self.source_port,
        }
    }

    /// The same tuple in another scope; the protocol is kept.
    #[must_use]
    pub const fn in_scope(self, id: u32, bits: u32) -> Self {
        Self { scope: Self::scope(id, bits, self.protocol()), ..self }
    }
}
