//! The numbers of `abi.h` besides hooks, reasons and actions (those are in [`crate::verdict`]).

/// An enumerator of `abi.h` or `maps.h`: its C name and its value. A test holds the list against the object's BTF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Enumerator {
    /// The name in C.
    pub name: &'static str,
    /// The value.
    pub value: i64,
}

macro_rules! constants {
    ($($(#[$meta:meta])* $name:ident: $type:ty = $value:expr;)*) => {
        $($(#[$meta])* pub const $name: $type = $value;)*

        /// Every constant of this module.
        pub const ENUMERATORS: &[Enumerator] =
            &[$(Enumerator { name: concat!("JN_", stringify!($name)), value: $name as i64 }),*];
    };
}

constants! {
    /// The number in the pin directory's name; it changes with every incompatible change of a layout or a map.
    ABI: u32 = 3;

    /// Hooks that counters are dimensioned for.
    HOOK_MAX: u32 = 8;
    /// Reasons that counters are dimensioned for.
    REASON_MAX: u32 = 64;

    /// `Interface.kind`, `Endpoint.kind`: no record.
    KIND_NONE: u8 = 0;
    /// A Pod's interface.
    KIND_POD: u8 = 1;
    /// A node: its own addresses in the default VPC.
    KIND_NODE: u8 = 2;
    /// Reserved: an address that Services translate to.
    KIND_SERVICE_NAT: u8 = 3;

    /// `Interface.flags`, `Endpoint.flags`: policy is programmed; unset is closed.
    EP_POLICY_READY: u32 = 1;
    /// Next hop of an endpoint route: may send from, and receive for, other addresses.
    EP_ROUTER: u32 = 2;
    /// Attached to this node (endpoints only).
    EP_LOCAL: u32 = 4;
    /// Its egress policy has rules for every peer, protocol and port alone: narrower ones are not looked for.
    EP_EGRESS_ANY: u32 = 8;
    /// The same of its ingress policy.
    EP_INGRESS_ANY: u32 = 16;
    /// An address of a node. Policy asks nothing of it, and where it is local, nothing about it.
    EP_NODE: u32 = 32;

    /// `Route.kind`: no route.
    ROUTE_NONE: u32 = 0;
    /// The destination's own Subnet: `vni`.
    ROUTE_CONNECTED: u32 = 1;
    /// A Pod as next hop: `next_hop`.
    ROUTE_ENDPOINT: u32 = 2;
    /// The route's target does not exist: unreachable.
    ROUTE_TARGET_GONE: u32 = 3;
    /// Addresses for Services: `jn_frontends`.
    ROUTE_SERVICE: u32 = 4;

    /// `PolicyKey.direction`: the sender's policy.
    EGRESS: u8 = 0;
    /// The receiver's policy.
    INGRESS: u8 = 1;

    /// `Policy.action`: no rule.
    POLICY_NONE: u32 = 0;
    /// Allowed.
    POLICY_ALLOW: u32 = 1;
    /// Refused.
    POLICY_DENY: u32 = 2;

    /// `FlowKey.scope`: the bits of the id.
    SCOPE_MASK: u32 = 0x00ff_ffff;
    /// The id is a VNI: the packet as it arrives from another node.
    SCOPE_OVERLAY: u32 = 0x0100_0000;
    /// The id is a router's ifindex.
    SCOPE_TRANSIT: u32 = 0x0200_0000;
    /// Position of the protocol's six bits.
    SCOPE_PROTO_SHIFT: u32 = 26;

    /// The protocol in six bits: ICMP.
    PROTO_ICMP: u32 = 1;
    /// TCP.
    PROTO_TCP: u32 = 2;
    /// UDP.
    PROTO_UDP: u32 = 3;
    /// SCTP.
    PROTO_SCTP: u32 = 4;
    /// Every protocol without a number of its own; both ports of the key are the IP protocol.
    PROTO_OTHER: u32 = 63;

    /// `Flow.kind`: the flow's first packet in this direction finds the way.
    EGRESS_UNRESOLVED: u8 = 0;
    /// Into a Pod of this node.
    EGRESS_PEER: u8 = 1;
    /// To another node.
    EGRESS_ENCAP: u8 = 2;
    /// Into the stack of this node, through its node port.
    EGRESS_NODE: u8 = 3;

    /// `Flow.flags`: not answered yet; set on both entries, cleared by the first answer.
    FLOW_EMBRYONIC: u32 = 1 << 16;
    /// This entry is the answering direction.
    FLOW_REPLY: u32 = 1 << 17;
    /// Has no peer entry (through a router).
    FLOW_SINGLE: u32 = 1 << 18;
    /// Translated: leaves as the peer key turned round.
    FLOW_NAT: u32 = 1 << 19;

    /// `Flow.rewrite`: the source address changes.
    REWRITE_SOURCE: u8 = 1;
    /// The source port.
    REWRITE_SOURCE_PORT: u8 = 2;
    /// The destination address.
    REWRITE_DESTINATION: u8 = 4;
    /// The destination port.
    REWRITE_DESTINATION_PORT: u8 = 8;

    /// `Frontend.flags`: stands for the address itself (port and protocol 0), whatever its ports.
    FRONTEND_ADDRESS: u32 = 1;
    /// Without backends: none on this node, and no others are taken. What is sent there is dropped, not rejected.
    FRONTEND_LOCAL_ONLY: u32 = 2;

    /// `Backend.kind`: no record.
    BACKEND_NONE: u8 = 0;
    /// An endpoint of the VPC.
    BACKEND_ENDPOINT: u8 = 1;

    /// `Backend.flags`: takes new connections; unset, established TCP connections alone.
    BACKEND_SERVING: u8 = 1;
    /// New connections choose among these.
    BACKEND_CHOSEN: u8 = 2;

    /// Index into the generations: the node's own start.
    GEN_NODE: u32 = 0;
    /// A flow that stays on this node.
    GEN_NO_VTEP: u32 = 1;
    /// First slot of VTEPs.
    GEN_VTEP: u32 = 0x1000;
    /// First slot of route tables.
    GEN_TABLE: u32 = 0x8000;
    /// First slot of endpoints.
    GEN_ENDPOINT: u32 = 0x1_0000;
    /// Number of slots.
    GEN_MAX: u32 = 0x2_0000;

    /// Slot of the program array: ARP.
    TAIL_POD_ARP: u32 = 0;
    /// ICMP errors that a Pod sends.
    TAIL_POD_ICMP: u32 = 1;
    /// Fragments that a Pod sends.
    TAIL_POD_FRAGMENT: u32 = 2;
    /// Service, route, deliver and policy of a Pod's packet.
    TAIL_POD_DECIDE: u32 = 3;
    /// Answers with an ICMP error or an RST.
    TAIL_POD_REJECT: u32 = 4;
    /// ICMP errors and fragments in the overlay.
    TAIL_OVERLAY_OTHER: u32 = 5;
    /// A miss in the overlay.
    TAIL_OVERLAY_DECIDE: u32 = 6;
    /// ICMP errors of the underlay itself.
    TAIL_OVERLAY_UNDERLAY: u32 = 7;
    /// Commit and emit of a Pod's packet.
    TAIL_POD_COMMIT: u32 = 8;
    /// Slots of the program array.
    TAIL_MAX: u32 = 16;

    /// Index of `jn_devices`: the kernel refused to make room for our header.
    DEVICE_REFUSED: u32 = 0;
    /// Above the MTU, without DF.
    DEVICE_MTU: u32 = 1;
    /// The outer length would exceed 65535.
    DEVICE_LENGTH: u32 = 2;
    /// Elements of `jn_devices`.
    DEVICE_MAX: u32 = 4;

    /// `Event.kind`: a packet was dropped.
    EVENT_DROP: u32 = 1;
    /// A flow was opened.
    EVENT_FLOW_OPEN: u32 = 2;

    /// `Step.stage`: parse.
    STAGE_PARSE: u32 = 1;
    /// Flow lookup.
    STAGE_FLOW: u32 = 2;
    /// Policy.
    STAGE_POLICY: u32 = 3;
    /// Route.
    STAGE_ROUTE: u32 = 4;
    /// Deliver.
    STAGE_DELIVER: u32 = 5;
    /// Commit.
    STAGE_COMMIT: u32 = 6;
    /// Emit.
    STAGE_EMIT: u32 = 7;
    /// Service.
    STAGE_SERVICE: u32 = 8;

    /// Direction of a traffic counter: what Pods of this node sent.
    FROM_POD: u32 = 0;
    /// What other nodes sent.
    FROM_OVERLAY: u32 = 1;

    /// Fragment slots of a scope.
    FRAGMENT_SLOTS: u32 = 256;
    /// How long a first fragment is remembered, in seconds.
    FRAGMENT_SECONDS: u32 = 15;
    /// How long a learned path MTU is kept, in seconds.
    PMTU_SECONDS: u32 = 600;
    /// Smallest path MTU of the underlay that is believed, in outer bytes.
    PMTU_FLOOR: u32 = 626;
    /// Ethernet 14, IPv4 20, UDP 8, VXLAN 8.
    ENCAP_OVERHEAD: u32 = 50;
    /// Most bytes of layer 4 that an ICMP error quotes.
    QUOTE_L4_MAX: u32 = 28;
    /// Steps of an explanation.
    TRAIL_STEPS: u32 = 64;
    /// Interface indexes below this lie in an array, others in a hash.
    INTERFACES: u32 = 8192;
    /// Backend ids in an element of `jn_slots`.
    SLOTS: u32 = 16;
    /// Ports that are tried for a translation.
    NAT_TRIES: u32 = 64;
    /// The first port of a translation; the last is 65535.
    NAT_PORT_FIRST: u32 = 1024;

    /// `Config.flags`: stamps come from `Hot.clock`.
    CONFIG_TEST_CLOCK: u32 = 1;
    /// The cgroup hook can tell network namespaces apart.
    CONFIG_NETNS_COOKIE: u32 = 2;
    /// `BPF_F_ADJ_ROOM_DECAP_L4_UDP` is known to this kernel.
    CONFIG_DECAP_FLAG: u32 = 4;
}

/// Identity of an endpoint that is not known: closed.
pub const IDENTITY_UNKNOWN: u32 = 0;
/// In a policy key: every peer. (`JN_IDENTITY_ANY` is -1 in C.)
pub const IDENTITY_ANY: u32 = u32::MAX;
