//! Counters of nodes and gateways, each with its metric, and with the log event for its growth, if
//! there is one.

use crate::catalogue::*;
use log::Level;
use nicekv_gateway::GatewayObservation;
use nicekv_replica::Counters;

/// A counter of a `T`.
pub struct Counter<T: 'static> {
    pub metric: &'static Metric,
    pub read: fn(&T) -> u64,
    /// Level and name of the log event.
    pub event: Option<(Level, &'static str)>,
}

const fn silent<T>(metric: &'static Metric, read: fn(&T) -> u64) -> Counter<T> {
    Counter { metric, read, event: None }
}

const fn logged<T>(
    metric: &'static Metric,
    level: Level,
    event: &'static str,
    read: fn(&T) -> u64,
) -> Counter<T> {
    Counter { metric, read, event: Some((level, event)) }
}

/// Name of the event that a message of another release was received; the event names the sender.
pub const OTHER_VERSION: &str = "other-version";

pub static NODE_COUNTERS: &[Counter<Counters>] = &[
    silent(&NODE_GETS, |it| it.gets),
    silent(&NODE_FORWARDED, |it| it.gets_forwarded),
    silent(&NODE_PUBLISHED, |it| it.published),
    silent(&NODE_MESSAGES_SENT, |it| it.messages_sent),
    silent(&NODE_LISTENERS_REFUSED, |it| it.listeners_refused),
    silent(&NODE_MALFORMED, |it| it.malformed),
    logged(&NODE_OTHER_VERSION, Level::Warn, OTHER_VERSION, |it| it.other_version),
    silent(&NODE_REFUSED, |it| it.refused),
    silent(&NODE_DROPPED, |it| it.dropped),
    silent(&NODE_RESENT, |it| it.resent),
    silent(&NODE_ASSEMBLED, |it| it.assembled),
    logged(&NODE_NO_SPACE, Level::Warn, "puts-refused-disk-full", |it| it.refused_for_space),
    logged(&NODE_BARRED, Level::Error, "op-ended", |it| it.barred),
    logged(&NODE_CORRUPT, Level::Warn, "values-damaged", |it| it.corrupt),
    logged(&NODE_REPAIRED, Level::Info, "values-repaired", |it| it.repaired),
    logged(&NODE_DIFFERING, Level::Warn, "values-differing", |it| it.differing),
    silent(&NODE_FORGOTTEN, |it| it.forgotten),
    silent(&NODE_SCRUBBED, |it| it.scrubbed),
    silent(&NODE_SCRUBS, |it| it.scrubs),
    silent(&NODE_DISCARDED, |it| it.discarded),
];

pub static GATEWAY_COUNTERS: &[Counter<GatewayObservation>] = &[
    silent(&GATEWAY_ACCEPTED, |it| it.connections_total),
    logged(&GATEWAY_REFUSED, Level::Warn, "connections-refused", |it| it.connections_refused),
    logged(&GATEWAY_EVICTED, Level::Warn, "connections-evicted", |it| it.connections_evicted),
    logged(&GATEWAY_STALLED, Level::Warn, "connections-stalled", |it| it.connections_stalled),
    logged(&GATEWAY_PROTECTED, Level::Warn, "connections-denied", |it| it.connections_denied),
    silent(&GATEWAY_COMMANDS, |it| it.commands),
    silent(&GATEWAY_REQUESTS, |it| it.requests),
    silent(&GATEWAY_RETRIES, |it| it.retries),
    silent(&GATEWAY_BUSY, |it| it.busy),
    logged(&GATEWAY_OTHER_VERSION, Level::Warn, OTHER_VERSION, |it| it.other_version),
];
