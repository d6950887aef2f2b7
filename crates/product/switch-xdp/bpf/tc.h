/*
 * Carries out a decision at the tc ingress of a port, where a frame is still a socket buffer: nothing is converted, and TCP keeps its
 * segmentation and checksum offloads.
 *
 * - A frame for the far end of a virtual cable is delivered at once (bpf_redirect_peer), bypassing the receiver's queue. Other ports, including
 *   trunks, transmit it. So do all ports for segments of a GSO batch: the receiver's queue (NAPI with GRO) merges them again. Segments are
 *   recognised by their payload, which is in pages; a datagram that was sent alone is in one piece.
 * - Copies share the payload with the frame that they are cloned from: headers are written before each clone.
 * - A checksum may be still to be computed (CHECKSUM_PARTIAL). Only the helpers know, so they do the writing. They also leave the headers of frames
 *   alone that are not rewritten: TCP's are shared with its retransmission queue.
 */
#pragma once

#include <linux/pkt_cls.h>

#include "decision.h"
#include "faults.h"
#include "hot.h"
#include "parsing.h"
#include "trains.h"

/* All headers that may be read. */
#define HEADER_BYTES_MAX                                                                                               \
	(sizeof(struct ethhdr) + NICEKV_VLAN_TAGS_MAX * sizeof(struct vlan_tag) + IPV4_HEADER_BYTES_MAX +              \
	 sizeof(struct udphdr) + sizeof(struct nicekv_header) + sizeof(struct nicekv_chain_header))
/* Datagrams for a vring have no VLAN tag. */
#define IPV4_AT sizeof(struct ethhdr)

/*
 * Whether the headers to read are in the linear part, where programs can read them. For TCP nothing after the IP header is read, and for IPv6
 * nothing at all; pulling in more would copy the header of each frame.
 */
static __always_inline bool is_readable(const struct __sk_buff *skb)
{
	struct ethhdr *ethernet = (void *)(long)skb->data;
	struct iphdr *ip = (void *)(ethernet + 1);
	__u32 bytes = skb->data_end - skb->data;

	if (bytes >= skb->len || bytes >= HEADER_BYTES_MAX)
		return true;
	if ((void *)(ip + 1) > (void *)(long)skb->data_end)
		return false;
	return ethernet->h_proto == bpf_htons(ETH_P_IPV6) ||
	       (ethernet->h_proto == bpf_htons(ETH_P_IP) && ip->protocol == IPPROTO_TCP);
}

/* Makes the headers readable. Returns whether data had to be pulled in; a datagram that was sent alone is in one piece. */
static __always_inline bool tc_pull_headers(struct __sk_buff *skb)
{
	if (is_readable(skb))
		return false;
	bpf_skb_pull_data(skb, skb->len < HEADER_BYTES_MAX ? skb->len : HEADER_BYTES_MAX);
	return true;
}

/*
 * The pipeline. Functions that are not static are verified once, by themselves, for any arguments, and not again for each path of their callers:
 * there are too many combinations of paths.
 */
__noinline int tc_decide(struct __sk_buff *skb, struct decision *decision, enum turn turn)
{
	struct frame frame = {
		.data = (void *)(long)skb->data,
		.end = (void *)(long)skb->data_end,
		.bytes = skb->len,
		.ifindex = ingress_of(skb),
		/* The kernel has removed the outermost tag. */
		.tags = skb->vlan_present,
		.datagram_bytes = turn == TURN_TRAIN ? 0 : skb->gso_size,
	};
	struct datagram datagram = {};

	if (decision)
		decide(&frame, &datagram, turn, decision);
	return 0;
}

/* `addresses`: both MAC addresses. */
static __always_inline void tc_readdress(struct __sk_buff *skb, __u32 udp_at, __be32 from, const void *addresses, __be32 to)
{
	bpf_skb_store_bytes(skb, 0, addresses, 2 * ETH_ALEN, 0);
	bpf_l3_csum_replace(skb, IPV4_AT + offsetof(struct iphdr, check), from, to, sizeof(to));
	bpf_l4_csum_replace(skb, udp_at + offsetof(struct udphdr, check), from, to,
			    BPF_F_PSEUDO_HDR | BPF_F_MARK_MANGLED_0 | sizeof(to));
	bpf_skb_store_bytes(skb, IPV4_AT + offsetof(struct iphdr, daddr), &to, sizeof(to), 0);
}

static __always_inline void tc_rewrite(struct __sk_buff *skb, __u32 udp_at, __be32 from, const __u8 *mac, __be32 to)
{
	struct ethhdr ethernet = {};

	__builtin_memcpy(ethernet.h_dest, mac, ETH_ALEN);
	for (int index = 0; index < ETH_ALEN; index++)
		ethernet.h_source[index] = config.router_mac[index];
	tc_readdress(skb, udp_at, from, &ethernet, to);
}

/* Adds the sum of a difference to the checksum. */
static __always_inline void tc_sum(struct __sk_buff *skb, __u32 udp_at, void *before, void *after, __u32 bytes)
{
	__s64 sum = bpf_csum_diff(before, bytes, after, bytes, 0);

	bpf_l4_csum_replace(skb, udp_at + offsetof(struct udphdr, check), 0, sum, BPF_F_MARK_MANGLED_0);
}

/* Writes the stamp into the room of a request, if it has one; only once. */
__noinline int tc_write_stamp(struct __sk_buff *skb, struct decision *decision)
{
	struct nicekv_stamp room, stamp;
	__u32 at;

	if (!decision || !decision->has_stamp)
		return 0;
	decision->has_stamp = false;
	at = decision->udp_at + sizeof(struct udphdr) + sizeof(struct nicekv_header);
	if (bpf_skb_load_bytes(skb, at, &room, sizeof(room)))
		return 0;
	stamp.instance = decision->to.stamp[0];
	stamp.seen = decision->to.stamp[1];
	bpf_l4_csum_replace(skb, decision->udp_at + offsetof(struct udphdr, check), 0,
			    stamp_difference((void *)&room, (void *)&stamp), BPF_F_MARK_MANGLED_0);
	bpf_skb_store_bytes(skb, at, &stamp, sizeof(stamp), 0);
	return 0;
}

/* Rewrites the destination port to that of the storage targets; copies made later have it already. */
__noinline int tc_write_port(struct __sk_buff *skb, __u32 udp_at)
{
	__u32 at = udp_at + offsetof(struct udphdr, dest);
	__be16 before, port = config.target_port;

	if (bpf_skb_load_bytes(skb, at, &before, sizeof(before)) || before == port)
		return 0;
	bpf_l4_csum_replace(skb, udp_at + offsetof(struct udphdr, check), before, port, BPF_F_MARK_MANGLED_0 | sizeof(port));
	bpf_skb_store_bytes(skb, at, &port, sizeof(port), 0);
	return 0;
}

/* Headers that are written before the first copy for a server. */
static __always_inline void tc_write_for_servers(struct __sk_buff *skb, struct decision *decision)
{
	if (decision->by_port)
		tc_write_port(skb, decision->udp_at);
	tc_write_stamp(skb, decision);
}

/* Turns a message to the switch into its reply, addressed to its sender: the terms of the checksums only change places. */
__noinline int tc_write_answer(struct __sk_buff *skb, struct decision *decision)
{
	__u32 before, after;
	struct ethhdr ethernet;
	__be32 addresses[2];
	__be16 ports[2];

	if (!decision || bpf_skb_load_bytes(skb, 0, &ethernet, sizeof(ethernet)) ||
	    bpf_skb_load_bytes(skb, IPV4_AT + offsetof(struct iphdr, saddr), addresses, sizeof(addresses)) ||
	    bpf_skb_load_bytes(skb, decision->udp_at, ports, sizeof(ports)) ||
	    bpf_skb_load_bytes(skb, decision->udp_at + sizeof(struct udphdr), &before, sizeof(before)))
		return 0;
	after = before;
	((__u8 *)&after)[offsetof(struct nicekv_header, opcode)] = decision->answer;
	tc_sum(skb, decision->udp_at, &before, &after, sizeof(after));
	bpf_skb_store_bytes(skb, decision->udp_at + sizeof(struct udphdr), &after, sizeof(after), 0);
	__builtin_memcpy(ethernet.h_dest, ethernet.h_source, ETH_ALEN);
	for (int index = 0; index < ETH_ALEN; index++)
		ethernet.h_source[index] = config.router_mac[index];
	bpf_skb_store_bytes(skb, 0, &ethernet, sizeof(ethernet), 0);
	bpf_skb_store_bytes(skb, IPV4_AT + offsetof(struct iphdr, saddr), &addresses[1], sizeof(addresses[1]), 0);
	bpf_skb_store_bytes(skb, IPV4_AT + offsetof(struct iphdr, daddr), &addresses[0], sizeof(addresses[0]), 0);
	bpf_skb_store_bytes(skb, decision->udp_at, &ports[1], sizeof(ports[1]), 0);
	bpf_skb_store_bytes(skb, decision->udp_at + sizeof(ports[0]), &ports[0], sizeof(ports[0]), 0);
	/* The body is where room would be. */
	decision->has_stamp = true;
	return tc_write_stamp(skb, decision);
}

__noinline int tc_keep(struct __sk_buff *skb, const struct decision *decision)
{
	keep_value(skb, true, decision);
	return 0;
}

__noinline int tc_answers(struct __sk_buff *skb)
{
	return has_reply(skb, true, skb->len);
}

/* Turns the get into the stored reply, in the same buffer. The checksum helper is told the length twice: in the UDP header and in the pseudo-header. */
__noinline int tc_reply(struct __sk_buff *skb)
{
	__u32 check_at = UDP_PAYLOAD_AT - sizeof(struct udphdr) + offsetof(struct udphdr, check), bytes, reply_bytes;
	struct hot_scratch *s = hot_scratch_of_cpu();
	__be16 before, length;

	if (!s)
		return 0;
	bytes = load_bounded(&s->bytes);
	reply_bytes = load_bounded(&s->reply_bytes);
	if (bytes < sizeof(struct nicekv_header) || bytes > NICEKV_DATAGRAM_BYTES_MAX || reply_bytes > bytes)
		return 0;
	turn_headers(s);
	before = s->udp.len;
	length = bpf_htons(reply_bytes + sizeof(struct udphdr));
	if (bpf_skb_store_bytes(skb, UDP_PAYLOAD_AT, s->reply, bytes, 0))
		return 0;
	bpf_l4_csum_replace(skb, check_at, 0, s->difference, BPF_F_MARK_MANGLED_0);
	bpf_l4_csum_replace(skb, check_at, before, length, BPF_F_MARK_MANGLED_0 | sizeof(length));
	bpf_l4_csum_replace(skb, check_at, before, length, BPF_F_PSEUDO_HDR | BPF_F_MARK_MANGLED_0 | sizeof(length));
	s->udp.len = length;
	/* Everything but the checksum. */
	bpf_skb_store_bytes(skb, 0, &s->ethernet, UDP_PAYLOAD_AT - sizeof(s->udp.check), 0);
	return !bpf_skb_change_tail(skb, UDP_PAYLOAD_AT + reply_bytes, 0);
}

/* Writes into the room of a request, and adds the sum of the difference to the checksum. */
__noinline int tc_write_chain(struct __sk_buff *skb, __u32 udp_at)
{
	struct nicekv_chain_header *header = bpf_map_lookup_elem(&chain_header, &(__u32){ 0 });
	__u32 at = udp_at + sizeof(struct udphdr) + sizeof(struct nicekv_header);
	struct nicekv_chain_header room;

	if (!header || bpf_skb_load_bytes(skb, at, &room, sizeof(room)))
		return 0;
	tc_sum(skb, udp_at, &room, header, sizeof(room));
	bpf_skb_store_bytes(skb, at, header, sizeof(*header), 0);
	return 0;
}

/* The interface of a port to send a frame to, unless a fault drops it. */
static __always_inline struct nicekv_cable *cable_to(__u32 port)
{
	struct nicekv_cable *cable = bpf_map_lookup_elem(&cables, &port);

	return cable && cable->ifindex && !is_lost_to(fault_at(cable->ifindex)) ? cable : NULL;
}

/* Sends a copy of the frame as it is now. */
__noinline int tc_send_copy(struct __sk_buff *skb, __u32 port)
{
	struct nicekv_cable *cable = cable_to(port);

	return cable ? bpf_clone_redirect(skb, cable->ifindex, 0) : 0;
}

/* Rewrites the frame for a server; for a trunk it stays unchanged. `from`: its current destination address. */
static __always_inline void tc_address(struct __sk_buff *skb, const struct nicekv_host *receiver, __u32 udp_at, __be32 from)
{
	count(NICEKV_COUNTER_MULTICAST_COPIES);
	if (receiver->kind == NICEKV_PORT_HOST)
		tc_rewrite(skb, udp_at, from, receiver->mac, receiver->address);
}

/* Sends a copy of the frame to its receiver. */
__noinline int tc_address_copy(struct __sk_buff *skb, __u32 port, const struct nicekv_host *receiver, __u32 udp_at, __be32 from)
{
	if (!receiver)
		return 0;
	tc_address(skb, receiver, udp_at, from);
	return tc_send_copy(skb, port);
}

/* Sends the frame itself; the program must end. */
static __always_inline int tc_send(struct __sk_buff *skb, __u32 port, const struct decision *decision, bool is_piece)
{
	struct nicekv_cable *cable;

	if (decision->doubled)
		tc_send_copy(skb, port);
	cable = cable_to(port);
	if (!cable)
		return TC_ACT_SHOT;
	return cable->has_peer && !is_piece ? bpf_redirect_peer(cable->ifindex, 0) : bpf_redirect(cable->ifindex, 0);
}

/* Whether a copy leaves by the port at this position of the group's list. */
__noinline int tc_is_meant(const struct decision *decision, const struct nicekv_host *host, __u32 at)
{
	if (!decision || !host)
		return 0;
	return decision->by_port ? decision->receivers >> at % 16 & 1 : is_meant(host, decision->receivers);
}

/*
 * A copy is sent when the next receiver is known, so that the last receiver gets the frame itself. Trunks come first, while the frame is unchanged;
 * it is stamped before the first server.
 */
static __always_inline int tc_copy(struct __sk_buff *skb, struct decision *decision, bool is_piece)
{
	struct nicekv_group *group = bpf_map_lookup_elem(&members, &decision->to.target);
	const struct nicekv_host *receiver = NULL;
	__be32 from = decision->destination;
	__u32 port = 0;

#pragma clang loop unroll(disable)
	for (__u32 index = 0; group && index < NICEKV_GROUP_MEMBERS_MAX && index < group->count; index++) {
		__u32 next = group->ports[index];
		const struct nicekv_host *host = receiver_at(decision->slot, next);

		if (!host || next == decision->port || !tc_is_meant(decision, host, index))
			continue;
		if (receiver) {
			if (receiver->kind == NICEKV_PORT_HOST)
				tc_write_for_servers(skb, decision);
			tc_address_copy(skb, port, receiver, decision->udp_at, from);
			if (decision->doubled)
				tc_send_copy(skb, port);
			if (receiver->kind == NICEKV_PORT_HOST)
				from = receiver->address;
		}
		receiver = host;
		port = next;
	}
	if (!receiver)
		return TC_ACT_SHOT;
	if (receiver->kind == NICEKV_PORT_HOST)
		tc_write_for_servers(skb, decision);
	tc_address(skb, receiver, decision->udp_at, from);
	return tc_send(skb, port, decision, is_piece);
}

/* Through the port's queue and not at once, so that the receiver's kernel checks the destination. */
static __always_inline int tc_flood(struct __sk_buff *skb, __u32 ingress)
{
#pragma clang loop unroll(disable)
	for (__u32 port = 0; port < NICEKV_PORTS_MAX && port < config.port_count; port++)
		if (port != ingress)
			tc_send_copy(skb, port);
	return TC_ACT_SHOT;
}

static __always_inline int tc_carry_out(struct __sk_buff *skb, struct decision *decision, bool is_piece)
{
	switch (decision->fate) {
	case FATE_ROUTE:
		tc_rewrite(skb, decision->udp_at, decision->destination, decision->to.mac, decision->to.address);
		if (decision->has_room)
			tc_write_chain(skb, decision->udp_at);
		tc_write_stamp(skb, decision);
		return tc_send(skb, decision->to.target, decision, is_piece);
	case FATE_COPY:
		return tc_copy(skb, decision, is_piece);
	case FATE_FORWARD:
		return tc_send(skb, decision->to.target, decision, is_piece);
	case FATE_ANSWER:
		tc_write_answer(skb, decision);
		return tc_send(skb, decision->to.target, decision, is_piece);
	case FATE_KEEP:
		tc_keep(skb, decision);
		return TC_ACT_SHOT;
	case FATE_REPLY:
		return tc_reply(skb) ? tc_send(skb, decision->port, decision, is_piece) : TC_ACT_SHOT;
	case FATE_FLOOD:
		return tc_flood(skb, decision->port);
	default:
		return TC_ACT_SHOT;
	}
}
