//! The format of a backup file.
//!
//! ```text
//!   nicekv-backup 4\n
//!   kind (1 byte) │ length (4, big-endian) │ that many bytes │ CRC-32C (4) of everything up to here
//!   H: JSON, the header │ P: JSON, a partition starts │ C: a chunk: id (32), bytes │ E: keyed entries │ V: a part of a large value │ Q: JSON, it ends │ … │ Z: JSON, the end
//! ```
//!
//! Parts of large values follow in the order of the entries that refer to them, each value from
//! start to end. A chunk appears once, before the first object that needs it. Formats before 4 have
//! no keyspace settings and are refused.
//!
//! Each checksum covers the whole file up to it, so a missing, repeated or moved record is
//! detected, and a file without its end record is incomplete.

use super::error::{BackupError, Damage};
use nicekv_proto::chunk::{CHUNK_LENGTH_MAX, ChunkId};
use nicekv_proto::{ClientId, OpId};
use nicekv_runtime::NewFile;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

const MARK: &str = "nicekv-backup ";
/// The only version that is written and read.
const VERSION: &str = "4";
/// Bytes before the data of a part: client, sequence, offset.
const PART_HEAD_BYTES: usize = 20;
/// Bytes of a record beside its payload: kind, length and checksum.
const FRAME_BYTES: u64 = 9;
const CHECKSUM_BYTES: u64 = 4;
/// Maximum payload of a record; pages sent by nodes are much shorter.
const fn record_bytes_max(kind: u8) -> usize {
    if kind == b'C' { size_of::<ChunkId>() + CHUNK_LENGTH_MAX as usize } else { 1 << 20 }
}
const LINE_BYTES_MAX: usize = 64;

/// The content of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    /// Id of the cluster, 32 hexadecimal digits.
    pub(super) cluster: String,
    /// Version of the program that wrote the file.
    pub(super) program: String,
    /// Start of the backup, by the clock of the host that wrote it.
    pub(super) unix_ms: u64,
    pub(super) keyspaces: Vec<StoredKeyspace>,
    /// Numbers of the keyspaces of objects.
    #[serde(default)]
    pub(super) objects: Vec<u16>,
}

/// A keyspace in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredKeyspace {
    /// Number of the keyspace in the cluster that was backed up.
    pub(super) id: u16,
    pub(super) name: String,
    /// Settings, as `nicekv keyspace create` takes them.
    pub(super) settings: String,
}

/// The beginning of a partition, which is a snapshot after this decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Begin {
    pub(super) keyspace: u16,
    pub(super) partition: u32,
    pub(super) epoch: u32,
    pub(super) index: u64,
    /// The node from which the partition was read.
    pub(super) node: String,
}

/// Size of a partition or of the whole backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Totals {
    pub(super) entries: u64,
    /// Bytes of entries and large values.
    pub(super) bytes: u64,
    #[serde(default)]
    pub(super) chunks: u64,
    #[serde(default)]
    pub(super) chunk_bytes: u64,
}

impl Totals {
    pub(super) fn add(&mut self, other: &Self) {
        self.entries += other.entries;
        self.bytes += other.bytes;
        self.chunks += other.chunks;
        self.chunk_bytes += other.chunk_bytes;
    }
}

/// A record of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    Begin(Begin),
    /// Several entries with their keys.
    Entries(Vec<u8>),
    Part(Part),
    Chunk(Chunk),
    Close(Totals),
    End(Totals),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) id: ChunkId,
    pub(super) bytes: Vec<u8>,
}

impl Chunk {
    fn decode(payload: &[u8]) -> Option<Self> {
        let (id, bytes) = payload.split_first_chunk()?;
        Some(Self { id: ChunkId(*id), bytes: bytes.to_vec() })
    }
}

/// Part of a large value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) name: OpId,
    pub(super) offset: u32,
    pub(super) bytes: Vec<u8>,
}

impl Part {
    fn encode(&self) -> Vec<u8> {
        let Self { name, offset, bytes } = self;
        let mut payload = Vec::with_capacity(PART_HEAD_BYTES + bytes.len());
        payload.extend_from_slice(&name.client.0.to_be_bytes());
        payload.extend_from_slice(&name.sequence.to_be_bytes());
        payload.extend_from_slice(&offset.to_be_bytes());
        payload.extend_from_slice(bytes);
        payload
    }

    fn decode(payload: &[u8]) -> Option<Self> {
        let (client, rest) = payload.split_first_chunk()?;
        let (sequence, rest) = rest.split_first_chunk()?;
        let (offset, bytes) = rest.split_first_chunk()?;
        let name =
            OpId { client: ClientId(u64::from_be_bytes(*client)), sequence: u64::from_be_bytes(*sequence) };
        Some(Self { name, offset: u32::from_be_bytes(*offset), bytes: bytes.to_vec() })
    }
}

/// Writes a file. It can discard what was written after a position. The file is removed unless it
/// is finished.
pub(super) struct Writer {
    file: BufWriter<File>,
    place: Place,
    new: NewFile,
}

/// A position in the file, after a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    offset: u64,
    checksum: u32,
}

impl Writer {
    /// Creates the file, which must not exist, readable by its owner only.
    pub(super) fn create(path: &Path, header: &Header) -> io::Result<Self> {
        if path.symlink_metadata().is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        Self::to(NewFile::create_private(path)?, header)
    }

    pub(super) fn to(new: NewFile, header: &Header) -> io::Result<Self> {
        let line = format!("{MARK}{VERSION}\n");
        let place = Place { offset: line.len() as u64, checksum: crc32c::crc32c(line.as_bytes()) };
        let mut writer = Self { file: BufWriter::new(new.file().try_clone()?), place, new };
        writer.file.write_all(line.as_bytes())?;
        writer.json(b'H', header)?;
        Ok(writer)
    }

    pub(super) fn place(&self) -> Place {
        self.place
    }

    /// Discards what was written after `place`.
    pub(super) fn go_back(&mut self, place: Place) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().set_len(place.offset)?;
        self.file.seek(SeekFrom::Start(place.offset))?;
        self.place = place;
        Ok(())
    }

    pub(super) fn write(&mut self, record: &Record) -> io::Result<()> {
        match record {
            Record::Begin(begin) => self.json(b'P', begin),
            Record::Entries(entries) => self.record(b'E', &[entries]),
            Record::Part(part) => self.record(b'V', &[&part.encode()]),
            Record::Chunk(Chunk { id, bytes }) => self.record(b'C', &[&id.0, bytes]),
            Record::Close(totals) => self.json(b'Q', totals),
            Record::End(totals) => self.json(b'Z', totals),
        }
    }

    fn json(&mut self, kind: u8, value: &impl Serialize) -> io::Result<()> {
        self.record(kind, &[&serde_json::to_vec(value)?])
    }

    fn record(&mut self, kind: u8, payload: &[&[u8]]) -> io::Result<()> {
        let length: usize = payload.iter().map(|part| part.len()).sum();
        assert!(length <= record_bytes_max(kind), "pages and chunks are shorter");
        let head = [&[kind], &(length as u32).to_be_bytes()[..]];
        for part in head.iter().chain(payload) {
            self.place.checksum = crc32c::crc32c_append(self.place.checksum, part);
            self.file.write_all(part)?;
        }
        self.file.write_all(&self.place.checksum.to_be_bytes())?;
        self.place.offset += FRAME_BYTES + length as u64;
        Ok(())
    }

    /// Completes the file: syncs it, and gives it its final name.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.file.flush()?;
        self.new.finish_new()
    }

    /// Completes a temporary file: it keeps its temporary name, and is removed on drop.
    pub(super) fn unfinished(mut self) -> io::Result<NewFile> {
        self.file.flush()?;
        Ok(self.new)
    }
}

/// Reads a file.
pub(super) struct Reader {
    file: BufReader<File>,
    checksum: u32,
    offset: u64,
    pub(super) header: Header,
}

impl Reader {
    pub(super) fn open(path: &Path) -> Result<Self, BackupError> {
        let mut file = BufReader::new(File::open(path)?);
        let mut line = Vec::new();
        io::BufRead::read_until(&mut (&mut file).take(LINE_BYTES_MAX as u64), b'\n', &mut line)?;
        let text = std::str::from_utf8(&line).ok().and_then(|line| line.strip_suffix('\n'));
        let checksum = match text.and_then(|line| line.strip_prefix(MARK)) {
            Some(VERSION) => crc32c::crc32c(&line),
            Some(other) => return Err(BackupError::Format(other.into())),
            None => return Err(BackupError::NotOurs),
        };
        let mut reader = Self { file, checksum, offset: line.len() as u64, header: Header::default() };
        match reader.record()? {
            (b'H', payload) => reader.header = reader.parsed(&payload)?,
            _ => return Err(reader.damaged(Damage::NoHeader)),
        }
        Ok(reader)
    }

    /// The next record.
    pub(super) fn next(&mut self) -> Result<Record, BackupError> {
        let (kind, payload) = self.record()?;
        let content = |what: &str| Damage::Content(what.into());
        Ok(match kind {
            b'P' => Record::Begin(self.parsed(&payload)?),
            b'E' => Record::Entries(payload),
            b'V' => Record::Part(
                Part::decode(&payload).ok_or_else(|| self.damaged(content("a malformed part of a value")))?,
            ),
            b'C' => Record::Chunk(
                Chunk::decode(&payload).ok_or_else(|| self.damaged(content("a chunk without an id")))?,
            ),
            b'Q' => Record::Close(self.parsed(&payload)?),
            b'Z' => Record::End(self.parsed(&payload)?),
            _ => return Err(self.damaged(Damage::UnknownKind)),
        })
    }

    /// Whether the end of the file is reached.
    pub(super) fn is_at_end(&mut self) -> Result<bool, BackupError> {
        Ok(io::BufRead::fill_buf(&mut self.file)?.is_empty())
    }

    /// Position of the last `bytes` of the payload that was read last.
    pub(super) fn place_of_last(&self, bytes: usize) -> u64 {
        self.offset - CHECKSUM_BYTES - bytes as u64
    }

    fn record(&mut self) -> Result<(u8, Vec<u8>), BackupError> {
        let mut head = [0; 5];
        self.read(&mut head)?;
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if length > record_bytes_max(head[0]) {
            return Err(self.damaged(Damage::TooLong));
        }
        let (mut payload, mut checksum) = (vec![0; length], [0; CHECKSUM_BYTES as usize]);
        self.read(&mut payload)?;
        self.read(&mut checksum)?;
        self.checksum = crc32c::crc32c_append(crc32c::crc32c_append(self.checksum, &head), &payload);
        if self.checksum != u32::from_be_bytes(checksum) {
            return Err(self.damaged(Damage::Checksum));
        }
        self.offset += FRAME_BYTES + length as u64;
        Ok((head[0], payload))
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<(), BackupError> {
        self.file.read_exact(bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => self.damaged(Damage::CutShort),
            _ => error.into(),
        })
    }

    fn parsed<T: DeserializeOwned>(&self, payload: &[u8]) -> Result<T, BackupError> {
        serde_json::from_slice(payload).map_err(|error| self.damaged(Damage::Content(error.to_string())))
    }

    pub(super) fn damaged(&self, why: Damage) -> BackupError {
        BackupError::Damaged { at: self.offset, why }
    }
}

#[cfg(test)]
#[path = "format_tests.rs"]
mod tests;
