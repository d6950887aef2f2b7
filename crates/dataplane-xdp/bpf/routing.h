/* Match-action on datagrams for a vring. */
#pragma once

#include "faults.h"
#include "rewrite.h"

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

static __always_inline int miss(void)
{
	count(NICEKV_COUNTER_VRING_MISS);
	return XDP_DROP;
}

static __always_inline int route_unicast(__u32 slot, struct datagram *datagram, bool doubled)
{
	struct iphdr *ip = datagram->ip;
	struct nicekv_route *route = match(slot, NICEKV_TABLE_UNICAST_VRING, 0, vnode_address(datagram));
	struct nicekv_route *division;

	if (!route)
		return miss();
	division = match(slot, NICEKV_TABLE_DIVISION, route->partition, ip->saddr);
	if (division)
		route = division;
	rewrite(datagram, route->mac, route->address);
	return send_to(route->target, doubled);
}

/* The copies are rewritten on their way out, by the generation that the ingress stage leaves in the metadata. */
static __always_inline int route_multicast(struct xdp_md *ctx, __u32 slot, struct datagram *datagram, bool doubled)
{
	struct nicekv_route *route = match(slot, NICEKV_TABLE_MULTICAST_VRING, 0, vnode_address(datagram));
	struct nicekv_metadata *metadata;
	__u32 index;
	void *group;

	if (!route)
		return miss();
	index = route->target + (doubled ? NICEKV_GROUP_TWINS : 0);
	group = bpf_map_lookup_elem(&groups, &index);
	if (!group)
		return miss();
	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*metadata)))
		return miss();
	metadata = (void *)(long)ctx->data_meta;
	if ((void *)(metadata + 1) > (void *)(long)ctx->data)
		return miss();
	metadata->slot = slot;
	return bpf_redirect_map(group, 0, BPF_F_BROADCAST | BPF_F_EXCLUDE_INGRESS);
}

static __always_inline int route(struct xdp_md *ctx, __u32 slot, struct datagram *datagram, bool doubled)
{
	if (datagram->ring == RING_UNICAST)
		return route_unicast(slot, datagram, doubled);
	return route_multicast(ctx, slot, datagram, doubled);
}
