/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the programs and user space agree on besides map layouts (maps.h): the ABI number, hooks, reasons, verdicts,
 * flags. juneau-core mirrors every value here; a test compares the two through the object's BTF.
 */
#pragma once

/*
 * The number in the pin directory's name (`abi-M/`). Raise it when a layout in maps.h, the meaning of a field or a
 * map's type or size changes: programs of another number never share maps with this one.
 */
enum jn_abi { JN_ABI = 3 };

/* Where a packet was seen. Counters and verdicts carry it. */
enum jn_hook {
	JN_HOOK_POD = 0,       /* a Pod's host veth, ingress: everything a Pod sends */
	JN_HOOK_OVERLAY = 1,   /* the underlay device, ingress: our VXLAN */
	JN_HOOK_VXLAN = 2,     /* the VXLAN device, ingress: what the fast way did not take */
	JN_HOOK_GUARD = 3,     /* reserved: a Pod's host veth, egress */
	JN_HOOK_NODE_PORT = 4, /* the node port, ingress: everything that the node sends to Pods */
	JN_HOOK_CGROUP = 5,    /* the node's cgroup, egress: host sockets */
	JN_HOOK_SOCKET = 6,    /* reserved: translation at the socket */
	JN_HOOK_MAX = 8,
};

/* Why a packet ended where it did. One exit has one reason; docs/drop-reasons.md has a section for each. */
enum jn_reason {
	JN_OK = 0,                    /* delivered (counted by VPC and direction, not here) */
	JN_NO_INTERFACE = 1,          /* the interface has no record */
	JN_MALFORMED = 2,             /* a header is cut short or contradicts the packet's length */
	JN_VLAN = 3,                  /* a VLAN tag where none may be */
	JN_ETHERTYPE = 4,             /* neither IPv4 nor ARP */
	JN_IPV6 = 5,                  /* IPv6 is not forwarded yet */
	JN_SOURCE_MAC = 6,            /* source MAC is not the endpoint's */
	JN_SOURCE_ADDRESS = 7,        /* source address is not the endpoint's */
	JN_ARP_SENDER = 8,            /* ARP sender is not the endpoint */
	JN_ARP_IGNORED = 9,           /* ARP that wants no answer: probe of the own address, gratuitous, a reply */
	JN_ARP_UNKNOWN = 10,          /* ARP for an address that nobody holds */
	JN_ARP_ANSWERED = 11,         /* ARP request answered */
	JN_DESTINATION = 12,          /* multicast, broadcast, 0/8, 127/8, 169.254/16, 240/4 */
	JN_IP_OPTIONS = 13,           /* IPv4 options */
	JN_POLICY_NOT_READY = 14,     /* an endpoint of this node whose policy is not programmed: closed */
	JN_POLICY_EGRESS = 15,        /* refused by the sender's policy */
	JN_POLICY_INGRESS = 16,       /* refused by the receiver's policy */
	JN_NO_ROUTE = 17,             /* the route table has no route */
	JN_ROUTE_UNREACHABLE = 18,    /* the route's target does not exist */
	JN_NO_ENDPOINT = 19,          /* no endpoint holds the address */
	JN_GATEWAY = 20,              /* addressed to the Subnet's gateway itself */
	JN_TTL_EXCEEDED = 21,         /* TTL ran out where we route */
	JN_FRAGMENTATION_NEEDED = 22, /* larger than the path's MTU with DF set */
	JN_FRAGMENT_NO_FIRST = 23,    /* a later fragment whose first was not seen */
	JN_FRAGMENT_MAP_FULL = 24,    /* no room to remember a first fragment */
	JN_TCP_FLAGS = 25,            /* a combination of TCP flags that no stack sends */
	JN_ICMP_TYPE = 26,            /* an ICMP type that is not forwarded */
	JN_ICMP_QUOTE = 27,           /* an ICMP error whose quote is cut short, a fragment, or an ICMP error */
	JN_ICMP_NO_FLOW = 28,         /* an ICMP error about a flow that does not exist */
	JN_QUOTA_FLOWS = 29,          /* the VPC's quota of flows is used up */
	JN_QUOTA_EMBRYONIC = 30,      /* the VPC's quota of unanswered flows is used up */
	JN_FLOW_MAP_FULL = 31,        /* the node's flow table is full */
	JN_VTEP_UNKNOWN = 32,         /* VXLAN from an address that is no node of ours */
	JN_VNI_UNKNOWN = 33,          /* VXLAN for a Subnet that has no endpoint here */
	JN_VXLAN_HEADER = 34,         /* addressed to our VTEP and port, but not a VXLAN packet of ours */
	JN_OVERLAY_DESTINATION = 35,  /* no endpoint here has the inner destination MAC, or not that address */
	JN_ECN = 36,                  /* congestion mark on the outer header of a packet that cannot carry it (RFC 6040) */
	JN_ENCAPSULATION = 37,        /* the kernel refused to encapsulate, fast and slow */
	JN_DECAPSULATION = 38,        /* the kernel refused to decapsulate */
	JN_MISSED_TAIL_CALL = 39,     /* a stage's program is missing */
	JN_NO_CONTEXT = 40,           /* a per-CPU or configuration element is missing: broken installation */
	JN_VXLAN_INJECTION = 41,      /* a host socket wrote to the overlay's port */
	JN_PMTU_UPDATE = 42,          /* an ICMP 3/4 of the underlay about our tunnel, taken in (also passed on) */
	JN_NODE_SOURCE = 43,          /* at the node port, from an address that is none of the node's */
	JN_SERVICE_UNKNOWN = 44,      /* an address for Services that no Service has */
	JN_SERVICE_PORT = 45,         /* the Service has no such port */
	JN_SERVICE_EMPTY = 46,        /* the Service's port has no endpoints */
	JN_SERVICE_NOT_LOCAL = 47,    /* the Service's port has no endpoints on this node, and takes no others */
	JN_SERVICE_GONE = 48,         /* the endpoint, or the Service, of a connection that goes on is gone */
	JN_NAT_PORTS = 49,            /* no port is free for translation */
	JN_SERVICE_CHANGING = 50,     /* a Service's tables changed while they were read */
	JN_REASON_MAX = 64,
};

/* What happens to the packet. */
enum jn_action {
	JN_ACT_NONE = 0,   /* not decided: never leaves a program */
	JN_ACT_PASS = 1,   /* not ours: the next program or the stack */
	JN_ACT_DROP = 2,
	JN_ACT_PEER = 3,   /* into the Pod behind `ifindex` */
	JN_ACT_ENCAP = 4,  /* encapsulated here, to `vtep` with `vni` */
	JN_ACT_DEVICE = 5, /* by the VXLAN device, to `vtep` with `vni` */
	JN_ACT_ANSWER = 6, /* rewritten to an answer, back to where it came from, behind `ifindex` */
	JN_ACT_NODE = 7,   /* into the stack of this node, through its node port `ifindex` */
};

/* jn_interface.kind, jn_endpoint.kind */
enum jn_endpoint_kind {
	JN_KIND_NONE = 0,
	JN_KIND_POD = 1,
	JN_KIND_NODE = 2,        /* an address of a node */
	JN_KIND_SERVICE_NAT = 3, /* reserved */
};

/* jn_interface.flags, jn_endpoint.flags */
enum jn_endpoint_flag {
	JN_EP_POLICY_READY = 1, /* policy is programmed; unset = closed */
	JN_EP_ROUTER = 2,       /* next hop of an endpoint route: may send from and receive for other addresses */
	JN_EP_LOCAL = 4,        /* attached to this node (endpoints only) */
	/* Its policy has rules for every peer, protocol and port alone: narrower ones are not looked for. */
	JN_EP_EGRESS_ANY = 8,
	JN_EP_INGRESS_ANY = 16,
	/* An address of a node. Policy asks nothing of it and, of the own node, nothing about it. */
	JN_EP_NODE = 32,
};

/* jn_route.kind */
enum jn_route_kind {
	JN_ROUTE_NONE = 0,
	JN_ROUTE_CONNECTED = 1,   /* the destination's own Subnet: `vni` */
	JN_ROUTE_ENDPOINT = 2,    /* a Pod as next hop: `next_hop` */
	JN_ROUTE_TARGET_GONE = 3, /* the target does not exist: unreachable */
	JN_ROUTE_SERVICE = 4,     /* addresses for Services: jn_frontends */
};

/* jn_policy_key.direction */
enum jn_direction { JN_EGRESS = 0, JN_INGRESS = 1 };

/* jn_policy.action */
enum jn_policy_action { JN_POLICY_NONE = 0, JN_POLICY_ALLOW = 1, JN_POLICY_DENY = 2 };

/* Identities with a meaning of their own. */
enum jn_identity {
	JN_IDENTITY_UNKNOWN = 0, /* closed */
	JN_IDENTITY_ANY = -1,    /* in a policy key: every peer (0xffffffff) */
};

/* The two bits and the protocol beside the 24 bits of a scope in jn_flow_key.scope. */
enum jn_scope {
	JN_SCOPE_MASK = 0x00ffffff,
	JN_SCOPE_OVERLAY = 0x01000000, /* the 24 bits are a VNI: as it arrives from another node */
	JN_SCOPE_TRANSIT = 0x02000000, /* the 24 bits are a router endpoint's ifindex */
	JN_SCOPE_PROTO_SHIFT = 26,     /* six bits: jn_proto */
};

/* The protocol in six bits. Protocols without a number of their own share JN_PROTO_OTHER, with the IP protocol in
 * both ports of the key. */
enum jn_proto { JN_PROTO_ICMP = 1, JN_PROTO_TCP = 2, JN_PROTO_UDP = 3, JN_PROTO_SCTP = 4, JN_PROTO_OTHER = 63 };

/* jn_flow.kind */
enum jn_egress {
	JN_EGRESS_UNRESOLVED = 0, /* the flow's first packet in this direction finds the way */
	JN_EGRESS_PEER = 1,
	JN_EGRESS_ENCAP = 2,
	JN_EGRESS_NODE = 3,       /* into the stack of this node */
};

/* jn_flow.flags: TCP flags seen by this entry in bits 0-7, by its peer in bits 8-15. */
enum jn_flow_flag {
	JN_FLOW_EMBRYONIC = 1 << 16, /* not answered yet; set on both entries, cleared by the first answer */
	JN_FLOW_REPLY = 1 << 17,     /* this entry is the answering direction */
	JN_FLOW_SINGLE = 1 << 18,    /* has no peer entry (through a router) */
	JN_FLOW_NAT = 1 << 19,       /* translated: leaves as the peer key turned round */
};

/* jn_flow.rewrite: what a translation changes. */
enum jn_rewrite {
	JN_REWRITE_SOURCE = 1,
	JN_REWRITE_SOURCE_PORT = 2,
	JN_REWRITE_DESTINATION = 4,
	JN_REWRITE_DESTINATION_PORT = 8,
};

/* jn_frontend.flags */
enum jn_frontend_flag {
	JN_FRONTEND_ADDRESS = 1,    /* stands for the address itself (port and protocol 0), whatever its ports */
	JN_FRONTEND_LOCAL_ONLY = 2, /* without backends: none on this node, and no others are taken. Drop, not reject */
};

/* jn_backend.kind */
enum jn_backend_kind {
	JN_BACKEND_NONE = 0,
	JN_BACKEND_ENDPOINT = 1, /* an endpoint of the VPC */
};

/* jn_backend.flags */
enum jn_backend_flag {
	JN_BACKEND_SERVING = 1, /* unset: established TCP connections alone */
	JN_BACKEND_CHOSEN = 2,  /* new connections choose among these */
};

/* Indices into jn_generations: each space lies in one array. A slot shared by two objects costs a second decision,
 * never a wrong one. */
enum jn_generation_space {
	JN_GEN_NODE = 0,           /* the node's own start */
	JN_GEN_NO_VTEP = 1,        /* a flow that stays on this node */
	JN_GEN_VTEP = 0x1000,      /* + hash(VTEP) & 0xfff */
	JN_GEN_TABLE = 0x8000,     /* + table id & 0x7fff */
	JN_GEN_ENDPOINT = 0x10000, /* + hash(VPC, address) & 0xffff */
	JN_GEN_MAX = 0x20000,
};

/* Slots of the program array. */
enum jn_tail {
	JN_TAIL_POD_ARP = 0,
	JN_TAIL_POD_ICMP = 1,     /* ICMP errors that a Pod sends */
	JN_TAIL_POD_FRAGMENT = 2,
	JN_TAIL_POD_DECIDE = 3,   /* service, route, deliver, policy */
	JN_TAIL_POD_REJECT = 4,   /* answers with an ICMP error or an RST */
	JN_TAIL_OVERLAY_OTHER = 5,    /* ICMP errors and fragments in the overlay, of both its hooks */
	JN_TAIL_OVERLAY_DECIDE = 6,   /* of both its hooks */
	JN_TAIL_OVERLAY_UNDERLAY = 7, /* ICMP errors of the underlay itself */
	JN_TAIL_POD_COMMIT = 8,   /* commit, emit */
	JN_TAIL_MAX = 16,
};

/* Why a packet left by the VXLAN device: index of jn_devices. */
enum jn_device_cause {
	JN_DEVICE_REFUSED = 0, /* the kernel refused to make room */
	JN_DEVICE_MTU = 1,     /* above the MTU, without DF: the stack cuts it */
	JN_DEVICE_LENGTH = 2,  /* the outer length would exceed 65535 */
	JN_DEVICE_MAX = 4,
};

/* jn_event.kind */
enum jn_event_kind { JN_EVENT_DROP = 1, JN_EVENT_FLOW_OPEN = 2 };

/* Steps of an explanation, in jn_step.stage. */
enum jn_stage {
	JN_STAGE_PARSE = 1,
	JN_STAGE_FLOW = 2,
	JN_STAGE_POLICY = 3,
	JN_STAGE_ROUTE = 4,
	JN_STAGE_DELIVER = 5,
	JN_STAGE_COMMIT = 6,
	JN_STAGE_EMIT = 7,
	JN_STAGE_SERVICE = 8,
};

/* Flow directions of jn_traffic counters: {VPC index * 2 + direction}. */
enum jn_traffic_direction { JN_FROM_POD = 0, JN_FROM_OVERLAY = 1 };

/* Limits that both sides rely on. */
enum jn_limit {
	JN_FRAGMENT_SLOTS = 256,     /* per scope */
	JN_FRAGMENT_SECONDS = 15,
	JN_PMTU_SECONDS = 600,
	JN_PMTU_FLOOR = 626,         /* outer bytes: 576 inside */
	JN_ENCAP_OVERHEAD = 50,      /* Ethernet 14, IPv4 20, UDP 8, VXLAN 8 */
	JN_QUOTE_L4_MAX = 28,        /* bytes of layer 4 quoted in an ICMP error */
	JN_INTERFACES = 8192,        /* ifindexes below this lie in an array, others in a hash */
	JN_TRAIL_STEPS = 64,         /* elements of jn_trail */
	JN_SLOTS = 16,               /* backend ids in an element of jn_slots */
	JN_NAT_TRIES = 64,           /* ports that are tried for a translation */
	JN_NAT_PORT_FIRST = 1024,    /* the ports of a translation, to 65535 */
};
