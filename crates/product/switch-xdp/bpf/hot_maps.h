/* Maps of hot keys. Filled by the loader unless stated otherwise; ../src/hot.rs says in which order. They do not belong to a generation. */
#pragma once

#include "decision.h"
#include "maps.h"

/* (keyspace, digest) -> an entry with its registers, which the data path changes. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, NICEKV_HOT_CAPACITY);
	__type(key, struct nicekv_hot_key);
	__type(value, struct nicekv_hot_entry);
} hot_entries SEC(".maps");

/* [0]: the newest instance that was ever installed. Raised after its entry is installed. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} hot_newest SEC(".maps");

/* [keyspace / NICEKV_HOT_KEYSPACES_OF_WORD]: one bit for each keyspace that spreads its hot keys. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NICEKV_HOT_KEYSPACE_WORDS);
	__type(key, __u32);
	__type(value, __u64);
} hot_keyspaces SEC(".maps");

/* [slot * NICEKV_HOT_HOST_IDS + host id]: its port, plus one, if it is a node attached to this switch; otherwise 0. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * NICEKV_HOT_HOST_IDS);
	__type(key, __u32);
	__type(value, __u32);
} hot_holders SEC(".maps");

/* [0]: the shape of the HashPipe. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct nicekv_hot_pipe);
} hot_pipe SEC(".maps");

/* [0]: the bank in which packets count. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} hot_bank SEC(".maps");

/*
 * A get or an update. `opcode`, `room`: of its header. `is_counted`: its keyspace spreads its hot keys. If it leaves for servers of this switch: `to`
 * the receiver, and the stamp; `is_copied`: a group. `is_refused`: the switch may not answer it itself.
 */
struct hot_request {
	struct nicekv_hot_key key;
	struct receiver to;
	__u32 slot;
	__u32 port;
	__u8 opcode;
	__u8 room;
	__u8 is_counted;
	__u8 is_copied;
	__u8 is_refused;
	__u8 reserved[3];
};

/* [0]: the request that this processor is handling. Filled by the data path. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct hot_request);
} hot_request SEC(".maps");

/* [bank * NICEKV_HOT_SLOTS_MAX + position], stage by stage in each bank. Filled by the data path, cleared by the loader. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, NICEKV_HOT_BANKS * NICEKV_HOT_SLOTS_MAX);
	__type(key, __u32);
	__type(value, struct nicekv_hot_slot);
} hot_slots SEC(".maps");

/* [bank]: requests of keys that were evicted. Filled and cleared likewise. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, NICEKV_HOT_BANKS);
	__type(key, __u32);
	__type(value, __u64);
} hot_dropped SEC(".maps");

/* [port]: requests that have left for its server. Only incremented. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, NICEKV_PORTS_MAX);
	__type(key, __u32);
	__type(value, __u64);
} hot_loads SEC(".maps");

static __always_inline void set_hot_key(struct nicekv_hot_key *key, const struct nicekv_header *header)
{
	key->digest[0] = *(const __be64 *)&header->digest[0];
	key->digest[1] = *(const __be64 *)&header->digest[8];
	key->keyspace = header->keyspace;
}
