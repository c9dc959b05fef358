/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Layouts of every map that programs and user space share. This file is the authority; juneau-core::layout mirrors it
 * by hand and a test compares the two field by field through the object's BTF.
 *
 * Rules: addresses and ports in wire order (__be32, __be16), ids in host order; every padding byte is a field named
 * `zero*` and is zero; a change here needs a new JN_ABI.
 */
#pragma once
#include "kernel.h"
#include "abi.h"

/* ---- configuration of one load (read-only data) and the hot line (shared) ---- */

struct jn_config {
	__u32 abi;
	__u32 dry_run;          /* 1: explain; nothing shared is written */
	__be32 vtep;            /* this node's address on the underlay */
	__u32 underlay_ifindex;
	__u32 vxlan_ifindex;    /* the slow way's device */
	__be16 vxlan_port;
	__u16 vpc_capacity;     /* elements of jn_vpcs */
	__u32 hz;               /* jiffies per second */
	__u32 flags;            /* JN_CONFIG_* */
	__u64 seed1, seed2;     /* of the flow hash; the same in every load that shares flows */
	__u64 netns_cookie;     /* of the node's network namespace, with JN_CONFIG_NETNS_COOKIE */
};
enum jn_config_flag {
	JN_CONFIG_TEST_CLOCK = 1,   /* stamps come from jn_hot.clock */
	JN_CONFIG_NETNS_COOKIE = 2, /* the cgroup hook can tell namespaces apart */
	JN_CONFIG_DECAP_FLAG = 4,   /* BPF_F_ADJ_ROOM_DECAP_L4_UDP is known to this kernel */
};

struct jn_hot {
	__u32 epoch;   /* moves after any generation moved */
	__u32 events;  /* bit mask: 1 << jn_event_kind */
	__u32 clock;   /* stamp for JN_CONFIG_TEST_CLOCK */
	__u32 sample;  /* drops are sampled: those whose random number has none of these bits */
	__u32 zero[12];
};

/* ---- what was decided: written by the agent, read by programs ---- */

/* jn_interfaces: ARRAY by ifindex below JN_INTERFACES; jn_interfaces_high: HASH for the others. */
struct jn_interface {
	__u32 vpc;
	__u32 vni;
	__u32 table;
	__u32 flags;           /* JN_EP_* */
	__be32 address;
	__be32 gateway;
	__u8 mac[6];           /* the Pod's */
	__u8 gateway_mac[6];
	__u16 mtu;
	__u16 vpc_index;
	__u8 kind;             /* jn_endpoint_kind; 0 = no record */
	__u8 prefix_length;
	__u16 zero1;
	__u32 identity;
	__u32 policy;          /* generation of the policy tables */
	__u32 generation;      /* slot in jn_generations, for user space: programs compute it */
	__u32 pod;             /* the same for all NICs of one Pod; 0 = unknown */
	__u32 zero2;
};

struct jn_endpoint_key {
	__u32 vpc;
	__be32 address;
};
struct jn_endpoint {
	__u32 flags;           /* JN_EP_* */
	__u32 ifindex;         /* 0: on another node */
	__be32 vtep;           /* 0: on this node */
	__u32 vni;
	__u8 mac[6];
	__u8 gateway_mac[6];
	__u16 mtu;
	__u8 kind;
	__u8 zero1;
	__u32 identity;
	__u32 policy;
	__u32 generation;
	__u32 table;
	__u32 pod;             /* the same for all NICs of one Pod; 0 = unknown */
	__u32 zero2;
};

/* Overlay delivery: by VNI and inner destination MAC, endpoints of this node only. */
struct jn_mac_key {
	__u32 vni;
	__u8 mac[6];
	__u16 zero;
};
struct jn_mac {
	__be32 address;
	__u32 ifindex;
};

/* Subnets that have an endpoint on this node, by VNI. */
struct jn_segment {
	__u32 vpc;
	__u16 vpc_index;
	__u16 mtu;
	__be32 gateway;
	__u8 gateway_mac[6];
	__u8 prefix_length;
	__u8 zero;
	__u32 table;
};

/* LPM: prefix_length counts the 32 bits of the table, too. */
struct jn_route_key {
	__u32 prefix_length;
	__u32 table;
	__be32 address;
};
struct jn_route {
	__u32 kind;            /* jn_route_kind */
	__u32 vni;             /* connected */
	__be32 next_hop;       /* endpoint */
	__u32 zero;
};

/* Other nodes, by VTEP address. */
struct jn_vtep {
	__be32 next_hop;       /* the VTEP itself, or the router towards it */
	__u16 mtu;             /* of the underlay towards it, outer bytes */
	__u16 zero;
};

struct jn_policy_key {
	__u32 identity;        /* whose policy */
	__u32 policy;          /* generation of the tables */
	__u32 peer;            /* identity, or JN_IDENTITY_ANY */
	__u8 direction;        /* jn_direction */
	__u8 protocol;         /* IP protocol, 0 = any */
	__be16 port;           /* destination port, 0 = any */
};
struct jn_policy {
	__u32 action;          /* jn_policy_action */
	__u32 rule;            /* for events and explain */
};

/* By VPC index: a number of this node's own, for counters and quotas. */
struct jn_vpc {
	__u32 vpc;             /* 0 = free */
	__u32 flow_limit;      /* connections, both states */
	__u32 embryonic_limit; /* connections that were not answered yet */
	__u32 icmp_limit;      /* answers by ICMP error and RST per stamp unit (256 jiffies) */
};

/*
 * jn_frontends: where a Service is met, by the scope of who asks. Elements of this HASH are recycled under a reader, so
 * it takes tag_last, copies, and takes tag: both equal, with the hash of the key, or it reads again.
 */
struct jn_frontend_key {
	__u32 scope;           /* the VPC of who asks */
	__be32 address;
	__be16 port;           /* 0: the address itself */
	__u8 protocol;         /* IP protocol; 0: the address itself */
	__u8 zero;
};
struct jn_frontend {
	__u64 tag;             /* hash of the key (high 32 bits), of the rest (low) */
	__u32 base;            /* first slot: an element of jn_slots times JN_SLOTS */
	__u32 size;            /* slots; 0: no backends */
	__u32 service;         /* the Service port's number on this node */
	__u32 flags;           /* JN_FRONTEND_* */
	__u32 affinity;        /* seconds that a client stays with its backend; 0: each connection for itself */
	__u32 owner;           /* the VPC of the backends */
	__u32 zero[6];
	__u64 tag_last;
};

/* jn_slots: ids of backends, chosen by hash. A range is written before a frontend points at it. */
struct jn_slots {
	__u32 backend[JN_SLOTS];
};

/*
 * jn_backends by id, from 1. An id belongs to one Service port. Written upwards in place: a reader takes tag_last,
 * copies, and takes tag, and the record must be of the Service port that led to it.
 */
struct jn_backend {
	__u32 tag;             /* of the rest; 0: no record */
	__u32 service;         /* jn_frontend.service */
	__be32 address;
	__be16 port;
	__u8 kind;             /* jn_backend_kind */
	__u8 flags;            /* JN_BACKEND_* */
	__u32 vpc;             /* scope of the address */
	__u32 zero[2];
	__u32 tag_last;
};

/* ---- state: written by programs ---- */

/* Which backend a client stays with (`sessionAffinity: ClientIP`), by Service port and by the scope of who asks. */
struct jn_affinity_key {
	__u32 service;         /* jn_frontend.service */
	__u32 scope;
	__be32 client;
};
struct jn_affinity {
	__u32 backend;         /* id */
	__u32 expires;         /* stamp */
};

struct jn_vpc_state {
	__s64 flows;           /* connections, both states */
	__s64 embryonic;
	__u32 icmp_stamp;
	__u32 icmp_used;
};

struct jn_flow_key {
	__u32 scope;           /* id, JN_SCOPE_* bits, protocol */
	__be32 source;
	__be32 destination;
	__be16 source_port;    /* ICMP echo: the identifier, in both ports */
	__be16 destination_port;
};
/* The form for IPv6, not programmed yet. */
struct jn_flow6_key {
	__u32 scope;
	__u8 source[16];
	__u8 destination[16];
	__be16 source_port;
	__be16 destination_port;
};
struct jn_endpoint6_key {
	__u32 vpc;
	__u8 address[16];
};
struct jn_route6_key {
	__u32 prefix_length;
	__u32 table;
	__u8 address[16];
};

/*
 * One direction of a connection. Bytes 0-63 are all that a hit needs. Readers take `tag_last`, copy, then `tag`:
 * both equal, with the hash of the key looked up, or it is a miss. What lies behind is read before a second look at
 * `tag`. Only `flags`, `stamp` and the epoch word change in place.
 */
struct jn_flow {
	__u64 tag;             /* hash of the key (high 32 bits), birth (low) */
	__u32 epoch;           /* one word with tag_low for cmpxchg */
	__u32 tag_low;
	__u32 ifindex;         /* JN_EGRESS_PEER; for ENCAP the next hop, wire order */
	__be32 vtep;           /* to (ENCAP), or from (overlay scope) */
	__u32 vni;
	__u16 mtu;             /* inner bytes */
	__be16 outer_port;     /* source port of the outer UDP header */
	__u8 dmac[6];
	__u8 smac[6];
	__u8 kind;             /* jn_egress */
	__u8 ttl_decrement;
	__u16 vpc_index;
	__u32 stamp;           /* jiffies >> 8 */
	__u32 flags;           /* JN_FLOW_*, TCP flags */
	__u64 tag_last;
	__u32 generation[4];   /* slots: source endpoint, destination endpoint (a translated flow's backend), route table,
	                        * VTEP */
	__u32 value[5];        /* their values, and JN_GEN_NODE's */
	/* With JN_FLOW_NAT. The differences are one's complement sums of words in wire order. */
	__u8 rewrite;          /* JN_REWRITE_* */
	__u8 zero1;
	__u16 address_difference;
	__u16 port_difference;
	__u16 zero2;
	__u32 backend;         /* id; 0: none */
	struct jn_flow_key peer; /* key of the other direction; equal to the own key with JN_FLOW_SINGLE */
};

struct jn_fragment_key {
	__u32 scope;           /* as in jn_flow_key, without protocol */
	__u32 slot;            /* hash(addresses, id, protocol) % JN_FRAGMENT_SLOTS */
};
struct jn_fragment {
	__u32 scope;
	__be32 source;
	__be32 destination;
	__be16 id;
	__u8 protocol;
	__u8 zero1;
	__be16 source_port;
	__be16 destination_port;
	__u32 stamp;
};

/* Path MTU of the underlay towards a VTEP, learned from ICMP 3/4. */
struct jn_pmtu {
	__u32 mtu;             /* outer bytes */
	__u32 expires;         /* stamp */
};

/* Delivered packets: per-CPU, by VPC index * 2 + jn_traffic_direction. */
struct jn_traffic {
	__u64 packets;
	__u64 bytes;
};

/* jn_devices: per-CPU u64 by jn_device_cause. */
/* jn_counters, every other exit: per-CPU u64 at ((hook * JN_REASON_MAX) + reason) * 2 + answered. */

struct jn_event {
	__u64 time;            /* ns, CLOCK_MONOTONIC */
	__u32 kind;            /* jn_event_kind */
	__u32 hook;
	__u32 reason;
	__u32 ifindex;
	struct jn_flow_key key;
	__u32 vpc;
	__u32 length;
};

/* ---- of one load: context, verdict, explanation ---- */

struct jn_verdict {
	__u32 action;          /* jn_action */
	__u32 reason;
	__u32 answered;        /* 1: an answer leaves in the packet's stead */
	__u32 ifindex;
	__be32 vtep;
	__u32 vni;
	__u32 hook;
	__u32 slow;            /* 1: decided by the stages of a miss */
};

struct jn_step {
	__u32 stage;
	__u32 code;            /* a value of the stage: reason, route kind, egress kind … */
	__u32 a, b, c, d;      /* what was looked up and found */
};
