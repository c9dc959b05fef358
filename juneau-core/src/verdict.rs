//! What happens to a packet, and why: the values of `abi.h`.

macro_rules! abi_enum {
    ($(#[$meta:meta])* $name:ident : $repr:ty { $($(#[$vmeta:meta])* $variant:ident = $value:literal, $c:literal, $text:literal;)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[repr($repr)]
        #[non_exhaustive]
        pub enum $name { $($(#[$vmeta])* #[doc = $text] $variant = $value,)* }

        impl $name {
            /// Every value, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The value with this number.
            #[must_use]
            pub const fn from_number(number: u32) -> Option<Self> {
                match number { $($value => Some(Self::$variant),)* _ => None }
            }

            /// The number that both sides of the ABI use.
            #[must_use]
            pub const fn number(self) -> u32 {
                self as u32
            }

            /// The enumerator's name in `abi.h`.
            #[must_use]
            pub const fn c_name(self) -> &'static str {
                match self { $(Self::$variant => $c,)* }
            }

            /// One line for people.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

abi_enum! {
    /// Where a packet was seen (`enum jn_hook`).
    Hook: u32 {
        Pod = 0, "JN_HOOK_POD", "a Pod's host veth, ingress";
        Overlay = 1, "JN_HOOK_OVERLAY", "the underlay device, ingress";
        Vxlan = 2, "JN_HOOK_VXLAN", "the VXLAN device, ingress";
        Guard = 3, "JN_HOOK_GUARD", "a Pod's host veth, egress (reserved)";
        NodePort = 4, "JN_HOOK_NODE_PORT", "the node port, ingress: everything that the node sends to Pods";
        Cgroup = 5, "JN_HOOK_CGROUP", "the node's cgroup, egress";
        Socket = 6, "JN_HOOK_SOCKET", "translation at the socket (reserved)";
    }
}

abi_enum! {
    /// Why a packet ended where it did (`enum jn_reason`).
    Reason: u32 {
        Ok = 0, "JN_OK", "delivered";
        NoInterface = 1, "JN_NO_INTERFACE", "the interface has no record";
        Malformed = 2, "JN_MALFORMED", "a header is cut short or contradicts the packet's length";
        Vlan = 3, "JN_VLAN", "a VLAN tag where none may be";
        Ethertype = 4, "JN_ETHERTYPE", "neither IPv4 nor ARP";
        Ipv6 = 5, "JN_IPV6", "IPv6 is not forwarded yet";
        SourceMac = 6, "JN_SOURCE_MAC", "source MAC is not the endpoint's";
        SourceAddress = 7, "JN_SOURCE_ADDRESS", "source address is not the endpoint's";
        ArpSender = 8, "JN_ARP_SENDER", "ARP sender is not the endpoint";
        ArpIgnored = 9, "JN_ARP_IGNORED", "ARP that wants no answer";
        ArpUnknown = 10, "JN_ARP_UNKNOWN", "ARP for an address that nobody holds";
        ArpAnswered = 11, "JN_ARP_ANSWERED", "ARP request answered";
        Destination = 12, "JN_DESTINATION", "multicast, broadcast, loopback, link-local or reserved destination";
        IpOptions = 13, "JN_IP_OPTIONS", "IPv4 options";
        PolicyNotReady = 14, "JN_POLICY_NOT_READY", "an endpoint of this node whose policy is not programmed";
        PolicyEgress = 15, "JN_POLICY_EGRESS", "refused by the sender's policy";
        PolicyIngress = 16, "JN_POLICY_INGRESS", "refused by the receiver's policy";
        NoRoute = 17, "JN_NO_ROUTE", "the route table has no route";
        RouteUnreachable = 18, "JN_ROUTE_UNREACHABLE", "the route's target does not exist";
        NoEndpoint = 19, "JN_NO_ENDPOINT", "no endpoint holds the address";
        Gateway = 20, "JN_GATEWAY", "addressed to the Subnet's gateway itself";
        TtlExceeded = 21, "JN_TTL_EXCEEDED", "TTL ran out where we route";
        FragmentationNeeded = 22, "JN_FRAGMENTATION_NEEDED", "larger than the path's MTU";
        FragmentNoFirst = 23, "JN_FRAGMENT_NO_FIRST", "a later fragment whose first was not seen";
        FragmentMapFull = 24, "JN_FRAGMENT_MAP_FULL", "no room to remember a first fragment";
        TcpFlags = 25, "JN_TCP_FLAGS", "a combination of TCP flags that no stack sends";
        IcmpType = 26, "JN_ICMP_TYPE", "an ICMP type that is not forwarded";
        IcmpQuote = 27, "JN_ICMP_QUOTE", "an ICMP error with an unusable quote";
        IcmpNoFlow = 28, "JN_ICMP_NO_FLOW", "an ICMP error about a flow that does not exist";
        QuotaFlows = 29, "JN_QUOTA_FLOWS", "the VPC's quota of flows is used up";
        QuotaEmbryonic = 30, "JN_QUOTA_EMBRYONIC", "the VPC's quota of unanswered flows is used up";
        FlowMapFull = 31, "JN_FLOW_MAP_FULL", "the node's flow table is full";
        VtepUnknown = 32, "JN_VTEP_UNKNOWN", "VXLAN from an address that is no node of ours";
        VniUnknown = 33, "JN_VNI_UNKNOWN", "VXLAN for a Subnet that has no endpoint here";
        VxlanHeader = 34, "JN_VXLAN_HEADER", "addressed to our VTEP and port, but no VXLAN packet of ours";
        OverlayDestination = 35, "JN_OVERLAY_DESTINATION", "no endpoint here has the inner destination";
        Ecn = 36, "JN_ECN", "congestion mark on a packet that cannot carry it";
        Encapsulation = 37, "JN_ENCAPSULATION", "the kernel refused to encapsulate";
        Decapsulation = 38, "JN_DECAPSULATION", "the kernel refused to decapsulate";
        MissedTailCall = 39, "JN_MISSED_TAIL_CALL", "a stage's program is missing";
        NoContext = 40, "JN_NO_CONTEXT", "a per-CPU or configuration element is missing";
        VxlanInjection = 41, "JN_VXLAN_INJECTION", "a host socket wrote to the overlay's port";
        PmtuUpdate = 42, "JN_PMTU_UPDATE", "the underlay told a smaller path MTU";
        NodeSource = 43, "JN_NODE_SOURCE", "source address is none of the node's";
        ServiceUnknown = 44, "JN_SERVICE_UNKNOWN", "an address for Services that no Service has";
        ServicePort = 45, "JN_SERVICE_PORT", "the Service has no such port";
        ServiceEmpty = 46, "JN_SERVICE_EMPTY", "the Service's port has no endpoints";
        ServiceNotLocal = 47, "JN_SERVICE_NOT_LOCAL", "the Service's port has no endpoints on this node, and takes no others";
        ServiceGone = 48, "JN_SERVICE_GONE", "the endpoint, or the Service, of a connection that goes on is gone";
        NatPorts = 49, "JN_NAT_PORTS", "no port is free for translation";
        ServiceChanging = 50, "JN_SERVICE_CHANGING", "a Service's tables changed while they were read";
    }
}

abi_enum! {
    /// What happens to the packet (`enum jn_action`).
    Action: u32 {
        None = 0, "JN_ACT_NONE", "not decided";
        Pass = 1, "JN_ACT_PASS", "not ours: the next program or the stack";
        Drop = 2, "JN_ACT_DROP", "dropped";
        Peer = 3, "JN_ACT_PEER", "into a Pod of this node";
        Encap = 4, "JN_ACT_ENCAP", "encapsulated by the program";
        Device = 5, "JN_ACT_DEVICE", "encapsulated by the VXLAN device";
        Answer = 6, "JN_ACT_ANSWER", "rewritten to an answer, back to the sender";
        Node = 7, "JN_ACT_NODE", "into the stack of this node";
    }
}

impl Reason {
    /// The name used in metrics, JSON and the handbook: the C name without prefix, in lower case with hyphens.
    #[must_use]
    pub fn name(self) -> String {
        short(self.c_name(), "JN_")
    }
}

impl Hook {
    /// The name used in metrics, JSON and the handbook.
    #[must_use]
    pub fn name(self) -> String {
        short(self.c_name(), "JN_HOOK_")
    }
}

impl Action {
    /// The name used in JSON and the handbook.
    #[must_use]
    pub fn name(self) -> String {
        short(self.c_name(), "JN_ACT_")
    }
}

fn short(name: &str, prefix: &str) -> String {
    name.strip_prefix(prefix).unwrap_or(name).to_lowercase().replace('_', "-")
}

/// The end of a packet's way through one hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// What happens.
    pub action: Action,
    /// Why.
    pub reason: Reason,
    /// An answer (ARP, ICMP error, RST) leaves in the packet's stead.
    pub answered: bool,
    /// Target interface of [`Action::Peer`], [`Action::Node`] and [`Action::Answer`]; 0 otherwise.
    pub ifindex: u32,
    /// Target node of [`Action::Encap`] and [`Action::Device`]; unspecified otherwise.
    pub vtep: core::net::Ipv4Addr,
    /// VNI of [`Action::Encap`] and [`Action::Device`]; 0 otherwise.
    pub vni: u32,
    /// Decided by the stages of a miss, not by a flow entry alone.
    pub slow: bool,
}

impl Verdict {
    /// The packet goes on as delivered traffic.
    #[must_use]
    pub const fn is_delivered(&self) -> bool {
        matches!(self.action, Action::Peer | Action::Node | Action::Encap | Action::Device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_inverse() {
        for reason in Reason::ALL {
            assert_eq!(Reason::from_number(reason.number()), Some(*reason));
        }
        assert_eq!(Reason::TtlExceeded.name(), "ttl-exceeded");
        assert_eq!(Hook::NodePort.name(), "node-port");
        assert_eq!(Reason::from_number(63), None);
    }
}
