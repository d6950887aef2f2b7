//! A target's disk: writes and reads take time, it may be full, and a power loss discards what was
//! not synced.

use nicekv_objects::{End, Storage, StorageDone, chunk_id};
use nicekv_proto::chunk::ChunkId;
use nicekv_proto::{NodeId, OpId};
use std::collections::{BTreeMap, BTreeSet};

/// Time of a sync, in addition to the time for the bytes.
const FORCE_NS: u64 = 150_000;
const READ_NS: u64 = 40_000;

#[derive(Clone, Debug)]
struct Writing {
    id: ChunkId,
    bytes: Vec<u8>,
    holders: Vec<NodeId>,
    has_room: bool,
}

/// Chunks, each with the other targets that hold it.
pub(super) type Chunks = BTreeMap<ChunkId, (Vec<u8>, Vec<NodeId>)>;

#[derive(Clone, Debug)]
pub(super) struct Disk {
    /// Durable chunks.
    pub(super) chunks: Chunks,
    /// The chunks in `chunks` that are damaged.
    pub(super) damaged: BTreeSet<ChunkId>,
    writing: BTreeMap<OpId, Writing>,
    capacity: u64,
    pub(super) ns_per_byte: u64,
    busy_until_ns: u64,
    read_until_ns: u64,
}

/// A disk operation in progress.
#[derive(Clone, Debug)]
pub(super) enum Doing {
    /// The sync of a chunk.
    Force(OpId),
    Read(StorageDone),
    /// The deletion of a chunk.
    Removed(ChunkId),
}

impl Disk {
    pub(super) fn new(capacity: u64, ns_per_byte: u64) -> Self {
        Self {
            chunks: BTreeMap::new(),
            damaged: BTreeSet::new(),
            writing: BTreeMap::new(),
            capacity,
            ns_per_byte,
            busy_until_ns: 0,
            read_until_ns: 0,
        }
    }

    fn used(&self) -> u64 {
        let writing = self.writing.values().filter(|writing| writing.has_room);
        let durable: u64 = self.chunks.values().map(|(bytes, _)| bytes.len() as u64 + 1024).sum();
        durable + writing.map(|writing| writing.bytes.len() as u64 + 1024).sum::<u64>()
    }

    pub(super) fn free(&self) -> u64 {
        self.capacity.saturating_sub(self.used())
    }

    pub(super) fn set_capacity(&mut self, bytes: u64) {
        self.capacity = bytes;
    }

    /// Number of transfers that have begun and are neither finished nor abandoned.
    pub(super) fn open(&self) -> usize {
        self.writing.len()
    }

    /// Executes a request at once (`None`), or returns what will complete and when.
    pub(super) fn request(&mut self, now_ns: u64, request: Storage) -> Option<(u64, Doing)> {
        match request {
            Storage::Begin { op, id, bytes, holders } => {
                let has_room = self.used() + u64::from(bytes) + 1024 <= self.capacity;
                let bytes = vec![0; bytes as usize];
                self.writing.insert(op, Writing { id, bytes, holders, has_room });
                None
            }
            Storage::Write { op, offset, bytes } => {
                let writing = self.writing.get_mut(&op).expect("it was begun");
                writing.bytes[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
                None
            }
            Storage::Finish { op } => {
                let bytes = self.writing[&op].bytes.len() as u64;
                let begins_ns = self.busy_until_ns.max(now_ns);
                self.busy_until_ns = begins_ns + FORCE_NS + bytes * self.ns_per_byte;
                Some((self.busy_until_ns, Doing::Force(op)))
            }
            Storage::Abandon { op } => {
                self.writing.remove(&op).expect("it was begun");
                None
            }
            Storage::Read { id, offset, bytes } => {
                self.read_until_ns = self.read_until_ns.max(now_ns) + READ_NS;
                let found = self.chunks.get(&id).filter(|_| !self.damaged.contains(&id));
                let bytes = found.map(|(chunk, _)| chunk[offset as usize..][..bytes as usize].to_vec());
                Some((self.read_until_ns, Doing::Read(StorageDone::Read { bytes })))
            }
            Storage::Remove { id } => {
                self.chunks.remove(&id);
                self.damaged.remove(&id);
                Some((now_ns, Doing::Removed(id)))
            }
        }
    }

    /// Completes the sync of a chunk, whose content is verified here.
    pub(super) fn sync(&mut self, op: OpId) -> Option<StorageDone> {
        let Writing { id, bytes, holders, has_room } = self.writing.remove(&op)?;
        let end = if !has_room {
            End::NoRoom
        } else if chunk_id(&bytes) != id {
            End::Wrong
        } else {
            self.chunks.insert(id, (bytes, holders));
            self.damaged.remove(&id);
            End::Whole
        };
        Some(StorageDone::Finished { op, end })
    }

    /// The process ends. Chunks that are not synced are lost, as they have no header on the disk.
    pub(super) fn forget(&mut self, now_ns: u64) {
        self.writing.clear();
        (self.busy_until_ns, self.read_until_ns) = (now_ns, now_ns);
    }
}
