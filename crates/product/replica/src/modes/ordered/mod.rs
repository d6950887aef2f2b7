//! The common part of two-phase commit and chains: one sequence of decisions that all members log
//! and apply (rules R1 to R18, T1 to T6).
//!
//! [`OrderedPartition`] consists of parts that own its state. A mode adds its own state, and
//! implements [`Agreement`] where the shared code depends on the mode. Read in this order:
//!
//! 1. `partition`: the parts, and what a mode has to define.
//! 2. The parts, each independent of the others' internals: `locks` (open ops, locked keys),
//!    `sequence` (decisions) with `history`, `contents` (the engine) with `recent` and `agenda`,
//!    `clients` (at most once), `lead` (a primary's state), `joiner`, `repairs`, `reporting`,
//!    `waits`.
//! 3. The path of an op. `open_ops`: it becomes open. `decide`: the primary orders it; `evaluate`
//!    and `transaction` determine its effect. `apply`: the decision is logged, takes effect, and is
//!    released.
//! 4. Reads: `get`, `scan` with `pieces`, `expiry`.
//! 5. Changes of members. `epoch`: recovery. `join` and `copy`: what a returning member has missed.
//!    `replay` with `record`: the log.
//! 6. `repair`: damaged values. `scrub` with `compare`: members that differ. `reshape`: splits and
//!    merges.

pub(crate) mod agenda;
pub(crate) mod apply;
pub(crate) mod clients;
pub(crate) mod compare;
pub(crate) mod contents;
pub(crate) mod copy;
pub(crate) mod copy_frames;
pub(crate) mod decide;
pub(crate) mod epoch;
pub(crate) mod evaluate;
pub(crate) mod expiry;
pub(crate) mod get;
pub(crate) mod history;
pub(crate) mod join;
pub(crate) mod joiner;
pub(crate) mod judge_transaction;
pub(crate) mod lead;
pub(crate) mod locks;
pub(crate) mod number_map;
pub(crate) mod open_ops;
pub(crate) mod partition;
pub(crate) mod pieces;
pub(crate) mod recent;
pub(crate) mod record;
pub(crate) mod repair;
pub(crate) mod repairs;
pub(crate) mod replay;
pub(crate) mod reporting;
pub(crate) mod reshape;
pub(crate) mod scan;
pub(crate) mod script;
pub(crate) mod scrub;
pub(crate) mod sequence;
pub(crate) mod transaction;
pub(crate) mod waits;

use crate::modes::entry::decode_entry;
use crate::{CopyChunk, CopyRequest, Host, Page, PartitionStatus, Standing, stored_entries};
use alloc::vec::Vec;
use evaluate::KeyValue;
use nicekv_proto::recovery::Entry;
use nicekv_proto::repair::KeyState;
use nicekv_proto::{DecodeError, Epoch, Now, Replication};
pub(crate) use partition::{Agreement, OrderedPartition};
use record::Record;
use waits::PendingRead;

/// Whether this record is of the log of an ordered partition.
pub(crate) fn is_record(record: &[u8]) -> bool {
    Record::decode(record).is_ok()
}

/// Whether the partitions of a keyspace in this mode agree on a sequence of decisions.
pub(crate) fn is_ordered(replication: Replication) -> bool {
    matches!(replication, Replication::Multicast | Replication::Chain)
}

impl<A> OrderedPartition<A>
where
    Self: Agreement,
{
    pub(crate) fn epoch_min(&self) -> Epoch {
        if self.membership.epoch > Epoch::default() {
            return self.membership.epoch;
        }
        let former = self.former.as_ref().and_then(|former| former.history.newest());
        Epoch(self.sequence.history().newest().max(former).map_or(0, |newest| newest.0 + 1))
    }

    pub(crate) fn replay(
        &mut self,
        host: &mut Host,
        now: Now,
        number: u64,
        record: &[u8],
    ) -> Result<(), DecodeError> {
        self.take_record(host, now, number, &Record::decode(record)?)
    }

    pub(crate) fn on_copy_request(&mut self, host: &mut Host, _: Now, request: CopyRequest<'_>) {
        let CopyRequest { peer, joiner, section, since, after } = request;
        self.serve_copy(host, peer, joiner, section, since, after);
    }

    pub(crate) fn on_copy_chunk(&mut self, host: &mut Host, now: Now, chunk: CopyChunk<'_>) {
        self.take_copy_chunk(host, now, chunk.epoch, chunk.section, chunk.more, chunk.payload);
    }

    pub(crate) fn on_read(&mut self, host: &mut Host, now: Now, token: u64, entry: Option<&[u8]>) {
        match self.waits.finish_read(token) {
            PendingRead::Get { get, key, changes } => {
                self.on_get_read(host, now, get, (&key, changes), entry.map(decode_entry));
            }
            PendingRead::Evaluate { key } => {
                let value = entry.map(decode_entry).as_ref().and_then(KeyValue::from_entry);
                self.on_state_read(host, now, token, &key, value);
            }
            PendingRead::Repair { epoch, to, asked, key } => {
                let state = entry.map_or(KeyState::Absent, KeyState::Stored);
                self.on_repair_read(host, now, (epoch, to, asked), &key, state);
            }
        }
    }

    pub(crate) fn on_read_corrupt(&mut self, host: &mut Host, now: Now, token: u64) {
        match self.waits.finish_read(token) {
            PendingRead::Get { get, key, .. } => self.on_get_corrupt(host, now, get, &key),
            PendingRead::Evaluate { key } => self.on_state_corrupt(host, now, token, &key),
            PendingRead::Repair { epoch, to, asked, key } => {
                self.on_repair_read(host, now, (epoch, to, asked), &key, KeyState::Corrupt);
            }
        }
    }

    pub(crate) fn on_scanned(&mut self, host: &mut Host, now: Now, token: u64, page: Page<'_>) {
        let scan = self.waits.finish_scan(token, self.membership.epoch);
        // A copy must not omit damaged entries: repair them, and let the joiner ask again.
        self.begin_repairs(host, now, page.corrupt);
        if let Some(purpose) = scan.filter(|_| page.corrupt.is_empty()) {
            self.take_page(host, now, purpose, &page);
        }
    }

    pub(crate) fn wants_scrub(&self, now: Now) -> bool {
        self.is_primary() && self.contents.agenda().needs_pass(now)
    }

    pub(crate) fn before_scrub(&mut self, now: Now, is_first: bool) -> bool {
        if self.is_primary() && self.contents.agenda().is_saturated(now) {
            return false;
        }
        if is_first {
            self.contents.agenda_mut().begin_pass();
        }
        true
    }

    pub(crate) fn on_scrubbed(&mut self, host: &mut Host, now: Now, after: Option<&[u8]>, page: Page<'_>) {
        self.begin_repairs(host, now, page.corrupt);
        if self.membership.standing == Standing::Consistent {
            self.list(host, after, &page);
        }
        let may_drop = host.disk_space != crate::DiskSpace::Exhausted;
        for (key, entry) in stored_entries(page.entries) {
            let entry: Entry<'_> = decode_entry(entry);
            if !host.storage.is_written_since_scan(key) {
                self.contents.agenda_mut().note_found(key, &entry);
            }
            if may_drop && entry.value.is_none() {
                self.drop_old_tombstone(host, key, entry.index);
            }
        }
    }

    pub(crate) fn on_scrub_lost(&mut self) {
        self.contents.agenda_mut().break_pass();
    }

    pub(crate) fn checkpoint(&self, host: &mut Host) {
        self.append_open(host);
    }

    pub(crate) fn reconsider(&mut self, host: &mut Host, now: Now, key: &[u8]) {
        if self.is_primary() {
            self.decide_key(host, now, key);
        }
    }

    pub(crate) fn holds_through(&self, index: u64) -> bool {
        self.former.is_none() && self.sequence.logged() >= index
    }

    pub(crate) fn hand_over(&self, host: &mut Host) -> Vec<Vec<u8>> {
        self.log_end(host);
        self.client_records()
    }

    pub(crate) fn give_up(&mut self, host: &mut Host) {
        for op in self.give_up_ops(host).into_keys() {
            host.finish_internal(op);
        }
        self.clients.clear();
        self.keep_named(host);
        host.visibility.unknown(self.id());
    }

    pub(crate) fn status(&self) -> PartitionStatus {
        PartitionStatus {
            partition: self.id(),
            epoch: self.membership.epoch,
            standing: self.membership.standing,
            primary: self.membership.primary,
            leads: self.lead.as_ref().is_some_and(|lead| lead.is_ready()),
            open_ops: self.locks.count(),
            logged: self.sequence.logged(),
            released: self.sequence.released(),
            proven: self.is_proven,
        }
    }

    /// Drops a tombstone that the scrub has found, if every original member holds the deletion.
    fn drop_old_tombstone(&self, host: &mut Host, key: &[u8], index: u64) {
        let is_held = self.membership.is_whole() && index <= self.sequence.released();
        if is_held && !host.storage.is_written_since_scan(key) {
            host.storage.remove(self.id(), key);
        }
    }
}

mod fingerprint {
    use super::clients::ExportCursor;
    use super::{Agreement, OrderedPartition};
    use crate::Standing;
    use core::hash::{Hash, Hasher};

    impl<A> OrderedPartition<A>
    where
        Self: Agreement,
    {
        pub(crate) fn fingerprint_wait(&self, record: u64, state: &mut impl Hasher) {
            self.waits.fingerprint(record, state);
        }

        pub(crate) fn fingerprint(&self, state: &mut impl Hasher) {
            let membership = &self.membership;
            (membership.epoch, membership.activated, membership.primary).hash(state);
            (membership.standing == Standing::Consistent).hash(state);
            membership.members.iter().for_each(|member| member.node.hash(state));
            let recovered_through = self.lead.as_ref().map_or(0, |lead| lead.recovered_through());
            self.locks.fingerprint(recovered_through, state);
            self.sequence.fingerprint(state);
            self.clients.export(ExportCursor::START, usize::MAX).0.hash(state);
            self.contents.fingerprint(state);
            (self.reporting.is_pending(), self.is_proven).hash(state);
            self.fingerprint_mode(state);
            self.lead.as_ref().inspect(|lead| lead.fingerprint(state));
        }

        pub(crate) fn check_invariants(&self) -> Result<(), &'static str> {
            self.sequence.check_invariants()?;
            self.locks.check_invariants()
        }
    }
}
