//! Large values (longer than a datagram): each is written once, to a shared segment or one of its
//! own, next to the log that names it.
//!
//! ```text
//!   begin ──▶ write, write, … ──▶ finish ──▶ Log::append(names it) ──▶ LogSync::sync ──▶ acknowledge
//!     │         (any order)         │                                  values first, then records
//!     └──────── abandon ◀───────────┘ (if it fails)
//!                                  remove ──▶ dead ──▶ compact_step: what lives moves, the segment goes
//! ```
//!
//! # Invariants
//! - A value's name is the op that wrote it. Its header is written last, by [`Values::finish`], and has a sequence number.
//! - Every header says up to which sequence number values were known to be durable when it was
//!   written. At opening, a value that no header proves durable is read: if a block does not match
//!   its checksum, the value was torn, and its header is blanked. If all blocks match, it is written
//!   and synced again, because after a failed fsync the page cache can hold bytes that are not on the
//!   disk. So every value found is complete and durable, and every synced value is found.
//! - Damage in a value that is proven durable is found when it is read ([`StoreError::Corrupt`]) or
//!   by [`Values::verify`]; damage in its header is found at opening, which skips to the next header
//!   ([`FoundValues::headers_damaged`]). Damage in values of the very last sync counts as a torn
//!   write, as in the log: they are missing. The log names them, so in either case the caller knows
//!   what to copy from a replica.
//! - Removals are not written: after a restart the caller checks for each value whether its owner
//!   still refers to it ([`Values::iter`]).
//! - The place of a finished value is never written again, and a removed segment stays readable for
//!   its holders ([`Values::pin`]).
//! - A compacted segment stays until the copies are durable; a segment with condemned values stays
//!   until their replacements are. Of two values with one name the younger is used; they are equal,
//!   unless one was damaged.
//! - One failed sync or write (except a full disk) is permanent: docs/FAULTS.md row 8. Reads
//!   continue.

mod compact;
mod file;
mod format;
mod open;
mod pinned;
mod segments;
mod sync;
mod writing;

pub use file::OPEN_SEGMENTS_MAX;
pub use format::{BLOCK_BYTES, OWNER_KEY_BYTES_MAX, VALUE_BYTES_MAX, ValueOwner};
pub use open::FoundValues;
pub use pinned::Pinned;
pub use sync::ValueSync;
pub use writing::Writing;

use crate::{Result, StoreError, files::Files, log::LogIdentity};
use compact::Compaction;
use format::{Extent, ValueHeader, encode_value_header, value_seed};
use hashbrown::{HashMap, HashSet};
use nicekv_proto::OpId;
use segments::Segments;
use std::{path::Path, sync::Arc};

/// Sizes of value segments.
#[derive(Clone, Copy, Debug)]
pub struct ValueOptions {
    /// Size of a shared segment. A value longer than a quarter of it gets a segment of its own.
    pub segment_bytes: u64,
    /// Most bytes of values that are begun and neither finished nor abandoned.
    pub writing_bytes_max: u64,
}

impl Default for ValueOptions {
    fn default() -> Self {
        Self { segment_bytes: 64 << 20, writing_bytes_max: 2 * VALUE_BYTES_MAX }
    }
}

/// Statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ValueStatistics {
    /// Readable values, and condemned ones.
    pub values: usize,
    /// Number of files.
    pub segments: usize,
    /// Bytes of readable values with their headers.
    pub live_bytes: u64,
    /// Bytes of removed or abandoned values that are still on the disk.
    pub dead_bytes: u64,
    /// Bytes reserved for values being written.
    pub writing_bytes: u64,
    /// Bytes of all files, including unused space, without removed files that are still being read.
    pub disk_bytes: u64,
}

struct Entry {
    extent: Extent,
    owner: Arc<ValueOwner>,
    /// Set by [`Values::condemn`].
    is_condemned: bool,
}

/// The large values of a replica, owned by the thread that writes them.
pub struct Values {
    segments: Segments,
    index: HashMap<OpId, Entry, foldhash::fast::RandomState>,
    /// Begun by [`Self::begin`].
    being_written: HashSet<OpId, foldhash::fast::RandomState>,
    writing_bytes: u64,
    /// Sequence number of the last finished value.
    sequence: u64,
    compaction: Option<Compaction>,
    found: FoundValues,
}

impl Values {
    /// Opens or creates the values in `directory`. All values found are complete and durable.
    pub fn open(
        files: Arc<dyn Files>,
        directory: &Path,
        identity: LogIdentity,
        options: ValueOptions,
    ) -> Result<Self> {
        open::open(files, directory, identity, options)
    }

    /// Whether `directory`, in an existing data directory, has ever held a value.
    pub fn are_in(files: &dyn Files, directory: &Path) -> Result<bool> {
        let beside = directory.parent().unwrap_or(directory);
        let names = files.list(beside).map_err(StoreError::io("list", beside))?;
        Ok(names.iter().any(|name| directory.ends_with(name)))
    }

    /// Result of opening.
    pub fn found(&self) -> FoundValues {
        self.found
    }

    /// Reserves space for a value of `length` bytes. Nothing is reserved if there is no room
    /// ([`StoreError::is_out_of_space`]: try again later) or too much is being written
    /// ([`StoreError::ValuesBusy`]).
    pub fn begin(&mut self, name: OpId, owner: ValueOwner, length: u64) -> Result<Writing> {
        self.segments.shared.check()?;
        if length > VALUE_BYTES_MAX {
            return Err(StoreError::ValueTooLarge { bytes: length, bytes_max: VALUE_BYTES_MAX });
        }
        let key_bytes = owner.key.len();
        if key_bytes > OWNER_KEY_BYTES_MAX {
            return Err(StoreError::ValueOwnerTooLarge { bytes: key_bytes, bytes_max: OWNER_KEY_BYTES_MAX });
        }
        if self.contains(name) || self.being_written.contains(&name) {
            return Err(StoreError::ValueExists { name });
        }
        let bytes_max = self.segments.options.writing_bytes_max;
        if self.writing_bytes.saturating_add(length) > bytes_max {
            return Err(StoreError::ValuesBusy { bytes_max });
        }
        let writing = self.reserve(name, owner, length)?;
        self.being_written.insert(name);
        self.writing_bytes += length;
        Ok(writing)
    }

    fn reserve(&mut self, name: OpId, owner: ValueOwner, length: u64) -> Result<Writing> {
        let (extent, file) = self.segments.reserve(owner.key.len(), length)?;
        Ok(Writing::new(name, owner, extent, file, value_seed(&self.segments.identity, name)))
    }

    /// Writes a piece of a value, at any offset and in any order. A repeated piece must be equal.
    /// On a full disk it may be repeated; any other failure is permanent.
    pub fn write(&self, writing: &mut Writing, offset: u64, bytes: &[u8]) -> Result<()> {
        let shared = &self.segments.shared;
        shared.check()?;
        writing.write(offset, bytes).map_err(|error| match error {
            StoreError::ValueRange { .. } => error,
            error => shared.permanent(error),
        })
    }

    /// Finishes a value: it becomes durable with the next sync ([`Self::sync_handle`]). The caller
    /// must have written all pieces; those written out of order are read back for their checksums.
    /// After an error the value is abandoned.
    pub fn finish(&mut self, writing: Writing) -> Result<()> {
        self.ended(&writing);
        self.settle(writing, false)
    }

    /// Releases the space of an unfinished value.
    pub fn abandon(&mut self, writing: Writing) -> Result<()> {
        self.ended(&writing);
        self.segments.give_up(&writing.extent, writing.is_touched)
    }

    fn ended(&mut self, writing: &Writing) {
        let was_begun = self.being_written.remove(&writing.name);
        assert!(was_begun, "{} is not being written here", writing.name);
        self.writing_bytes -= writing.length();
    }

    /// Marks a damaged value that is to be replaced. This process no longer finds it; but a later
    /// process does if the replacement is not durable by then, so that it does not mistake the log
    /// record that names it for an unsynced one. `false` if there is no such value.
    pub fn condemn(&mut self, name: OpId) -> bool {
        self.index.get_mut(&name).map(|entry| entry.is_condemned = true).is_some()
    }

    /// Finishes a value; it replaces an older one with the same name.
    fn settle(&mut self, mut writing: Writing, is_copy: bool) -> Result<()> {
        if let Err(error) = self.write_header(&mut writing) {
            let given_up = self.segments.give_up(&writing.extent, true);
            return Err(given_up.err().unwrap_or(error));
        }
        let (name, extent) = (writing.name, writing.extent);
        self.segments.settle(&extent, name);
        let owner = Arc::new(writing.owner);
        let younger = Entry { extent, owner, is_condemned: is_copy && self.is_condemned(name) };
        if let Some(older) = self.index.insert(name, younger) {
            self.segments.kill(&older.extent);
            self.segments.keep_until(older.extent.segment, self.sequence);
        }
        Ok(())
    }

    fn is_condemned(&self, name: OpId) -> bool {
        self.index.get(&name).is_some_and(|entry| entry.is_condemned)
    }

    fn write_header(&mut self, writing: &mut Writing) -> Result<()> {
        let shared = &self.segments.shared;
        shared.check()?;
        writing.complete()?;
        self.sequence += 1;
        let (name, owner) = (writing.name, writing.owner.clone());
        let value = ValueHeader { name, owner, sequence: self.sequence, synced_through: shared.synced() };
        let (identity, extent) = (&self.segments.identity, &writing.extent);
        let header = encode_value_header(identity, extent, &value, writing.checksums());
        let written = writing.file.write_at(extent.offset, &header);
        // A value whose finishing failed may still be complete on disk; it must not count as
        // durable unless it is.
        shared.note_finished(&writing.file, self.sequence);
        written.map_err(|error| shared.permanent(error))
    }

    /// A handle for another thread to sync the values; also for [`crate::Log::sync_first`].
    pub fn sync_handle(&self) -> ValueSync {
        ValueSync { shared: self.segments.shared.clone() }
    }

    /// Whether a value of this name exists and is not condemned.
    pub fn contains(&self, name: OpId) -> bool {
        self.entry(name).is_ok()
    }

    /// Length of a value.
    pub fn length(&self, name: OpId) -> Result<u64> {
        Ok(self.entry(name)?.extent.length)
    }

    fn entry(&self, name: OpId) -> Result<&Entry> {
        let entry = self.index.get(&name).filter(|entry| !entry.is_condemned);
        entry.ok_or(StoreError::ValueNotFound { name })
    }

    /// Fills `buffer` from `offset` of a value: see [`Pinned::read`].
    pub fn read(&self, name: OpId, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.pin(name)?.read(offset, buffer)
    }

    /// Reads a whole value and verifies its checksums: [`StoreError::Corrupt`] if it is damaged.
    pub fn verify(&self, name: OpId) -> Result<()> {
        self.pin(name)?.verify()
    }

    /// Pins a value for reading from any thread, even if it is removed here.
    pub fn pin(&self, name: OpId) -> Result<Pinned> {
        self.entry(name).and_then(|entry| self.pin_entry(name, entry))
    }

    fn pin_entry(&self, name: OpId, entry: &Entry) -> Result<Pinned> {
        let Entry { extent, owner, .. } = entry;
        let file = self.segments.file(extent.segment)?;
        let seed = value_seed(&self.segments.identity, name);
        Ok(Pinned { file, extent: *extent, name, owner: owner.clone(), seed })
    }

    /// All values, unordered: name, owner, length.
    pub fn iter(&self) -> impl Iterator<Item = (OpId, &ValueOwner, u64)> {
        self.index.iter().map(|(name, entry)| (*name, &*entry.owner, entry.extent.length))
    }

    /// Removes a value until a restart finds it again: its space is reclaimed with its segment.
    /// `false` if there is none. It is removed even after an error; then a later
    /// [`Self::compact_step`] reclaims its segment.
    pub fn remove(&mut self, name: OpId) -> Result<bool> {
        let Some(entry) = self.index.remove(&name) else { return Ok(false) };
        self.segments.kill(&entry.extent);
        self.segments.remove_if_empty(entry.extent.segment)?;
        Ok(true)
    }

    /// Statistics.
    pub fn statistics(&self) -> ValueStatistics {
        let known = &self.segments.known;
        let mut statistics =
            ValueStatistics { values: self.index.len(), segments: known.len(), ..ValueStatistics::default() };
        for segment in known.values() {
            statistics.live_bytes += segment.live;
            statistics.dead_bytes += segment.dead();
            statistics.writing_bytes += segment.writing;
            statistics.disk_bytes += segment.bytes;
        }
        statistics
    }
}
