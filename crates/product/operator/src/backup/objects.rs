//! Backing up objects with their chunks.
//!
//! ```text
//!   snapshot of a partition's names ─▶ .FILE.names.nicekv-new ─▶ each name: chunks that are not in the file yet ─▶ C … ─▶ E (V …)
//!                                                        └ a chunk is gone: take the name's present object; skip a deleted name; else fail
//! ```
//!
//! Fetching chunks takes longer than a node keeps its snapshot, so the names are first copied to a
//! file.

use super::chunks::needs;
use super::error::unwritten;
use super::format::{Chunk, Header, Part, Reader, Record, Totals, Writer};
use super::large_values::{LargeEntries, Whole};
use crate::client::failed;
use crate::failure::Failure;
use crate::objects::{NotGot, Objects};
use futures_executor::block_on;
use nicekv_proto::Form;
use nicekv_proto::OpId;
use nicekv_proto::chunk::ChunkId;
use nicekv_proto::large::Reference;
use nicekv_proto::limits::small_value_bytes_max;
use nicekv_proto::recovery::{Entry, put_keyed_entry};
use nicekv_runtime::NewFile;
use std::collections::HashSet;
use std::fmt::Display;
use std::path::Path;

/// Maximum attempts to read an object that is replaced, and its chunks deleted, while it is read.
const TRIES_MAX: usize = 5;
/// Bytes of a part of a long manifest.
const PART_BYTES: usize = 64 << 10;

/// A value with its version.
type Versioned = (OpId, Vec<u8>);

/// A function that takes a chunk.
pub(super) type Take<'a> = dyn FnMut(ChunkId, &[u8]) -> Result<(), Failure> + 'a;

/// Where objects are read from.
pub(super) trait Source {
    /// The current value of a name.
    fn now(&self, key: &[u8]) -> Result<Option<Versioned>, Failure>;

    /// Fetches chunks, and passes them to `take` in order.
    fn fetch(&self, ids: &[ChunkId], take: &mut Take<'_>) -> Result<(), NotGot>;
}

impl Source for Objects {
    fn now(&self, key: &[u8]) -> Result<Option<Versioned>, Failure> {
        let value = block_on(self.names().get(key)).map_err(failed)?;
        Ok(value.map(|value| (value.version, value.bytes)))
    }

    fn fetch(&self, ids: &[ChunkId], take: &mut Take<'_>) -> Result<(), NotGot> {
        Objects::fetch(self, ids.iter().copied(), take)
    }
}

/// The names of one partition, in a temporary file.
pub(super) struct Names {
    file: NewFile,
}

impl Names {
    /// A writer for the names of one partition, to a file next to the backup.
    pub(super) fn create(path: &Path, header: &Header) -> Result<Writer, Failure> {
        let mut beside = path.as_os_str().to_owned();
        beside.push(".names");
        let file = NewFile::create_private(Path::new(&beside));
        file.and_then(|file| Writer::to(file, header)).map_err(unwritten)
    }

    /// The names that `writer` has written.
    pub(super) fn of(writer: Writer) -> Result<Self, Failure> {
        Ok(Self { file: writer.unfinished().map_err(unwritten)? })
    }

    fn open(&self) -> Result<Reader, Failure> {
        Reader::open(self.file.path()).map_err(|error| self.failed(error))
    }

    fn failed(&self, error: impl Display) -> Failure {
        Failure::Environment(format!("{}: {error}", self.file.path().display()))
    }
}

#[derive(Default)]
pub(super) struct ObjectWriter {
    /// Chunks that the backup already contains.
    written: HashSet<ChunkId>,
}

impl ObjectWriter {
    /// Writes the objects of a partition.
    pub(super) fn write(
        &mut self,
        writer: &mut Writer,
        names: &Names,
        source: &impl Source,
    ) -> Result<Totals, Failure> {
        let (mut reader, mut large, mut totals) = (names.open()?, LargeEntries::default(), Totals::default());
        loop {
            let record = reader.next().map_err(|error| names.failed(error))?;
            match &record {
                Record::Begin(_) => writer.write(&record).map_err(unwritten)?,
                Record::Close(_) => {
                    writer.write(&Record::Close(totals)).map_err(unwritten)?;
                    return Ok(totals);
                }
                _ => {
                    let whole = large.whole(&record).map_err(|why| names.failed(why))?;
                    // A hash cannot be an object.
                    let named = whole.into_iter().filter(|whole| whole.form != Form::Hash);
                    for Whole { key, version, value, .. } in named {
                        totals.add(&self.write_object(writer, &key, (version, value), source)?);
                    }
                }
            }
        }
    }

    /// Writes an object as of the snapshot. If its chunks are gone, writes the current object of
    /// that name.
    fn write_object(
        &mut self,
        writer: &mut Writer,
        key: &[u8],
        mut found: Versioned,
        source: &impl Source,
    ) -> Result<Totals, Failure> {
        let named =
            |why: &dyn Display| Failure::Operation(format!("object \"{}\": {why}", key.escape_ascii()));
        for _ in 0..TRIES_MAX {
            let needed = needs(&found.1).map_err(|error| named(&error))?;
            let place = writer.place();
            let new: Vec<_> = needed.into_iter().filter(|(id, _)| !self.written.contains(id)).collect();
            match write_chunks(writer, &new, source) {
                Ok(mut totals) => {
                    self.written.extend(new.iter().map(|(id, _)| id));
                    totals.add(&write_name(writer, key, &found)?);
                    return Ok(totals);
                }
                Err(NotGot::Consumer(failure)) => return Err(failure),
                Err(NotGot::Chunk(id, error)) => {
                    writer.go_back(place).map_err(unwritten)?;
                    match source.now(key)? {
                        None => return Ok(Totals::default()),
                        Some(now) if now.0 == found.0 => return Err(named(&format!("chunk {id}: {error}"))),
                        Some(now) => found = now,
                    }
                }
            }
        }
        Err(named(&"it was replaced repeatedly while it was read"))
    }
}

fn write_chunks(
    writer: &mut Writer,
    chunks: &[(ChunkId, u32)],
    source: &impl Source,
) -> Result<Totals, NotGot> {
    let (mut totals, mut lengths) = (Totals::default(), chunks.iter().map(|(_, length)| *length as usize));
    let ids: Vec<ChunkId> = chunks.iter().map(|(id, _)| *id).collect();
    source.fetch(&ids, &mut |id, bytes| {
        if lengths.next() != Some(bytes.len()) {
            return Err(Failure::Operation(format!("chunk {id} differs in length from the manifest")));
        }
        totals.add(&Totals { chunks: 1, chunk_bytes: bytes.len() as u64, ..Totals::default() });
        writer.write(&Record::Chunk(Chunk { id, bytes: bytes.to_vec() })).map_err(unwritten)
    })?;
    Ok(totals)
}

/// Writes a name with its manifest, in parts if the manifest is long.
fn write_name(writer: &mut Writer, key: &[u8], (version, value): &Versioned) -> Result<Totals, Failure> {
    let (version, is_large) = (*version, value.len() > small_value_bytes_max(key.len()));
    let checksum = nicekv_transport::checksum(value);
    let reference = Reference { name: version, length: value.len() as u32, checksum };
    let stored = if is_large { reference.bytes() } else { value.clone() };
    let (mut entry, mut bytes) = (Vec::new(), Vec::new());
    // The index of the decision matters only within the partition that was backed up.
    Entry { index: 0, version, expiry_ms: 0, form: Form::of_set(is_large), value: Some(&stored) }
        .append(&mut entry);
    put_keyed_entry(&mut bytes, key, &entry);
    let mut totals = Totals { entries: 1, bytes: bytes.len() as u64, ..Totals::default() };
    writer.write(&Record::Entries(bytes)).map_err(unwritten)?;
    if is_large {
        totals.bytes += value.len() as u64;
        for (bytes, number) in value.chunks(PART_BYTES).zip(0..) {
            let part = Part { name: version, offset: number * PART_BYTES as u32, bytes: bytes.to_vec() };
            writer.write(&Record::Part(part)).map_err(unwritten)?;
        }
    }
    Ok(totals)
}

#[cfg(test)]
#[path = "objects_tests.rs"]
mod tests;
