/* What is to become of a frame. The stages say it; xdp.h and tc.h carry it out, each in the way of its hook. */
#pragma once

#include <stdbool.h>

#include "maps.h"

enum fate {
	FATE_DROP,
	/* Rewritten, to one port. */
	FATE_ROUTE,
	/* Each copy rewritten, but those to trunks, to the ports of a group but the one that it came by. */
	FATE_COPY,
	/* As it is, to one port; others' traffic, and what is for a vring behind a trunk. */
	FATE_FORWARD,
	/* As it is, to all ports but the one that it came by. */
	FATE_FLOOD,
};

/*
 * `slot`: of the generation that has decided. `target`: a port, or the group. `address`, `mac`: of the server that FATE_ROUTE leads to.
 * `doubled`: a fault. Of FATE_ROUTE and FATE_COPY also where the UDP header is, and to which address the datagram was sent.
 */
struct decision {
	enum fate fate;
	__u32 slot;
	__u32 port;
	__u32 target;
	__be32 address;
	__u8 mac[6];
	bool doubled;
	__u32 udp_at;
	__be32 destination;
	/* Of FATE_ROUTE along a chain: the request has room, into which `chain_header` is written. */
	bool has_room;
};
