/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Answers to a Pod whose packet ends here: an ICMP error about it, or the end of its TCP connection. */
#pragma once
#include "decide.h"

/* Exits that a Pod is told about by ICMP. */
static __always_inline int jn_icmp_answerable(int reason)
{
	return reason == JN_NO_ROUTE || reason == JN_ROUTE_UNREACHABLE || reason == JN_NO_ENDPOINT ||
	       reason == JN_TTL_EXCEEDED || reason == JN_FRAGMENTATION_NEEDED;
}

/* By RST: policy's. */
static __always_inline int jn_reset_answerable(int reason)
{
	return reason == JN_POLICY_EGRESS || reason == JN_POLICY_INGRESS;
}

/* By RST, and of other protocols by "port unreachable": a Service's. */
static __always_inline int jn_service_answerable(int reason)
{
	return reason == JN_SERVICE_PORT || reason == JN_SERVICE_EMPTY || reason == JN_SERVICE_GONE ||
	       reason == JN_NAT_PORTS;
}

/*
 * A connection that is over is worth an answer, one that may not begin is not; and nothing ends a connection while it
 * is not settled what is allowed.
 */
static __always_inline int jn_answerable(const struct jn_context *context, int reason)
{
	const struct jn_packet *packet = &context->packet;

	if (jn_icmp_answerable(reason))
		return 1;
	if (jn_service_answerable(reason)) {
		/* What answers a reset with a reset never ends. */
		if (packet->protocol == IPPROTO_TCP)
			return !(packet->tcp_flags & TCP_RST) &&
			       !(packet->flags & (JN_PACKET_FIRST | JN_PACKET_LATER));
		return packet->protocol == IPPROTO_UDP || packet->protocol == IPPROTO_SCTP;
	}
	return jn_reset_answerable(reason) && packet->protocol == IPPROTO_TCP &&
	       !(packet->tcp_flags & (TCP_SYN | TCP_RST)) && !(packet->flags & (JN_PACKET_FIRST | JN_PACKET_LATER)) &&
	       !context->odd;
}

/* RFC 1812, 4.3.2.7, and the VPC's limit per stamp. */
static __always_inline int jn_answer_allowed(struct __sk_buff *skb, struct jn_context *context,
					     const struct jn_interface *interface)
{
	__u32 index = interface->vpc_index;
	const struct jn_vpc *vpc = bpf_map_lookup_elem(&jn_vpcs, &index);
	struct jn_vpc_state *state = bpf_map_lookup_elem(&jn_vpc_states, &index);
	const struct jn_ethernet *ethernet;
	__u32 now = jn_now();
	void *data, *end;

	if (context->packet.flags & (JN_PACKET_ICMP_ERROR | JN_PACKET_LATER))
		return 0;
	jn_pull(skb, sizeof(*ethernet), &data, &end);
	ethernet = data;
	if ((void *)(ethernet + 1) > end || ethernet->destination[0] & 1)
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

/*
 * Makes the packet `bytes` long, with nothing pending. A checksum that is pending would be written into the answer by
 * whoever completes it. The kernel forgets it, and does not refuse to cut, when the bytes where it begins to count are
 * taken off the front.
 */
static __always_inline int jn_answer_room(struct __sk_buff *skb, __u32 bytes)
{
	/* Longer than what stands in front of a pending checksum, also in a tunnel of the Pod's own. */
	enum { SPARE = 256 };

	return !bpf_skb_change_tail(skb, bytes + SPARE, 0) &&
	       !bpf_skb_adjust_room(skb, -SPARE, BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_FIXED_GSO);
}

/* What is alike in all answers of `length` bytes. The header's tos, fragment, protocol and source stand already. */
static __always_inline void jn_answer_headers(struct jn_ethernet *ethernet, struct jn_ipv4 *ip,
					      const struct jn_context *context,
					      const struct jn_interface *interface, __u32 length)
{
	jn_mac_copy(ethernet->destination, interface->mac);
	jn_mac_copy(ethernet->source, interface->gateway_mac);
	ip->version_length = 0x45;
	ip->length = bpf_htons(length);
	ip->id = 0;
	ip->ttl = 64;
	ip->destination = context->packet.key.key.source;
	ip->check = jn_checksum_fold(bpf_htons(0x4500 | ip->tos) + bpf_htons(length) + ip->fragment +
				     bpf_htons(64 << 8 | ip->protocol) + (ip->source & 0xffff) + (ip->source >> 16) +
				     (ip->destination & 0xffff) + (ip->destination >> 16));
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
	} else if (reason == JN_NAT_PORTS) {
		*code = ICMP_PROHIBITED;
	} else if (jn_service_answerable(reason)) {
		*code = ICMP_UNREACHABLE_PORT;
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
	if (!jn_answer_room(skb, QUOTED + quoted))
		return 0;
	jn_pull(skb, QUOTED, &data, &end);
	if (data + QUOTED > end)
		return 0;
	ethernet = data;
	ip = (void *)(ethernet + 1);
	icmp = (void *)(ip + 1);
	ip->tos = 0xc0;
	ip->fragment = 0;
	ip->protocol = IPPROTO_ICMP;
	ip->source = interface->gateway;
	jn_answer_headers(ethernet, ip, context, interface, sizeof(*ip) + sizeof(*icmp) + quoted);
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

/*
 * Rewrites the packet to a reset in the receiver's name (RFC 9293, 3.5.2): what has an ACK says by it where its sender
 * waits; of what has none all is acknowledged. Returns whether the kernel let us.
 */
static __always_inline int jn_reset_answer(struct __sk_buff *skb, struct jn_context *context,
					   const struct jn_interface *interface)
{
	enum {
		HEADERS = sizeof(struct jn_ethernet) + sizeof(struct jn_ipv4),
		WHOLE = HEADERS + sizeof(struct jn_tcp),
	};
	const struct jn_flow_key *key = &context->packet.key.key;
	struct jn_ethernet *ethernet;
	struct jn_tcp segment, *tcp;
	__be32 sequence, acknowledgement;
	struct jn_ipv4 *ip;
	void *data, *end;
	__u8 flags;

	if (bpf_skb_load_bytes(skb, HEADERS, &segment, sizeof(segment)) || !jn_answer_room(skb, WHOLE))
		return 0;
	jn_pull(skb, WHOLE, &data, &end);
	if (data + WHOLE > end)
		return 0;
	ethernet = data;
	ip = (void *)(ethernet + 1);
	tcp = (void *)(ip + 1);
	ip->tos = 0;
	ip->fragment = bpf_htons(IP_DF);
	ip->protocol = IPPROTO_TCP;
	ip->source = key->destination;
	jn_answer_headers(ethernet, ip, context, interface, sizeof(*ip) + sizeof(*tcp));
	tcp->source = key->destination_port;
	tcp->destination = key->source_port;
	if (segment.flags & TCP_ACK) {
		sequence = segment.acknowledgement;
		acknowledgement = 0;
		flags = TCP_RST;
	} else {
		/* A SYN; data beside it is not looked at, as by a host that does not listen. */
		sequence = 0;
		acknowledgement = bpf_htonl(bpf_ntohl(segment.sequence) + 1);
		flags = TCP_RST | TCP_ACK;
	}
	tcp->sequence = sequence;
	tcp->acknowledgement = acknowledgement;
	tcp->offset = sizeof(*tcp) / 4 << 4;
	tcp->flags = flags;
	tcp->window = 0;
	tcp->urgent = 0;
	tcp->check = jn_checksum_fold((key->source & 0xffff) + (key->source >> 16) + (key->destination & 0xffff) +
				      (key->destination >> 16) + bpf_htons(IPPROTO_TCP) + bpf_htons(sizeof(*tcp)) +
				      key->source_port + key->destination_port + (sequence & 0xffff) +
				      (sequence >> 16) + (acknowledgement & 0xffff) + (acknowledgement >> 16) +
				      bpf_htons((sizeof(*tcp) / 4 << 12) | flags));
	return 1;
}
