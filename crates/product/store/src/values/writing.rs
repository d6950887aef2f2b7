//! A value being written, and the growing checksums of its blocks.
//!
//! ```text
//!   block 0  ████████████████   checksummed to its end
//!   block 1  ██████▒▒▒░░▒▒▒▒▒   █ checksummed as it came, skipped when it comes again
//!   block 2  ░░░░▒▒▒▒░░░░░░░░   ▒ came ahead: read back at the end   ░ still to come
//! ```
//!
//! Each block has a checksum of its first `filled` bytes, which are not written again, so that it
//! matches the file. Pieces that arrive in order are never read back.

use super::{
    file::ValueFile,
    format::{BLOCK_BYTES, Extent, ValueOwner, block_seed},
};
use crate::Result;
use nicekv_proto::OpId;
use std::{ops::Range, sync::Arc};

/// A value being written: [`super::Values::finish`] makes it readable, [`super::Values::abandon`]
/// releases its space. If it is only dropped, its space and its share of
/// [`super::ValueOptions::writing_bytes_max`] stay taken until a restart.
#[must_use = "finish it or abandon it"]
pub struct Writing {
    pub(super) name: OpId,
    pub(super) owner: ValueOwner,
    pub(super) extent: Extent,
    pub(super) file: Arc<ValueFile>,
    /// Whether anything may have been written to the extent.
    pub(super) is_touched: bool,
    blocks: Vec<Block>,
}

#[derive(Clone, Copy)]
struct Block {
    /// Checksum of the first `filled` bytes.
    checksum: u32,
    filled: u32,
}

impl Writing {
    pub(super) fn new(
        name: OpId,
        owner: ValueOwner,
        extent: Extent,
        file: Arc<ValueFile>,
        value_seed: u32,
    ) -> Self {
        let empty = |block| Block { checksum: block_seed(value_seed, block), filled: 0 };
        let blocks = (0..extent.blocks()).map(empty).collect();
        Self { name, owner, extent, file, is_touched: false, blocks }
    }

    /// Name of the value.
    pub fn name(&self) -> OpId {
        self.name
    }

    /// Length of the value.
    pub fn length(&self) -> u64 {
        self.extent.length
    }

    /// Reads back what was written; unwritten parts are undefined.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.extent.end_of(self.name, offset, buffer.len())?;
        self.file.read_at(self.extent.content_at() + offset, buffer)
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = self.extent.end_of(self.name, offset, bytes.len())?;
        let mut at = offset;
        while at < end {
            let new = self.next_new(at..end);
            if new.is_empty() {
                break;
            }
            self.is_touched = true;
            let piece = &bytes[(new.start - offset) as usize..(new.end - offset) as usize];
            self.file.write_at(self.extent.content_at() + new.start, piece)?;
            self.fill(new.start, piece);
            at = new.end;
        }
        Ok(())
    }

    /// The first part of the range without checksummed bytes; may be empty.
    fn next_new(&self, range: Range<u64>) -> Range<u64> {
        let filled_to = |at: u64| {
            let block = at / BLOCK_BYTES as u64;
            block * BLOCK_BYTES as u64 + u64::from(self.blocks[block as usize].filled)
        };
        let next_block = |at: u64| (at / BLOCK_BYTES as u64 + 1) * BLOCK_BYTES as u64;
        let mut start = range.start;
        while start < range.end && filled_to(start) > start {
            start = filled_to(start);
        }
        let mut end = next_block(start);
        while end < range.end && filled_to(end) == end {
            end = next_block(end);
        }
        start.min(range.end)..end.min(range.end)
    }

    /// Extends the checksums of the blocks that `piece`, written at `offset` of the value,
    /// continues.
    fn fill(&mut self, offset: u64, mut piece: &[u8]) {
        let (mut block, mut within) =
            ((offset / BLOCK_BYTES as u64) as usize, (offset % BLOCK_BYTES as u64) as usize);
        while !piece.is_empty() {
            let (of_block, rest) = piece.split_at(piece.len().min(BLOCK_BYTES - within));
            let state = &mut self.blocks[block];
            if state.filled as usize == within {
                state.checksum = crc32c::crc32c_append(state.checksum, of_block);
                state.filled += of_block.len() as u32;
            }
            (piece, block, within) = (rest, block + 1, 0);
        }
    }

    /// Reads back pieces that arrived ahead of others; then each checksum covers its whole block.
    pub(super) fn complete(&mut self) -> Result<()> {
        let mut buffer = Vec::new();
        for block in 0..self.blocks.len() {
            let filled = self.blocks[block].filled as usize;
            let missing = self.extent.block_bytes(block) - filled;
            if missing > 0 {
                buffer.resize(missing, 0);
                let at = (block * BLOCK_BYTES + filled) as u64;
                self.file.read_at(self.extent.content_at() + at, &mut buffer)?;
                self.fill(at, &buffer);
            }
        }
        Ok(())
    }

    pub(super) fn checksums(&self) -> impl Iterator<Item = u32> + '_ {
        self.blocks.iter().map(|block| block.checksum)
    }
}
