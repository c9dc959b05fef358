/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Policy: what the sender may send and the receiver may take, about the tuple that opened the flow. */
#pragma once
#include "tables.h"

/* One side of a flow as policy sees it. */
struct jn_side {
	__u32 identity;
	__u32 policy;
	__u32 flags; /* JN_EP_*; 0 for an endpoint that is not known or not on this node */
};

static __always_inline int jn_policy_probe(struct jn_context *context, struct jn_policy_key *key)
{
	const struct jn_policy *rule;
	__u32 action, number;

	rule = bpf_map_lookup_elem(&jn_policies, key);
	if (!rule)
		return JN_POLICY_NONE;
	action = rule->action;
	number = rule->rule;
	jn_barrier();
	/* A rule that is being replaced closes. */
	if (bpf_map_lookup_elem(&jn_policies, key) != (const void *)rule)
		action = JN_POLICY_DENY;
	jn_step(context, JN_STAGE_POLICY, action, key->identity, key->peer, number, key->direction);
	return action == JN_POLICY_ALLOW ? JN_POLICY_ALLOW : JN_POLICY_DENY;
}

/*
 * Whether {identity, policy} allows `peer`: the first rule that exists decides; none refuses. An unknown peer is
 * matched by rules for everybody alone; `any` says that there are no others.
 */
JN_ONCE int jn_policy_side(__u32 identity, __u32 policy, __u32 peer, __u32 direction, __u32 any)
{
	struct jn_context *context = jn_context();
	struct jn_policy_key key = {
		.identity = identity,
		.policy = policy,
		.direction = direction,
	};
	__be16 port = 0;
	__u8 protocol;
	int action;

	if (!context)
		return 0;
	protocol = context->packet.protocol;
	if (protocol == IPPROTO_TCP || protocol == IPPROTO_UDP || protocol == IPPROTO_SCTP)
		port = context->original.destination_port;
	if (peer != JN_IDENTITY_UNKNOWN && !any) {
		key.peer = peer;
		key.protocol = protocol;
		key.port = port;
		action = jn_policy_probe(context, &key);
		if (action)
			return action == JN_POLICY_ALLOW;
		key.protocol = 0;
		key.port = 0;
		action = jn_policy_probe(context, &key);
		if (action)
			return action == JN_POLICY_ALLOW;
	}
	key.peer = (__u32)JN_IDENTITY_ANY;
	if (!any) {
		key.protocol = protocol;
		key.port = port;
		action = jn_policy_probe(context, &key);
		if (action)
			return action == JN_POLICY_ALLOW;
	}
	key.protocol = 0;
	key.port = 0;
	action = jn_policy_probe(context, &key);
	if (action)
		return action == JN_POLICY_ALLOW;
	jn_step(context, JN_STAGE_POLICY, JN_POLICY_NONE, identity, peer, 0, direction);
	return 0;
}

/*
 * `sender` is asked about `destination_identity`, `receiver` about `source_identity`; each only on this node. A node has
 * no policy, and reaches every Pod of its own: the kubelet must.
 */
static __always_inline int jn_policy(const struct jn_side *sender,
				     __u32 source_identity, const struct jn_side *receiver,
				     __u32 destination_identity)
{
	if (((sender->flags & (JN_EP_LOCAL | JN_EP_POLICY_READY)) == JN_EP_LOCAL) ||
	    ((receiver->flags & (JN_EP_LOCAL | JN_EP_POLICY_READY)) == JN_EP_LOCAL))
		return JN_POLICY_NOT_READY;
	if ((sender->flags & (JN_EP_LOCAL | JN_EP_NODE)) == JN_EP_LOCAL &&
	    !jn_policy_side(sender->identity, sender->policy, destination_identity, JN_EGRESS,
			    sender->flags & JN_EP_EGRESS_ANY))
		return JN_POLICY_EGRESS;
	if ((sender->flags & (JN_EP_LOCAL | JN_EP_NODE)) == (JN_EP_LOCAL | JN_EP_NODE))
		return JN_OK;
	if ((receiver->flags & (JN_EP_LOCAL | JN_EP_NODE)) == JN_EP_LOCAL &&
	    !jn_policy_side(receiver->identity, receiver->policy, source_identity, JN_INGRESS,
			    receiver->flags & JN_EP_INGRESS_ANY))
		return JN_POLICY_INGRESS;
	return JN_OK;
}

/* A side by address. Returns whether context->other is its record. */
static __always_inline int jn_side_find(struct jn_context *context, __be32 address, struct jn_side *side)
{
	if (jn_endpoint(context->vpc, address, &context->other)) {
		side->identity = context->other.identity;
		side->policy = context->other.policy;
		side->flags = context->other.flags;
		return 1;
	}
	side->identity = JN_IDENTITY_UNKNOWN;
	side->policy = 0;
	side->flags = 0;
	return 0;
}
