//! The leader. Input changes the observations. At the end of a batch the persisted state is
//! compared with them, and the next state, if there is one, is sent to be persisted. One such step
//! is in progress at a time.
//!
//! ```text
//!  handle_* ─▶ observed ─┐
//!                        ├─ handle_batch_end ─▶ next state ─▶ poll_storage ─▶ (driver) ─▶ handle_storage ─┐
//!  committed state ──────┘                                                                               │
//!        ▲                                                                                               │
//!        └───────────────────────────────────────────────────────────────────────────────────────────────┘
//!        └─▶ Assign, tables
//! ```

use alloc::vec::Vec;
use core::net::SocketAddrV4;

use nicekv_proto::control::{Heartbeat, HeartbeatReply, Probe};
use nicekv_proto::directory::DirectoryQuery;
use nicekv_proto::placement::Directory;
use nicekv_proto::{Datagram, NodeId, Now};
use nicekv_switch::Matching;
use nicekv_switch::control::{ControlReply, ControlRequest};

use crate::announce::{self, Announcement, Message, Outbox, rules};
use crate::config::{Config, SwitchId, nanoseconds};
use crate::decide::{Decision, decide};
use crate::hot::HotKeys;
use crate::observe::{Observations, Stale};
use crate::probation::Probation;
use crate::state::{State, StateError};
use crate::status::Counters;
use crate::targets::Targets;
use crate::view::{Observed, Situation, has_live_consistent};

/// Interval at which the durable log positions of nodes are persisted, if they have changed. If a
/// storage loses data that are newer than that, only its peers detect it (R18).
const REMEMBER_INTERVAL_NS: u64 = 500_000_000;

/// A request to the driver about the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageRequest {
    /// Call [`crate::StateStore::compare_and_swap`], expecting `version - 1`; then
    /// [`Metadata::handle_storage`]. On an error the driver stops: another instance leads, or the
    /// store has failed.
    Persist {
        /// The version of the state in `bytes`.
        version: u64,
        /// The encoded state.
        bytes: Vec<u8>,
    },
}

/// A [`StorageRequest::Persist`] was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Persisted {
    /// The version of the request.
    pub version: u64,
}

/// The core of the metadata service. Each cluster has one leader.
#[derive(Clone)]
pub struct Metadata {
    pub(crate) config: Config,
    /// The persisted state. Everything that is sent is derived from it.
    pub(crate) committed: State,
    /// The state that is being persisted.
    in_flight: Option<State>,
    /// Whether `in_flight` has been handed to the driver.
    requested: bool,
    /// Whether `in_flight` differs only in the durable log positions of storages.
    only_remembers: bool,
    /// When durable log positions were last persisted.
    remembered_ns: u64,
    /// The version that persists this leader's term. Nothing is sent before it is persisted.
    first_version: u64,
    /// No other instance can lead before this time.
    leads_until_ns: u64,
    pub(crate) observations: Observations,
    targets: Targets,
    outbox: Outbox,
    /// The directory of `committed`, built when it is first needed.
    directory: Option<Directory>,
    pub(crate) hot: HotKeys,
    pub(crate) probation: Probation,
    pub(crate) counters: Counters,
    now_ns: u64,
    tick_at_ns: u64,
    /// Whether observations have changed, so that there may be something to decide or to announce.
    observed_change: bool,
}

impl Metadata {
    /// A leader with a new term. `persisted`: the last state, if there is one; the new term follows
    /// its term.
    pub fn new(config: Config, persisted: Option<&[u8]>, now: Now) -> Result<Self, StateError> {
        config.validate()?;
        let committed = match persisted {
            Some(bytes) => State::resume(&config, bytes)?,
            None => State::new(&config),
        };
        let mut targets = Targets::default();
        targets.update(&committed);
        let config = Config { nodes: committed.node_configs(), ..config };
        config.validate()?;
        let mut next = committed.clone();
        next.version += 1;
        next.term += 1;
        Ok(Self {
            observations: Observations::new(&config, &committed, next.term, now.boot_ns),
            first_version: next.version,
            leads_until_ns: u64::MAX,
            tick_at_ns: now.boot_ns,
            now_ns: now.boot_ns,
            in_flight: Some(next),
            requested: false,
            only_remembers: false,
            remembered_ns: now.boot_ns,
            targets,
            outbox: Outbox::default(),
            directory: None,
            hot: HotKeys::new(committed.term + 1, now.boot_ns),
            probation: Probation::default(),
            counters: Counters::default(),
            observed_change: false,
            committed,
            config,
        })
    }

    /// Whether this leader's term is persisted, and no other leader can have begun. Otherwise
    /// nothing is sent.
    pub fn is_leading(&self) -> bool {
        self.committed.version >= self.first_version && !self.is_overdue()
    }

    /// Sets the leader's own lease (R12): no other instance can lead before `until_ns`, on the
    /// boot-time clock. A leader that was paused past it sends nothing. Without this call there is
    /// no such limit; that is right if a lock protects the state until the process ends.
    pub fn handle_leadership(&mut self, now: Now, until_ns: u64) {
        self.now_ns = now.boot_ns;
        self.leads_until_ns = until_ns;
    }

    /// The version of the persisted state.
    pub fn version(&self) -> u64 {
        self.committed.version
    }

    /// Whether this leader's lease has ended, so that another instance may lead (R12).
    pub fn is_overdue(&self) -> bool {
        self.now_ns >= self.leads_until_ns
    }

    /// Handles a datagram. Invalid datagrams are counted and ignored.
    pub fn handle_datagram(&mut self, now: Now, from: SocketAddrV4, bytes: &[u8]) {
        self.now_ns = now.boot_ns;
        let Ok((_, datagram)) = Datagram::decode(bytes) else {
            self.counters.malformed += 1;
            return;
        };
        if let Datagram::DirectoryQuery(query) = &datagram {
            return self.on_directory_query(from, query);
        }
        let node = match &datagram {
            Datagram::Heartbeat(heartbeat) => heartbeat.node,
            Datagram::AssignAck(ack) => ack.node,
            Datagram::Report(report) => report.node,
            Datagram::ProbeReply(reply) => reply.node,
            Datagram::Usage(usage) => usage.node,
            Datagram::Sources(sources) => sources.node,
            Datagram::Heat(heat) => heat.node,
            _ => {
                self.counters.foreign += 1;
                return;
            }
        };
        if self.config.node(node).is_none_or(|node| node.address != from) {
            self.counters.forged += 1;
            return;
        }
        if !self.is_leading() {
            return;
        }
        self.take(from, &datagram);
    }

    /// Answers a node's directory query.
    fn on_directory_query(&mut self, from: SocketAddrV4, query: &DirectoryQuery) {
        if !self.config.nodes.iter().any(|node| node.address == from) {
            self.counters.forged += 1;
        } else if self.is_leading() {
            let directory =
                &*self.directory.get_or_insert_with(|| announce::directory::compile(&self.committed));
            let mut page = Vec::new();
            directory.answer(query, &mut page);
            self.push(from, Message::Directory(page));
        }
    }

    /// Records the contents of a node's datagram.
    fn take(&mut self, from: SocketAddrV4, datagram: &Datagram<'_>) {
        let (now_ns, observations) = (self.now_ns, &mut self.observations);
        let news = match datagram {
            Datagram::Heartbeat(heartbeat) => {
                let lease_ns = observations.handle_heartbeat(now_ns, heartbeat);
                self.reply(from, heartbeat, lease_ns);
                Ok(false)
            }
            Datagram::AssignAck(ack) => observations.handle_ack(&self.committed, ack),
            Datagram::Usage(usage) => observations.handle_usage(now_ns, usage).map(|()| false),
            Datagram::Sources(sources) => {
                observations.handle_sources(&self.committed, sources).map(|()| false)
            }
            Datagram::Heat(heat) => observations.handle_heat(&self.committed, heat).map(|()| false),
            Datagram::Report(report) => observations.handle_report(&self.committed, now_ns, report),
            Datagram::ProbeReply(reply) => {
                observations.handle_probe_reply(now_ns, reply);
                Ok(true)
            }
            _ => Ok(false),
        };
        match news {
            Ok(news) => self.observed_change |= news,
            Err(Stale) => self.counters.stale += 1,
        }
    }

    fn reply(&mut self, to: SocketAddrV4, heartbeat: &Heartbeat, lease_ns: u64) {
        let Heartbeat { incarnation, sent_ns, .. } = *heartbeat;
        let reply = HeartbeatReply { term: self.committed.term(), incarnation, sent_ns, lease_ns };
        self.push(to, Message::HeartbeatReply(reply));
    }

    /// The state has been persisted, so messages that depend on it may be sent.
    pub fn handle_storage(&mut self, now: Now, persisted: Persisted) {
        self.now_ns = now.boot_ns;
        let next = self.in_flight.take().expect("only what is in flight is persisted");
        assert_eq!(next.version, persisted.version, "steps are persisted one by one");
        if core::mem::take(&mut self.only_remembers) {
            // No message depends on durable log positions.
            self.committed = next;
            self.observed_change = true;
            return;
        }
        self.adopt(next);
    }

    /// Makes `next` the committed state.
    fn adopt(&mut self, next: State) {
        let before = core::mem::replace(&mut self.committed, next);
        self.directory = None;
        if before.nodes != self.committed.nodes {
            self.config.nodes = self.committed.node_configs();
        }
        self.targets.update(&self.committed);
        self.observations.handle_change(&before, &self.committed, self.now_ns);
        // With trunks, tables are needed even before there are partitions: they open the trunks,
        // without which nodes could not be reached. An OpenFlow switch without tables forwards nothing
        // at all.
        let carries_nothing = self.config.topology.has_trunks() || self.config.matching == Matching::Headers;
        if self.committed.is_bootstrapped() || carries_nothing {
            let tables = rules::compile(&self.config, &self.committed);
            self.observations.switches.settle(&self.config.nodes);
            self.observations.switches.set_tables(tables);
        }
        self.probation.handle_tables(self.committed.version, self.observations.switches.generation());
        self.observed_change = true;
    }

    /// Handles the deadline of [`Self::next_deadline`].
    pub fn handle_deadline(&mut self, now: Now) {
        self.now_ns = now.boot_ns;
        if self.next_deadline().is_none_or(|deadline_ns| self.now_ns < deadline_ns) {
            return;
        }
        self.tick_at_ns = self.now_ns + self.config.timing.tick_ns();
        if self.is_leading() {
            self.observations.membership.tick(self.now_ns);
            self.observations.switches.reroute(self.now_ns);
            self.tick_hot();
            self.observed_change = true;
        }
    }

    /// Ends a batch of input: decides and announces.
    pub fn handle_batch_end(&mut self, now: Now) {
        self.now_ns = now.boot_ns;
        if core::mem::take(&mut self.observed_change) {
            if self.observations.contradiction.is_some() {
                self.persist_contradiction();
            } else {
                self.decide();
                self.announce();
            }
        }
        for (node, nonce) in self.observations.membership.take_probes() {
            let probe = Probe { term: self.committed.term(), nonce };
            self.transmit(node, Message::Probe(probe));
        }
    }

    /// Handles a new connection to a switch's agent.
    pub fn handle_switch_connected(&mut self, now: Now, switch: SwitchId) {
        self.now_ns = now.boot_ns;
        self.observations.switches.handle_connected(switch);
        self.hot.handle_connected(switch);
    }

    /// Handles the loss of the connection to a switch's agent.
    pub fn handle_switch_disconnected(&mut self, now: Now, switch: SwitchId) {
        self.now_ns = now.boot_ns;
        self.observations.switches.handle_disconnected(switch);
        self.hot.handle_disconnected(switch);
    }

    /// Handles a reply that a switch's agent sent over its newest connection.
    pub fn handle_switch(&mut self, now: Now, switch: SwitchId, reply: ControlReply) {
        self.now_ns = now.boot_ns;
        if !self.observations.switches.is_connected(switch) {
            self.counters.forged += 1;
            return;
        }
        if let ControlReply::HotChanged { .. } | ControlReply::HotFailed { .. } | ControlReply::Hot { .. } =
            reply
        {
            return self.handle_hot(switch, &reply);
        }
        self.observations.switches.handle_reply(self.now_ns, switch, self.committed.term, reply);
        self.observed_change = true;
    }

    /// Writes the next datagram to `out` and returns its destination.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<SocketAddrV4> {
        if self.is_overdue() {
            self.outbox.clear();
        }
        self.outbox.pop(out)
    }

    /// The next storage request.
    pub fn poll_storage(&mut self) -> Option<StorageRequest> {
        let state = self.in_flight.as_ref().filter(|_| !self.requested)?;
        self.requested = true;
        Some(StorageRequest::Persist { version: state.version, bytes: state.encode() })
    }

    /// The next request to a connected switch agent.
    pub fn poll_switch(&mut self) -> Option<(SwitchId, ControlRequest)> {
        if !self.is_leading() {
            return None;
        }
        let request = self.observations.switches.poll(self.now_ns, self.committed.term);
        request.or_else(|| self.poll_hot())
    }

    /// When to call [`Metadata::handle_deadline`], on the boot-time clock.
    pub fn next_deadline(&self) -> Option<u64> {
        let suspicion_ns =
            if self.is_leading() { self.observations.membership.next_suspicion_ns() } else { None };
        Some(self.tick_at_ns.min(suspicion_ns.unwrap_or(u64::MAX)))
    }

    /// Everything on which a decision may depend.
    pub(crate) fn situation(&self) -> Situation<'_> {
        let Self { config, committed, observations, targets, now_ns, .. } = self;
        Situation { config, state: committed, observations, targets, now_ns: *now_ns, moves_wait: false }
    }

    /// Compares the state with the observations, and begins the next step.
    fn decide(&mut self) {
        if self.in_flight.is_some() || !self.is_leading() {
            return;
        }
        self.settle();
        if let Some(state) = self.rolled_back() {
            return self.begin_step(state);
        }
        let mut decision = decide(&self.situation());
        if decision.as_ref().is_some_and(|decision| self.overflows(&decision.state)) {
            // Failovers need no additional table capacity; only moves do.
            let mut situation = self.situation();
            situation.moves_wait = true;
            decision = decide(&situation);
        }
        self.observations.loads.turn(self.now_ns, nanoseconds(self.config.timing.divide_interval));
        let Some(Decision { state, expelled, divided_by_load }) = decision else {
            return if self.is_remembering_due() { self.remember_storages() } else { self.balance() };
        };
        self.observations.loads.divided += divided_by_load as u64;
        let until_ns = self.now_ns + nanoseconds(self.config.timing.rejoin_delay);
        for (id, node) in expelled {
            self.observations.watch_mut(id).bar(node, until_ns);
        }
        self.begin_step(state);
    }

    fn is_remembering_due(&self) -> bool {
        self.now_ns >= self.remembered_ns + REMEMBER_INTERVAL_NS
            && self.observations.storages != self.committed.storages
    }

    /// Begins to persist the durable log positions of nodes, without other changes.
    fn remember_storages(&mut self) {
        self.remembered_ns = self.now_ns;
        let mut next = self.committed.clone();
        next.version += 1;
        next.storages.clone_from(&self.observations.storages);
        self.begin_step(next);
        self.only_remembers = true;
    }

    /// The state is an older copy: begins to persist only that fact.
    fn persist_contradiction(&mut self) {
        let contradiction = self.observations.contradiction;
        if self.in_flight.is_none() && self.is_leading() && self.committed.contradiction != contradiction {
            let mut next = self.committed.clone();
            (next.version, next.contradiction) = (next.version + 1, contradiction);
            self.begin_step(next);
        }
    }

    pub(crate) fn has_step_in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Begins to persist the next state.
    pub(crate) fn begin_step(&mut self, next: State) {
        (self.in_flight, self.requested) = (Some(next), false);
    }

    /// Updates, for every partition, which of its members are live.
    fn settle(&mut self) {
        for (id, partition) in self.committed.partitions() {
            let situation = self.situation();
            let view = situation.view(id, partition);
            let has_live_consistent = has_live_consistent(partition, &view);
            let all_live = partition.members.iter().all(|member| view.live(member.node).is_some());
            let is_whole = partition.is_whole() && all_live;
            let watch = self.observations.watch_mut(id);
            watch.note_whole(is_whole, self.now_ns);
            watch.settle(has_live_consistent, all_live, self.now_ns, &self.config.timing);
        }
    }

    /// Sends the persisted state to nodes and switches that have not acknowledged it.
    fn announce(&mut self) {
        for Announcement { node, assign } in announce::due(&self.situation()) {
            self.observations.watch_mut(assign.partition).handle_sent(node, self.now_ns);
            self.transmit(node, Message::Assign(assign.into()));
        }
        for Announcement { node, assign } in announce::due_discards(&self.situation()) {
            self.observations.watch_mut(assign.partition).handle_discard_sent(node, self.now_ns);
            self.transmit(node, Message::Assign(assign.into()));
        }
        for (node, stray) in core::mem::take(&mut self.observations.strays) {
            if let Some(Announcement { node, assign }) = announce::for_stray(&self.situation(), node, &stray)
            {
                self.transmit(node, Message::Assign(assign.into()));
            }
        }
    }

    fn transmit(&mut self, node: NodeId, message: Message) {
        let address = self.config.node(node).expect("only configured nodes are addressed").address;
        self.push(address, message);
    }

    pub(crate) fn push(&mut self, address: SocketAddrV4, message: Message) {
        if !self.outbox.push(address, message) {
            self.counters.transmits_dropped += 1;
        }
    }
}
