/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The maps. Sizes are defaults: the loader may set others before it loads (the number of jn_interfaces, jn_generations
 * and jn_counters excepted, which follow from abi.h).
 */
#pragma once
#include "context.h"

enum jn_capacity {
	JN_CAPACITY_ENDPOINTS = 131072,
	JN_CAPACITY_ROUTES = 131072,
	JN_CAPACITY_MACS = 16384,
	JN_CAPACITY_SEGMENTS = 16384,
	JN_CAPACITY_VTEPS = 8192,
	JN_CAPACITY_POLICIES = 65536,
	JN_CAPACITY_FRONTENDS = 131072,
	JN_CAPACITY_SLOTS = 131072, /* elements of JN_SLOTS ids */
	JN_CAPACITY_BACKENDS = 131072,
	JN_CAPACITY_VPCS = 4096,
	JN_CAPACITY_FLOWS = 262144,
	JN_CAPACITY_FRAGMENTS = 65536,
	JN_CAPACITY_PMTU = 4096,
	JN_CAPACITY_AFFINITY = 65536,
	JN_CAPACITY_HIGH = 4096,
};

/* ---- decided by the agent ---- */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, JN_INTERFACES);
	__type(key, __u32);
	__type(value, struct jn_interface);
} jn_interfaces SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, JN_CAPACITY_HIGH);
	__type(key, __u32);
	__type(value, struct jn_interface);
} jn_interfaces_high SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, JN_CAPACITY_ENDPOINTS);
	__type(key, struct jn_endpoint_key);
	__type(value, struct jn_endpoint);
} jn_endpoints SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, JN_CAPACITY_MACS);
	__type(key, struct jn_mac_key);
	__type(value, struct jn_mac);
} jn_macs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, JN_CAPACITY_SEGMENTS);
	__type(key, __u32);
	__type(value, struct jn_segment);
} jn_segments SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, JN_CAPACITY_ROUTES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct jn_route_key);
	__type(value, struct jn_route);
} jn_routes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, JN_CAPACITY_VTEPS);
	__type(key, __be32);
	__type(value, struct jn_vtep);
} jn_vteps SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, JN_CAPACITY_POLICIES);
	__type(key, struct jn_policy_key);
	__type(value, struct jn_policy);
} jn_policies SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, JN_CAPACITY_VPCS);
	__type(key, __u32);
	__type(value, struct jn_vpc);
} jn_vpcs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, JN_CAPACITY_FRONTENDS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct jn_frontend_key);
	__type(value, struct jn_frontend);
} jn_frontends SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, JN_CAPACITY_SLOTS);
	__type(key, __u32);
	__type(value, struct jn_slots);
} jn_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, JN_CAPACITY_BACKENDS);
	__type(key, __u32);
	__type(value, struct jn_backend);
} jn_backends SEC(".maps");

/*
 * Written by user space and, for the VTEP space, by programs. Mapped into user space so that both add atomically:
 * an update by system call could undo a program's.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, JN_GEN_MAX);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u32);
} jn_generations SEC(".maps");

/* ---- state ---- */

/* Mapped into user space, too: the sweep corrects the counts while programs change them. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, JN_CAPACITY_VPCS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct jn_vpc_state);
} jn_vpc_states SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, JN_CAPACITY_FLOWS);
	__type(key, struct jn_flow_key);
	__type(value, struct jn_flow);
} jn_flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, JN_CAPACITY_FRAGMENTS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct jn_fragment_key);
	__type(value, struct jn_fragment);
} jn_fragments SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, JN_CAPACITY_PMTU);
	__type(key, __be32);
	__type(value, struct jn_pmtu);
} jn_pmtu SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, JN_CAPACITY_AFFINITY);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct jn_affinity_key);
	__type(value, struct jn_affinity);
} jn_affinity SEC(".maps");

/* ---- counters and events ---- */

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, JN_HOOK_MAX * JN_REASON_MAX * 2);
	__type(key, __u32);
	__type(value, __u64);
} jn_counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, JN_CAPACITY_VPCS * 2);
	__type(key, __u32);
	__type(value, struct jn_traffic);
} jn_traffic SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, JN_DEVICE_MAX);
	__type(key, __u32);
	__type(value, __u64);
} jn_devices SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} jn_events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} jn_event_lost SEC(".maps");

/* ---- of one load ---- */

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct jn_context);
} jn_scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, JN_TRAIL_STEPS);
	__type(key, __u32);
	__type(value, struct jn_step);
} jn_trail SEC(".maps");

int jn_pod_arp(struct __sk_buff *skb);
int jn_pod_icmp(struct __sk_buff *skb);
int jn_pod_fragment(struct __sk_buff *skb);
int jn_pod_decide(struct __sk_buff *skb);
int jn_pod_commit(struct __sk_buff *skb);
int jn_pod_reject(struct __sk_buff *skb);
int jn_overlay_other(struct __sk_buff *skb);
int jn_overlay_decide(struct __sk_buff *skb);
int jn_overlay_underlay(struct __sk_buff *skb);

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, JN_TAIL_MAX);
	__uint(key_size, sizeof(__u32));
	__array(values, int(struct __sk_buff *));
} jn_tails SEC(".maps") = {
	.values = {
		[JN_TAIL_POD_ARP] = &jn_pod_arp,
		[JN_TAIL_POD_ICMP] = &jn_pod_icmp,
		[JN_TAIL_POD_FRAGMENT] = &jn_pod_fragment,
		[JN_TAIL_POD_DECIDE] = &jn_pod_decide,
		[JN_TAIL_POD_COMMIT] = &jn_pod_commit,
		[JN_TAIL_POD_REJECT] = &jn_pod_reject,
		[JN_TAIL_OVERLAY_OTHER] = &jn_overlay_other,
		[JN_TAIL_OVERLAY_DECIDE] = &jn_overlay_decide,
		[JN_TAIL_OVERLAY_UNDERLAY] = &jn_overlay_underlay,
	},
};

/* Set by the loader before it loads; the verifier then removes what a load does not use. */
const volatile struct jn_config jn_config = {};

/* One cache line, shared by every load. */
struct jn_hot jn_hot SEC(".data.hot") = {};
