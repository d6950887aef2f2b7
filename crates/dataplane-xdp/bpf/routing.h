/* Match-action on datagrams for a vring. */
#pragma once

#include "decision.h"
#include "parsing.h"

/* Longest-prefix match in one table of a generation; counts the hit. */
static __always_inline struct nicekv_route *match(__u32 slot, __u32 table, __be32 scope, __be32 address)
{
	struct nicekv_trie_key key = {
		.prefix_length = 8 * (sizeof(scope) + sizeof(address)),
		.scope = scope,
		.address = address,
	};
	__u32 index = slot * NICEKV_TABLES + table;
	void *trie = bpf_map_lookup_elem(&tables, &index);
	struct nicekv_route *route;
	__u64 *entry_hits;

	if (!trie)
		return NULL;
	route = bpf_map_lookup_elem(trie, &key);
	if (!route)
		return NULL;
	entry_hits = bpf_map_lookup_elem(&hits, &route->hit_slot);
	if (entry_hits)
		*entry_hits += 1;
	/* The tables' hit counters are numbered like the tables. */
	count(NICEKV_COUNTER_HITS + table);
	return route;
}

/* The address by which the tables are asked: at a ring's own address the vnode is in the header, the first bits of the digest. */
static __always_inline __be32 vnode_address(const struct datagram *datagram)
{
	__be32 address = datagram->ip->daddr;
	__u8 *bytes = (__u8 *)&address;

	if (!bytes[2] && !bytes[3] && datagram->header) {
		bytes[2] = datagram->header->digest[0];
		bytes[3] = datagram->header->digest[1];
	}
	return address;
}

static __always_inline enum fate miss(void)
{
	count(NICEKV_COUNTER_VRING_MISS);
	return FATE_DROP;
}

/* To another switch, which matches it anew: as it is, and never back. */
static __always_inline enum fate route_by_trunk(const struct decision *decision)
{
	if (decision->target == decision->port) {
		count(NICEKV_COUNTER_SAME_PORT_DROPPED);
		return FATE_DROP;
	}
	return FATE_FORWARD;
}

static __always_inline enum fate route_unicast(__u32 slot, struct datagram *datagram, struct decision *decision)
{
	struct iphdr *ip = datagram->ip;
	struct nicekv_route *route = match(slot, NICEKV_TABLE_UNICAST_VRING, 0, vnode_address(datagram));
	struct nicekv_route *division;

	if (!route)
		return miss();
	division = match(slot, NICEKV_TABLE_DIVISION, route->partition, ip->saddr);
	if (division)
		route = division;
	decision->target = route->target;
	if (route->is_trunk)
		return route_by_trunk(decision);
	decision->address = route->address;
	__builtin_memcpy(decision->mac, route->mac, ETH_ALEN);
	return FATE_ROUTE;
}

static __always_inline enum fate route_multicast(__u32 slot, struct datagram *datagram, struct decision *decision)
{
	struct nicekv_route *route = match(slot, NICEKV_TABLE_MULTICAST_VRING, 0, vnode_address(datagram));

	if (!route)
		return miss();
	decision->target = route->target;
	return FATE_COPY;
}

static __always_inline enum fate route(__u32 slot, struct datagram *datagram, struct decision *decision)
{
	if (datagram->ring == RING_UNICAST)
		return route_unicast(slot, datagram, decision);
	return route_multicast(slot, datagram, decision);
}
