/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Reading the agent's tables. An element of a hash may be recycled for another key while it is read. One that the key
 * still finds after the copy was the key's all the time; one that it no longer finds is read again.
 */
#pragma once
#include "flow.h"

static __always_inline const struct jn_interface *jn_interface(__u32 ifindex)
{
	const struct jn_interface *interface;

	if (ifindex < JN_INTERFACES)
		interface = bpf_map_lookup_elem(&jn_interfaces, &ifindex);
	else
		interface = bpf_map_lookup_elem(&jn_interfaces_high, &ifindex);
	if (!interface || interface->kind == JN_KIND_NONE)
		return 0;
	return interface;
}

static __always_inline int jn_endpoint(__u32 vpc, __be32 address, struct jn_endpoint *copy)
{
	struct jn_endpoint_key key = { .vpc = vpc, .address = address };
	const struct jn_endpoint *entry;
	__u32 i;

#pragma unroll
	for (i = 0; i < 2; i++) {
		entry = bpf_map_lookup_elem(&jn_endpoints, &key);
		if (!entry)
			return 0;
		*copy = *entry;
		jn_barrier();
		if (bpf_map_lookup_elem(&jn_endpoints, &key) == (const void *)entry)
			return 1;
	}
	return 0;
}

/* Whether an address of the VPC is one of this node's, which its stack may send from. Uses context->other. */
static __always_inline int jn_node_address(struct jn_context *context, __u32 vpc, __be32 address)
{
	enum { OWN = JN_EP_NODE | JN_EP_LOCAL };

	return jn_endpoint(vpc, address, &context->other) && (context->other.flags & OWN) == OWN;
}

/* How an endpoint of this node with these flags is reached; without a branch, which the verifier would walk twice. */
static __always_inline __u8 jn_here(__u32 flags)
{
	return JN_EGRESS_PEER | (flags & JN_EP_NODE) / (JN_EP_NODE / (JN_EGRESS_PEER ^ JN_EGRESS_NODE));
}

static __always_inline int jn_mac(__u32 vni, const __u8 *mac, struct jn_mac *copy)
{
	struct jn_mac_key key = { .vni = vni };
	const struct jn_mac *entry;
	__u32 i;

	jn_mac_copy(key.mac, mac);
#pragma unroll
	for (i = 0; i < 2; i++) {
		entry = bpf_map_lookup_elem(&jn_macs, &key);
		if (!entry)
			return 0;
		*copy = *entry;
		jn_barrier();
		if (bpf_map_lookup_elem(&jn_macs, &key) == (const void *)entry)
			return 1;
	}
	return 0;
}

static __always_inline int jn_segment(__u32 vni, struct jn_segment *copy)
{
	const struct jn_segment *entry;
	__u32 i;

#pragma unroll
	for (i = 0; i < 2; i++) {
		entry = bpf_map_lookup_elem(&jn_segments, &vni);
		if (!entry)
			return 0;
		*copy = *entry;
		jn_barrier();
		if (bpf_map_lookup_elem(&jn_segments, &vni) == (const void *)entry)
			return 1;
	}
	return 0;
}

static __always_inline int jn_vtep_known(__be32 vtep)
{
	return bpf_map_lookup_elem(&jn_vteps, &vtep) != 0;
}

/* Outer bytes that reach `vtep`. */
static __always_inline __u32 jn_underlay_mtu(__be32 vtep, __u32 mtu)
{
	const struct jn_pmtu *learned = bpf_map_lookup_elem(&jn_pmtu, &vtep);

	if (learned && (__s32)(learned->expires - jn_now()) > 0 && learned->mtu < mtu)
		return learned->mtu;
	return mtu;
}
