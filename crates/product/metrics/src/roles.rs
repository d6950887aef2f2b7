//! Collects the samples of each role.

use crate::catalogue::*;
use crate::counters::{GATEWAY_COUNTERS, NODE_COUNTERS};
use crate::samples::{Samples, outcomes};
use crate::targets::observe_target;
use nicekv_fields::{balancing, health, hot, keyspace, table};
use nicekv_gateway::{GatewayMonitor, GatewayObservation};
use nicekv_kernel_gets::OUTCOMES;
use nicekv_metadata::{NodeState, ReshapingPhase, Status};
use nicekv_replica::{HotCounters, Standing, ValueCounters};
use nicekv_runtime::chunks::TargetWatch;
use nicekv_runtime::metadata::{MetadataInquirer, MetadataObservation};
use nicekv_runtime::node::{NodeInquirer, NodeObservation};
use nicekv_runtime::{SwitchInquirer, SwitchObservation};
use nicekv_switch::Counter;
use std::time::{Duration, Instant};

/// A role of this process whose state can be read.
#[derive(Clone)]
pub enum Source {
    /// A storage node by name, and its storage target.
    Node(String, NodeInquirer, TargetWatch),
    /// A switch or switch agent by name.
    Switch(String, SwitchInquirer),
    /// The metadata service.
    Metadata(MetadataInquirer),
    /// A gateway by name.
    Gateway(String, GatewayMonitor),
}

impl Source {
    /// The kind of role, and its name.
    pub fn name(&self) -> (&'static str, &str) {
        match self {
            Self::Node(name, ..) => ("node", name),
            Self::Switch(name, _) => ("switch", name),
            Self::Metadata(_) => ("metadata", "metadata"),
            Self::Gateway(name, _) => ("gateway", name),
        }
    }

    /// Whether the role has metrics of this owner.
    pub(crate) fn has(&self, owner: Owner) -> bool {
        match self {
            Self::Node(..) => matches!(owner, Owner::Node | Owner::Target),
            Self::Switch(..) => owner == Owner::Switch,
            Self::Metadata(_) => owner == Owner::Metadata,
            Self::Gateway(..) => owner == Owner::Gateway,
        }
    }

    /// Reads the role's state and adds its samples; waits until `deadline` at most.
    pub(crate) fn gather(&self, samples: &mut Samples, deadline: Instant) {
        let left = || deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let is_answering = match self {
            Self::Node(name, node, target) => {
                target.get().iter().for_each(|observed| observe_target(samples, name, observed));
                let observed = node.ask((), left());
                observed.iter().for_each(|observed| observe_node(samples, name, observed));
                observed.is_some()
            }
            Self::Switch(name, switch) => {
                let observed = switch.ask((), left()).flatten();
                observed.iter().for_each(|observed| observe_switch(samples, name, observed));
                observed.is_some()
            }
            Self::Metadata(metadata) => {
                let observed = metadata.ask((), left());
                observed.iter().for_each(|observed| observe_metadata(samples, observed));
                observed.is_some()
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

fn observe_node(samples: &mut Samples, name: &str, observed: &NodeObservation) {
    let NodeObservation { status, datagrams, log, kernel } = observed;
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
    for counter in NODE_COUNTERS {
        samples.set(counter.metric, &[name], (counter.read)(counters));
    }
    observe_hot_of_node(samples, name, &status.hot);
    observe_values_of_node(samples, name, &status.values);
    samples.set_durations(&NODE_PUTS, &[name, "synced"], &status.puts.synced);
    samples.set_durations(&NODE_PUTS, &[name, "decided"], &status.puts.decided);
    if let Some(log) = log {
        samples.set_durations(&NODE_LOG_SYNCS, &[name], &log.syncs);
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

fn observe_switch(samples: &mut Samples, name: &str, observed: &SwitchObservation) {
    samples.set(&SWITCH_CONNECTED, &[name], observed.is_connected.into());
    samples.set(&SWITCH_TERM, &[name], observed.term);
    samples.set(&SWITCH_OTHER_VERSION, &[name], observed.other_version.count);
    samples.set(&SWITCH_GENERATION, &[name], observed.generation.unwrap_or(0));
    for row in &observed.tables {
        for (metric, field) in [
            (&SWITCH_ENTRIES, table::ENTRIES),
            (&SWITCH_CAPACITY, table::CAPACITY),
            (&SWITCH_HITS, table::HITS),
        ] {
            samples.set(metric, &[name, &row.name], (field.read)(row));
        }
    }
    for (counter, count) in
        observed.counters.iter().filter(|(counter, _)| !matches!(counter, Counter::Hits(_)))
    {
        samples.set(&SWITCH_PACKETS, &[name, counter.name()], count);
    }
}

fn observe_metadata(samples: &mut Samples, observed: &MetadataObservation) {
    let MetadataObservation { status, control_plane, other_version, persists, datagrams } = observed;
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
    for observed in &status.migrations {
        let name = observed.name.as_str();
        for step in balancing::STEPS {
            samples.set(&METADATA_BALANCING_STEPS, &[name, step.name], (step.read)(observed));
        }
        if let Some((_, percent)) = observed.hottest {
            samples.set(&METADATA_BALANCING_LOAD, &[name], percent);
        }
        samples.set(&METADATA_HOT_KEYS, &[name], (balancing::HOT_KEYS.read)(observed));
    }
}

fn observe_hot_keys(samples: &mut Samples, status: &Status) {
    for observed in status.hot.iter().flat_map(|hot| &hot.switches) {
        let switch = observed.switch.to_string();
        for (metric, field) in [
            (&METADATA_HOT_ENTRIES, hot::ENTRIES),
            (&METADATA_HOT_COPIED, hot::COPIED),
            (&METADATA_HOT_COPIES, hot::COPIES),
            (&METADATA_HOT_VALUES, hot::VALUES),
            (&METADATA_HOT_THRESHOLD, hot::THRESHOLD),
            (&METADATA_HOT_IMBALANCE, hot::IMBALANCE),
            (&METADATA_HOT_SHARE, hot::SHARE),
            (&METADATA_HOT_ANSWERED, hot::ANSWERED),
            (&METADATA_HOT_CHANGES, hot::CHANGES),
            (&METADATA_HOT_REFUSED, hot::REFUSED),
        ] {
            samples.set(metric, &[&switch], (field.read)(observed));
        }
        samples.set(&METADATA_HOT_FAILING, &[&switch], observed.failure.is_some().into());
    }
}

fn observe_keyspaces(samples: &mut Samples, status: &Status) {
    for row in &status.keyspaces {
        let name = row.name.as_str();
        for state in health::ALL {
            samples.set(&METADATA_PARTITIONS, &[name, state.name], (state.read)(&row.health));
        }
        for (metric, field) in [
            (&METADATA_KEYS, keyspace::KEYS),
            (&METADATA_BYTES, keyspace::BYTES),
            (&METADATA_GETS, keyspace::GETS),
            (&METADATA_UPDATES, keyspace::UPDATES),
        ] {
            samples.set(metric, &[name], (field.read)(row));
        }
    }
}

fn observe_gateway(samples: &mut Samples, name: &str, observed: &GatewayObservation) {
    for (metric, value) in [
        (&GATEWAY_THREADS, observed.threads as u64),
        (&GATEWAY_CONNECTIONS, observed.connections as u64),
        (&GATEWAY_CONNECTIONS_MAX, observed.connections_max as u64),
        (&GATEWAY_HANDSHAKES_OPEN, observed.handshakes_open as u64),
        (&GATEWAY_LARGE, observed.large_bytes as u64),
        (&GATEWAY_LARGE_MAX, observed.large_bytes_max as u64),
        (&GATEWAY_LARGE_WAITING, observed.large_waiting as u64),
        (&GATEWAY_MEMORY, observed.memory_bytes as u64),
        (&GATEWAY_MEMORY_MAX, observed.memory_bytes_max as u64),
        (&GATEWAY_IN_FLIGHT, observed.requests_in_flight),
    ] {
        samples.set(metric, &[name], value);
    }
    for counter in GATEWAY_COUNTERS {
        samples.set(counter.metric, &[name], (counter.read)(observed));
    }
    for (reason, count) in &observed.requests_failed {
        samples.set(&GATEWAY_FAILED, &[name, reason], *count);
    }
    for (outcome, count) in &observed.handshakes {
        samples.set(&GATEWAY_HANDSHAKES, &[name, outcome], *count);
    }
    for (reason, count) in &observed.denied {
        samples.set(&GATEWAY_DENIED, &[name, reason], *count);
    }
    for (command, took) in &observed.latencies {
        samples.set_durations(&GATEWAY_LATENCY, &[name, command], took);
    }
}
