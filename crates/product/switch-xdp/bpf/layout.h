/* Generated from src/layout.rs: do not edit. `NICEKV_BLESS=1 cargo test -p nicekv-switch-xdp layout`
 * writes it anew. Addresses are in the order of the wire. */
#pragma once

#include <stddef.h>

#include <linux/types.h>

#define NICEKV_PORTS_MAX 256
#define NICEKV_HOST_CAPACITY 256
#define NICEKV_MAC_CAPACITY 4096
#define NICEKV_VLAN_TAGS_MAX 2
#define NICEKV_GROUP_MEMBERS_MAX 16
#define NICEKV_GROUP_SLOTS 2048
#define NICEKV_GROUP_TWINS 2048
#define NICEKV_PORT_TWINS 4096
#define NICEKV_PLACE_BITS 12
#define NICEKV_PPM 1000000
#define NICEKV_RECEIVERS_ALL 65535
#define NICEKV_VNODES 65536
#define NICEKV_DIVISIONS_MAX 8
#define NICEKV_UNICAST_ROUTES 8193
#define NICEKV_MULTICAST_ROUTES 8193
#define NICEKV_RECORD_ROUTES 20481
#define NICEKV_RECORD_PLACES 16384
#define NICEKV_RECORD_GUESSES 32768
#define NICEKV_RECORD_STEPS 14
#define NICEKV_HITS_BLOCK 512
#define NICEKV_HITS_BLOCKS 249
#define NICEKV_PORT_OPEN 0
#define NICEKV_PORT_HOST 1
#define NICEKV_PORT_TRUNK 2
#define NICEKV_VRINGS_MAX 16
#define NICEKV_REGISTER_CELLS 256
#define NICEKV_COUNTER_COUNT 24
#define NICEKV_COUNTER_HITS 20
#define NICEKV_ROLE_NODE 0
#define NICEKV_ROLE_METADATA 1
#define NICEKV_OPCODES_UNICAST 0x80000000000182ULL
#define NICEKV_OPCODES_UNICAST_NODE 0x8c0c0000000182ULL
#define NICEKV_OPCODES_MULTICAST 0x50a00000000040b4ULL
#define NICEKV_OPCODES_MULTICAST_NODE 0x50ac0c00800440b4ULL
#define NICEKV_OPCODES_GROUP 0x720000000000000ULL
#define NICEKV_OPCODES_REQUEST 0x50a00000000055b6ULL
#define NICEKV_OPCODES_NODE 0xffe3e3d9ffffffffULL
#define NICEKV_OPCODES_SWITCH 0xc0c0000000000ULL
#define NICEKV_OPCODES_UPDATE 0xa4ULL
#define NICEKV_OPCODES_READ 0x10ULL
#define NICEKV_REQUESTS 28674
#define NICEKV_REGISTER_REFUSED_BY_PORT 0
#define NICEKV_TABLE_UNICAST_VRING 0
#define NICEKV_HITS_UNICAST_VRING 0
#define NICEKV_TABLE_DIVISION 1
#define NICEKV_HITS_DIVISION 8193
#define NICEKV_TABLE_MULTICAST_VRING 2
#define NICEKV_HITS_MULTICAST_VRING 40962
#define NICEKV_TABLE_RECORD 3
#define NICEKV_HITS_RECORD 49155
#define NICEKV_COUNTER_MALFORMED 0
#define NICEKV_COUNTER_VRING_MISS 1
#define NICEKV_COUNTER_VRING_REFUSED 2
#define NICEKV_COUNTER_NOT_OURS 3
#define NICEKV_COUNTER_SOURCE_REFUSED 4
#define NICEKV_COUNTER_OPCODE_REFUSED 5
#define NICEKV_COUNTER_MULTICAST_COPIES 6
#define NICEKV_COUNTER_EGRESS_DROPPED 7
#define NICEKV_COUNTER_LEARNED_FORWARDED 8
#define NICEKV_COUNTER_FLOODED 9
#define NICEKV_COUNTER_SAME_PORT_DROPPED 10
#define NICEKV_COUNTER_CHAINED 11
#define NICEKV_COUNTER_SCAN_SPLITS 12
#define NICEKV_COUNTER_HOT_REDIRECTED 13
#define NICEKV_COUNTER_HOT_CONFIRMED 14
#define NICEKV_COUNTER_HOT_CLOSED 15
#define NICEKV_COUNTER_HOT_UNHEARD 16
#define NICEKV_COUNTER_HOT_ANSWERED 17
#define NICEKV_COUNTER_HOT_KEPT 18
#define NICEKV_COUNTER_HOT_LEASED 19
#define NICEKV_COUNTER_UNICAST_HITS 20
#define NICEKV_COUNTER_DIVISION_HITS 21
#define NICEKV_COUNTER_MULTICAST_HITS 22
#define NICEKV_COUNTER_RECORD_HITS 23

struct nicekv_vring_pair {
	__be32 unicast_network;
	__be32 unicast_mask;
	__be32 multicast_network;
	__be32 multicast_mask;
};
_Static_assert(sizeof(struct nicekv_vring_pair) == 16, "size");
_Static_assert(offsetof(struct nicekv_vring_pair, unicast_network) == 0, "offset");
_Static_assert(offsetof(struct nicekv_vring_pair, unicast_mask) == 4, "offset");
_Static_assert(offsetof(struct nicekv_vring_pair, multicast_network) == 8, "offset");
_Static_assert(offsetof(struct nicekv_vring_pair, multicast_mask) == 12, "offset");

struct nicekv_config {
	struct nicekv_vring_pair vrings[16];
	__u32 vring_count;
	__u32 ring_octets[8];
	__u8 router_mac[6];
	__be16 target_port;
	__u32 place_multiplier;
	__u32 port_count;
	__u32 cutter_near;
	__u32 cutter_far;
	__be32 group_network;
	__be32 group_mask;
};
_Static_assert(sizeof(struct nicekv_config) == 324, "size");
_Static_assert(offsetof(struct nicekv_config, vrings) == 0, "offset");
_Static_assert(offsetof(struct nicekv_config, vring_count) == 256, "offset");
_Static_assert(offsetof(struct nicekv_config, ring_octets) == 260, "offset");
_Static_assert(offsetof(struct nicekv_config, router_mac) == 292, "offset");
_Static_assert(offsetof(struct nicekv_config, target_port) == 298, "offset");
_Static_assert(offsetof(struct nicekv_config, place_multiplier) == 300, "offset");
_Static_assert(offsetof(struct nicekv_config, port_count) == 304, "offset");
_Static_assert(offsetof(struct nicekv_config, cutter_near) == 308, "offset");
_Static_assert(offsetof(struct nicekv_config, cutter_far) == 312, "offset");
_Static_assert(offsetof(struct nicekv_config, group_network) == 316, "offset");
_Static_assert(offsetof(struct nicekv_config, group_mask) == 320, "offset");

struct nicekv_division {
	__u32 network;
	__u16 number;
	__u8 target;
	__u8 ignored_bits;
};
_Static_assert(sizeof(struct nicekv_division) == 8, "size");
_Static_assert(offsetof(struct nicekv_division, network) == 0, "offset");
_Static_assert(offsetof(struct nicekv_division, number) == 4, "offset");
_Static_assert(offsetof(struct nicekv_division, target) == 6, "offset");
_Static_assert(offsetof(struct nicekv_division, ignored_bits) == 7, "offset");

struct nicekv_chain {
	__be32 partition;
	__be32 epoch;
	__u32 head;
	__u8 length;
	__u8 nodes[9];
	__u8 tail;
	__u8 reserved;
};
_Static_assert(sizeof(struct nicekv_chain) == 24, "size");
_Static_assert(offsetof(struct nicekv_chain, partition) == 0, "offset");
_Static_assert(offsetof(struct nicekv_chain, epoch) == 4, "offset");
_Static_assert(offsetof(struct nicekv_chain, head) == 8, "offset");
_Static_assert(offsetof(struct nicekv_chain, length) == 12, "offset");
_Static_assert(offsetof(struct nicekv_chain, nodes) == 13, "offset");
_Static_assert(offsetof(struct nicekv_chain, tail) == 22, "offset");
_Static_assert(offsetof(struct nicekv_chain, reserved) == 23, "offset");

struct nicekv_multicast_route {
	__u32 group;
	struct nicekv_chain chain;
	__u8 reserved[4];
};
_Static_assert(sizeof(struct nicekv_multicast_route) == 32, "size");
_Static_assert(offsetof(struct nicekv_multicast_route, group) == 0, "offset");
_Static_assert(offsetof(struct nicekv_multicast_route, chain) == 4, "offset");
_Static_assert(offsetof(struct nicekv_multicast_route, reserved) == 28, "offset");
#define NICEKV_GROUP_LENGTH 20
#define NICEKV_GROUP_MASK_ALL 0xfffU

struct nicekv_group_entry_key {
	__u32 slot;
	__be32 address;
	__u32 length;
};
_Static_assert(sizeof(struct nicekv_group_entry_key) == 12, "size");
_Static_assert(offsetof(struct nicekv_group_entry_key, slot) == 0, "offset");
_Static_assert(offsetof(struct nicekv_group_entry_key, address) == 4, "offset");
_Static_assert(offsetof(struct nicekv_group_entry_key, length) == 8, "offset");

struct nicekv_group_places {
	__u16 masks[16];
};
_Static_assert(sizeof(struct nicekv_group_places) == 32, "size");
_Static_assert(offsetof(struct nicekv_group_places, masks) == 0, "offset");

struct nicekv_unicast_route {
	__u32 target;
	__u32 division_count;
	struct nicekv_division divisions[8];
	struct nicekv_chain chain;
	struct nicekv_division reserved[4];
};
_Static_assert(sizeof(struct nicekv_unicast_route) == 128, "size");
_Static_assert(offsetof(struct nicekv_unicast_route, target) == 0, "offset");
_Static_assert(offsetof(struct nicekv_unicast_route, division_count) == 4, "offset");
_Static_assert(offsetof(struct nicekv_unicast_route, divisions) == 8, "offset");
_Static_assert(offsetof(struct nicekv_unicast_route, chain) == 72, "offset");
_Static_assert(offsetof(struct nicekv_unicast_route, reserved) == 96, "offset");

struct nicekv_record_route {
	__u64 last[2];
	__u32 target;
	__u32 group;
	__u32 division_count;
	__be16 keyspace;
	__u8 unused[2];
	struct nicekv_division divisions[8];
	struct nicekv_chain chain;
	__u8 reserved[8];
};
_Static_assert(sizeof(struct nicekv_record_route) == 128, "size");
_Static_assert(offsetof(struct nicekv_record_route, last) == 0, "offset");
_Static_assert(offsetof(struct nicekv_record_route, target) == 16, "offset");
_Static_assert(offsetof(struct nicekv_record_route, group) == 20, "offset");
_Static_assert(offsetof(struct nicekv_record_route, division_count) == 24, "offset");
_Static_assert(offsetof(struct nicekv_record_route, keyspace) == 28, "offset");
_Static_assert(offsetof(struct nicekv_record_route, unused) == 30, "offset");
_Static_assert(offsetof(struct nicekv_record_route, divisions) == 32, "offset");
_Static_assert(offsetof(struct nicekv_record_route, chain) == 96, "offset");
_Static_assert(offsetof(struct nicekv_record_route, reserved) == 120, "offset");

struct nicekv_place {
	__u32 ifindex;
	__u32 port;
	__u32 number;
};
_Static_assert(sizeof(struct nicekv_place) == 12, "size");
_Static_assert(offsetof(struct nicekv_place, ifindex) == 0, "offset");
_Static_assert(offsetof(struct nicekv_place, port) == 4, "offset");
_Static_assert(offsetof(struct nicekv_place, number) == 8, "offset");

struct nicekv_cable {
	__u32 ifindex;
	__u32 has_peer;
};
_Static_assert(sizeof(struct nicekv_cable) == 8, "size");
_Static_assert(offsetof(struct nicekv_cable, ifindex) == 0, "offset");
_Static_assert(offsetof(struct nicekv_cable, has_peer) == 4, "offset");

struct nicekv_group {
	__u32 count;
	__u32 ports[16];
};
_Static_assert(sizeof(struct nicekv_group) == 68, "size");
_Static_assert(offsetof(struct nicekv_group, count) == 0, "offset");
_Static_assert(offsetof(struct nicekv_group, ports) == 4, "offset");

struct nicekv_sender {
	__u32 generation;
	__be32 address;
	__u8 mac[6];
	__u8 reserved[2];
};
_Static_assert(sizeof(struct nicekv_sender) == 16, "size");
_Static_assert(offsetof(struct nicekv_sender, generation) == 0, "offset");
_Static_assert(offsetof(struct nicekv_sender, address) == 4, "offset");
_Static_assert(offsetof(struct nicekv_sender, mac) == 8, "offset");
_Static_assert(offsetof(struct nicekv_sender, reserved) == 14, "offset");

struct nicekv_host {
	__be32 address;
	__u8 mac[6];
	__be16 udp_port;
	__u8 role;
	__u8 kind;
	__u16 id;
};
_Static_assert(sizeof(struct nicekv_host) == 16, "size");
_Static_assert(offsetof(struct nicekv_host, address) == 0, "offset");
_Static_assert(offsetof(struct nicekv_host, mac) == 4, "offset");
_Static_assert(offsetof(struct nicekv_host, udp_port) == 10, "offset");
_Static_assert(offsetof(struct nicekv_host, role) == 12, "offset");
_Static_assert(offsetof(struct nicekv_host, kind) == 13, "offset");
_Static_assert(offsetof(struct nicekv_host, id) == 14, "offset");

struct nicekv_server_key {
	__u32 slot;
	__be32 address;
};
_Static_assert(sizeof(struct nicekv_server_key) == 8, "size");
_Static_assert(offsetof(struct nicekv_server_key, slot) == 0, "offset");
_Static_assert(offsetof(struct nicekv_server_key, address) == 4, "offset");

struct nicekv_server {
	__u32 port;
	__u8 mac[6];
	__be16 udp_port;
	__u8 role;
	__u8 reserved[3];
};
_Static_assert(sizeof(struct nicekv_server) == 16, "size");
_Static_assert(offsetof(struct nicekv_server, port) == 0, "offset");
_Static_assert(offsetof(struct nicekv_server, mac) == 4, "offset");
_Static_assert(offsetof(struct nicekv_server, udp_port) == 10, "offset");
_Static_assert(offsetof(struct nicekv_server, role) == 12, "offset");
_Static_assert(offsetof(struct nicekv_server, reserved) == 13, "offset");

struct nicekv_station_key {
	__u32 slot;
	__u8 mac[6];
	__u8 reserved[2];
};
_Static_assert(sizeof(struct nicekv_station_key) == 12, "size");
_Static_assert(offsetof(struct nicekv_station_key, slot) == 0, "offset");
_Static_assert(offsetof(struct nicekv_station_key, mac) == 4, "offset");
_Static_assert(offsetof(struct nicekv_station_key, reserved) == 10, "offset");

struct nicekv_mac {
	__u8 bytes[6];
	__u8 reserved[2];
};
_Static_assert(sizeof(struct nicekv_mac) == 8, "size");
_Static_assert(offsetof(struct nicekv_mac, bytes) == 0, "offset");
_Static_assert(offsetof(struct nicekv_mac, reserved) == 6, "offset");

struct nicekv_metadata {
	__u16 slot;
	__u16 by_port;
	__u16 receivers;
	__u16 has_stamp;
	__be64 stamp[2];
};
_Static_assert(sizeof(struct nicekv_metadata) == 24, "size");
_Static_assert(offsetof(struct nicekv_metadata, slot) == 0, "offset");
_Static_assert(offsetof(struct nicekv_metadata, by_port) == 2, "offset");
_Static_assert(offsetof(struct nicekv_metadata, receivers) == 4, "offset");
_Static_assert(offsetof(struct nicekv_metadata, has_stamp) == 6, "offset");
_Static_assert(offsetof(struct nicekv_metadata, stamp) == 8, "offset");

struct nicekv_fault {
	__u32 lost_from_ppm;
	__u32 lost_to_ppm;
	__u32 doubled_ppm;
	__u8 reserved[4];
	__u64 lost;
	__u64 doubled;
};
_Static_assert(sizeof(struct nicekv_fault) == 32, "size");
_Static_assert(offsetof(struct nicekv_fault, lost_from_ppm) == 0, "offset");
_Static_assert(offsetof(struct nicekv_fault, lost_to_ppm) == 4, "offset");
_Static_assert(offsetof(struct nicekv_fault, doubled_ppm) == 8, "offset");
_Static_assert(offsetof(struct nicekv_fault, reserved) == 12, "offset");
_Static_assert(offsetof(struct nicekv_fault, lost) == 16, "offset");
_Static_assert(offsetof(struct nicekv_fault, doubled) == 24, "offset");
#define NICEKV_HOT_CAPACITY 10000
#define NICEKV_HOT_HOLDERS_MAX 31
#define NICEKV_HOT_VALUES_MAX 1024
#define NICEKV_HOT_SLOTS_MAX 16384
#define NICEKV_HOT_STAGES_MAX 8
#define NICEKV_HOT_BANKS 2
#define NICEKV_HOT_HOST_IDS 65536
#define NICEKV_HOT_KEYSPACES_OF_WORD 64
#define NICEKV_HOT_KEYSPACE_WORDS 1024
#define NICEKV_HOT_GONE 0xffffffffffffffffULL

struct nicekv_hot_key {
	__be64 digest[2];
	__be16 keyspace;
	__u8 reserved[6];
};
_Static_assert(sizeof(struct nicekv_hot_key) == 24, "size");
_Static_assert(offsetof(struct nicekv_hot_key, digest) == 0, "offset");
_Static_assert(offsetof(struct nicekv_hot_key, keyspace) == 16, "offset");
_Static_assert(offsetof(struct nicekv_hot_key, reserved) == 18, "offset");

struct nicekv_hot_holder {
	__u64 confirmed;
	__u16 id;
	__u8 reserved[6];
};
_Static_assert(sizeof(struct nicekv_hot_holder) == 16, "size");
_Static_assert(offsetof(struct nicekv_hot_holder, confirmed) == 0, "offset");
_Static_assert(offsetof(struct nicekv_hot_holder, id) == 8, "offset");
_Static_assert(offsetof(struct nicekv_hot_holder, reserved) == 10, "offset");

struct nicekv_hot_entry {
	__u64 instance;
	__u64 seen;
	__u64 requests;
	__u32 turn;
	__u8 holder_count;
	__u8 owner_turns;
	__u16 value_place;
	struct nicekv_hot_holder holders[31];
	__u64 answered;
};
_Static_assert(sizeof(struct nicekv_hot_entry) == 536, "size");
_Static_assert(offsetof(struct nicekv_hot_entry, instance) == 0, "offset");
_Static_assert(offsetof(struct nicekv_hot_entry, seen) == 8, "offset");
_Static_assert(offsetof(struct nicekv_hot_entry, requests) == 16, "offset");
_Static_assert(offsetof(struct nicekv_hot_entry, turn) == 24, "offset");
_Static_assert(offsetof(struct nicekv_hot_entry, holder_count) == 28, "offset");
_Static_assert(offsetof(struct nicekv_hot_entry, owner_turns) == 29, "offset");
_Static_assert(offsetof(struct nicekv_hot_entry, value_place) == 30, "offset");
_Static_assert(offsetof(struct nicekv_hot_entry, holders) == 32, "offset");
_Static_assert(offsetof(struct nicekv_hot_entry, answered) == 528, "offset");

struct nicekv_hot_slot {
	__u64 high;
	__u64 low;
	__u64 count;
	__u32 keyspace;
	__u8 reserved[4];
};
_Static_assert(sizeof(struct nicekv_hot_slot) == 32, "size");
_Static_assert(offsetof(struct nicekv_hot_slot, high) == 0, "offset");
_Static_assert(offsetof(struct nicekv_hot_slot, low) == 8, "offset");
_Static_assert(offsetof(struct nicekv_hot_slot, count) == 16, "offset");
_Static_assert(offsetof(struct nicekv_hot_slot, keyspace) == 24, "offset");
_Static_assert(offsetof(struct nicekv_hot_slot, reserved) == 28, "offset");

struct nicekv_hot_pipe {
	__u64 seeds[8];
	__u32 stages;
	__u32 stage_slots;
};
_Static_assert(sizeof(struct nicekv_hot_pipe) == 72, "size");
_Static_assert(offsetof(struct nicekv_hot_pipe, seeds) == 0, "offset");
_Static_assert(offsetof(struct nicekv_hot_pipe, stages) == 64, "offset");
_Static_assert(offsetof(struct nicekv_hot_pipe, stage_slots) == 68, "offset");
