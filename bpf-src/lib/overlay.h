/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What arrives from other nodes: rules 4 to 7 and Decide, for both hooks of the overlay. */
#pragma once
#include "icmp.h"

enum { JN_INNER_PARSED = sizeof(struct jn_ethernet) + sizeof(struct jn_ipv4) + sizeof(struct jn_tcp) };

static __always_inline void jn_overlay_begin(struct jn_context *context, struct jn_packet *packet, __u32 hook)
{
	packet->key.word[0] = 0;
	packet->key.word[1] = 0;
	context->packet.key = packet->key;
	context->vpc = 0;
	context->found = JN_FOUND_UNREAD;
	context->verdict.hook = hook;
	context->verdict.slow = 0;
	if (jn_config.dry_run)
		context->steps = 0;
}

/* The hook whose packet a tail program has. */
static __always_inline __u32 jn_overlay_hook(const struct jn_context *context)
{
	return context->verdict.hook == JN_HOOK_VXLAN ? JN_HOOK_VXLAN : JN_HOOK_OVERLAY;
}

/* Rules 5, 6 and the key. The inner frame begins at `begin`. */
static __always_inline int jn_inner_parse(struct __sk_buff *skb, struct jn_context *context, __u32 begin,
					  struct jn_packet *packet, __u32 outer_tos, const struct jn_ipv4 **inner)
{
	const struct jn_ethernet *ethernet;
	const struct jn_ipv4 *ip;
	void *data, *end;
	__u32 ports = 0;
	__be16 type;
	int reason;

	/* At the hook OVERLAY that is done already. */
	if (!begin)
		jn_pull(skb, JN_INNER_PARSED, &data, &end);
	data = jn_data(skb);
	end = jn_data_end(skb);
	ethernet = data + begin;
	if ((void *)(ethernet + 1) > end)
		return JN_MALFORMED;
	type = ethernet->type;
	if (JN_UNLIKELY(type != bpf_htons(ETH_P_IP))) {
		if (type == bpf_htons(ETH_P_8021Q) || type == bpf_htons(ETH_P_8021AD))
			return JN_VLAN;
		return type == bpf_htons(ETH_P_IPV6) ? JN_IPV6 : JN_ETHERTYPE;
	}
	packet->macs[0] = ((const __u32 *)ethernet)[0];
	packet->macs[1] = ((const __u32 *)ethernet)[1];
	packet->macs[2] = ((const __u32 *)ethernet)[2];
	packet->frame = skb->len - begin;
	ip = (const void *)(ethernet + 1);
	*inner = ip;
	reason = jn_parse_ipv4(ip, end, packet->frame - sizeof(*ethernet), skb->gso_size, packet);
	if (reason)
		return reason;
	if (jn_forbidden(ip->destination))
		return JN_DESTINATION;
	if (!(packet->flags & JN_PACKET_LATER))
		reason = jn_parse_l4(ip, end, packet, &ports);
	jn_key_set(&packet->key, packet->vni | JN_SCOPE_OVERLAY, packet->protocol, ip->source, ip->destination, ports);
	jn_step(context, JN_STAGE_PARSE, reason, packet->key.key.scope, ip->source, ip->destination, ports);
	if (reason)
		return reason;
	if (JN_UNLIKELY((outer_tos & ECN_MASK) == ECN_CE)) {
		if (!(packet->tos & ECN_MASK))
			return JN_ECN;
		if ((packet->tos & ECN_MASK) != ECN_CE)
			packet->flags |= JN_PACKET_CE;
	}
	if (JN_UNLIKELY(packet->flags & (JN_PACKET_FIRST | JN_PACKET_LATER | JN_PACKET_ICMP_ERROR))) {
		if (packet->flags & (JN_PACKET_LATER | JN_PACKET_ICMP_ERROR))
			return JN_NEXT + JN_TAIL_OVERLAY_OTHER;
		return JN_NEXT + JN_TAIL_OVERLAY_DECIDE;
	}
	return JN_OK;
}

/* What a record says against a packet that finds it. */
static __always_inline int jn_overlay_fits(const struct jn_flow *flow, const struct jn_packet *packet)
{
	return (flow->kind == JN_EGRESS_PEER || flow->kind == JN_EGRESS_NODE) && flow->vtep == packet->vtep &&
	       jn_mac_equal(flow->dmac, packet->macs);
}

/* Rules 4 to 7: a hit leaves from here. `hook` and `begin` are constants. */
static __always_inline int jn_overlay_receive(struct __sk_buff *skb, struct jn_context *context, __u32 hook,
					      __u32 begin, struct jn_packet *packet, __u32 outer_tos)
{
	const struct jn_ipv4 *ip = 0;
	struct jn_flow *entry, *flow;
	int reason = JN_VLAN;

	if (hook == JN_HOOK_VXLAN && skb->vlan_present)
		goto drop;
	reason = jn_inner_parse(skb, context, begin, packet, outer_tos, &ip);
	if (reason >= JN_NEXT)
		goto next;
	if (reason)
		goto drop;

	reason = JN_NEXT + JN_TAIL_OVERLAY_DECIDE;
	flow = &context->flow;
	entry = bpf_map_lookup_elem(&jn_flows, &packet->key.key);
	if (!entry) {
		context->found = JN_FOUND_NONE;
		goto next;
	}
	if (!jn_flow_copy(flow, entry, jn_fold(&packet->key), JN_FLOW_HOT))
		goto next;
	if (flow->epoch != JN_READ(jn_hot.epoch) || !jn_overlay_fits(flow, packet) ||
	    jn_flow_reused(packet, flow->flags))
		goto next;
	if (JN_UNLIKELY(flow->flags & JN_FLOW_NAT) && !jn_flow_copy_cold(flow, entry))
		goto next;
	jn_step(context, JN_STAGE_FLOW, JN_FOUND_CURRENT, flow->flags, flow->stamp, flow->epoch, flow->vpc_index);
	jn_flow_touch(entry, flow, packet);
	return jn_emit_overlay(skb, context, hook, flow, packet, 0);

next:
	context->packet = *packet;
	context->packet.id = ip->id;
	bpf_tail_call(skb, &jn_tails, reason - JN_NEXT);
	reason = JN_MISSED_TAIL_CALL;
drop:
	context->packet.key = packet->key;
	if (!jn_vtep_known(packet->vtep))
		reason = JN_VTEP_UNKNOWN;
	return jn_drop(skb, context, hook, reason);
}

/*
 * Who has {VNI, inner destination MAC}, into context->receiver, whose context->segment is known. It must hold the
 * inner destination, too, unless it is a router. A node has more addresses than that of its node port: its record is
 * that of the address asked for.
 */
static __always_inline int jn_overlay_receiver(struct jn_context *context, __u32 *ifindex)
{
	struct jn_packet *packet = &context->packet;
	struct jn_mac mac;

	if (!jn_mac(packet->vni, (const __u8 *)packet->macs, &mac) ||
	    !jn_endpoint(context->vpc, mac.address, &context->receiver))
		return JN_OVERLAY_DESTINATION;
	if (mac.address != packet->key.key.destination) {
		if (context->receiver.flags & JN_EP_NODE) {
			if (!jn_node_address(context, context->vpc, packet->key.key.destination))
				return JN_OVERLAY_DESTINATION;
			context->receiver = context->other;
			mac.address = packet->key.key.destination;
		} else if (!(context->receiver.flags & JN_EP_ROUTER)) {
			return JN_OVERLAY_DESTINATION;
		}
	}
	*ifindex = mac.ifindex;
	/* The address that the MAC stands for, for the caller. */
	context->receiver_address = mac.address;
	return JN_OK;
}

/* The record for the answers: the way back from the receiver, or none yet. */
static __always_inline void jn_overlay_reverse(struct jn_context *context, __u32 ifindex, int known)
{
	struct jn_flow *reverse = &context->reverse;
	struct jn_sender sender = {
		.table = context->receiver.table,
		.vni = context->receiver.vni,
		.ifindex = ifindex,
		.gateway = context->segment.gateway,
		.mac = context->receiver.mac,
		.known = known,
	};
	int connected = 0;

	__builtin_memset(reverse, 0, sizeof(*reverse));
	jn_reverse_share(context);
	jn_reverse_key(context, context->vpc);
	if (jn_route(context, &sender, context->packet.key.key.source, &connected))
		return;
	if (jn_deliver(context, &sender, connected, reverse)) {
		__builtin_memset(reverse, 0, sizeof(*reverse));
		jn_reverse_share(context);
		return;
	}
	if (reverse->kind == JN_EGRESS_ENCAP)
		reverse->outer_port = jn_outer_port(&context->reverse_key);
}

/* Decide, for a packet from another node. */
static __always_inline int jn_overlay_decided(struct __sk_buff *skb, struct jn_context *context, __u32 hook)
{
	struct jn_packet *packet = &context->packet;
	struct jn_flow *flow = &context->flow;
	struct jn_side own, other;
	__u32 ifindex;
	int reason, reply, through, known;

	context->verdict.slow = 1;
	/* A VNI's VPC never changes while it lives: it may be read before the generations. */
	if (!jn_segment(packet->vni, &context->segment))
		return JN_VNI_UNKNOWN;
	context->vpc = context->segment.vpc;
	reply = jn_original(context);
	__builtin_memset(flow, 0, sizeof(*flow));
	flow->vpc_index = context->segment.vpc_index;
	jn_generations_read(context, context->original.source, context->original.destination);
	jn_generation_add(context, flow, 3, jn_generation_vtep(packet->vtep));
	reason = jn_overlay_receiver(context, &ifindex);
	if (reason)
		return reason;
	jn_generation_add(context, flow, 2, jn_generation_table(context->receiver.table));

	through = context->receiver_address != packet->key.key.destination;
	if (through) {
		jn_side_find(context, packet->key.key.destination, &own);
	} else {
		own.identity = context->receiver.identity;
		own.policy = context->receiver.policy;
		own.flags = context->receiver.flags | JN_EP_LOCAL;
	}
	known = jn_side_find(context, packet->key.key.source, &other);
	/* This node's own addresses speak by the node port alone. */
	if (other.flags & JN_EP_NODE)
		other.flags &= ~JN_EP_LOCAL;
	if (reply)
		reason = jn_policy(&own, own.identity, &other, other.identity);
	else
		reason = jn_policy(&other, other.identity, &own, own.identity);
	if (reason)
		return reason;

	flow->kind = jn_here(context->receiver.flags);
	flow->ifindex = ifindex;
	flow->vtep = packet->vtep;
	flow->vni = packet->vni;
	flow->mtu = context->receiver.mtu;
	jn_mac_copy(flow->dmac, packet->macs);
	jn_step(context, JN_STAGE_DELIVER, flow->kind, flow->ifindex, flow->vtep, flow->vni, flow->mtu);
	/* Answers to what comes from the overlay arrive in the VPC, wherever its sender moves. */
	jn_bound_none(context);
	if (jn_found_kept(context))
		flow->backend = context->old.backend;
	if (through || jn_found_kept(context))
		return jn_commit(skb, hook, 0);
	jn_overlay_reverse(context, ifindex, known);
	return jn_commit(skb, hook, 1);
}

/*
 * A path MTU towards a node of ours, told by the underlay. Returns whether it is news. The generation moves by 2: odd
 * is for changes that take longer.
 */
static __always_inline int jn_pmtu_learn(__be32 vtep, __u32 mtu)
{
	const struct jn_vtep *known = bpf_map_lookup_elem(&jn_vteps, &vtep);
	__u32 slot = jn_generation_vtep(vtep);
	struct jn_pmtu learned;
	__u32 *generation;
	__u32 in_force;

	if (!known)
		return 0;
	in_force = jn_underlay_mtu(vtep, known->mtu);
	if (mtu < JN_PMTU_FLOOR)
		mtu = JN_PMTU_FLOOR;
	if (mtu > in_force || (mtu == in_force && in_force == known->mtu))
		return 0;
	if (jn_config.dry_run)
		return mtu < in_force;
	learned.mtu = mtu;
	learned.expires = jn_now() + JN_PMTU_SECONDS * jn_config.hz / 256;
	if (bpf_map_update_elem(&jn_pmtu, &vtep, &learned, BPF_ANY) || mtu == in_force)
		return 0;
	generation = bpf_map_lookup_elem(&jn_generations, &slot);
	if (generation)
		__sync_fetch_and_add(generation, 2);
	__sync_fetch_and_add(&jn_hot.epoch, 1);
	return 1;
}
