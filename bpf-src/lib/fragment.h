/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Fragments: the first leaves its ports for the later ones, in a slot of its own scope. */
#pragma once
#include "flow.h"

static __always_inline void jn_fragment_key(const struct jn_packet *packet, struct jn_fragment_key *key)
{
	const struct jn_flow_key *flow = &packet->key.key;
	union jn_key_words words;

	words.word[0] = flow->source | (__u64)flow->destination << 32;
	words.word[1] = packet->id | (__u64)packet->protocol << 16;
	key->scope = flow->scope & ((1u << JN_SCOPE_PROTO_SHIFT) - 1);
	key->slot = (jn_fold(&words) >> 56) % JN_FRAGMENT_SLOTS;
}

/* Remembers a first fragment that is going to be delivered. */
static __always_inline int jn_fragment_remember(const struct jn_packet *packet)
{
	struct jn_fragment_key key;
	struct jn_fragment fragment = {};

	if (jn_config.dry_run)
		return JN_OK;
	jn_fragment_key(packet, &key);
	fragment.scope = key.scope;
	fragment.source = packet->key.key.source;
	fragment.destination = packet->key.key.destination;
	fragment.id = packet->id;
	fragment.protocol = packet->protocol;
	fragment.source_port = packet->key.key.source_port;
	fragment.destination_port = packet->key.key.destination_port;
	fragment.stamp = jn_now();
	if (bpf_map_update_elem(&jn_fragments, &key, &fragment, BPF_ANY))
		return JN_FRAGMENT_MAP_FULL;
	return JN_OK;
}

/* Completes a later fragment's key. The slot may be overwritten while it is read: it is read, looked up again, used. */
static __always_inline int jn_fragment_recall(struct jn_packet *packet)
{
	struct jn_fragment_key key;
	struct jn_fragment fragment;
	struct jn_fragment *slot;
	__u32 age;

	jn_fragment_key(packet, &key);
	slot = bpf_map_lookup_elem(&jn_fragments, &key);
	if (!slot)
		return JN_FRAGMENT_NO_FIRST;
	fragment = *slot;
	jn_barrier();
	if (bpf_map_lookup_elem(&jn_fragments, &key) != (void *)slot)
		return JN_FRAGMENT_NO_FIRST;
	age = jn_now() - fragment.stamp;
	if (fragment.scope != key.scope || fragment.source != packet->key.key.source ||
	    fragment.destination != packet->key.key.destination || fragment.id != packet->id ||
	    fragment.protocol != packet->protocol || (__u64)age * 256 > (__u64)JN_FRAGMENT_SECONDS * jn_config.hz)
		return JN_FRAGMENT_NO_FIRST;
	packet->key.key.source_port = fragment.source_port;
	packet->key.key.destination_port = fragment.destination_port;
	return JN_OK;
}
