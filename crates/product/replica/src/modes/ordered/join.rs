//! Joining a partition (R7, R8): the joiner's side. A joiner takes part in puts at once, and copies
//! what was decided without it.
//!
//! ```text
//!   joiner                           primary                    source: a ready handoff, else the primary
//!     │◀── watermark: base ─────────────│
//!     │─── Begin: my history ──────────▶│  once its recovery is complete
//!     │◀── since: we agree so far ──────│
//!     │─── Clients ────────────────────▶│
//!     │─── Entries since, after key ────────────────────────────▶│
//!     │◀── entries, tombstones ─────────────────────────────────│
//! ```
//!
//! Invariants:
//! * Of the decisions up to `since`, a joiner holds all effects that were not overwritten later. So
//!   it needs exactly the entries written after `since`. An interrupted copy does not change that,
//!   because a copy only adds newer entries.
//! * What the joiner logged beyond `since` before it left is void. Uncontended effects of such
//!   decisions may be in its engine. A primary that held the prepare has decided the same op again
//!   after `since` (R3), with the same outcome, so the copy overwrites these effects.
//! * Contended decisions up to `since` that the joiner had not shown take effect now, because all
//!   members had synced them.
//! * Effects that arrive before `since` is known are kept back, because the engine may have to be
//!   emptied first.
//! * The copy and new decisions write at the same time. The joiner notes the keys that decisions
//!   write, and a copied entry never overwrites a newer one.
//! * Copied entries are logged before they are written, so a replay of the log restores them by
//!   itself.
//!
//! The copy is complete when the joiner could continue alone from its disk:
//! * Every decision whose effect may be in the copy is synced in its log. Otherwise the joiner, as
//!   a primary, could evaluate an op on that op's own result.
//! * No op is open that it accepted before it had the client records: the op's datagram may be a
//!   late duplicate of an op that was finished before. The primary tells the joiner to drop such
//!   ops (`decide_expired`).
//!
//! A handoff keeps the partition in a space of its own, which it empties when it joins, and copies
//! what some original may lack. A newcomer does the same and copies everything: while it was no
//! original, deletions that it has not seen may have been dropped.

use super::copy_frames::{Begun, EntriesChunk};
use super::history::History;
use super::joiner::{Former, Join, Step, stored};
use super::partition::{Agreement, OrderedPartition};
use super::record::Record;
use super::waits::AwaitedSync;
use crate::modes::bounds::{COPY_CHUNK_BYTES, UNRELEASED_MAX};
use crate::{DiskSpace, Host, Standing, StreamPeer};
use alloc::boxed::Box;
use alloc::vec::Vec;
use nicekv_proto::bytes::Reader;
use nicekv_proto::control::{MemberRole, ReportKind};
use nicekv_proto::recovery::{CopyFrame, CopySection, Entry, put_keyed_entry, read_keyed_entry};
use nicekv_proto::{DecodeError, Epoch, Now};

impl<A> OrderedPartition<A>
where
    Self: Agreement,
{
    /// Starts to take part in the epoch as a joiner.
    pub(crate) fn start_join(&mut self, host: &mut Host) {
        let role = self.membership.role(host.config.node);
        let afresh = matches!(role, Some(MemberRole::Newcomer | MemberRole::Handoff));
        let record = Record::Join { afresh };
        host.append(self.id(), |out| record.append(out));
        self.set_aside(host, afresh);
        self.join = Some(Join::new(host.map(), self.membership.primary));
    }

    /// Sets aside what this replica held before it joins; with `afresh`, discards it for good. Open
    /// ops and decisions become void; entries stay. Replaying the log does the same.
    pub(crate) fn set_aside(&mut self, host: &mut Host, afresh: bool) {
        let sequence = self.sequence.take();
        let ops = self.give_up_ops(host);
        self.clients.clear();
        self.keep_named(host);
        self.waits.reset();
        let former = match self.former.take() {
            _ if afresh => Former::through(host, 0, History::default()),
            Some(former) => former,
            None => Former::of(sequence, ops),
        };
        self.former = Some(former);
    }

    /// Joiner: the base of the epoch is known. Everything decided up to it comes with the copy.
    pub(crate) fn start_after(&mut self, host: &mut Host, now: Now, base: u64) {
        let record = Record::Released { through: base };
        host.append(self.id(), |out| record.append(out));
        host.storage.want_sync();
        self.sequence.skip_to(base);
        self.tell_progress(host, false);
        self.ask_for_part(host, now);
    }

    /// Joiner: requests the next part of the copy.
    fn ask_for_part(&mut self, host: &mut Host, now: Now) {
        let Some(join) = &mut self.join else { return };
        join.note_asked(now);
        let Some((section, after)) = join.next_part() else { return };
        let mut held = Vec::new();
        let ((source, since), after) = match section {
            CopySection::Begin => {
                self.former.as_ref().expect("a joiner is not complete").append(&mut held);
                ((self.membership.primary, 0), &held[..])
            }
            CopySection::Clients => ((self.membership.primary, 0), after),
            // The remaining disk space is reserved for decisions.
            CopySection::Entries if host.disk_space != DiskSpace::Enough => return,
            CopySection::Entries => (join.source(), after),
        };
        if let Some(at_ns) = host.copies.pause(now) {
            join.pause();
            return host.arm_sweep_at(at_ns);
        }
        let (joiner, partition) = (host.config.node, self.membership.partition);
        let epoch = self.membership.epoch;
        let request = CopyFrame::Request { joiner, partition, epoch, section, since, after };
        let address = self.membership.address(source).expect("a source is a member");
        host.send_frame(StreamPeer::Dialed(address), &request);
    }

    /// Joiner: requests or reports again what is overdue.
    pub(crate) fn sweep_join(&mut self, host: &mut Host, now: Now) {
        let retry_ns = host.config.timing.copy_retry.as_nanos() as u64;
        let Some(join) = &mut self.join else { return };
        if self.sequence.base().is_none() {
            return self.report_gap(host, now);
        }
        match join.next_step(now, retry_ns, self.membership.primary) {
            Step::Ask => self.ask_for_part(host, now),
            Step::Report => self.report_copied(host, now),
            Step::Wait => {}
        }
    }

    /// Reports to the metadata service that the copy is complete, if it is.
    fn report_copied(&mut self, host: &mut Host, now: Now) {
        let Some(join) = &mut self.join else { return };
        let lacks = host.storage.lacks_values(self.membership.partition);
        if !lacks && join.is_complete(self.sequence.synced(), self.locks.oldest_undecided()) {
            join.note_asked(now);
            host.report(self.id(), self.membership.epoch, ReportKind::CopyDone);
        }
    }

    /// Joiner: a part of the copy has arrived.
    pub(crate) fn take_copy_chunk(
        &mut self,
        host: &mut Host,
        now: Now,
        epoch: Epoch,
        section: CopySection,
        more: bool,
        payload: &[u8],
    ) {
        let expected = self.join.as_ref().and_then(Join::next_part).map(|(section, _)| section);
        if self.membership.standing != Standing::Joining
            || epoch != self.membership.epoch
            || expected != Some(section)
        {
            return;
        }
        let taken = match section {
            CopySection::Begin => self.take_begun(host, payload),
            CopySection::Clients => self.take_clients(host, more, payload),
            CopySection::Entries => {
                host.copies.take(now, payload.len(), host.config.timing.copy_bytes_per_second);
                self.take_entries(host, payload)
            }
        };
        let Ok(after) = taken else {
            host.counters.malformed += 1;
            return;
        };
        let next = match (section, more) {
            (_, true) => Some((section, after)),
            (CopySection::Begin, false) => Some((CopySection::Clients, Vec::new())),
            (CopySection::Clients, false) => Some((CopySection::Entries, Vec::new())),
            (CopySection::Entries, false) => None,
        };
        match next {
            Some((section, after)) => {
                self.join.as_mut().expect("checked above").go_on(section, after);
                self.ask_for_part(host, now);
            }
            None => self.complete_copy(host),
        }
    }

    /// The primary's first answer: up to which decision this replica agrees with it.
    fn take_begun(&mut self, host: &mut Host, payload: &[u8]) -> Result<Vec<u8>, DecodeError> {
        let begun = Begun::read(payload)?;
        let source = self.membership.position(begun.source).map_or(self.membership.primary, |_| begun.source);
        let join = self.join.as_mut().expect("checked by the caller");
        let kept = join.begin(source, begun.entries_since, begun.covers);
        let mut history = Vec::new();
        begun.history.append(&mut history);
        let (since, floor) = (begun.since, begun.floor());
        let record = Record::Begin { since, floor, history: &history };
        host.append(self.id(), |out| record.append(out));
        // These effects are shown now. They are logged like copied entries, because a replay of
        // `Begin` after a checkpoint would find nothing set aside.
        let former = self.former.as_ref().expect("a joiner is not complete");
        let shown = former.effects_through(since).filter(|(key, _)| !kept.contains_key(*key));
        let mut entries: Vec<(Box<[u8]>, Vec<u8>)> =
            shown.map(|(key, entry)| (key.into(), stored(&entry))).collect();
        self.begin(host, since, floor, begun.history, |key| kept.contains_key(key));
        entries.extend(kept);
        let mut copied = Vec::new();
        for (key, entry) in &entries {
            put_keyed_entry(&mut copied, key, entry);
            if copied.len() >= COPY_CHUNK_BYTES {
                self.write_copied(host, &copied)?;
                copied.clear();
            }
        }
        self.write_copied(host, &copied)?;
        Ok(Vec::new())
    }

    /// It is known up to which decision this replica agrees with the primary: everything up to
    /// `since` stays, and nothing after it counts. Replaying the log does the same, except that it
    /// may show more decisions; the copied entries that follow in the log then overwrite the keys
    /// for which `newer` returns true.
    pub(crate) fn begin(
        &mut self,
        host: &mut Host,
        since: u64,
        floor: u64,
        history: History,
        newer: impl Fn(&[u8]) -> bool,
    ) {
        let former = self.former.take().expect("a joiner is not complete");
        if since == 0 {
            self.contents.clear(host);
        }
        for (key, entry) in former.effects_through(since).filter(|(key, _)| !newer(key)) {
            self.contents.store(host, key, &entry);
        }
        self.former = Some(Former::through(host, since, history.clone()));
        self.sequence.prepend_history(history);
        self.contents.set_floor(floor);
        match floor {
            0 => self.contents.recent_mut().forget_after(since),
            // A handoff lacks what was decided up to its floor, for as long as it is one.
            _ => self.contents.recent_mut().begin_after(floor),
        }
    }

    fn take_clients(&mut self, host: &mut Host, more: bool, payload: &[u8]) -> Result<Vec<u8>, DecodeError> {
        let end = self.clients.import(payload)?;
        self.keep_named(host);
        if !more {
            self.join.as_mut().expect("checked by the caller").end_clients(host.storage.appended());
        }
        let record = Record::Clients { payload };
        host.append(self.id(), |out| record.append(out));
        Ok(end.to_bytes().to_vec())
    }

    fn take_entries(&mut self, host: &mut Host, payload: &[u8]) -> Result<Vec<u8>, DecodeError> {
        let chunk = EntriesChunk::read(payload)?;
        let join = self.join.as_mut().expect("checked by the caller");
        join.cover(chunk.covers, chunk.through);
        let mut copied = Vec::new();
        let mut reader = Reader::new(chunk.entries);
        while !reader.is_empty() {
            let (key, entry) = read_keyed_entry(&mut reader)?;
            let index = Entry::decode(entry)?.index;
            if join.is_newer(key, index) {
                put_keyed_entry(&mut copied, key, entry);
            }
        }
        self.write_copied(host, &copied)?;
        Ok(chunk.after.to_vec())
    }

    /// Logs copied entries and writes them to the engine.
    fn write_copied(&mut self, host: &mut Host, payload: &[u8]) -> Result<(), DecodeError> {
        if payload.is_empty() {
            return Ok(());
        }
        let record = Record::Copied { payload };
        host.append(self.id(), |out| record.append(out));
        self.store_copied(host, payload)
    }

    pub(crate) fn store_copied(&mut self, host: &mut Host, payload: &[u8]) -> Result<(), DecodeError> {
        let mut reader = Reader::new(payload);
        while !reader.is_empty() {
            let (key, entry) = read_keyed_entry(&mut reader)?;
            self.contents.store(host, key, &Entry::decode(entry)?);
        }
        Ok(())
    }

    fn complete_copy(&mut self, host: &mut Host) {
        let join = self.join.as_mut().expect("checked by the caller");
        join.end_copy(host.map());
        (self.former, self.is_proven) = (None, true);
        let record = host.append_awaited(self.id(), |out| Record::Complete.append(out));
        host.storage.want_sync();
        self.waits.sync(record, AwaitedSync::Copy);
    }

    /// Joiner: all copied entries are durable.
    pub(crate) fn on_copy_synced(&mut self, host: &mut Host, now: Now) {
        let Some(join) = &mut self.join else { return };
        join.end_syncing();
        self.report_copied(host, now);
    }

    /// Joiner: whether so many effects are kept back that the copy must start before the joiner
    /// accepts further decisions.
    pub(crate) fn keeps_too_much(&self) -> bool {
        self.join.as_ref().is_some_and(|join| join.kept_back() >= UNRELEASED_MAX)
    }

    /// Reports a gap to the primary (in a chain: to the predecessor), which then sends what this
    /// member missed. At most once per quarter of a resend timeout.
    pub(crate) fn report_gap(&mut self, host: &mut Host, now: Now) {
        let pause_ns = host.config.timing.resend.as_nanos() as u64 / 4;
        if self.reporting.take_gap(now, pause_ns) {
            self.tell_progress(host, true);
        }
    }
}
