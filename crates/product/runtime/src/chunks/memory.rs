//! Volatile chunk store.

use nicekv_objects::{End, Storage, StorageDone, chunk_id};
use nicekv_proto::chunk::ChunkId;
use nicekv_proto::{NodeId, OpId};
use std::collections::HashMap;

struct Coming {
    id: ChunkId,
    bytes: Vec<u8>,
    holders: Vec<NodeId>,
}

/// Chunks in memory.
#[derive(Default)]
pub(super) struct MemoryChunks {
    chunks: HashMap<ChunkId, (Vec<u8>, Vec<NodeId>)>,
    coming: HashMap<OpId, Coming>,
    bytes: u64,
}

impl MemoryChunks {
    pub(super) fn held(&self) -> Vec<super::HeldChunk> {
        let chunks = self.chunks.iter();
        chunks.map(|(id, (bytes, holders))| (*id, bytes.len() as u32, holders.clone())).collect()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn carry_out(&mut self, request: Storage) -> Option<StorageDone> {
        match request {
            Storage::Begin { op, id, bytes, holders } => {
                self.coming.insert(op, Coming { id, bytes: vec![0; bytes as usize], holders });
                None
            }
            Storage::Write { op, offset, bytes } => {
                let coming = self.coming.get_mut(&op)?;
                coming.bytes[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
                None
            }
            Storage::Finish { op } => {
                let Coming { id, bytes, holders } = self.coming.remove(&op)?;
                if chunk_id(&bytes) != id {
                    return Some(StorageDone::Finished { op, end: End::Wrong });
                }
                self.bytes += bytes.len() as u64;
                self.chunks.insert(id, (bytes, holders));
                Some(StorageDone::Finished { op, end: End::Whole })
            }
            Storage::Abandon { op } => {
                self.coming.remove(&op);
                None
            }
            Storage::Read { id, offset, bytes } => {
                let found = self.chunks.get(&id);
                let bytes = found.map(|(chunk, _)| chunk[offset as usize..][..bytes as usize].to_vec());
                Some(StorageDone::Read { bytes })
            }
            Storage::Remove { id } => {
                let removed = self.chunks.remove(&id);
                self.bytes -= removed.map_or(0, |(bytes, _)| bytes.len() as u64);
                None
            }
        }
    }
}
