//! Serving a copy of a partition to a joiner (R7, R8): the source's side.
//!
//! The primary begins every copy: it alone knows what was decided. It does so only when its recovery is complete, that is when every op
//! which was open when its epoch began is decided: such an op may have been answered already, and a joiner that became consistent
//! without it could lose it. The entries come from the primary or from a ready handoff, which holds everything that was decided since its
//! `floor`.

use crate::clients::ExportCursor;
use crate::compare::Compare;
use crate::config::{COPY_CHUNK_BYTES, COPY_PAGES_MAX};
use crate::history::History;
use crate::join::Former;
use crate::partition::Partition;
use alloc::vec::Vec;
use nicekv_node::{Host, Plant, Standing, StreamPeer};
use nicekv_wire::bytes::{Reader, put};
use nicekv_wire::control::MemberState;
use nicekv_wire::recovery::{CopyFrame, CopySection, Entry, put_keyed_entry, read_keyed_entry};
use nicekv_wire::{DecodeError, Epoch, NodeId, Now};
use zerocopy::network_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What a primary tells a joiner first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Begun {
    /// The joiner holds the decisions up to this one; 0: it is to empty its space.
    pub(crate) since: u64,
    /// It needs the entries written after this one. Above `since` only for a handoff.
    pub(crate) entries_since: u64,
    /// The primary's last decision.
    pub(crate) covers: u64,
    /// Who gives the entries.
    pub(crate) source: NodeId,
    /// Of the decisions before this epoch.
    pub(crate) history: History,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct BegunLayout {
    since: U64,
    entries_since: U64,
    covers: U64,
    source: U16,
}

impl Begun {
    fn append(&self, out: &mut Vec<u8>) {
        let layout = BegunLayout {
            since: self.since.into(),
            entries_since: self.entries_since.into(),
            covers: self.covers.into(),
            source: self.source.0.into(),
        };
        put(out, &layout);
        self.history.append(out);
    }

    pub(crate) fn read(payload: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload);
        let layout: BegunLayout = reader.layout("begin of a copy")?;
        Ok(Self {
            since: layout.since.get(),
            entries_since: layout.entries_since.get(),
            covers: layout.covers.get(),
            source: NodeId(layout.source.get()),
            history: History::read(&mut reader)?,
        })
    }

    /// What was decided up to here the joiner will not hold; 0 for an original.
    pub(crate) fn floor(&self) -> u64 {
        if self.entries_since > self.since { self.entries_since } else { 0 }
    }
}

/// A part of the entries: the source's last decision, the cursor, and keyed entries.
pub(crate) struct EntriesChunk<'a> {
    pub(crate) covers: u64,
    pub(crate) after: &'a [u8],
    pub(crate) entries: &'a [u8],
}

impl<'a> EntriesChunk<'a> {
    fn append_head(covers: u64, after: &[u8], out: &mut Vec<u8>) {
        put(out, &U64::from(covers));
        put(out, &U16::from(after.len() as u16));
        out.extend_from_slice(after);
    }

    pub(crate) fn read(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload);
        let covers: U64 = reader.layout("last decision of a copy")?;
        let length: U16 = reader.layout("cursor of a copy")?;
        let after = reader.bytes(length.get().into(), "cursor of a copy")?;
        Ok(Self { covers: covers.get(), after, entries: reader.rest() })
    }
}

/// A scan of the engine.
#[derive(Clone)]
pub(crate) struct PendingScan {
    pub(crate) token: u64,
    pub(crate) epoch: Epoch,
    pub(crate) purpose: ScanPurpose,
}

#[derive(Clone)]
pub(crate) enum ScanPurpose {
    Copy(CopyScan),
    Compare(Compare),
}

/// For a joiner.
#[derive(Clone)]
pub(crate) struct CopyScan {
    peer: StreamPeer,
    since: u64,
    /// What was found on the pages before.
    found: Vec<u8>,
    pages: usize,
}

impl Partition {
    /// Whether every op that was open when this primary's epoch began is decided, everywhere.
    fn is_recovered_wholly(&self, host: &Host) -> bool {
        let Some(lead) = self.lead.as_ref().filter(|lead| lead.is_ready()) else { return false };
        let oldest = self.undecided.first_key_value().map_or(u64::MAX, |(order, _)| *order);
        if host.has(Plant::CopyDuringRecovery) {
            return self.membership.activated;
        }
        self.membership.activated && oldest > lead.recovered_through && self.released >= lead.recovery_end
    }

    /// A joiner asks for a part. Refused by silence; the joiner asks again.
    pub(crate) fn serve_copy(
        &mut self,
        host: &mut Host,
        peer: StreamPeer,
        joiner: NodeId,
        section: CopySection,
        since: u64,
        after: &[u8],
    ) {
        let base = self.base.filter(|base| self.released >= *base);
        let Some(base) = base.filter(|_| self.may_serve_copy(host, section, since)) else {
            host.counters.dropped += 1;
            return;
        };
        match section {
            CopySection::Begin => {
                let Ok((logged, history)) = Former::read(after) else {
                    host.counters.malformed += 1;
                    return;
                };
                let mut payload = Vec::new();
                self.begun(host, joiner, base, logged, &history).append(&mut payload);
                self.send_chunk(host, peer, self.membership.epoch, section, false, &payload);
            }
            CopySection::Clients => {
                let (piece, _, more) = self.clients.export(ExportCursor::from_bytes(after), COPY_CHUNK_BYTES);
                self.send_chunk(host, peer, self.membership.epoch, section, more, &piece);
            }
            CopySection::Entries => {
                let epoch = self.membership.epoch;
                let token = host.scan(self.id(), after, COPY_CHUNK_BYTES);
                let purpose = ScanPurpose::Copy(CopyScan { peer, since, found: Vec::new(), pages: 1 });
                self.waits.scans.push_back(PendingScan { token, epoch, purpose });
            }
        }
    }

    fn may_serve_copy(&self, host: &Host, section: CopySection, since: u64) -> bool {
        match section {
            CopySection::Begin | CopySection::Clients => self.is_recovered_wholly(host),
            CopySection::Entries if self.membership.standing == Standing::Handoff => since >= self.floor,
            CopySection::Entries => self.is_recovered_wholly(host),
        }
    }

    /// What a joiner holds of the decisions up to `base`, and whence it gets the rest.
    fn begun(&self, host: &Host, joiner: NodeId, base: u64, logged: u64, theirs: &History) -> Begun {
        let joins_as_handoff =
            self.membership.members.iter().any(|member| member.node == joiner && member.handoff);
        let mut history = self.history.clone();
        history.truncate(base);
        let since = match joins_as_handoff {
            true => 0,
            false if host.has(Plant::JoinerKeepsFormerLife) => base.min(logged),
            false => history.common(base, theirs, logged),
        };
        let entries_since = if joins_as_handoff { self.held_by_originals } else { since };
        let ready = |member: &&nicekv_wire::control::Member| {
            member.handoff && member.state == MemberState::Consistent && member.node != joiner
        };
        let source = (self.membership.members.iter().find(ready))
            .filter(|_| entries_since >= self.held_by_originals)
            .map_or(host.config.node, |handoff| handoff.node);
        Begun { since, entries_since, covers: self.logged, source, history }
    }

    /// A page has been read.
    pub(crate) fn take_page(
        &mut self,
        host: &mut Host,
        now: Now,
        scan: PendingScan,
        entries: &[u8],
        more: bool,
    ) {
        if self.membership.epoch != scan.epoch {
            return;
        }
        match scan.purpose {
            ScanPurpose::Copy(scan) => self.on_copy_scanned(host, scan, entries, more),
            ScanPurpose::Compare(compare) => self.on_compare_scanned(host, now, compare, entries, more),
        }
    }

    /// A page for a joiner has been read: what is newer than what it holds goes to it, when there is enough of it.
    fn on_copy_scanned(&mut self, host: &mut Host, mut scan: CopyScan, entries: &[u8], more: bool) {
        let mut reader = Reader::new(entries);
        let mut last: &[u8] = &[];
        while !reader.is_empty() {
            let (key, entry) = read_keyed_entry(&mut reader).expect("the engine returns what was stored");
            if Entry::decode(entry).is_ok_and(|entry| entry.index > scan.since) {
                put_keyed_entry(&mut scan.found, key, entry);
            }
            last = key;
        }
        if more && scan.found.len() < COPY_CHUNK_BYTES && scan.pages < COPY_PAGES_MAX {
            let epoch = self.membership.epoch;
            let token = host.scan(self.id(), last, COPY_CHUNK_BYTES);
            scan.pages += 1;
            let purpose = ScanPurpose::Copy(scan);
            self.waits.scans.push_back(PendingScan { token, epoch, purpose });
            return;
        }
        let mut payload = Vec::new();
        EntriesChunk::append_head(self.logged, last, &mut payload);
        payload.extend_from_slice(&scan.found);
        self.send_chunk(host, scan.peer, self.membership.epoch, CopySection::Entries, more, &payload);
    }

    fn send_chunk(
        &self,
        host: &mut Host,
        peer: StreamPeer,
        epoch: Epoch,
        section: CopySection,
        more: bool,
        payload: &[u8],
    ) {
        host.send_frame(peer, &CopyFrame::Chunk { partition: self.id(), epoch, section, more, payload });
    }
}
