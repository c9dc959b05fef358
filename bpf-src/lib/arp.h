/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* ARP is answered in place: no request leaves the Pod. */
#pragma once
#include "decide.h"

enum { ARP_HARDWARE_ETHERNET = 1, ARP_REQUEST = 1, ARP_REPLY = 2 };

/* The MAC that answers for `address`, into `mac`. */
static __always_inline int jn_arp_find(struct jn_context *context, const struct jn_interface *interface,
				       __be32 address, __u8 *mac)
{
	__u32 length = interface->prefix_length;
	__be32 gateway = interface->gateway;
	__be32 mask = 0;

	if (gateway && (address == gateway || bpf_ntohl(address) == bpf_ntohl(gateway) + 1)) {
		jn_mac_copy(mac, interface->gateway_mac);
		return 1;
	}
	if (length && length <= 32)
		mask = bpf_htonl(0xffffffffu << (32 - length));
	if ((address ^ interface->address) & mask)
		return 0;
	if (!jn_endpoint(interface->vpc, address, &context->target) || context->target.vni != interface->vni)
		return 0;
	jn_mac_copy(mac, context->target.mac);
	return 1;
}

/* Whether the asker may ask in the name of `sender`. A node does in that of whatever address it sends from. */
static __always_inline int jn_arp_sender(struct jn_context *context, __u32 hook, const struct jn_interface *interface,
					 __be32 sender)
{
	if (!sender || sender == interface->address)
		return 1;
	return hook == JN_HOOK_NODE_PORT && jn_node_address(context, interface->vpc, sender);
}

/* Turns a request into its answer. JN_OK, or why there is none. */
static __always_inline int jn_arp(struct __sk_buff *skb, struct jn_context *context, __u32 hook,
				  const struct jn_interface *interface)
{
	enum { LENGTH = sizeof(struct jn_ethernet) + sizeof(struct jn_arp) };
	struct jn_ethernet *ethernet;
	struct jn_arp *arp;
	void *data, *end;
	__u8 mac[8];
	__be32 asked;

	jn_pull(skb, LENGTH, &data, &end);
	if (data + LENGTH > end)
		return JN_MALFORMED;
	ethernet = data;
	arp = (void *)(ethernet + 1);
	if (arp->hardware != bpf_htons(ARP_HARDWARE_ETHERNET) || arp->protocol != bpf_htons(ETH_P_IP) ||
	    arp->hardware_length != 6 || arp->protocol_length != 4)
		return JN_MALFORMED;
	if (!jn_mac_equal(arp->sender_mac, interface->mac) || !jn_arp_sender(context, hook, interface, arp->sender))
		return JN_ARP_SENDER;
	asked = arp->target;
	if (arp->operation != bpf_htons(ARP_REQUEST) || asked == interface->address)
		return JN_ARP_IGNORED;
	if (!jn_arp_find(context, interface, asked, mac))
		return JN_ARP_UNKNOWN;
	jn_mac_copy(ethernet->destination, interface->mac);
	jn_mac_copy(ethernet->source, mac);
	arp->operation = bpf_htons(ARP_REPLY);
	jn_mac_copy(arp->target_mac, interface->mac);
	arp->target = arp->sender;
	jn_mac_copy(arp->sender_mac, mac);
	arp->sender = asked;
	return JN_OK;
}
