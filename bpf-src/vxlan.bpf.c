/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Hook VXLAN: the VXLAN device, ingress. What the underlay hook left to the stack comes back here. */
#include "lib/overlay.h"

SEC("tc")
int jn_vxlan(struct __sk_buff *skb)
{
	struct jn_context *context = jn_context();
	struct bpf_tunnel_key key = {};
	struct jn_packet packet;

	if (!context)
		return jn_broken(JN_HOOK_VXLAN, TC_ACT_SHOT);
	jn_overlay_begin(context, &packet, JN_HOOK_VXLAN);
	if (bpf_skb_get_tunnel_key(skb, &key, sizeof(key), 0))
		return jn_drop(skb, context, JN_HOOK_VXLAN, JN_VXLAN_HEADER);
	packet.vtep = bpf_htonl(key.remote_ipv4);
	packet.vni = key.tunnel_id;
	return jn_overlay_receive(skb, context, JN_HOOK_VXLAN, 0, &packet, 0);
}
