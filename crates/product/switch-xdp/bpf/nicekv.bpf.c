/*
 * The switch of NICEKV: the pipeline of the reference model (crate `nicekv-switch`), at two hooks of a port.
 *
 *   frame -> nicekv_xdp or nicekv_tc: pipeline.h decides
 *              |--------- refused by admission -> drop
 *              |--------- other traffic -> learned MAC addresses -> port(s)
 *              |--------- unicast vring ---> rewrite ------------> port
 *              |            a get of a stored value -> reply, to the ingress port
 *              |            a scan: tc cuts it at the borders of records, and sends a copy of each piece but the last
 *              `--------- multicast vring, ring of groups
 *                                         -> XDP: device map of the group -> nicekv_egress per copy: rewrite -> ports
 *                                            tc: rewrite, clone, per copy ------------------------------------> ports
 *
 * Constants and shared structs are generated from src/layout.rs into layout.h.
 */
#include "pipeline.h"
#include "scan.h"
#include "tc.h"
#include "xdp.h"

SEC("xdp")
int nicekv_xdp(struct xdp_md *ctx)
{
	struct frame frame = frame_of_xdp(ctx, ctx->ingress_ifindex);
	struct datagram datagram = {};
	struct decision decision;

	decide(&frame, &datagram, TURN_XDP, &decision);
	if (decision.is_asked) {
		if (xdp_answers(ctx, frame.bytes))
			decision.fate = FATE_REPLY;
		else
			warm(&decision, true);
	}
	return xdp_carry_out(ctx, &frame, &decision, &datagram);
}

/* Whether the host at an egress port is a receiver. In the ring of groups that was decided by positions in the list of the group's ports. */
static __always_inline bool is_meant_at(const struct nicekv_metadata *metadata, const struct nicekv_host *host, __u32 port)
{
	__u32 slot = metadata->by_port - 1;
	struct nicekv_group *group;

	if (!metadata->by_port)
		return is_meant(host, metadata->receivers);
	group = bpf_map_lookup_elem(&members, &slot);
#pragma clang loop unroll(disable)
	for (__u32 at = 0; group && at < NICEKV_GROUP_MEMBERS_MAX && at < group->count; at++)
		if (group->ports[at] == port)
			return metadata->receivers >> at & 1;
	return false;
}

/* Runs for each frame at its egress port. Copies of a multicast datagram, recognised by their metadata, are rewritten and stamped for servers. */
SEC("xdp/devmap")
int nicekv_egress(struct xdp_md *ctx)
{
	struct frame frame = frame_of_xdp(ctx, ctx->egress_ifindex);
	struct nicekv_metadata *metadata = (void *)(long)ctx->data_meta;
	struct nicekv_place *place = place_of(frame.ifindex);
	struct ethhdr *ethernet = ethernet_of(&frame);
	struct datagram datagram = {};
	struct nicekv_host *host;
	__be64 stamp[2];

	if (is_lost_to(fault_at(frame.ifindex)))
		return XDP_DROP;
	if (!ethernet || !place)
		goto drop;
	if ((void *)(metadata + 1) > (void *)ethernet)
		return XDP_PASS;
	host = receiver_at(metadata->slot, place->port);
	if (host && !is_meant_at(metadata, host, place->port))
		return XDP_DROP;
	/* The next switch gets it unchanged, without this one's metadata. */
	if (host && host->kind == NICEKV_PORT_TRUNK) {
		if (bpf_xdp_adjust_meta(ctx, sizeof(*metadata)))
			goto drop;
		count(NICEKV_COUNTER_MULTICAST_COPIES);
		return XDP_PASS;
	}
	/* It was classified at ingress; parsed again so that the verifier sees the bounds. */
	if (!host || host->kind != NICEKV_PORT_HOST || classify(&frame, ethernet, &datagram) != CLASS_VRING)
		goto drop;
	rewrite(&datagram, host->mac, host->address);
	if (metadata->by_port)
		rewrite_port(datagram.udp);
	if (metadata->has_stamp) {
		stamp[0] = metadata->stamp[0];
		stamp[1] = metadata->stamp[1];
		write_stamp(&frame, &datagram, stamp);
	}
	count(NICEKV_COUNTER_MULTICAST_COPIES);
	return XDP_PASS;
drop:
	count(NICEKV_COUNTER_EGRESS_DROPPED);
	return XDP_DROP;
}

SEC("classifier")
int nicekv_tc(struct __sk_buff *skb)
{
	bool is_piece = tc_pull_headers(skb);
	struct decision decision = {};
	enum train train = train_of(skb);

	if ((train == TRAIN_MIXED || (train == TRAIN_ALIKE && has_faults())) && can_cut(skb))
		return cut(skb);
	tc_decide(skb, &decision, train == TRAIN_ALIKE ? TURN_TRAIN : TURN_TC);
	if (decision.is_asked) {
		if (tc_answers(skb))
			decision.fate = FATE_REPLY;
		else
			warm(&decision, true);
	}
	if (decision.is_scan)
		tc_split(skb, &decision);
	return tc_carry_out(skb, &decision, is_piece);
}

char LICENSE[] SEC("license") = "Apache-2.0";
