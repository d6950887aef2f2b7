/* The stages in their order, for both hooks. */
#pragma once

#include "admission.h"
#include "decision.h"
#include "faults.h"
#include "forwarding.h"
#include "parsing.h"
#include "routing.h"

static __always_inline enum fate fate_of(const struct frame *frame, struct datagram *datagram,
					 struct decision *decision)
{
	struct nicekv_place *place = place_of(frame->ifindex);
	struct ethhdr *ethernet = ethernet_of(frame);
	struct ingress ingress;
	int class, refused;

	if (!place || is_lost_from(fault_at(frame->ifindex)) || !find_ingress(place, &ingress))
		return FATE_DROP;
	if (!ethernet) {
		count(NICEKV_COUNTER_MALFORMED);
		return FATE_DROP;
	}
	decision->slot = ingress.slot;
	decision->port = ingress.port;
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
	decision->doubled = is_doubled(fault_at(frame->ifindex));
	if (class == CLASS_OTHERS)
		return forward(ethernet, ingress.port, decision);
	return route(ingress.slot, datagram, decision);
}

/* Fills `datagram` if the frame is for a vring. Its pointers hold until the frame is changed. */
static __always_inline struct decision decide(const struct frame *frame, struct datagram *datagram)
{
	struct decision decision = {};

	decision.fate = fate_of(frame, datagram, &decision);
	if (decision.fate == FATE_ROUTE || decision.fate == FATE_COPY) {
		decision.udp_at = (void *)datagram->udp - (void *)datagram->ethernet;
		decision.destination = datagram->ip->daddr;
	}
	return decision;
}
