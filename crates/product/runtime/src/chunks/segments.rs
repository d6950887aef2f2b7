//! Durable chunk store. Each chunk is a value of `nicekv_store::values`. The value's name is the
//! first half of the chunk's id; its owner field has the full id and the rendezvous set.
//!
//! ```text
//!   frames ─▶ written as they arrive, hashed up to the first hole ─▶ the rest read back and hashed
//!          ─▶ digest compared with the id ─▶ header ─▶ fsync, for all complete chunks together
//! ```

use nicekv_objects::{End, Storage, StorageDone};
use nicekv_proto::chunk::{CHUNK_LENGTH_MAX, ChunkId};
use nicekv_proto::{ClientId, NodeId, OpId};
use nicekv_store::values::{ValueOptions, ValueOwner, Values, Writing};
use nicekv_store::{Files, LogIdentity, StoreError};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// Size of the pieces in which bytes after a hole are read back, to be hashed.
const READ_BACK_BYTES: u32 = 256 << 10;
/// Bytes of dead data reclaimed in one step.
const COMPACTED_BYTES: u64 = 1 << 20;
/// Most chunks that are received at once: more than a target accepts.
const COMING_MAX: u64 = 256;

struct Coming {
    id: ChunkId,
    length: u32,
    /// `None` if the disk had no room.
    writing: Option<Writing>,
    hasher: Box<blake3::Hasher>,
    /// All bytes before this offset are hashed.
    through: u32,
}

/// Chunks in the segments of a directory.
pub(super) struct SegmentChunks {
    values: Values,
    coming: HashMap<OpId, Coming>,
    /// Complete chunks that the next sync will make durable.
    finished: Vec<OpId>,
}

/// The value name of a chunk. Two chunks whose ids have the same first half would share a name; the
/// second one is refused as if the disk were full.
fn name_of(id: &ChunkId) -> OpId {
    let half = |at: usize| u64::from_be_bytes(*id.0[at..].first_chunk().expect("it is longer"));
    OpId { client: ClientId(half(0)), sequence: half(8) }
}

fn owner_of(id: &ChunkId, holders: &[NodeId]) -> ValueOwner {
    let mut key = id.0.to_vec();
    holders.iter().for_each(|node| key.extend_from_slice(&node.0.to_be_bytes()));
    ValueOwner { partition: 0, key }
}

fn read_owner(owner: &ValueOwner) -> Option<(ChunkId, Vec<NodeId>)> {
    let (id, nodes) = owner.key.split_first_chunk()?;
    let holders = nodes.chunks_exact(2).map(|node| NodeId(u16::from_be_bytes([node[0], node[1]])));
    Some((ChunkId(*id), holders.collect()))
}

impl SegmentChunks {
    pub(super) fn open(
        files: Arc<dyn Files>,
        directory: &Path,
        identity: LogIdentity,
    ) -> Result<Self, StoreError> {
        let options = ValueOptions {
            writing_bytes_max: COMING_MAX * u64::from(CHUNK_LENGTH_MAX),
            ..ValueOptions::default()
        };
        let values = Values::open(files, directory, identity, options)?;
        Ok(Self { values, coming: HashMap::new(), finished: Vec::new() })
    }

    pub(super) fn held(&self) -> Vec<super::HeldChunk> {
        let held = self.values.iter().filter_map(|(_, owner, length)| {
            let (id, holders) = read_owner(owner)?;
            Some((id, length as u32, holders))
        });
        held.collect()
    }

    pub(super) fn carry_out(&mut self, request: Storage) -> Result<Option<StorageDone>, StoreError> {
        match request {
            Storage::Begin { op, id, bytes, holders } => self.begin(op, id, bytes, &holders).map(|()| None),
            Storage::Write { op, offset, bytes } => self.write(op, offset, &bytes).map(|()| None),
            Storage::Finish { op } => self.finish(op),
            Storage::Abandon { op } => {
                let writing = self.coming.remove(&op).and_then(|coming| coming.writing);
                writing.map_or(Ok(()), |writing| self.values.abandon(writing)).map(|()| None)
            }
            Storage::Read { id, offset, bytes } => self.read(&id, offset, bytes).map(Some),
            Storage::Remove { id } => self.values.remove(name_of(&id)).map(|_| None),
        }
    }

    fn begin(&mut self, op: OpId, id: ChunkId, length: u32, holders: &[NodeId]) -> Result<(), StoreError> {
        let writing = match self.values.begin(name_of(&id), owner_of(&id, holders), length.into()) {
            Ok(writing) => Some(writing),
            Err(StoreError::ValueExists { .. } | StoreError::ValuesBusy { .. }) => None,
            Err(error) if error.is_out_of_space() => None,
            Err(error) => return Err(error),
        };
        let hasher = Box::new(blake3::Hasher::new());
        self.coming.insert(op, Coming { id, length, writing, hasher, through: 0 });
        Ok(())
    }

    fn write(&mut self, op: OpId, offset: u32, bytes: &[u8]) -> Result<(), StoreError> {
        let Some(coming) = self.coming.get_mut(&op) else { return Ok(()) };
        let Some(writing) = &mut coming.writing else { return Ok(()) };
        match self.values.write(writing, offset.into(), bytes) {
            Ok(()) if offset == coming.through => {
                coming.hasher.update(bytes);
                coming.through += bytes.len() as u32;
                Ok(())
            }
            Ok(()) => Ok(()),
            Err(error) if error.is_out_of_space() => {
                let writing = coming.writing.take().expect("it was there");
                self.values.abandon(writing)
            }
            Err(error) => Err(error),
        }
    }

    /// Ends the transfer of a chunk. Returns the result now if nothing must be synced; otherwise
    /// the next sync returns it.
    fn finish(&mut self, op: OpId) -> Result<Option<StorageDone>, StoreError> {
        let Some(mut coming) = self.coming.remove(&op) else { return Ok(None) };
        let ended = |end| Ok(Some(StorageDone::Finished { op, end }));
        let Some(writing) = coming.writing.take() else { return ended(End::NoRoom) };
        while coming.through < coming.length {
            let mut bytes = vec![0; READ_BACK_BYTES.min(coming.length - coming.through) as usize];
            writing.read(coming.through.into(), &mut bytes)?;
            coming.hasher.update(&bytes);
            coming.through += bytes.len() as u32;
        }
        if *coming.hasher.finalize().as_bytes() != coming.id.0 {
            self.values.abandon(writing)?;
            return ended(End::Wrong);
        }
        match self.values.finish(writing) {
            Ok(()) => {
                self.finished.push(op);
                Ok(None)
            }
            Err(error) if error.is_out_of_space() => ended(End::NoRoom),
            Err(error) => Err(error),
        }
    }

    fn read(&self, id: &ChunkId, offset: u32, length: u32) -> Result<StorageDone, StoreError> {
        let mut bytes = vec![0; length as usize];
        match self.values.read(name_of(id), offset.into(), &mut bytes) {
            Ok(()) => Ok(StorageDone::Read { bytes: Some(bytes) }),
            Err(StoreError::Corrupt { .. } | StoreError::ValueNotFound { .. }) => {
                Ok(StorageDone::Read { bytes: None })
            }
            Err(error) => Err(error),
        }
    }

    /// Syncs the complete chunks. Returns their results.
    pub(super) fn sync(&mut self) -> Result<Vec<StorageDone>, StoreError> {
        if self.finished.is_empty() {
            return Ok(Vec::new());
        }
        self.values.sync_handle().sync()?;
        Ok(self.finished.drain(..).map(|op| StorageDone::Finished { op, end: End::Whole }).collect())
    }

    pub(super) fn compact(&mut self, room: Option<u64>) -> Result<bool, StoreError> {
        match self.values.compact_step(COMPACTED_BYTES, room) {
            // Reads report damage, and compaction is retried when the disk is less full.
            Err(StoreError::Corrupt { .. }) => Ok(false),
            Err(error) if error.is_out_of_space() => Ok(false),
            other => other,
        }
    }
}
