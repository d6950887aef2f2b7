/* The pipeline: all stages in their order, for both hooks. */
#pragma once

#include "admission.h"
#include "decision.h"
#include "faults.h"
#include "forwarding.h"
#include "hot.h"
#include "parsing.h"
#include "routing.h"

/* The stages that a frame has passed. */
enum turn {
	TURN_XDP,
	TURN_TC,
	/* At tc also a GSO batch of datagrams with the same receivers. */
	TURN_TRAIN,
	/* The rest of a scan after a piece was sent. */
	TURN_REST,
};

/*
 * Whether the frame may be a scan that has to be cut or whose mark has to be cleared, or a chunk that the port's queue has merged into a GRO
 * batch again after it was segmented before the cable.
 */
static __always_inline bool is_for_tc(const struct frame *frame, const struct datagram *datagram)
{
	struct nicekv_scan *scan = (void *)(datagram->header + 1);

	if (config.cutter_near && is_multicast(datagram->ring) && datagram->header &&
	    datagram->header->opcode == NICEKV_OPCODE_CHUNK)
		return !has_faults();
	if (is_multicast(datagram->ring) || !datagram->header || datagram->header->opcode != NICEKV_OPCODE_SCAN)
		return false;
	if (datagram->room)
		scan = (void *)(datagram->room + 1);
	return (void *)(scan + 1) <= frame->end && (scan->pieces > 1 || scan->is_cut);
}

static __always_inline enum fate fate_of(const struct frame *frame, struct datagram *datagram,
					 struct decision *decision, enum turn turn)
{
	struct nicekv_place *place = place_of(frame->ifindex);
	struct ethhdr *ethernet = ethernet_of(frame);
	struct ingress ingress;
	int class, refused;
	bool is_hot;

	if (!place || (turn != TURN_REST && is_lost_from(fault_at(frame->ifindex))) || !find_ingress(place, &ingress))
		return FATE_DROP;
	if (!ethernet) {
		count(NICEKV_COUNTER_MALFORMED);
		return FATE_DROP;
	}
	decision->slot = ingress.slot;
	decision->port = ingress.port;
	decision->by_trunk = ingress.host->kind == NICEKV_PORT_TRUNK;
	if (turn == TURN_REST)
		return classify(frame, ethernet, datagram) == CLASS_VRING ? route(ingress.slot, datagram, decision) : FATE_DROP;
	if (!is_mac_of_port(&ingress, ethernet))
		return refuse(&ingress, NICEKV_COUNTER_SOURCE_REFUSED);
	learn(ethernet, ingress.port);
	class = classify(frame, ethernet, datagram);
	if (class >= 0) {
		count(class);
		return FATE_DROP;
	}
	refused = class == CLASS_VRING ? admit_to_vring(&ingress, datagram) : admit_others(&ingress, datagram);
	if (refused >= 0)
		return refuse(&ingress, refused);
	if (class == CLASS_VRING && is_said(datagram->header))
		return hear(frame, ingress.host, datagram, decision);
	if (turn == TURN_XDP && class == CLASS_VRING && is_for_tc(frame, datagram))
		return FATE_UP;
	decision->doubled = is_doubled(fault_at(frame->ifindex));
	if (class == CLASS_OTHERS)
		return forward(ethernet, ingress.port, decision);
	is_hot = note_hot(datagram);
	decision->fate = route(ingress.slot, datagram, decision);
	if (is_hot && (decision->fate == FATE_ROUTE || decision->fate == FATE_COPY))
		warm(decision, false);
	return decision->fate;
}

/* Fills `datagram` if the frame is for a vring. Its pointers are valid until the frame is changed. */
static __always_inline void decide(const struct frame *frame, struct datagram *datagram, enum turn turn,
				   struct decision *decision)
{
	__builtin_memset(decision, 0, sizeof(*decision));
	decision->fate = fate_of(frame, datagram, decision, turn);
	if (decision->fate == FATE_ROUTE || decision->fate == FATE_COPY || decision->fate == FATE_ANSWER ||
	    decision->fate == FATE_KEEP) {
		decision->udp_at = (void *)datagram->udp - (void *)datagram->ethernet;
		decision->destination = datagram->ip->daddr;
	}
	if (decision->fate == FATE_COPY && !decision->by_port)
		decision->receivers = receivers_of(frame, datagram);
}
