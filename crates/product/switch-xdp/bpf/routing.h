/* The match-action stage for datagrams for a vring. */
#pragma once

#include "decision.h"
#include "parsing.h"

static __always_inline void count_at(__u32 cell)
{
	__u32 block = cell / NICEKV_HITS_BLOCK;
	struct nicekv_hits *found = bpf_map_lookup_elem(&hits, &block);

	if (found)
		found->entries[cell % NICEKV_HITS_BLOCK] += 1;
}

/* Counts a client request that an entry with hits at `hits_cell` has matched: the cells of reads follow those of hits, and updates those of reads. */
static __always_inline void count_request(__u32 hits_cell, const struct datagram *datagram)
{
	__u8 opcode = datagram->header ? datagram->header->opcode : 0;

	if (!is_multicast(datagram->ring) || holds(NICEKV_OPCODES_READ, opcode))
		count_at(hits_cell + NICEKV_REQUESTS);
	else if (holds(NICEKV_OPCODES_UPDATE, opcode))
		count_at(hits_cell + 2 * NICEKV_REQUESTS);
}

/* `hits_at`: the first hits cell of the table. */
static __always_inline void hit(__u32 table, __u32 hits_at, __u32 number)
{
	count_at(hits_at + number);
	/* The tables' hit counters have the numbers of the tables. */
	count(NICEKV_COUNTER_HITS + table);
}

/* At a ring's own address the vnode is in the header: the first bits of the digest. */
static __always_inline __u16 vnode_of(const struct datagram *datagram)
{
	__u16 vnode = bpf_ntohl(datagram->ip->daddr);

	if (!vnode && datagram->header)
		vnode = datagram->header->digest[0] << 8 | datagram->header->digest[1];
	return vnode;
}

/* The ring that the datagram is for. */
static __always_inline struct nicekv_vnodes *vnodes_of(__u32 slot, const struct datagram *datagram)
{
	__u32 ring = slot + 2 * (datagram->ring - RING_UNICAST);

	return bpf_map_lookup_elem(&vnodes, &ring);
}

/* The number of the entry with the longest prefix that covers the datagram's vnode; 0: none. */
static __always_inline __u32 entry_of(const struct nicekv_vnodes *found, const struct datagram *datagram)
{
	__u32 cell;

	cell = vnode_of(datagram) >> (found->ignored_bits & 15);
	/* The compiler knows that the index is in bounds, the verifier does not. */
	asm volatile("" : "+r"(cell));
	return found->entries[cell % NICEKV_VNODES];
}

static __always_inline bool is_up_to(__u64 high, __u64 low, const __u64 *bound)
{
	return high < bound[0] || (high == bound[0] && low <= bound[1]);
}

/* The cell of the segment for a value that is not before its first one. */
static __always_inline __u32 cell_of(const struct nicekv_segment *segment, __u64 high, __u64 low)
{
	__u32 shift = segment->shift, last = segment->cells - 1;
	__u64 cell;

	high -= segment->first[0] + (low < segment->first[1]);
	low -= segment->first[1];
	if (shift >= 64)
		cell = high >> (shift & 63);
	else if (high >> shift)
		return last;
	else
		cell = shift ? high << (64 - shift) | low >> shift : low;
	return cell < last ? cell : last;
}

/*
 * The number of the last record of a pair of rings that begins at this value or before; 0: none. A function call, so that it is verified by
 * itself. Guesses bound the range. Each step halves it, and the number of steps is bounded by the number of records.
 */
__noinline __u32 record_of(__u32 slot, __u32 pair, __u64 high, __u64 low)
{
	struct nicekv_records *found = bpf_map_lookup_elem(&records, &slot);
	const struct nicekv_segment *segment;
	__u32 at, left, cell;

	if (!found)
		return 0;
	segment = &found->segments[pair % NICEKV_VRINGS_MAX];
	if (!segment->count || high < segment->first[0] || (high == segment->first[0] && low < segment->first[1]))
		return 0;
	cell = segment->guesses + cell_of(segment, high, low);
	at = found->guesses[cell % NICEKV_RECORD_GUESSES];
	left = found->guesses[(cell + 1) % NICEKV_RECORD_GUESSES] - at + 1;
	at = (segment->begin + at) % NICEKV_RECORD_PLACES;
#pragma clang loop unroll(disable)
	for (int step = 0; step < NICEKV_RECORD_STEPS && left > 1; step++) {
		__u32 half = left / 2;
		__u32 middle = (at + half) % NICEKV_RECORD_PLACES;
		const __u64 *first = found->firsts[middle];

		if (high > first[0] || (high == first[0] && low >= first[1]))
			at = middle;
		left -= half;
	}
	return found->numbers[at];
}

/* The record of the header's value, and its number; NULL: none. The destination address is ignored. */
static __always_inline struct nicekv_record_route *record_route_of(__u32 slot, const struct datagram *datagram,
								   __u32 *number)
{
	const struct nicekv_header *header = datagram->header;
	struct nicekv_record_route *record;
	__u64 high, low;
	__u32 index;

	if (!header)
		return NULL;
	high = bpf_be64_to_cpu(*(const __be64 *)&header->digest[0]);
	low = bpf_be64_to_cpu(*(const __be64 *)&header->digest[8]);
	*number = record_of(slot, (datagram->ring - RING_UNICAST) / 2, high, low);
	index = slot * NICEKV_RECORD_ROUTES + *number;
	record = bpf_map_lookup_elem(&record_routes, &index);
	if (!*number || !record || record->keyspace != header->keyspace || !is_up_to(high, low, record->last))
		return NULL;
	return record;
}

/* The division that claims the source; divisions are ordered by prefix length, the longest first. */
static __always_inline const struct nicekv_division *division_of(const struct nicekv_division *divisions, __u32 count,
								 __be32 source)
{
	__u32 address = bpf_ntohl(source);

#pragma clang loop unroll(disable)
	for (__u32 index = 0; index < NICEKV_DIVISIONS_MAX && index < count; index++) {
		const struct nicekv_division *division = &divisions[index];

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

/* To another switch, which matches it by its own tables: unchanged, and never back. */
static __always_inline enum fate route_by_trunk(const struct decision *decision)
{
	if (decision->to.target == decision->port) {
		count(NICEKV_COUNTER_SAME_PORT_DROPPED);
		return FATE_DROP;
	}
	return FATE_FORWARD;
}

/* To port `target`, or to the host of the division that claims the source. */
static __always_inline enum fate route_to(__u32 slot, struct datagram *datagram, struct decision *decision, __u32 target,
					  const struct nicekv_division *divisions, __u32 count)
{
	const struct nicekv_division *division = divisions ? division_of(divisions, count, datagram->ip->saddr) : NULL;
	struct nicekv_host *host;

	decision->to.target = target;
	if (division) {
		hit(NICEKV_TABLE_DIVISION, NICEKV_HITS_DIVISION, division->number);
		decision->to.target = division->target;
	}
	host = receiver_at(slot, decision->to.target);
	if (!host)
		return FATE_DROP;
	if (host->kind == NICEKV_PORT_TRUNK)
		return route_by_trunk(decision);
	decision->to.address = host->address;
	__builtin_memcpy(decision->to.mac, host->mac, ETH_ALEN);
	return FATE_ROUTE;
}

static __always_inline __be32 address_of_node(__u32 slot, __u8 place)
{
	__u32 index = slot * NICEKV_HOST_CAPACITY + place;
	__be32 *address = bpf_map_lookup_elem(&nodes, &index);

	return address ? *address : 0;
}

/* The chain header of a request: the nodes that it passes, all of them for a put, the tail for a get. */
static __always_inline void fill_chain(__u32 slot, const struct nicekv_chain *chain, bool is_put,
				       struct nicekv_chain_header *header)
{
	__be32 *addresses = (__be32 *)header->nodes;
	__u32 length = chain->length;

	__builtin_memset(header, 0, sizeof(*header));
	header->partition = chain->partition;
	header->epoch = chain->epoch;
	header->length = is_put ? length : 1;
	if (is_put) {
#pragma unroll
		for (__u32 index = 0; index < sizeof(header->nodes) / sizeof(*addresses); index++)
			if (index < length)
				addresses[index] = address_of_node(slot, chain->nodes[index]);
	} else {
		addresses[0] = address_of_node(slot, chain->tail);
	}
}

/* Puts to the head, gets to port `tail`. A function call, because three tables use it. */
static __noinline enum fate route_by_chain(__u32 slot, struct datagram *datagram, struct decision *decision,
						const struct nicekv_chain *chain, __u32 tail)
{
	bool is_put = is_multicast(datagram->ring);
	enum fate fate = route_to(slot, datagram, decision, is_put ? chain->head : tail, NULL, 0);
	struct nicekv_chain_header *header;

	count(NICEKV_COUNTER_CHAINED);
	/* For a host behind a trunk, the switch there writes the header. */
	if (fate != FATE_ROUTE || !datagram->room)
		return fate;
	header = bpf_map_lookup_elem(&chain_header, &(__u32){ 0 });
	if (header) {
		decision->has_room = true;
		fill_chain(slot, chain, is_put, header);
	}
	return fate;
}

/* What is needed to cut a scan, wherever this piece of it goes. */
static __always_inline void note_scan(const struct datagram *datagram, const struct nicekv_record_route *record,
				      struct decision *decision)
{
	if (is_multicast(datagram->ring) || datagram->header->opcode != NICEKV_OPCODE_SCAN)
		return;
	decision->is_scan = true;
	decision->is_roomy = datagram->room;
	decision->border[0] = record->last[0];
	decision->border[1] = record->last[1];
	decision->udp_at = (void *)datagram->udp - (void *)datagram->ethernet;
	decision->destination = datagram->ip->daddr;
}

static __always_inline enum fate route_by_record(__u32 slot, struct datagram *datagram, struct decision *decision)
{
	__u32 number;
	struct nicekv_record_route *record = record_route_of(slot, datagram, &number);

	if (!record)
		return miss();
	hit(NICEKV_TABLE_RECORD, NICEKV_HITS_RECORD, number);
	count_request(NICEKV_HITS_RECORD + number, datagram);
	note_scan(datagram, record, decision);
	if (record->chain.length)
		return route_by_chain(slot, datagram, decision, &record->chain, record->target);
	if (is_multicast(datagram->ring)) {
		decision->to.target = record->group;
		return FATE_COPY;
	}
	return route_to(slot, datagram, decision, record->target, record->divisions, record->division_count);
}

static __always_inline enum fate route_unicast(__u32 slot, __u32 number, struct datagram *datagram,
					       struct decision *decision)
{
	__u32 index = slot * NICEKV_UNICAST_ROUTES + number;
	struct nicekv_unicast_route *route = bpf_map_lookup_elem(&unicast_routes, &index);

	if (!number || !route)
		return miss();
	hit(NICEKV_TABLE_UNICAST_VRING, NICEKV_HITS_UNICAST_VRING, number);
	if (route->chain.length)
		return route_by_chain(slot, datagram, decision, &route->chain, route->target);
	return route_to(slot, datagram, decision, route->target, route->divisions, route->division_count);
}

static __always_inline enum fate route_multicast(__u32 slot, __u32 number, struct datagram *datagram,
						 struct decision *decision)
{
	__u32 index = slot * NICEKV_MULTICAST_ROUTES + number;
	struct nicekv_multicast_route *route = bpf_map_lookup_elem(&multicast_routes, &index);

	if (!number || !route)
		return miss();
	hit(NICEKV_TABLE_MULTICAST_VRING, NICEKV_HITS_MULTICAST_VRING, number);
	count_request(NICEKV_HITS_MULTICAST_VRING + number, datagram);
	if (route->chain.length)
		return route_by_chain(slot, datagram, decision, &route->chain, 0);
	decision->to.target = route->group;
	return FATE_COPY;
}

/* The number of the entry of the ring of groups for an address, and the places that it addresses: all of them for a subset entry. 0: none. */
static __always_inline __u32 group_entry_of(__u32 slot, __be32 address, __u32 *meant)
{
	struct nicekv_group_entry_key key = { .slot = slot, .address = address, .length = 32 };
	__u32 *number = bpf_map_lookup_elem(&group_entries, &key);

	*meant = NICEKV_RECEIVERS_ALL;
	if (!number) {
		*meant = bpf_ntohl(address) & NICEKV_GROUP_MASK_ALL;
		key.address &= bpf_htonl(~NICEKV_GROUP_MASK_ALL);
		key.length = NICEKV_GROUP_LENGTH;
		number = bpf_map_lookup_elem(&group_entries, &key);
	}
	return number ? *number : 0;
}

/*
 * The ports that a datagram for the ring of groups leaves by: those of the entry's group that lead to receivers, except the ingress port, as bits in
 * their order; above these 16 bits the number of the entry. 0: no receivers. A function call, so that it is verified by itself.
 */
__noinline __u32 group_ports_of(__u32 slot, __be32 address, __u32 port)
{
	__u32 meant, ports = 0, number = group_entry_of(slot, address, &meant);
	__u32 index = slot * NICEKV_MULTICAST_ROUTES + number;
	struct nicekv_multicast_route *route = bpf_map_lookup_elem(&multicast_routes, &index);
	struct nicekv_group_places *places = bpf_map_lookup_elem(&group_places, &index);
	struct nicekv_group *group = route ? bpf_map_lookup_elem(&members, &route->group) : NULL;
	bool is_any = false;

	if (!number || !places || !group)
		return 0;
#pragma clang loop unroll(disable)
	for (__u32 at = 0; at < NICEKV_GROUP_MEMBERS_MAX && at < group->count; at++) {
		if (!(places->masks[at] & meant))
			continue;
		is_any = true;
		if (group->ports[at] != port)
			ports |= 1 << at;
	}
	return is_any ? number << 16 | ports : 0;
}

static __always_inline enum fate route_group(__u32 slot, const struct datagram *datagram, struct decision *decision)
{
	__u32 found = group_ports_of(slot, datagram->ip->daddr, decision->port), number = found >> 16;
	__u32 index = slot * NICEKV_MULTICAST_ROUTES + number;
	struct nicekv_multicast_route *route = bpf_map_lookup_elem(&multicast_routes, &index);

	if (!found || !route)
		return miss();
	hit(NICEKV_TABLE_MULTICAST_VRING, NICEKV_HITS_MULTICAST_VRING, number);
	decision->to.target = route->group;
	decision->receivers = found;
	decision->by_port = true;
	if (decision->receivers)
		return FATE_COPY;
	count(NICEKV_COUNTER_SAME_PORT_DROPPED);
	return FATE_DROP;
}

static __always_inline enum fate route(__u32 slot, struct datagram *datagram, struct decision *decision)
{
	const struct nicekv_vnodes *found;
	__u32 number;

	if (datagram->ring == RING_GROUP)
		return route_group(slot, datagram, decision);
	found = vnodes_of(slot, datagram);
	if (!found)
		return miss();
	if (found->by_records)
		return route_by_record(slot, datagram, decision);
	number = entry_of(found, datagram);
	if (is_multicast(datagram->ring))
		return route_multicast(slot, number, datagram, decision);
	return route_unicast(slot, number, datagram, decision);
}
