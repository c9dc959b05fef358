/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* ICMP errors that others send about flows. */
#pragma once
#include "decide.h"

struct jn_quote {
	__be32 source;
	__be32 destination;
	__u32 ports;
	__u8 protocol;
};

/* Reads what `data` quotes; JN_QUOTE_LENGTH bytes are readable. */
static __always_inline int jn_quote_parse(const void *data, const struct jn_packet *packet, struct jn_quote *quote)
{
	const struct jn_ipv4 *ip = data;
	const void *l4 = ip + 1;

	if (packet->l4_length < sizeof(struct jn_icmp) + JN_QUOTE_LENGTH || ip->version_length != 0x45 ||
	    ip->fragment & bpf_htons(IP_OFFSET) || ip->source != packet->key.key.destination)
		return JN_ICMP_QUOTE;
	quote->source = ip->source;
	quote->destination = ip->destination;
	quote->protocol = ip->protocol;
	if (ip->protocol == IPPROTO_TCP || ip->protocol == IPPROTO_UDP || ip->protocol == IPPROTO_SCTP) {
		quote->ports = *(const __u32 *)l4;
	} else if (ip->protocol == IPPROTO_ICMP) {
		const struct jn_icmp *icmp = l4;

		if (icmp->type != ICMP_ECHO && icmp->type != ICMP_ECHO_REPLY)
			return JN_ICMP_QUOTE;
		quote->ports = jn_ports_both(icmp->id);
	} else {
		quote->ports = jn_ports_both(bpf_htons(ip->protocol));
	}
	return JN_OK;
}

/* The key of the flow that a quote is about: turned round, or as it stands. */
static __always_inline void jn_quote_turned(const struct jn_quote *quote, __u32 scope, union jn_key_words *key)
{
	jn_key_set(key, scope & (JN_SCOPE_MASK | JN_SCOPE_OVERLAY | JN_SCOPE_TRANSIT), quote->protocol,
		   quote->destination, quote->source, quote->ports << 16 | quote->ports >> 16);
}

static __always_inline void jn_quote_as_is(const struct jn_quote *quote, __u32 scope, union jn_key_words *key)
{
	jn_key_set(key, scope, quote->protocol, quote->source, quote->destination, quote->ports);
}

/* Whether the flow exists, stale or not. Its record is in context->old. */
static __always_inline int jn_quote_flow(struct jn_context *context, const union jn_key_words *key)
{
	struct jn_flow *entry = bpf_map_lookup_elem(&jn_flows, &key->key);

	return entry && jn_flow_copy(&context->old, entry, jn_fold(key), sizeof(context->old));
}

/* An error about a translated flow, in context->old, is translated as the flow's answers are. */
static __always_inline void jn_error_as_answers(struct jn_context *context)
{
	struct jn_flow *flow = &context->flow;
	const struct jn_flow *old = &context->old;

	flow->flags = JN_FLOW_NAT;
	flow->rewrite = old->rewrite;
	flow->address_difference = old->address_difference;
	flow->port_difference = old->port_difference;
	flow->peer = old->peer;
}

/* A router's error about a flow that leads through it. */
static __always_inline int jn_pod_router_quote(struct __sk_buff *skb, struct jn_context *context,
					       const struct jn_interface *interface, const struct jn_quote *quote)
{
	__u32 ifindex = skb->ifindex;
	union jn_key_words key;

	if (!(interface->flags & JN_EP_ROUTER))
		return 0;
	jn_quote_as_is(quote, (ifindex & JN_SCOPE_MASK) | JN_SCOPE_TRANSIT, &key);
	if (jn_quote_flow(context, &key))
		return 1;
	jn_quote_as_is(quote, interface->vni | JN_SCOPE_OVERLAY, &key);
	if (jn_quote_flow(context, &key) && context->old.kind == JN_EGRESS_PEER && context->old.ifindex == ifindex)
		return 1;
	jn_quote_as_is(quote, interface->vpc, &key);
	return jn_quote_flow(context, &key) && context->old.kind == JN_EGRESS_PEER && context->old.ifindex == ifindex;
}
