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
	/* At XDP, which makes no copies: up to the program at tc of the same port. */
	FATE_UP,
	/* What was said to the switch, turned round, by the port that it came by. */
	FATE_ANSWER,
	/* A value that a node offers: kept, or not, and gone. */
	FATE_KEEP,
	/* The reply that the switch has ready (H9), by the port that the get came by. */
	FATE_REPLY,
};

/* `target`: a port, or the group; of FATE_KEEP the name of the host that offers it. `address`, `mac`: of the server that FATE_ROUTE leads to. `stamp`: what it is shown, or answered. */
struct receiver {
	__be64 stamp[2];
	__u32 target;
	__be32 address;
	__u8 mac[6];
	__u8 reserved[2];
};

/*
 * `slot`: of the generation that has decided. `doubled`: a fault. Of FATE_ROUTE, FATE_COPY, FATE_ANSWER and FATE_KEEP also where the UDP header is, and to which address the datagram was sent.
 */
struct decision {
	enum fate fate;
	__u32 slot;
	__u32 port;
	struct receiver to;
	bool doubled;
	__u32 udp_at;
	__be32 destination;
	/* Of FATE_COPY: which servers get copies; or, `by_port`, by which of the group's ports they leave, and the receivers are targets. */
	__u16 receivers;
	bool by_port;
	/* Of FATE_ROUTE along a chain: the request has room, into which `chain_header` is written. */
	bool has_room;
	/* Of FATE_ROUTE and FATE_COPY: the request has room, into which the stamp is written for servers. */
	bool has_stamp;
	/* A scan that a record has matched, whose last value is `border`, upper and lower half. `is_roomy`: room is between the header and the rest of it. */
	bool is_scan;
	bool is_roomy;
	/* Of FATE_ROUTE: a get of a key that has a value here. Nothing is counted of it yet. */
	bool is_asked;
	/* Of FATE_ANSWER: the opcode of the answer. */
	__u8 answer;
	/* Of FATE_KEEP: bytes of the datagram's payload. */
	__u16 payload_bytes;
	/* It has come by a trunk: another switch has seen it. */
	bool by_trunk;
	__u64 border[2];
};
