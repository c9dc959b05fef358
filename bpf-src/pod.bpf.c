/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Hook POD: a Pod's host veth, ingress: everything a Pod sends. Hook NODE PORT: the node's end of its own veth pair,
 * ingress: everything the node sends to Pods. The programs behind a miss serve both.
 */
#include "lib/answer.h"
#include "lib/icmp.h"
#include "lib/arp.h"

/* What of a packet is readable when parsing begins: Ethernet, IPv4, TCP without options. */
enum { JN_PARSED = sizeof(struct jn_ethernet) + sizeof(struct jn_ipv4) + sizeof(struct jn_tcp) };

/* The hook whose packet a tail program has. Two constants would double what the verifier has to walk. */
static __always_inline __u32 jn_pod_hook(const struct jn_context *context)
{
	return context->verdict.hook;
}

/* Rules 2 to 10 but the flow. */
static __always_inline int jn_pod_parse(struct __sk_buff *skb, struct jn_context *context, __u32 hook,
					const struct jn_interface *interface, struct jn_packet *packet,
					struct jn_ethernet **ethernet, struct jn_ipv4 **ip)
{
	__u32 scope = interface->vpc;
	void *data, *end;
	__u32 ports = 0;
	__be16 type;
	int reason;

	if (skb->vlan_present)
		return JN_VLAN;
	jn_pull(skb, JN_PARSED, &data, &end);
	*ethernet = data;
	if ((void *)(*ethernet + 1) > end)
		return JN_MALFORMED;
	type = (*ethernet)->type;
	if (JN_UNLIKELY(type == bpf_htons(ETH_P_8021Q) || type == bpf_htons(ETH_P_8021AD)))
		return JN_VLAN;
	if (!jn_mac_equal((*ethernet)->source, interface->mac))
		return JN_SOURCE_MAC;
	if (JN_UNLIKELY(type != bpf_htons(ETH_P_IP))) {
		if (type == bpf_htons(ETH_P_ARP))
			return JN_NEXT + JN_TAIL_POD_ARP;
		return type == bpf_htons(ETH_P_IPV6) ? JN_IPV6 : JN_ETHERTYPE;
	}
	packet->frame = skb->len;
	*ip = (void *)(*ethernet + 1);
	reason = jn_parse_ipv4(*ip, end, packet->frame - sizeof(**ethernet), skb->gso_size, packet);
	if (reason)
		return reason;
	if (JN_UNLIKELY((*ip)->source != interface->address)) {
		if (hook == JN_HOOK_NODE_PORT) {
			if (!jn_node_address(context, interface->vpc, (*ip)->source))
				return JN_NODE_SOURCE;
		} else {
			if (!(interface->flags & JN_EP_ROUTER) || jn_forbidden((*ip)->source))
				return JN_SOURCE_ADDRESS;
			packet->flags |= JN_PACKET_TRANSIT;
			scope = (skb->ifindex & JN_SCOPE_MASK) | JN_SCOPE_TRANSIT;
		}
	}
	if (jn_forbidden((*ip)->destination))
		return JN_DESTINATION;
	if (!(interface->flags & JN_EP_POLICY_READY))
		return JN_POLICY_NOT_READY;
	if (!(packet->flags & JN_PACKET_LATER))
		reason = jn_parse_l4(*ip, end, packet, &ports);
	jn_key_set(&packet->key, scope, packet->protocol, (*ip)->source, (*ip)->destination, ports);
	jn_step(context, JN_STAGE_PARSE, reason, packet->key.key.scope, (*ip)->source, (*ip)->destination, ports);
	if (reason)
		return reason;
	if (JN_UNLIKELY(packet->flags & (JN_PACKET_FIRST | JN_PACKET_LATER | JN_PACKET_ICMP_ERROR))) {
		if (packet->flags & JN_PACKET_LATER)
			return JN_NEXT + JN_TAIL_POD_FRAGMENT;
		if (packet->flags & JN_PACKET_ICMP_ERROR)
			return JN_NEXT + JN_TAIL_POD_ICMP;
		return JN_NEXT + JN_TAIL_POD_DECIDE;
	}
	return JN_OK;
}

/* What a record says against a packet that finds it. */
static __always_inline int jn_pod_fits(const struct jn_flow *flow, const struct jn_packet *packet)
{
	if (flow->kind == JN_EGRESS_UNRESOLVED)
		return 0;
	if (flow->ttl_decrement && packet->ttl <= flow->ttl_decrement)
		return 0;
	return packet->size <= flow->mtu || (!(packet->flags & JN_PACKET_DF) && flow->kind == JN_EGRESS_ENCAP);
}

/* A hit leaves from here. `hook` is a constant. */
static __always_inline int jn_pod_receive(struct __sk_buff *skb, __u32 hook)
{
	struct jn_context *context = jn_context();
	const struct jn_interface *interface;
	struct jn_ethernet *ethernet;
	struct jn_packet packet;
	struct jn_flow *entry;
	struct jn_flow *flow;
	struct jn_ipv4 *ip;
	int reason;

	if (!context)
		return jn_broken(hook, TC_ACT_SHOT);
	context->found = JN_FOUND_UNREAD;
	packet.key.word[0] = 0;
	packet.key.word[1] = 0;
	context->vpc = 0;
	context->verdict.slow = 0;
	if (jn_config.dry_run)
		context->steps = 0;
	interface = jn_interface(skb->ifindex);
	reason = JN_NO_INTERFACE;
	if (!interface || (hook == JN_HOOK_NODE_PORT && !(interface->flags & JN_EP_NODE)))
		goto drop;
	context->vpc = interface->vpc;
	reason = jn_pod_parse(skb, context, hook, interface, &packet, &ethernet, &ip);
	if (reason >= JN_NEXT)
		goto next;
	if (reason)
		goto drop;

	reason = JN_NEXT + JN_TAIL_POD_DECIDE;
	flow = &context->flow;
	entry = bpf_map_lookup_elem(&jn_flows, &packet.key.key);
	if (!entry) {
		context->found = JN_FOUND_NONE;
		goto next;
	}
	if (!jn_flow_copy(flow, entry, jn_fold(&packet.key), JN_FLOW_HOT))
		goto next;
	if (flow->epoch != JN_READ(jn_hot.epoch) || !jn_pod_fits(flow, &packet) ||
	    jn_flow_reused(&packet, flow->flags))
		goto next;
	if (JN_UNLIKELY(flow->flags & JN_FLOW_NAT) && !jn_flow_copy_cold(flow, entry))
		goto next;
	jn_step(context, JN_STAGE_FLOW, JN_FOUND_CURRENT, flow->flags, flow->stamp, flow->epoch, flow->vpc_index);
	jn_flow_touch(entry, flow, &packet);
	return jn_emit_pod(skb, context, hook, flow, &packet, ethernet, ip, 0);

next:
	context->verdict.hook = hook;
	context->packet = packet;
	if (reason != JN_NEXT + JN_TAIL_POD_ARP)
		context->packet.id = ip->id;
	bpf_tail_call(skb, &jn_tails, reason - JN_NEXT);
	reason = JN_MISSED_TAIL_CALL;
drop:
	context->packet.key = packet.key;
	return jn_drop(skb, context, hook, reason);
}

SEC("tc")
int jn_pod(struct __sk_buff *skb)
{
	return jn_pod_receive(skb, JN_HOOK_POD);
}

SEC("tc")
int jn_node(struct __sk_buff *skb)
{
	return jn_pod_receive(skb, JN_HOOK_NODE_PORT);
}

/*
 * The record for the answers to a new flow: by where the destination is. Behind a router the answer goes by the routes
 * of who sends it, which may lead through the router, too.
 */
static __always_inline void jn_pod_reverse(struct __sk_buff *skb, struct jn_context *context,
					   const struct jn_interface *interface, const struct jn_side *destination,
					   int connected)
{
	struct jn_flow *reverse = &context->reverse;
	const struct jn_flow *flow = &context->flow;

	__builtin_memset(reverse, 0, sizeof(*reverse));
	jn_reverse_share(context);
	if (destination->flags & JN_EP_LOCAL) {
		jn_reverse_key(context, interface->vpc);
		if (!connected)
			return;
		reverse->ttl_decrement = flow->ttl_decrement;
		jn_mac_copy(reverse->smac, flow->ttl_decrement ? interface->gateway_mac : context->target.mac);
	} else {
		jn_reverse_key(context, interface->vni | JN_SCOPE_OVERLAY);
		reverse->vtep = flow->vtep;
	}
	reverse->kind = jn_here(interface->flags);
	reverse->ifindex = skb->ifindex;
	reverse->vni = interface->vni;
	reverse->mtu = interface->mtu;
	jn_mac_copy(reverse->dmac, interface->mac);
}

/* Decide: service, route and policy of a packet whose record is missing or does not fit; its new record is left to commit. */
static __always_inline int jn_pod_decided(struct __sk_buff *skb, struct jn_context *context,
					  const struct jn_interface *interface)
{
	struct jn_packet *packet = &context->packet;
	const __u32 transit = packet->flags & JN_PACKET_TRANSIT;
	__be32 destination;
	struct jn_flow *flow = &context->flow;
	struct jn_sender sender;
	struct jn_side own, other;
	__u32 identity;
	int connected = 0;
	int reason;

	context->verdict.slow = 1;
	context->commit = JN_COMMIT_ONE;
	JN_WRITE(context->reply, jn_original(context));
	__builtin_memset(flow, 0, sizeof(*flow));
	jn_generations_read(context, context->original.source, context->original.destination);
	jn_generation_add(context, flow, 2, jn_generation_table(interface->table));
	jn_generation_add(context, flow, 3, JN_GEN_NO_VTEP);

	/* From here on tables are read; the interface's record is one of them. */
	flow->vpc_index = interface->vpc_index;
	sender.table = interface->table;
	sender.vni = interface->vni;
	sender.ifindex = skb->ifindex;
	sender.gateway = interface->gateway;
	sender.mac = interface->mac;
	sender.known = 0;
	jn_route_find(context, interface->table, packet->key.key.destination);
	jn_bound_none(context);
	if (JN_UNLIKELY(context->route.kind == JN_ROUTE_SERVICE || jn_found_translated(context))) {
		reason = jn_bind(skb->ifindex, interface->pod);
		if (reason)
			return reason;
		if (context->bound.destination != packet->key.key.destination)
			jn_route_find(context, interface->table, context->bound.destination);
	}
	/* What is translated is routed, even between neighbours: it was sent to the gateway. */
	JN_WRITE(context->routed, jn_bound_routed(context));
	destination = context->bound.destination;
	reason = jn_target(context, &sender, destination, JN_READ(context->routed), &connected);
	if (reason)
		return reason;
	JN_WRITE(context->connected, connected);
	if (context->bound.backend && !JN_READ(context->reply)) {
		context->original.destination_port = context->bound.destination_port;
		/* What a router brings back would not be known as an answer. */
		if (!JN_READ(context->connected))
			return JN_ROUTE_UNREACHABLE;
	}
	reason = jn_deliver(context, &sender, JN_READ(context->connected) & !JN_READ(context->routed), flow);
	if (reason)
		return reason;
	flow->backend = context->bound.backend;

	own.identity = interface->identity;
	own.policy = interface->policy;
	own.flags = interface->flags | JN_EP_LOCAL;
	if (JN_READ(context->connected)) {
		other.identity = context->target.identity;
		other.policy = context->target.policy;
		other.flags = context->target.flags;
	} else {
		jn_side_find(context, destination, &other);
	}
	if (JN_READ(context->routed) && jn_target_own(context, skb->ifindex, interface->pod)) {
		/* Nobody's policy stands between a Pod and itself. */
		reason = JN_OK;
	} else if (JN_READ(context->reply)) {
		reason = jn_policy(&other, other.identity, &own, own.identity);
	} else {
		identity = own.identity;
		if (transit) {
			struct jn_side source;

			jn_side_find(context, packet->key.key.source, &source);
			identity = source.identity;
		}
		reason = jn_policy(&own, identity, &other, other.identity);
	}
	if (reason)
		return reason;

	if (flow->ttl_decrement && packet->ttl <= flow->ttl_decrement)
		return JN_TTL_EXCEEDED;
	if (packet->size > flow->mtu && (packet->flags & JN_PACKET_DF || flow->kind != JN_EGRESS_ENCAP)) {
		context->mtu = flow->mtu;
		return JN_FRAGMENTATION_NEEDED;
	}

	if (flow->kind == JN_EGRESS_ENCAP)
		flow->outer_port = jn_outer_port(&packet->key);
	if (transit || (jn_found_kept(context) && context->old.flags & (JN_FLOW_REPLY | JN_FLOW_SINGLE)))
		return JN_OK;
	jn_pod_reverse(skb, context, interface, &other, JN_READ(context->connected));
	context->commit = JN_COMMIT_PAIR;
	return JN_OK;
}

/* A packet that is refused: its sender is told in another program, where it may be. Returns the reason to drop it for. */
static __always_inline int jn_pod_refused(struct __sk_buff *skb, struct jn_context *context, int reason)
{
	if (!jn_answerable(context, reason))
		return reason;
	context->verdict.reason = reason;
	bpf_tail_call(skb, &jn_tails, JN_TAIL_POD_REJECT);
	return JN_MISSED_TAIL_CALL;
}

/* A miss, a fragment, a moved epoch: the flow's record as a whole. */
SEC("tc")
int jn_pod_decide(struct __sk_buff *skb)
{
	struct jn_context *context = jn_context();
	const struct jn_interface *interface;
	struct jn_packet *packet;
	struct jn_flow *entry;
	int reason;

	if (!context)
		return jn_broken(JN_HOOK_POD, TC_ACT_SHOT);
	packet = &context->packet;
	interface = jn_interface(skb->ifindex);
	reason = JN_NO_INTERFACE;
	if (!interface)
		goto drop;
	entry = jn_flow_find(context);
	jn_step(context, JN_STAGE_FLOW, context->found, context->old.flags, context->old.stamp, context->old.epoch,
		context->old.vpc_index);
	reason = JN_FRAGMENT_NO_FIRST;
	if (!entry && packet->flags & JN_PACKET_LATER)
		goto drop;
	if (entry && context->found == JN_FOUND_CURRENT && jn_pod_fits(&context->old, packet)) {
		jn_flow_touch(entry, &context->old, packet);
		context->flow = context->old;
		context->commit = JN_COMMIT_NONE;
	} else {
		if (entry && context->found == JN_FOUND_CURRENT)
			jn_flow_answered_apart(entry, &context->old);
		reason = jn_pod_decided(skb, context, interface);
		if (reason) {
			reason = jn_pod_refused(skb, context, reason);
			goto drop;
		}
	}
	bpf_tail_call(skb, &jn_tails, JN_TAIL_POD_COMMIT);
	reason = JN_MISSED_TAIL_CALL;
drop:
	return jn_drop(skb, context, jn_pod_hook(context), reason);
}

/* Commit and emit of what was decided. */
SEC("tc")
int jn_pod_commit(struct __sk_buff *skb)
{
	struct jn_context *context = jn_context();
	struct jn_ethernet *ethernet;
	struct jn_packet *packet;
	void *data, *end;
	__u32 hook;
	int reason;

	if (!context)
		return jn_broken(JN_HOOK_POD, TC_ACT_SHOT);
	hook = jn_pod_hook(context);
	packet = &context->packet;
	if (context->commit != JN_COMMIT_NONE) {
		reason = jn_commit(skb, hook, context->commit == JN_COMMIT_PAIR);
		if (reason) {
			reason = jn_pod_refused(skb, context, reason);
			goto drop;
		}
	}
	if (packet->flags & JN_PACKET_FIRST) {
		reason = jn_fragment_remember(packet);
		if (reason)
			goto drop;
	}
	jn_pull(skb, sizeof(*ethernet) + sizeof(struct jn_ipv4), &data, &end);
	ethernet = data;
	reason = JN_MALFORMED;
	if (data + sizeof(*ethernet) + sizeof(struct jn_ipv4) > end)
		goto drop;
	return jn_emit_pod(skb, context, hook, &context->flow, packet, ethernet, (void *)(ethernet + 1), 1);
drop:
	return jn_drop(skb, context, hook, reason);
}

/* A later fragment: the first one's ports. */
SEC("tc")
int jn_pod_fragment(struct __sk_buff *skb)
{
	struct jn_context *context = jn_context();
	__u32 hook;
	int reason;

	if (!context)
		return jn_broken(JN_HOOK_POD, TC_ACT_SHOT);
	hook = jn_pod_hook(context);
	reason = jn_fragment_recall(&context->packet);
	if (!reason) {
		bpf_tail_call(skb, &jn_tails, JN_TAIL_POD_DECIDE);
		reason = JN_MISSED_TAIL_CALL;
	}
	return jn_drop(skb, context, hook, reason);
}

/* An ICMP error about a flow that its sender has. */
SEC("tc")
int jn_pod_icmp(struct __sk_buff *skb)
{
	struct jn_context *context = jn_context();
	const struct jn_interface *interface;
	struct jn_packet *packet;
	struct jn_sender sender;
	union jn_key_words turned;
	struct jn_quote quote;
	struct jn_ethernet *ethernet;
	struct jn_flow *flow;
	void *data, *end;
	int connected = 0, translated = 0;
	__be32 destination;
	__u32 hook;
	int reason;

	if (!context)
		return jn_broken(JN_HOOK_POD, TC_ACT_SHOT);
	hook = jn_pod_hook(context);
	packet = &context->packet;
	destination = packet->key.key.destination;
	flow = &context->flow;
	interface = jn_interface(skb->ifindex);
	reason = JN_NO_INTERFACE;
	if (!interface)
		goto drop;
	jn_pull(skb, JN_QUOTE_END, &data, &end);
	ethernet = data;
	reason = JN_ICMP_QUOTE;
	if (data + JN_QUOTE_END > end)
		goto drop;
	reason = jn_quote_parse(data + JN_QUOTE_END - JN_QUOTE_LENGTH, packet, &quote);
	if (reason)
		goto drop;
	reason = JN_ICMP_NO_FLOW;
	jn_quote_turned(&quote, packet->key.key.scope, &turned);
	/* A Pod speaks for itself only, or every Pod of a VPC could end the others' connections. */
	if ((!(packet->flags & JN_PACKET_TRANSIT) && quote.destination != packet->key.key.source) ||
	    !jn_quote_flow(context, &turned)) {
		if (!jn_pod_router_quote(skb, context, interface, &quote))
			goto drop;
	} else if (context->old.flags & JN_FLOW_NAT) {
		translated = 1;
		destination = context->old.peer.source;
	}

	context->verdict.slow = 1;
	__builtin_memset(flow, 0, sizeof(*flow));
	flow->vpc_index = interface->vpc_index;
	sender.table = interface->table;
	sender.vni = interface->vni;
	sender.ifindex = skb->ifindex;
	sender.gateway = interface->gateway;
	sender.mac = interface->mac;
	sender.known = 0;
	jn_route_find(context, interface->table, destination);
	reason = jn_target(context, &sender, destination, translated, &connected);
	if (reason)
		goto drop;
	reason = jn_deliver(context, &sender, connected && !translated, flow);
	if (reason)
		goto drop;
	if (translated)
		jn_error_as_answers(context);
	reason = JN_TTL_EXCEEDED;
	if (flow->ttl_decrement && packet->ttl <= flow->ttl_decrement)
		goto drop;
	if (flow->kind == JN_EGRESS_ENCAP)
		flow->outer_port = jn_outer_port(&packet->key);
	return jn_emit_pod(skb, context, hook, flow, packet, ethernet, (void *)(ethernet + 1), 1);
drop:
	return jn_drop(skb, context, hook, reason);
}

SEC("tc")
int jn_pod_arp(struct __sk_buff *skb)
{
	struct jn_context *context = jn_context();
	const struct jn_interface *interface;
	__u32 hook;
	int reason;

	if (!context)
		return jn_broken(JN_HOOK_POD, TC_ACT_SHOT);
	hook = jn_pod_hook(context);
	interface = jn_interface(skb->ifindex);
	if (!interface)
		return jn_drop(skb, context, hook, JN_NO_INTERFACE);
	reason = jn_arp(skb, context, hook, interface);
	if (reason)
		return jn_drop(skb, context, hook, reason);
	jn_verdict(context, hook, JN_ACT_ANSWER, JN_ARP_ANSWERED, 1, skb->ifindex, 0, 0);
	jn_count(hook, JN_ARP_ANSWERED, 1);
	return jn_back(skb, hook);
}

/* The reason lies in the verdict; an ICMP error or a reset leaves in the packet's stead if one may. */
SEC("tc")
int jn_pod_reject(struct __sk_buff *skb)
{
	struct jn_context *context = jn_context();
	const struct jn_interface *interface;
	__u32 reason, hook;

	if (!context)
		return jn_broken(JN_HOOK_POD, TC_ACT_SHOT);
	hook = jn_pod_hook(context);
	reason = context->verdict.reason;
	interface = jn_interface(skb->ifindex);
	if (!interface || !jn_answer_allowed(skb, context, interface))
		return jn_drop(skb, context, hook, reason);
	if (jn_reset_answerable(reason) ||
	    (jn_service_answerable(reason) && context->packet.protocol == IPPROTO_TCP)) {
		if (!jn_reset_answer(skb, context, interface))
			return jn_drop(skb, context, hook, reason);
	} else if (!jn_icmp_answer(skb, context, interface, reason)) {
		return jn_drop(skb, context, hook, reason);
	}
	jn_verdict(context, hook, JN_ACT_ANSWER, reason, 1, skb->ifindex, 0, 0);
	jn_count(hook, reason, 1);
	jn_event(skb, JN_EVENT_DROP, hook, reason, context->vpc, &context->packet.key.key);
	return jn_back(skb, hook);
}
