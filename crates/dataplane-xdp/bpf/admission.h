/* Who may send what. Step for step the reference model's stages/admit.rs, which states the rules. */
#pragma once

#include "parsing.h"

/* Where a frame has come in, by the generation in force. `host`: the server that hangs there, if one does. */
struct ingress {
	__u32 slot;
	__u32 ifindex;
	struct nicekv_host *host;
};

static __always_inline bool is_same_mac(const __u8 *one, const __u8 *other)
{
	for (int index = 0; index < ETH_ALEN; index++)
		if (one[index] != other[index])
			return false;
	return true;
}

static __always_inline struct ingress ingress_at(__u32 ifindex)
{
	__u32 *slot = bpf_map_lookup_elem(&active, &(__u32){ 0 });
	struct ingress ingress = { .slot = slot ? *slot : 0, .ifindex = ifindex };
	struct nicekv_egress_key key = { .slot = ingress.slot, .egress_ifindex = ifindex };

	ingress.host = bpf_map_lookup_elem(&hosts, &key);
	return ingress;
}

/* Whether a frame may have this Ethernet source there: it is no other server's. */
static __always_inline bool is_mac_of_port(const struct ingress *ingress, const struct ethhdr *ethernet)
{
	struct nicekv_station_key key = { .slot = ingress->slot };
	__u32 *owner;

	if (ingress->host && is_same_mac(ingress->host->mac, ethernet->h_source))
		return true;
	__builtin_memcpy(key.mac, ethernet->h_source, ETH_ALEN);
	owner = bpf_map_lookup_elem(&stations, &key);
	return !owner || *owner == ingress->ifindex;
}

static __always_inline struct nicekv_server *server_with_ip(__u32 slot, __be32 address)
{
	struct nicekv_server_key key = { .slot = slot, .address = address };

	return bpf_map_lookup_elem(&servers, &key);
}

static __always_inline bool is_ip_of_port(const struct ingress *ingress, __be32 address)
{
	struct nicekv_server *owner;

	if (ingress->host && ingress->host->address == address)
		return true;
	owner = server_with_ip(ingress->slot, address);
	return !owner || owner->ifindex == ingress->ifindex;
}

static __always_inline bool holds(__u64 opcodes, __u8 opcode)
{
	return opcode < 64 && (opcodes >> opcode) & 1;
}

/* Whether a datagram from a server's port has its addresses, which others do not have. */
static __always_inline bool is_of_host(const struct ingress *ingress, const struct datagram *datagram)
{
	return ingress->host && ingress->host->address == datagram->ip->saddr &&
	       is_same_mac(ingress->host->mac, datagram->ethernet->h_source);
}

/* Counts why and where, and drops. */
static __always_inline int refuse(const struct ingress *ingress, __u32 counter)
{
	__u32 *port = bpf_map_lookup_elem(&port_indexes, &ingress->ifindex);

	count(counter);
	if (port) {
		__u32 cell = NICEKV_REGISTER_REFUSED_BY_PORT + *port;
		__u64 *value = bpf_map_lookup_elem(&registers, &cell);

		if (value)
			*value += 1;
	}
	return XDP_DROP;
}

/* The counter of a refusal, or -1. */
static __always_inline int admit_to_vring(const struct ingress *ingress, const struct datagram *datagram)
{
	const struct nicekv_header *header = datagram->header;
	__u64 allowed = NICEKV_OPCODES_UNICAST;
	bool is_node = false;
	__be32 reply_to;

	if (!is_ip_of_port(ingress, datagram->sender))
		return NICEKV_COUNTER_SOURCE_REFUSED;
	if (!header)
		return NICEKV_COUNTER_NOT_OURS;
	if (ingress->host) {
		if (!is_of_host(ingress, datagram))
			return NICEKV_COUNTER_SOURCE_REFUSED;
		is_node = ingress->host->role == NICEKV_ROLE_NODE && ingress->host->udp_port == datagram->udp->source;
	}
	if (datagram->ring == RING_MULTICAST)
		allowed = is_node ? NICEKV_OPCODES_MULTICAST_NODE : NICEKV_OPCODES_MULTICAST;
	if (!holds(allowed, header->opcode))
		return NICEKV_COUNTER_OPCODE_REFUSED;
	__builtin_memcpy(&reply_to, header->reply_to_ip, sizeof(reply_to));
	if (!is_node && header->reply_to_port &&
	    (header->reply_to_port != datagram->udp->source || reply_to != datagram->ip->saddr))
		return NICEKV_COUNTER_SOURCE_REFUSED;
	return -1;
}

static __always_inline int admit_others(const struct ingress *ingress, const struct datagram *datagram)
{
	__u64 allowed = NICEKV_OPCODES_REQUEST;
	struct nicekv_server *receiver;

	if (datagram->sender && !is_ip_of_port(ingress, datagram->sender))
		return NICEKV_COUNTER_SOURCE_REFUSED;
	if (!datagram->udp)
		return -1;
	receiver = server_with_ip(ingress->slot, datagram->ip->daddr);
	if (!receiver || receiver->udp_port != datagram->udp->dest)
		return -1;
	if (ingress->host) {
		if (!is_of_host(ingress, datagram))
			return NICEKV_COUNTER_SOURCE_REFUSED;
		if (ingress->host->udp_port == datagram->udp->source) {
			if (ingress->host->role == NICEKV_ROLE_METADATA)
				return -1;
			allowed = NICEKV_OPCODES_NODE;
		}
	}
	if (datagram->header && !holds(allowed, datagram->header->opcode))
		return NICEKV_COUNTER_OPCODE_REFUSED;
	return datagram->is_fragment ? NICEKV_COUNTER_OPCODE_REFUSED : -1;
}
