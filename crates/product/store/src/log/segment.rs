//! The segment being written, with zeros ahead of its records.
//!
//! ```text
//!   header │ records … │ 0 0 0 0 0 0 0 │            a write that fits replaces zeros: its sync writes data only, but no
//!          └── bytes ──┘               │            length and no extents, which would need a file system commit
//!          └───────── zeroed ──────────┘            a write that does not fit appends the next piece of zeros, too
//! ```
//!
//! Zeros are written, not only allocated, because the first sync of an allocated block has to
//! commit that the block is in use. Old segments are never reused: their content must leave the
//! disk.

use super::{
    LogIdentity, LogPosition,
    format::{encode_segment_header, segment_name},
    sync::Shared,
};
use crate::{Result, StoreError, error::is_out_of_space, files::StoreFile};
use std::{io, sync::Arc};

/// A write larger than this part (1/N) of a piece adds no zeros: it is worth a file system commit
/// by itself.
const SMALL_PART: usize = 4;

pub(super) struct Segment {
    pub(super) file: Arc<dyn StoreFile>,
    /// Header and records.
    pub(super) bytes: u64,
    /// Zeros extend up to here, at most to the end of the file.
    zeroed: u64,
    /// Size of a piece of zeros; 0 once the disk had no room for one.
    ahead_bytes: usize,
}

impl Segment {
    /// A segment with `bytes` of header and records, and zeros up to `zeroed`.
    pub(super) fn new(file: Arc<dyn StoreFile>, bytes: u64, zeroed: u64, ahead_bytes: usize) -> Self {
        Self { file, bytes, zeroed, ahead_bytes }
    }

    /// Creates the segment that begins with `first`, without a sync.
    pub(super) fn create(
        shared: &Shared,
        identity: &LogIdentity,
        first: LogPosition,
        predecessor_checksum: u32,
        ahead_bytes: usize,
    ) -> Result<Self> {
        let path = shared.directory.join(segment_name(first));
        let header = encode_segment_header(identity, first, predecessor_checksum);
        let created = shared.files.open(&path, true).and_then(|file| {
            file.write_at(0, &header)?;
            Ok(file)
        });
        match created {
            Ok(file) => {
                shared.note_created();
                let bytes = header.len() as u64;
                Ok(Self::new(file, bytes, bytes, ahead_bytes))
            }
            Err(error) => {
                // A partly created segment must not remain: the next attempt may begin at a later
                // position.
                let _ = shared.files.remove(&path);
                Err(StoreError::Io { operation: "create", path, source: error })
            }
        }
    }

    /// Writes `records` after the existing ones, with more zeros after them if none are left, but
    /// not beyond `bytes_max`. After an error, the segment's content is unchanged, except for an
    /// unknown part of the records where the next write will go.
    pub(super) fn write(&mut self, records: &mut Vec<u8>, bytes_max: u64) -> io::Result<()> {
        let records_bytes = records.len();
        let end = self.bytes + records_bytes as u64;
        let is_worth_it = end > self.zeroed && records_bytes <= self.ahead_bytes / SMALL_PART;
        let zeros = if is_worth_it { bytes_max.saturating_sub(end).min(self.ahead_bytes as u64) } else { 0 };
        records.resize(records_bytes + zeros as usize, 0);
        let mut written = self.file.write_at(self.bytes, records);
        records.truncate(records_bytes);
        match &written {
            Ok(()) => self.zeroed = self.zeroed.max(end + zeros),
            Err(error) if zeros > 0 && is_out_of_space(error) => {
                self.ahead_bytes = 0;
                written = self.file.write_at(self.bytes, records);
            }
            Err(_) => {}
        }
        written.map(|()| self.bytes = end)
    }
}
