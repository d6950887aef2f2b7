//! Joining a partition (R7, R8): the joiner's side. It takes part in puts at once, and copies what was decided without it.
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
//! * A joiner holds, of the decisions up to `since`, all that no later decision has overwritten. So it needs exactly the entries that were
//!   written after `since`. That stays true when the copy is broken off: a copy only adds newer entries.
//! * What it logged beyond `since` in its former life is void. An uncontended effect of that kind may be in its engine; the same op has
//!   been decided again after `since` by a primary that held its prepare (R3), with the same outcome, so the copy overwrites it.
//! * Contended decisions up to `since` that it had not shown are shown now: they were forced by all.
//! * What takes effect before `since` is known is kept back, because the engine may have to be emptied first.
//! * Both the copy and the decisions write; the joiner notes what decisions have written, and a copied entry never overwrites a newer one.
//! * Everything that is copied is logged before it is written. Replaying the log therefore needs no other knowledge.
//!
//! The copy is complete when the joiner could go on alone from what it holds on disk:
//! * every decision whose effect may be in the copy is in its log, durably. Else it could, as a primary, evaluate an op on its own result;
//! * no op is open that it took in before it had the deduplication records: that may be a datagram from the past, of an op that was
//!   finished before the joiner's time. The primary says so (`decide_expired`).
//!
//! A handoff keeps the partition in a space of its own, which it empties when it joins; it copies what some original may lack.

use crate::config::COPY_CHUNK_BYTES;
use crate::copy::{Begun, EntriesChunk};
use crate::entries::effect;
use crate::history::History;
use crate::partition::{Decided, Op, Partition};
use crate::record::Record;
use crate::waits::{Unforced, UnforcedWhat};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use nicekv_node::{DiskSpace, Host, Map, Plant, Standing, StreamPeer};
use nicekv_wire::bytes::{Reader, put};
use nicekv_wire::control::ReportKind;
use nicekv_wire::recovery::{CopyFrame, CopySection, Entry, put_keyed_entry, read_keyed_entry};
use nicekv_wire::{DecodeError, Epoch, NodeId, Now, OpId};
use zerocopy::network_endian::U64;

/// What a replica that is not complete held before it joined.
#[derive(Clone)]
pub(crate) struct Former {
    pub(crate) logged: u64,
    pub(crate) history: History,
    /// Logged and not known to be held by all.
    pub(crate) decisions: VecDeque<Decided>,
    ops: Map<OpId, Op>,
    /// Whether a primary has said that it has all of it, too.
    pub(crate) compared: bool,
}

impl Former {
    /// Of a replica that may hold anything up to `since` and nothing of use beyond.
    pub(crate) fn through(host: &Host, since: u64, mut history: History) -> Self {
        history.truncate(since);
        Self { logged: since, history, decisions: VecDeque::new(), ops: host.map(), compared: true }
    }

    /// The effects of decisions up to `since` that were not shown.
    fn effects_through(&self, since: u64) -> impl Iterator<Item = (&[u8], Entry<'_>)> {
        let known = self.decisions.iter().take_while(move |decided| decided.index <= since);
        known.filter(|decided| decided.contended).filter_map(|decided| {
            let update = self.ops.get(&decided.op)?.stored.update();
            Some((update.key, effect(decided, &update)?))
        })
    }

    /// What the primary is told.
    fn append(&self, out: &mut Vec<u8>) {
        put(out, &U64::from(self.logged));
        self.history.append(out);
    }

    /// Reads what [`Self::append`] wrote: the last decision, and where it and those before come from.
    pub(crate) fn read(bytes: &[u8]) -> Result<(u64, History), DecodeError> {
        let mut reader = Reader::new(bytes);
        let logged: U64 = reader.layout("last decision of a joiner")?;
        Ok((logged.get(), History::read(&mut reader)?))
    }
}

#[derive(Clone)]
enum Stage {
    /// Waits to hear what it has in common with the primary; what takes effect meanwhile is kept here, encoded.
    Beginning {
        kept: BTreeMap<Box<[u8]>, Vec<u8>>,
    },
    /// Asking for this part, after this cursor.
    Copying {
        section: CopySection,
        after: Vec<u8>,
    },
    /// Everything is logged and written; waits for the log to be durable.
    Forcing,
    Done,
}

/// The joiner's side of a copy.
#[derive(Clone)]
pub(crate) struct Join {
    /// Keys that decisions of this epoch have written, and by which.
    written: Map<Box<[u8]>, u64>,
    stage: Stage,
    asked_ns: u64,
    /// Entries are asked of this member.
    source: NodeId,
    /// Those written after this decision.
    since: u64,
    /// Decisions up to this one may have effects in the copy.
    covers: u64,
    /// Ops that were logged up to this record were not compared with the deduplication records.
    unchecked_through: u64,
}

impl Join {
    fn new(written: Map<Box<[u8]>, u64>, source: NodeId) -> Self {
        let stage = Stage::Beginning { kept: BTreeMap::new() };
        Self { written, stage, asked_ns: 0, source, since: 0, covers: 0, unchecked_through: 0 }
    }

    /// Takes note of what a decision writes. Whether it is kept back for now.
    pub(crate) fn keeps_back(&mut self, key: &[u8], entry: &Entry<'_>) -> bool {
        if matches!(self.stage, Stage::Forcing | Stage::Done) {
            return false;
        }
        if self.written.get(key).is_none_or(|newest| *newest < entry.index) {
            self.written.insert(key.into(), entry.index);
        }
        let Stage::Beginning { kept } = &mut self.stage else { return false };
        kept.insert(key.into(), stored(entry));
        true
    }

    /// How much is kept back.
    pub(crate) fn kept_back(&self) -> usize {
        if let Stage::Beginning { kept } = &self.stage { kept.len() } else { 0 }
    }

    fn section(&self) -> Option<CopySection> {
        match &self.stage {
            Stage::Beginning { .. } => Some(CopySection::Begin),
            Stage::Copying { section, .. } => Some(*section),
            Stage::Forcing | Stage::Done => None,
        }
    }
}

impl Partition {
    /// Takes part from here on, as a joiner.
    pub(crate) fn start_join(&mut self, host: &mut Host) {
        let record = Record::Join { handoff: self.membership.is_handoff(host.config.node) };
        host.append(self.id(), |out| record.append(out));
        self.set_aside(host, self.membership.is_handoff(host.config.node));
        self.join = Some(Join::new(host.map(), self.membership.primary));
    }

    /// Sets aside what was held so far, for good if this is a handoff. Replaying the log does the same.
    pub(crate) fn set_aside(&mut self, host: &Host, handoff: bool) {
        let former = match self.former.take() {
            Some(former) if !handoff => former,
            None if !handoff => Former {
                logged: self.logged,
                history: core::mem::take(&mut self.history),
                decisions: core::mem::take(&mut self.decisions),
                ops: core::mem::replace(&mut self.ops, host.map()),
                compared: false,
            },
            _ => Former::through(host, 0, History::default()),
        };
        self.reset();
        self.former = Some(former);
    }

    /// Joiner: the primary's last decision from before this epoch is known. What was decided up to it comes by copying.
    pub(crate) fn start_after(&mut self, host: &mut Host, now: Now, base: u64) {
        let record = Record::Released { through: base };
        host.append(self.id(), |out| record.append(out));
        host.storage.want_force();
        (self.logged, self.forced, self.released) = (base, base, base);
        self.tell_progress(host, false);
        self.ask_for_part(host, now);
    }

    /// Joiner: asks for the next part.
    fn ask_for_part(&mut self, host: &mut Host, now: Now) {
        let Some(join) = &mut self.join else { return };
        join.asked_ns = now.boot_ns;
        let mut held = Vec::new();
        let (section, after) = match &join.stage {
            Stage::Beginning { .. } => {
                self.former.as_ref().expect("a joiner is not complete").append(&mut held);
                (CopySection::Begin, &held)
            }
            // What is left of the disk is for decisions.
            Stage::Copying { section: CopySection::Entries, .. } if host.disk_space != DiskSpace::Enough => {
                return;
            }
            Stage::Copying { section, after } => (*section, after),
            Stage::Forcing | Stage::Done => return,
        };
        let (source, since) = match section {
            CopySection::Entries => (join.source, join.since),
            CopySection::Begin | CopySection::Clients => (self.membership.primary, 0),
        };
        let (joiner, partition) = (host.config.node, self.membership.partition);
        let epoch = self.membership.epoch;
        let request = CopyFrame::Request { joiner, partition, epoch, section, since, after };
        let address = self.membership.address(source).expect("a source is a member");
        host.send_frame(StreamPeer::Dialed(address), &request);
    }

    /// Joiner: what a sweep has to do for the copy.
    pub(crate) fn sweep_join(&mut self, host: &mut Host, now: Now) {
        let retry_ns = host.config.timing.copy_retry.as_nanos() as u64;
        let Some(join) = &mut self.join else { return };
        if self.base.is_none() {
            self.report_gap(host, now);
        } else if now.boot_ns >= join.asked_ns + retry_ns {
            match join.stage {
                Stage::Beginning { .. } | Stage::Copying { .. } => {
                    // A handoff that does not answer is not needed: the primary has everything.
                    join.source = self.membership.primary;
                    self.ask_for_part(host, now);
                }
                Stage::Forcing => {}
                Stage::Done => self.report_copied(host, now),
            }
        }
    }

    /// Reports that the copy is complete, if it is.
    fn report_copied(&mut self, host: &mut Host, now: Now) {
        let Some(join) = &mut self.join else { return };
        let oldest = self.undecided.first_key_value().map_or(u64::MAX, |(order, _)| *order);
        if self.forced < join.covers || oldest <= join.unchecked_through {
            return;
        }
        join.asked_ns = now.boot_ns;
        host.report(self.id(), self.membership.epoch, ReportKind::CopyDone);
    }

    /// Joiner: a part has arrived.
    pub(crate) fn take_copy_chunk(
        &mut self,
        host: &mut Host,
        now: Now,
        epoch: Epoch,
        section: CopySection,
        more: bool,
        payload: &[u8],
    ) {
        let expected = self.join.as_ref().and_then(Join::section);
        if self.membership.standing != Standing::Joining
            || epoch != self.membership.epoch
            || expected != Some(section)
        {
            return;
        }
        let taken = match section {
            CopySection::Begin => self.take_begun(host, payload),
            CopySection::Clients => self.take_clients(host, more, payload),
            CopySection::Entries => self.take_entries(host, payload),
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
                self.join.as_mut().expect("checked above").stage = Stage::Copying { section, after };
                self.ask_for_part(host, now);
            }
            None => self.complete_copy(host),
        }
    }

    /// The primary says how far this replica holds what it holds.
    fn take_begun(&mut self, host: &mut Host, payload: &[u8]) -> Result<Vec<u8>, DecodeError> {
        let begun = Begun::read(payload)?;
        let source = self.membership.position(begun.source).map_or(self.membership.primary, |_| begun.source);
        let join = self.join.as_mut().expect("checked by the caller");
        let Stage::Beginning { kept } = &mut join.stage else { unreachable!("checked by the caller") };
        let kept = core::mem::take(kept);
        (join.source, join.since, join.covers) = (source, begun.entries_since, begun.covers);
        let mut history = Vec::new();
        begun.history.append(&mut history);
        let (since, floor) = (begun.since, begun.floor());
        let record = Record::Begin { since, floor, history: &history };
        host.append(self.id(), |out| record.append(out));
        // A checkpoint may have come before, and replaying `Begin` after it finds nothing that was set aside: so what is shown now is
        // logged like what is copied.
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

    /// What is held is known: everything up to `since`, nothing of use beyond. Replaying the log does the same, though more decisions
    /// seem not to be shown; then the copied entries that follow overwrite those whose keys are `newer`.
    pub(crate) fn begin(
        &mut self,
        host: &mut Host,
        since: u64,
        floor: u64,
        history: History,
        newer: impl Fn(&[u8]) -> bool,
    ) {
        let former = self.former.take().expect("a joiner is not complete");
        if since == 0 && !(floor > 0 && host.has(Plant::HandoffNotEmptied)) {
            self.tombstones.clear();
            self.agenda.clear();
            host.storage.discard_writes(self.id());
            host.storage.clear(self.id());
        }
        for (key, entry) in former.effects_through(since).filter(|(key, _)| !newer(key)) {
            self.store(host, key, &entry);
        }
        self.former = Some(Former::through(host, since, history.clone()));
        self.history.prepend(history);
        self.floor = floor;
    }

    fn take_clients(&mut self, host: &mut Host, more: bool, payload: &[u8]) -> Result<Vec<u8>, DecodeError> {
        let end = self.clients.import(payload)?;
        if !more {
            self.join.as_mut().expect("checked by the caller").unchecked_through = host.storage.appended();
        }
        let record = Record::Clients { payload };
        host.append(self.id(), |out| record.append(out));
        Ok(end.to_bytes().to_vec())
    }

    fn take_entries(&mut self, host: &mut Host, payload: &[u8]) -> Result<Vec<u8>, DecodeError> {
        let chunk = EntriesChunk::read(payload)?;
        let join = self.join.as_mut().expect("checked by the caller");
        join.covers = join.covers.max(chunk.covers);
        let mut copied = Vec::new();
        let mut reader = Reader::new(chunk.entries);
        while !reader.is_empty() {
            let (key, entry) = read_keyed_entry(&mut reader)?;
            let index = Entry::decode(entry)?.index;
            let join = self.join.as_ref().expect("as before");
            if join.written.get(key).is_none_or(|written| *written < index) {
                put_keyed_entry(&mut copied, key, entry);
            }
        }
        self.write_copied(host, &copied)?;
        Ok(chunk.after.to_vec())
    }

    /// Logs and writes entries that came by copying.
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
            self.store(host, key, &Entry::decode(entry)?);
        }
        Ok(())
    }

    fn complete_copy(&mut self, host: &mut Host) {
        let join = self.join.as_mut().expect("checked by the caller");
        join.stage = Stage::Forcing;
        join.written = host.map();
        self.former = None;
        let record = host.append_awaited(self.id(), |out| Record::Complete.append(out));
        host.storage.want_force();
        self.waits.unforced.push_back(Unforced { record, resets: self.resets, what: UnforcedWhat::Copy });
    }

    /// Joiner: what was copied is durable.
    pub(crate) fn on_copy_forced(&mut self, host: &mut Host, now: Now) {
        let Some(join) = &mut self.join else { return };
        (join.stage, join.asked_ns) = (Stage::Done, 0);
        self.report_copied(host, now);
    }
}

/// The stored form of an entry.
fn stored(entry: &Entry<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    entry.append(&mut bytes);
    bytes
}
