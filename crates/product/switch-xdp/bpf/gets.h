/* Generated from crates/product/kernel-gets/src/layout.rs: do not edit. `NICEKV_BLESS=1 cargo test -p nicekv-switch-xdp layout`
 * writes it anew. */
#pragma once

#include <linux/types.h>

#define NICEKV_GETS_VERSION 0
#define NICEKV_GETS_GATE 1
#define NICEKV_GETS_SHAPE 2
#define NICEKV_GETS_USED 3
#define NICEKV_GETS_INSTANCE 4
#define NICEKV_GETS_SEEN 5
#define NICEKV_GETS_DIGEST 6
#define NICEKV_GETS_KEY 8
#define NICEKV_GETS_BODY 40
#define NICEKV_GETS_ENTRY_WORDS 173
#define NICEKV_GETS_LEASE 0
#define NICEKV_GETS_CHAIN 1
#define NICEKV_GETS_HITS 7
#define NICEKV_GETS_GATE_WORDS 8
#define NICEKV_GETS_WAYS 4
#define NICEKV_GETS_SOURCES 2048
#define NICEKV_GETS_SOURCE_PLACES 4
#define NICEKV_GETS_SHOWN_BITS 6
#define NICEKV_GETS_MULTIPLIER 0x9e3779b97f4a7c15ULL

/* Outcomes of gets. */
#define NICEKV_GETS_OUTCOME_HIT 0
#define NICEKV_GETS_OUTCOME_ABSENT 1
#define NICEKV_GETS_OUTCOME_CLOSED 2
#define NICEKV_GETS_OUTCOME_LEASE 3
#define NICEKV_GETS_OUTCOME_CHAIN 4
#define NICEKV_GETS_OUTCOME_CHANGED 5
#define NICEKV_GETS_OUTCOME_ROOM 6
#define NICEKV_GETS_OUTCOME_STAMP 7
#define NICEKV_GETS_OUTCOME_COPY 8
#define NICEKV_GETS_OUTCOMES 9

/* Configuration of a node. */
struct nicekv_gets_config {
	__be32 address;
	__be16 port;
	__u16 reserved;
	__u32 entries;
};
