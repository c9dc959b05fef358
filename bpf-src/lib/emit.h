/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Emit: the only place that changes and redirects packets that are delivered. */
#pragma once
#include "commit.h"

static __always_inline __u16 jn_checksum_fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* TTL and checksum (RFC 1624). */
static __always_inline void jn_ttl_decrease(struct jn_ipv4 *ip, __u32 by)
{
	__u32 check;

	if (!by)
		return;
	ip->ttl -= by;
	check = ip->check + bpf_htons((__u16)(by << 8));
	ip->check = check + (check >= 0xffff);
}

/* Marks an ECN-capable inner packet (RFC 6040). */
static __always_inline void jn_mark_ce(struct jn_ipv4 *ip)
{
	__u16 before = *(__u16 *)ip;

	ip->tos |= ECN_CE;
	ip->check = jn_checksum_fold((__u16)~ip->check + (__u16)~before + *(__u16 *)ip);
}

/* The checksum after a difference (csum_replace_by_diff() of the kernel). */
static __always_inline __u16 jn_checksum_adjust(__u16 check, __u16 difference)
{
	__u32 old = ~(__u32)check;
	__u32 sum = old + difference;

	sum += sum < old;
	return jn_checksum_fold(sum);
}

/*
 * Rewrites a packet of a translated flow, whose Ethernet header is the packet's first byte: it leaves as the peer key
 * turned round. Each difference has a call of its own, since a checksum that is pending covers the addresses alone. `ip`
 * is readable; afterwards no pointer into the packet is.
 */
static __always_inline int jn_rewrite(struct __sk_buff *skb, const struct jn_flow *flow, const struct jn_packet *packet,
				      struct jn_ipv4 *ip)
{
	enum { L4 = sizeof(struct jn_ethernet) + sizeof(struct jn_ipv4) };
	__u32 flags = packet->protocol == IPPROTO_UDP ? BPF_F_MARK_MANGLED_0 : 0;
	__u32 check = L4 + (packet->protocol == IPPROTO_UDP ? 6 : 16);
	__be16 *ports = (void *)(ip + 1);

	ip->source = flow->peer.destination;
	ip->destination = flow->peer.source;
	if (flow->address_difference)
		ip->check = jn_checksum_adjust(ip->check, flow->address_difference);
	if (packet->flags & JN_PACKET_LATER)
		return JN_OK;
	if (flow->rewrite & (JN_REWRITE_SOURCE_PORT | JN_REWRITE_DESTINATION_PORT)) {
		if ((void *)(ports + 2) > jn_data_end(skb))
			return JN_MALFORMED;
		ports[0] = flow->peer.destination_port;
		ports[1] = flow->peer.source_port;
	}
	if (packet->protocol != IPPROTO_TCP && packet->protocol != IPPROTO_UDP)
		return JN_OK;
	if (flow->address_difference &&
	    bpf_l4_csum_replace(skb, check, 0, flow->address_difference, flags | BPF_F_PSEUDO_HDR))
		return JN_MALFORMED;
	if (flow->port_difference && bpf_l4_csum_replace(skb, check, 0, flow->port_difference, flags))
		return JN_MALFORMED;
	return JN_OK;
}

/*
 * Rewrites an ICMP error about a translated flow: it leaves as the flow's answers do, and quotes what its receiver sent.
 * A router between the two ends keeps its own address. The quoted header's sum stays what it was, and with it the sum of
 * the whole but for the ports. A quoted checksum of layer 4 stays as it is.
 */
static __always_inline int jn_rewrite_error(struct __sk_buff *skb, const struct jn_flow *flow)
{
	const struct jn_flow_key *peer = &flow->peer;
	struct jn_ipv4 *ip, *quoted;
	struct jn_icmp *icmp;
	void *data, *end;
	__be16 *ports;

	jn_pull(skb, JN_QUOTE_END, &data, &end);
	if (data + JN_QUOTE_END > end)
		return JN_MALFORMED;
	ip = data + sizeof(struct jn_ethernet);
	icmp = (void *)(ip + 1);
	quoted = (void *)(icmp + 1);
	ports = (void *)(quoted + 1);
	if (ip->source == quoted->destination)
		ip->source = peer->destination;
	ip->destination = peer->source;
	ip->check = jn_checksum_fold(*(__u16 *)ip + ip->length + ip->id + ip->fragment + *(__u16 *)&ip->ttl +
				     (ip->source & 0xffff) + (ip->source >> 16) + (ip->destination & 0xffff) +
				     (ip->destination >> 16));
	quoted->source = peer->source;
	quoted->destination = peer->destination;
	if (flow->address_difference)
		quoted->check = jn_checksum_adjust(quoted->check, flow->address_difference);
	if (flow->port_difference) {
		ports[0] = peer->source_port;
		ports[1] = peer->destination_port;
		icmp->check = jn_checksum_adjust(icmp->check, flow->port_difference);
	}
	return JN_OK;
}

/* The same of context->flow and context->packet, for programs of a miss: the verifier walks through it once. */
JN_ONCE int jn_rewrite_miss(struct __sk_buff *skb)
{
	struct jn_context *context = jn_context();
	struct jn_ipv4 *ip;
	void *data, *end;

	if (!context)
		return JN_NO_CONTEXT;
	if (context->packet.flags & JN_PACKET_ICMP_ERROR)
		return jn_rewrite_error(skb, &context->flow);
	jn_pull(skb, sizeof(struct jn_ethernet) + sizeof(*ip) + 4, &data, &end);
	ip = data + sizeof(struct jn_ethernet);
	if ((void *)(ip + 1) > end)
		return JN_MALFORMED;
	return jn_rewrite(skb, &context->flow, &context->packet, ip);
}

/* Into the Pod behind `ifindex`. Its stack takes what is addressed to this host only. */
static __always_inline int jn_into_pod(struct __sk_buff *skb, __u32 ifindex)
{
	if (skb->pkt_type != PACKET_HOST)
		bpf_skb_change_type(skb, PACKET_HOST);
	return bpf_redirect_peer(ifindex, 0);
}

/* To where a record of this node leads: a Pod, or the node's stack behind the other end of its node port. */
static __always_inline int jn_into(struct __sk_buff *skb, const struct jn_flow *flow)
{
	if (JN_UNLIKELY(flow->kind == JN_EGRESS_NODE))
		return bpf_redirect(flow->ifindex, 0);
	return jn_into_pod(skb, flow->ifindex);
}

static __always_inline __u32 jn_into_action(const struct jn_flow *flow)
{
	return flow->kind == JN_EGRESS_NODE ? JN_ACT_NODE : JN_ACT_PEER;
}

/* An answer, back to who sent through `skb->ifindex`: a Pod, or the node. */
static __always_inline int jn_back(struct __sk_buff *skb, __u32 hook)
{
	if (hook == JN_HOOK_NODE_PORT)
		return bpf_redirect(skb->ifindex, 0);
	return jn_into_pod(skb, skb->ifindex);
}

static __always_inline int jn_emit_device(struct __sk_buff *skb, struct jn_context *context, __u32 hook,
					  const struct jn_flow *flow, const struct jn_packet *packet, __u32 cause)
{
	struct bpf_tunnel_key key = {
		.tunnel_id = flow->vni,
		.remote_ipv4 = bpf_ntohl(flow->vtep),
		.tunnel_tos = packet->tos,
		.tunnel_ttl = 64,
	};
	__u64 flags = BPF_F_ZERO_CSUM_TX;

	if (packet->flags & JN_PACKET_DF)
		flags |= BPF_F_DONT_FRAGMENT;
	if (bpf_skb_set_tunnel_key(skb, &key, sizeof(key), flags))
		return jn_drop(skb, context, hook, JN_ENCAPSULATION);
	jn_verdict(context, hook, JN_ACT_DEVICE, JN_OK, 0, 0, flow->vtep, flow->vni);
	jn_count_device(cause);
	jn_count_traffic(flow->vpc_index, JN_FROM_POD, packet->frame);
	return bpf_redirect(jn_config.vxlan_ifindex, 0);
}

static __always_inline int jn_emit_encap(struct __sk_buff *skb, struct jn_context *context, __u32 hook,
					 const struct jn_flow *flow, const struct jn_packet *packet)
{
	__u64 flags = BPF_F_ADJ_ROOM_ENCAP_L3_IPV4 | BPF_F_ADJ_ROOM_ENCAP_L4_UDP | BPF_F_ADJ_ROOM_ENCAP_L2_ETH |
		      BPF_F_ADJ_ROOM_ENCAP_L2(sizeof(struct jn_ethernet)) | BPF_F_ADJ_ROOM_FIXED_GSO;
	struct bpf_redir_neigh next_hop = { .nh_family = AF_INET, .ipv4_nh = flow->ifindex };
	__u32 length = packet->frame + JN_ENCAP_OVERHEAD - sizeof(struct jn_ethernet);
	struct jn_ethernet *outer, *inner;
	struct jn_vxlan_header *vxlan;
	struct jn_ipv4 *ip;
	struct jn_udp *udp;
	__be32 source = jn_config.vtep;
	void *end;

	if (JN_UNLIKELY(!(packet->flags & JN_PACKET_DF) && packet->size > flow->mtu))
		return jn_emit_device(skb, context, hook, flow, packet, JN_DEVICE_MTU);
	if (JN_UNLIKELY(length > 65535))
		return jn_emit_device(skb, context, hook, flow, packet, JN_DEVICE_LENGTH);
	if (bpf_skb_adjust_room(skb, JN_ENCAP_OVERHEAD, BPF_ADJ_ROOM_MAC, flags))
		return jn_emit_device(skb, context, hook, flow, packet, JN_DEVICE_REFUSED);
	outer = jn_data(skb);
	end = jn_data_end(skb);
	ip = (void *)(outer + 1);
	udp = (void *)(ip + 1);
	vxlan = (void *)(udp + 1);
	inner = (void *)(vxlan + 1);
	if ((void *)(inner + 1) > end)
		return jn_drop(skb, context, hook, JN_ENCAPSULATION);
	/* The outer MACs are written when the neighbour is resolved. */
	outer->type = bpf_htons(ETH_P_IP);
	ip->version_length = 0x45;
	ip->tos = packet->tos;
	ip->length = bpf_htons(length);
	ip->id = 0;
	ip->fragment = bpf_htons(IP_DF);
	ip->ttl = 64;
	ip->protocol = IPPROTO_UDP;
	ip->check = jn_checksum_fold(bpf_htons(0x4500 | packet->tos) + bpf_htons(length) + bpf_htons(IP_DF) +
					    bpf_htons(64 << 8 | IPPROTO_UDP) + (source & 0xffff) + (source >> 16) +
					    (flow->vtep & 0xffff) + (flow->vtep >> 16));
	ip->source = source;
	ip->destination = flow->vtep;
	udp->source = flow->outer_port;
	udp->destination = jn_config.vxlan_port;
	udp->length = bpf_htons(length - sizeof(struct jn_ipv4));
	udp->check = 0;
	vxlan->flags = bpf_htonl(0x08000000);
	vxlan->vni = bpf_htonl(flow->vni << 8);
	jn_mac_copy(inner->destination, flow->dmac);
	jn_mac_copy(inner->source, flow->smac);
	inner->type = bpf_htons(ETH_P_IP);
	jn_verdict(context, hook, JN_ACT_ENCAP, JN_OK, 0, 0, flow->vtep, flow->vni);
	jn_count_traffic(flow->vpc_index, JN_FROM_POD, packet->frame);
	return bpf_redirect_neigh(jn_config.underlay_ifindex, &next_hop, sizeof(next_hop), 0);
}

/* What a Pod sends, or the node. `ethernet` and `ip` are its readable headers. `miss` is a constant. */
static __always_inline int jn_emit_pod(struct __sk_buff *skb, struct jn_context *context, __u32 hook,
				       const struct jn_flow *flow, const struct jn_packet *packet,
				       struct jn_ethernet *ethernet, struct jn_ipv4 *ip, int miss)
{
	jn_step(context, JN_STAGE_EMIT, flow->kind, flow->ifindex, flow->vtep, flow->vni, flow->ttl_decrement);
	jn_ttl_decrease(ip, flow->ttl_decrement);
	jn_mac_copy(ethernet->destination, flow->dmac);
	jn_mac_copy(ethernet->source, flow->smac);
	if (JN_UNLIKELY(flow->flags & JN_FLOW_NAT)) {
		int reason = miss ? jn_rewrite_miss(skb) : jn_rewrite(skb, flow, packet, ip);

		if (reason)
			return jn_drop(skb, context, hook, reason);
	}
	if (flow->kind == JN_EGRESS_ENCAP)
		return jn_emit_encap(skb, context, hook, flow, packet);
	jn_verdict(context, hook, jn_into_action(flow), JN_OK, 0, flow->ifindex, 0, 0);
	jn_count_traffic(flow->vpc_index, JN_FROM_POD, packet->frame);
	return jn_into(skb, flow);
}

/* A packet from another node, in either of the overlay's hooks. */
static __always_inline int jn_emit_overlay(struct __sk_buff *skb, struct jn_context *context, __u32 hook,
					   const struct jn_flow *flow, const struct jn_packet *packet, int miss)
{
	jn_step(context, JN_STAGE_EMIT, flow->kind, flow->ifindex, flow->vtep, flow->vni, hook);
	if (hook == JN_HOOK_OVERLAY) {
		__u64 flags = BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_NO_CSUM_RESET;
		struct jn_ethernet *ethernet;
		struct jn_ipv4 *ip;

		if (jn_config.flags & JN_CONFIG_DECAP_FLAG)
			flags |= BPF_F_ADJ_ROOM_DECAP_L4_UDP;
		if (bpf_skb_adjust_room(skb, -JN_OUTER, BPF_ADJ_ROOM_MAC, flags))
			return jn_drop(skb, context, hook, JN_DECAPSULATION);
		/* What was verified of the outer packet holds for the inner one. */
		bpf_csum_level(skb, BPF_CSUM_LEVEL_DEC);
		ethernet = jn_data(skb);
		ip = (void *)(ethernet + 1);
		if ((void *)(ip + 1) > jn_data_end(skb))
			return jn_drop(skb, context, hook, JN_DECAPSULATION);
		((__u32 *)ethernet)[0] = packet->macs[0];
		((__u32 *)ethernet)[1] = packet->macs[1];
		((__u32 *)ethernet)[2] = packet->macs[2];
		if (packet->flags & JN_PACKET_CE)
			jn_mark_ce(ip);
	}
	if (JN_UNLIKELY(flow->flags & JN_FLOW_NAT)) {
		struct jn_ipv4 *ip = jn_data(skb) + sizeof(struct jn_ethernet);
		int reason = JN_MALFORMED;

		if (miss)
			reason = jn_rewrite_miss(skb);
		else if ((void *)(ip + 1) <= jn_data_end(skb))
			reason = jn_rewrite(skb, flow, packet, ip);
		if (reason)
			return jn_drop(skb, context, hook, reason);
	}
	jn_verdict(context, hook, jn_into_action(flow), JN_OK, 0, flow->ifindex, 0, 0);
	jn_count_traffic(flow->vpc_index, JN_FROM_OVERLAY, packet->frame);
	return jn_into(skb, flow);
}
