/*
 * The switch of NICEKV: the pipeline of the reference model (crate `dataplane`) as XDP programs.
 *
 *   frame -> nicekv_ingress --- not its sender's to send -> drop
 *                    |--------- others' traffic -> learned forwarding -> port(s)
 *                    |--------- unicast vring ---> rewrite ------------> port
 *                    `--------- multicast vring -> device map of the group -> nicekv_egress per copy -> ports
 *
 * Constants and shared structs are generated from src/layout.rs into layout.h.
 */
#include "admission.h"
#include "faults.h"
#include "forwarding.h"
#include "layout.h"
#include "maps.h"
#include "parsing.h"
#include "rewrite.h"
#include "routing.h"

SEC("xdp")
int nicekv_ingress(struct xdp_md *ctx)
{
	struct cursor cursor = { .at = (void *)(long)ctx->data, .end = (void *)(long)ctx->data_end };
	struct ethhdr *ethernet = take(&cursor, sizeof(*ethernet));
	struct nicekv_fault *fault = fault_at(ctx->ingress_ifindex);
	struct nicekv_place *place = place_of(ctx->ingress_ifindex);
	struct datagram datagram = {};
	struct ingress ingress;
	int class, refused;

	if (!place || is_lost_from(fault))
		return XDP_DROP;
	if (!ethernet) {
		count(NICEKV_COUNTER_MALFORMED);
		return XDP_DROP;
	}
	ingress = ingress_at(place);
	if (!is_mac_of_port(&ingress, ethernet))
		return refuse(&ingress, NICEKV_COUNTER_SOURCE_REFUSED);
	learn(ethernet, ingress.port);
	class = classify(ethernet, cursor.end, &datagram);
	if (class >= 0) {
		count(class);
		return XDP_DROP;
	}
	refused = class == CLASS_VRING ? admit_to_vring(&ingress, &datagram) : admit_others(&ingress, &datagram);
	if (refused >= 0)
		return refuse(&ingress, refused);
	if (class == CLASS_OTHERS)
		return forward(ethernet, ingress.port, is_doubled(fault));
	return route(ctx, ingress.slot, &datagram, is_doubled(fault));
}

/* Runs for each frame at the port that it leaves by. The copies of a multicast datagram, known by their metadata, are rewritten. */
SEC("xdp/devmap")
int nicekv_egress(struct xdp_md *ctx)
{
	struct cursor cursor = { .at = (void *)(long)ctx->data, .end = (void *)(long)ctx->data_end };
	struct nicekv_metadata *metadata = (void *)(long)ctx->data_meta;
	struct ethhdr *ethernet = take(&cursor, sizeof(*ethernet));
	struct nicekv_place *place = place_of(ctx->egress_ifindex);
	struct nicekv_host *host;
	struct datagram datagram = {};

	if (is_lost_to(fault_at(ctx->egress_ifindex)))
		return XDP_DROP;
	if (!ethernet || !place)
		goto drop;
	if ((void *)(metadata + 1) > (void *)ethernet)
		return XDP_PASS;
	host = host_at(metadata->slot, place->port);
	/* Classified as ours on the way in; once more, so that the verifier sees the bounds. */
	if (!host || classify(ethernet, cursor.end, &datagram) != CLASS_VRING)
		goto drop;
	rewrite(&datagram, host->mac, host->address);
	count(NICEKV_COUNTER_MULTICAST_COPIES);
	return XDP_PASS;
drop:
	count(NICEKV_COUNTER_EGRESS_DROPPED);
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Apache-2.0";
