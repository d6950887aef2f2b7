//! Recovery of values: finds them again, and distinguishes complete from torn ones (rule in module
//! `values`).
//!
//! ```text
//!   │header│ A │ ? │ 0 0 0 │ B │ 0 0 0 │      header of A: go on behind A
//!      │        │      │     └ B is found by looking at each multiple of 4,096 bytes
//!      │        │      └ never written: a value that was not finished
//!      │        └ not blank and no header: counted as damaged
//!      └ synced through: what is younger than all of these is read, then written again, or blanked
//! ```

use super::{
    Entry, ValueOptions, Values,
    file::{OpenFiles, ValueFile},
    format::{
        ALIGN_BYTES, Extent, FIRST_EXTENT, FORMAT_VERSION, SegmentHeader, ValueHeader, decode_segment_header,
        decode_value_header, is_blank, parse_segment_name, value_seed,
    },
    pinned::Pinned,
    segments::{Segment, Segments},
    sync::Shared,
};
use crate::{Result, StoreError, files::Files, log::LogIdentity};
use std::{collections::BTreeMap, path::Path, sync::Arc};

/// Bytes read at once when searching for headers.
const SEARCH_BYTES: u64 = 1 << 20;

/// Result of opening, besides the values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FoundValues {
    /// Places where the header of a segment or value is damaged; the values there are lost here.
    pub headers_damaged: u64,
    /// Values that were finished but not synced, and are incomplete.
    pub values_dropped: u64,
}

struct Recovery<'a> {
    files: &'a dyn Files,
    directory: &'a Path,
    identity: &'a LogIdentity,
    /// Sequence number up to which values are known to have been durable.
    proven: u64,
    /// Highest sequence number.
    last: u64,
    found: FoundValues,
}

/// Result of reading the start of a segment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    Shared,
    Own,
    Unknown,
}

struct Scanned {
    number: u64,
    file: Arc<ValueFile>,
    start: Start,
    values: Vec<(Extent, ValueHeader)>,
}

/// Opens all segments of the directory.
pub(super) fn open(
    files: Arc<dyn Files>,
    directory: &Path,
    identity: LogIdentity,
    options: ValueOptions,
) -> Result<Values> {
    files.create_directory(directory).map_err(StoreError::io("create", directory))?;
    let names = files.list(directory).map_err(StoreError::io("list", directory))?;
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| parse_segment_name(name)).collect();
    numbers.sort_unstable();
    let found = FoundValues::default();
    let mut recovery = Recovery { files: &*files, directory, identity: &identity, proven: 0, last: 0, found };
    let mut scanned = numbers.iter().map(|number| recovery.scan(*number)).collect::<Result<Vec<_>>>()?;
    for segment in &mut scanned {
        recovery.keep_whole(segment)?;
    }
    scanned.retain(|segment| !segment.values.is_empty());
    files.sync_directory(directory).map_err(StoreError::io("sync", directory))?;
    let (sequence, found) = (recovery.last.max(recovery.proven), recovery.found);
    let shared = Arc::new(Shared::new(files, directory.to_path_buf(), sequence));
    let is_shared = |segment: &&Scanned| segment.start == Start::Shared;
    let segments = Segments {
        shared,
        identity,
        options,
        known: BTreeMap::new(),
        current: scanned.last().filter(is_shared).map(|segment| segment.number),
        next_number: numbers.last().map_or(1, |number| number + 1),
        open: OpenFiles::default(),
    };
    let mut values = Values {
        segments,
        index: hashbrown::HashMap::default(),
        being_written: hashbrown::HashSet::default(),
        writing_bytes: 0,
        sequence,
        compaction: None,
        found,
    };
    values.take(scanned)?;
    Ok(values)
}

impl Values {
    /// Selects the youngest value of each name.
    fn take(&mut self, scanned: Vec<Scanned>) -> Result<()> {
        let mut numbers = Vec::with_capacity(scanned.len());
        let mut all = Vec::new();
        for Scanned { number, start, values, .. } in scanned {
            let end = values.iter().map(|(extent, _)| extent.end()).max().unwrap_or(FIRST_EXTENT);
            let segment = Segment { next: end, ..Segment::new(start == Start::Own, end) };
            self.segments.known.insert(number, segment);
            numbers.push(number);
            all.extend(values);
        }
        all.sort_unstable_by_key(|(_, value)| std::cmp::Reverse(value.sequence));
        for (extent, value) in all {
            if !self.index.contains_key(&value.name) {
                let owner = Arc::new(value.owner);
                self.index.insert(value.name, Entry { extent, owner, is_condemned: false });
                self.segments.find(&extent, value.name);
            }
        }
        numbers.into_iter().try_for_each(|number| self.segments.remove_if_empty(number))
    }
}

impl Recovery<'_> {
    /// Reads the headers of a segment.
    fn scan(&mut self, number: u64) -> Result<Scanned> {
        let file = Arc::new(ValueFile::open(self.files, self.directory, number, false)?);
        let mut search = Search { file: &file, length: file.length()?, bytes: vec![], at: 0 };
        let start = self.judge_start(number, search.at(0, ALIGN_BYTES)?, file.path())?;
        let (mut offset, mut is_lost, mut values) = (FIRST_EXTENT, false, Vec::new());
        while offset < search.length {
            let length = search.length;
            let bytes = search.at(offset, if is_lost { SEARCH_BYTES } else { ALIGN_BYTES })?;
            let header = decode_value_header(bytes, self.identity, number, offset);
            if let Some((extent, value)) = header.filter(|(extent, _)| extent.end() <= length) {
                self.proven = self.proven.max(value.synced_through);
                self.last = self.last.max(value.sequence);
                offset = extent.end();
                is_lost = false;
                values.push((extent, value));
                continue;
            }
            if !is_lost && !is_blank(bytes) {
                self.found.headers_damaged += 1;
            }
            if start == Start::Own {
                break; // there is no other place for a header
            }
            is_lost = true;
            offset += ALIGN_BYTES;
        }
        Ok(Scanned { number, file, start, values })
    }

    fn judge_start(&mut self, number: u64, bytes: &[u8], path: &Path) -> Result<Start> {
        match decode_segment_header(bytes, self.identity, number) {
            SegmentHeader::Valid(start) => {
                self.proven = self.proven.max(start.synced_through);
                Ok(if start.is_own { Start::Own } else { Start::Shared })
            }
            SegmentHeader::Foreign => Err(StoreError::ValuesForeign { path: path.to_path_buf() }),
            SegmentHeader::Newer { version } => Err(StoreError::NewerFormat {
                path: path.to_path_buf(),
                found: version,
                known: FORMAT_VERSION,
            }),
            SegmentHeader::Invalid => {
                self.found.headers_damaged += u64::from(!is_blank(bytes));
                Ok(Start::Unknown)
            }
        }
    }

    /// Blanks torn values, writes values that are not proven durable again, and releases unused
    /// space. Changes are synced: later values of the segment may prove blanked ones durable, or
    /// overwrite them.
    fn keep_whole(&mut self, segment: &mut Scanned) -> Result<()> {
        let mut is_changed = false;
        let mut kept = Vec::with_capacity(segment.values.len());
        for (extent, value) in segment.values.drain(..) {
            if value.sequence <= self.proven || self.rewrite_if_whole(&segment.file, extent, &value)? {
                is_changed |= value.sequence > self.proven;
                kept.push((extent, value));
            } else {
                segment.file.write_at(extent.offset, &[0; ALIGN_BYTES as usize])?;
                self.found.values_dropped += 1;
                is_changed = true;
            }
        }
        segment.values = kept;
        let Some((last, _)) = segment.values.last() else {
            let path = segment.file.path();
            return self.files.remove(path).map_err(StoreError::io("remove", path));
        };
        if segment.file.length()? > last.end() {
            segment.file.set_length(last.end())?;
            is_changed = true;
        }
        if is_changed { segment.file.sync() } else { Ok(()) }
    }

    /// Whether the value is complete; then it is written again.
    fn rewrite_if_whole(&self, file: &Arc<ValueFile>, extent: Extent, value: &ValueHeader) -> Result<bool> {
        let (name, owner) = (value.name, Arc::new(value.owner.clone()));
        let pinned =
            Pinned { file: file.clone(), extent, name, owner, seed: value_seed(self.identity, name) };
        match pinned.verify() {
            Ok(()) => {}
            Err(StoreError::Corrupt { .. }) => return Ok(false),
            Err(error) => return Err(error),
        }
        let mut bytes = Vec::new();
        let mut at = extent.offset;
        while at < extent.end() {
            bytes.resize((extent.end() - at).min(SEARCH_BYTES) as usize, 0);
            file.read_at(at, &mut bytes)?;
            file.write_at(at, &bytes)?;
            at += bytes.len() as u64;
        }
        Ok(true)
    }
}

/// A window on a file that moves forward.
struct Search<'a> {
    file: &'a ValueFile,
    length: u64,
    bytes: Vec<u8>,
    at: u64,
}

impl Search<'_> {
    /// The page at `offset`, as far as the file extends; if it is outside the window, up to
    /// `bytes_max` bytes from there are read.
    fn at(&mut self, offset: u64, bytes_max: u64) -> Result<&[u8]> {
        let page_end = (offset + ALIGN_BYTES).min(self.length);
        if offset < self.at || page_end > self.at + self.bytes.len() as u64 {
            self.bytes.resize(bytes_max.min(self.length.saturating_sub(offset)) as usize, 0);
            self.at = offset;
            self.file.read_at(offset, &mut self.bytes)?;
        }
        Ok(&self.bytes[(offset - self.at) as usize..(page_end - self.at) as usize])
    }
}
