/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What both hooks' miss programs begin with: the record as a whole, whether it holds, and who opened the flow. */
#pragma once
#include "emit.h"
#include "service.h"

/*
 * The record of the packet's key into context->old, and what it is worth into context->found. There is none to look
 * for if the hook's program has found none: should one have come since, commit meets it.
 */
static __always_inline struct jn_flow *jn_flow_find(struct jn_context *context)
{
	struct jn_packet *packet = &context->packet;
	struct jn_flow *old = &context->old;
	struct jn_flow *entry;

	if (context->found == JN_FOUND_NONE)
		return 0;
	context->found = JN_FOUND_NONE;
	entry = bpf_map_lookup_elem(&jn_flows, &packet->key.key);
	if (!entry || !jn_flow_copy(old, entry, jn_fold(&packet->key), sizeof(*old)))
		return 0;
	if (jn_flow_reused(packet, old->flags))
		context->found = JN_FOUND_REUSED;
	else if (jn_flow_current(entry, old))
		context->found = JN_FOUND_CURRENT;
	else
		context->found = JN_FOUND_STALE;
	return entry;
}

/* The first answer by a packet whose record holds but does not fit: it is decided again. */
static __always_inline void jn_flow_answered_apart(struct jn_flow *entry, struct jn_flow *old)
{
	__u32 seen = old->flags;

	if (!jn_flow_awaits(seen))
		return;
	old->flags = seen & ~JN_FLOW_EMBRYONIC;
	if (jn_config.dry_run)
		return;
	jn_flow_answered(entry, old, seen, 0);
	jn_flow_tell(&old->peer, JN_FLOW_EMBRYONIC, 0);
}

/*
 * The tuple of the direction that opened the flow. A translated one is judged by its ends, wherever it was addressed to
 * and whoever it spoke as. Returns whether this packet is the other direction's.
 */
static __always_inline int jn_original(struct jn_context *context)
{
	const struct jn_flow_key *key = &context->packet.key.key;
	struct jn_flow_key *original = &context->original;
	const struct jn_flow *old = &context->old;
	int reply = jn_found_kept(context) && old->flags & JN_FLOW_REPLY;

	original->scope = key->scope;
	original->source = reply ? key->destination : key->source;
	original->destination = reply ? key->source : key->destination;
	original->source_port = reply ? key->destination_port : key->source_port;
	original->destination_port = reply ? key->source_port : key->destination_port;
	if (jn_found_translated(context)) {
		if (reply) {
			original->source = old->peer.source;
		} else {
			original->destination = old->peer.source;
			original->destination_port = old->peer.source_port;
		}
	}
	return reply;
}
