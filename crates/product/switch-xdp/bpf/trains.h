/*
 * Trains at tc: datagrams of one destination and length under one header, as a sender's kernel leaves them whole, or a port's queue has merged them.
 *
 * - Chunks of one large value, whose headers and masks are alike: they have the same receivers, so they are routed as they are, and copies share their bytes.
 * - All others for a vring or a server, of which the first header says nothing of the rest, go through the cutter: a cable of the switch with itself whose
 *   near end carries no trains. Its datagrams come out of the far end one by one, and are what the port that is their mark has received.
 *
 * Where there is no cutter these are dropped and counted.
 */
#pragma once

#include "admission.h"

/* As many has a train at most (UDP_MAX_SEGMENTS), or fewer. */
#define TRAIN_DATAGRAMS_MAX 128

/* What datagrams of a train that is routed whole have alike, but for number and length. */
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
	/* The last datagram of a train may be shorter. */
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

/* Whether all datagrams, from `at` on, are chunks with one head. */
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
	/* A datagram, or others' traffic. */
	TRAIN_NONE,
	TRAIN_ALIKE,
	TRAIN_MIXED,
};

/* What a frame is that the kernel would cut apart. Only what has neither tags nor options is looked at. */
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

/* Where it was received. */
static __always_inline __u32 ingress_of(const struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex, mark = skb->mark;

	/* Both are read: of a choice between two fields the compiler would make one between two pointers, which the verifier refuses. */
	asm volatile("" : "+r"(ifindex), "+r"(mark));
	return config.cutter_far && ifindex == config.cutter_far ? mark : ifindex;
}

/* Whether a train can be cut apart here. What the cutter itself leaves whole never comes to an end there. */
static __always_inline bool can_cut(const struct __sk_buff *skb)
{
	return config.cutter_near && skb->ifindex != config.cutter_far;
}

static __always_inline int cut(struct __sk_buff *skb)
{
	skb->mark = skb->ifindex;
	return bpf_redirect(config.cutter_near, 0);
}
