/* Admission: who may send what. Step for step the reference model's admission.rs, which states the rules. */
#pragma once

#include "decision.h"
#include "parsing.h"

/*
 * The ingress port, in the generation in force. `host`: the host attached to it. `sender`: the last sender that was admitted there; most frames
 * come from the same sender as the one before, and need no lookup. Neither is NULL, so that the verifier follows one case instead of four.
 */
struct ingress {
	__u32 generation;
	__u32 slot;
	__u32 port;
	__u32 number;
	struct nicekv_host *host;
	struct nicekv_sender *sender;
};

/* The kind of the sender; a server only if it sends from the server's own UDP port. */
enum origin {
	ORIGIN_REFUSED,
	ORIGIN_CLIENT,
	ORIGIN_NODE,
	ORIGIN_METADATA,
};

static __always_inline bool is_same_mac(const __u8 *one, const __u8 *other)
{
	__u8 difference = 0;

	for (int index = 0; index < ETH_ALEN; index++)
		difference |= one[index] ^ other[index];
	return !difference;
}

/* The generation that decides from now on. */
static __always_inline __u32 generation_in_force(void)
{
	__u32 *generation = bpf_map_lookup_elem(&active, &(__u32){ 0 });

	return generation ? *generation : 0;
}

/* Looks up the cells of the ingress port, which every port has. */
static __always_inline bool find_ingress(const struct nicekv_place *place, struct ingress *ingress)
{
	ingress->port = place->port;
	ingress->number = place->number;
	ingress->generation = generation_in_force();
	ingress->slot = ingress->generation & 1;
	ingress->host = host_cell(ingress->slot, ingress->port);
	ingress->sender = bpf_map_lookup_elem(&senders, &ingress->port);
	return ingress->host && ingress->sender;
}

/* Whether this generation has already admitted a frame with this MAC source address at this port. */
static __always_inline bool was_admitted(const struct ingress *ingress, const struct ethhdr *ethernet)
{
	const struct nicekv_sender *sender = ingress->sender;

	return sender->generation == ingress->generation && is_same_mac(sender->mac, ethernet->h_source);
}

/* Remembers that neither address of the frame is that of another server. */
static __always_inline void remember(const struct ingress *ingress, const struct datagram *datagram)
{
	struct nicekv_sender *sender = ingress->sender;

	sender->generation = ingress->generation;
	sender->address = datagram->sender;
	__builtin_memcpy(sender->mac, datagram->ethernet->h_source, ETH_ALEN);
}

/* Whether a frame with this MAC source address may come in there: it is not that of another server. */
static __always_inline bool is_mac_of_port(const struct ingress *ingress, const struct ethhdr *ethernet)
{
	struct nicekv_station_key key = { .slot = ingress->slot };
	__u32 *owner;

	if (ingress->host->kind == NICEKV_PORT_HOST && is_same_mac(ingress->host->mac, ethernet->h_source))
		return true;
	if (was_admitted(ingress, ethernet))
		return true;
	__builtin_memcpy(key.mac, ethernet->h_source, ETH_ALEN);
	owner = bpf_map_lookup_elem(&stations, &key);
	return !owner || *owner == ingress->port;
}

static __always_inline struct nicekv_server *server_with_ip(__u32 slot, __be32 address)
{
	struct nicekv_server_key key = { .slot = slot, .address = address };

	return bpf_map_lookup_elem(&servers, &key);
}

/* The same for its sender in IPv4 or ARP. */
static __always_inline bool is_ip_of_port(const struct ingress *ingress, const struct datagram *datagram)
{
	struct nicekv_server *owner;

	if (ingress->host->kind == NICEKV_PORT_HOST && ingress->host->address == datagram->sender)
		return true;
	if (was_admitted(ingress, datagram->ethernet) && ingress->sender->address == datagram->sender)
		return true;
	owner = server_with_ip(ingress->slot, datagram->sender);
	if (owner && owner->port != ingress->port)
		return false;
	remember(ingress, datagram);
	return true;
}

static __always_inline enum origin origin_of_server(__be16 udp_port, __u8 role, const struct datagram *datagram)
{
	if (udp_port != datagram->udp->source)
		return ORIGIN_CLIENT;
	return role == NICEKV_ROLE_METADATA ? ORIGIN_METADATA : ORIGIN_NODE;
}

/* Behind a trunk: the server with this IP address, if it also has the MAC address and is behind this trunk. A client has no address of a server. */
static __always_inline enum origin origin_behind(const struct ingress *ingress, const struct datagram *datagram)
{
	struct nicekv_server *server = server_with_ip(ingress->slot, datagram->ip->saddr);
	struct nicekv_station_key key = { .slot = ingress->slot };

	if (server) {
		if (server->port != ingress->port || !is_same_mac(server->mac, datagram->ethernet->h_source))
			return ORIGIN_REFUSED;
		return origin_of_server(server->udp_port, server->role, datagram);
	}
	__builtin_memcpy(key.mac, datagram->ethernet->h_source, ETH_ALEN);
	return bpf_map_lookup_elem(&stations, &key) ? ORIGIN_REFUSED : ORIGIN_CLIENT;
}

static __always_inline enum origin origin_of(const struct ingress *ingress, const struct datagram *datagram)
{
	const struct nicekv_host *host = ingress->host;

	if (host->kind == NICEKV_PORT_TRUNK)
		return origin_behind(ingress, datagram);
	if (host->kind == NICEKV_PORT_OPEN)
		return ORIGIN_CLIENT;
	/* From a server's port, with its addresses, which nobody else has. */
	if (host->address != datagram->ip->saddr || !is_same_mac(host->mac, datagram->ethernet->h_source))
		return ORIGIN_REFUSED;
	return origin_of_server(host->udp_port, host->role, datagram);
}

/* Counts the reason and the port of a refusal, and drops the frame. */
static __always_inline enum fate refuse(const struct ingress *ingress, __u32 counter)
{
	__u32 cell = NICEKV_REGISTER_REFUSED_BY_PORT + ingress->number;
	__u64 *value = bpf_map_lookup_elem(&registers, &cell);

	count(counter);
	if (value)
		*value += 1;
	return FATE_DROP;
}

/* The counter of a refusal, or -1. */
static __always_inline int admit_to_vring(const struct ingress *ingress, const struct datagram *datagram)
{
	const struct nicekv_header *header = datagram->header;
	__u64 allowed;
	enum origin origin;
	bool is_node;
	__be32 reply_to;

	if (!is_ip_of_port(ingress, datagram))
		return NICEKV_COUNTER_SOURCE_REFUSED;
	if (!header)
		return NICEKV_COUNTER_NOT_OURS;
	origin = origin_of(ingress, datagram);
	if (origin == ORIGIN_REFUSED)
		return NICEKV_COUNTER_SOURCE_REFUSED;
	is_node = origin == ORIGIN_NODE;
	if (datagram->ring == RING_GROUP)
		allowed = NICEKV_OPCODES_GROUP;
	else if (is_multicast(datagram->ring))
		allowed = is_node ? NICEKV_OPCODES_MULTICAST_NODE : NICEKV_OPCODES_MULTICAST;
	else
		allowed = is_node ? NICEKV_OPCODES_UNICAST_NODE : NICEKV_OPCODES_UNICAST;
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
	enum origin origin;

	if (datagram->sender && !is_ip_of_port(ingress, datagram))
		return NICEKV_COUNTER_SOURCE_REFUSED;
	if (!datagram->udp)
		return -1;
	receiver = server_with_ip(ingress->slot, datagram->ip->daddr);
	if (!receiver || receiver->udp_port != datagram->udp->dest)
		return -1;
	/* No switch has written that stamp. */
	if (has_room_for_stamp(datagram))
		return NICEKV_COUNTER_OPCODE_REFUSED;
	origin = origin_of(ingress, datagram);
	if (origin == ORIGIN_REFUSED)
		return NICEKV_COUNTER_SOURCE_REFUSED;
	if (origin == ORIGIN_METADATA)
		return -1;
	if (origin == ORIGIN_NODE)
		allowed = NICEKV_OPCODES_NODE;
	if (datagram->header && !holds(allowed, datagram->header->opcode))
		return NICEKV_COUNTER_OPCODE_REFUSED;
	return datagram->is_fragment ? NICEKV_COUNTER_OPCODE_REFUSED : -1;
}
