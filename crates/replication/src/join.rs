//! Copying a partition to a joiner (R7), in its plain form: everything, from the primary.
//!
//! The joiner already takes part in every put from the epoch's base on; what was decided before, it copies. Both may write the same
//! key, so it notes which keys later decisions have written: a copied entry never overwrites a newer one, nor revives a deleted key.
//!
//! The copy is complete when the joiner could go on alone from what it holds on disk:
//! * every decision whose effect may be in the copy is in its log, durably. Else it could, as a primary, evaluate an op on its own result;
//! * no op is open that it took in before it had the deduplication records: that may be a datagram from the past, of an op that was
//!   finished before the joiner's time. The primary says so (`decide_expired`).
//!
//! A part of the entries begins with the primary's last decision at that moment, 8 bytes.

use crate::config::COPY_CHUNK_BYTES;
use crate::partition::{Partition, Standing};
use crate::record::Record;
use crate::shared::{Map, Shared};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_wire::bytes::Reader;
use nicekv_wire::control::{Report, ReportKind};
use nicekv_wire::recovery::{CopyFrame, CopySection, Entry, read_keyed_entry};
use nicekv_wire::{ClientId, DecodeError, Epoch, NodeId, Now, PartitionId};

/// The other end of a copying stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamPeer {
    /// A connection that this node opens to a primary, by its address.
    Dialed(SocketAddrV4),
    /// A connection that was accepted, by its number.
    Accepted(u64),
}

/// A scan of the engine for a joiner.
#[derive(Clone)]
pub(crate) struct PendingScan {
    pub(crate) token: u64,
    partition: PartitionId,
    epoch: Epoch,
    peer: StreamPeer,
}

impl PendingScan {
    pub(crate) fn partition(&self) -> PartitionId {
        self.partition
    }
}

#[derive(Clone)]
enum Stage {
    /// Asking for this part, after this cursor.
    Copying {
        section: CopySection,
        after: Vec<u8>,
    },
    /// Everything is written; waits for the engine to be durable.
    Syncing {
        token: u64,
    },
    Done,
}

/// The joiner's side of a copy.
#[derive(Clone)]
pub(crate) struct Join {
    /// Keys that decisions of this epoch have written, and by which.
    written: Map<Box<[u8]>, u64>,
    stage: Stage,
    asked_ns: u64,
    /// Decisions up to this one may have effects in the copy.
    covers: u64,
    /// Ops that were logged up to this record were not compared with the deduplication records.
    unchecked_through: u64,
}

impl Join {
    pub(crate) fn new(written: Map<Box<[u8]>, u64>) -> Self {
        let stage = Stage::Copying { section: CopySection::Clients, after: Vec::new() };
        Self { written, stage, asked_ns: 0, covers: 0, unchecked_through: 0 }
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Done)
    }

    pub(crate) fn note_written(&mut self, key: &[u8], index: u64) {
        if matches!(self.stage, Stage::Copying { .. }) {
            match self.written.get_mut(key) {
                Some(newest) => *newest = (*newest).max(index),
                None => {
                    self.written.insert(key.into(), index);
                }
            }
        }
    }
}

impl Partition {
    /// Joiner: asks for the next part.
    pub(crate) fn begin_copy(&mut self, shared: &mut Shared, now: Now) {
        let primary = self.primary_address();
        let Some(join) = &mut self.join else { return };
        let Stage::Copying { section, after } = &join.stage else { return };
        join.asked_ns = now.boot_ns;
        let request = CopyFrame::Request {
            joiner: shared.config.node,
            partition: self.id,
            epoch: self.epoch,
            section: *section,
            since: 0,
            after,
        };
        let mut frame = Vec::new();
        request.append(&mut frame);
        shared.streams.push_back((StreamPeer::Dialed(primary), frame));
    }

    /// Joiner: what a sweep has to do for the copy.
    pub(crate) fn sweep_join(&mut self, shared: &mut Shared, now: Now) {
        let retry_ns = shared.config.timing.copy_retry.as_nanos() as u64;
        let Some(join) = &mut self.join else { return };
        if self.base.is_none() {
            self.report_gap(shared, now);
        } else if now.boot_ns >= join.asked_ns + retry_ns {
            match join.stage {
                Stage::Copying { .. } => self.begin_copy(shared, now),
                Stage::Syncing { .. } => {}
                Stage::Done => self.report_copied(shared, now),
            }
        }
    }

    /// Reports that the copy is complete, if it is.
    fn report_copied(&mut self, shared: &mut Shared, now: Now) {
        let Some(join) = &mut self.join else { return };
        let oldest = self.undecided.first_key_value().map_or(u64::MAX, |(order, _)| *order);
        if self.forced < join.covers || oldest <= join.unchecked_through {
            return;
        }
        join.asked_ns = now.boot_ns;
        shared.report(Report {
            node: shared.config.node,
            incarnation: shared.config.incarnation,
            partition: self.id,
            epoch: self.epoch,
            kind: ReportKind::CopyDone,
        });
    }

    /// Primary: a joiner asks for a part. Refused by silence; the joiner asks again.
    pub(crate) fn on_copy_request(
        &mut self,
        shared: &mut Shared,
        peer: StreamPeer,
        joiner: NodeId,
        epoch: Epoch,
        section: CopySection,
        after: &[u8],
    ) {
        let ready = self.lead.as_ref().is_some_and(|lead| lead.is_ready()) && self.activated;
        if !ready || !self.accepts(epoch, joiner) || self.base.is_none_or(|base| self.released < base) {
            shared.counters.dropped += 1;
            return;
        }
        match section {
            CopySection::Begin => {}
            CopySection::Clients => {
                let after = after.try_into().map_or(0, u64::from_be_bytes);
                let (piece, _, more) = self.clients.export(ClientId(after), COPY_CHUNK_BYTES);
                send_chunk(shared, peer, self, epoch, section, more, &piece);
            }
            CopySection::Entries => {
                let token = shared.storage.scan(self.id, after, COPY_CHUNK_BYTES);
                shared.scans.push_back(PendingScan { token, partition: self.id, epoch, peer });
            }
        }
    }

    /// Primary: the entries for a joiner have been read.
    pub(crate) fn on_scanned(&mut self, shared: &mut Shared, scan: &PendingScan, entries: &[u8], more: bool) {
        if self.epoch == scan.epoch {
            let payload = [&self.logged.to_be_bytes(), entries].concat();
            send_chunk(shared, scan.peer, self, scan.epoch, CopySection::Entries, more, &payload);
        }
    }

    /// Joiner: a part has arrived.
    pub(crate) fn on_copy_chunk(
        &mut self,
        shared: &mut Shared,
        now: Now,
        epoch: Epoch,
        section: CopySection,
        more: bool,
        payload: &[u8],
    ) {
        let expected = match self.join.as_ref().map(|join| &join.stage) {
            Some(Stage::Copying { section, .. }) => Some(*section),
            _ => None,
        };
        if self.standing != Standing::Joining || epoch != self.epoch || expected != Some(section) {
            return;
        }
        let taken = match section {
            CopySection::Begin => return,
            CopySection::Clients => self.take_clients(shared, more, payload),
            CopySection::Entries => self.take_entries(shared, payload),
        };
        let Ok(last) = taken else {
            shared.counters.malformed += 1;
            return;
        };
        let join = self.join.as_mut().expect("checked above");
        join.stage = match (section, more) {
            (CopySection::Begin, _) => return,
            (_, true) => Stage::Copying { section, after: last },
            (CopySection::Clients, false) => {
                Stage::Copying { section: CopySection::Entries, after: Vec::new() }
            }
            (CopySection::Entries, false) => {
                join.written = shared.map();
                Stage::Syncing { token: shared.storage.sync_engine() }
            }
        };
        self.begin_copy(shared, now);
    }

    fn take_clients(
        &mut self,
        shared: &mut Shared,
        more: bool,
        payload: &[u8],
    ) -> Result<Vec<u8>, DecodeError> {
        let last = self.clients.import(payload)?;
        if !more {
            self.join.as_mut().expect("checked by the caller").unchecked_through = shared.storage.appended();
        }
        let record = Record::Clients { partition: self.id, payload };
        shared.storage.append(|out| record.append(out));
        shared.storage.want_force();
        Ok(last.0.to_be_bytes().to_vec())
    }

    fn take_entries(&mut self, shared: &mut Shared, payload: &[u8]) -> Result<Vec<u8>, DecodeError> {
        let join = self.join.as_mut().expect("checked by the caller");
        let mut reader = Reader::new(payload);
        let covers = u64::from_be_bytes(reader.layout("last decision of a copy")?);
        join.covers = join.covers.max(covers);
        let mut last: &[u8] = &[];
        while !reader.is_empty() {
            let (key, entry) = read_keyed_entry(&mut reader)?;
            let index = Entry::decode(entry)?.index;
            if join.written.get(key).is_none_or(|written| *written < index) {
                shared.storage.write(self.id, key, |out| out.extend_from_slice(entry));
            }
            last = key;
        }
        Ok(last.to_vec())
    }

    /// Joiner: what was copied is durable.
    pub(crate) fn on_engine_synced(&mut self, shared: &mut Shared, now: Now, token: u64) {
        let Some(join) = &mut self.join else { return };
        if matches!(join.stage, Stage::Syncing { token: mine } if mine == token) {
            (join.stage, join.asked_ns) = (Stage::Done, 0);
            self.report_copied(shared, now);
        }
    }
}

fn send_chunk(
    shared: &mut Shared,
    peer: StreamPeer,
    partition: &Partition,
    epoch: Epoch,
    section: CopySection,
    more: bool,
    payload: &[u8],
) {
    let mut frame = Vec::new();
    CopyFrame::Chunk { partition: partition.id, epoch, section, more, payload }.append(&mut frame);
    shared.streams.push_back((peer, frame));
}
