/* Maps of hot keys. Filled by the loader unless said otherwise; ../src/hot.rs says in which order. They belong to no generation. */
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

/* [0]: the newest instance that was ever installed. Raised when its entry is there. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} hot_newest SEC(".maps");

/* [keyspace / NICEKV_HOT_KEYSPACES_OF_WORD]: a bit for each keyspace that spreads its hot keys. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NICEKV_HOT_KEYSPACE_WORDS);
	__type(key, __u32);
	__type(value, __u64);
} hot_keyspaces SEC(".maps");

/* [slot * NICEKV_HOT_HOST_IDS + name of a host]: its port, plus one, if it is a node at this switch; else 0. */
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

/* [0]: in which bank packets count. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} hot_bank SEC(".maps");

/*
 * A get or an update. `opcode`, `room`: of its header. `is_counted`: its keyspace spreads its hot keys. If it leaves for servers of this switch: `to` whom, as is decided, and
 * with which stamp in the end; `is_copied`: a group. `is_refused`: the switch does not answer it itself.
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

/* [0]: the request that this processor has in hand. Filled by the data path. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct hot_request);
} hot_request SEC(".maps");

/* [bank * NICEKV_HOT_SLOTS_MAX + place], in a bank stage by stage. Filled by the data path, emptied by the loader. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, NICEKV_HOT_BANKS * NICEKV_HOT_SLOTS_MAX);
	__type(key, __u32);
	__type(value, struct nicekv_hot_slot);
} hot_slots SEC(".maps");

/* [bank]: requests whose keys have lost their slots. Likewise. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, NICEKV_HOT_BANKS);
	__type(key, __u32);
	__type(value, __u64);
} hot_dropped SEC(".maps");

/* [port]: requests that have left for the server there. Only ever added to. */
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
