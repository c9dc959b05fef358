/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Hook OVERLAY: the underlay device, ingress. Takes our VXLAN and leaves everything else alone. The programs behind
 * a miss serve the hook VXLAN, too: there the inner frame begins at 0.
 */
#include "lib/overlay.h"

/* Rules 1 to 3. JN_REASON_MAX: not ours, or for the stack. */
static __always_inline int jn_outer_parse(struct __sk_buff *skb, struct jn_packet *packet, __u32 *tos)
{
	enum { HEADERS = sizeof(struct jn_ethernet) + sizeof(struct jn_ipv4) + sizeof(struct jn_udp) };
	const struct jn_ethernet *ethernet;
	const struct jn_vxlan_header *vxlan;
	const struct jn_ipv4 *ip;
	const struct jn_udp *udp;
	void *data, *end;
	__u32 length;

	jn_pull(skb, HEADERS, &data, &end);
	if (data + HEADERS > end)
		return JN_REASON_MAX;
	ethernet = data;
	ip = (void *)(ethernet + 1);
	udp = (void *)(ip + 1);
	if (ethernet->type != bpf_htons(ETH_P_IP) || ip->destination != jn_config.vtep || ip->version_length != 0x45 ||
	    ip->fragment & bpf_htons(IP_MF | IP_OFFSET))
		return JN_REASON_MAX;
	if (ip->protocol != IPPROTO_UDP) {
		const struct jn_icmp *icmp = (void *)udp;

		if (ip->protocol == IPPROTO_ICMP && icmp->type == ICMP_UNREACHABLE &&
		    icmp->code == ICMP_FRAGMENTATION_NEEDED)
			return JN_NEXT + JN_TAIL_OVERLAY_UNDERLAY;
		return JN_REASON_MAX;
	}
	if (udp->destination != jn_config.vxlan_port)
		return JN_REASON_MAX;

	if (skb->pkt_type != PACKET_HOST || skb->vlan_present)
		return JN_VXLAN_HEADER;
	jn_pull(skb, JN_OUTER + JN_INNER_PARSED, &data, &end);
	if (data + JN_OUTER + sizeof(*ethernet) > end)
		return JN_VXLAN_HEADER;
	ethernet = data;
	ip = (void *)(ethernet + 1);
	udp = (void *)(ip + 1);
	vxlan = (void *)(udp + 1);
	if (!skb->gso_size) {
		length = bpf_ntohs(ip->length);
		if (length > skb->len - sizeof(*ethernet) || bpf_ntohs(udp->length) != length - sizeof(*ip) ||
		    length < sizeof(*ip) + sizeof(*udp) + sizeof(*vxlan) + sizeof(*ethernet))
			return JN_VXLAN_HEADER;
	}
	if (*(const __u8 *)vxlan != 0x08)
		return JN_VXLAN_HEADER;
	packet->vtep = ip->source;
	packet->vni = bpf_ntohl(vxlan->vni) >> 8;
	*tos = ip->tos;
	return JN_OK;
}

SEC("tc")
int jn_overlay(struct __sk_buff *skb)
{
	struct jn_context *context = jn_context();
	struct jn_packet packet;
	__u32 tos = 0;
	int reason;

	if (!context)
		return jn_broken(JN_HOOK_OVERLAY, TC_ACT_UNSPEC);
	jn_overlay_begin(context, &packet, JN_HOOK_OVERLAY);
	reason = jn_outer_parse(skb, &packet, &tos);
	if (reason == JN_REASON_MAX)
		return jn_pass(context, JN_HOOK_OVERLAY, JN_OK);
	if (reason == JN_OK)
		return jn_overlay_receive(skb, context, JN_HOOK_OVERLAY, JN_OUTER, &packet, tos);
	if (reason == JN_VXLAN_HEADER)
		return jn_drop(skb, context, JN_HOOK_OVERLAY, reason);
	bpf_tail_call(skb, &jn_tails, JN_TAIL_OVERLAY_UNDERLAY);
	return jn_pass(context, JN_HOOK_OVERLAY, JN_MISSED_TAIL_CALL);
}

/* A miss in the overlay. */
SEC("tc")
int jn_overlay_decide(struct __sk_buff *skb)
{
	struct jn_context *context = jn_context();
	struct jn_packet *packet;
	struct jn_flow *entry;
	__u32 hook;
	int reason;

	if (!context)
		return jn_broken(JN_HOOK_OVERLAY, TC_ACT_SHOT);
	packet = &context->packet;
	hook = jn_overlay_hook(context);
	reason = JN_VTEP_UNKNOWN;
	if (!jn_vtep_known(packet->vtep))
		goto drop;
	entry = jn_flow_find(context);
	jn_step(context, JN_STAGE_FLOW, context->found, context->old.flags, context->old.stamp, context->old.epoch,
		context->old.vpc_index);
	reason = JN_FRAGMENT_NO_FIRST;
	if (!entry && packet->flags & JN_PACKET_LATER)
		goto drop;
	if (entry && context->found == JN_FOUND_CURRENT && jn_overlay_fits(&context->old, packet)) {
		jn_flow_touch(entry, &context->old, packet);
		context->flow = context->old;
	} else {
		if (entry && context->found == JN_FOUND_CURRENT)
			jn_flow_answered_apart(entry, &context->old);
		reason = jn_overlay_decided(skb, context, hook);
		if (reason)
			goto drop;
	}
	if (packet->flags & JN_PACKET_FIRST) {
		reason = jn_fragment_remember(packet);
		if (reason)
			goto drop;
	}
	return jn_emit_overlay(skb, context, hook, &context->flow, packet, 1);
drop:
	return jn_drop(skb, context, hook, reason);
}

/* A later fragment, or an ICMP error about a flow that the receiver has. */
SEC("tc")
int jn_overlay_other(struct __sk_buff *skb)
{
	struct jn_context *context = jn_context();
	union jn_key_words key;
	struct jn_packet *packet;
	struct jn_quote quote;
	struct jn_flow *flow;
	void *data, *end;
	__u32 hook, begin;
	__u32 ifindex;
	int reason;

	if (!context)
		return jn_broken(JN_HOOK_OVERLAY, TC_ACT_SHOT);
	packet = &context->packet;
	flow = &context->flow;
	hook = jn_overlay_hook(context);
	reason = JN_VTEP_UNKNOWN;
	if (!jn_vtep_known(packet->vtep))
		goto drop;
	if (packet->flags & JN_PACKET_LATER) {
		reason = jn_fragment_recall(packet);
		if (reason)
			goto drop;
		bpf_tail_call(skb, &jn_tails, JN_TAIL_OVERLAY_DECIDE);
		reason = JN_MISSED_TAIL_CALL;
		goto drop;
	}

	begin = hook == JN_HOOK_OVERLAY ? JN_OUTER : 0;
	jn_pull(skb, begin + JN_QUOTE_END, &data, &end);
	data += begin;
	reason = JN_ICMP_QUOTE;
	if (data + JN_QUOTE_END > end)
		goto drop;
	reason = jn_quote_parse(data + JN_QUOTE_END - JN_QUOTE_LENGTH, packet, &quote);
	if (reason)
		goto drop;
	reason = JN_VNI_UNKNOWN;
	if (!jn_segment(packet->vni, &context->segment))
		goto drop;
	context->vpc = context->segment.vpc;
	reason = jn_overlay_receiver(context, &ifindex);
	if (reason)
		goto drop;
	reason = JN_ICMP_NO_FLOW;
	jn_quote_turned(&quote, packet->key.key.scope, &key);
	if (!jn_quote_flow(context, &key)) {
		if (!(context->receiver.flags & JN_EP_ROUTER))
			goto drop;
		jn_quote_as_is(&quote, packet->vni | JN_SCOPE_OVERLAY, &key);
		if (!jn_quote_flow(context, &key))
			goto drop;
		context->old.flags = 0;
	}
	context->verdict.slow = 1;
	__builtin_memset(flow, 0, JN_FLOW_HOT);
	flow->kind = jn_here(context->receiver.flags);
	flow->ifindex = ifindex;
	flow->vpc_index = context->segment.vpc_index;
	if (context->old.flags & JN_FLOW_NAT)
		jn_error_as_answers(context);
	return jn_emit_overlay(skb, context, hook, flow, packet, 1);
drop:
	return jn_drop(skb, context, hook, reason);
}

/* ICMP 3/4 of the underlay. It is passed on whatever we make of it. */
SEC("tc")
int jn_overlay_underlay(struct __sk_buff *skb)
{
	enum {
		HEADERS = sizeof(struct jn_ethernet) + sizeof(struct jn_ipv4),
		LENGTH = HEADERS + sizeof(struct jn_icmp) + sizeof(struct jn_ipv4) + sizeof(struct jn_udp),
	};
	struct jn_context *context = jn_context();
	const struct jn_icmp *icmp;
	const struct jn_ipv4 *ip;
	const struct jn_udp *udp;
	void *data, *end;

	if (!context)
		return jn_broken(JN_HOOK_OVERLAY, TC_ACT_UNSPEC);
	jn_pull(skb, LENGTH, &data, &end);
	if (data + LENGTH > end)
		goto pass;
	icmp = data + HEADERS;
	ip = (void *)(icmp + 1);
	udp = (void *)(ip + 1);
	if (ip->version_length != 0x45 || ip->source != jn_config.vtep || ip->protocol != IPPROTO_UDP ||
	    ip->fragment & bpf_htons(IP_OFFSET) || udp->destination != jn_config.vxlan_port)
		goto pass;
	if (!jn_pmtu_learn(ip->destination, bpf_ntohs(icmp->mtu)))
		goto pass;
	jn_count(JN_HOOK_OVERLAY, JN_PMTU_UPDATE, 0);
	return jn_pass(context, JN_HOOK_OVERLAY, JN_PMTU_UPDATE);
pass:
	return jn_pass(context, JN_HOOK_OVERLAY, JN_OK);
}
