//! Ties the parts together: input changes what is observed; at the end of a batch the persisted state is compared with it, and
//! the next state, if any, is sent to be persisted. One such step is in flight at a time.
//!
//! ```text
//!  handle_* ─▶ observed ─┐
//!                        ├─ handle_batch_end ─▶ next state ─▶ poll_storage ─▶ (driver) ─▶ handle_storage ─┐
//!  committed state ──────┘                                                                               │
//!        ▲                                                                                               │
//!        └───────────────────────────────────────────────────────────────────────────────────────────────┘
//!        └─▶ Assign, tables
//! ```

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::net::SocketAddrV4;

use nicekv_dataplane::control::{ControlReply, ControlRequest};
use nicekv_placement::{Partitioning, replica_sets};
use nicekv_wire::control::{
    Assign, AssignAck, Heartbeat, HeartbeatReply, Member as AnnouncedMember, Probe, Report, ReportKind,
};
use nicekv_wire::{Datagram, KeyspaceId, NodeId, Now, PartitionId};
use serde::{Deserialize, Serialize};

use crate::config::{Config, SwitchId, nanoseconds};
use crate::epochs::{self, Observed};
use crate::membership::Membership;
use crate::plant::Plant;
use crate::rules;
use crate::state::{Member, Partition, State, StateError};
use crate::switches::Switches;
use crate::view::{Load, View};
use crate::watch::Watch;

/// Most assignments on their way to one node; more would overrun its socket.
const ASSIGNS_IN_FLIGHT_MAX: usize = 64;
/// Most datagrams that wait to be polled; more are dropped, as by a network.
const TRANSMIT_QUEUE_MAX: usize = 1 << 16;

/// What the driver must do with the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageRequest {
    /// [`crate::StateStore::compare_and_swap`], expecting `version - 1`; then [`Metadata::handle_storage`]. On an error the
    /// driver stops: there is another leader, or no storage.
    Persist {
        /// The version inside `bytes`.
        version: u64,
        /// The state.
        bytes: Vec<u8>,
    },
}

/// A [`StorageRequest::Persist`] was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Persisted {
    /// Of the request.
    pub version: u64,
}

/// Input that was ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Datagrams that are none of ours.
    pub malformed: u64,
    /// Well-formed, but not for a metadata service, or not from a configured node at its configured address.
    pub foreign: u64,
    /// From a process or about an epoch that is past.
    pub stale: u64,
    /// Datagrams that found the transmit queue full.
    pub transmits_dropped: u64,
}

#[derive(Clone)]
enum Message {
    HeartbeatReply(HeartbeatReply),
    Assign(Box<Assign>),
    Probe(Probe),
}

/// The core of the metadata service. One per cluster leads.
#[derive(Clone)]
pub struct Metadata {
    pub(crate) config: Config,
    /// Persisted. All that leaves is a function of it.
    pub(crate) committed: State,
    /// Being persisted.
    in_flight: Option<State>,
    /// Whether `in_flight` has been handed to the driver.
    requested: bool,
    /// The version under which this leader's term is persisted; nothing leaves before.
    first_version: u64,
    /// A leader before may have granted leases that run until then.
    quiet_until_ns: u64,
    /// Until then nobody else can lead.
    leads_until_ns: u64,
    pub(crate) membership: Membership,
    watches: Vec<Watch>,
    pub(crate) switches: Switches,
    /// Processes that do not know yet that they were removed somewhere: they get no lease (R12).
    unaware: BTreeSet<(NodeId, u64)>,
    transmits: VecDeque<(SocketAddrV4, Message)>,
    pub(crate) counters: Counters,
    now_ns: u64,
    tick_at_ns: u64,
    /// Whether there may be something to decide, or to announce.
    observed_change: bool,
    pub(crate) plant: Option<Plant>,
}

impl Metadata {
    /// A leader of a new term, which follows that in `persisted`, the last state if there is one.
    pub fn new(config: Config, persisted: Option<&[u8]>, now: Now) -> Result<Self, StateError> {
        config.validate()?;
        let committed = match persisted {
            Some(bytes) => State::resume(&config, bytes)?,
            None => State::new(&config)?,
        };
        let mut next = committed.clone();
        next.version += 1;
        next.term += 1;
        let has_past = committed.is_bootstrapped();
        let quiet_ns = if has_past { config.timing.lease_wait_ns() } else { 0 };
        Ok(Self {
            membership: Membership::new(&config, next.term, now.boot_ns),
            watches: committed.partitions.iter().map(|_| Watch::dark(now.boot_ns)).collect(),
            switches: Switches::new(&config.switches, nanoseconds(config.timing.switch_interval)),
            first_version: next.version,
            quiet_until_ns: now.boot_ns + quiet_ns,
            leads_until_ns: u64::MAX,
            tick_at_ns: now.boot_ns,
            now_ns: now.boot_ns,
            in_flight: Some(next),
            requested: false,
            unaware: BTreeSet::new(),
            transmits: VecDeque::new(),
            counters: Counters::default(),
            observed_change: false,
            plant: None,
            committed,
            config,
        })
    }

    /// Whether a test has planted this bug.
    #[inline]
    pub(crate) fn has(&self, plant: Plant) -> bool {
        self.plant == Some(plant)
    }

    #[cfg(any(test, feature = "exploration"))]
    pub(crate) fn forget_former_leases(&mut self) {
        self.quiet_until_ns = 0;
        self.membership.forget_former_leases();
    }

    /// Whether this leader's term is persisted, and no other one can have begun. If not, nothing leaves.
    pub fn is_leading(&self) -> bool {
        self.committed.version >= self.first_version && !self.is_overdue()
    }

    /// Nobody else can lead before `until_ns`, by the boot-time clock: the leader's own lease (R12). A leader that was paused past
    /// it finds itself silent. Without this call there is no such limit: that is right where the state is behind a lock
    /// that only the end of the process gives back.
    pub fn handle_leadership(&mut self, now: Now, until_ns: u64) {
        self.now_ns = now.boot_ns;
        self.leads_until_ns = until_ns;
    }

    pub(crate) fn is_overdue(&self) -> bool {
        self.now_ns >= self.leads_until_ns
    }

    /// A datagram arrived. Whatever is not understood is counted and ignored.
    pub fn handle_datagram(&mut self, now: Now, from: SocketAddrV4, bytes: &[u8]) {
        self.now_ns = now.boot_ns;
        let Ok((_, datagram)) = Datagram::decode(bytes) else {
            self.counters.malformed += 1;
            return;
        };
        let node = match &datagram {
            Datagram::Heartbeat(heartbeat) => heartbeat.node,
            Datagram::AssignAck(ack) => ack.node,
            Datagram::Report(report) => report.node,
            Datagram::ProbeReply(reply) => reply.node,
            _ => {
                self.counters.foreign += 1;
                return;
            }
        };
        if self.config.node(node).is_none_or(|node| node.address != from) {
            self.counters.foreign += 1;
            return;
        }
        if !self.is_leading() {
            return;
        }
        match datagram {
            Datagram::Heartbeat(heartbeat) => self.handle_heartbeat(from, &heartbeat),
            Datagram::AssignAck(ack) => self.handle_ack(&ack),
            Datagram::Report(report) => self.handle_report(&report),
            Datagram::ProbeReply(reply) => {
                self.membership.handle_probe_reply(self.now_ns, &reply);
                self.observed_change = true;
            }
            _ => {}
        }
    }

    /// The state is persisted: its messages may leave.
    pub fn handle_storage(&mut self, now: Now, persisted: Persisted) {
        self.now_ns = now.boot_ns;
        let next = self.in_flight.take().expect("only what is in flight is persisted");
        assert_eq!(next.version, persisted.version, "steps are persisted one by one");
        self.adopt(next);
    }

    /// From now on everything that leaves follows from `next`.
    fn adopt(&mut self, next: State) {
        let before = core::mem::replace(&mut self.committed, next);
        self.watches.resize_with(self.committed.partitions.len(), Watch::default);
        let partitions = before.partitions.iter().zip(&self.committed.partitions);
        for (watch, (old, new)) in self.watches.iter_mut().zip(partitions) {
            watch.handle_change(old, new, self.now_ns);
        }
        let removed = self.committed.partitions.iter().flat_map(|partition| &partition.removed);
        self.unaware = removed.map(|removed| (removed.node, removed.incarnation)).collect();
        if self.committed.is_bootstrapped() {
            self.switches.set_tables(rules::compile(&self.config, &self.committed, 0));
        }
        self.observed_change = true;
    }

    /// The deadline has passed.
    pub fn handle_deadline(&mut self, now: Now) {
        self.now_ns = now.boot_ns;
        if self.next_deadline().is_none_or(|deadline_ns| self.now_ns < deadline_ns) {
            return;
        }
        self.tick_at_ns = self.now_ns + self.config.timing.tick_ns();
        if self.is_leading() {
            self.membership.tick(self.now_ns);
            self.observed_change = true;
        }
    }

    /// No more input for now: decides and announces.
    pub fn handle_batch_end(&mut self, now: Now) {
        self.now_ns = now.boot_ns;
        if core::mem::take(&mut self.observed_change) {
            self.decide();
            self.announce();
        }
        for (node, nonce) in self.membership.take_probes() {
            let probe = Probe { term: self.committed.term(), nonce };
            self.transmit(node, Message::Probe(probe));
        }
    }

    /// The agent of a switch can be talked to.
    pub fn handle_switch_connected(&mut self, now: Now, switch: SwitchId) {
        self.now_ns = now.boot_ns;
        self.switches.handle_connected(switch);
    }

    /// It cannot any more.
    pub fn handle_switch_disconnected(&mut self, now: Now, switch: SwitchId) {
        self.now_ns = now.boot_ns;
        self.switches.handle_disconnected(switch);
    }

    /// The agent of a switch answered, over its newest connection.
    pub fn handle_switch(&mut self, now: Now, switch: SwitchId, reply: ControlReply) {
        self.now_ns = now.boot_ns;
        self.switches.handle_reply(self.now_ns, switch, self.committed.term, reply);
        self.observed_change = true;
    }

    /// The next datagram to send: writes it to `out` and returns where it goes.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<SocketAddrV4> {
        if self.is_overdue() {
            self.transmits.clear();
        }
        let (address, message) = self.transmits.pop_front()?;
        match message {
            Message::HeartbeatReply(message) => message.encode(out),
            Message::Assign(message) => message.encode(out),
            Message::Probe(message) => message.encode(out),
        }
        Some(address)
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
        self.switches.poll(self.now_ns, self.committed.term)
    }

    /// When to call [`Metadata::handle_deadline`], by the boot-time clock.
    pub fn next_deadline(&self) -> Option<u64> {
        let suspicion_ns = if self.is_leading() { self.membership.next_suspicion_ns() } else { None };
        Some(self.tick_at_ns.min(suspicion_ns.unwrap_or(u64::MAX)))
    }

    fn handle_heartbeat(&mut self, from: SocketAddrV4, heartbeat: &Heartbeat) {
        let Heartbeat { node, incarnation, sent_ns, .. } = *heartbeat;
        self.membership.handle_heartbeat(self.now_ns, heartbeat);
        let is_entitled =
            self.membership.is_live(node, incarnation) && !self.unaware.contains(&(node, incarnation));
        let may_serve =
            (is_entitled || self.has(Plant::LeaseToRemoved)) && self.now_ns >= self.quiet_until_ns;
        let lease_ns = if may_serve { nanoseconds(self.config.timing.lease) } else { 0 };
        if may_serve && is_entitled {
            self.membership.grant(node, self.now_ns);
        }
        let reply = HeartbeatReply { term: self.committed.term(), incarnation, sent_ns, lease_ns };
        self.push(from, Message::HeartbeatReply(reply));
    }

    fn handle_ack(&mut self, ack: &AssignAck) {
        let current = self.committed.partition(ack.partition);
        let possible = current.is_some_and(|partition| ack.epoch <= partition.epoch());
        if !possible || !self.membership.is_live(ack.node, ack.incarnation) {
            self.counters.stale += 1;
            return;
        }
        self.observed_change |= self.watches[ack.partition.position()].handle_ack(ack);
    }

    fn handle_report(&mut self, report: &Report) {
        let Report { node, incarnation, partition: id, epoch, kind } = *report;
        let partition = self
            .committed
            .partition(id)
            .filter(|partition| partition.epoch() == epoch && self.membership.is_live(node, incarnation));
        let is_member = |node| partition.is_some_and(|partition| partition.member(node).is_some());
        let (reporter, accused) = (
            is_member(node),
            match kind {
                ReportKind::CopyDone => true,
                ReportKind::Accuse(accused) => accused != node && is_member(accused),
            },
        );
        if !reporter || !accused {
            self.counters.stale += 1;
            return;
        }
        let watch = &mut self.watches[id.position()];
        match kind {
            ReportKind::CopyDone => {
                self.observed_change |= watch.handle_copy_done(node, incarnation, epoch.0);
            }
            ReportKind::Accuse(accused) => {
                let since_ns = watch.accuse(node, accused, self.now_ns, &self.config.timing);
                // The accuser too: one that does not hear accuses everybody.
                for suspect in [accused, node] {
                    if !self.membership.is_proven_since(suspect, since_ns) {
                        self.membership.probe(suspect, self.now_ns);
                    }
                }
            }
        }
    }

    fn decide(&mut self) {
        if self.in_flight.is_some() || !self.is_leading() {
            return;
        }
        let next = if self.committed.is_bootstrapped() { self.decide_partitions() } else { self.bootstrap() };
        if let Some(mut next) = next {
            next.version += 1;
            if self.has(Plant::SpeakBeforePersisted) {
                self.adopt(next.clone());
            }
            self.in_flight = Some(next);
            self.requested = false;
        }
    }

    /// When every node is there, all of them empty, the partitions come into being.
    fn bootstrap(&self) -> Option<State> {
        let mut processes = BTreeMap::new();
        for &node in &self.committed.nodes {
            processes.insert(node, self.membership.live(node)?);
        }
        let partitioning = Partitioning::new(self.committed.partition_bits).expect("checked at the start");
        let sets = replica_sets(&self.committed.nodes, partitioning, self.config.replicas);
        let sets = sets.expect("the configuration has enough nodes").into_iter();
        let partitions = sets.map(|set| epochs::first(set, |node| processes[&node])).collect();
        Some(State { partitions, ..self.committed.clone() })
    }

    fn decide_partitions(&mut self) -> Option<State> {
        let mut load = self.load();
        let mut changes = Vec::new();
        for index in 0..self.committed.partitions.len() {
            let is_settled = self.settle(index);
            let partition = &self.committed.partitions[index];
            let view = View { load: Some(&load), ..self.view(index, self.now_ns) };
            let epoch = if is_settled { epochs::next_epoch(partition, &view) } else { None };
            let expelled = view
                .expelled()
                .filter(|node| epoch.as_ref().is_some_and(|next| next.member(*node).is_none()));
            let Some(next) = epoch.or_else(|| epochs::next_step(partition, &view)) else { continue };
            load.replace(partition, &next);
            if let Some(node) = expelled {
                let until_ns = self.now_ns + nanoseconds(self.config.timing.rejoin_delay);
                self.watches[index].bar(node, until_ns);
            }
            changes.push((index, next));
        }
        if changes.is_empty() {
            return None;
        }
        let mut state = self.committed.clone();
        for (index, next) in changes {
            state.partitions[index] = next;
        }
        Some(state)
    }

    fn load(&self) -> Load {
        let mut load = Load::default();
        for (index, partition) in self.committed.partitions.iter().enumerate() {
            load.add(partition, epochs::all_acknowledged(partition, &self.view(index, self.now_ns)));
        }
        load
    }

    fn settle(&mut self, index: usize) -> bool {
        let partition = &self.committed.partitions[index];
        let view = self.view(index, self.now_ns);
        let has_live_consistent = epochs::has_live_consistent(partition, &view);
        let all_live = partition.members.iter().all(|member| view.live(member.node).is_some());
        let is_whole = epochs::is_whole(partition) && all_live;
        let watch = &mut self.watches[index];
        watch.note_whole(is_whole, self.now_ns);
        watch.settle(has_live_consistent, all_live, self.now_ns, &self.config.timing)
    }

    /// Sends every live member, and every former one that does not know, the newest epoch until it is acknowledged.
    fn announce(&mut self) {
        let mut outstanding: BTreeMap<NodeId, usize> = BTreeMap::new();
        let interval_ns = nanoseconds(self.config.timing.heartbeat);
        for index in 0..self.committed.partitions.len() {
            for (node, incarnation) in self.uninformed(index) {
                let outstanding = outstanding.entry(node).or_default();
                if *outstanding == ASSIGNS_IN_FLIGHT_MAX {
                    continue;
                }
                *outstanding += 1;
                if self.watches[index].is_outstanding(node, self.now_ns, interval_ns) {
                    continue;
                }
                self.watches[index].handle_sent(node, self.now_ns);
                let assign = self.assign(index, incarnation);
                self.transmit(node, Message::Assign(Box::new(assign)));
            }
        }
    }

    /// Live processes that have not acknowledged what the partition is now.
    fn uninformed(&self, index: usize) -> Vec<(NodeId, u64)> {
        let partition = &self.committed.partitions[index];
        let members = partition.members.iter();
        let members = members.filter(|member| !self.has_acknowledged(index, partition, member));
        let members = members.map(|member| (member.node, member.process.incarnation));
        let removed = partition.removed.iter().filter(|removed| {
            let is_member = partition.member(removed.node).is_some();
            let known = self.watches[index].acknowledged(removed.node, removed.incarnation);
            !is_member && known.is_none_or(|known| known.epoch < removed.since)
        });
        let removed = removed.map(|removed| (removed.node, removed.incarnation));
        members
            .chain(removed)
            .filter(|(node, incarnation)| self.membership.is_live(*node, *incarnation))
            .collect()
    }

    pub(crate) fn has_acknowledged(&self, index: usize, partition: &Partition, member: &Member) -> bool {
        let known = self.watches[index].acknowledged(member.node, member.process.incarnation);
        known.is_some_and(|known| (known.epoch, known.activated) == (partition.epoch, partition.activated))
    }

    fn assign(&self, index: usize, incarnation: u64) -> Assign {
        let partition = &self.committed.partitions[index];
        let (id, partitioning) = (PartitionId(index as u32), self.committed.partitioning());
        let member = |member: &Member| AnnouncedMember {
            node: member.node,
            state: member.standing.announced(),
            handoff: member.handoff,
            address: self.config.node(member.node).expect("members are configured").address,
        };
        Assign {
            term: self.committed.term(),
            incarnation,
            partition: id,
            keyspace: KeyspaceId::DEFAULT,
            range: partitioning.range(id),
            replication: self.committed.replication(),
            multicast: self.config.vrings.multicast_vnode(partitioning.first_vnode(id)),
            epoch: partition.epoch(),
            activated: partition.activated,
            primary: partition.primary,
            replicas: self.committed.replicas,
            members: partition.members.iter().map(member).collect(),
        }
    }

    fn transmit(&mut self, node: NodeId, message: Message) {
        let address = self.config.node(node).expect("only configured nodes are addressed").address;
        self.push(address, message);
    }

    fn push(&mut self, address: SocketAddrV4, message: Message) {
        if self.transmits.len() < TRANSMIT_QUEUE_MAX {
            self.transmits.push_back((address, message));
        } else {
            self.counters.transmits_dropped += 1;
        }
    }

    pub(crate) fn view(&self, index: usize, now_ns: u64) -> View<'_> {
        let (partition, watch) = (&self.committed.partitions[index], &self.watches[index]);
        View { metadata: self, partition, watch, load: None, now_ns }
    }
}
