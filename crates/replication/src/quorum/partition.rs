//! A partition at one replica: what it answers, and how a version gets to the engine.
//!
//! ```text
//!   Store ─▶ what is newest here? ─▶ newer: append to the log ─▶ forced: write to the engine, answer
//!                                 └▶ not newer: answer when the newer one is forced
//!   Query ─▶ read the engine ─▶ answer
//! ```
//!
//! Invariants: the engine holds forced versions only, so a query tells of nothing that a crash could take away; a key's records stand
//! in the log in the order of their timestamps.

use super::merge::Merge;
use super::{Node, PendingRead, QuorumPlant, Record, Unforced, UnforcedWhat, Version, Waiter, timestamp_of};
use crate::full::DiskSpace;
use crate::partition::Standing;
use crate::replica::PartitionStatus;
use crate::shared::{Map, Shared};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_wire::control::{Assign, Member, MemberState, Report, ReportKind};
use nicekv_wire::quorum::{Content, QuorumHeld, QuorumQuery, QuorumStore, Timestamp};
use nicekv_wire::recovery::Entry;
use nicekv_wire::{Epoch, NodeId, Now, OpId, PartitionId};

/// What is under way on a key.
#[derive(Default)]
struct Key {
    /// Wait for the engine's version to be read.
    waiting: Vec<(Version, Waiter)>,
    /// The newest version in the log that is not known to be forced, and its record.
    newest: Option<(Timestamp, u64)>,
}

pub(super) struct Partition {
    pub(super) id: PartitionId,
    pub(super) epoch: Epoch,
    pub(super) activated: bool,
    /// Of the epoch; `None`: this node is no member.
    pub(super) state: Option<MemberState>,
    pub(super) members: Vec<Member>,
    /// This storage is one of the R: it has been a member from the beginning, or has merged enough.
    pub(super) counted: bool,
    /// Its record is in the log and not yet forced.
    counting: bool,
    pub(super) merge: Option<Merge>,
    keys: Map<Box<[u8]>, Key>,
    primary: NodeId,
}

impl Partition {
    pub(super) fn new(id: PartitionId, shared: &Shared) -> Self {
        Self {
            id,
            epoch: Epoch(0),
            activated: false,
            state: None,
            members: Vec::new(),
            counted: false,
            counting: false,
            merge: None,
            keys: shared.map(),
            primary: NodeId(0),
        }
    }

    /// Whether what it says counts.
    pub(super) fn answers(&self) -> bool {
        self.state.is_some() && self.counted
    }

    pub(super) fn status(&self) -> PartitionStatus {
        let standing = match (self.state, self.counted) {
            (None, _) => Standing::Outside,
            (Some(_), true) => Standing::Consistent,
            (Some(_), false) => Standing::Joining,
        };
        PartitionStatus {
            partition: self.id,
            epoch: self.epoch,
            standing,
            primary: self.primary,
            leads: false,
            open_ops: self.keys.len(),
            logged: 0,
            released: 0,
        }
    }

    /// Takes up an epoch; whether it is to be acknowledged.
    pub(super) fn on_assign(&mut self, node: &mut Node, now: Now, assign: &Assign) -> bool {
        if assign.epoch < self.epoch {
            return false;
        }
        let is_new = assign.epoch > self.epoch;
        (self.epoch, self.primary) = (assign.epoch, assign.primary);
        self.activated = assign.activated || (self.activated && !is_new);
        self.members.clone_from(&assign.members);
        // A handoff would be one too many: R is fixed.
        let mine = self.members.iter().find(|member| member.node == node.shared.config.node);
        self.state = mine.filter(|member| !member.handoff).map(|member| member.state);
        if self.state == Some(MemberState::Consistent) || node.has(QuorumPlant::NewcomerCountsAtOnce) {
            // Only storage that was counted, or one of a cluster that has never been, is told so.
            self.count(node);
        }
        if is_new {
            self.sweep(node, now);
        }
        true
    }

    /// Writes down that this storage counts.
    pub(super) fn count(&mut self, node: &mut Node) {
        if self.counted || core::mem::replace(&mut self.counting, true) {
            return;
        }
        let record = node.shared.storage.append(|out| Record::Counted { partition: self.id }.append(out));
        node.shared.storage.want_force();
        node.unforced.push_back(Unforced { record, partition: self.id, what: UnforcedWhat::Counted });
    }

    /// What is to be done again while this node is on its way to be a full member.
    pub(super) fn sweep(&mut self, node: &mut Node, now: Now) {
        if self.state != Some(MemberState::Joining) {
            self.merge = None;
            return;
        }
        if self.counted {
            let (kind, config) = (ReportKind::CopyDone, &node.shared.config);
            let (name, incarnation) = (config.node, config.incarnation);
            let (partition, epoch) = (self.id, self.epoch);
            node.shared.report(Report { node: name, incarnation, partition, epoch, kind });
        } else {
            self.resume_merge(node, now);
        }
        let at_ns = now.after(node.shared.config.timing.copy_retry);
        node.shared.sweep_at_ns.get_or_insert(at_ns);
    }

    /// What does this replica hold?
    pub(super) fn on_query(
        &mut self,
        node: &mut Node,
        now: Now,
        query: &QuorumQuery<'_>,
        reply_to: SocketAddrV4,
    ) {
        if !self.answers() || !node.shared.has_lease(now) || node.is_full() {
            node.shared.counters.dropped += 1;
            return;
        }
        let token = node.shared.storage.read(self.id, query.key);
        let (partition, op, wants_value) = (self.id, query.op, query.wants_value);
        node.reads.push_back((token, PendingRead::Query { partition, op, reply_to, wants_value }));
    }

    pub(super) fn on_query_read(
        &mut self,
        node: &mut Node,
        now: Now,
        op: OpId,
        reply_to: SocketAddrV4,
        wants_value: bool,
        entry: Option<Entry<'_>>,
    ) {
        if !node.shared.has_lease(now) {
            node.shared.counters.dropped += 1;
            return;
        }
        node.shared.counters.gets += 1;
        let timestamp = entry.as_ref().map_or(Timestamp::NEVER, timestamp_of);
        let content = match entry.and_then(|entry| entry.value) {
            None => Content::Absent,
            Some(value) if wants_value => Content::Value(value),
            Some(_) => Content::Present,
        };
        self.answer(node, op, reply_to, timestamp, content);
    }

    /// The answer names the epoch in which it leaves: in an earlier one the version may not have been durable.
    fn answer(
        &self,
        node: &mut Node,
        op: OpId,
        to: SocketAddrV4,
        timestamp: Timestamp,
        content: Content<'_>,
    ) {
        if !self.answers() {
            node.shared.counters.dropped += 1;
            return;
        }
        let held = QuorumHeld { op, node: node.shared.config.node, epoch: self.epoch, timestamp, content };
        node.shared.outbox.send(to, |out| held.encode(out));
    }

    /// Hold this version. A newcomer takes it in, too, and keeps silent.
    pub(super) fn on_store(
        &mut self,
        node: &mut Node,
        now: Now,
        store: &QuorumStore<'_>,
        reply_to: SocketAddrV4,
    ) {
        let has_room = match node.shared.disk_space {
            DiskSpace::Enough => true,
            DiskSpace::Reserve => store.value.is_none(),
            DiskSpace::Exhausted => false,
        };
        if self.state.is_none() || node.is_full() || !has_room {
            node.shared.counters.dropped += 1;
            return;
        }
        let version = Version { timestamp: store.timestamp, value: store.value.map(Box::from) };
        self.take(node, now, store.key, version, Waiter::Client { op: store.op, reply_to });
    }

    /// Takes a version in, unless a newer one is held.
    pub(super) fn take(&mut self, node: &mut Node, now: Now, key: &[u8], version: Version, waiter: Waiter) {
        match self.keys.get_mut(key) {
            Some(Key { newest: Some(newest), .. }) => {
                let newest = *newest;
                self.keep(node, now, key, newest, version, waiter);
            }
            Some(state) => state.waiting.push((version, waiter)),
            None => {
                let state = Key { waiting: alloc::vec![(version, waiter)], newest: None };
                self.keys.insert(key.into(), state);
                let token = node.shared.storage.read(self.id, key);
                node.reads.push_back((token, PendingRead::Newest { partition: self.id, key: key.into() }));
            }
        }
    }

    /// The engine's version of a key has been read.
    pub(super) fn on_newest_read(&mut self, node: &mut Node, now: Now, key: &[u8], entry: Option<Entry<'_>>) {
        let durable = entry.as_ref().map_or(Timestamp::NEVER, timestamp_of);
        let waiting = core::mem::take(&mut self.keys.get_mut(key).expect("it waits").waiting);
        for (version, waiter) in waiting {
            match self.keys[key].newest {
                Some(newest) => self.keep(node, now, key, newest, version, waiter),
                None if version.timestamp > durable => self.log(node, now, key, version, waiter),
                None => {
                    let present = entry.is_some_and(|entry| entry.value.is_some());
                    self.tell(node, now, waiter, durable, present);
                }
            }
        }
        if self.keys[key].newest.is_none() {
            self.keys.remove(key);
        }
    }

    /// The engine's version of a key cannot be read: those who wait for it get no answer.
    pub(super) fn forget(&mut self, key: &[u8]) {
        self.keys.remove(key);
    }

    /// A version of a key whose newest one is not yet forced.
    fn keep(
        &mut self,
        node: &mut Node,
        now: Now,
        key: &[u8],
        newest: (Timestamp, u64),
        version: Version,
        waiter: Waiter,
    ) {
        if version.timestamp > newest.0 {
            return self.log(node, now, key, version, waiter);
        }
        let at = node.unforced.binary_search_by_key(&newest.1, |unforced| unforced.record);
        let unforced = &mut node.unforced[at.expect("its record is not forced")];
        let UnforcedWhat::Version { waiters, .. } = &mut unforced.what else {
            unreachable!("a version's record")
        };
        waiters.push(waiter);
    }

    fn log(&mut self, node: &mut Node, now: Now, key: &[u8], version: Version, waiter: Waiter) {
        let mut entry = Vec::new();
        version.entry().append(&mut entry);
        let partition = self.id;
        let append = |out: &mut Vec<u8>| Record::Version { partition, key, entry: &entry }.append(out);
        let record = node.shared.storage.append(append);
        node.shared.storage.want_force();
        self.keys.get_mut(key).expect("it is under way").newest = Some((version.timestamp, record));
        let mut waiters = alloc::vec![waiter];
        if node.has(QuorumPlant::AckBeforeForce) {
            let waiter = waiters.pop().expect("just put there");
            self.tell(node, now, waiter, version.timestamp, version.value.is_some());
        }
        let what = UnforcedWhat::Version { key: key.into(), version, waiters };
        node.unforced.push_back(Unforced { record, partition, what });
    }

    /// A record is durable.
    pub(super) fn on_forced(&mut self, node: &mut Node, now: Now, unforced: Unforced) {
        match unforced.what {
            UnforcedWhat::Counted => {
                (self.counted, self.counting) = (true, false);
                self.sweep(node, now);
            }
            UnforcedWhat::Version { key, version, waiters } => {
                node.shared.storage.write(self.id, &key, |out| version.entry().append(out));
                if self.keys[&key].newest == Some((version.timestamp, unforced.record)) {
                    self.keys.remove(&key);
                }
                for waiter in waiters {
                    self.tell(node, now, waiter, version.timestamp, version.value.is_some());
                }
            }
        }
    }

    /// This version is durable here.
    fn tell(&mut self, node: &mut Node, now: Now, waiter: Waiter, timestamp: Timestamp, present: bool) {
        match waiter {
            Waiter::Client { op, reply_to } => {
                let content = if present { Content::Present } else { Content::Absent };
                self.answer(node, op, reply_to, timestamp, content);
            }
            Waiter::Merge { round } => self.on_merged(node, now, round),
        }
    }
}
