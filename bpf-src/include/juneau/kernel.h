/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the programs need of the kernel's user-space interface: integer types, __sk_buff, helper arguments, packet
 * headers, constants. Written by hand so that a build needs no kernel headers; the interface never changes
 * incompatibly, and a test compares the sizes with the running kernel's BTF.
 */
#pragma once

typedef signed char __s8;
typedef unsigned char __u8;
typedef signed short __s16;
typedef unsigned short __u16;
typedef signed int __s32;
typedef unsigned int __u32;
typedef signed long long __s64;
typedef unsigned long long __u64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u16 __sum16;
typedef __u32 __wsum;

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PROG_ARRAY = 3,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LPM_TRIE = 11,
	BPF_MAP_TYPE_RINGBUF = 27,
};

/* Flags of a map and of an update. */
enum {
	BPF_F_NO_PREALLOC = 1 << 0,
	BPF_F_MMAPABLE = 1 << 10,
};
enum { BPF_ANY = 0, BPF_NOEXIST = 1 };

/* Return values of a TC program. UNSPEC is "next program" for TCX and "next filter" for clsact. */
enum { TC_ACT_UNSPEC = -1, TC_ACT_OK = 0, TC_ACT_SHOT = 2 };

/* __sk_buff.pkt_type */
enum { PACKET_HOST = 0 };

struct __sk_buff {
	__u32 len;
	__u32 pkt_type;
	__u32 mark;
	__u32 queue_mapping;
	__u32 protocol;
	__u32 vlan_present;
	__u32 vlan_tci;
	__u32 vlan_proto;
	__u32 priority;
	__u32 ingress_ifindex;
	__u32 ifindex;
	__u32 tc_index;
	__u32 cb[5];
	__u32 hash;
	__u32 tc_classid;
	__u32 data;
	__u32 data_end;
	__u32 napi_id;
	__u32 family;
	__u32 remote_ip4;
	__u32 local_ip4;
	__u32 remote_ip6[4];
	__u32 local_ip6[4];
	__u32 remote_port;
	__u32 local_port;
	__u32 data_meta;
	__u64 flow_keys;
	__u64 tstamp;
	__u32 wire_len;
	__u32 gso_segs;
	__u64 sk;
	__u32 gso_size;
	__u32 tstamp_type;
	__u64 hwtstamp;
};

/* The part up to the local address: the size that every kernel since 5.10 takes. */
struct bpf_tunnel_key {
	__u32 tunnel_id;
	union {
		__u32 remote_ipv4; /* host order */
		__u32 remote_ipv6[4];
	};
	__u8 tunnel_tos;
	__u8 tunnel_ttl;
	__u16 tunnel_ext;
	__u32 tunnel_label;
};
_Static_assert(sizeof(struct bpf_tunnel_key) == 28, "the short form of the tunnel key");

struct bpf_redir_neigh {
	__u32 nh_family;
	union {
		__be32 ipv4_nh;
		__u32 ipv6_nh[4];
	};
};

enum { AF_INET = 2 };

/* bpf_skb_set_tunnel_key */
enum {
	BPF_F_ZERO_CSUM_TX = 1 << 1,
	BPF_F_DONT_FRAGMENT = 1 << 2,
};

/* bpf_skb_adjust_room */
enum { BPF_ADJ_ROOM_MAC = 1 };
#define BPF_F_ADJ_ROOM_FIXED_GSO (1ULL << 0)
#define BPF_F_ADJ_ROOM_ENCAP_L3_IPV4 (1ULL << 1)
#define BPF_F_ADJ_ROOM_ENCAP_L4_UDP (1ULL << 4)
#define BPF_F_ADJ_ROOM_NO_CSUM_RESET (1ULL << 5)
#define BPF_F_ADJ_ROOM_ENCAP_L2_ETH (1ULL << 6)
#define BPF_F_ADJ_ROOM_DECAP_L4_UDP (1ULL << 10)
#define BPF_F_ADJ_ROOM_ENCAP_L2(length) ((__u64)(length) << 56)

/* bpf_csum_level */
enum { BPF_CSUM_LEVEL_DEC = 2 };

enum {
	ETH_P_IP = 0x0800,
	ETH_P_ARP = 0x0806,
	ETH_P_8021Q = 0x8100,
	ETH_P_IPV6 = 0x86dd,
	ETH_P_8021AD = 0x88a8,
};

enum { IPPROTO_ICMP = 1, IPPROTO_TCP = 6, IPPROTO_UDP = 17, IPPROTO_SCTP = 132 };

/* Flags of bpf_l4_csum_replace(). */
enum { BPF_F_PSEUDO_HDR = 1 << 4, BPF_F_MARK_MANGLED_0 = 1 << 5 };

enum {
	IP_DF = 0x4000,
	IP_MF = 0x2000,
	IP_OFFSET = 0x1fff,
};

enum {
	TCP_FIN = 0x01,
	TCP_SYN = 0x02,
	TCP_RST = 0x04,
	TCP_ACK = 0x10,
};

enum {
	ICMP_ECHO_REPLY = 0,
	ICMP_UNREACHABLE = 3,
	ICMP_ECHO = 8,
	ICMP_TIME_EXCEEDED = 11,
	ICMP_PARAMETER_PROBLEM = 12,
};
/* Codes of ICMP_UNREACHABLE. */
enum {
	ICMP_UNREACHABLE_NET = 0,
	ICMP_UNREACHABLE_HOST = 1,
	ICMP_UNREACHABLE_PORT = 3,
	ICMP_FRAGMENTATION_NEEDED = 4,
	ICMP_PROHIBITED = 13,
};

enum { ECN_MASK = 3, ECN_CE = 3 };

struct jn_ethernet {
	__u8 destination[6];
	__u8 source[6];
	__be16 type;
};

struct jn_ipv4 {
	__u8 version_length; /* version, and header length in 32-bit words */
	__u8 tos;
	__be16 length;
	__be16 id;
	__be16 fragment; /* IP_DF, IP_MF, IP_OFFSET */
	__u8 ttl;
	__u8 protocol;
	__sum16 check;
	__be32 source;
	__be32 destination;
};

struct jn_tcp {
	__be16 source;
	__be16 destination;
	__be32 sequence;
	__be32 acknowledgement;
	__u8 offset; /* header length in 32-bit words, in the high four bits */
	__u8 flags;
	__be16 window;
	__sum16 check;
	__be16 urgent;
};

struct jn_udp {
	__be16 source;
	__be16 destination;
	__be16 length;
	__sum16 check;
};

struct jn_icmp {
	__u8 type;
	__u8 code;
	__sum16 check;
	__be16 id;  /* echo */
	__be16 mtu; /* FRAGMENTATION_NEEDED; of echo the sequence */
};

struct jn_arp {
	__be16 hardware;
	__be16 protocol;
	__u8 hardware_length;
	__u8 protocol_length;
	__be16 operation;
	__u8 sender_mac[6];
	__be32 sender;
	__u8 target_mac[6];
	__be32 target;
} __attribute__((packed));

struct jn_vxlan_header {
	__be32 flags;
	__be32 vni; /* in the high 24 bits */
};

_Static_assert(sizeof(struct jn_ethernet) == 14, "Ethernet");
_Static_assert(sizeof(struct jn_ipv4) == 20, "IPv4");
_Static_assert(sizeof(struct jn_tcp) == 20, "TCP");
_Static_assert(sizeof(struct jn_arp) == 28, "ARP");
_Static_assert(sizeof(struct jn_vxlan_header) == 8, "VXLAN");
