/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Hook CGROUP: no socket of the node writes into the overlay. The kernel's own encapsulation does not pass here, and
 * what a Pod sends to that port of an address in its VPC is another namespace's.
 */
#include "lib/tables.h"

enum { JN_CGROUP_DROP = 0, JN_CGROUP_PASS = 1 };

/* Runs outside of softirq: it must not touch the per-CPU context. */
SEC("cgroup_skb/egress")
int jn_cgroup(struct __sk_buff *skb)
{
	const __be32 vtep = jn_config.vtep;
	struct jn_ipv4 ip;
	struct jn_udp udp;
	__u32 header;

	if (skb->protocol != bpf_htons(ETH_P_IP) || bpf_skb_load_bytes(skb, 0, &ip, sizeof(ip)))
		return JN_CGROUP_PASS;
	if (ip.protocol != IPPROTO_UDP || ip.fragment & bpf_htons(IP_OFFSET))
		return JN_CGROUP_PASS;
	header = (ip.version_length & 0xf) * 4;
	if (bpf_skb_load_bytes(skb, header, &udp, sizeof(udp)) || udp.destination != jn_config.vxlan_port)
		return JN_CGROUP_PASS;
	if (ip.destination != vtep && !jn_vtep_known(ip.destination))
		return JN_CGROUP_PASS;
	if (jn_config.flags & JN_CONFIG_NETNS_COOKIE) {
		if (bpf_get_netns_cookie(skb) != jn_config.netns_cookie)
			return JN_CGROUP_PASS;
	} else if (ip.source != vtep) {
		return JN_CGROUP_PASS;
	}
	jn_count(JN_HOOK_CGROUP, JN_VXLAN_INJECTION, 0);
	return JN_CGROUP_DROP;
}
