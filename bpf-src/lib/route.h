/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Route and deliver: from a destination to what a record holds about the way there. */
#pragma once
#include "policy.h"

/* Who sends, for routing. */
struct jn_sender {
	__u32 table;
	__u32 vni;
	__u32 ifindex;
	__be32 gateway;
	const __u8 *mac;
	int known; /* context->other is the destination's record */
};

/* The route of a destination, into context->route. */
static __always_inline void jn_route_find(struct jn_context *context, __u32 table, __be32 destination)
{
	struct jn_route_key key = {
		.prefix_length = 64,
		.table = table,
		.address = destination,
	};
	const struct jn_route *route = bpf_map_lookup_elem(&jn_routes, &key);
	struct jn_route *found = &context->route;

	if (route)
		*found = *route;
	else
		__builtin_memset(found, 0, sizeof(*found));
	jn_step(context, JN_STAGE_ROUTE, found->kind, table, destination, found->vni, found->next_hop);
}

/*
 * Who takes what goes to `destination` by context->route, into context->target. `connected`: the route is the
 * destination's own Subnet's. What is `translated` may lead back to its sender.
 */
static __always_inline int jn_target(struct jn_context *context, const struct jn_sender *sender, __be32 destination,
				     int translated, int *connected)
{
	__u32 kind = context->route.kind;
	__u32 missing = JN_NO_ENDPOINT;
	__be32 address = destination;

	*connected = kind == JN_ROUTE_CONNECTED;
	if (kind == JN_ROUTE_CONNECTED) {
		if (destination == sender->gateway)
			return JN_GATEWAY;
	} else if (kind == JN_ROUTE_ENDPOINT) {
		address = context->route.next_hop;
		missing = JN_ROUTE_UNREACHABLE;
	} else {
		return kind == JN_ROUTE_NONE ? JN_NO_ROUTE : JN_ROUTE_UNREACHABLE;
	}
	if (sender->known && address == destination)
		context->target = context->other;
	else if (!jn_endpoint(context->vpc, address, &context->target))
		return missing;
	if (!translated && context->target.flags & JN_EP_LOCAL && context->target.ifindex == sender->ifindex)
		return JN_ROUTE_UNREACHABLE;
	return JN_OK;
}

/* Who takes what is addressed to `destination` itself. */
static __always_inline int jn_route(struct jn_context *context, const struct jn_sender *sender, __be32 destination,
				    int *connected)
{
	jn_route_find(context, sender->table, destination);
	return jn_target(context, sender, destination, 0, connected);
}

/* Fills the way to context->target into `flow`. The VTEP's generation is read here, before its table, and replaces the one in slot 3. */
static __always_inline int jn_deliver(struct jn_context *context, const struct jn_sender *sender, int connected,
				      struct jn_flow *flow)
{
	const struct jn_endpoint *target = &context->target;
	int same = connected && target->vni == sender->vni;

	flow->vni = target->vni;
	flow->mtu = target->mtu;
	flow->ttl_decrement = !same;
	jn_mac_copy(flow->dmac, target->mac);
	jn_mac_copy(flow->smac, same ? sender->mac : target->gateway_mac);
	if (target->flags & JN_EP_LOCAL) {
		flow->kind = jn_here(target->flags);
		flow->ifindex = target->ifindex;
	} else {
		__be32 address = target->vtep;
		const struct jn_vtep *vtep;
		__u32 mtu;

		jn_generation_add(context, flow, 3, jn_generation_vtep(address));
		vtep = bpf_map_lookup_elem(&jn_vteps, &address);
		if (!vtep)
			return JN_NO_ENDPOINT;
		mtu = jn_underlay_mtu(address, vtep->mtu);
		mtu = mtu > JN_ENCAP_OVERHEAD ? mtu - JN_ENCAP_OVERHEAD : 0;
		if (mtu < flow->mtu)
			flow->mtu = mtu;
		flow->kind = JN_EGRESS_ENCAP;
		flow->vtep = address;
		flow->ifindex = vtep->next_hop;
	}
	jn_step(context, JN_STAGE_DELIVER, flow->kind, flow->ifindex, flow->vtep, flow->vni, flow->mtu);
	return JN_OK;
}
