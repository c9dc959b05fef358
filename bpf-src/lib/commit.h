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

/* Who holds a key for answers: nobody, our forward key, another connection, or another one that is translated. */
enum jn_held { JN_HELD_FREE, JN_HELD_OURS, JN_HELD_OTHER, JN_HELD_TRANSLATED };

static __always_inline int jn_key_equal(const struct jn_flow_key *a, const struct jn_flow_key *b)
{
	const __u64 *x = (const void *)a, *y = (const void *)b;

	/* One branch, for the verifier. */
	return !((x[0] ^ y[0]) | (x[1] ^ y[1]));
}

static __always_inline int jn_reverse_held(const struct jn_context *context, const struct jn_flow_key *key)
{
	struct jn_flow *held = bpf_map_lookup_elem(&jn_flows, key);
	union jn_key_words peer;
	__u32 flags;
	__u64 tag;

	if (!held)
		return JN_HELD_FREE;
	tag = JN_READ(held->tag);
	jn_barrier();
	peer.key = held->peer;
	flags = JN_READ(held->flags);
	jn_barrier();
	if (JN_READ(held->tag) == tag && jn_key_equal(&peer.key, &context->packet.key.key))
		return JN_HELD_OURS;
	return flags & JN_FLOW_NAT ? JN_HELD_TRANSLATED : JN_HELD_OTHER;
}

/* The one's complement sum of what four words change by. */
static __always_inline __u16 jn_difference(__u32 before1, __u32 before2, __u32 after1, __u32 after2)
{
	__u32 sum = (__u16)~before1 + (__u16)(~before1 >> 16) + (__u16)~before2 + (__u16)(~before2 >> 16) +
		    (__u16)after1 + (__u16)(after1 >> 16) + (__u16)after2 + (__u16)(after2 >> 16);

	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

static __always_inline __u16 jn_difference_ports(__be16 before1, __be16 before2, __be16 after1, __be16 after2)
{
	__u32 sum = (__u16)~before1 + (__u16)~before2 + after1 + after2;

	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/* 1 where words differ, else 0; without a branch, which the verifier would walk twice. */
static __always_inline __u32 jn_differ(__u32 a, __u32 b)
{
	__u32 bits = a ^ b;

	barrier_var(bits);
	return (bits | -bits) >> 31;
}

/* What the translation changes of a packet that arrives with `key` and leaves as the flow's peer turned round. */
static __always_inline void jn_translate(struct jn_flow *flow, const struct jn_flow_key *key)
{
	const struct jn_flow_key *peer = &flow->peer;
	__u32 addresses, ports;

	addresses = jn_differ(peer->destination, key->source) * JN_REWRITE_SOURCE |
		    jn_differ(peer->source, key->destination) * JN_REWRITE_DESTINATION;
	ports = jn_differ(peer->destination_port, key->source_port) * JN_REWRITE_SOURCE_PORT |
		jn_differ(peer->source_port, key->destination_port) * JN_REWRITE_DESTINATION_PORT;
	flow->rewrite = addresses | ports;
	/* What does not change is 0, not the 0xffff that the sum of its difference is. */
	flow->address_difference =
		jn_difference(key->source, key->destination, peer->destination, peer->source) *
		jn_differ(addresses, 0);
	flow->port_difference = jn_difference_ports(key->source_port, key->destination_port, peer->destination_port,
						    peer->source_port) *
				jn_differ(ports, 0);
	flow->flags = (flow->flags & ~JN_FLOW_NAT) | jn_differ(addresses | ports, 0) * JN_FLOW_NAT;
}

/* Both records of a decision, whose peers are set. */
JN_ONCE int jn_translate_pair(__u32 pair)
{
	struct jn_context *context = jn_context();

	if (!context)
		return JN_NO_CONTEXT;
	jn_translate(&context->flow, &context->packet.key.key);
	if (pair)
		jn_translate(&context->reverse, &context->reverse_key.key);
	return JN_OK;
}

/* Whether the found record keeps being what it is: its flags and its peer stay. */
static __always_inline int jn_found_kept(const struct jn_context *context)
{
	return context->found == JN_FOUND_STALE || context->found == JN_FOUND_CURRENT;
}

/* What a try to commit comes to, beside a reason: another connection has the answers' key. */
enum { JN_TAKEN = 0x200 };

/*
 * The record for the answers, under context->reverse_key, where they arrive now. It begins with what the other direction
 * knows of it. Another's is left alone, and without room it is not made: JN_TAKEN and JN_FLOW_MAP_FULL.
 */
static __always_inline int jn_reverse_move(struct jn_context *context)
{
	const struct jn_flow *flow = &context->flow;
	struct jn_flow *reverse = &context->reverse;
	__u32 translated = flow->flags & JN_FLOW_NAT;
	int held = JN_HELD_FREE;
	__s32 error;

	reverse->stamp = flow->stamp;
	reverse->flags = (reverse->flags & JN_FLOW_NAT) | JN_FLOW_REPLY | (flow->flags & JN_FLOW_EMBRYONIC) |
			 (flow->flags & JN_TCP_TOLD) << 8 | (flow->flags >> 8 & JN_TCP_TOLD);
	jn_tag(reverse, &context->reverse_key, flow->tag_low);
	error = JN_EEXIST;
	if (!jn_config.dry_run)
		error = bpf_map_update_elem(&jn_flows, &context->reverse_key.key, reverse, BPF_NOEXIST);
	if (error == JN_EEXIST) {
		held = jn_reverse_held(context, &context->reverse_key.key);
		if (jn_config.dry_run)
			error = held < JN_HELD_OTHER ? 0 : JN_EEXIST;
		else if (held == JN_HELD_OURS)
			error = bpf_map_update_elem(&jn_flows, &context->reverse_key.key, reverse, BPF_ANY);
	}
	if (!error)
		return JN_OK;
	if (held == JN_HELD_TRANSLATED || (held == JN_HELD_OTHER && translated))
		return JN_TAKEN;
	return translated ? JN_FLOW_MAP_FULL : JN_HELD_OTHER;
}

/*
 * The record that was found is decided anew: it keeps flags, peer and what it counts for. `pair`: the answers may have
 * moved, and context->reverse and reverse_key hold their way.
 */
static __always_inline int jn_commit_again(struct jn_context *context, __u32 pair)
{
	struct jn_packet *packet = &context->packet;
	struct jn_flow *flow = &context->flow;
	__u32 told = packet->tcp_flags & JN_TCP_TOLD;
	int moved;

	flow->flags = (context->old.flags & ~JN_FLOW_NAT) | packet->tcp_flags;
	flow->peer = pair ? context->reverse_key.key : context->old.peer;
	flow->stamp = jn_now();
	context->reverse.peer = packet->key.key;
	jn_translate_pair(pair);
	jn_tag(flow, &packet->key, jn_birth());
	/* A new record before the old one goes: answers find one of them. */
	pair = pair && !jn_key_equal(&context->reverse_key.key, &context->old.peer);
	if (pair) {
		moved = jn_reverse_move(context);
		if (moved == JN_TAKEN || moved == JN_FLOW_MAP_FULL) {
			jn_step(context, JN_STAGE_COMMIT, moved == JN_TAKEN ? JN_NAT_PORTS : moved, flow->flags, 0, 0, 0);
			return moved;
		}
		if (moved) {
			flow->peer = context->old.peer;
			pair = 0;
		}
	}
	jn_step(context, JN_STAGE_COMMIT, JN_OK, flow->flags, 0, 0, 0);
	if (jn_config.dry_run)
		return JN_OK;
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
 * Another CPU was first: its records stand. If it chose otherwise, our answers' record goes, and the packet goes its
 * way.
 */
static __always_inline int jn_commit_lost(struct jn_context *context, __u32 pair)
{
	struct jn_flow *flow = &context->flow;
	struct jn_flow *winner;

	if (!(flow->flags & JN_FLOW_NAT))
		return JN_OK;
	winner = bpf_map_lookup_elem(&jn_flows, &context->packet.key.key);
	if (!winner || !jn_flow_copy(flow, winner, jn_fold(&context->packet.key), sizeof(*flow)))
		return JN_SERVICE_CHANGING;
	if (pair && !jn_key_equal(&flow->peer, &context->reverse_key.key) &&
	    jn_reverse_held(context, &context->reverse_key.key) == JN_HELD_OURS)
		bpf_map_delete_elem(&jn_flows, &context->reverse_key.key);
	return JN_OK;
}

/*
 * A new flow. context->flow and, if `pair`, context->reverse and reverse_key hold the ways; tags, flags, stamps, peers
 * and translations are set here.
 */
static __always_inline int jn_commit_new(struct jn_context *context, __u32 pair)
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
	if (reason) {
		jn_step(context, JN_STAGE_COMMIT, reason, pair, embryonic, reused, flow->vpc_index);
		return reason;
	}
	birth = jn_birth();
	flow->stamp = jn_now();
	flow->flags = packet->tcp_flags | (embryonic ? JN_FLOW_EMBRYONIC : 0);
	if (pair) {
		flow->peer = context->reverse_key.key;
		reverse->peer = packet->key.key;
		reverse->stamp = flow->stamp;
		reverse->flags = JN_FLOW_REPLY | (packet->tcp_flags & JN_TCP_TOLD) << 8 |
				 (embryonic ? JN_FLOW_EMBRYONIC : 0);
		jn_translate_pair(1);
		jn_tag(reverse, &context->reverse_key, birth);
	}
	jn_tag(flow, &packet->key, birth);
	if (pair) {
		/* Reused ports have their reverse record still, as a rule. */
		int holder = JN_HELD_FREE;

		if (reused || jn_config.dry_run)
			holder = jn_reverse_held(context, &context->reverse_key.key);
		error = JN_EEXIST;
		if (holder == JN_HELD_FREE && !jn_config.dry_run) {
			error = bpf_map_update_elem(&jn_flows, &context->reverse_key.key, reverse, BPF_NOEXIST);
			if (error == JN_EEXIST)
				holder = jn_reverse_held(context, &context->reverse_key.key);
		}
		if (holder == JN_HELD_TRANSLATED || (holder == JN_HELD_OTHER && flow->flags & JN_FLOW_NAT)) {
			jn_step(context, JN_STAGE_COMMIT, JN_NAT_PORTS, pair, embryonic, reused, flow->vpc_index);
			jn_quota_return(&quota);
			return JN_TAKEN;
		}
		if (holder == JN_HELD_OTHER)
			pair = 0;
		else if (error == JN_EEXIST && !jn_config.dry_run)
			error = bpf_map_update_elem(&jn_flows, &context->reverse_key.key, reverse, BPF_ANY);
		if (pair && error && !jn_config.dry_run) {
			jn_quota_return(&quota);
			return JN_FLOW_MAP_FULL;
		}
	}
	jn_step(context, JN_STAGE_COMMIT, JN_OK, pair, embryonic, reused, flow->vpc_index);
	if (jn_config.dry_run)
		return JN_OK;
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
		/* A connection that takes the ports of one that ended may be another translation. */
		if (reused && !jn_key_equal(&context->old.peer, &flow->peer) &&
		    jn_reverse_held(context, &context->old.peer) == JN_HELD_OURS)
			bpf_map_delete_elem(&jn_flows, &context->old.peer);
		context->opened = 1;
		return JN_OK;
	}
	jn_quota_return(&quota);
	if (error == JN_EEXIST)
		return jn_commit_lost(context, pair);
	if (pair)
		bpf_map_delete_elem(&jn_flows, &context->reverse_key.key);
	return JN_FLOW_MAP_FULL;
}

/* One try, under context->reverse_key. */
JN_ONCE int jn_commit_try(__u32 pair)
{
	/* Not an argument: 6.1 takes no key or value from memory that it knows only as a function's argument. */
	struct jn_context *context = jn_context();

	if (!context)
		return JN_NO_CONTEXT;
	if (jn_found_kept(context))
		return jn_commit_again(context, pair);
	return jn_commit_new(context, pair);
}

/*
 * The next port for the answers: after the flow's own, others by a stride of its hash, since close ports are taken
 * together. Returns whether the search is over.
 */
static long jn_commit_next(__u32 index, void *unused)
{
	struct jn_context *context = jn_context();
	union jn_key_words *key;
	__u32 hash, offset;

	(void)unused;
	if (!context)
		return 1;
	key = &context->reverse_key;
	if (!index)
		context->first_port = key->key.destination_port;
	key->key.destination_port = context->first_port;
	hash = jn_fold(key) >> 32;
	offset = (hash & 0xffff) + (index + 1) * (hash >> 16 | 1);
	key->key.destination_port = bpf_htons(JN_NAT_PORT_FIRST + offset % (0x10000 - JN_NAT_PORT_FIRST));
	context->committed = jn_commit_try(1);
	return context->committed != JN_TAKEN;
}

/*
 * Puts the records of a decision into the table. `pair`: context->reverse is the way of the answers, and reverse_key the
 * first key to try for them. Other protocols keep the port that they have: a checksum of SCTP covers the whole packet,
 * and an echo is known by its identifier.
 */
JN_ONCE int jn_commit(struct __sk_buff *skb, __u32 hook, __u32 pair)
{
	struct jn_context *context = jn_context();

	if (!context)
		return JN_NO_CONTEXT;
	context->opened = 0;
	context->committed = jn_commit_try(pair);
	if (JN_UNLIKELY(context->committed == JN_TAKEN)) {
		if (context->packet.protocol == IPPROTO_TCP || context->packet.protocol == IPPROTO_UDP)
			bpf_loop(JN_NAT_TRIES - 1, jn_commit_next, 0, 0);
		if (context->committed == JN_TAKEN)
			return JN_NAT_PORTS;
	}
	if (context->opened)
		jn_event(skb, JN_EVENT_FLOW_OPEN, hook, JN_OK, context->vpc, &context->packet.key.key);
	return context->committed;
}

/* What all records of a decision share. */
static __always_inline void jn_reverse_share(struct jn_context *context)
{
	struct jn_flow *flow = &context->flow;
	struct jn_flow *reverse = &context->reverse;
	__u32 i;

	reverse->epoch = flow->epoch;
	reverse->vpc_index = flow->vpc_index;
	reverse->backend = flow->backend;
#pragma unroll
	for (i = 0; i < 4; i++) {
		reverse->generation[i] = flow->generation[i];
		reverse->value[i] = flow->value[i];
	}
	reverse->value[4] = flow->value[4];
}

/* The tuple that the packet goes as, turned round, in another scope. */
static __always_inline void jn_reverse_key(struct jn_context *context, __u32 scope)
{
	const struct jn_bound *bound = &context->bound;
	__u32 ports = bound->destination_port | (__u32)bound->source_port << 16;

#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
	ports = (__u32)bound->destination_port << 16 | bound->source_port;
#endif
	jn_key_set(&context->reverse_key, scope, context->packet.protocol, bound->destination, bound->source, ports);
}
