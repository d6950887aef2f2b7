//! The chunks that a target holds, and the requests to its disk.

use super::interface::{Held, Storage};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_proto::chunk::ChunkId;
use nicekv_proto::{NodeId, OpId};

/// Maximum reads that wait for the disk. Further ones are dropped; initiators request them again.
const READS_MAX: usize = 256;

/// The purpose of a read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reading {
    /// An initiator has requested frames.
    Frames { to: SocketAddrV4, op: OpId, place: u8, id: ChunkId, first: u32 },
    /// Maintenance reads a whole chunk.
    Whole { id: ChunkId },
}

/// The chunks held, and the requests to the disk.
#[derive(Clone, Debug)]
pub(super) struct Holdings {
    pub(super) held: BTreeMap<ChunkId, Held>,
    /// Bytes of all chunks.
    pub(super) bytes: u64,
    /// Reads in progress; the disk answers them in order.
    readings: VecDeque<Reading>,
    /// Requests that the disk has not been given yet.
    pub(super) storage: VecDeque<Storage>,
}

impl Holdings {
    /// `on_disk`: the chunks on the disk when the target starts (id, length, rendezvous set). Their
    /// stamps are not known.
    pub(super) fn new(on_disk: impl IntoIterator<Item = (ChunkId, u32, Vec<NodeId>)>) -> Self {
        let (stamp, marked) = Default::default();
        let chunk = |(id, bytes, holders)| (id, Held { bytes, stamp, marked, holders });
        let held: BTreeMap<ChunkId, Held> = on_disk.into_iter().map(chunk).collect();
        let bytes = held.values().map(|held| u64::from(held.bytes)).sum();
        Self { held, bytes, readings: VecDeque::new(), storage: VecDeque::new() }
    }

    /// Adds a chunk that has become durable.
    pub(super) fn insert(&mut self, id: ChunkId, held: Held) {
        self.bytes += u64::from(held.bytes);
        self.held.insert(id, held);
    }

    /// Deletes a chunk; false if it is not held.
    pub(super) fn remove(&mut self, id: &ChunkId) -> bool {
        let Some(held) = self.held.remove(id) else { return false };
        self.bytes -= u64::from(held.bytes);
        self.storage.push_back(Storage::Remove { id: *id });
        true
    }

    /// Whether one more read may wait for the disk.
    pub(super) fn may_read(&self) -> bool {
        self.readings.len() < READS_MAX
    }

    /// Number of reads in progress.
    pub(super) fn reads(&self) -> usize {
        self.readings.len()
    }

    /// Reads a part of a chunk.
    pub(super) fn read(&mut self, reading: Reading, id: ChunkId, offset: u32, bytes: u32) {
        self.readings.push_back(reading);
        self.storage.push_back(Storage::Read { id, offset, bytes });
    }

    /// Called when the disk has answered a read; returns the purpose of that read.
    pub(super) fn end_reading(&mut self) -> Reading {
        self.readings.pop_front().expect("reads are answered once, in order")
    }
}
