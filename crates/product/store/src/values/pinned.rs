//! A value that can be read, with its checksums.

use super::{
    file::ValueFile,
    format::{BLOCK_BYTES, Extent, ValueOwner, block_seed, checksums, checksums_bytes},
};
use crate::{Result, StoreError};
use nicekv_proto::OpId;
use std::{io, sync::Arc};

/// A value that stays readable while this is held, even if it is removed or moved meanwhile; from
/// any thread. Its space is released when the last holder is dropped.
#[derive(Clone)]
pub struct Pinned {
    pub(super) file: Arc<ValueFile>,
    pub(super) extent: Extent,
    pub(super) name: OpId,
    pub(super) owner: Arc<ValueOwner>,
    /// See [`super::format::value_seed`].
    pub(super) seed: u32,
}

impl Pinned {
    /// Name of the value.
    pub fn name(&self) -> OpId {
        self.name
    }

    /// Length in bytes.
    pub fn length(&self) -> u64 {
        self.extent.length
    }

    /// Fills `buffer` from `offset` of the value, after verifying the checksum of each block that it touches:
    /// [`StoreError::Corrupt`] if one does not match. Cheapest if it begins and ends with blocks ([`BLOCK_BYTES`]).
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let end = self.extent.end_of(self.name, offset, buffer.len())?;
        if buffer.is_empty() {
            return Ok(());
        }
        let first = (offset / BLOCK_BYTES as u64) as usize;
        let last = ((end - 1) / BLOCK_BYTES as u64) as usize;
        let mut stored = vec![0; checksums_bytes(last - first + 1)];
        self.read_file(self.extent.checksum_at(first), &mut stored)?;
        let mut scratch = Vec::new();
        let (mut at, mut rest) = (offset, buffer);
        for (block, checksum) in (first..=last).zip(checksums(&stored)) {
            let block_bytes = self.extent.block_bytes(block);
            let within = (at - (block * BLOCK_BYTES) as u64) as usize;
            let (part, later) = rest.split_at_mut(rest.len().min(block_bytes - within));
            if part.len() == block_bytes {
                self.read_block(block, checksum, part)?;
            } else {
                scratch.resize(block_bytes, 0);
                self.read_block(block, checksum, &mut scratch)?;
                part.copy_from_slice(&scratch[within..within + part.len()]);
            }
            at += part.len() as u64;
            rest = later;
        }
        Ok(())
    }

    /// Reads all of it and verifies the checksums: [`StoreError::Corrupt`] if it is damaged.
    pub fn verify(&self) -> Result<()> {
        let mut buffer = Vec::new();
        for block in 0..self.extent.blocks() {
            buffer.resize(self.extent.block_bytes(block), 0);
            self.read((block * BLOCK_BYTES) as u64, &mut buffer)?;
        }
        Ok(())
    }

    fn read_block(&self, block: usize, checksum: u32, bytes: &mut [u8]) -> Result<()> {
        self.read_file(self.extent.content_at() + (block * BLOCK_BYTES) as u64, bytes)?;
        let found = crc32c::crc32c_append(block_seed(self.seed, block), bytes);
        if found == checksum { Ok(()) } else { Err(self.corrupt()) }
    }

    /// A file that ends too early counts as damaged.
    fn read_file(&self, at: u64, bytes: &mut [u8]) -> Result<()> {
        let ends_early = |error: &StoreError| matches!(error, StoreError::Io { source, .. } if source.kind() == io::ErrorKind::UnexpectedEof);
        let read = self.file.read_at(at, bytes);
        read.map_err(|error| if ends_early(&error) { self.corrupt() } else { error })
    }

    fn corrupt(&self) -> StoreError {
        StoreError::Corrupt { partition: self.owner.partition, key: self.owner.key.clone() }
    }
}
