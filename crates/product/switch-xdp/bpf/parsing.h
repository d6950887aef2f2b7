/* The parser. Step for step the reference model's parser.rs, which states the rules. */
#pragma once

#include <stdbool.h>

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include <nicekv_wire.h>

#include "layout.h"
#include "maps.h"

#define IPV4_MORE_FRAGMENTS 0x2000
#define IPV4_FRAGMENT_OFFSET_BITS 0x1fff
#define IPV4_FRAGMENT_BITS (IPV4_MORE_FRAGMENTS | IPV4_FRAGMENT_OFFSET_BITS)
#define IPV4_HEADER_BYTES_MIN 20
#define IPV4_HEADER_BYTES_MAX 60

/* The parser's verdict: one of these, or (not negative) the counter of the reason for which the frame is dropped. */
enum class {
	CLASS_VRING = -1,
	CLASS_OTHERS = -2,
};

/* The ring of an address: none, 2 * n + RING_UNICAST or 2 * n + RING_MULTICAST of pair n, or the ring of groups, which counts as a multicast ring. */
enum ring {
	RING_NONE,
	RING_UNICAST,
	RING_MULTICAST,
	RING_GROUP = 2 * NICEKV_VRINGS_MAX + RING_MULTICAST,
};

/*
 * A frame at either hook. `data`, `end`: the readable part of its `bytes`, with all headers.
 * `tags`: VLAN tags that are not in the data. `datagram_bytes`: not zero for a GSO batch: several datagrams under one header, segmented later.
 */
struct frame {
	void *data;
	void *end;
	__u32 bytes;
	__u32 ifindex;
	__u32 tags;
	__u32 datagram_bytes;
};

struct vlan_tag {
	__be16 control;
	__be16 ether_type;
};

/* ARP for IPv4 over Ethernet. The addresses are not aligned. */
struct arp_ipv4 {
	__u8 fixed[14];
	__u8 sender[4];
	__u8 target_mac[6];
	__u8 target[4];
};

/*
 * The parsed headers of a frame. `ip` and `udp`: NULL if there is none; in other traffic `udp` may be that of a first fragment.
 * `header`: NULL without a whole header of the store, including the room that it announces. `room`: for a chain header; NULL if there is none.
 * `sender`: source of IPv4, sender of ARP.
 * `is_fragment`: more of the datagram follows in other frames.
 */
struct datagram {
	__u32 ring;
	struct ethhdr *ethernet;
	struct iphdr *ip;
	struct udphdr *udp;
	struct nicekv_header *header;
	struct nicekv_chain_header *room;
	__be32 sender;
	bool is_fragment;
};

struct cursor {
	void *at;
	void *end;
};

static __always_inline bool holds(__u64 opcodes, __u8 opcode)
{
	return opcode < 64 && (opcodes >> opcode) & 1;
}

/* Advances the cursor by `bytes`, or returns NULL if the frame is shorter. */
static __always_inline void *take(struct cursor *cursor, __u64 bytes)
{
	void *at = cursor->at;

	if (at + bytes > cursor->end)
		return NULL;
	cursor->at = at + bytes;
	return at;
}

static __always_inline struct ethhdr *ethernet_of(const struct frame *frame)
{
	struct cursor cursor = { .at = frame->data, .end = frame->end };

	return take(&cursor, sizeof(struct ethhdr));
}

/* A function call: if it were inlined at each use, the loop would be most of the program. */
__noinline __u32 ring_of(__be32 address)
{
	__u32 octet = ((const __u8 *)&address)[1];

	/* A fast filter: most addresses have the second byte of no ring. */
	if (!(config.ring_octets[octet / 32] & 1u << octet % 32))
		return RING_NONE;
	for (int index = 0; index < NICEKV_VRINGS_MAX; index++) {
		const volatile struct nicekv_vring_pair *pair = &config.vrings[index];

		if (index >= config.vring_count)
			break;
		if ((address & pair->unicast_mask) == pair->unicast_network)
			return 2 * index + RING_UNICAST;
		if ((address & pair->multicast_mask) == pair->multicast_network)
			return 2 * index + RING_MULTICAST;
	}
	return (address & config.group_mask) == config.group_network ? RING_GROUP : RING_NONE;
}

static __always_inline bool is_multicast(__u32 ring)
{
	return !(ring & RING_UNICAST);
}

static __always_inline bool is_ours(const struct nicekv_header *header)
{
	return header && header->magic == bpf_htons(NICEKV_MAGIC) && header->version == NICEKV_VERSION;
}

/* Parses the header of the store, if it is whole, including the room that it announces. `bytes`: of the datagram, from the cursor on. */
static __always_inline void find_header(struct cursor cursor, __u32 bytes, struct datagram *datagram)
{
	struct nicekv_header *header;

	if (bytes < sizeof(*header))
		return;
	header = take(&cursor, sizeof(*header));
	if (!is_ours(header))
		return;
	if (header->room == NICEKV_ROOM_CHAIN && bytes >= sizeof(*header) + sizeof(*datagram->room)) {
		datagram->room = take(&cursor, sizeof(*datagram->room));
		if (!datagram->room)
			return;
	} else if (header->room) {
		if (header->room != NICEKV_ROOM_STAMP || bytes < sizeof(*header) + sizeof(struct nicekv_stamp) ||
		    !take(&cursor, sizeof(struct nicekv_stamp)))
			return;
	}
	datagram->header = header;
}

/* The start of a chunk of a large value, and of a request for chunks. */
struct chunk {
	__be32 number;
	__be16 mask;
} __attribute__((packed));

/* The servers that a multicast is for. */
static __always_inline __u16 receivers_of(const struct frame *frame, const struct datagram *datagram)
{
	struct nicekv_header *header = datagram->header;
	struct chunk *chunk = (void *)(header + 1);

	if (!header || header->room || (header->opcode != NICEKV_OPCODE_CHUNK && header->opcode != NICEKV_OPCODE_READ_CHUNKS) ||
	    bpf_ntohs(datagram->udp->len) < sizeof(*datagram->udp) + sizeof(*header) + sizeof(*chunk) ||
	    (void *)(chunk + 1) > frame->end)
		return NICEKV_RECEIVERS_ALL;
	return bpf_ntohs(chunk->mask);
}

static __always_inline bool has_room_for_stamp(const struct datagram *datagram)
{
	return datagram->header && datagram->header->room == NICEKV_ROOM_STAMP;
}

/* The difference between a stamp and what it overwrites, as a 32-bit sum: a helper call takes longer than eight additions. */
static __always_inline __u32 stamp_difference(const __be32 *before, const __be32 *after)
{
	__u64 sum = 0;

#pragma unroll
	for (int word = 0; word < sizeof(struct nicekv_stamp) / sizeof(__be32); word++)
		sum += (__u64)(__u32)~before[word] + after[word];
	sum = (sum & 0xffffffff) + (sum >> 32);
	return (sum & 0xffffffff) + (sum >> 32);
}

static __always_inline int classify_arp(struct cursor cursor, struct datagram *datagram)
{
	struct arp_ipv4 *arp = take(&cursor, sizeof(*arp));
	__be32 sender, target;

	if (!arp)
		return NICEKV_COUNTER_MALFORMED;
	__builtin_memcpy(&sender, arp->sender, sizeof(sender));
	__builtin_memcpy(&target, arp->target, sizeof(target));
	datagram->sender = sender;
	return ring_of(sender) || ring_of(target) ? NICEKV_COUNTER_VRING_MISS : CLASS_OTHERS;
}

/* Inconsistent lengths are left to the receiver; the payload is what the frame has. */
static __always_inline void find_udp_of_others(const struct frame *frame, struct cursor cursor, struct iphdr *ip,
					       struct datagram *datagram)
{
	if (ip->protocol != IPPROTO_UDP || ip->frag_off & bpf_htons(IPV4_FRAGMENT_OFFSET_BITS) ||
	    ip->ihl * 4 < IPV4_HEADER_BYTES_MIN)
		return;
	cursor.at = (void *)ip + ip->ihl * 4;
	datagram->udp = take(&cursor, sizeof(*datagram->udp));
	if (!datagram->udp)
		return;
	datagram->is_fragment = frame->datagram_bytes || ip->frag_off & bpf_htons(IPV4_MORE_FRAGMENTS);
	find_header(cursor, ~0u, datagram);
}

static __always_inline int classify_ipv4(const struct frame *frame, struct cursor cursor, bool tagged,
					 struct datagram *datagram)
{
	struct iphdr *ip = take(&cursor, sizeof(*ip));
	__u32 header_bytes, total_bytes, udp_bytes;
	struct udphdr *udp;

	if (!ip)
		return NICEKV_COUNTER_MALFORMED;
	datagram->ip = ip;
	datagram->sender = ip->saddr;
	datagram->ring = ring_of(ip->daddr);
	if (!datagram->ring) {
		find_udp_of_others(frame, cursor, ip, datagram);
		return CLASS_OTHERS;
	}
	header_bytes = ip->ihl * 4;
	total_bytes = bpf_ntohs(ip->tot_len);
	if (ip->version != 4 || header_bytes < IPV4_HEADER_BYTES_MIN)
		return NICEKV_COUNTER_MALFORMED;
	if (tagged || frame->datagram_bytes || ip->frag_off & bpf_htons(IPV4_FRAGMENT_BITS))
		return NICEKV_COUNTER_VRING_REFUSED;
	if (ip->protocol != IPPROTO_UDP)
		return NICEKV_COUNTER_VRING_MISS;
	/* No VLAN tag. */
	if (total_bytes + sizeof(struct ethhdr) > frame->bytes || total_bytes < header_bytes + sizeof(*udp))
		return NICEKV_COUNTER_MALFORMED;
	cursor.at = (void *)ip + header_bytes;
	udp = take(&cursor, sizeof(*udp));
	if (!udp)
		return NICEKV_COUNTER_MALFORMED;
	udp_bytes = bpf_ntohs(udp->len);
	if (udp_bytes < sizeof(*udp) || udp_bytes > total_bytes - header_bytes)
		return NICEKV_COUNTER_MALFORMED;
	datagram->udp = udp;
	find_header(cursor, udp_bytes - sizeof(*udp), datagram);
	return CLASS_VRING;
}

/* Classifies the frame after its Ethernet header; fills `datagram` if it is for a vring. */
static __always_inline int classify(const struct frame *frame, struct ethhdr *ethernet, struct datagram *datagram)
{
	struct cursor cursor = { .at = ethernet + 1, .end = frame->end };
	__be16 ether_type = ethernet->h_proto;
	bool tagged = frame->tags > 0;

#pragma unroll
	for (int tags = 0; tags < NICEKV_VLAN_TAGS_MAX; tags++) {
		struct vlan_tag *tag;

		if (ether_type != bpf_htons(ETH_P_8021Q) && ether_type != bpf_htons(ETH_P_8021AD))
			break;
		if (tags + frame->tags >= NICEKV_VLAN_TAGS_MAX)
			break;
		tag = take(&cursor, sizeof(*tag));
		if (!tag)
			return NICEKV_COUNTER_MALFORMED;
		ether_type = tag->ether_type;
		tagged = true;
	}
	datagram->ethernet = ethernet;
	if (ether_type == bpf_htons(ETH_P_ARP))
		return classify_arp(cursor, datagram);
	if (ether_type == bpf_htons(ETH_P_IP))
		return classify_ipv4(frame, cursor, tagged, datagram);
	return CLASS_OTHERS;
}
