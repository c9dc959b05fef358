// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * What the benchmarks compare ours with: the least that a data path of a given shape can do.
 *
 *   empty                     nothing at all: what calling a program costs
 *   wire_out, wire_in         a wire by TCX: constant redirects, no look at the packet
 *   lean_local                two Pods of one node: a route, a conntrack-like entry, new MACs, a redirect
 *   lean_encap, lean_decap    two nodes: the same, with VXLAN headers that the program writes and removes itself
 *
 * None of them checks what a hostile Pod could send, and none is fit for anything but a measurement.
 */
#include <juneau/kernel.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define VXLAN_PORT 4789

/* Our own programs keep no such map. */
enum { BPF_MAP_TYPE_LRU_HASH = 9 };

/* benches/src/peers/programs.rs writes this before the load. */
struct bench_config {
	__u32 ifindex; /* where a wire leads */
	__u32 vni;
	__be32 vtep; /* this node's address on the underlay */
};
const volatile struct bench_config config = {};

struct lean_route_key {
	__u32 prefix_length;
	__u32 vni;
	__be32 address;
};
struct lean_endpoint_key {
	__u32 vni;
	__be32 address;
};
struct lean_route {
	__u32 ifindex;
	__be32 vtep;
	__u8 dmac[6];
	__u8 smac[6];
};
struct lean_flow_key {
	__u32 vni;
	__be32 source;
	__be32 destination;
	__be16 source_port;
	__be16 destination_port;
	__u32 protocol;
};
struct lean_flow {
	__u64 last_seen;
	__u64 packets;
	__u64 unused;
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 131072);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct lean_route_key);
	__type(value, struct lean_route);
} lean_routes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, struct lean_endpoint_key);
	__type(value, struct lean_route);
} lean_endpoints SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 262144);
	__type(key, struct lean_flow_key);
	__type(value, struct lean_flow);
} lean_flows SEC(".maps");

struct lean_ports {
	__be16 source;
	__be16 destination;
};

/* Everything between the outer Ethernet header and the inner packet. */
struct lean_outer {
	struct jn_ipv4 ip;
	struct jn_udp udp;
	struct jn_vxlan_header vxlan;
	struct jn_ethernet inner;
} __attribute__((packed));

/* A second plain read of these may become a truncated pointer (clang 14, -mcpu=v3). */
static __always_inline void *packet_start(struct __sk_buff *skb)
{
	return (void *)(long)*(volatile __u32 *)&skb->data;
}

static __always_inline void *packet_end(struct __sk_buff *skb)
{
	return (void *)(long)*(volatile __u32 *)&skb->data_end;
}

/* The first `need` bytes, linear; null where the packet is shorter. */
static __always_inline void *packet_head(struct __sk_buff *skb, __u32 need)
{
	void *start = packet_start(skb);

	if (start + need <= packet_end(skb))
		return start;
	if (bpf_skb_pull_data(skb, need))
		return 0;
	start = packet_start(skb);
	return start + need <= packet_end(skb) ? start : 0;
}

static __always_inline void set_macs(struct jn_ethernet *ethernet, const struct lean_route *route)
{
	__builtin_memcpy(ethernet->destination, route->dmac, sizeof(ethernet->destination));
	__builtin_memcpy(ethernet->source, route->smac, sizeof(ethernet->source));
}

static __always_inline void touch_flow(const struct jn_ipv4 *ip)
{
	const struct lean_ports *ports = (const void *)(ip + 1);
	struct lean_flow_key key = {
		.vni = config.vni,
		.source = ip->source,
		.destination = ip->destination,
		.source_port = ports->source,
		.destination_port = ports->destination,
		.protocol = ip->protocol,
	};
	struct lean_flow *flow = bpf_map_lookup_elem(&lean_flows, &key);

	if (flow) {
		flow->last_seen = bpf_ktime_get_ns();
		flow->packets++;
	} else {
		struct lean_flow new = {.last_seen = bpf_ktime_get_ns(), .packets = 1};

		bpf_map_update_elem(&lean_flows, &key, &new, BPF_ANY);
	}
}

static __always_inline struct lean_route *find_route(__be32 address)
{
	struct lean_route_key key = {.prefix_length = 64, .vni = config.vni, .address = address};

	return bpf_map_lookup_elem(&lean_routes, &key);
}

static __always_inline __u16 header_checksum(const void *header)
{
	const __u16 *word = header;
	__u32 sum = 0;

#pragma unroll
	for (int i = 0; i < 10; i++)
		sum += word[i];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

enum {
	LOCAL_HEAD = sizeof(struct jn_ethernet) + sizeof(struct jn_ipv4) + sizeof(struct lean_ports),
	OVERLAY_HEAD = LOCAL_HEAD + sizeof(struct lean_outer),
};

SEC("tc")
int empty(struct __sk_buff *skb)
{
	return TC_ACT_OK;
}

SEC("tc")
int wire_out(struct __sk_buff *skb)
{
	return bpf_redirect(config.ifindex, 0);
}

SEC("tc")
int wire_in(struct __sk_buff *skb)
{
	return bpf_redirect_peer(config.ifindex, 0);
}

SEC("tc")
int lean_local(struct __sk_buff *skb)
{
	struct jn_ethernet *ethernet = packet_head(skb, LOCAL_HEAD);
	struct lean_route *route;
	struct jn_ipv4 *ip;

	if (!ethernet || ethernet->type != bpf_htons(ETH_P_IP))
		return TC_ACT_OK;
	ip = (void *)(ethernet + 1);
	touch_flow(ip);
	route = find_route(ip->destination);
	if (!route)
		return TC_ACT_SHOT;
	set_macs(ethernet, route);
	return bpf_redirect_peer(route->ifindex, 0);
}

SEC("tc")
int lean_encap(struct __sk_buff *skb)
{
	const __u64 flags = BPF_F_ADJ_ROOM_ENCAP_L3_IPV4 | BPF_F_ADJ_ROOM_ENCAP_L4_UDP |
			    BPF_F_ADJ_ROOM_ENCAP_L2(sizeof(struct jn_ethernet)) | BPF_F_ADJ_ROOM_ENCAP_L2_ETH |
			    BPF_F_ADJ_ROOM_FIXED_GSO;
	struct jn_ethernet *ethernet = packet_head(skb, LOCAL_HEAD);
	struct bpf_redir_neigh neighbour = {.nh_family = AF_INET};
	struct lean_outer *outer;
	struct lean_route *route;
	struct jn_ipv4 *ip;
	__u32 hash, length;

	if (!ethernet || ethernet->type != bpf_htons(ETH_P_IP))
		return TC_ACT_OK;
	ip = (void *)(ethernet + 1);
	route = find_route(ip->destination);
	if (!route)
		return TC_ACT_SHOT;
	touch_flow(ip);
	hash = bpf_get_hash_recalc(skb);
	if (bpf_skb_adjust_room(skb, sizeof(*outer), BPF_ADJ_ROOM_MAC, flags))
		return TC_ACT_SHOT;
	ethernet = packet_start(skb);
	outer = (void *)(ethernet + 1);
	if ((void *)(outer + 1) > packet_end(skb))
		return TC_ACT_SHOT;
	length = skb->len - sizeof(*ethernet);
	set_macs(ethernet, route);
	outer->ip = (struct jn_ipv4){
		.version_length = 0x45,
		.ttl = 64,
		.protocol = IPPROTO_UDP,
		.length = bpf_htons(length),
		.fragment = bpf_htons(IP_DF),
		.source = config.vtep,
		.destination = route->vtep,
	};
	outer->ip.check = header_checksum(&outer->ip);
	outer->udp = (struct jn_udp){
		.source = bpf_htons(0x8000 | (hash & 0x3fff)),
		.destination = bpf_htons(VXLAN_PORT),
		.length = bpf_htons(length - sizeof(outer->ip)),
	};
	outer->vxlan.flags = bpf_htonl(0x08000000); /* the VNI is valid (RFC 7348) */
	outer->vxlan.vni = bpf_htonl(config.vni << 8);
	outer->inner = (struct jn_ethernet){
		.destination = {2, 0, 0, 0, 0, 1},
		.source = {2, 0, 0, 0, 0, 2},
		.type = bpf_htons(ETH_P_IP),
	};
	neighbour.ipv4_nh = route->vtep;
	return bpf_redirect_neigh(route->ifindex, &neighbour, sizeof(neighbour), 0);
}

SEC("tc")
int lean_decap(struct __sk_buff *skb)
{
	struct jn_ethernet *ethernet = packet_head(skb, OVERLAY_HEAD);
	struct lean_endpoint_key key = {};
	struct lean_outer *outer;
	struct lean_route *route;
	struct jn_ipv4 *ip;

	if (!ethernet)
		return TC_ACT_OK;
	outer = (void *)(ethernet + 1);
	ip = (void *)(outer + 1);
	if (ethernet->type != bpf_htons(ETH_P_IP) || outer->ip.protocol != IPPROTO_UDP ||
	    outer->ip.version_length != 0x45 || outer->udp.destination != bpf_htons(VXLAN_PORT) ||
	    outer->inner.type != bpf_htons(ETH_P_IP))
		return TC_ACT_OK;
	key.vni = bpf_ntohl(outer->vxlan.vni) >> 8;
	key.address = ip->destination;
	route = bpf_map_lookup_elem(&lean_endpoints, &key);
	if (!route)
		return TC_ACT_OK;
	touch_flow(ip);
	if (bpf_skb_adjust_room(skb, -(int)sizeof(*outer), BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_FIXED_GSO))
		return TC_ACT_SHOT;
	ethernet = packet_start(skb);
	if ((void *)(ethernet + 1) > packet_end(skb))
		return TC_ACT_SHOT;
	set_macs(ethernet, route);
	return bpf_redirect_peer(route->ifindex, 0);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
