/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The one translation unit: one program array, one set of maps. docs/datapath.md has the rules. */
#include "lib/map_defs.h"

#include "pod.bpf.c"
#include "overlay.bpf.c"
#include "vxlan.bpf.c"
#include "cgroup.bpf.c"

/* For benchmarks: what a test-run costs by itself. */
SEC("tc")
int jn_empty(__attribute__((unused)) struct __sk_buff *skb)
{
	return TC_ACT_OK;
}

/* Types that no map names, for user space to compare. */
#define JN_EXPORT(type, name) const type *__jn_export_##name = 0
JN_EXPORT(struct jn_event, event);
JN_EXPORT(struct jn_verdict, verdict);
JN_EXPORT(struct jn_flow6_key, flow6_key);
JN_EXPORT(struct jn_endpoint6_key, endpoint6_key);
JN_EXPORT(struct jn_route6_key, route6_key);
JN_EXPORT(struct bpf_tunnel_key, tunnel_key);
JN_EXPORT(struct bpf_redir_neigh, redir_neigh);
JN_EXPORT(struct jn_ethernet, ethernet);
JN_EXPORT(struct jn_ipv4, ipv4);
JN_EXPORT(struct jn_tcp, tcp);
JN_EXPORT(struct jn_udp, udp);
JN_EXPORT(struct jn_icmp, icmp);
JN_EXPORT(struct jn_vxlan_header, vxlan_header);
JN_EXPORT(enum jn_abi, abi);
JN_EXPORT(enum jn_hook, hook);
JN_EXPORT(enum jn_reason, reason);
JN_EXPORT(enum jn_action, action);
JN_EXPORT(enum jn_endpoint_kind, endpoint_kind);
JN_EXPORT(enum jn_endpoint_flag, endpoint_flag);
JN_EXPORT(enum jn_route_kind, route_kind);
JN_EXPORT(enum jn_direction, direction);
JN_EXPORT(enum jn_policy_action, policy_action);
JN_EXPORT(enum jn_identity, identity);
JN_EXPORT(enum jn_scope, scope);
JN_EXPORT(enum jn_proto, proto);
JN_EXPORT(enum jn_egress, egress);
JN_EXPORT(enum jn_flow_flag, flow_flag);
JN_EXPORT(enum jn_rewrite, rewrite);
JN_EXPORT(enum jn_frontend_flag, frontend_flag);
JN_EXPORT(enum jn_backend_kind, backend_kind);
JN_EXPORT(enum jn_backend_flag, backend_flag);
JN_EXPORT(enum jn_generation_space, generation_space);
JN_EXPORT(enum jn_tail, tail);
JN_EXPORT(enum jn_device_cause, device_cause);
JN_EXPORT(enum jn_event_kind, event_kind);
JN_EXPORT(enum jn_stage, stage);
JN_EXPORT(enum jn_traffic_direction, traffic_direction);
JN_EXPORT(enum jn_limit, limit);
JN_EXPORT(enum jn_config_flag, config_flag);
JN_EXPORT(enum jn_packet_flag, packet_flag);
JN_EXPORT(enum jn_found, found);

char jn_license[] SEC("license") = "Dual BSD/GPL";
