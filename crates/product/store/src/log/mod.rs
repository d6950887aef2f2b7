//! The authoritative log of a replica: append-only segments of chained, checksummed records.
//!
//! # Invariants
//! - Positions are sequence numbers: +1 per record, across segments, for the life of the log. Each record holds
//!   the checksum of its predecessor, each segment header that of the last record before it.
//! - The manifest names the first segment and the last one that holds durable records, so a log whose segments are
//!   missing is known to be damaged: see `manifest`.
//! - A sync covers all earlier records (R2): segments are synced oldest first, the directory last.
//! - Each record carries `synced_through`, the position up to which the log was known to be durable
//!   when the record was appended. [`Log::write`] adds an unsynced *marker* record if more of the log
//!   has become durable and no record says so yet; markers take a position and are not passed to the
//!   caller.
//! - After the records of a segment there may be zeros to its end ([`LogOptions::ahead_bytes`]),
//!   and nothing else.
//! - After one failed sync or write (except a full disk) the log fails for good: the kernel marks
//!   pages clean that it did not write (docs/FAULTS.md row 8).
//!
//! # Opening: torn tail or damage
//! Zeros up to the end of a segment are its end: the log continues with the next segment, if its
//! header fits exactly, else with the next record in their place. Otherwise let *s* be the position
//! at which the next valid record is missing although other bytes or segments follow. Everything
//! after that place is searched, byte by byte, for intact records of this log (their checksum is
//! seeded by the log's identity).
//! - If one of them is later than *s* and has `synced_through` ≥ *s*, the place was durable and is
//!   damaged: [`StoreError::LogDamaged`] (docs/FAULTS.md row 7). Nothing on disk is changed.
//! - Otherwise there is no evidence that *s* was ever durable: the log ends before *s*, and the
//!   rest, which may have holes and even later segments after a power loss, is dropped and reported
//!   (docs/FAULTS.md row 6).
//!
//! Opening also checks the manifest: every segment that it names and every record up to its durable
//! position must exist. Otherwise the log is damaged: [`StoreError::LogSegmentMissing`],
//! [`StoreError::LogDamaged`].
//!
//! Limit of this rule: damage cannot be distinguished from a torn write if all evidence of
//! durability is lost with it. So damage counts as a torn tail if it hits the records of the last
//! sync before its marker (or a later record) reached the disk, or hits these as well, in the last
//! segment that the manifest names.
//!
//! Before the caller continues, whatever is not proven durable is written and synced again: see
//! `recover`.

mod format;
mod group_commit;
mod manifest;
mod recover;
mod segment;
mod sync;

pub use format::{LogIdentity, LogPosition, PAYLOAD_BYTES_MAX};
pub use group_commit::{GroupCommit, SyncNotifier};
pub use sync::{LogSync, SyncFirst};

use crate::{Result, StoreError, files::Files};
use format::{encode_record, parse_segment_name, segment_name, segment_seed};
use manifest::{Extent, MANIFEST_FILE, Manifest};
use segment::Segment;
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};
use sync::Shared;

/// Sizes of a log.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// A segment that has reached this size is followed by a new one at the next [`Log::write`].
    pub segment_bytes_max: u64,
    /// Most bytes appended but not written.
    pub buffer_bytes_max: usize,
    /// Disk space for coming records is zeroed in pieces of this size; 0: not at all.
    pub ahead_bytes: usize,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self { segment_bytes_max: 64 << 20, buffer_bytes_max: 64 << 20, ahead_bytes: 256 << 10 }
    }
}

/// Result of opening a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The oldest remaining position (if less than `next`).
    pub first: LogPosition,
    /// Position of the next appended record.
    pub next: LogPosition,
    /// Payloads passed to the visitor.
    pub records: u64,
    /// Size of the torn tail.
    pub bytes_dropped: u64,
    /// Segment and offset from which it was dropped.
    pub dropped_from: Option<(PathBuf, u64)>,
}

/// The log, owned by the thread that appends.
pub struct Log {
    shared: Arc<Shared>,
    identity: LogIdentity,
    options: LogOptions,
    /// First positions of all segments, ascending; the last segment is being written.
    segments: Vec<LogPosition>,
    segment: Segment,
    seed: u32,
    buffer: Vec<u8>,
    next: u64,
    checksum: u32,
    /// Highest `synced_through` of any record.
    marked: u64,
}

impl Log {
    /// Whether `directory` contains a log, or remains of one.
    pub fn is_in(files: &dyn Files, directory: &Path) -> Result<bool> {
        let names = match files.list(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            names => names.map_err(StoreError::io("list", directory))?,
        };
        Ok(names.iter().any(|name| name == MANIFEST_FILE || parse_segment_name(name).is_some()))
    }

    /// The error for a `directory` whose log is missing.
    pub fn missing(directory: &Path) -> StoreError {
        StoreError::LogManifest { path: directory.join(MANIFEST_FILE), what: "missing" }
    }

    /// Opens or creates the log in `directory`. `visit` gets every payload in order, with its
    /// position; if this returns an error, the caller must discard them. When it returns `Ok`, all
    /// visited records are durable.
    pub fn open(
        files: Arc<dyn Files>,
        directory: &Path,
        identity: LogIdentity,
        options: LogOptions,
        mut visit: impl FnMut(LogPosition, &[u8]),
    ) -> Result<(Self, Recovered)> {
        files.create_directory(directory).map_err(StoreError::io("create", directory))?;
        let manifest = open_manifest(&*files, directory, &identity)?;
        let (tail, recovered) =
            recover::recover(&*files, directory, &identity, &manifest.extent(), &mut visit)?;
        let synced = tail.next.0 - 1;
        let shared = Arc::new(Shared::new(files, directory.to_path_buf(), manifest, synced));
        let mut segments = tail.segments;
        let segment = match tail.last {
            Some((file, bytes, length)) => Segment::new(file, bytes, length, options.ahead_bytes),
            None => {
                segments.push(tail.next);
                create_first_segment(&shared, &identity, tail.next, options.ahead_bytes)?
            }
        };
        let (first, last) = (segments[0], *segments.last().expect("one was just added"));
        let extent = Extent { first, last: Some(last), durable: LogPosition(synced) };
        shared.replace_manifest(|before| *before = extent)?;
        let seed = segment_seed(&identity, last);
        let (next, checksum) = (tail.next.0, tail.checksum);
        let (buffer, marked) = (Vec::new(), 0);
        let log = Self { shared, identity, options, segments, segment, seed, buffer, next, checksum, marked };
        Ok((log, recovered))
    }

    /// Appends a record in memory: no system call, and no allocation once the buffer has its final
    /// size.
    pub fn append(&mut self, payload: &[u8]) -> Result<LogPosition> {
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(StoreError::RecordTooLarge { bytes: payload.len(), bytes_max: PAYLOAD_BYTES_MAX });
        }
        let bytes_max = self.options.buffer_bytes_max;
        if self.buffer.len() + format::RECORD_HEADER_BYTES + payload.len() > bytes_max {
            return Err(StoreError::LogBufferFull { bytes_max });
        }
        Ok(self.encode(Some(payload)))
    }

    fn encode(&mut self, payload: Option<&[u8]>) -> LogPosition {
        let position = LogPosition(self.next);
        self.marked = self.shared.synced();
        self.checksum =
            encode_record(&mut self.buffer, self.seed, self.next, self.marked, self.checksum, payload);
        self.next += 1;
        position
    }

    /// Writes everything appended to the operating system, with a marker if more of the log is
    /// durable than its records say; so call it once more after a sync that no other write follows.
    /// Starts a new segment when the current one is full. If the disk is full
    /// ([`StoreError::is_out_of_space`]), nothing is lost and the call may be repeated; any other
    /// failure is permanent.
    pub fn write(&mut self) -> Result<()> {
        self.shared.check()?;
        if self.marked < self.shared.synced() {
            self.encode(None);
        }
        if self.buffer.is_empty() {
            return Ok(());
        }
        if let Err(error) = self.segment.write(&mut self.buffer, self.options.segment_bytes_max) {
            let path = self.shared.directory.join(segment_name(self.segments[self.segments.len() - 1]));
            return Err(self.permanent(StoreError::Io { operation: "write", path, source: error }));
        }
        self.buffer.clear();
        let first = *self.segments.last().expect("there is one");
        self.shared.note_written(first, &self.segment.file, self.next - 1);
        if self.segment.bytes >= self.options.segment_bytes_max { self.rotate() } else { Ok(()) }
    }

    /// Like [`Self::write`], and starts a new segment even if the current one is not full, so that
    /// [`Self::trim`] can remove it.
    pub fn write_and_rotate(&mut self) -> Result<()> {
        let segments = self.segments.len();
        self.write()?;
        let holds_records = self.segments.last().expect("there is one").0 < self.next;
        if self.segments.len() == segments && holds_records { self.rotate() } else { Ok(()) }
    }

    /// A full disk only delays the new segment; the records have been written.
    fn rotate(&mut self) -> Result<()> {
        let first = LogPosition(self.next);
        let ahead_bytes = self.options.ahead_bytes;
        match Segment::create(&self.shared, &self.identity, first, self.checksum, ahead_bytes) {
            Ok(segment) => {
                self.segments.push(first);
                self.segment = segment;
                self.seed = segment_seed(&self.identity, first);
                Ok(())
            }
            Err(error) if error.is_out_of_space() => Ok(()),
            Err(error) => Err(self.permanent(error)),
        }
    }

    /// Makes a failure permanent, except for a full disk, after which the log stays usable.
    fn permanent(&self, error: StoreError) -> StoreError {
        if error.is_out_of_space() { error } else { self.shared.fail(&error) }
    }

    /// A handle for another thread to sync the log.
    pub fn sync_handle(&self) -> LogSync {
        LogSync { shared: self.shared.clone() }
    }

    /// Makes each sync first make `dependency` durable, and fail for good if that fails: whatever
    /// the dependency had finished before a record was appended is durable when the record is
    /// acknowledged. The operating system may write an unsynced record earlier; after a power loss
    /// the caller must drop such a record, which no one was told of, if what it names is missing.
    pub fn sync_first(&mut self, first: Arc<dyn SyncFirst>) {
        self.shared.set_first(first);
    }

    /// Position of the last appended record, written or not; one less than the first position if
    /// there is none.
    pub fn last(&self) -> LogPosition {
        LogPosition(self.next - 1)
    }

    /// Position up to which the log is durable.
    pub fn synced(&self) -> LogPosition {
        LogPosition(self.shared.synced())
    }

    /// Oldest position that is kept.
    pub fn first(&self) -> LogPosition {
        self.segments[0]
    }

    /// Bytes in the current segment, without trailing zeros.
    pub fn segment_bytes(&self) -> u64 {
        self.segment.bytes
    }

    /// Number of segments; all but the last are at least [`LogOptions::segment_bytes_max`] long, or
    /// were ended by [`Self::write_and_rotate`].
    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Deletes segments whose records are all before `before` (the caller's engine is durable past
    /// them). The rest begins with a durable record, or is the current segment. The manifest names
    /// the new first segment before any is deleted; files left by a crash are deleted at the next
    /// opening.
    pub fn trim(&mut self, before: LogPosition) -> Result<()> {
        let before = before.min(self.synced());
        let dead = self.segments[1..].iter().take_while(|first| **first <= before).count();
        if dead == 0 {
            return Ok(());
        }
        let first = self.segments[dead];
        match self.shared.replace_manifest(|extent| extent.first = first) {
            Err(error) if error.is_out_of_space() => return Ok(()), // the next trim deletes them
            replaced => replaced?,
        }
        let directory = &self.shared.directory;
        for first in self.segments.drain(..dead) {
            let path = directory.join(segment_name(first));
            self.shared.files.remove(&path).map_err(StoreError::io("remove", &path))?;
        }
        self.shared.files.sync_directory(directory).map_err(StoreError::io("sync", directory))
    }

    /// Records in the manifest how far the log is durable, so that a last segment that is shorter
    /// at the next opening counts as damaged. For a process that stops in good order.
    pub fn close(&mut self) -> Result<()> {
        self.shared.check()?;
        let durable = self.synced();
        self.shared.replace_manifest(|extent| extent.durable = durable)
    }
}

/// The manifest of a log; a new one if there is no log.
fn open_manifest(files: &dyn Files, directory: &Path, identity: &LogIdentity) -> Result<Manifest> {
    match Manifest::open(files, directory, identity)? {
        Some(manifest) => Ok(manifest),
        None if Log::is_in(files, directory)? => Err(Log::missing(directory)),
        None => Manifest::create(files, directory, identity),
    }
}

/// Creates a log's first segment durably, since the manifest names it next.
fn create_first_segment(
    shared: &Shared,
    identity: &LogIdentity,
    first: LogPosition,
    ahead_bytes: usize,
) -> Result<Segment> {
    let created = Segment::create(shared, identity, first, 0, ahead_bytes)?;
    let directory = &shared.directory;
    created.file.sync().map_err(StoreError::io("sync a segment in", directory))?;
    shared.files.sync_directory(directory).map_err(StoreError::io("sync", directory))?;
    Ok(created)
}
