//! Recovery of a log: reads it back, and distinguishes a torn tail from damage (rule in module
//! `log`).

use super::{
    Extent, LogIdentity, LogPosition, Recovered,
    format::{
        Record, SEGMENT_HEADER_BYTES, SegmentHeader, decode_record, decode_segment_header,
        encode_segment_header, parse_segment_name, segment_name, segment_seed,
    },
};
use crate::{
    Result, StoreError,
    files::{Files, StoreFile, read_all},
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// State from which appending continues.
pub(super) struct Tail {
    /// First positions of the kept segments, ascending.
    pub(super) segments: Vec<LogPosition>,
    /// The last of them, if any: end of its records, and its length; zeros are between the two.
    pub(super) last: Option<(Arc<dyn StoreFile>, u64, u64)>,
    /// Position of the next record.
    pub(super) next: LogPosition,
    /// Checksum of the last record.
    pub(super) checksum: u32,
}

struct Recovery<'a> {
    files: &'a dyn Files,
    directory: &'a Path,
    identity: &'a LogIdentity,
    extent: &'a Extent,
    segments: Vec<LogPosition>,
    /// First position of the last segment that continues the log.
    reached: Option<LogPosition>,
    next: LogPosition,
    checksum: u32,
    synced_through: u64,
    /// End of the records in the last segment that continues the log.
    end: u64,
    recovered: Recovered,
}

/// Where the valid log ends although bytes or segments follow.
struct Break {
    segment: usize,
    offset: u64,
}

/// Validates all segments, passes each payload to `visit`, cuts a torn tail, and makes the rest
/// durable. Removes segments before the first one, which an interrupted trim has left.
pub(super) fn recover(
    files: &dyn Files,
    directory: &Path,
    identity: &LogIdentity,
    extent: &Extent,
    visit: &mut dyn FnMut(LogPosition, &[u8]),
) -> Result<(Tail, Recovered)> {
    let names = files.list(directory).map_err(StoreError::io("list", directory))?;
    let mut segments: Vec<LogPosition> = names.iter().filter_map(|name| parse_segment_name(name)).collect();
    segments.sort_unstable();
    let first = extent.first;
    let trimmed: Vec<_> = segments.extract_if(.., |segment| *segment < first).collect();
    let has_first = extent.last.is_some() || !segments.is_empty();
    let mut named = has_first.then_some(first).into_iter().chain(extent.last);
    if let Some(missing) = named.find(|named| !segments.contains(named)) {
        return Err(StoreError::LogSegmentMissing { path: directory.join(segment_name(missing)) });
    }
    let recovered = Recovered { first, next: first, records: 0, bytes_dropped: 0, dropped_from: None };
    let mut recovery = Recovery {
        files,
        directory,
        identity,
        extent,
        segments,
        reached: None,
        next: first,
        checksum: 0,
        synced_through: 0,
        end: 0,
        recovered,
    };
    let end = recovery.read_valid(visit)?;
    recovery.refuse_if_named(end.as_ref())?;
    if let Some(end) = &end {
        recovery.refuse_if_durable(end)?;
        recovery.cut(end)?;
    }
    for first in trimmed {
        let path = directory.join(segment_name(first));
        files.remove(&path).map_err(StoreError::io("remove", &path))?;
    }
    recovery.make_durable()?;
    recovery.finish()
}

impl Recovery<'_> {
    fn path(&self, segment: usize) -> PathBuf {
        self.directory.join(segment_name(self.segments[segment]))
    }

    fn read(&self, segment: usize, content: &mut Vec<u8>) -> Result<Arc<dyn StoreFile>> {
        let path = self.path(segment);
        let file = self.files.open(&path, false).map_err(StoreError::io("open", &path))?;
        read_all(&*file, content).map_err(StoreError::io("read", &path))?;
        Ok(file)
    }

    /// Reads up to the first invalid place.
    fn read_valid(&mut self, visit: &mut dyn FnMut(LogPosition, &[u8])) -> Result<Option<Break>> {
        let mut content = Vec::new();
        let mut has_zeros = false;
        for segment in 0..self.segments.len() {
            self.read(segment, &mut content)?;
            let valid_bytes = self.read_segment(segment, &content, visit)?;
            if valid_bytes == 0 {
                // If the previous segment ends with zeros, the missing records belong there.
                let zeros_before = Break { segment: segment.wrapping_sub(1), offset: self.end };
                return Ok(Some(if has_zeros { zeros_before } else { Break { segment, offset: 0 } }));
            }
            self.end = valid_bytes as u64;
            self.reached = Some(self.segments[segment]);
            let tail = &content[valid_bytes..];
            if tail.iter().any(|byte| *byte != 0) {
                return Ok(Some(Break { segment, offset: self.end }));
            }
            has_zeros = !tail.is_empty();
        }
        Ok(None)
    }

    /// Bytes from the start of the segment that continue the log; 0 if its header does not fit.
    fn read_segment(
        &mut self,
        segment: usize,
        content: &[u8],
        visit: &mut dyn FnMut(LogPosition, &[u8]),
    ) -> Result<usize> {
        let first = self.segments[segment];
        match decode_segment_header(content, self.identity, first) {
            SegmentHeader::Foreign => return Err(StoreError::LogForeign { path: self.path(segment) }),
            SegmentHeader::Newer { version } => {
                let known = super::format::FORMAT_VERSION;
                return Err(StoreError::NewerFormat { path: self.path(segment), found: version, known });
            }
            SegmentHeader::Invalid => return Ok(0),
            SegmentHeader::Valid { predecessor_checksum } if segment == 0 => {
                self.checksum = predecessor_checksum;
            }
            SegmentHeader::Valid { predecessor_checksum } => {
                if first != self.next || predecessor_checksum != self.checksum {
                    return Ok(0);
                }
            }
        }
        let seed = segment_seed(self.identity, first);
        let mut offset = SEGMENT_HEADER_BYTES;
        while let Some(record) = decode_record(&content[offset..], seed) {
            if record.sequence != self.next.0
                || record.predecessor_checksum != self.checksum
                || record.synced_through >= record.sequence
            {
                break;
            }
            self.accept(&record, visit);
            offset += record.bytes;
        }
        Ok(offset)
    }

    fn accept(&mut self, record: &Record<'_>, visit: &mut dyn FnMut(LogPosition, &[u8])) {
        if let Some(payload) = record.payload {
            visit(self.next, payload);
            self.recovered.records += 1;
        }
        self.checksum = record.checksum;
        self.synced_through = self.synced_through.max(record.synced_through);
        self.next = LogPosition(record.sequence + 1);
    }

    /// Errors if a segment or a durable record that the manifest names is missing.
    fn refuse_if_named(&self, end: Option<&Break>) -> Result<()> {
        if self.next > self.extent.durable && self.reached >= self.extent.last {
            return Ok(());
        }
        let (segment, offset) = match end {
            Some(end) => (end.segment, end.offset),
            None => (self.segments.len() - 1, self.end),
        };
        if offset == 0 && self.segments[segment] > self.next {
            let path = self.directory.join(segment_name(self.next));
            return Err(StoreError::LogSegmentMissing { path });
        }
        Err(StoreError::LogDamaged { path: self.path(segment), offset, position: self.next })
    }

    /// Searches everything after the break for a record that proves that the place of the break was
    /// durable.
    fn refuse_if_durable(&self, end: &Break) -> Result<()> {
        let mut content = Vec::new();
        for segment in end.segment..self.segments.len() {
            self.read(segment, &mut content)?;
            let from = if segment == end.segment { end.offset as usize } else { 0 };
            let seed = segment_seed(self.identity, self.segments[segment]);
            let proves =
                |record: Record<'_>| record.sequence > self.next.0 && record.synced_through >= self.next.0;
            let mut records =
                (from..content.len()).filter_map(|offset| decode_record(&content[offset..], seed));
            if records.any(proves) {
                let path = self.path(end.segment);
                return Err(StoreError::LogDamaged { path, offset: end.offset, position: self.next });
            }
        }
        Ok(())
    }

    /// Removes the torn tail: later segments from the last one backwards, then the rest of the
    /// broken one.
    fn cut(&mut self, end: &Break) -> Result<()> {
        self.recovered.dropped_from = Some((self.path(end.segment), end.offset));
        while self.segments.len() > end.segment {
            let segment = self.segments.len() - 1;
            let path = self.path(segment);
            let file = self.files.open(&path, false).map_err(StoreError::io("open", &path))?;
            let length = file.length().map_err(StoreError::io("read", &path))?;
            if segment == end.segment && end.offset > 0 {
                self.recovered.bytes_dropped += length - end.offset;
                file.set_length(end.offset).map_err(StoreError::io("truncate", &path))?;
                self.end = end.offset;
                break;
            }
            self.recovered.bytes_dropped += length;
            if segment == 0 {
                // At least one segment must remain: its name preserves the position.
                let header = encode_segment_header(self.identity, self.segments[0], 0);
                file.set_length(0).map_err(StoreError::io("truncate", &path))?;
                file.write_at(0, &header).map_err(StoreError::io("write", &path))?;
                self.end = header.len() as u64;
                break;
            }
            self.files.remove(&path).map_err(StoreError::io("remove", &path))?;
            self.sync_directory()?;
            self.segments.pop();
        }
        Ok(())
    }

    fn sync_directory(&self) -> Result<()> {
        self.files.sync_directory(self.directory).map_err(StoreError::io("sync", self.directory))
    }

    /// The caller acts on every record passed to it, so all must be durable before it continues.
    /// Records without proof of durability are written again first: after a failed fsync, the page
    /// cache can hold bytes that are marked clean but are not on the disk.
    fn make_durable(&self) -> Result<()> {
        let mut content = Vec::new();
        for segment in (0..self.segments.len()).rev() {
            let path = self.path(segment);
            let file = self.read(segment, &mut content)?;
            let from = self.first_unproven(segment, &content);
            file.write_at(from as u64, &content[from..]).map_err(StoreError::io("write", &path))?;
            file.sync().map_err(StoreError::io("sync", &path))?;
            if self.segments[segment].0 <= self.synced_through {
                break; // the segments before it are proven as a whole
            }
        }
        self.sync_directory()
    }

    /// Offset of the first record that is not known to be durable; 0 if that includes the header.
    fn first_unproven(&self, segment: usize, content: &[u8]) -> usize {
        let first = self.segments[segment];
        if first.0 > self.synced_through {
            return 0;
        }
        let seed = segment_seed(self.identity, first);
        let mut offset = SEGMENT_HEADER_BYTES;
        while let Some(record) = decode_record(&content[offset..], seed) {
            if record.sequence > self.synced_through {
                break;
            }
            offset += record.bytes;
        }
        offset
    }

    fn finish(mut self) -> Result<(Tail, Recovered)> {
        self.recovered.next = self.next;
        let last = match self.segments.len() {
            0 => None,
            count => {
                let path = self.path(count - 1);
                let file = self.files.open(&path, false).map_err(StoreError::io("open", &path))?;
                let length = file.length().map_err(StoreError::io("read", &path))?;
                Some((file, self.end, length))
            }
        };
        let tail = Tail { segments: self.segments, last, next: self.next, checksum: self.checksum };
        Ok((tail, self.recovered))
    }
}
