/*
 * GSO and GRO batches at tc: datagrams of one destination and length under one header, as the sender's kernel leaves them, or as a port's queue has
 * merged them.
 *
 * - Chunks of one large value with equal headers and masks have the same receivers, so the batch is routed as a whole, and copies share its bytes.
 * - All other batches for a vring or a server, whose first header says nothing about the rest, go through the segmenter: a cable of the switch with
 *   itself whose near end does not support GSO. The datagrams come out of the far end one by one, and count as received by the port in their mark.
 *
 * Without a segmenter they are dropped and counted.
 */
#pragma once

#include "admission.h"

/* Upper bound of the datagrams in a batch (UDP_MAX_SEGMENTS). */
#define TRAIN_DATAGRAMS_MAX 128

/* The fields that all datagrams of a batch which is routed as a whole have in common, except number and length. */
struct chunk_head {
	struct nicekv_header header;
	struct chunk chunk;
	__u8 rest[2];
};

#define CHUNK_HEAD_BYTES (sizeof(struct nicekv_header) + sizeof(struct chunk))

_Static_assert(sizeof(struct chunk_head) % sizeof(__u64) == 0, "compared by words");

static __always_inline bool load_head(struct __sk_buff *skb, __u32 at, struct chunk_head *head)
{
	__builtin_memset(head, 0, sizeof(*head));
	if (bpf_skb_load_bytes(skb, at, head, CHUNK_HEAD_BYTES))
		return false;
	head->chunk.number = 0;
	/* The last datagram of a batch may be shorter. */
	head->header.body_length = 0;
	return true;
}

static __always_inline bool is_same_head(const struct chunk_head *one, const struct chunk_head *other)
{
	const __u64 *left = (const void *)one, *right = (const void *)other;
	__u64 difference = 0;

	for (int word = 0; word < sizeof(*one) / sizeof(__u64); word++)
		difference |= left[word] ^ right[word];
	return !difference;
}

/* Whether all datagrams, from `at` on, are chunks with the same head. */
__noinline int train_is_alike(struct __sk_buff *skb, __u32 at)
{
	__u32 bytes = skb->gso_size, length = skb->len;
	struct chunk_head first __attribute__((aligned(8))), other __attribute__((aligned(8)));

	if (!bytes || !load_head(skb, at, &first) || !is_ours(&first.header) || first.header.opcode != NICEKV_OPCODE_CHUNK ||
	    first.header.room)
		return 0;
#pragma clang loop unroll(disable)
	for (int datagram = 1; datagram < TRAIN_DATAGRAMS_MAX; datagram++) {
		at += bytes;
		if (at >= length)
			return 1;
		if (!load_head(skb, at, &other) || !is_same_head(&first, &other))
			return 0;
	}
	return 0;
}

enum train {
	/* A single datagram, or other traffic. */
	TRAIN_NONE,
	TRAIN_ALIKE,
	TRAIN_MIXED,
};

/* Whether the frame is a batch that the kernel would segment. Only frames without tags and options are looked at. */
static __always_inline enum train train_of(struct __sk_buff *skb)
{
	struct ethhdr *ethernet = (void *)(long)skb->data;
	struct iphdr *ip = (void *)(ethernet + 1);
	struct udphdr *udp = (void *)(ip + 1);
	struct nicekv_server *server;

	if (!skb->gso_size || (void *)(udp + 1) > (void *)(long)skb->data_end || ethernet->h_proto != bpf_htons(ETH_P_IP) ||
	    skb->vlan_present || ip->ihl * 4 != IPV4_HEADER_BYTES_MIN || ip->protocol != IPPROTO_UDP)
		return TRAIN_NONE;
	if (ring_of(ip->daddr))
		return train_is_alike(skb, sizeof(*ethernet) + sizeof(*ip) + sizeof(*udp)) ? TRAIN_ALIKE : TRAIN_MIXED;
	server = server_with_ip(generation_in_force() & 1, ip->daddr);
	return server && server->udp_port == udp->dest ? TRAIN_MIXED : TRAIN_NONE;
}

/* The port that received it. */
static __always_inline __u32 ingress_of(const struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex, mark = skb->mark;

	/* Both are read: for a choice between two fields the compiler would choose between two pointers, which the verifier refuses. */
	asm volatile("" : "+r"(ifindex), "+r"(mark));
	return config.cutter_far && ifindex == config.cutter_far ? mark : ifindex;
}

/* Whether a batch can be segmented here. A batch that comes out of the segmenter whole would loop. */
static __always_inline bool can_cut(const struct __sk_buff *skb)
{
	return config.cutter_near && skb->ifindex != config.cutter_far;
}

static __always_inline int cut(struct __sk_buff *skb)
{
	skb->mark = skb->ifindex;
	return bpf_redirect(config.cutter_near, 0);
}
