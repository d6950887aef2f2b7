//! Samples of a storage target.

use crate::catalogue::*;
use crate::samples::{Samples, outcomes};
use nicekv_objects::{Progress, TargetCounters, TargetUsage};
use nicekv_runtime::chunks::TargetObservation;

pub(crate) fn observe_target(samples: &mut Samples, name: &str, observed: &TargetObservation) {
    let TargetObservation { progress, counters, in_use, datagrams } = observed;
    observe_progress(samples, name, progress);
    observe_use(samples, name, in_use);
    observe_puts(samples, name, counters);
    observe_gets(samples, name, counters);
    for (metric, value) in [
        (&TARGET_SCRUBBED, counters.scrubbed),
        (&TARGET_DAMAGED, counters.damaged),
        (&TARGET_COPIED, counters.put_again),
        (&TARGET_OTHER_MAP, counters.other_map),
        (&TARGET_REFUSED, counters.refused),
        (&TARGET_MALFORMED, counters.malformed),
    ] {
        samples.set(metric, &[name], value);
    }
    for (reason, count) in [("garbage", counters.collected), ("surplus", counters.surplus)] {
        samples.set(&TARGET_DELETED, &[name, reason], count);
    }
    for (outcome, count) in outcomes(datagrams) {
        samples.set(&TARGET_DATAGRAMS, &[name, outcome], count);
    }
}

fn observe_progress(samples: &mut Samples, name: &str, progress: &Progress) {
    // Without a group map, chunks cannot move.
    let is_moving = progress.version.0 > 0 && !progress.has_moved;
    for (metric, value) in [
        (&TARGET_CHUNKS, progress.chunks as u64),
        (&TARGET_BYTES, progress.bytes),
        (&TARGET_LACKING, progress.lacking as u64),
        (&TARGET_UNSETTLED, progress.unsettled as u64),
        (&TARGET_MOVING, is_moving.into()),
        (&TARGET_MAP, progress.version.0.into()),
    ] {
        samples.set(metric, &[name], value);
    }
}

fn observe_use(samples: &mut Samples, name: &str, in_use: &TargetUsage) {
    for (metric, value) in [
        (&TARGET_FREE, in_use.disk_free_bytes),
        (&TARGET_PROMISED, in_use.disk_promised_bytes),
        (&TARGET_MEMORY, in_use.memory_promised_bytes),
        (&TARGET_MEMORY_MAX, in_use.memory_bytes_max),
    ] {
        samples.set(metric, &[name], value);
    }
    for (kind, count) in [("bid", in_use.bids), ("transfer", in_use.transfers), ("read", in_use.reads)] {
        samples.set(&TARGET_UNDER_WAY, &[name, kind], count as u64);
    }
    for (stage, round) in [("known", in_use.round), ("listed", in_use.listed), ("swept", in_use.swept)] {
        samples.set(&TARGET_ROUND, &[name, stage], round.0);
    }
}

fn observe_puts(samples: &mut Samples, name: &str, counters: &TargetCounters) {
    for (answer, count) in [
        ("bid", counters.bids),
        ("stored", counters.confirmed),
        ("arriving", counters.arriving),
        ("not_now", counters.not_now),
        ("no_space", counters.no_space),
    ] {
        samples.set(&TARGET_PUTS, &[name, answer], count);
    }
    for (outcome, count) in
        [("accepted", counters.transfers), ("cancelled", counters.cancelled), ("lapsed", counters.lapsed)]
    {
        samples.set(&TARGET_BIDS, &[name, outcome], count);
    }
    for (outcome, count) in [
        ("stored", counters.stored),
        ("lapsed", counters.transfers_lapsed),
        ("wrong", counters.wrong),
        ("disk_full", counters.disk_full),
        ("given_up", counters.given_up),
    ] {
        samples.set(&TARGET_TRANSFERS, &[name, outcome], count);
    }
    for (event, count) in [
        ("received", counters.frames),
        ("known", counters.frames_known),
        ("missing", counters.frames_missing),
        ("refused", counters.frames_refused),
        ("sent", counters.frames_sent),
    ] {
        samples.set(&TARGET_FRAMES, &[name, event], count);
    }
}

fn observe_gets(samples: &mut Samples, name: &str, counters: &TargetCounters) {
    for (answer, count) in [("held", counters.gets - counters.not_found), ("not_found", counters.not_found)] {
        samples.set(&TARGET_GETS, &[name, answer], count);
    }
    for (outcome, count) in [
        ("served", counters.reads),
        ("dropped", counters.reads_dropped),
        ("unproven", counters.reads_unproven),
        ("refused", counters.reads_refused),
    ] {
        samples.set(&TARGET_READS, &[name, outcome], count);
    }
    samples.set(&TARGET_READ_BYTES, &[name], counters.bytes_sent);
}
