//! A partition of a quorum keyspace at one replica: how it answers, and how a version gets into the
//! engine.
//!
//! ```text
//!   Store ─▶ newer than what is here? ─▶ yes: append to the log ─▶ synced: write to the engine, answer
//!                                     └▶ no: answer when the newer one is synced
//!   Query ─▶ read the engine ─▶ answer
//! ```
//!
//! Invariants:
//! * The engine holds synced versions only, so a query shows nothing that a crash could take away.
//! * The engine of a departing member holds only what its successor holds, or will read from it
//!   (`succession`).
//! * A key's versions go to the engine in log order. That is timestamp order, unless a repair goes
//!   back to an older version that other members hold.

use super::entrusting::{Entrusting, Synced};
use super::parts::{Forgetting, Merge, PendingScan, Repairs};
use super::version::{AwaitedSync, PendingRead, ReadFor, Record, Unsynced, Version, Waiter, timestamp_of};
use crate::modes::bounds::OPEN_OPS_MAX;
use crate::{Host, Map, Membership, PartitionStatus, Standing, Step};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_proto::large::Reference;
use nicekv_proto::quorum::{Content, Quorum, QuorumHeld, QuorumQuery, Timestamp};
use nicekv_proto::recovery::Entry;
use nicekv_proto::{Form, NodeId, Now, OpId, PartitionId, Replication, Status};

/// Work under way on a key.
#[derive(Clone, Default)]
pub(super) struct Key {
    /// Versions that wait until the engine's version has been read.
    pub(super) waiting: Vec<(Version, Waiter)>,
    /// The newest version that is in the log and not in the engine yet, and its log record.
    pub(super) newest: Option<(Timestamp, u64)>,
    /// Serials of synced versions that a successor must hold before they go to the engine.
    pub(super) entrusted: Vec<u64>,
}

/// One partition of a quorum keyspace at one node.
#[derive(Clone)]
pub(crate) struct QuorumPartition {
    pub(crate) membership: Membership,
    /// The keyspace's quorum; `None` until this process is assigned an epoch.
    pub(super) quorum: Option<Quorum>,
    /// Whether this storage is one of the R: it belonged to a member from the beginning, or has
    /// merged enough.
    pub(super) counted: bool,
    /// Whether the record that this storage is counted is in the log and not synced yet.
    pub(super) counting: bool,
    /// Whether this process's answers count, provided that its storage is counted (see
    /// `succession`).
    pub(super) admitted: bool,
    /// `Some` if this node is taking another node's place; inside, the node that leaves, if it is
    /// still a member.
    pub(super) newcomer: Option<Option<NodeId>>,
    pub(super) entrusting: Entrusting,
    pub(super) merge: Option<Merge>,
    pub(super) keys: Map<Box<[u8]>, Key>,
    pub(super) reads: VecDeque<(u64, PendingRead)>,
    pub(super) scans: VecDeque<PendingScan>,
    /// Records that wait for their sync, in log order.
    pub(super) unsynced: VecDeque<Unsynced>,
    pub(super) repairs: Repairs,
    pub(super) forgetting: Forgetting,
    /// The greatest counter of all deletions that were forgotten here.
    pub(super) floor: u64,
    pub(super) epoch_began_ns: u64,
    /// When this replica last requested an epoch after this one.
    pub(super) fence_asked_ns: u64,
    /// No retry happens before this time.
    pub(super) sweep_ns: u64,
}

impl QuorumPartition {
    pub(crate) fn outside(id: PartitionId, host: &Host) -> Self {
        Self {
            membership: Membership::outside(id),
            quorum: None,
            counted: false,
            counting: false,
            admitted: false,
            newcomer: None,
            entrusting: Entrusting::default(),
            merge: None,
            keys: host.map(),
            reads: VecDeque::new(),
            scans: VecDeque::new(),
            unsynced: VecDeque::new(),
            repairs: Repairs::new(),
            forgetting: Forgetting::default(),
            floor: 0,
            epoch_began_ns: 0,
            fence_asked_ns: 0,
            sweep_ns: 0,
        }
    }

    pub(super) fn id(&self) -> PartitionId {
        self.membership.partition
    }

    pub(super) fn learn(&mut self, replication: Replication) {
        if let Replication::Quorum(quorum) = replication {
            self.quorum = Some(quorum);
        }
    }

    /// Whether this replica's answers count.
    pub(super) fn answers(&self) -> bool {
        self.membership.standing != Standing::Outside && self.counted && self.admitted
    }

    /// Whether the bound on work under way is reached. Further stores are then dropped, and clients
    /// retry.
    pub(super) fn is_full(&self) -> bool {
        self.unsynced.len() + self.reads.len() + self.entrusting.held.len() >= OPEN_OPS_MAX
    }

    pub(super) fn tell_status(&self) -> PartitionStatus {
        let standing = match (self.membership.standing, self.counted) {
            (Standing::Outside, _) => Standing::Outside,
            (_, true) => Standing::Consistent,
            (_, false) => Standing::Joining,
        };
        PartitionStatus {
            partition: self.id(),
            epoch: self.membership.epoch,
            standing,
            primary: self.membership.primary,
            leads: false,
            open_ops: self.keys.len(),
            logged: 0,
            released: 0,
            // A quorum replica needs no proof after a start (R18 is about ordered partitions).
            proven: true,
        }
    }

    pub(super) fn finish_read(&mut self, token: u64) -> PendingRead {
        let (expected, read) = self.reads.pop_front().expect("a read is pending");
        assert_eq!(token, expected, "reads complete in order");
        read
    }

    pub(super) fn finish_scan(&mut self, token: u64) -> PendingScan {
        let scan = self.scans.pop_front().expect("a scan is pending");
        assert_eq!(token, scan.token, "scans complete in order");
        scan
    }

    /// Answers a query with the newest version here.
    pub(super) fn on_query(
        &mut self,
        node: &mut Host,
        now: Now,
        QuorumQuery { op, reply_to, wants_value, key, announced, .. }: QuorumQuery<'_>,
        from: SocketAddrV4,
    ) {
        let reply_to = reply_to.unwrap_or(from);
        if !self.answers() || !node.has_lease(now) || self.is_full() {
            node.counters.dropped += 1;
            return;
        }
        if let Some(reference) = announced.map(Reference::checked).filter(|of| of.name == op) {
            self.expect_value(node, now, reference, (None, from), reply_to);
        }
        let token = node.read(self.id(), key);
        let what = ReadFor::Query { op, reply_to, wants_value };
        self.reads.push_back((token, PendingRead { key: key.into(), what }));
    }

    pub(super) fn on_query_read(
        &mut self,
        node: &mut Host,
        now: Now,
        op: OpId,
        reply_to: SocketAddrV4,
        wants_value: bool,
        entry: Option<Entry<'_>>,
    ) {
        if !node.has_lease(now) {
            node.counters.dropped += 1;
            return;
        }
        node.counters.gets += 1;
        let timestamp = entry.as_ref().map_or(Timestamp::NEVER, timestamp_of);
        let is_large = entry.as_ref().is_some_and(|entry| entry.form == Form::Large);
        let content = match entry.and_then(|entry| entry.value) {
            None => Content::Absent,
            Some(_) if !wants_value => Content::Present,
            Some(reference) if is_large => Content::Large(reference),
            Some(value) => Content::Value(value),
        };
        self.answer(node, now, op, reply_to, timestamp, content);
    }

    /// Sends the answer. It names the epoch in which it is sent: the version may not have been
    /// synced in an earlier one.
    fn answer(
        &self,
        node: &mut Host,
        now: Now,
        op: OpId,
        to: SocketAddrV4,
        timestamp: Timestamp,
        content: Content<'_>,
    ) {
        if !self.answers() {
            node.counters.dropped += 1;
            return;
        }
        node.trace.note(now, op, Step::Answered(Status::Ok));
        let (epoch, floor) = (self.membership.epoch, self.floor);
        let held = QuorumHeld { op, node: node.config.node, epoch, timestamp, floor, content };
        node.outbox.send(to, |out| held.encode(out));
    }

    /// Stores a version, unless a newer one is here. If its large value is not on disk, the value
    /// is fetched first, and the waiter has to ask again.
    pub(super) fn take(&mut self, node: &mut Host, now: Now, key: &[u8], version: Version, waiter: Waiter) {
        if !self.has_value(node, &version) {
            node.counters.dropped += 1;
            if matches!(waiter, Waiter::Merge { .. }) {
                self.restart_part(now);
            }
            return;
        }
        match self.keys.get_mut(key) {
            Some(Key { newest: Some(newest), .. }) => {
                let newest = *newest;
                self.keep(node, key, newest, version, waiter);
            }
            Some(state) => state.waiting.push((version, waiter)),
            None => {
                let state = Key { waiting: alloc::vec![(version, waiter)], ..Key::default() };
                self.keys.insert(key.into(), state);
                let token = node.read(self.id(), key);
                self.reads.push_back((token, PendingRead { key: key.into(), what: ReadFor::Newest }));
            }
        }
    }

    /// Whether the large value of a version, if it has one, is on disk. If not, starts fetching it
    /// from another member.
    pub(super) fn has_value(&self, node: &mut Host, version: &Version) -> bool {
        let lacking = version.lacking(node);
        if let Some(reference) = lacking {
            node.storage.want_value(reference, self.id());
        }
        lacking.is_none()
    }

    /// The engine has read a key for which versions wait.
    pub(super) fn on_newest_read(&mut self, node: &mut Host, now: Now, key: &[u8], entry: Option<Entry<'_>>) {
        let durable = entry.as_ref().map_or(Timestamp::NEVER, timestamp_of);
        let waiting = core::mem::take(&mut self.keys.get_mut(key).expect("versions of the key wait").waiting);
        for (version, waiter) in waiting {
            match self.keys[key].newest {
                Some(newest) => self.keep(node, key, newest, version, waiter),
                None if version.timestamp > durable => self.log(node, key, version, waiter),
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

    /// A version of a key, which this replica has promised to hold, cannot be read: it gives no
    /// answer about the key.
    pub(super) fn on_unreadable(&mut self, node: &mut Host, now: Now, key: &[u8], what: &ReadFor) {
        node.counters.dropped += 1;
        match what {
            ReadFor::Newest => {}
            ReadFor::Forgetting { .. } => return self.note_written(key),
            ReadFor::Query { .. } | ReadFor::Repair { .. } | ReadFor::Void => return,
        }
        let state = self.keys.get_mut(key).expect("versions of the key wait");
        let (newest, waiting) = (state.newest, core::mem::take(&mut state.waiting));
        match newest {
            // A replacement for the unreadable version was logged meanwhile.
            Some(_) => waiting.into_iter().for_each(|(version, waiter)| {
                let newest = self.keys[key].newest.expect("as before");
                self.keep(node, key, newest, version, waiter);
            }),
            None => drop(self.keys.remove(key)),
        }
        self.restart_part(now);
    }

    /// Whether a version of a key is on its way to the engine.
    pub(super) fn is_being_written(&self, key: &[u8]) -> bool {
        self.keys.get(key).is_some_and(|state| state.newest.is_some())
    }

    /// Handles a version of a key whose newest version is in the log and not in the engine yet.
    fn keep(
        &mut self,
        node: &mut Host,
        key: &[u8],
        newest: (Timestamp, u64),
        version: Version,
        waiter: Waiter,
    ) {
        if version.timestamp > newest.0 {
            return self.log(node, key, version, waiter);
        }
        let at = self.unsynced.binary_search_by_key(&newest.1, |unsynced| unsynced.record);
        let waiters = match at.map(|at| &mut self.unsynced[at].what) {
            Ok(AwaitedSync::Version { waiters, .. }) => waiters,
            Ok(_) => unreachable!("a version's record"),
            Err(_) => self.waiters_of_entrusted(key),
        };
        waiters.push(waiter);
    }

    pub(super) fn log(&mut self, node: &mut Host, key: &[u8], version: Version, waiter: Waiter) {
        let mut entry = Vec::new();
        version.entry().append(&mut entry);
        let record = node.append_awaited(self.id(), |out| Record::Version { key, entry: &entry }.append(out));
        node.storage.want_sync();
        if let Some(reference) = version.large() {
            node.storage.keep_value(reference, self.id());
        }
        self.keys.get_mut(key).expect("work on the key is under way").newest =
            Some((version.timestamp, record));
        let what = AwaitedSync::Version { key: key.into(), version, waiters: alloc::vec![waiter] };
        self.unsynced.push_back(Unsynced { record, what });
    }

    /// A record of this partition is synced.
    pub(super) fn finish_sync(&mut self, node: &mut Host, now: Now, record: u64) {
        let unsynced = self.unsynced.pop_front().expect("a record is awaited");
        assert_eq!(record, unsynced.record, "syncs complete in order");
        match unsynced.what {
            AwaitedSync::Counted => {
                (self.counted, self.counting) = (true, false);
                self.sweep_ns = 0;
                self.look_over(node, now);
            }
            AwaitedSync::Merged => {
                self.merge.iter_mut().for_each(Merge::end);
                self.sweep_ns = 0;
                self.look_over(node, now);
            }
            AwaitedSync::Void => {}
            AwaitedSync::Forgotten { key } => {
                node.storage.remove(self.id(), &key);
                self.finish_repair(node, &key);
            }
            AwaitedSync::Version { key, version, waiters } => {
                self.on_version_synced(node, now, Synced::new(unsynced.record, key, version, waiters));
            }
        }
    }

    /// Writes a synced version to the engine. From now on it may be acknowledged.
    pub(super) fn write_synced(&mut self, node: &mut Host, now: Now, synced: Synced) {
        let Synced { record, key, version, waiters, .. } = synced;
        node.storage.write(self.id(), &key, |out| version.entry().append(out));
        self.let_go_value(node, &version);
        self.note_written(&key);
        self.finish_repair(node, &key);
        let state = self.keys.get_mut(&key).expect("work on the key is under way");
        if state.newest == Some((version.timestamp, record)) {
            state.newest = None;
            if state.waiting.is_empty() {
                self.keys.remove(&key);
            }
        }
        for waiter in waiters {
            self.tell(node, now, waiter, version.timestamp, version.value.is_some());
        }
    }

    /// A version is no longer under way, so it no longer keeps its large value.
    pub(super) fn let_go_value(&self, node: &mut Host, version: &Version) {
        if let Some(reference) = version.large() {
            node.storage.let_go_value(reference.name, self.id());
        }
    }

    /// This version is durable here: notifies its waiter.
    fn tell(&mut self, node: &mut Host, now: Now, waiter: Waiter, timestamp: Timestamp, present: bool) {
        match waiter {
            Waiter::Client { op, reply_to } => {
                let content = if present { Content::Present } else { Content::Absent };
                node.trace.note(now, op, Step::Synced);
                self.answer(node, now, op, reply_to, timestamp, content);
            }
            Waiter::Merge { round } => self.on_merged(node, now, round),
            Waiter::Tombstone { serial } => self.on_tombstone_held(node, serial),
            Waiter::Predecessor { node: to, serial } => self.tell_entrusted(node, to, serial),
            Waiter::Nobody => {}
        }
    }
}
