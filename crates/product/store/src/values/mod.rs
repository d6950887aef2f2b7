//! Large values (above one datagram): each is written once, to a segment of its own or a shared one, beside the log that names it.
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
//! - Every header says through which sequence number values were known to be durable when it was written. At opening, a value that no
//!   header proves durable is read: if a block does not match its checksum it was torn, and its header is blanked. If all do it is written
//!   again and forced, because after a failed force the page cache can hold bytes that are not on the disk. So what is found is whole and
//!   durable, and what was forced is found.
//! - Damage in a value that is proven durable is found when it is read ([`StoreError::Corrupt`]) or by [`Values::verify`], in its header
//!   at opening, which skips to the next one ([`FoundValues::headers_damaged`]). Damage in the values of the last force of all is taken
//!   for a torn write, as in the log: they are missing. The log names them, so either way the caller knows what to copy from a replica.
//! - A removal is not written: after a restart the caller asks for each value whether its owner still refers to it ([`Values::iter`]).
//! - No place of a finished value is written to again, and a segment that was removed stays for those who hold it ([`Values::pin`]).
//! - A segment that was compacted stays until the copies are durable, and one in which values were condemned until those that were written in their places are. Of two values
//!   of one name the younger is taken; they are equal, unless one was damaged.
//! - One failed force or write (but a full disk) is permanent: docs/FAULTS.md row 8. Reading goes on.

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
    /// Size of a shared segment. A value above a quarter of it has one of its own.
    pub segment_bytes: u64,
    /// Most bytes of values that are begun and neither finished nor abandoned.
    pub writing_bytes_max: u64,
}

impl Default for ValueOptions {
    fn default() -> Self {
        Self { segment_bytes: 64 << 20, writing_bytes_max: 2 * VALUE_BYTES_MAX }
    }
}

/// How much there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ValueStatistics {
    /// Values that can be read, and those that are condemned.
    pub values: usize,
    /// Files.
    pub segments: usize,
    /// Bytes of values that can be read, with their headers.
    pub live_bytes: u64,
    /// Bytes of what was removed or abandoned and is still on the disk.
    pub dead_bytes: u64,
    /// Bytes set aside for values that are being written.
    pub writing_bytes: u64,
    /// Bytes of all files, which may have room for more. Removed ones that somebody still reads are not counted.
    pub disk_bytes: u64,
}

struct Entry {
    extent: Extent,
    owner: Arc<ValueOwner>,
    /// See [`Values::condemn`].
    is_condemned: bool,
}

/// The large values of a replica; owned by the thread that writes them.
pub struct Values {
    segments: Segments,
    index: HashMap<OpId, Entry, foldhash::fast::RandomState>,
    /// Begun by [`Self::begin`].
    being_written: HashSet<OpId, foldhash::fast::RandomState>,
    writing_bytes: u64,
    /// Sequence number of the last value finished.
    sequence: u64,
    compaction: Option<Compaction>,
    found: FoundValues,
}

impl Values {
    /// Opens or creates the values in `directory`. All that are found then are whole and durable.
    pub fn open(
        files: Arc<dyn Files>,
        directory: &Path,
        identity: LogIdentity,
        options: ValueOptions,
    ) -> Result<Self> {
        open::open(files, directory, identity, options)
    }

    /// Whether there has been a value in `directory`, which is in another one that is there.
    pub fn are_in(files: &dyn Files, directory: &Path) -> Result<bool> {
        let beside = directory.parent().unwrap_or(directory);
        let names = files.list(beside).map_err(StoreError::io("list", beside))?;
        Ok(names.iter().any(|name| directory.ends_with(name)))
    }

    /// What opening found.
    pub fn found(&self) -> FoundValues {
        self.found
    }

    /// Takes space for a value of `length` bytes. Nothing is taken if there is no room for it
    /// ([`StoreError::is_out_of_space`]: try again when there is) or if too much is being written ([`StoreError::ValuesBusy`]).
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

    /// Writes a piece of a value, at any offset in it and in any order. A piece that comes again is to be the same. On a full disk it may
    /// be repeated; any other failure is permanent.
    pub fn write(&self, writing: &mut Writing, offset: u64, bytes: &[u8]) -> Result<()> {
        let shared = &self.segments.shared;
        shared.check()?;
        writing.write(offset, bytes).map_err(|error| match error {
            StoreError::ValueRange { .. } => error,
            error => shared.permanent(error),
        })
    }

    /// Makes what was written a value, which is durable after the next force ([`Self::sync_handle`]). The caller knows that all pieces were
    /// written; those that came out of order are read back for their checksums. After an error it is abandoned.
    pub fn finish(&mut self, writing: Writing) -> Result<()> {
        self.ended(&writing);
        self.settle(writing, false)
    }

    /// Gives the space of a value back that will not be finished.
    pub fn abandon(&mut self, writing: Writing) -> Result<()> {
        self.ended(&writing);
        self.segments.give_up(&writing.extent, writing.is_touched)
    }

    fn ended(&mut self, writing: &Writing) {
        let was_begun = self.being_written.remove(&writing.name);
        assert!(was_begun, "{} is not being written here", writing.name);
        self.writing_bytes -= writing.length();
    }

    /// What is there is damaged, and is to be written again. Until that is finished it is not there for this process; but a process to come finds it if what takes its place is not durable
    /// then, and so does not take what speaks of it for what was never forced. False if there is none.
    pub fn condemn(&mut self, name: OpId) -> bool {
        self.index.get_mut(&name).map(|entry| entry.is_condemned = true).is_some()
    }

    /// The value takes the place of an older one of its name.
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
        // Also what was refused may be there as a whole: then it must not be taken for durable unless it is.
        shared.note_finished(&writing.file, self.sequence);
        written.map_err(|error| shared.permanent(error))
    }

    /// A handle with which another thread forces the values; also for [`crate::Log::sync_first`].
    pub fn sync_handle(&self) -> ValueSync {
        ValueSync { shared: self.segments.shared.clone() }
    }

    /// Whether there is a value of this name, and not condemned.
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

    /// Reads all of a value and compares its checksums: [`StoreError::Corrupt`] if it is damaged.
    pub fn verify(&self, name: OpId) -> Result<()> {
        self.pin(name)?.verify()
    }

    /// Holds a value for reading, from any thread, whatever becomes of it here.
    pub fn pin(&self, name: OpId) -> Result<Pinned> {
        self.entry(name).and_then(|entry| self.pin_entry(name, entry))
    }

    fn pin_entry(&self, name: OpId, entry: &Entry) -> Result<Pinned> {
        let Entry { extent, owner, .. } = entry;
        let file = self.segments.file(extent.segment)?;
        let seed = value_seed(&self.segments.identity, name);
        Ok(Pinned { file, extent: *extent, name, owner: owner.clone(), seed })
    }

    /// All values, in any order: name, owner, length.
    pub fn iter(&self) -> impl Iterator<Item = (OpId, &ValueOwner, u64)> {
        self.index.iter().map(|(name, entry)| (*name, &*entry.owner, entry.extent.length))
    }

    /// The value is dead, until a restart finds it again: it goes from the disk with its segment. False if there is none. After an error
    /// it is dead, too; its segment goes at a later [`Self::compact_step`].
    pub fn remove(&mut self, name: OpId) -> Result<bool> {
        let Some(entry) = self.index.remove(&name) else { return Ok(false) };
        self.segments.kill(&entry.extent);
        self.segments.remove_if_empty(entry.extent.segment)?;
        Ok(true)
    }

    /// How much there is.
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
