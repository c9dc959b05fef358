/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Commit: both records of a flow, or neither. */
#pragma once
#include "fragment.h"

enum { JN_EEXIST = -17 };

/* What a new flow takes from its VPC's quotas. */
struct jn_quota {
	struct jn_vpc_state *state;
	__u32 flows;
	__u32 embryonic;
};

static __always_inline void jn_quota_add(__s64 *counter, __s64 by)
{
	if (!jn_config.dry_run)
		__sync_fetch_and_add(counter, by);
}

/* Takes one, unless the limit is reached. */
static __always_inline int jn_quota_take(__s64 *counter, __u32 limit)
{
	if (jn_config.dry_run)
		return JN_READ(*counter) < (__s64)limit;
	if (__sync_fetch_and_add(counter, 1) < (__s64)limit)
		return 1;
	__sync_fetch_and_add(counter, -1);
	return 0;
}

static __always_inline int jn_quota(struct jn_quota *quota, __u32 vpc_index, __u32 flows, __u32 embryonic)
{
	const struct jn_vpc *vpc = bpf_map_lookup_elem(&jn_vpcs, &vpc_index);
	struct jn_vpc_state *state = bpf_map_lookup_elem(&jn_vpc_states, &vpc_index);

	/* An index without a record has no quota. */
	if (!vpc || !state)
		return flows ? JN_QUOTA_FLOWS : JN_QUOTA_EMBRYONIC;
	quota->state = state;
	quota->flows = flows;
	quota->embryonic = embryonic;
	if (flows && !jn_quota_take(&state->flows, vpc->flow_limit))
		return JN_QUOTA_FLOWS;
	if (embryonic && !jn_quota_take(&state->embryonic, vpc->embryonic_limit)) {
		if (flows)
			jn_quota_add(&state->flows, -1);
		return JN_QUOTA_EMBRYONIC;
	}
	return JN_OK;
}

static __always_inline void jn_quota_return(struct jn_quota *quota)
{
	if (quota->flows)
		jn_quota_add(&quota->state->flows, -1);
	if (quota->embryonic)
		jn_quota_add(&quota->state->embryonic, -1);
}

static __always_inline void jn_tag(struct jn_flow *flow, const union jn_key_words *key, __u32 birth)
{
	flow->tag = (jn_fold(key) & ~0xffffffffULL) | birth;
	flow->tag_last = flow->tag;
	flow->tag_low = birth;
}

/*
 * What tells records apart that follow each other in one element under one key. A random number does so as well as the
 * low half of a clock, which comes round every four seconds, and costs a sixth of it.
 */
static __always_inline __u32 jn_birth(void)
{
	return bpf_get_prandom_u32();
}

/* Who holds a key for answers. */
enum jn_held { JN_HELD_FREE, JN_HELD_OURS, JN_HELD_OTHER };

static __always_inline int jn_key_equal(const struct jn_flow_key *a, const struct jn_flow_key *b)
{
	return a->scope == b->scope && a->source == b->source && a->destination == b->destination &&
	       a->source_port == b->source_port && a->destination_port == b->destination_port;
}

/* Whether the record under `key` answers for our forward key. */
static __always_inline int jn_reverse_held(const struct jn_context *context, const struct jn_flow_key *key)
{
	struct jn_flow *held = bpf_map_lookup_elem(&jn_flows, key);
	struct jn_flow_key peer;
	__u64 tag;

	if (!held)
		return JN_HELD_FREE;
	tag = JN_READ(held->tag);
	jn_barrier();
	peer = held->peer;
	jn_barrier();
	if (JN_READ(held->tag) == tag && jn_key_equal(&peer, &context->packet.key.key))
		return JN_HELD_OURS;
	return JN_HELD_OTHER;
}

/* Whether the found record keeps being what it is: its flags and its peer stay. */
static __always_inline int jn_found_kept(const struct jn_context *context)
{
	return context->found == JN_FOUND_STALE || context->found == JN_FOUND_CURRENT;
}

/*
 * The record for the answers, under the key where they arrive now. It begins with what the other direction knows of it.
 * Another's is left alone, and without room it is not made. Returns whether it stands.
 */
static __always_inline int jn_reverse_move(struct jn_context *context)
{
	const struct jn_flow *flow = &context->flow;
	struct jn_flow *reverse = &context->reverse;
	__s32 error;

	reverse->peer = context->packet.key.key;
	reverse->stamp = flow->stamp;
	reverse->flags = JN_FLOW_REPLY | (flow->flags & JN_FLOW_EMBRYONIC) | (flow->flags & JN_TCP_TOLD) << 8 |
			 (flow->flags >> 8 & JN_TCP_TOLD);
	jn_tag(reverse, &context->reverse_key, flow->tag_low);
	error = bpf_map_update_elem(&jn_flows, &context->reverse_key.key, reverse, BPF_NOEXIST);
	if (error == JN_EEXIST && jn_reverse_held(context, &context->reverse_key.key) == JN_HELD_OURS)
		error = bpf_map_update_elem(&jn_flows, &context->reverse_key.key, reverse, BPF_ANY);
	return !error;
}

/*
 * The record that was found is decided anew: it keeps flags, peer and what it counts for. `pair`: the answers may have
 * moved, and context->reverse and reverse_key hold their way.
 */
static __always_inline int jn_commit_again(struct jn_context *context, int pair)
{
	struct jn_packet *packet = &context->packet;
	struct jn_flow *flow = &context->flow;
	__u32 told = packet->tcp_flags & JN_TCP_TOLD;

	flow->flags = context->old.flags | packet->tcp_flags;
	flow->peer = context->old.peer;
	flow->stamp = jn_now();
	jn_tag(flow, &packet->key, jn_birth());
	jn_step(context, JN_STAGE_COMMIT, JN_OK, flow->flags, 0, 0, 0);
	if (jn_config.dry_run)
		return JN_OK;
	/* A new record before the old one goes: answers find one of them. */
	pair = pair && !jn_key_equal(&context->reverse_key.key, &flow->peer) && jn_reverse_move(context);
	if (pair)
		flow->peer = context->reverse_key.key;
	if (bpf_map_update_elem(&jn_flows, &packet->key.key, flow, BPF_ANY)) {
		if (pair)
			bpf_map_delete_elem(&jn_flows, &context->reverse_key.key);
		return JN_FLOW_MAP_FULL;
	}
	if (pair && jn_reverse_held(context, &context->old.peer) == JN_HELD_OURS)
		bpf_map_delete_elem(&jn_flows, &context->old.peer);
	if (told && !(flow->flags & JN_FLOW_SINGLE))
		jn_flow_tell(&flow->peer, 0, told << 8);
	return JN_OK;
}

/*
 * A new flow. context->flow and, if `pair`, context->reverse and reverse_key hold the ways; tags, flags, stamps and
 * peers are set here.
 */
static __always_inline int jn_commit_new(struct __sk_buff *skb, struct jn_context *context, __u32 hook, int pair)
{
	struct jn_packet *packet = &context->packet;
	struct jn_flow *flow = &context->flow;
	struct jn_flow *reverse = &context->reverse;
	__u32 reused = context->found == JN_FOUND_REUSED;
	__u32 held = reused && context->old.flags & JN_FLOW_EMBRYONIC;
	__u32 embryonic = pair && (packet->protocol != IPPROTO_TCP || packet->tcp_flags & TCP_SYN);
	struct jn_quota quota;
	__u32 birth;
	/* 32 bits: until 6.4 the upper half of what a map operation returns is not its sign. */
	__s32 error;
	int reason;

	reason = jn_quota(&quota, flow->vpc_index, !reused, embryonic && !held);
	jn_step(context, JN_STAGE_COMMIT, reason, pair, embryonic, reused, flow->vpc_index);
	if (reason)
		return reason;
	birth = jn_birth();
	flow->stamp = jn_now();
	flow->flags = packet->tcp_flags | (embryonic ? JN_FLOW_EMBRYONIC : 0);
	jn_tag(flow, &packet->key, birth);
	if (pair) {
		flow->peer = context->reverse_key.key;
		reverse->peer = packet->key.key;
		reverse->stamp = flow->stamp;
		reverse->flags = JN_FLOW_REPLY | (packet->tcp_flags & JN_TCP_TOLD) << 8 |
				 (embryonic ? JN_FLOW_EMBRYONIC : 0);
		jn_tag(reverse, &context->reverse_key, birth);
	}
	if (jn_config.dry_run)
		return JN_OK;
	if (pair) {
		/* Reused ports have their reverse record still, as a rule. */
		int held = reused ? jn_reverse_held(context, &context->reverse_key.key) : JN_HELD_FREE;

		error = JN_EEXIST;
		if (held == JN_HELD_FREE) {
			error = bpf_map_update_elem(&jn_flows, &context->reverse_key.key, reverse, BPF_NOEXIST);
			if (error == JN_EEXIST)
				held = jn_reverse_held(context, &context->reverse_key.key);
		}
		if (held == JN_HELD_OTHER)
			pair = 0;
		else if (error == JN_EEXIST)
			error = bpf_map_update_elem(&jn_flows, &context->reverse_key.key, reverse, BPF_ANY);
		if (pair && error) {
			jn_quota_return(&quota);
			return JN_FLOW_MAP_FULL;
		}
	}
	if (!pair) {
		flow->flags = packet->tcp_flags | JN_FLOW_SINGLE;
		flow->peer = packet->key.key;
		if (quota.embryonic)
			jn_quota_add(&quota.state->embryonic, -1);
		quota.embryonic = 0;
	}
	error = bpf_map_update_elem(&jn_flows, &packet->key.key, flow, reused ? BPF_ANY : BPF_NOEXIST);
	if (!error) {
		if (held && !pair)
			jn_quota_add(&quota.state->embryonic, -1);
		jn_event(skb, JN_EVENT_FLOW_OPEN, hook, JN_OK, context->vpc, &packet->key.key);
		return JN_OK;
	}
	jn_quota_return(&quota);
	/* Another CPU was first: its records stand, and decide alike. */
	if (error == JN_EEXIST)
		return JN_OK;
	if (pair)
		bpf_map_delete_elem(&jn_flows, &context->reverse_key.key);
	return JN_FLOW_MAP_FULL;
}

/* Puts the records of a decision into the table. `pair`: context->reverse is the way of the answers. */
JN_ONCE int jn_commit(struct __sk_buff *skb, __u32 hook, __u32 pair)
{
	/* Not an argument: 6.1 takes no key or value from memory that it knows only as a function's argument. */
	struct jn_context *context = jn_context();

	if (!context)
		return JN_NO_CONTEXT;
	if (jn_found_kept(context))
		return jn_commit_again(context, pair);
	return jn_commit_new(skb, context, hook, pair);
}

/* What all records of a decision share. */
static __always_inline void jn_reverse_share(struct jn_context *context)
{
	struct jn_flow *flow = &context->flow;
	struct jn_flow *reverse = &context->reverse;
	__u32 i;

	reverse->epoch = flow->epoch;
	reverse->vpc_index = flow->vpc_index;
#pragma unroll
	for (i = 0; i < 4; i++) {
		reverse->generation[i] = flow->generation[i];
		reverse->value[i] = flow->value[i];
	}
	reverse->value[4] = flow->value[4];
}

/* The packet's tuple turned round, in another scope. */
static __always_inline void jn_reverse_key(struct jn_context *context, __u32 scope)
{
	const struct jn_packet *packet = &context->packet;
	const struct jn_flow_key *key = &packet->key.key;
	__u32 ports = key->destination_port | (__u32)key->source_port << 16;

#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
	ports = (__u32)key->destination_port << 16 | key->source_port;
#endif
	jn_key_set(&context->reverse_key, scope, packet->protocol, key->destination, key->source, ports);
}
