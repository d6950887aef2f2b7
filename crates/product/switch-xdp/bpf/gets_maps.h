/* Maps of the program for gets: shared with the process, counters, and scratch for one get. */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include <nicekv_wire.h>

#include "gets.h"
#include "replies.h"

#define BODY_WORDS (NICEKV_GETS_ENTRY_WORDS - NICEKV_GETS_BODY)

struct gate {
	__u64 words[NICEKV_GETS_GATE_WORDS];
};

struct entry {
	__u64 words[NICEKV_GETS_ENTRY_WORDS];
};

/* A get, which becomes its reply. */
struct scratch {
	__u8 request[REQUEST_BYTES_MAX];
	__u8 reply[PAYLOAD_BYTES_MAX];
	__u64 key[KEY_WORDS];
	__u64 digest[2];
	__u64 chain[NICEKV_GETS_HITS - NICEKV_GETS_CHAIN];
	__u64 instance;
	__u64 seen;
	__u64 shape;
	__u64 now_ns;
	__u32 bytes;
	__u32 key_bytes;
	__u32 has_chain;
	__u32 source;
	__u32 reply_bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct gate);
	__uint(max_entries, 1);
} gates SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct entry);
	__uint(max_entries, 1);
} entries SEC(".maps");

/* A client at a gate, in one word: the number of the gate, plus one, in the upper half. */
struct source {
	__u64 name;
	__u64 gets;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct source);
	__uint(max_entries, NICEKV_GETS_SOURCES);
} sources SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct scratch);
	__uint(max_entries, 1);
} scratch SEC(".maps");

/* Number of gets by outcome. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, NICEKV_GETS_OUTCOMES);
} outcomes SEC(".maps");

/* The node's configuration, set by the loader. */
const volatile struct nicekv_gets_config config = {};

static __always_inline struct scratch *scratch_of_cpu(void)
{
	return bpf_map_lookup_elem(&scratch, &(__u32){ 0 });
}
