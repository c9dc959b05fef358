/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the programs of one packet hand to each other. It lies in a per-CPU element: two flow records do not fit the
 * stack, and a tail call keeps nothing else.
 */
#pragma once
#include "access.h"

enum jn_packet_flag {
	JN_PACKET_DF = 1,
	JN_PACKET_GSO = 2,
	JN_PACKET_FIRST = 4,      /* a fragment with offset 0 */
	JN_PACKET_LATER = 8,      /* a fragment with another offset */
	JN_PACKET_ICMP_ERROR = 16,
	JN_PACKET_TRANSIT = 32,   /* a router's, for another source */
	JN_PACKET_CE = 64,        /* the outer header is marked: the inner is to be */
};

/* A flow key that is built and hashed by words: narrower stores would stall the loads. */
union jn_key_words {
	struct jn_flow_key key;
	__u64 word[2];
};

/* A packet as parsed. */
struct jn_packet {
	union jn_key_words key; /* as it arrived */
	__u32 frame;            /* frame bytes */
	__u32 size;             /* what is compared with an MTU */
	__u32 l4_length;
	__u32 vni;              /* overlay */
	__be32 vtep;            /* overlay: the outer source */
	__u32 flags;            /* jn_packet_flag */
	__be16 id;
	__u8 protocol;
	__u8 tos;
	__u8 ttl;
	__u8 tcp_flags;
	__u32 macs[3];          /* overlay: destination and source as sent */
};

/* What a packet goes as. Without a translation that is its key. */
struct jn_bound {
	__be32 source;
	__be32 destination;
	__be16 source_port;             /* or the first that is tried */
	__be16 destination_port;
	__u32 backend;                  /* id; 0: none */
};

struct jn_context {
	struct jn_verdict verdict;      /* first: user space reads it */
	__u32 steps;                    /* behind it: the length of the trail */
	__u32 vpc;
	struct jn_packet packet;
	struct jn_flow flow;            /* what emit goes by; a hit fills the first 64 bytes only */
	struct jn_flow reverse;
	struct jn_flow old;             /* the record found on a miss */
	union jn_key_words reverse_key;
	struct jn_flow_key original;    /* the tuple of the direction that opened the flow */
	struct jn_endpoint target;      /* where the route leads */
	struct jn_endpoint other;       /* an endpoint that policy asks about */
	struct jn_endpoint receiver;    /* overlay: who has the inner destination MAC */
	struct jn_segment segment;      /* overlay: the VNI's */
	__be32 receiver_address;
	struct jn_bound bound;          /* what the packet's flow is translated to */
	struct jn_route route;          /* of the destination that was looked up last */
	struct jn_frontend frontend;    /* the Service's */
	struct jn_backend backend;
	/* Kept here, and not in registers, so that the verifier does not walk on from each of their values. */
	__u32 connected;                /* the route is the destination's own Subnet's */
	__u32 routed;                   /* a translation changes an address */
	__u32 reply;                    /* the packet is of the answering direction */
	__u32 commit;                   /* enum jn_commits: what is left to do */
	__u32 committed;                /* what the last try to commit came to */
	__u32 opened;                   /* it opened a flow */
	__be16 first_port;              /* for the answers, before others are tried */
	__be16 zero;
	__u32 found;                    /* enum jn_found */
	__u32 odd;                      /* a generation read was odd */
	__u32 epoch;                    /* as read before the generations */
	__u32 mtu;                      /* of FRAGMENTATION_NEEDED */
	__u8 quote[64];                 /* of an ICMP error */
};

enum jn_commits {
	JN_COMMIT_NONE = 0, /* the record holds */
	JN_COMMIT_ONE = 1,  /* this direction alone */
	JN_COMMIT_PAIR = 2,
};

enum jn_found {
	JN_FOUND_NONE = 0,
	JN_FOUND_STALE = 1,
	JN_FOUND_CURRENT = 2,
	JN_FOUND_REUSED = 3, /* a new connection takes the ports */
	JN_FOUND_UNREAD = 4, /* the hook's program leaves it to the next one to look */
};

/* Bytes in front of the inner Ethernet header at the hook OVERLAY. */
enum { JN_OUTER = 50 };
