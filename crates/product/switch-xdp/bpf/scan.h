/*
 * Splits scans that span several records at the records' borders (TurboKV's Algorithm 1). Step for step the reference model's scan_split.rs, which
 * states the rules. Recirculation is a loop here: the frame is cut, a copy of it sent, and the rest written over it.
 */
#pragma once

#include "tc.h"

/* The part of a scan that is written: from `wants` on, a multiple of four bytes, at an even offset. */
#define SCAN_WRITTEN_AT offsetof(struct nicekv_scan, wants)
#define SCAN_WRITTEN_BYTES (sizeof(struct nicekv_scan) - SCAN_WRITTEN_AT)
_Static_assert(SCAN_WRITTEN_AT % 2 == 0 && SCAN_WRITTEN_BYTES % 4 == 0, "sums go by words");

/* A scan being split. `at`: offset after header and room. `last`: of the original scan. `pieces`: that the rest may be split into. */
struct splitting {
	__u32 udp_at;
	__u32 at;
	__u64 last[2];
	__u32 pieces;
};

static __always_inline void half_values(const __u8 *bytes, __u64 *value)
{
	__be64 half;

	__builtin_memcpy(&half, bytes, sizeof(half));
	value[0] = bpf_be64_to_cpu(half);
	__builtin_memcpy(&half, bytes + sizeof(half), sizeof(half));
	value[1] = bpf_be64_to_cpu(half);
}

static __always_inline void put_value(__u8 *bytes, const __u64 *value)
{
	__be64 half = bpf_cpu_to_be64(value[0]);

	__builtin_memcpy(bytes, &half, sizeof(half));
	half = bpf_cpu_to_be64(value[1]);
	__builtin_memcpy(bytes + sizeof(half), &half, sizeof(half));
}

static __always_inline void tc_write_scan(struct __sk_buff *skb, const struct splitting *splitting,
					  struct nicekv_scan *before, struct nicekv_scan *after)
{
	void *from = (void *)before + SCAN_WRITTEN_AT, *to = (void *)after + SCAN_WRITTEN_AT;

	tc_sum(skb, splitting->udp_at, from, to, SCAN_WRITTEN_BYTES);
	bpf_skb_store_bytes(skb, splitting->at + SCAN_WRITTEN_AT, to, SCAN_WRITTEN_BYTES, 0);
}

static __always_inline bool is_same_value(const __u8 *one, const __u8 *other)
{
	__u64 values[2][2];

	half_values(one, values[0]);
	half_values(other, values[1]);
	return values[0][0] == values[1][0] && values[0][1] == values[1][1];
}

/* Parses a scan that has just come in; clears the mark that only switches may set. */
__noinline int tc_open_scan(struct __sk_buff *skb, const struct decision *decision, struct splitting *splitting)
{
	struct nicekv_scan scan, written;
	__be16 udp_bytes;
	__u8 digest[16];
	__u32 behind;

	if (!decision || !splitting)
		return 0;
	behind = sizeof(struct udphdr) + sizeof(struct nicekv_header);
	if (decision->is_roomy)
		behind += sizeof(struct nicekv_chain_header);
	splitting->udp_at = decision->udp_at;
	splitting->at = decision->udp_at + behind;
	if (bpf_skb_load_bytes(skb, decision->udp_at + offsetof(struct udphdr, len), &udp_bytes, sizeof(udp_bytes)) ||
	    bpf_ntohs(udp_bytes) < behind + sizeof(scan) || bpf_skb_load_bytes(skb, splitting->at, &scan, sizeof(scan)))
		return 0;
	if (scan.is_cut && !decision->by_trunk) {
		written = scan;
		written.is_cut = 0;
		tc_write_scan(skb, splitting, &scan, &written);
		scan.is_cut = 0;
	}
	behind = decision->udp_at + sizeof(struct udphdr) + offsetof(struct nicekv_header, digest);
	if (scan.is_cut || scan.pieces > NICEKV_SCAN_PIECES_MAX || bpf_skb_load_bytes(skb, behind, digest, sizeof(digest)) ||
	    !is_same_value(scan.first, digest))
		return 0;
	splitting->pieces = scan.pieces;
	half_values(scan.last, splitting->last);
	return 0;
}

/* Cuts it at the border, if it extends beyond it and may be split. */
__noinline int tc_cut(struct __sk_buff *skb, const struct decision *decision, struct splitting *splitting)
{
	struct nicekv_scan scan, cut;

	if (!decision || !splitting || splitting->pieces <= 1 || !decision->is_scan ||
	    is_up_to(splitting->last[0], splitting->last[1], decision->border) ||
	    bpf_skb_load_bytes(skb, splitting->at, &scan, sizeof(scan)))
		return 0;
	cut = scan;
	cut.is_cut = 1;
	put_value(cut.last, decision->border);
	tc_write_scan(skb, splitting, &scan, &cut);
	splitting->pieces -= 1;
	count(NICEKV_COUNTER_SCAN_SPLITS);
	return 1;
}

/* Sends a copy of the piece; afterwards the frame has its former addresses. */
__noinline int tc_send_piece(struct __sk_buff *skb, const struct decision *decision)
{
	__u8 addresses[2 * ETH_ALEN];
	__be32 to;

	if (!decision)
		return 0;
	if (decision->fate == FATE_FORWARD)
		return tc_send_copy(skb, decision->to.target);
	if (decision->fate != FATE_ROUTE || bpf_skb_load_bytes(skb, 0, addresses, sizeof(addresses)))
		return 0;
	to = decision->destination;
	tc_rewrite(skb, decision->udp_at, to, decision->to.mac, decision->to.address);
	if (decision->has_room)
		tc_write_chain(skb, decision->udp_at);
	tc_send_copy(skb, decision->to.target);
	tc_readdress(skb, decision->udp_at, decision->to.address, addresses, to);
	return 0;
}

/* Overwrites the piece with the rest: from the value after the border on. There is one, because the scan extends beyond it. */
__noinline int tc_write_rest(struct __sk_buff *skb, const struct decision *decision, const struct splitting *splitting)
{
	struct nicekv_scan scan, rest;
	__u64 first[2];
	__u32 at;

	if (!decision || !splitting || bpf_skb_load_bytes(skb, splitting->at, &scan, sizeof(scan)))
		return 0;
	first[1] = decision->border[1] + 1;
	first[0] = decision->border[0] + !first[1];
	rest = scan;
	put_value(rest.first, first);
	put_value(rest.last, splitting->last);
	tc_write_scan(skb, splitting, &scan, &rest);
	/* The value in the header is also the first one. */
	at = splitting->udp_at + sizeof(struct udphdr) + offsetof(struct nicekv_header, digest);
	tc_sum(skb, splitting->udp_at, scan.first, rest.first, sizeof(rest.first));
	bpf_skb_store_bytes(skb, at, rest.first, sizeof(rest.first), 0);
	return 0;
}

/* Sends a copy of each piece but the last, to which the decision then applies. */
static __always_inline void tc_split(struct __sk_buff *skb, struct decision *decision)
{
	struct splitting splitting = {};
	bool doubled = decision->doubled;

	tc_open_scan(skb, decision, &splitting);
#pragma clang loop unroll(disable)
	for (int piece = 0; piece < NICEKV_SCAN_PIECES_MAX; piece++) {
		if (!tc_cut(skb, decision, &splitting))
			break;
		tc_send_piece(skb, decision);
		tc_write_rest(skb, decision, &splitting);
		tc_decide(skb, decision, TURN_REST);
		decision->doubled = doubled;
	}
}
