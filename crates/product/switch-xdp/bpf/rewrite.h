/* The deparser: rewrites headers. Step for step the reference model's deparser.rs. */
#pragma once

#include "parsing.h"

/* RFC 1624, equation 3: HC' = ~(~HC + ~m + m'), over both halves of an address. */
static __always_inline __u16 updated_checksum(__u16 checksum, __be32 from, __be32 to)
{
	__u32 sum = (__u16)~checksum;

	sum += (__u16)~(from & 0xffff) + (__u16)~(from >> 16);
	sum += (to & 0xffff) + (to >> 16);
	/* Five 16-bit terms: two additions fold the sum to 16 bits. */
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* Sets the switch's own MAC as the source. */
static __always_inline void address_frame(struct ethhdr *ethernet, const __u8 *mac)
{
	__builtin_memcpy(ethernet->h_dest, mac, ETH_ALEN);
	/* Byte by byte: a cast would lose `volatile`, and the compiler would fold in the zeros that are there before the loader sets it. */
	for (int index = 0; index < ETH_ALEN; index++)
		ethernet->h_source[index] = config.router_mac[index];
}

/* Adds the sum of a difference to the checksum, as above. */
static __always_inline void add_sum(struct udphdr *udp, __u32 difference)
{
	__u64 sum = (__u64)difference + (__u16)~udp->check;

	if (!udp->check)
		return;
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	/* The sum of data that are not all zeros is not zero; its complement may be, and would mean "no checksum". */
	udp->check = (__u16)~sum ? (__u16)~sum : 0xffff;
}

/* Bytes to overwrite. */
static __always_inline void sum_up(struct udphdr *udp, void *before, void *after, __u32 bytes)
{
	if (udp->check)
		add_sum(udp, bpf_csum_diff(before, bytes, after, bytes, 0));
}

/* Writes a chain header into the room of a request. */
static __always_inline void write_chain(struct datagram *datagram)
{
	struct nicekv_chain_header *header = bpf_map_lookup_elem(&chain_header, &(__u32){ 0 });
	struct nicekv_chain_header *room = datagram->room;

	if (!room || !header)
		return;
	sum_up(datagram->udp, room, header, sizeof(*room));
	__builtin_memcpy(room, header, sizeof(*room));
}

/* Writes a stamp; the stamp of a reply is at the same place. */
static __always_inline void write_stamp(const struct frame *frame, struct datagram *datagram, __be64 *stamp)
{
	struct nicekv_stamp *room = (void *)(datagram->udp + 1) + sizeof(struct nicekv_header);

	if ((void *)(room + 1) > frame->end)
		return;
	add_sum(datagram->udp, stamp_difference((void *)room, (void *)stamp));
	__builtin_memcpy(room, stamp, sizeof(*room));
}

/* Turns a message to the switch into its reply, and swaps its ends: the terms of the checksums only change places. */
static __always_inline void write_answer(const struct frame *frame, struct datagram *datagram, __be64 *stamp,
					  __u8 opcode)
{
	struct nicekv_header *header = (void *)(datagram->udp + 1);
	struct ethhdr *ethernet = datagram->ethernet;
	__be32 sender = datagram->ip->saddr, before, after;
	__be16 port = datagram->udp->source;

	if ((void *)(header + 1) > frame->end)
		return;
	__builtin_memcpy(&before, header, sizeof(before));
	header->opcode = opcode;
	__builtin_memcpy(&after, header, sizeof(after));
	sum_up(datagram->udp, &before, &after, sizeof(before));
	write_stamp(frame, datagram, stamp);
	address_frame(ethernet, ethernet->h_source);
	datagram->ip->saddr = datagram->ip->daddr;
	datagram->ip->daddr = sender;
	datagram->udp->source = datagram->udp->dest;
	datagram->udp->dest = port;
}

/* Rewrites the datagram for a host, from the switch's own MAC. The TTL stays (deparser.rs says why). */
static __always_inline void rewrite(struct datagram *datagram, const __u8 *mac, __be32 address)
{
	struct iphdr *ip = datagram->ip;
	struct udphdr *udp = datagram->udp;

	address_frame(datagram->ethernet, mac);
	ip->check = updated_checksum(ip->check, ip->daddr, address);
	if (udp->check) {
		udp->check = updated_checksum(udp->check, ip->daddr, address);
		/* Zero means "no checksum"; the other representation of zero in one's complement is all ones. */
		if (!udp->check)
			udp->check = 0xffff;
	}
	ip->daddr = address;
}

/* Rewrites the destination port to that of the host's storage target. */
static __always_inline void rewrite_port(struct udphdr *udp)
{
	__be16 port = config.target_port;

	add_sum(udp, (__u16)~udp->dest + port);
	udp->dest = port;
}
