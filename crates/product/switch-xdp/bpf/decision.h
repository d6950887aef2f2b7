/* The forwarding decision for a frame. The stages make it; xdp.h and tc.h carry it out, each for its hook. */
#pragma once

#include <stdbool.h>

#include "maps.h"

enum fate {
	FATE_DROP,
	/* Rewritten, to one port. */
	FATE_ROUTE,
	/* To the ports of a group except the ingress port; every copy rewritten, except those to trunks. */
	FATE_COPY,
	/* Unchanged, to one port: other traffic, and datagrams for a vring that leave by a trunk. */
	FATE_FORWARD,
	/* Unchanged, to all ports except the ingress port. */
	FATE_FLOOD,
	/* At XDP, which cannot make copies: pass the frame to the tc program of the same port. */
	FATE_UP,
	/* A message to the switch, turned into its reply, to the ingress port. */
	FATE_ANSWER,
	/* A value offered by a node: stored or ignored, and consumed. */
	FATE_KEEP,
	/* The stored reply (H9), to the port that the get came by. */
	FATE_REPLY,
};

/* `target`: a port or the group; for FATE_KEEP the id of the host that offers the value. `address`, `mac`: the server of FATE_ROUTE. `stamp`: written or replied. */
struct receiver {
	__be64 stamp[2];
	__u32 target;
	__be32 address;
	__u8 mac[6];
	__u8 reserved[2];
};

/*
 * `slot`: of the generation that decided. `doubled`: an injected fault. FATE_ROUTE, FATE_COPY, FATE_ANSWER and FATE_KEEP also have the offset of
 * the UDP header, and the address that the datagram was sent to.
 */
struct decision {
	enum fate fate;
	__u32 slot;
	__u32 port;
	struct receiver to;
	bool doubled;
	__u32 udp_at;
	__be32 destination;
	/* FATE_COPY: the servers that get copies; or, with `by_port`, the ports of the group that copies leave by, for storage targets. */
	__u16 receivers;
	bool by_port;
	/* FATE_ROUTE along a chain: `chain_header` is written into the request, which has room. */
	bool has_room;
	/* FATE_ROUTE and FATE_COPY: the stamp is written into the request, which has room, for servers. */
	bool has_stamp;
	/* A scan that a record has matched; `border` is the record's last value, upper and lower half. `is_roomy`: room precedes the rest of the scan. */
	bool is_scan;
	bool is_roomy;
	/* FATE_ROUTE: a get of a key with a stored value; not counted yet. */
	bool is_asked;
	/* FATE_ANSWER: the opcode of the reply. */
	__u8 answer;
	/* FATE_KEEP: length of the datagram's payload. */
	__u16 payload_bytes;
	/* It came by a trunk: it has passed another switch. */
	bool by_trunk;
	__u64 border[2];
};
