/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The flow table: reading a record that may be recycled meanwhile, generations, what a hit writes. */
#pragma once
#include "parse.h"

enum { JN_FLOW_HOT = 64 };
_Static_assert(sizeof(struct jn_flow) == 128, "a record is two cache lines");
_Static_assert(__builtin_offsetof(struct jn_flow, tag_last) == JN_FLOW_HOT - 8, "the last tag ends the hot line");
_Static_assert(__builtin_offsetof(struct jn_flow, epoch) == 8, "the epoch and the tag's low half are one word");

/* TCP flags of a connection that ends, as seen by the entry or by its peer. */
enum { JN_TCP_CLOSING = TCP_FIN | TCP_RST, JN_FLOW_CLOSING = JN_TCP_CLOSING | JN_TCP_CLOSING << 8 };
/* Those that a peer entry is told. */
enum { JN_TCP_TOLD = TCP_FIN | TCP_SYN | TCP_RST };

static __always_inline __u32 jn_now(void)
{
	if (jn_config.flags & JN_CONFIG_TEST_CLOCK)
		return JN_READ(jn_hot.clock);
	return bpf_jiffies64() >> 8;
}

/*
 * Copies `bytes` of a record, if it is the key's. A lookup may return an element that another key takes over while it
 * is read; the kernel fills elements upwards, so the last tag is read before the copy and the first one after it.
 */
static __always_inline int jn_flow_copy(struct jn_flow *copy, struct jn_flow *entry, __u64 fold, __u32 bytes)
{
	__u64 last = JN_READ(entry->tag_last);

	jn_barrier();
	__builtin_memcpy(copy, entry, bytes);
	jn_barrier();
	return (__u32)(last >> 32) == (__u32)(fold >> 32) && JN_READ(entry->tag) == last;
}

/* The second half of a record whose hot line was copied. */
static __always_inline int jn_flow_copy_cold(struct jn_flow *copy, struct jn_flow *entry)
{
	__builtin_memcpy((void *)copy + JN_FLOW_HOT, (void *)entry + JN_FLOW_HOT, sizeof(*copy) - JN_FLOW_HOT);
	jn_barrier();
	return JN_READ(entry->tag) == copy->tag;
}

/* A new connection takes the ports of one that ended. */
static __always_inline int jn_flow_reused(const struct jn_packet *packet, __u32 flow_flags)
{
	return (packet->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN && (flow_flags & JN_FLOW_CLOSING);
}

/* Whether a record waits for the first answer, and its direction is the answering one. */
static __always_inline int jn_flow_awaits(__u32 flow_flags)
{
	return (flow_flags & (JN_FLOW_REPLY | JN_FLOW_EMBRYONIC)) == (JN_FLOW_REPLY | JN_FLOW_EMBRYONIC);
}

/*
 * Clears and sets flags of a record that had `seen`: in one exchange, or in two when somebody else changed them
 * meanwhile. Returns what they were when they were cleared.
 */
static __always_inline __u32 jn_flow_flags(struct jn_flow *entry, __u32 seen, __u32 clear, __u32 set)
{
	if (__sync_val_compare_and_swap(&entry->flags, seen, (seen & ~clear) | set) == seen)
		return seen;
	seen = __sync_fetch_and_and(&entry->flags, ~clear);
	__sync_fetch_and_or(&entry->flags, set);
	return seen;
}

/* Changes flags of the record of another key, if it is still that key's. */
static __always_inline void jn_flow_tell(const struct jn_flow_key *key, __u32 clear, __u32 set)
{
	union jn_key_words words;
	struct jn_flow *peer;
	__u32 seen;

	words.key = *key;
	peer = bpf_map_lookup_elem(&jn_flows, &words.key);
	if (!peer || (__u32)(JN_READ(peer->tag) >> 32) != (__u32)(jn_fold(&words) >> 32))
		return;
	seen = JN_READ(peer->flags);
	if (seen & clear)
		jn_flow_flags(peer, seen, clear, set);
	else if ((seen & set) != set)
		__sync_fetch_and_or(&peer->flags, set);
}

/* The first answer at its own record, which had `seen`: who clears the bit takes it out of the count. */
static __always_inline void jn_flow_answered(struct jn_flow *entry, const struct jn_flow *copy, __u32 seen, __u32 set)
{
	__u32 index = copy->vpc_index;
	struct jn_vpc_state *state;

	if (!(jn_flow_flags(entry, seen, JN_FLOW_EMBRYONIC, set) & JN_FLOW_EMBRYONIC))
		return;
	state = bpf_map_lookup_elem(&jn_vpc_states, &index);
	if (state)
		__sync_fetch_and_add(&state->embryonic, -1);
}

/* What a hit leaves in its record: stamp and TCP flags; SYN, FIN, RST and the first answer in the peer's, too. */
static __always_inline void jn_flow_touch(struct jn_flow *entry, struct jn_flow *copy,
					  const struct jn_packet *packet)
{
	__u32 clear = jn_flow_awaits(copy->flags) ? JN_FLOW_EMBRYONIC : 0;
	__u32 told = packet->tcp_flags & JN_TCP_TOLD;
	__u32 tcp_flags = packet->tcp_flags;
	__u32 seen = copy->flags;
	__u32 now;

	copy->flags = seen & ~clear;
	if (jn_config.dry_run)
		return;
	now = jn_now();
	if (copy->stamp != now)
		JN_WRITE(entry->stamp, now);
	if (JN_UNLIKELY(clear))
		jn_flow_answered(entry, copy, seen, tcp_flags);
	else if (tcp_flags & ~seen)
		__sync_fetch_and_or(&entry->flags, tcp_flags);
	if (JN_UNLIKELY(told | clear) && !(seen & JN_FLOW_SINGLE)) {
		struct jn_flow_key peer = entry->peer;

		/* The peer's key lies behind the last tag: a second look at the first says whose it is. */
		jn_barrier();
		if (JN_READ(entry->tag) == copy->tag)
			jn_flow_tell(&peer, clear, told << 8);
	}
}

/* ---- generations ---- */

/* In host order an address' last octet moves every bit that is kept; in wire order it would move none. */
static __always_inline __u32 jn_hash32(__u32 a, __be32 address)
{
	return ((a * 0x9E3779B1u) ^ (bpf_ntohl(address) * 0x85EBCA77u)) >> 16;
}

static __always_inline __u32 jn_generation_endpoint(__u32 vpc, __be32 address)
{
	return JN_GEN_ENDPOINT + (jn_hash32(vpc, address) & 0xffff);
}

static __always_inline __u32 jn_generation_vtep(__be32 vtep)
{
	return JN_GEN_VTEP + (jn_hash32(0, vtep) & 0xfff);
}

static __always_inline __u32 jn_generation_table(__u32 table)
{
	return JN_GEN_TABLE + (table & 0x7fff);
}

/* A slot's value; 1, which is never current, for a slot that does not exist. */
static __always_inline __u32 jn_generation(__u32 slot)
{
	__u32 *value = bpf_map_lookup_elem(&jn_generations, &slot);

	return value ? JN_READ(*value) : 1;
}

/* Whether a value holds now, in a slot that is not in the midst of a change. */
static __always_inline int jn_generation_holds(__u32 slot, __u32 value)
{
	return !(value & 1) && jn_generation(slot) == value;
}

/* The word {epoch, low half of the tag} of a record. */
static __always_inline __u64 jn_epoch_word(__u32 epoch, __u32 tag_low)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	return epoch | (__u64)tag_low << 32;
#else
	return (__u64)epoch << 32 | tag_low;
#endif
}

/*
 * Whether the record `copy` (whole) was decided under what holds now. If the epoch moved but none of its generations
 * did, the record is stamped with the epoch; the exchange fails on an element that was recycled meanwhile.
 */
static __always_inline int jn_flow_current(struct jn_flow *entry, struct jn_flow *copy)
{
	__u32 epoch = JN_READ(jn_hot.epoch);
	__u32 i;

	if (copy->epoch == epoch)
		return 1;
	jn_barrier();
#pragma unroll
	for (i = 0; i < 4; i++) {
		if (!jn_generation_holds(copy->generation[i], copy->value[i]))
			return 0;
	}
	if (!jn_generation_holds(JN_GEN_NODE, copy->value[4]))
		return 0;
	if (!jn_config.dry_run)
		__sync_val_compare_and_swap((__u64 *)&entry->epoch, jn_epoch_word(copy->epoch, copy->tag_low),
					    jn_epoch_word(epoch, copy->tag_low));
	return 1;
}

/*
 * Reads the epoch and those generations of a decision that are known before any table is read, into context->flow.
 */
static __always_inline void jn_generations_read(struct jn_context *context, __be32 source, __be32 destination)
{
	struct jn_flow *flow = &context->flow;

	context->epoch = JN_READ(jn_hot.epoch);
	jn_barrier();
	flow->value[4] = jn_generation(JN_GEN_NODE);
	flow->generation[0] = jn_generation_endpoint(context->vpc, source);
	flow->value[0] = jn_generation(flow->generation[0]);
	flow->generation[1] = jn_generation_endpoint(context->vpc, destination);
	flow->value[1] = jn_generation(flow->generation[1]);
	context->odd = (flow->value[4] | flow->value[0] | flow->value[1]) & 1;
	flow->epoch = context->epoch - context->odd;
}

/* One more generation, before the table is read that it stands for. */
static __always_inline void jn_generation_add(struct jn_context *context, struct jn_flow *flow, __u32 index,
					      __u32 slot)
{
	flow->generation[index] = slot;
	flow->value[index] = jn_generation(slot);
	context->odd |= flow->value[index] & 1;
	flow->epoch = context->epoch - context->odd;
	jn_barrier();
}
