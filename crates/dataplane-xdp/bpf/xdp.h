/*
 * Carries out a decision at XDP. Copies are made and sent by the kernel, from a device map of the group's ports; each is rewritten by
 * nicekv_egress at the port that it leaves by.
 */
#pragma once

#include "decision.h"
#include "rewrite.h"

static __always_inline struct frame frame_of_xdp(const struct xdp_md *ctx, __u32 ifindex)
{
	return (struct frame){
		.data = (void *)(long)ctx->data,
		.end = (void *)(long)ctx->data_end,
		.bytes = ctx->data_end - ctx->data,
		.ifindex = ifindex,
	};
}

static __always_inline int xdp_send(__u32 port, bool doubled)
{
	__u32 index = NICEKV_PORT_TWINS + port;
	void *twins = doubled ? bpf_map_lookup_elem(&groups, &index) : NULL;

	if (twins)
		return bpf_redirect_map(twins, 0, BPF_F_BROADCAST);
	return bpf_redirect_map(&ports, port, XDP_DROP);
}

/* The copies are rewritten on their way out, by the generation that this leaves in the metadata, and stamped, but those to trunks. */
static __always_inline int xdp_copy(struct xdp_md *ctx, const struct decision *decision)
{
	__u32 index = decision->to.target + (decision->doubled ? NICEKV_GROUP_TWINS : 0);
	void *group = bpf_map_lookup_elem(&groups, &index);
	struct nicekv_metadata *metadata;

	if (!group || bpf_xdp_adjust_meta(ctx, -(int)sizeof(*metadata)))
		goto drop;
	metadata = (void *)(long)ctx->data_meta;
	if ((void *)(metadata + 1) > (void *)(long)ctx->data)
		goto drop;
	metadata->slot = decision->slot;
	metadata->has_stamp = decision->has_stamp;
	metadata->stamp[0] = decision->to.stamp[0];
	metadata->stamp[1] = decision->to.stamp[1];
	return bpf_redirect_map(group, 0, BPF_F_BROADCAST | BPF_F_EXCLUDE_INGRESS);
drop:
	count(NICEKV_COUNTER_EGRESS_DROPPED);
	return XDP_DROP;
}

static __always_inline int xdp_carry_out(struct xdp_md *ctx, const struct frame *frame, struct decision *decision,
					 struct datagram *datagram)
{
	switch (decision->fate) {
	case FATE_ROUTE:
		rewrite(datagram, decision->to.mac, decision->to.address);
		if (decision->has_room)
			write_chain(datagram);
		if (decision->has_stamp)
			write_stamp(frame, datagram, decision->to.stamp);
		return xdp_send(decision->to.target, decision->doubled);
	case FATE_COPY:
		return xdp_copy(ctx, decision);
	case FATE_FORWARD:
		return xdp_send(decision->to.target, decision->doubled);
	case FATE_ANSWER:
		write_answer(frame, datagram, decision->to.stamp);
		return xdp_send(decision->to.target, false);
	case FATE_UP:
		return XDP_PASS;
	case FATE_FLOOD:
		return bpf_redirect_map(&ports, 0, BPF_F_BROADCAST | BPF_F_EXCLUDE_INGRESS);
	default:
		return XDP_DROP;
	}
}
