/* Maps. Filled by the loader unless stated otherwise; src/generation.rs explains generations. */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include <nicekv_wire.h>

#include "layout.h"

/* Set by the loader before the programs are loaded. */
const volatile struct nicekv_config config = {};

/* [0]: the number of the generation in force, which only grows; its lowest bit is its slot. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} active SEC(".maps");

/* [vnode without its last bits, which no two entries of the ring differ in]: the number of its entry, from 1; 0: none. */
struct nicekv_vnodes {
	__u16 entries[NICEKV_VNODES];
	__u16 ignored_bits;
	/* Not zero: the ring is matched by records. */
	__u16 by_records;
};

/* The records of a pair of rings, and where a search begins; ../src/layout.rs explains it. */
struct nicekv_segment {
	__u64 first[2];
	__u32 begin;
	__u32 count;
	__u32 guesses;
	__u32 cells;
	__u32 shift;
	__u32 reserved;
};

/* All records, those of a pair of rings adjacent and ascending: the first value, upper and lower half, and the number of each. */
struct nicekv_records {
	struct nicekv_segment segments[NICEKV_VRINGS_MAX];
	__u64 firsts[NICEKV_RECORD_PLACES][2];
	__u16 numbers[NICEKV_RECORD_PLACES];
	__u16 guesses[NICEKV_RECORD_GUESSES];
};

struct nicekv_hits {
	__u64 entries[NICEKV_HITS_BLOCK];
};

/* [slot + 2 * ring, over the rings of all pairs]: the entries of vnodes. The loader sets the number of rings. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4 * NICEKV_VRINGS_MAX);
	__type(key, __u32);
	__type(value, struct nicekv_vnodes);
} vnodes SEC(".maps");

/* [slot * NICEKV_UNICAST_ROUTES + number]: the route of gets. The flag aligns the map to a page, and so each element to a cache line. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2 * NICEKV_UNICAST_ROUTES);
	__type(key, __u32);
	__type(value, struct nicekv_unicast_route);
} unicast_routes SEC(".maps");

/* [slot * NICEKV_MULTICAST_ROUTES + number]: the slot of its group. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * NICEKV_MULTICAST_ROUTES);
	__type(key, __u32);
	__type(value, struct nicekv_multicast_route);
} multicast_routes SEC(".maps");

/* (slot, prefix in the ring of groups) -> the number of its entry in `multicast_routes`. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, NICEKV_MULTICAST_ROUTES);
	__type(key, struct nicekv_group_entry_key);
	__type(value, __u32);
} group_entries SEC(".maps");

/* [slot * NICEKV_MULTICAST_ROUTES + number], for entries of the ring of groups: the members behind each port of the entry's group. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * NICEKV_MULTICAST_ROUTES);
	__type(key, __u32);
	__type(value, struct nicekv_group_places);
} group_places SEC(".maps");

/* [slot]. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct nicekv_records);
} records SEC(".maps");

/* [slot * NICEKV_RECORD_ROUTES + number]: the end of the record, and its routes. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2 * NICEKV_RECORD_ROUTES);
	__type(key, __u32);
	__type(value, struct nicekv_record_route);
} record_routes SEC(".maps");

/* [slot * NICEKV_HOST_CAPACITY + position]: the address of a node; chains name nodes by position. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * NICEKV_HOST_CAPACITY);
	__type(key, __u32);
	__type(value, __be32);
} nodes SEC(".maps");

/* [0]: the chain header for the request that this processor is handling, which is too large for its stack. Filled by the data path. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct nicekv_chain_header);
} chain_header SEC(".maps");

struct fenced {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
};

/* Never read: a write returns when every program that was running has ended. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct fenced);
} fence SEC(".maps");

/* Inner maps spell out sizes: a named inner struct with types becomes a forward declaration in BTF. */
struct group {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct bpf_devmap_val));
};

/*
 * [group slot]: the ports of one member set, each with the egress program, for XDP. Shared by the generations.
 * [NICEKV_GROUP_TWINS + group slot]: the same, each port twice; [NICEKV_PORT_TWINS + n]: one port twice, for injected faults.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, NICEKV_PORT_TWINS + NICEKV_PORTS_MAX);
	__type(key, __u32);
	__array(values, struct group);
} groups SEC(".maps");

/* [slot * NICEKV_PORTS_MAX + port]: the server at the port, for rewriting and admission; or that it is a trunk. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * NICEKV_PORTS_MAX);
	__type(key, __u32);
	__type(value, struct nicekv_host);
} hosts SEC(".maps");

/* [port]: its interface. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NICEKV_PORTS_MAX);
	__type(key, __u32);
	__type(value, struct nicekv_cable);
} cables SEC(".maps");

/* [group slot]: the ports of one member set, trunks first, for tc. Shared by the generations like `groups`. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NICEKV_GROUP_SLOTS);
	__type(key, __u32);
	__type(value, struct nicekv_group);
} members SEC(".maps");

/* (slot, IP) -> the server with this address. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2 * NICEKV_HOST_CAPACITY);
	__type(key, struct nicekv_server_key);
	__type(value, struct nicekv_server);
} servers SEC(".maps");

/* (slot, MAC) -> the port of the server with this address. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2 * NICEKV_HOST_CAPACITY);
	__type(key, struct nicekv_station_key);
	__type(value, __u32);
} stations SEC(".maps");

/* [hash of an interface]: its port. The loader has chosen a multiplier without collisions. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << NICEKV_PLACE_BITS);
	__type(key, __u32);
	__type(value, struct nicekv_place);
} places SEC(".maps");

/* [port]: the last admitted sender that is not a server, for each processor. Filled by the data path. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, NICEKV_PORTS_MAX);
	__type(key, __u32);
	__type(value, struct nicekv_sender);
} senders SEC(".maps");

/* All registers; layout.h says where each begins. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, NICEKV_REGISTER_CELLS);
	__type(key, __u32);
	__type(value, __u64);
} registers SEC(".maps");

/*
 * [port]: every port of the switch. Each has the egress program, although most frames do not need it: the kernel runs the program of the first frame
 * in a port's queue on all frames that it flushes together.
 */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, NICEKV_PORTS_MAX);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct bpf_devmap_val));
} ports SEC(".maps");

/* MAC -> port. Filled by the data path. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, NICEKV_MAC_CAPACITY);
	__type(key, struct nicekv_mac);
	__type(value, __u32);
} macs SEC(".maps");

/* [0]: whether `faults` is looked up. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} faults_active SEC(".maps");

/* Interface index -> its injected faults. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, NICEKV_PORTS_MAX);
	__type(key, __u32);
	__type(value, struct nicekv_fault);
} faults SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, NICEKV_COUNTER_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

/* [number / NICEKV_HITS_BLOCK]: matches of one table entry each, side by side; layout.h says where a table begins, and how far behind
   them reads and updates are. Only ever added to. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, NICEKV_HITS_BLOCKS);
	__type(key, __u32);
	__type(value, struct nicekv_hits);
} hits SEC(".maps");

/* The port of an interface; NULL if it is not the switch's. */
static __always_inline struct nicekv_place *place_of(__u32 ifindex)
{
	__u32 cell = (ifindex * config.place_multiplier) >> (32 - NICEKV_PLACE_BITS);
	struct nicekv_place *place = bpf_map_lookup_elem(&places, &cell);

	return place && place->ifindex == ifindex ? place : NULL;
}

/* What is attached to a port. NULL: there is no such port. */
static __always_inline struct nicekv_host *host_cell(__u32 slot, __u32 port)
{
	__u32 index = slot * NICEKV_PORTS_MAX + port;

	return bpf_map_lookup_elem(&hosts, &index);
}

/* The server or trunk at a port, if there is one. */
static __always_inline struct nicekv_host *receiver_at(__u32 slot, __u32 port)
{
	struct nicekv_host *host = host_cell(slot, port);

	return host && host->kind != NICEKV_PORT_OPEN ? host : NULL;
}

/* Whether a server or trunk gets a copy for these receivers. The switch behind a trunk knows its own hosts. */
static __always_inline bool is_meant(const struct nicekv_host *receiver, __u16 receivers)
{
	return receiver->kind == NICEKV_PORT_TRUNK || receivers >> receiver->id % 16 & 1;
}

static __always_inline void count(__u32 counter)
{
	__u64 *value = bpf_map_lookup_elem(&counters, &counter);

	if (value)
		*value += 1;
}
