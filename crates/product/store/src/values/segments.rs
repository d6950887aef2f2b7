//! Segments: space for new values, and accounting of dead ones.
//!
//! ```text
//!   shared   │header│ live │ dead │ writing │ live │  room  │      one is current and is filled from the front
//!            0      └──────────── used ────────────next   bytes
//!   own      │header│ live (a value above a quarter of a shared one) │
//! ```
//!
//! Dead space is never written again, so a reader of a removed value never sees another's bytes: a
//! segment is removed as a whole, when nothing in it is alive.

use super::{
    ValueOptions,
    file::{OpenFiles, ValueFile},
    format::{Extent, FIRST_EXTENT, SegmentStart, VALUE_BYTES_MAX, encode_segment_header, segment_name},
    sync::Shared,
};
use crate::{Result, StoreError, log::LogIdentity};
use nicekv_proto::OpId;
use std::{collections::BTreeMap, sync::Arc};

/// A value longer than this part (1/N) of a shared segment gets a separate segment, so that less
/// than that is wasted at the end of a shared one.
const OWN_PART: u64 = 4;

/// State of a segment.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) is_own: bool,
    /// Length of the file.
    pub(super) bytes: u64,
    /// Offset of the next value.
    pub(super) next: u64,
    /// Bytes of live values.
    pub(super) live: u64,
    /// Bytes of values being written.
    pub(super) writing: u64,
    /// Names of all values that were finished in it, dead or alive.
    pub(super) names: Vec<OpId>,
    /// Sequence number of the last copy of a value in it: the segment stays until that copy is
    /// durable.
    pub(super) copied_through: u64,
    /// A live value in it cannot be read, so it is not compacted until a value in it is removed.
    pub(super) is_blocked: bool,
}

impl Segment {
    /// An empty segment.
    pub(super) fn new(is_own: bool, bytes: u64) -> Self {
        let (next, names) = (FIRST_EXTENT, vec![]);
        Self { is_own, bytes, next, live: 0, writing: 0, names, copied_through: 0, is_blocked: false }
    }

    /// Bytes assigned to values so far.
    pub(super) fn used(&self) -> u64 {
        self.next - FIRST_EXTENT
    }

    pub(super) fn dead(&self) -> u64 {
        self.used() - self.live - self.writing
    }

    pub(super) fn is_empty(&self) -> bool {
        self.live == 0 && self.writing == 0
    }
}

/// All segments.
pub(super) struct Segments {
    pub(super) shared: Arc<Shared>,
    pub(super) identity: LogIdentity,
    pub(super) options: ValueOptions,
    pub(super) known: BTreeMap<u64, Segment>,
    /// The shared segment being filled.
    pub(super) current: Option<u64>,
    pub(super) next_number: u64,
    pub(super) open: OpenFiles,
}

impl Segments {
    /// Reserves room for a value; its bytes count as being written.
    pub(super) fn reserve(&mut self, key_bytes: usize, length: u64) -> Result<(Extent, Arc<ValueFile>)> {
        debug_assert!(length <= VALUE_BYTES_MAX);
        let place = |segment, offset| Extent { segment, offset, key_bytes, length };
        let bytes = place(0, FIRST_EXTENT).bytes();
        let number = if FIRST_EXTENT + bytes > self.options.segment_bytes / OWN_PART {
            self.create(true, bytes)?
        } else {
            self.current_with_room(bytes)?
        };
        let file = self.file(number)?;
        let segment = self.known.get_mut(&number).expect("it was just found or made");
        let extent = place(number, segment.next);
        segment.next += bytes;
        segment.writing += bytes;
        Ok((extent, file))
    }

    /// The current segment, or a new one if it is full.
    fn current_with_room(&mut self, bytes: u64) -> Result<u64> {
        if let Some(number) = self.current {
            let end = self.known[&number].next + bytes;
            if end <= self.options.segment_bytes {
                self.allocate(number, end)?;
                return Ok(number);
            }
            self.seal()?;
        }
        let number = self.create(false, bytes)?;
        self.current = Some(number);
        Ok(number)
    }

    /// Extends the current segment to `end`, and if the disk has room, to its full size.
    fn allocate(&mut self, number: u64, end: u64) -> Result<()> {
        if end <= self.known[&number].bytes {
            return Ok(());
        }
        let bytes = allocate(&*self.file(number)?, self.options.segment_bytes, end)?;
        self.known.get_mut(&number).expect("it is the current one").bytes = bytes;
        Ok(())
    }

    /// Ends the current segment and releases its unused space.
    pub(super) fn seal(&mut self) -> Result<()> {
        let Some(number) = self.current else { return Ok(()) };
        let file = self.file(number)?;
        let segment = self.known.get_mut(&number).expect("the current one is known");
        if segment.bytes > segment.next {
            file.set_length(segment.next)?;
            segment.bytes = segment.next;
        }
        self.current = None;
        self.remove_if_empty(number)
    }

    /// A new segment with room for at least `bytes`. A failed attempt leaves nothing behind.
    fn create(&mut self, is_own: bool, bytes: u64) -> Result<u64> {
        let (number, shared) = (self.next_number, self.shared.clone());
        let needed = FIRST_EXTENT + bytes;
        let wanted = if is_own { needed } else { self.options.segment_bytes };
        let start = SegmentStart { number, synced_through: shared.synced(), is_own };
        let file = ValueFile::open(&*shared.files, &shared.directory, number, true)?;
        let made = allocate(&file, wanted, needed).and_then(|bytes| {
            file.write_at(0, &encode_segment_header(&self.identity, &start))?;
            Ok(bytes)
        });
        let bytes = made.map_err(|error| {
            // The next attempt may use its number.
            let _ = shared.files.remove(file.path());
            shared.permanent(error)
        })?;
        shared.note_created();
        self.known.insert(number, Segment::new(is_own, bytes));
        self.next_number += 1;
        self.open.get(number, || Ok(file))?;
        Ok(number)
    }

    pub(super) fn file(&self, number: u64) -> Result<Arc<ValueFile>> {
        let shared = &self.shared;
        self.open.get(number, || ValueFile::open(&*shared.files, &shared.directory, number, false))
    }

    /// The written value is finished.
    pub(super) fn settle(&mut self, extent: &Extent, name: OpId) {
        let segment = self.known.get_mut(&extent.segment).expect("a segment is kept while it is written to");
        segment.writing -= extent.bytes();
        self.find(extent, name);
    }

    /// Adds a live value.
    pub(super) fn find(&mut self, extent: &Extent, name: OpId) {
        let segment = self.known.get_mut(&extent.segment).expect("a segment is known before its values");
        segment.live += extent.bytes();
        segment.names.push(name);
    }

    /// A value was abandoned. If no byte of it was written and no value follows, the next value
    /// takes its place.
    pub(super) fn give_up(&mut self, extent: &Extent, is_touched: bool) -> Result<()> {
        let segment = self.known.get_mut(&extent.segment).expect("a segment is kept while it is written to");
        segment.writing -= extent.bytes();
        if !is_touched && segment.next == extent.end() {
            segment.next = extent.offset;
        }
        self.remove_if_empty(extent.segment)
    }

    /// A value was removed.
    pub(super) fn kill(&mut self, extent: &Extent) {
        let segment =
            self.known.get_mut(&extent.segment).expect("a segment is kept while a value in it lives");
        segment.live -= extent.bytes();
        segment.is_blocked = false;
    }

    /// The content of a segment was copied: it stays until all values up to this one are durable.
    pub(super) fn keep_until(&mut self, number: u64, sequence: u64) {
        let segment = self.known.get_mut(&number).expect("it held the value until now");
        segment.copied_through = sequence;
    }

    /// Removes a segment without live values, unless it is the current one or its copies are not
    /// durable.
    pub(super) fn remove_if_empty(&mut self, number: u64) -> Result<()> {
        let synced = self.shared.synced();
        let may_go = |segment: &Segment| segment.is_empty() && segment.copied_through <= synced;
        if self.current == Some(number) || !self.known.get(&number).is_some_and(may_go) {
            return Ok(());
        }
        let path = self.shared.directory.join(segment_name(number));
        self.shared.files.remove(&path).map_err(StoreError::io("remove", &path))?;
        self.open.forget(number);
        self.known.remove(&number);
        Ok(())
    }
}

/// Allocates `wanted` bytes of a file, or `needed` if the disk has no room for more; returns the
/// size.
fn allocate(file: &ValueFile, wanted: u64, needed: u64) -> Result<u64> {
    let before = file.length()?;
    let attempt = |bytes| {
        file.allocate(bytes).inspect_err(|_| {
            // Releases what a refused allocation has taken; if that fails, the next opening does.
            let _ = file.set_length(before);
        })
    };
    match attempt(wanted) {
        Err(error) if error.is_out_of_space() && needed < wanted => attempt(needed).map(|()| needed),
        done => done.map(|()| wanted),
    }
}
