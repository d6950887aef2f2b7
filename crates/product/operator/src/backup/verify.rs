//! Verification of a whole backup, before any of it is restored.

use super::chunks::ChunkIndex;
use super::error::{BackupError, Damage};
use super::format::{Begin, Chunk, Header, Reader, Record, Totals};
use super::large_values::{LargeEntries, keyed_entries};
use std::path::Path;

/// A verified file.
pub(super) struct Verified {
    pub(super) header: Header,
    pub(super) partitions: usize,
    pub(super) totals: Totals,
    pub(super) chunks: ChunkIndex,
}

/// The verification so far.
#[derive(Default)]
struct Seen {
    partitions: usize,
    all: Totals,
    /// Totals of the partition that is being read.
    one: Totals,
    open: Option<Open>,
    large: LargeEntries,
    chunks: ChunkIndex,
}

/// The content of the partition that is being read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    Values,
    /// Objects and their chunks.
    Objects,
}

pub(super) fn verify(path: &Path) -> Result<Verified, BackupError> {
    let (mut reader, mut seen) = (Reader::open(path)?, Seen::default());
    loop {
        let record = reader.next()?;
        if let Record::End(totals) = record {
            if seen.open.is_some() || totals != seen.all || !reader.is_at_end()? {
                return Err(reader.damaged(Damage::Order));
            }
            let Seen { partitions, all: totals, chunks, .. } = seen;
            return Ok(Verified { header: reader.header, partitions, totals, chunks });
        }
        seen.take(&record, &reader).map_err(|why| reader.damaged(why))?;
    }
}

impl Seen {
    fn take(&mut self, record: &Record, reader: &Reader) -> Result<(), Damage> {
        match (record, self.open) {
            (Record::Begin(begin), None) => return self.begin(begin, &reader.header),
            (Record::Close(totals), Some(_)) if *totals == self.one && self.large.is_empty() => {
                self.all.add(totals);
                self.open = None;
                return Ok(());
            }
            (Record::Chunk(Chunk { id, bytes }), Some(Open::Objects)) => {
                self.chunks.insert(*id, bytes, reader.place_of_last(bytes.len()))?;
            }
            (Record::Entries(_) | Record::Part(_), Some(Open::Objects)) => {
                for whole in self.large.whole(record).map_err(Damage::Content)? {
                    self.chunks.check(&whole.key, &whole.value)?;
                }
            }
            // Records of values are only counted: values may be large.
            (Record::Entries(entries), Some(Open::Values)) => {
                let entries = keyed_entries(entries).map_err(Damage::Content)?;
                entries.iter().for_each(|(key, entry)| self.large.expect(key, entry));
            }
            (Record::Part(part), Some(Open::Values)) => self.large.check(part).map_err(Damage::Content)?,
            _ => return Err(Damage::Order),
        }
        self.one.add(&counted(record).map_err(Damage::Content)?);
        Ok(())
    }

    fn begin(&mut self, begin: &Begin, header: &Header) -> Result<(), Damage> {
        if !header.keyspaces.iter().any(|keyspace| keyspace.id == begin.keyspace) {
            return Err(Damage::ForeignKeyspace);
        }
        let has_objects = header.objects.contains(&begin.keyspace);
        self.open = Some(if has_objects { Open::Objects } else { Open::Values });
        self.one = Totals::default();
        self.partitions += 1;
        Ok(())
    }
}

/// Adds a record's size to the totals.
fn counted(record: &Record) -> Result<Totals, String> {
    Ok(match record {
        Record::Entries(bytes) => Totals {
            entries: keyed_entries(bytes)?.len() as u64,
            bytes: bytes.len() as u64,
            ..Totals::default()
        },
        Record::Part(part) => Totals { bytes: part.bytes.len() as u64, ..Totals::default() },
        Record::Chunk(chunk) => {
            Totals { chunks: 1, chunk_bytes: chunk.bytes.len() as u64, ..Totals::default() }
        }
        _ => Totals::default(),
    })
}
