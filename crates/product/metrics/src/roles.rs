//! From what roles say of themselves to samples.

use crate::catalogue::*;
use crate::page::Samples;
use crate::targets::observe_target;
use nicekv_gateway::{GatewayMonitor, GatewayObservation};
use nicekv_kernel_gets::OUTCOMES;
use nicekv_metadata::{NodeState, ReshapingPhase, Status};
use nicekv_replica::{HotCounters, NodeStatus, Standing, ValueCounters};
use nicekv_runtime::chunks::TargetWatch;
use nicekv_runtime::metadata::{MetadataInquirer, MetadataObservation};
use nicekv_runtime::node::{NodeInquirer, NodeObservation};
use nicekv_runtime::{DatagramCounters, SwitchInquirer, SwitchObservation};
use nicekv_switch::Counter;
use std::time::{Duration, Instant};

/// A role of this process; clones are the same.
#[derive(Clone)]
pub enum Source {
    /// A storage node, by its name, and its storage target, if it is one.
    Node(String, NodeInquirer, TargetWatch),
    /// A switch, or the agent of one, by its name.
    Switch(String, SwitchInquirer),
    /// The metadata service.
    Metadata(MetadataInquirer),
    /// A gateway, by its name.
    Gateway(String, GatewayMonitor),
}

impl Source {
    /// What it is, and its name.
    pub fn name(&self) -> (&'static str, &str) {
        match self {
            Self::Node(name, ..) => ("node", name),
            Self::Switch(name, _) => ("switch", name),
            Self::Metadata(_) => ("metadata", "metadata"),
            Self::Gateway(name, _) => ("gateway", name),
        }
    }

    /// Whether it has metrics of this owner.
    pub(crate) fn has(&self, owner: Owner) -> bool {
        match self {
            Self::Node(..) => matches!(owner, Owner::Node | Owner::Target),
            Self::Switch(..) => owner == Owner::Switch,
            Self::Metadata(_) => owner == Owner::Metadata,
            Self::Gateway(..) => owner == Owner::Gateway,
        }
    }

    /// Asks the role, until `deadline`.
    pub(crate) fn gather(&self, samples: &mut Samples, deadline: Instant) {
        let left = || deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let is_answering = match self {
            Self::Node(name, node, target) => {
                target.get().iter().for_each(|told| observe_target(samples, name, told));
                let told = node.ask((), left());
                told.iter().for_each(|told| observe_node(samples, name, told));
                told.is_some()
            }
            Self::Switch(name, switch) => {
                let told = switch.ask((), left()).flatten();
                told.iter().for_each(|told| observe_switch(samples, name, told));
                told.is_some()
            }
            Self::Metadata(metadata) => {
                let told = metadata.ask((), left());
                told.iter().for_each(|told| observe_metadata(samples, told));
                told.is_some()
            }
            Self::Gateway(name, gateway) => {
                observe_gateway(samples, name, &gateway.observe());
                true
            }
        };
        let (role, name) = self.name();
        samples.set(&ANSWERING, &[role, name], is_answering.into());
    }
}

fn observe_node(samples: &mut Samples, name: &str, told: &NodeObservation) {
    let NodeObservation { status, datagrams, log, kernel } = told;
    samples.set(&NODE_TERM, &[name], status.term.0);
    for (standing, label) in [
        (Standing::Outside, "outside"),
        (Standing::Joining, "joining"),
        (Standing::Handoff, "handoff"),
        (Standing::Consistent, "consistent"),
    ] {
        let count = status.partitions.iter().filter(|partition| partition.standing == standing).count();
        samples.set(&NODE_PARTITIONS, &[name, label], count as u64);
    }
    samples.set(
        &NODE_LEADS,
        &[name],
        status.partitions.iter().filter(|partition| partition.leads).count() as u64,
    );
    let open: usize = status.partitions.iter().map(|partition| partition.open_ops).sum();
    samples.set(&NODE_OPEN, &[name], open as u64);
    let counters = &status.counters;
    samples.set(&NODE_DECIDED, &[name, "fast"], counters.decided - counters.decided_contended);
    samples.set(&NODE_DECIDED, &[name, "slow"], counters.decided_contended);
    for (metric, value) in [
        (&NODE_GETS, counters.gets),
        (&NODE_FORWARDED, counters.gets_forwarded),
        (&NODE_MALFORMED, counters.malformed),
        (&NODE_OTHER_VERSION, counters.other_version),
        (&NODE_REFUSED, counters.refused),
        (&NODE_DROPPED, counters.dropped),
        (&NODE_RESENT, counters.resent),
        (&NODE_ASSEMBLED, counters.assembled),
        (&NODE_NO_SPACE, counters.refused_for_space),
        (&NODE_BARRED, counters.barred),
        (&NODE_CORRUPT, counters.corrupt),
        (&NODE_REPAIRED, counters.repaired),
        (&NODE_DIFFERING, counters.differing),
        (&NODE_FORGOTTEN, counters.forgotten),
        (&NODE_SCRUBBED, counters.scrubbed),
        (&NODE_SCRUBS, counters.scrubs),
        (&NODE_DISCARDED, counters.discarded),
    ] {
        samples.set(metric, &[name], value);
    }
    observe_messages_of_node(samples, name, status);
    observe_hot_of_node(samples, name, &status.hot);
    observe_values_of_node(samples, name, &status.values);
    samples.set_durations(&NODE_PUTS, &[name, "forced"], &status.puts.forced);
    samples.set_durations(&NODE_PUTS, &[name, "decided"], &status.puts.decided);
    if let Some(log) = log {
        samples.set_durations(&NODE_FORCES, &[name], &log.forces);
        samples.set(&NODE_RECORDS, &[name], log.records);
        samples.set(&NODE_SEGMENTS, &[name], log.segments as u64);
    }
    let kernel = kernel.unwrap_or_default();
    samples.set(&NODE_KERNEL_ENTRIES, &[name], kernel.entries as u64);
    samples.set(&NODE_KERNEL_CLOSES, &[name], kernel.closes);
    for (outcome, count) in OUTCOMES.iter().zip(kernel.outcomes) {
        samples.set(&NODE_KERNEL_GETS, &[name, outcome], count);
    }
    for (outcome, count) in outcomes(datagrams) {
        samples.set(&NODE_DATAGRAMS, &[name, outcome], count);
    }
}

fn observe_messages_of_node(samples: &mut Samples, name: &str, status: &NodeStatus) {
    let counters = &status.counters;
    samples.set(&NODE_PUBLISHED, &[name], counters.published);
    samples.set(&NODE_MESSAGES_SENT, &[name], counters.messages_sent);
    samples.set(&NODE_LISTENERS_REFUSED, &[name], counters.listeners_refused);
}

fn observe_values_of_node(samples: &mut Samples, name: &str, values: &ValueCounters) {
    samples.set(&NODE_SCRUBBED_LARGE, &[name], values.scrubbed_bytes);
    samples.set(&NODE_LARGE_SCRUBS, &[name], values.scrubs);
    let events = [
        ("begun", values.transfers),
        ("refused", values.transfers_refused),
        ("abandoned", values.transfers_abandoned),
        ("wrong", values.wrong),
        ("fetched", values.fetched),
        ("damaged", values.damaged),
        ("removed", values.removed),
    ];
    for (event, count) in events {
        samples.set(&NODE_LARGE_VALUES, &[name, event], count);
    }
    let events = [
        ("received", values.chunks),
        ("known", values.chunks_known),
        ("refused", values.chunks_refused),
        ("sent", values.chunks_sent),
        ("unproven", values.reads_refused),
    ];
    for (event, count) in events {
        samples.set(&NODE_CHUNKS, &[name, event], count);
    }
}

fn observe_hot_of_node(samples: &mut Samples, name: &str, hot: &HotCounters) {
    samples.set(&NODE_HOT_COPIES, &[name], hot.copies);
    samples.set(&NODE_HOT_VALUES, &[name], hot.values);
    samples.set(&NODE_HOT_WAITS, &[name], hot.waits);
    samples.set(&NODE_HOT_REVOCATIONS, &[name], hot.revocations);
    for (outcome, count) in [("answered", hot.answered), ("passed", hot.passed), ("unknown", hot.unknown)] {
        samples.set(&NODE_HOT_GETS, &[name, outcome], count);
    }
}

/// By the label `outcome`.
pub(crate) fn outcomes(datagrams: &DatagramCounters) -> [(&'static str, u64); 4] {
    let DatagramCounters { received, too_long, sent, lost } = *datagrams;
    [("received", received), ("sent", sent), ("lost", lost), ("too_long", too_long)]
}

fn observe_switch(samples: &mut Samples, name: &str, told: &SwitchObservation) {
    samples.set(&SWITCH_CONNECTED, &[name], told.is_connected.into());
    samples.set(&SWITCH_TERM, &[name], told.term);
    samples.set(&SWITCH_OTHER_VERSION, &[name], told.other_version.count);
    samples.set(&SWITCH_GENERATION, &[name], told.generation.unwrap_or(0));
    for table in &told.tables {
        samples.set(&SWITCH_ENTRIES, &[name, &table.name], table.entries as u64);
        samples.set(&SWITCH_CAPACITY, &[name, &table.name], table.capacity as u64);
        samples.set(&SWITCH_HITS, &[name, &table.name], table.hits);
    }
    for (counter, count) in told.counters.iter().filter(|(counter, _)| !matches!(counter, Counter::Hits(_))) {
        samples.set(&SWITCH_PACKETS, &[name, counter.name()], count);
    }
}

fn observe_metadata(samples: &mut Samples, told: &MetadataObservation) {
    let MetadataObservation { status, control_plane, other_version, persists, datagrams } = told;
    samples.set(&METADATA_OTHER_VERSION, &[], *other_version);
    let silent_ms = control_plane.outage.as_ref().map_or(0, |(since_ms, _)| *since_ms);
    samples.set(&METADATA_LEADS, &[], status.is_some().into());
    samples.set(&METADATA_STORE_SILENT, &[], silent_ms.div_ceil(1000));
    if let Some(status) = status {
        observe_cluster(samples, status);
    }
    samples.set_durations(&METADATA_PERSISTS, &[], persists);
    for (outcome, count) in outcomes(datagrams) {
        samples.set(&METADATA_DATAGRAMS, &[outcome], count);
    }
}

fn observe_reshapings(samples: &mut Samples, status: &Status) {
    for (phase, label) in [
        (ReshapingPhase::Waiting, "waiting"),
        (ReshapingPhase::Forming, "forming"),
        (ReshapingPhase::Sealed, "sealed"),
        (ReshapingPhase::Succeeding, "succeeding"),
    ] {
        let count = status.reshapings.iter().filter(|reshaping| reshaping.phase == phase).count();
        samples.set(&METADATA_RESHAPINGS, &[label], count as u64);
    }
}

fn observe_cluster(samples: &mut Samples, status: &Status) {
    samples.set(&METADATA_TERM, &[], status.term);
    samples.set(&METADATA_READY, &[], status.ready.into());
    samples.set(&METADATA_MOVES, &[], status.moves as u64);
    observe_reshapings(samples, status);
    for (state, label) in
        [(NodeState::Live, "live"), (NodeState::Suspected, "suspected"), (NodeState::Unknown, "unknown")]
    {
        let count = status.nodes.iter().filter(|node| node.state == state).count();
        samples.set(&METADATA_NODES, &[label], count as u64);
    }
    let switches = |has: fn(bool, bool) -> bool| {
        status.switches.iter().filter(|switch| has(switch.connected, switch.current)).count() as u64
    };
    samples.set(&METADATA_SWITCHES, &["current"], switches(|connected, current| connected && current));
    samples.set(&METADATA_SWITCHES, &["behind"], switches(|connected, current| connected && !current));
    samples.set(&METADATA_SWITCHES, &["disconnected"], switches(|connected, _| !connected));
    observe_keyspaces(samples, status);
    observe_migrations(samples, status);
    observe_hot_keys(samples, status);
    let ignored = &status.counters;
    for (reason, count) in [
        ("malformed", ignored.malformed),
        ("foreign", ignored.foreign),
        ("forged", ignored.forged),
        ("stale", ignored.stale),
        ("transmits_dropped", ignored.transmits_dropped),
    ] {
        samples.set(&METADATA_IGNORED, &[reason], count);
    }
}

fn observe_migrations(samples: &mut Samples, status: &Status) {
    for told in &status.migrations {
        let name = told.name.as_str();
        for (step, count) in [("move", told.moves), ("split", told.splits), ("merge", told.merges)] {
            samples.set(&METADATA_BALANCING_STEPS, &[name, step], count);
        }
        if let Some((_, percent)) = told.hottest {
            samples.set(&METADATA_BALANCING_LOAD, &[name], percent);
        }
        samples.set(&METADATA_HOT_KEYS, &[name], told.hot_keys.len() as u64);
    }
}

fn observe_hot_keys(samples: &mut Samples, status: &Status) {
    for told in status.hot.iter().flat_map(|hot| &hot.switches) {
        let switch = told.switch.to_string();
        for (metric, value) in [
            (&METADATA_HOT_ENTRIES, told.entries as u64),
            (&METADATA_HOT_COPIED, told.copied as u64),
            (&METADATA_HOT_COPIES, told.copies as u64),
            (&METADATA_HOT_VALUES, told.values as u64),
            (&METADATA_HOT_THRESHOLD, told.threshold_per_second),
            (&METADATA_HOT_IMBALANCE, told.imbalance_percent),
            (&METADATA_HOT_SHARE, told.hot_percent()),
            (&METADATA_HOT_ANSWERED, told.answered_percent()),
            (&METADATA_HOT_CHANGES, told.changes),
            (&METADATA_HOT_REFUSED, told.refused),
        ] {
            samples.set(metric, &[&switch], value);
        }
        samples.set(&METADATA_HOT_FAILING, &[&switch], told.failure.is_some().into());
    }
}

fn observe_keyspaces(samples: &mut Samples, status: &Status) {
    for keyspace in &status.keyspaces {
        let name = keyspace.name.as_str();
        let health = &keyspace.health;
        for (label, count) in [
            ("whole", health.whole),
            ("covered", health.covered),
            ("reduced", health.reduced),
            ("waiting", health.waiting),
            ("unavailable", health.unavailable),
            ("lost", health.lost),
        ] {
            samples.set(&METADATA_PARTITIONS, &[name, label], count as u64);
        }
        samples.set(&METADATA_KEYS, &[name], keyspace.usage.keys);
        samples.set(&METADATA_BYTES, &[name], keyspace.usage.bytes);
        samples.set(&METADATA_GETS, &[name], keyspace.usage.gets_per_second);
        samples.set(&METADATA_UPDATES, &[name], keyspace.usage.updates_per_second);
    }
}

fn observe_gateway(samples: &mut Samples, name: &str, told: &GatewayObservation) {
    for (metric, value) in [
        (&GATEWAY_THREADS, told.threads as u64),
        (&GATEWAY_CONNECTIONS, told.connections as u64),
        (&GATEWAY_CONNECTIONS_MAX, told.connections_max as u64),
        (&GATEWAY_ACCEPTED, told.connections_total),
        (&GATEWAY_REFUSED, told.connections_refused),
        (&GATEWAY_EVICTED, told.connections_evicted),
        (&GATEWAY_STALLED, told.connections_stalled),
        (&GATEWAY_PROTECTED, told.connections_denied),
        (&GATEWAY_HANDSHAKES_OPEN, told.handshakes_open as u64),
        (&GATEWAY_LARGE, told.large_bytes as u64),
        (&GATEWAY_LARGE_MAX, told.large_bytes_max as u64),
        (&GATEWAY_LARGE_WAITING, told.large_waiting as u64),
        (&GATEWAY_MEMORY, told.memory_bytes as u64),
        (&GATEWAY_MEMORY_MAX, told.memory_bytes_max as u64),
        (&GATEWAY_COMMANDS, told.commands),
        (&GATEWAY_REQUESTS, told.requests),
        (&GATEWAY_IN_FLIGHT, told.requests_in_flight),
        (&GATEWAY_RETRIES, told.retries),
        (&GATEWAY_BUSY, told.busy),
        (&GATEWAY_OTHER_VERSION, told.other_version),
    ] {
        samples.set(metric, &[name], value);
    }
    for (reason, count) in &told.requests_failed {
        samples.set(&GATEWAY_FAILED, &[name, reason], *count);
    }
    for (outcome, count) in &told.handshakes {
        samples.set(&GATEWAY_HANDSHAKES, &[name, outcome], *count);
    }
    for (reason, count) in &told.denied {
        samples.set(&GATEWAY_DENIED, &[name, reason], *count);
    }
    for (command, took) in &told.latencies {
        samples.set_durations(&GATEWAY_LATENCY, &[name, command], took);
    }
}
