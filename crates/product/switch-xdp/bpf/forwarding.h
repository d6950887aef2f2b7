/* Forwarding of other traffic by learned MAC address; it leaves byte for byte as it came. */
#pragma once

#include "decision.h"
#include "parsing.h"

static __always_inline bool is_station(const struct nicekv_mac *mac)
{
	return !(mac->bytes[0] & 1) && (mac->bytes[0] | mac->bytes[1] | mac->bytes[2] | mac->bytes[3] |
					mac->bytes[4] | mac->bytes[5]);
}

static __always_inline bool is_router(const struct nicekv_mac *mac)
{
	__u8 difference = 0;

	for (int index = 0; index < ETH_ALEN; index++)
		difference |= mac->bytes[index] ^ config.router_mac[index];
	return !difference;
}

static __always_inline void learn(const struct ethhdr *ethernet, __u32 port)
{
	struct nicekv_mac mac = {};
	__u32 *known;

	__builtin_memcpy(mac.bytes, ethernet->h_source, ETH_ALEN);
	if (!is_station(&mac) || is_router(&mac))
		return;
	known = bpf_map_lookup_elem(&macs, &mac);
	if (!known || *known != port)
		bpf_map_update_elem(&macs, &mac, &port, BPF_ANY);
}

static __always_inline enum fate forward(const struct ethhdr *ethernet, __u32 port, struct decision *decision)
{
	struct nicekv_mac mac = {};
	__u32 *learned = NULL;

	__builtin_memcpy(mac.bytes, ethernet->h_dest, ETH_ALEN);
	if (is_station(&mac))
		learned = bpf_map_lookup_elem(&macs, &mac);
	if (!learned) {
		count(NICEKV_COUNTER_FLOODED);
		return FATE_FLOOD;
	}
	if (*learned == port) {
		count(NICEKV_COUNTER_SAME_PORT_DROPPED);
		return FATE_DROP;
	}
	count(NICEKV_COUNTER_LEARNED_FORWARDED);
	decision->to.target = *learned;
	return FATE_FORWARD;
}
