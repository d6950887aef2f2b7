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
