/*
 * Injected faults, for tests: frames lost or duplicated at a port. Without them it costs one array lookup: `faults_active` (src/faults.rs) is not
 * set.
 */
#pragma once

#include <stdbool.h>

#include "maps.h"

/* Whether any fault is active. Then each datagram must have its own fate: none is part of a GSO batch. */
static __always_inline bool has_faults(void)
{
	__u32 *active = bpf_map_lookup_elem(&faults_active, &(__u32){ 0 });

	return active && *active;
}

/* The faults of a port; NULL if there are none. */
static __always_inline struct nicekv_fault *fault_at(__u32 ifindex)
{
	return has_faults() ? bpf_map_lookup_elem(&faults, &ifindex) : NULL;
}

static __always_inline bool happens(__u32 ppm)
{
	return ppm && bpf_get_prandom_u32() % NICEKV_PPM < ppm;
}

/* Whether to lose a frame that the port's station has sent. */
static __always_inline bool is_lost_from(struct nicekv_fault *fault)
{
	if (!fault || !happens(fault->lost_from_ppm))
		return false;
	__sync_fetch_and_add(&fault->lost, 1);
	return true;
}

/* Whether to lose a frame for the port's station. */
static __always_inline bool is_lost_to(struct nicekv_fault *fault)
{
	if (!fault || !happens(fault->lost_to_ppm))
		return false;
	__sync_fetch_and_add(&fault->lost, 1);
	return true;
}

/* Whether to duplicate a frame that the port's station has sent. */
static __always_inline bool is_doubled(struct nicekv_fault *fault)
{
	if (!fault || !happens(fault->doubled_ppm))
		return false;
	__sync_fetch_and_add(&fault->doubled, 1);
	return true;
}
