/* The rewrite action. */
#pragma once

#include "parsing.h"

/* RFC 1624, equation 3: HC' = ~(~HC + ~m + m'), over both halves of an address. */
static __always_inline __u16 updated_checksum(__u16 checksum, __be32 from, __be32 to)
{
	__u32 sum = (__u16)~checksum;

	sum += (__u16)~(from & 0xffff) + (__u16)~(from >> 16);
	sum += (to & 0xffff) + (to >> 16);
	/* Five 16-bit terms: two folds reach 16 bits. */
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* Fills the room of a request. The sum of what differs is added to the checksum, as above. */
static __always_inline void write_chain(struct datagram *datagram)
{
	struct nicekv_chain_header *header = bpf_map_lookup_elem(&chain_header, &(__u32){ 0 });
	struct nicekv_chain_header *room = datagram->room;
	struct udphdr *udp = datagram->udp;
	__u64 sum;

	if (!room || !header)
		return;
	if (udp->check != 0) {
		sum = bpf_csum_diff((__be32 *)room, sizeof(*room), (__be32 *)header, sizeof(*header), (__u16)~udp->check);
		sum = (sum & 0xffff) + ((__u32)sum >> 16);
		sum = (sum & 0xffff) + (sum >> 16);
		/* Of what is not all zeros the sum is not zero: only its complement is, which would read as "no checksum". */
		udp->check = (__u16)~sum ? (__u16)~sum : 0xffff;
	}
	__builtin_memcpy(room, header, sizeof(*room));
}

/* Sends the datagram on to a host, from the switch's own address. The TTL stays (packet.rs says why). */
static __always_inline void rewrite(struct datagram *datagram, const __u8 *mac, __be32 address)
{
	struct iphdr *ip = datagram->ip;
	struct udphdr *udp = datagram->udp;

	__builtin_memcpy(datagram->ethernet->h_dest, mac, ETH_ALEN);
	/* Byte by byte: a cast would lose `volatile`, and the compiler fold the zeros in before the loader sets it. */
	for (int index = 0; index < ETH_ALEN; index++)
		datagram->ethernet->h_source[index] = config.router_mac[index];
	ip->check = updated_checksum(ip->check, ip->daddr, address);
	if (udp->check) {
		udp->check = updated_checksum(udp->check, ip->daddr, address);
		/* Zero would read as "no checksum"; its other form in one's complement is all ones. */
		if (!udp->check)
			udp->check = 0xffff;
	}
	ip->daddr = address;
}
