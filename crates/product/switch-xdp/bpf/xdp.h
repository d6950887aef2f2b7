/*
 * Carries out a decision at XDP. The kernel makes and sends copies, from a device map with the group's ports; nicekv_egress rewrites each of them
 * at its egress port.
 */
#pragma once

#include "decision.h"
#include "hot.h"
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

/* Copies are rewritten and, except for trunks, stamped at their egress ports, by the generation that is left in the metadata here. */
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
	metadata->by_port = decision->by_port ? decision->to.target + 1 : 0;
	metadata->receivers = decision->receivers;
	metadata->has_stamp = decision->has_stamp;
	metadata->stamp[0] = decision->to.stamp[0];
	metadata->stamp[1] = decision->to.stamp[1];
	return bpf_redirect_map(group, 0, BPF_F_BROADCAST | BPF_F_EXCLUDE_INGRESS);
drop:
	count(NICEKV_COUNTER_EGRESS_DROPPED);
	return XDP_DROP;
}

__noinline int xdp_keep(struct xdp_md *ctx, const struct decision *decision)
{
	keep_value(ctx, false, decision);
	return 0;
}

__noinline int xdp_answers(struct xdp_md *ctx, __u32 bytes)
{
	return has_reply(ctx, false, bytes);
}

/* Turns the get into the stored reply, in the same frame. */
__noinline int xdp_reply(struct xdp_md *ctx)
{
	struct hot_scratch *s = hot_scratch_of_cpu();
	__u32 reply_bytes;
	__u16 length;

	if (!s)
		return 0;
	reply_bytes = load_bounded(&s->reply_bytes);
	if (reply_bytes < sizeof(struct nicekv_header) || reply_bytes > NICEKV_DATAGRAM_BYTES_MAX)
		return 0;
	turn_headers(s);
	length = bpf_htons(reply_bytes + sizeof(struct udphdr));
	add_sum(&s->udp, s->difference);
	/* The length is also in the pseudo-header. */
	add_sum(&s->udp, 2 * ((__u16)~s->udp.len + length));
	s->udp.len = length;
	if (bpf_xdp_store_bytes(ctx, UDP_PAYLOAD_AT, s->reply, reply_bytes) ||
	    bpf_xdp_store_bytes(ctx, 0, &s->ethernet, UDP_PAYLOAD_AT))
		return 0;
	return !bpf_xdp_adjust_tail(ctx, (int)reply_bytes - (int)s->bytes);
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
		write_answer(frame, datagram, decision->to.stamp, decision->answer);
		return xdp_send(decision->to.target, false);
	case FATE_KEEP:
		xdp_keep(ctx, decision);
		return XDP_DROP;
	case FATE_REPLY:
		return xdp_reply(ctx) ? xdp_send(decision->port, decision->doubled) : XDP_DROP;
	case FATE_UP:
		return XDP_PASS;
	case FATE_FLOOD:
		return bpf_redirect_map(&ports, 0, BPF_F_BROADCAST | BPF_F_EXCLUDE_INGRESS);
	default:
		return XDP_DROP;
	}
}
