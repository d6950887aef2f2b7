/*
 * Faults on purpose, for tests: frames lost or doubled at a port. Nothing happens, for the price of one array lookup, until
 * somebody sets `faults_active` (src/faults.rs).
 */
#pragma once

#include <stdbool.h>

#include "maps.h"

/* Whether anything goes wrong anywhere. Then each datagram is to have its own fate: none is part of a train. */
static __always_inline bool has_faults(void)
{
	__u32 *active = bpf_map_lookup_elem(&faults_active, &(__u32){ 0 });

	return active && *active;
}

/* What goes wrong at a port; NULL while nothing does. */
static __always_inline struct nicekv_fault *fault_at(__u32 ifindex)
{
	return has_faults() ? bpf_map_lookup_elem(&faults, &ifindex) : NULL;
}

static __always_inline bool happens(__u32 ppm)
{
	return ppm && bpf_get_prandom_u32() % NICEKV_PPM < ppm;
}

/* Whether a frame that the port's station has sent is lost. */
static __always_inline bool is_lost_from(struct nicekv_fault *fault)
{
	if (!fault || !happens(fault->lost_from_ppm))
		return false;
	__sync_fetch_and_add(&fault->lost, 1);
	return true;
}

/* Whether a frame on its way to the port's station is lost. */
static __always_inline bool is_lost_to(struct nicekv_fault *fault)
{
	if (!fault || !happens(fault->lost_to_ppm))
		return false;
	__sync_fetch_and_add(&fault->lost, 1);
	return true;
}

/* Whether what the port's station has sent arrives twice wherever it goes. */
static __always_inline bool is_doubled(struct nicekv_fault *fault)
{
	if (!fault || !happens(fault->doubled_ppm))
		return false;
	__sync_fetch_and_add(&fault->doubled, 1);
	return true;
}
