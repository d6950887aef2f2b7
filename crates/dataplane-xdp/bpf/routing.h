/* Match-action on datagrams for a vring. */
#pragma once

#include "decision.h"
#include "parsing.h"

/* `hits_at`: where those of the table begin. */
static __always_inline void hit(__u32 table, __u32 hits_at, __u32 number)
{
	__u32 cell = hits_at + number;
	__u32 block = cell / NICEKV_HITS_BLOCK;
	struct nicekv_hits *found = bpf_map_lookup_elem(&hits, &block);

	if (found)
		found->entries[cell % NICEKV_HITS_BLOCK] += 1;
	/* The tables' hit counters are numbered like the tables. */
	count(NICEKV_COUNTER_HITS + table);
}

/* At a ring's own address the vnode is in the header, the first bits of the digest. */
static __always_inline __u16 vnode_of(const struct datagram *datagram)
{
	__u16 vnode = bpf_ntohl(datagram->ip->daddr);

	if (!vnode && datagram->header)
		vnode = datagram->header->digest[0] << 8 | datagram->header->digest[1];
	return vnode;
}

/* The number of the entry with the longest prefix that covers the datagram's vnode; 0: none does. */
static __always_inline __u32 entry_of(__u32 slot, const struct datagram *datagram)
{
	__u32 ring = slot + 2 * (datagram->ring - RING_UNICAST);
	struct nicekv_vnodes *found = bpf_map_lookup_elem(&vnodes, &ring);
	__u32 cell;

	if (!found)
		return 0;
	cell = vnode_of(datagram) >> (found->ignored_bits & 15);
	/* The compiler knows that the cell is one of the array, the verifier does not. */
	asm volatile("" : "+r"(cell));
	return found->entries[cell % NICEKV_VNODES];
}

/* The division that claims the source: they are in the order of their prefixes, the longest first. */
static __always_inline const struct nicekv_division *division_of(const struct nicekv_unicast_route *route, __be32 source)
{
	__u32 address = bpf_ntohl(source);

#pragma clang loop unroll(disable)
	for (__u32 index = 0; index < NICEKV_DIVISIONS_MAX && index < route->division_count; index++) {
		const struct nicekv_division *division = &route->divisions[index];

		/* All 32 bits may be ignored. */
		if (!((__u64)(address ^ division->network) >> division->ignored_bits))
			return division;
	}
	return NULL;
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
	__u32 number = entry_of(slot, datagram);
	__u32 index = slot * NICEKV_UNICAST_ROUTES + number;
	struct nicekv_unicast_route *route = bpf_map_lookup_elem(&unicast_routes, &index);
	const struct nicekv_division *division;
	struct nicekv_host *host;

	if (!number || !route)
		return miss();
	hit(NICEKV_TABLE_UNICAST_VRING, NICEKV_HITS_UNICAST_VRING, number);
	decision->target = route->target;
	division = division_of(route, datagram->ip->saddr);
	if (division) {
		hit(NICEKV_TABLE_DIVISION, NICEKV_HITS_DIVISION, division->number);
		decision->target = division->target;
	}
	host = receiver_at(slot, decision->target);
	if (!host)
		return FATE_DROP;
	if (host->kind == NICEKV_PORT_TRUNK)
		return route_by_trunk(decision);
	decision->address = host->address;
	__builtin_memcpy(decision->mac, host->mac, ETH_ALEN);
	return FATE_ROUTE;
}

static __always_inline enum fate route_multicast(__u32 slot, struct datagram *datagram, struct decision *decision)
{
	__u32 number = entry_of(slot, datagram);
	__u32 index = slot * NICEKV_MULTICAST_ROUTES + number;
	__u32 *group = bpf_map_lookup_elem(&multicast_routes, &index);

	if (!number || !group)
		return miss();
	hit(NICEKV_TABLE_MULTICAST_VRING, NICEKV_HITS_MULTICAST_VRING, number);
	decision->target = *group;
	return FATE_COPY;
}

static __always_inline enum fate route(__u32 slot, struct datagram *datagram, struct decision *decision)
{
	if (is_multicast(datagram->ring))
		return route_multicast(slot, datagram, decision);
	return route_unicast(slot, datagram, decision);
}
