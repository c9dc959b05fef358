/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* IPv4 and layer 4: what is well formed, and the key. Functions return JN_OK, a reason, or JN_NEXT + a tail program. */
#pragma once
#include "count.h"

enum {
	JN_SCTP_LENGTH = 12,
	/* The part of an ICMP error's quote that is read: an IPv4 header and 8 bytes. */
	JN_QUOTE_LENGTH = sizeof(struct jn_ipv4) + 8,
	/* Its end in an Ethernet frame. */
	JN_QUOTE_END = sizeof(struct jn_ethernet) + sizeof(struct jn_ipv4) + sizeof(struct jn_icmp) + JN_QUOTE_LENGTH,
};

/* 0/8, 127/8, 169.254/16, 224/4, 240/4: never forwarded. */
static __always_inline int jn_forbidden(__be32 address)
{
	__be32 first = address & bpf_htonl(0xff000000);

	return first == 0 || first == bpf_htonl(0x7f000000) || (address & bpf_htonl(0xffff0000)) == bpf_htonl(0xa9fe0000) ||
	       (address & bpf_htonl(0xe0000000)) == bpf_htonl(0xe0000000);
}

static __always_inline __u32 jn_proto(__u8 protocol)
{
	if (protocol == IPPROTO_TCP)
		return JN_PROTO_TCP;
	if (protocol == IPPROTO_UDP)
		return JN_PROTO_UDP;
	if (protocol == IPPROTO_ICMP)
		return JN_PROTO_ICMP;
	if (protocol == IPPROTO_SCTP)
		return JN_PROTO_SCTP;
	return JN_PROTO_OTHER;
}

/* `ports`: both as they lie in the packet. */
static __always_inline void jn_key_set(union jn_key_words *key, __u32 scope, __u8 protocol, __be32 source,
				       __be32 destination, __u32 ports)
{
	__u32 word = scope | jn_proto(protocol) << JN_SCOPE_PROTO_SHIFT;

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	key->word[0] = word | (__u64)source << 32;
	key->word[1] = destination | (__u64)ports << 32;
#else
	key->word[0] = (__u64)word << 32 | source;
	key->word[1] = (__u64)destination << 32 | ports;
#endif
}

/* One port twice. */
static __always_inline __u32 jn_ports_both(__be16 port)
{
	return port | (__u32)port << 16;
}

static __always_inline __u64 jn_fold(const union jn_key_words *key)
{
	return (key->word[0] * (jn_config.seed1 | 1)) ^ (key->word[1] * (jn_config.seed2 | 1));
}

/* Source port of the outer UDP header. */
static __always_inline __be16 jn_outer_port(const union jn_key_words *key)
{
	return bpf_htons(0x8000 | (jn_fold(key) >> 48 & 0x7fff));
}

/*
 * The IPv4 header at `ip`; `bytes` is what the frame holds behind Ethernet. Fills all but the key.
 */
static __always_inline int jn_parse_ipv4(const struct jn_ipv4 *ip, const void *end, __u32 bytes, __u32 gso_size,
					 struct jn_packet *packet)
{
	__u32 length;
	__be16 fragment;

	if ((const void *)(ip + 1) > end)
		return JN_MALFORMED;
	length = bpf_ntohs(ip->length);
	packet->flags = 0;
	if (JN_UNLIKELY(ip->version_length != 0x45)) {
		__u32 header = (ip->version_length & 0xf) * 4;

		if (ip->version_length >> 4 != 4 || header < sizeof(*ip) || header > bytes)
			return JN_MALFORMED;
		if (!gso_size && (length < header || length > bytes))
			return JN_MALFORMED;
		return JN_IP_OPTIONS;
	}
	if (gso_size) {
		packet->flags = JN_PACKET_GSO;
		packet->l4_length = bytes - sizeof(*ip);
		packet->size = gso_size + sizeof(*ip);
	} else {
		if (length < sizeof(*ip) || length > bytes)
			return JN_MALFORMED;
		packet->l4_length = length - sizeof(*ip);
		packet->size = bytes;
	}
	fragment = ip->fragment;
	if (fragment & bpf_htons(IP_DF))
		packet->flags |= JN_PACKET_DF;
	if (JN_UNLIKELY(fragment & bpf_htons(IP_MF | IP_OFFSET)))
		packet->flags |= fragment & bpf_htons(IP_OFFSET) ? JN_PACKET_LATER : JN_PACKET_FIRST;
	packet->protocol = ip->protocol;
	packet->tos = ip->tos;
	packet->ttl = ip->ttl;
	packet->tcp_flags = 0;
	return JN_OK;
}

/*
 * The flags that stacks send: of SYN, FIN, RST at most one, at least one of these and ACK, no FIN without ACK. A bit
 * for each combination of {ACK, RST, SYN, FIN}.
 */
static __always_inline int jn_tcp_flags_valid(__u8 flags)
{
	enum {
		ACK = 8,
		VALID = 1 << TCP_SYN | 1 << TCP_RST | 1 << ACK | 1 << (ACK | TCP_FIN) | 1 << (ACK | TCP_SYN) |
			1 << (ACK | TCP_RST),
	};
	__u32 combination = (flags & (TCP_FIN | TCP_SYN | TCP_RST)) | (flags & TCP_ACK ? ACK : 0);

	return VALID >> combination & 1;
}

/*
 * Layer 4 of a packet that is no later fragment, and the key's ports. JN_PACKET_ICMP_ERROR is set for types that quote.
 */
static __always_inline int jn_parse_l4(const struct jn_ipv4 *ip, const void *end, struct jn_packet *packet,
				       __u32 *ports)
{
	const void *l4 = ip + 1;
	__u32 flags = packet->flags;

	if (packet->protocol == IPPROTO_TCP) {
		const struct jn_tcp *tcp = l4;
		__u32 header;

		if (packet->l4_length < sizeof(*tcp) || (const void *)(tcp + 1) > end)
			return JN_MALFORMED;
		header = (tcp->offset >> 4) * 4;
		if (header < sizeof(*tcp) || (!(flags & JN_PACKET_FIRST) && header > packet->l4_length))
			return JN_MALFORMED;
		packet->tcp_flags = tcp->flags;
		if (!jn_tcp_flags_valid(tcp->flags))
			return JN_TCP_FLAGS;
		if (flags & JN_PACKET_GSO)
			packet->size += header;
		*ports = *(const __u32 *)l4;
		return JN_OK;
	}
	if (packet->protocol == IPPROTO_UDP) {
		const struct jn_udp *udp = l4;
		__u32 length;

		if (packet->l4_length < sizeof(*udp) || (const void *)(udp + 1) > end)
			return JN_MALFORMED;
		length = bpf_ntohs(udp->length);
		if (length < sizeof(*udp) ||
		    (!(flags & (JN_PACKET_FIRST | JN_PACKET_GSO)) && length > packet->l4_length))
			return JN_MALFORMED;
		if (flags & JN_PACKET_GSO)
			packet->size += sizeof(*udp);
		*ports = *(const __u32 *)l4;
		return JN_OK;
	}
	if (packet->protocol == IPPROTO_ICMP) {
		const struct jn_icmp *icmp = l4;

		if (packet->l4_length < sizeof(*icmp) || (const void *)(icmp + 1) > end)
			return JN_MALFORMED;
		*ports = jn_ports_both(icmp->id);
		if (icmp->type == ICMP_ECHO || icmp->type == ICMP_ECHO_REPLY)
			return JN_OK;
		if (icmp->type != ICMP_UNREACHABLE && icmp->type != ICMP_TIME_EXCEEDED &&
		    icmp->type != ICMP_PARAMETER_PROBLEM)
			return JN_ICMP_TYPE;
		packet->flags = flags | JN_PACKET_ICMP_ERROR;
		return flags & JN_PACKET_FIRST ? JN_ICMP_QUOTE : JN_OK;
	}
	if (packet->protocol == IPPROTO_SCTP) {
		/* The common header (RFC 9260, 3.1). */
		if (packet->l4_length < JN_SCTP_LENGTH || l4 + JN_SCTP_LENGTH > end)
			return JN_MALFORMED;
		*ports = *(const __u32 *)l4;
		return JN_OK;
	}
	*ports = jn_ports_both(bpf_htons(packet->protocol));
	return JN_OK;
}
