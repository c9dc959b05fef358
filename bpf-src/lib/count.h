/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Verdicts, counters, events, and the trail of an explanation. */
#pragma once
#include "map_defs.h"

/* What a stage returns beside a reason: go on in a tail program. */
enum { JN_NEXT = 0x100 };

static __always_inline struct jn_context *jn_context(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&jn_scratch, &zero);
}

static __always_inline void jn_count(__u32 hook, __u32 reason, __u32 answered)
{
	__u32 index = (hook * JN_REASON_MAX + reason) * 2 + answered;
	__u64 *counter;

	if (jn_config.dry_run)
		return;
	counter = bpf_map_lookup_elem(&jn_counters, &index);
	if (counter)
		++*counter;
}

static __always_inline void jn_count_device(__u32 cause)
{
	__u64 *counter;

	if (jn_config.dry_run)
		return;
	counter = bpf_map_lookup_elem(&jn_devices, &cause);
	if (counter)
		++*counter;
}

static __always_inline void jn_count_traffic(__u32 vpc_index, __u32 direction, __u32 bytes)
{
	__u32 index = vpc_index * 2 + direction;
	struct jn_traffic *traffic;

	if (jn_config.dry_run)
		return;
	traffic = bpf_map_lookup_elem(&jn_traffic, &index);
	if (traffic) {
		traffic->packets++;
		traffic->bytes += bytes;
	}
}

/* One step of an explanation. Nothing remains of it in other loads. */
static __always_inline void jn_step(struct jn_context *context, __u32 stage, __u32 code, __u32 a, __u32 b, __u32 c,
				    __u32 d)
{
	struct jn_step *step;
	__u32 index;

	if (!jn_config.dry_run)
		return;
	index = context->steps;
	step = bpf_map_lookup_elem(&jn_trail, &index);
	if (!step)
		return;
	step->stage = stage;
	step->code = code;
	step->a = a;
	step->b = b;
	step->c = c;
	step->d = d;
	context->steps = index + 1;
}

static __always_inline void jn_event(struct __sk_buff *skb, __u32 kind, __u32 hook, __u32 reason, __u32 vpc,
				     const struct jn_flow_key *key)
{
	struct jn_event *event;

	if (jn_config.dry_run || !(JN_READ(jn_hot.events) & (1u << kind)))
		return;
	if (kind == JN_EVENT_DROP) {
		__u32 sample = JN_READ(jn_hot.sample);

		if (sample && (bpf_get_prandom_u32() & sample))
			return;
	}
	event = bpf_ringbuf_reserve(&jn_events, sizeof(*event), 0);
	if (!event) {
		__u32 zero = 0;
		__u64 *lost = bpf_map_lookup_elem(&jn_event_lost, &zero);

		if (lost)
			++*lost;
		return;
	}
	event->time = bpf_ktime_get_ns();
	event->kind = kind;
	event->hook = hook;
	event->reason = reason;
	event->ifindex = skb->ifindex;
	event->key = *key;
	event->vpc = vpc;
	event->length = skb->len;
	bpf_ringbuf_submit(event, 0);
}

static __always_inline void jn_verdict(struct jn_context *context, __u32 hook, __u32 action, __u32 reason,
				       __u32 answered, __u32 ifindex, __be32 vtep, __u32 vni)
{
	struct jn_verdict *verdict = &context->verdict;

	verdict->action = action;
	verdict->reason = reason;
	verdict->answered = answered;
	verdict->ifindex = ifindex;
	verdict->vtep = vtep;
	verdict->vni = vni;
	verdict->hook = hook;
}

/* The exit of every packet that is dropped. The key lies in the context; before it is known it is zero. */
static __always_inline int jn_drop(struct __sk_buff *skb, struct jn_context *context, __u32 hook, __u32 reason)
{
	jn_verdict(context, hook, JN_ACT_DROP, reason, 0, 0, 0, 0);
	jn_count(hook, reason, 0);
	jn_event(skb, JN_EVENT_DROP, hook, reason, context->vpc, &context->packet.key.key);
	return TC_ACT_SHOT;
}

/* The exit of a packet that is none of ours. */
static __always_inline int jn_pass(struct jn_context *context, __u32 hook, __u32 reason)
{
	jn_verdict(context, hook, JN_ACT_PASS, reason, 0, 0, 0, 0);
	return TC_ACT_UNSPEC;
}

/* The context itself is missing. */
static __always_inline int jn_broken(__u32 hook, int action)
{
	jn_count(hook, JN_NO_CONTEXT, 0);
	return action;
}
