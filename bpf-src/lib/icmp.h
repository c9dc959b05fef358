/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* ICMP errors: those that others send about flows, and those with which we answer. */
#pragma once
#include "decide.h"

enum {
	/* The part of a quote that is read: an IPv4 header and 8 bytes. */
	JN_QUOTE_LENGTH = sizeof(struct jn_ipv4) + 8,
	/* Its end in an Ethernet frame. */
	JN_QUOTE_END = sizeof(struct jn_ethernet) + sizeof(struct jn_ipv4) + sizeof(struct jn_icmp) + JN_QUOTE_LENGTH,
};

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
	if (ip->protocol == IPPROTO_TCP || ip->protocol == IPPROTO_UDP) {
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

/* Whether the flow exists, stale or not. Its hot line is in context->old. */
static __always_inline int jn_quote_flow(struct jn_context *context, const union jn_key_words *key)
{
	struct jn_flow *entry = bpf_map_lookup_elem(&jn_flows, &key->key);

	return entry && jn_flow_copy(&context->old, entry, jn_fold(key), JN_FLOW_HOT);
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

/* ---- answers ---- */

/* RFC 1812, 4.3.2.7, and the VPC's limit per stamp. */
static __always_inline int jn_icmp_allowed(struct jn_context *context, const struct jn_interface *interface)
{
	__u32 index = interface->vpc_index;
	const struct jn_vpc *vpc = bpf_map_lookup_elem(&jn_vpcs, &index);
	struct jn_vpc_state *state = bpf_map_lookup_elem(&jn_vpc_states, &index);
	__u32 now = jn_now();

	if (context->packet.flags & (JN_PACKET_ICMP_ERROR | JN_PACKET_LATER))
		return 0;
	if (!vpc || !state)
		return 0;
	if (jn_config.dry_run)
		return state->icmp_stamp != now ? vpc->icmp_limit != 0 : state->icmp_used < vpc->icmp_limit;
	if (JN_READ(state->icmp_stamp) != now) {
		JN_WRITE(state->icmp_stamp, now);
		JN_WRITE(state->icmp_used, 0);
	}
	if (JN_READ(state->icmp_used) >= vpc->icmp_limit)
		return 0;
	return __sync_fetch_and_add(&state->icmp_used, 1) < vpc->icmp_limit;
}

static __always_inline void jn_icmp_type(__u32 reason, __u8 *type, __u8 *code)
{
	*type = ICMP_UNREACHABLE;
	*code = ICMP_UNREACHABLE_HOST;
	if (reason == JN_TTL_EXCEEDED) {
		*type = ICMP_TIME_EXCEEDED;
		*code = 0;
	} else if (reason == JN_FRAGMENTATION_NEEDED) {
		*code = ICMP_FRAGMENTATION_NEEDED;
	} else if (reason == JN_NO_ROUTE) {
		*code = ICMP_UNREACHABLE_NET;
	}
}

/* Rewrites the packet to the answer about itself. Returns whether the kernel let us. */
static __always_inline int jn_icmp_answer(struct __sk_buff *skb, struct jn_context *context,
					  const struct jn_interface *interface, __u32 reason)
{
	enum {
		HEADERS = sizeof(struct jn_ethernet) + sizeof(struct jn_ipv4),
		QUOTED = HEADERS + sizeof(struct jn_icmp),
		LONGEST = sizeof(struct jn_ipv4) + JN_QUOTE_L4_MAX,
		/* Longer than what stands in front of a pending checksum, also in a tunnel of the Pod's own. */
		SPARE = 256,
	};
	__u32 quoted = context->packet.l4_length;
	struct jn_ethernet *ethernet;
	struct jn_icmp *icmp;
	struct jn_ipv4 *ip;
	void *data, *end;
	__u32 length;
	__s64 sum;
	__u8 type, code;

	jn_icmp_type(reason, &type, &code);
	if (quoted > JN_QUOTE_L4_MAX)
		quoted = JN_QUOTE_L4_MAX;
	quoted += sizeof(*ip);
	length = skb->len;
	if (length < HEADERS)
		return 0;
	if (quoted > length - sizeof(*ethernet))
		quoted = length - sizeof(*ethernet);
	/* For the verifier: what is quoted fits. Merged by clang, the tests tell 6.1 nothing about `quoted`. */
	barrier_var(quoted);
	if (quoted < sizeof(*ip))
		return 0;
	barrier_var(quoted);
	if (quoted > LONGEST)
		return 0;
	__builtin_memset(context->quote, 0, sizeof(context->quote));
	if (bpf_skb_load_bytes(skb, sizeof(*ethernet), context->quote, quoted))
		return 0;
	/*
	 * A checksum that is pending would be written into the quote by whoever completes it. The kernel forgets it, and
	 * does not refuse to cut, when the bytes where it begins to count are taken off the front.
	 */
	if (bpf_skb_change_tail(skb, QUOTED + quoted + SPARE, 0) ||
	    bpf_skb_adjust_room(skb, -SPARE, BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_FIXED_GSO))
		return 0;
	jn_pull(skb, QUOTED, &data, &end);
	if (data + QUOTED > end)
		return 0;
	ethernet = data;
	ip = (void *)(ethernet + 1);
	icmp = (void *)(ip + 1);
	jn_mac_copy(ethernet->destination, interface->mac);
	jn_mac_copy(ethernet->source, interface->gateway_mac);
	length = sizeof(*ip) + sizeof(*icmp) + quoted;
	ip->version_length = 0x45;
	ip->tos = 0xc0;
	ip->length = bpf_htons(length);
	ip->id = 0;
	ip->fragment = 0;
	ip->ttl = 64;
	ip->protocol = IPPROTO_ICMP;
	ip->source = interface->gateway;
	ip->destination = context->packet.key.key.source;
	ip->check = jn_checksum_fold(bpf_htons(0x45c0) + bpf_htons(length) + bpf_htons(64 << 8 | IPPROTO_ICMP) +
				     (ip->source & 0xffff) + (ip->source >> 16) + (ip->destination & 0xffff) +
				     (ip->destination >> 16));
	icmp->type = type;
	icmp->code = code;
	icmp->id = 0;
	icmp->mtu = reason == JN_FRAGMENTATION_NEEDED ? bpf_htons(context->mtu) : 0;
	/* What is not quoted is zero and adds nothing. */
	sum = bpf_csum_diff(0, 0, (__be32 *)context->quote, sizeof(context->quote), 0);
	if (sum < 0)
		return 0;
	sum = (sum & 0xffff) + (sum >> 16);
	icmp->check = jn_checksum_fold(sum + bpf_htons(type << 8 | code) + icmp->mtu);
	return !bpf_skb_store_bytes(skb, QUOTED, context->quote, quoted, 0);
}
