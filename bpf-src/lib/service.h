/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Service: who answers what is sent to a Service's address, and which binding a flow keeps. */
#pragma once
#include "commit.h"
#include "route.h"

/* Whether the found record is kept, and translated. */
static __always_inline int jn_found_translated(const struct jn_context *context)
{
	return jn_found_kept(context) && context->old.flags & JN_FLOW_NAT;
}

/* What the packet goes as if nothing is translated. */
static __always_inline void jn_bound_none(struct jn_context *context)
{
	const struct jn_flow_key *key = &context->packet.key.key;
	struct jn_bound *bound = &context->bound;

	bound->source = key->source;
	bound->destination = key->destination;
	bound->source_port = key->source_port;
	bound->destination_port = key->destination_port;
	bound->backend = 0;
}

static __always_inline int jn_bound_routed(const struct jn_context *context)
{
	const struct jn_flow_key *key = &context->packet.key.key;

	return context->bound.source != key->source || context->bound.destination != key->destination;
}

/* The hash that a front end's tag carries. */
static __always_inline __u32 jn_frontend_hash(const struct jn_frontend_key *key)
{
	__u32 hash = key->scope * 0x9E3779B1u ^ key->address * 0x85EBCA77u;

	return (hash ^ hash >> 15) + ((__u32)key->port << 16 | key->protocol) * 0xC2B2AE3Du;
}

/* Copies a front end. One that is missing, or that is replaced while it is read, is looked for once more. */
static __always_inline int jn_frontend_find(const struct jn_frontend_key *key, struct jn_frontend *copy)
{
	const struct jn_frontend *entry;
	__u64 last;
	__u32 i;

#pragma unroll
	for (i = 0; i < 2; i++) {
		entry = bpf_map_lookup_elem(&jn_frontends, key);
		if (!entry)
			continue;
		last = JN_READ(entry->tag_last);
		jn_barrier();
		*copy = *entry;
		jn_barrier();
		if (JN_READ(entry->tag) == last && (__u32)(last >> 32) == jn_frontend_hash(key))
			return 1;
	}
	return 0;
}

/* Copies a backend's record, if there is one and it is whole. */
static __always_inline int jn_backend_find(__u32 id, struct jn_backend *copy)
{
	const struct jn_backend *entry = bpf_map_lookup_elem(&jn_backends, &id);
	__u32 last;

	if (!entry)
		return 0;
	last = JN_READ(entry->tag_last);
	jn_barrier();
	*copy = *entry;
	jn_barrier();
	return last && JN_READ(entry->tag) == last;
}

/* The id in a slot; 0: none. */
static __always_inline __u32 jn_slot(__u32 slot)
{
	__u32 line = slot / JN_SLOTS;
	const struct jn_slots *slots = bpf_map_lookup_elem(&jn_slots, &line);

	return slots ? JN_READ(slots->backend[slot % JN_SLOTS]) : 0;
}

/* Whether a record is one of the front end's, to which new connections go. */
static __always_inline int jn_backend_usable(const struct jn_backend *backend, const struct jn_frontend *frontend)
{
	return backend->service == frontend->service && backend->vpc == frontend->owner;
}

/* Which backend a client is with, as long as new connections go there; 0: none. Two numbers in one read. */
static __always_inline __u32 jn_affinity_find(const struct jn_affinity_key *key, const struct jn_frontend *frontend,
					      struct jn_backend *copy)
{
	enum { TAKES = JN_BACKEND_SERVING | JN_BACKEND_CHOSEN };
	const struct jn_affinity *entry = bpf_map_lookup_elem(&jn_affinity, key);
	union {
		struct jn_affinity affinity;
		__u64 word;
	} found;

	if (!entry)
		return 0;
	found.word = JN_READ(*(const __u64 *)entry);
	if ((__s32)(found.affinity.expires - jn_now()) <= 0 || !jn_backend_find(found.affinity.backend, copy) ||
	    !jn_backend_usable(copy, frontend) || (copy->flags & TAKES) != TAKES)
		return 0;
	return found.affinity.backend;
}

/* A client stays with a backend for `seconds`, to which another CPU may have just sent it. Returns whether it does. */
static __always_inline int jn_affinity_keep(const struct jn_affinity_key *key, __u32 backend, __u32 seconds)
{
	struct jn_affinity affinity = {
		.backend = backend,
		/* At least that long: the stamp is coarse. */
		.expires = jn_now() + (__u32)((__u64)seconds * jn_config.hz / 256) + 1,
	};

	return jn_config.dry_run || !bpf_map_update_elem(&jn_affinity, key, &affinity, BPF_ANY);
}

/* A backend of a front end by a hash, into context->backend; 0: what was read does not belong together. */
static __always_inline __u32 jn_backend_by_hash(struct jn_context *context, __u32 hash)
{
	const struct jn_frontend *frontend = &context->frontend;
	__u32 slot = frontend->base + ((__u64)hash * frontend->size >> 32);
	__u32 id = jn_slot(slot);

	if (!jn_backend_find(id, &context->backend) || !jn_backend_usable(&context->backend, frontend))
		return 0;
	jn_step(context, JN_STAGE_SERVICE, 2, slot, id, context->backend.address, bpf_ntohs(context->backend.port));
	return id;
}

/*
 * The backend of a new connection, into context->backend; 0: what was read does not belong together. A client that
 * cannot be remembered stays where its address leads, as long as the Service's backends stay.
 */
JN_ONCE __u32 jn_backend_choose(__u32 scope)
{
	struct jn_context *context = jn_context();
	const struct jn_frontend *frontend;
	struct jn_affinity_key key;
	union jn_key_words words;
	__u32 id;

	if (!context)
		return 0;
	frontend = &context->frontend;
	if (!frontend->affinity)
		return jn_backend_by_hash(context, jn_fold(&context->packet.key) >> 32);
	key.service = frontend->service;
	key.scope = scope;
	key.client = context->packet.key.key.source;
	id = jn_affinity_find(&key, frontend, &context->backend);
	if (id)
		jn_step(context, JN_STAGE_SERVICE, 3, 0, id, context->backend.address,
			bpf_ntohs(context->backend.port));
	else
		id = jn_backend_by_hash(context, jn_fold(&context->packet.key) >> 32);
	if (!id || jn_affinity_keep(&key, id, frontend->affinity))
		return id;
	words.word[0] = key.service | (__u64)key.client << 32;
	words.word[1] = scope;
	return jn_backend_by_hash(context, jn_fold(&words) >> 32);
}

/* The middle of a connection: a segment that neither opens nor accepts one. */
static __always_inline int jn_goes_on(const struct jn_packet *packet)
{
	return packet->protocol == IPPROTO_TCP && !(packet->tcp_flags & TCP_SYN);
}

/*
 * The backend of a packet to a Service's address, into context->bound: the one that its flow is bound to, where that may
 * stay, or one that is chosen by the hash of its key. The generation of the endpoint behind it is read, and then
 * front end and backend are looked at again: what was decided by rests on what is noted.
 */
JN_ONCE int jn_backend_bind(__u32 scope)
{
	struct jn_context *context = jn_context();
	const struct jn_frontend *frontend;
	const struct jn_backend *backend;
	const struct jn_packet *packet;
	struct jn_frontend_key key = {};
	struct jn_backend *copy;
	struct jn_bound *bound;
	struct jn_flow *old;
	int same, kept, stays;
	__u32 id, tag;
	__u64 version;

	if (!context)
		return JN_NO_CONTEXT;
	packet = &context->packet;
	frontend = &context->frontend;
	backend = &context->backend;
	copy = &context->backend;
	bound = &context->bound;
	old = &context->old;
	kept = jn_found_translated(context) && old->backend;
	key.scope = scope;
	key.address = packet->key.key.destination;
	key.port = packet->key.key.destination_port;
	key.protocol = packet->protocol;
	if (!jn_frontend_find(&key, &context->frontend)) {
		jn_step(context, JN_STAGE_SERVICE, 0, key.scope, key.address, bpf_ntohs(key.port), 0);
		if (kept && jn_goes_on(packet))
			return JN_SERVICE_GONE;
		key.port = 0;
		key.protocol = 0;
		return jn_frontend_find(&key, &context->frontend) ? JN_SERVICE_PORT : JN_SERVICE_UNKNOWN;
	}
	version = frontend->tag;
	jn_step(context, JN_STAGE_SERVICE, 1, frontend->service, frontend->size, frontend->flags, frontend->owner);
	stays = 0;
	if (kept) {
		id = old->backend;
		same = jn_backend_find(id, copy) && backend->service == frontend->service &&
		       backend->vpc == frontend->owner && backend->address == old->peer.source &&
		       backend->port == old->peer.source_port;
		stays = jn_goes_on(packet) || (same && backend->flags & JN_BACKEND_SERVING);
	} else if (packet->protocol == IPPROTO_TCP && (packet->tcp_flags & (TCP_SYN | TCP_ACK)) != TCP_SYN) {
		return JN_SERVICE_GONE;
	}
	if (stays) {
		bound->destination = old->peer.source;
		bound->destination_port = old->peer.source_port;
		tag = same ? backend->tag : 0;
	} else {
		if (!frontend->size)
			return frontend->flags & JN_FRONTEND_LOCAL_ONLY ? JN_SERVICE_NOT_LOCAL : JN_SERVICE_EMPTY;
		id = jn_backend_choose(scope);
		if (!id)
			return JN_SERVICE_CHANGING;
		bound->destination = backend->address;
		bound->destination_port = backend->port;
		tag = backend->tag;
	}
	bound->backend = id;
	jn_generation_add(context, &context->flow, 1, jn_generation_endpoint(context->vpc, bound->destination));
	if (!jn_frontend_find(&key, &context->frontend) || frontend->tag != version)
		return JN_SERVICE_CHANGING;
	if (tag && (!jn_backend_find(id, copy) || backend->tag != tag))
		return JN_SERVICE_CHANGING;
	return JN_OK;
}

/* Whether context->target is an interface of the sender itself. */
static __always_inline int jn_target_own(const struct jn_context *context, __u32 ifindex, __u32 pod)
{
	const struct jn_endpoint *target = &context->target;

	return (pod && target->pod == pod) || (target->flags & JN_EP_LOCAL && target->ifindex == ifindex);
}

/*
 * The binding of a packet whose record is missing or stale, into context->bound, which holds none. Only the direction
 * that opened a flow chooses; an answer keeps its binding while its peer points back. context->route is the route of
 * the packet's destination.
 */
JN_ONCE int jn_bind(__u32 ifindex, __u32 pod)
{
	struct jn_context *context = jn_context();
	struct jn_bound *bound;
	struct jn_flow *old;
	int translated, reason;

	if (!context)
		return JN_NO_CONTEXT;
	old = &context->old;
	bound = &context->bound;
	translated = jn_found_translated(context);
	if (translated && old->flags & JN_FLOW_REPLY) {
		if (jn_reverse_held(context, &old->peer) != JN_HELD_OURS)
			return JN_SERVICE_GONE;
		bound->source = old->peer.destination;
		bound->destination = old->peer.source;
		bound->source_port = old->peer.destination_port;
		bound->destination_port = old->peer.source_port;
		bound->backend = old->backend;
		return JN_OK;
	}
	if (context->route.kind != JN_ROUTE_SERVICE) {
		/* A direct connection whose port another one has keeps the one that it was given. */
		if (translated && !old->backend)
			bound->source_port = old->peer.destination_port;
		return JN_OK;
	}
	if (context->packet.flags & JN_PACKET_TRANSIT)
		return JN_ROUTE_UNREACHABLE;
	reason = jn_backend_bind(context->vpc);
	if (reason == JN_SERVICE_CHANGING)
		reason = jn_backend_bind(context->vpc);
	if (reason)
		return reason;
	translated = translated && old->backend;
	if (!jn_endpoint(context->vpc, bound->destination, &context->target))
		return translated && jn_goes_on(&context->packet) ? JN_SERVICE_GONE : JN_NO_ENDPOINT;
	if (jn_target_own(context, ifindex, pod)) {
		/* Its own address would be a martian to it. */
		if (!jn_segment(context->target.vni, &context->segment))
			return JN_NO_ENDPOINT;
		bound->source = context->segment.gateway;
	}
	if (translated && old->backend == bound->backend && old->peer.destination == bound->source)
		bound->source_port = old->peer.destination_port;
	return JN_OK;
}
