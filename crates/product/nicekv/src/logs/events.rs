//! Log events: what has changed between two observations of a role.

use log::Level;
use nicekv_gateway::GatewayObservation;
use nicekv_metadata::{DiskState, Health, HotStatus, NodeState, OtherReleaseStatus, PartitionStatus, Status};
use nicekv_metrics::catalogue::{self, Metric};
use nicekv_metrics::counters::{GATEWAY_COUNTERS, NODE_COUNTERS, OTHER_VERSION};
use nicekv_proto::OpId;
use nicekv_replica::{NodeStatus, PartitionStatus as NodePartition, Place, Standing};
use nicekv_runtime::SwitchObservation;
use nicekv_runtime::metadata::MetadataObservation;
use serde::Serialize;
use std::net::SocketAddrV4;

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Number(u64),
    Flag(bool),
    Text(String),
}

impl From<u64> for Field {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<bool> for Field {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<&str> for Field {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// A log event; role, name and time are added when it is emitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) level: Level,
    pub(crate) name: &'static str,
    pub(crate) fields: Vec<(&'static str, Field)>,
}

impl Event {
    pub(crate) fn new(level: Level, name: &'static str) -> Self {
        Self { level, name, fields: Vec::new() }
    }

    pub(crate) fn with(mut self, field: &'static str, value: impl Into<Field>) -> Self {
        self.fields.push((field, value.into()));
        self
    }
}

/// The name that an enum value has in JSON.
fn word(value: impl Serialize) -> String {
    let word = serde_json::to_value(value).ok();
    word.and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
}

/// An event with the increase of a counter; `None` if it has not increased.
fn growth(level: Level, name: &'static str, before: u64, now: u64) -> Option<Event> {
    (now > before).then(|| Event::new(level, name).with("count", now - before))
}

pub(crate) fn of_node(before: Option<&NodeStatus>, now: &NodeStatus) -> Vec<Event> {
    let mut events = Vec::new();
    if before.map_or(0, |before| before.term.0) != now.term.0 {
        events.push(Event::new(Level::Info, "term").with("term", now.term.0));
    }
    for partition in &now.partitions {
        let earlier = before.and_then(|before| before.partition(partition.partition));
        events.extend(of_replica(earlier, partition));
    }
    let before = before.map(|status| status.counters).unwrap_or_default();
    for counter in NODE_COUNTERS {
        let Some((level, name)) = counter.event else { continue };
        let event = growth(level, name, (counter.read)(&before), (counter.read)(&now.counters));
        events.extend(event.map(|event| match name {
            OTHER_VERSION => {
                let sender = now.latest.other_release.map(|sender| (sender.from, sender.version));
                of_other_version(event, "wire", sender)
            }
            _ => at_place(event, latest_place(now, counter.metric)),
        }));
    }
    events
}

/// Where (partition, epoch, op) a counter was last incremented.
fn latest_place(now: &NodeStatus, metric: &Metric) -> Option<Place> {
    let latest = &now.latest;
    [
        (&catalogue::NODE_CORRUPT, latest.corrupt),
        (&catalogue::NODE_REPAIRED, latest.repaired),
        (&catalogue::NODE_DIFFERING, latest.differing),
        (&catalogue::NODE_NO_SPACE, latest.refused_for_space),
        (&catalogue::NODE_BARRED, latest.barred),
    ]
    .into_iter()
    .find(|(counted, _)| *counted == metric)?
    .1
}

fn of_other_version(event: Event, protocol: &str, last: Option<(SocketAddrV4, u8)>) -> Event {
    let event = event.with("protocol", protocol);
    let Some((from, version)) = last else { return event };
    event.with("from", from.to_string().as_str()).with("version", u64::from(version))
}

/// Adds the place of the latest occurrence to an event.
fn at_place(event: Event, place: Option<Place>) -> Event {
    let Some(Place { partition, epoch, op }) = place else { return event };
    let event = event.with("partition", u64::from(partition.0)).with("epoch", u64::from(epoch.0));
    if op == OpId::NONE { event } else { event.with("op", op_id(op).as_str()) }
}

/// An op id as CLIENT:SEQUENCE.
fn op_id(op: OpId) -> String {
    format!("{:016x}:{}", op.client.0, op.sequence)
}

/// Events of a partition at a node. If only the epoch has changed, the level is debug.
fn of_replica(before: Option<&NodePartition>, now: &NodePartition) -> Option<Event> {
    let stands = |status: &NodePartition| (status.standing, status.leads);
    let level = match before {
        Some(before) if stands(before) != stands(now) => Level::Info,
        Some(before) if before.epoch != now.epoch => Level::Debug,
        None if now.standing != Standing::Outside => Level::Info,
        _ => return None,
    };
    let standing = match now.standing {
        Standing::Outside => "outside",
        Standing::Joining => "joining",
        Standing::Handoff => "handoff",
        Standing::Consistent => "consistent",
    };
    let event = Event::new(level, "partition")
        .with("partition", u64::from(now.partition.0))
        .with("epoch", u64::from(now.epoch.0))
        .with("standing", standing)
        .with("primary", u64::from(now.primary.0));
    Some(event.with("leads", now.leads).with("logged", now.logged))
}

/// Events of load balancing by migration, and of newly found hot keys.
fn of_migrations(before: &Status, now: &Status) -> Vec<Event> {
    let mut events = Vec::new();
    for told in &now.migrations {
        let earlier = before.migrations.iter().find(|known| known.keyspace == told.keyspace);
        let seen = earlier.and_then(|known| known.events.last()).map_or(0, |(number, _)| *number);
        let event = |level| Event::new(level, "balancing").with("keyspace", told.name.as_str());
        let done = told.events.iter().filter(|(number, _)| *number > seen);
        events.extend(done.map(|(_, what)| event(Level::Info).with("what", what.as_str())));
        let is_new =
            |value: &str| !earlier.is_some_and(|known| known.hot_keys.iter().any(|key| key.value == value));
        for key in told.hot_keys.iter().filter(|key| is_new(&key.value)) {
            let event = event(Level::Warn).with("hot_value", key.value.as_str());
            events.push(event.with("partition", u64::from(key.partition)).with("percent", key.percent));
        }
    }
    events
}

pub(crate) fn of_metadata(before: Option<&MetadataObservation>, now: &MetadataObservation) -> Vec<Event> {
    let mut events = Vec::new();
    let outage = |told: &MetadataObservation| told.control_plane.outage.clone().map(|(_, why)| why);
    let store = now.control_plane.store.as_str();
    match (before.and_then(outage), outage(now)) {
        (None, Some(why)) => {
            let event = Event::new(Level::Warn, "store-silent").with("store", store);
            events.push(event.with("reason", why.as_str()));
        }
        (Some(_), None) => events.push(Event::new(Level::Info, "store-answers").with("store", store)),
        _ => {}
    }
    match (before.and_then(|before| before.status.as_ref()), &now.status) {
        (Some(before), Some(now)) if before.term == now.term => {
            of_status(before, now, &mut events);
            events.extend(of_migrations(before, now));
        }
        (_, Some(now)) => events.push(Event::new(Level::Info, "leads").with("term", now.term)),
        (Some(before), None) => {
            events.push(Event::new(Level::Warn, "leads-no-more").with("term", before.term));
        }
        (None, None) if before.is_none() => events.push(Event::new(Level::Info, "stands-by")),
        (None, None) => {}
    }
    let hot = |told: &MetadataObservation| told.status.as_ref().and_then(|status| status.hot.clone());
    events.extend(of_hot(before.and_then(hot).as_ref(), hot(now).as_ref()));
    for other_release in &now.control_plane.other_releases {
        let OtherReleaseStatus { address, protocol, version, count, .. } = other_release;
        let is_same = |known: &&OtherReleaseStatus| {
            (known.address, &known.protocol, known.version) == (*address, protocol, *version)
        };
        // Logged once for each sender; `nicekv status` shows whether it still sends.
        if before
            .is_none_or(|before| !before.control_plane.other_releases.iter().any(|known| is_same(&known)))
        {
            let event = Event::new(Level::Warn, OTHER_VERSION).with("protocol", protocol.as_str());
            let event = event.with("from", address.to_string().as_str()).with("version", u64::from(*version));
            events.push(event.with("count", *count));
        }
    }
    events
}

/// Events of hot-key replication; each reason for a failure is logged once.
fn of_hot(before: Option<&HotStatus>, now: Option<&HotStatus>) -> Vec<Event> {
    let Some(now) = now else { return Vec::new() };
    let mut events = Vec::new();
    if let Some(why) = now.off.as_deref().filter(|_| before.is_none_or(|before| before.off != now.off)) {
        events.push(Event::new(Level::Warn, "hot-keys-off").with("reason", why));
    }
    for switch in &now.switches {
        let earlier = before.and_then(|before| before.switches.iter().find(|it| it.switch == switch.switch));
        let event = |level, name| Event::new(level, name).with("switch", u64::from(switch.switch));
        let failure = switch.failure.as_deref();
        let failed = failure.filter(|_| earlier.is_none_or(|earlier| earlier.failure != switch.failure));
        events.extend(failed.map(|why| event(Level::Warn, "hot-keys-failed").with("reason", why)));
        let changes = switch.changes.saturating_sub(earlier.map_or(0, |earlier| earlier.changes));
        if changes > 0 {
            let changed = event(Level::Debug, "hot-keys-changed").with("count", changes);
            let changed = changed.with("entries", switch.entries as u64);
            events.push(changed.with("copies", switch.copies as u64));
        }
    }
    events
}

/// Events of the cluster's status, as the leader of the metadata service reports it.
fn of_status(before: &Status, now: &Status, events: &mut Vec<Event>) {
    let term = now.term;
    of_nodes(before, now, events);
    for partition in &now.partitions {
        let earlier = before.partitions.iter().find(|earlier| earlier.id == partition.id);
        events.extend(of_partition(earlier, partition).map(|event| event.with("term", term)));
    }
    for switch in &now.switches {
        let Some(earlier) = before.switches.iter().find(|earlier| earlier.id == switch.id) else { continue };
        let event = |level, name| Event::new(level, name).with("switch", u64::from(switch.id));
        match (earlier.connected, switch.connected) {
            (false, true) => events.push(event(Level::Info, "switch-connected")),
            (true, false) => events.push(event(Level::Warn, "switch-lost")),
            _ => {}
        }
        if let Some(why) = switch.error.as_deref().filter(|_| switch.error != earlier.error) {
            events.push(event(Level::Warn, "switch-refused-tables").with("reason", why));
        }
    }
    match (before.ready, now.ready) {
        (false, true) => events.push(Event::new(Level::Info, "ready").with("term", term)),
        (true, false) => {
            let why = now.why_not_ready.as_deref().unwrap_or_default();
            events.push(Event::new(Level::Warn, "not-ready").with("term", term).with("reason", why));
        }
        _ => {}
    }
}

fn of_nodes(before: &Status, now: &Status, events: &mut Vec<Event>) {
    for node in &now.nodes {
        let event = |level, name| Event::new(level, name).with("node", node.name.as_str());
        let Some(earlier) = before.nodes.iter().find(|earlier| earlier.id == node.id) else {
            events.push(event(Level::Info, "node-added"));
            continue;
        };
        match node.state {
            state if state == earlier.state => {}
            NodeState::Live => events.push(event(Level::Info, "node-live")),
            NodeState::Suspected | NodeState::Unknown => events.push(event(Level::Warn, "node-silent")),
        }
        if node.disk != earlier.disk {
            let level = if node.disk == DiskState::Enough { Level::Info } else { Level::Warn };
            events.push(event(level, "node-disk").with("disk", word(node.disk).as_str()));
        }
        if node.desired != earlier.desired {
            events.push(event(Level::Info, "node-desired").with("desired", word(node.desired).as_str()));
        }
    }
    for node in &before.nodes {
        if !now.nodes.iter().any(|left| left.id == node.id) {
            events.push(Event::new(Level::Info, "node-removed").with("node", node.name.as_str()));
        }
    }
}

fn of_partition(before: Option<&PartitionStatus>, now: &PartitionStatus) -> Option<Event> {
    let level = match (before, now.health) {
        (Some(before), health) if before.health == health && before.primary == now.primary => {
            if before.epoch == now.epoch {
                return None;
            }
            Level::Debug
        }
        (_, Health::Whole | Health::Covered | Health::Reduced) => Level::Info,
        (_, Health::Waiting | Health::Unavailable | Health::Lost) => Level::Warn,
    };
    let event = Event::new(level, "partition")
        .with("partition", u64::from(now.id))
        .with("keyspace", u64::from(now.keyspace))
        .with("epoch", u64::from(now.epoch))
        .with("primary", u64::from(now.primary));
    Some(event.with("state", word(now.state).as_str()).with("health", word(now.health).as_str()))
}

pub(crate) fn of_switch(before: Option<&SwitchObservation>, now: &SwitchObservation) -> Vec<Event> {
    let mut events = Vec::new();
    match (before.is_some_and(|before| before.is_connected), now.is_connected) {
        (false, true) => events.push(Event::new(Level::Info, "connected")),
        (true, false) => events.push(Event::new(Level::Warn, "disconnected")),
        _ => {}
    }
    if before.map_or(0, |before| before.term) != now.term {
        events.push(Event::new(Level::Info, "term").with("term", now.term));
    }
    let count = before.map_or(0, |before| before.other_version.count);
    let other_release = growth(Level::Warn, OTHER_VERSION, count, now.other_version.count);
    events.extend(other_release.map(|event| of_other_version(event, "control", now.other_version.last)));
    let earlier = before.and_then(|before| before.generation);
    if let Some(generation) = now.generation.filter(|_| now.generation != earlier) {
        let level = if earlier.is_none() { Level::Info } else { Level::Debug };
        events.push(Event::new(level, "tables").with("generation", generation).with("term", now.term));
    }
    events
}

pub(crate) fn of_gateway(before: Option<&GatewayObservation>, now: &GatewayObservation) -> Vec<Event> {
    let mut events = Vec::new();
    for (reason, count) in &now.requests_failed {
        let failed =
            before.and_then(|before| before.requests_failed.iter().find(|(known, _)| known == reason));
        // Requests that the keyspace does not support are the client's error, so they are not
        // warnings.
        let level = if *reason == "refused" { Level::Debug } else { Level::Warn };
        let event = growth(level, "requests-failed", failed.map_or(0, |(_, count)| *count), *count);
        let last = now.recent_failures.iter().rev().find(|failed| failed.reason == *reason);
        events.extend(event.map(|event| {
            let event = event.with("reason", *reason);
            match last {
                Some(last) => event.with("op", op_id(last.op).as_str()),
                None => event,
            }
        }));
    }
    let seen = before.map_or(0, |before| before.recent_failures.last().map_or(0, |last| last.number));
    events.extend(now.recent_failures.iter().filter(|failed| failed.number > seen).map(|failed| {
        let event = Event::new(Level::Debug, "request-failed").with("op", op_id(failed.op).as_str());
        event.with("command", failed.command).with("reason", failed.reason)
    }));
    for counter in GATEWAY_COUNTERS {
        let Some((level, name)) = counter.event else { continue };
        let event = growth(level, name, before.map_or(0, counter.read), (counter.read)(now));
        events.extend(event.map(|event| match name {
            OTHER_VERSION => of_other_version(event, "wire", now.other_release),
            _ => event,
        }));
    }
    for (reason, now_denied) in &now.denied {
        let earlier = before.and_then(|before| before.denied.iter().find(|(known, _)| known == reason));
        let event = growth(Level::Warn, "access-denied", earlier.map_or(0, |(_, count)| *count), *now_denied);
        events.extend(event.map(|event| event.with("reason", *reason)));
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_metadata::HotSwitchStatus;
    use nicekv_proto::{ClientId, Epoch, NodeId, PartitionId, Term};
    use nicekv_replica::{Counters, HotCounters, Latest, OtherRelease, PutStages, ValueCounters};

    fn replica(epoch: u32, standing: Standing, leads: bool) -> NodePartition {
        NodePartition {
            partition: PartitionId(3),
            epoch: Epoch(epoch),
            standing,
            primary: NodeId(1),
            leads,
            open_ops: 0,
            logged: 9,
            released: 9,
            proven: true,
        }
    }

    fn node(term: u64, partition: NodePartition) -> NodeStatus {
        NodeStatus {
            node: NodeId(1),
            term: Term(term),
            counters: Counters::default(),
            puts: PutStages::default(),
            latest: Latest::default(),
            hot: HotCounters::default(),
            values: ValueCounters::default(),
            partitions: vec![partition],
        }
    }

    fn named(events: &[Event]) -> Vec<(Level, &str)> {
        events.iter().map(|event| (event.level, event.name)).collect()
    }

    #[test]
    fn unchanged_state_is_not_logged_and_an_epoch_only_at_debug() {
        let first = node(2, replica(4, Standing::Consistent, false));
        assert_eq!(named(&of_node(None, &first)), [(Level::Info, "term"), (Level::Info, "partition")]);
        assert_eq!(of_node(Some(&first), &first), []);
        let later = node(2, replica(5, Standing::Consistent, false));
        assert_eq!(named(&of_node(Some(&first), &later)), [(Level::Debug, "partition")]);
        let leads = node(2, replica(5, Standing::Consistent, true));
        let events = of_node(Some(&first), &leads);
        assert_eq!(named(&events), [(Level::Info, "partition")]);
        let expected = [("partition", Field::Number(3)), ("epoch", Field::Number(5))];
        assert_eq!(events[0].fields[..2], expected);
        assert!(events[0].fields.contains(&("leads", Field::Flag(true))));
    }

    #[test]
    fn counters_are_logged_with_their_growth_and_place() {
        let first = node(2, replica(4, Standing::Consistent, false));
        let mut later = first.clone();
        later.counters.corrupt = 3;
        let op = OpId { client: ClientId(0xa1), sequence: 7 };
        let place = Place { partition: PartitionId(3), epoch: Epoch(5), op: OpId::NONE };
        later.latest.corrupt = Some(place);
        let events = of_node(Some(&first), &later);
        assert_eq!(named(&events), [(Level::Warn, "values-damaged")]);
        let at = [("count", Field::Number(3)), ("partition", Field::Number(3)), ("epoch", Field::Number(5))];
        assert_eq!(events[0].fields, at);
        let mut full = later.clone();
        full.counters.refused_for_space = 1;
        full.latest.refused_for_space = Some(Place { op, ..place });
        let events = of_node(Some(&later), &full);
        assert_eq!(events[0].fields.last(), Some(&("op", Field::from("00000000000000a1:7"))));
    }

    #[test]
    fn senders_of_other_releases_are_named() {
        let first = node(2, replica(4, Standing::Consistent, false));
        let mut later = first.clone();
        later.counters.other_version = 2;
        let from = "10.20.1.9:7400".parse().unwrap();
        later.latest.other_release = Some(OtherRelease { from, version: 9 });
        let events = of_node(Some(&first), &later);
        assert_eq!(named(&events), [(Level::Warn, OTHER_VERSION)]);
        let told = [
            ("count", Field::Number(2)),
            ("protocol", Field::from("wire")),
            ("from", Field::from("10.20.1.9:7400")),
            ("version", Field::Number(9)),
        ];
        assert_eq!(events[0].fields, told);
    }

    #[test]
    fn each_reason_is_logged_once() {
        let names = |before: Option<&HotStatus>, now: &HotStatus| -> Vec<&str> {
            of_hot(before, Some(now)).iter().map(|event| event.name).collect()
        };
        let off = HotStatus { off: Some("edges".into()), ..HotStatus::default() };
        assert_eq!((names(None, &off), names(Some(&off), &off)), (vec!["hot-keys-off"], vec![]));
        let switch = |failure: Option<&str>, changes| {
            let failure = failure.map(str::to_owned);
            let switch = HotSwitchStatus { failure, changes, ..HotSwitchStatus::default() };
            HotStatus { switches: vec![switch], ..HotStatus::default() }
        };
        let (well, failed, later) = (switch(None, 0), switch(Some("full"), 0), switch(Some("full"), 3));
        assert_eq!(names(Some(&well), &failed), ["hot-keys-failed"]);
        assert_eq!(names(Some(&failed), &later), ["hot-keys-changed"]);
        assert_eq!(of_hot(Some(&later), None), []);
    }
}
