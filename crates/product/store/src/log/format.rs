//! Bytes of a log segment. All integers are little-endian.
//!
//! ```text
//! segment header, 76 bytes                    record, 32 bytes + payload
//!   0  magic "NICEKVLG"                         0  checksum  CRC32C of the rest, seeded by the segment
//!   8  format version  u32                      4  magic     u32, tells payload from marker
//!  12  checksum of the rest, seeded    u32      8  length    u32, of the payload
//!  16  first sequence number           u64     12  checksum of the predecessor  u32 (the chain)
//!  24  checksum of the predecessor     u32     16  sequence number              u64
//!  28  cluster id                      u128    24  synced through               u64
//!  44  storage id                      u128    32  payload
//!  60  node id                         u64
//!  68  reserved, 0                     u64
//! ```
//!
//! The seed is a checksum of the identity and of the segment's first sequence number, so that a
//! record of another log or segment never counts as valid here, nor does a client's value that
//! imitates a record: the storage id is random and unknown to clients.

pub(crate) const FORMAT_VERSION: u32 = 1;
use std::fmt;

/// Largest payload of one record.
pub const PAYLOAD_BYTES_MAX: usize = 16 << 20;

/// Position of a record: its sequence number, from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPosition(pub u64);

impl fmt::Display for LogPosition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// Identity of a log, part of every segment and of the seed of every checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogIdentity {
    /// The cluster.
    pub cluster_id: u128,
    /// Id of the data directory, see [`crate::DataDirectory::storage_id`]. Random, unknown to
    /// clients.
    pub storage_id: u128,
    /// The node.
    pub node_id: u64,
}
pub(crate) const SEGMENT_HEADER_BYTES: usize = 76;
pub(crate) const RECORD_HEADER_BYTES: usize = 32;
const SEGMENT_MAGIC: [u8; 8] = *b"NICEKVLG";
const PAYLOAD_MAGIC: [u8; 4] = *b"NKrP";
const MARKER_MAGIC: [u8; 4] = *b"NKrM";

/// Seed of the checksums in the segment that begins with `first`.
pub(crate) fn segment_seed(identity: &LogIdentity, first: LogPosition) -> u32 {
    let mut seed = crc32c::crc32c(&identity.cluster_id.to_le_bytes());
    seed = crc32c::crc32c_append(seed, &identity.storage_id.to_le_bytes());
    seed = crc32c::crc32c_append(seed, &identity.node_id.to_le_bytes());
    crc32c::crc32c_append(seed, &first.0.to_le_bytes())
}

/// File name of the segment that begins with `first`.
pub(crate) fn segment_name(first: LogPosition) -> String {
    format!("log-{:016x}.nklog", first.0)
}

/// First position of a segment, from its file name; `None` for other files.
pub(crate) fn parse_segment_name(name: &str) -> Option<LogPosition> {
    let digits = name.strip_prefix("log-")?.strip_suffix(".nklog")?;
    let position = LogPosition(u64::from_str_radix(digits, 16).ok()?);
    (segment_name(position) == name).then_some(position)
}

/// The header of the segment that begins with `first`.
pub(crate) fn encode_segment_header(
    identity: &LogIdentity,
    first: LogPosition,
    predecessor_checksum: u32,
) -> [u8; SEGMENT_HEADER_BYTES] {
    let mut header = [0; SEGMENT_HEADER_BYTES];
    header[0..8].copy_from_slice(&SEGMENT_MAGIC);
    header[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    header[16..24].copy_from_slice(&first.0.to_le_bytes());
    header[24..28].copy_from_slice(&predecessor_checksum.to_le_bytes());
    header[28..44].copy_from_slice(&identity.cluster_id.to_le_bytes());
    header[44..60].copy_from_slice(&identity.storage_id.to_le_bytes());
    header[60..68].copy_from_slice(&identity.node_id.to_le_bytes());
    let checksum = header_checksum(&header, identity, first);
    header[12..16].copy_from_slice(&checksum.to_le_bytes());
    header
}

fn header_checksum(header: &[u8], identity: &LogIdentity, first: LogPosition) -> u32 {
    crc32c::crc32c_append(segment_seed(identity, first), &header[16..SEGMENT_HEADER_BYTES])
}

/// Result of checking a segment header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SegmentHeader {
    /// Valid; the chain continues from this checksum.
    Valid { predecessor_checksum: u32 },
    /// Intact, but of another log.
    Foreign,
    /// The format version is unknown.
    Newer { version: u32 },
    /// Torn or damaged.
    Invalid,
}

/// Checks the header of the segment whose name says that it begins with `first`.
pub(crate) fn decode_segment_header(
    bytes: &[u8],
    identity: &LogIdentity,
    first: LogPosition,
) -> SegmentHeader {
    let Some(header) = bytes.get(..SEGMENT_HEADER_BYTES) else { return SegmentHeader::Invalid };
    if header[0..8] != SEGMENT_MAGIC {
        return SegmentHeader::Invalid;
    }
    let version = u32_at(header, 8);
    if version > FORMAT_VERSION {
        return SegmentHeader::Newer { version };
    }
    let found = LogIdentity {
        cluster_id: u128_at(header, 28),
        storage_id: u128_at(header, 44),
        node_id: u64_at(header, 60),
    };
    let found_first = LogPosition(u64_at(header, 16));
    if version != FORMAT_VERSION || u32_at(header, 12) != header_checksum(header, &found, found_first) {
        return SegmentHeader::Invalid;
    }
    if found != *identity || found_first != first {
        return SegmentHeader::Foreign;
    }
    SegmentHeader::Valid { predecessor_checksum: u32_at(header, 24) }
}

/// A record that is intact by itself; its place in the chain is not checked yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) sequence: u64,
    /// Every record up to this sequence number was durable when this one was appended.
    pub(crate) synced_through: u64,
    pub(crate) predecessor_checksum: u32,
    pub(crate) checksum: u32,
    /// `None` for a marker, which exists only for its `synced_through`.
    pub(crate) payload: Option<&'a [u8]>,
    /// Header and payload.
    pub(crate) bytes: usize,
}

/// Appends a record to `buffer` and returns its checksum. Allocates only if the buffer must grow.
pub(crate) fn encode_record(
    buffer: &mut Vec<u8>,
    seed: u32,
    sequence: u64,
    synced_through: u64,
    predecessor_checksum: u32,
    payload: Option<&[u8]>,
) -> u32 {
    let body = payload.unwrap_or_default();
    let mut header = [0; RECORD_HEADER_BYTES];
    header[4..8].copy_from_slice(if payload.is_some() { &PAYLOAD_MAGIC } else { &MARKER_MAGIC });
    header[8..12].copy_from_slice(&(body.len() as u32).to_le_bytes());
    header[12..16].copy_from_slice(&predecessor_checksum.to_le_bytes());
    header[16..24].copy_from_slice(&sequence.to_le_bytes());
    header[24..32].copy_from_slice(&synced_through.to_le_bytes());
    let checksum = crc32c::crc32c_append(crc32c::crc32c_append(seed, &header[4..]), body);
    header[0..4].copy_from_slice(&checksum.to_le_bytes());
    buffer.extend_from_slice(&header);
    buffer.extend_from_slice(body);
    checksum
}

/// The record at the start of `bytes`, if intact.
pub(crate) fn decode_record(bytes: &[u8], seed: u32) -> Option<Record<'_>> {
    let header = bytes.get(..RECORD_HEADER_BYTES)?;
    let is_payload = header[4..8] == PAYLOAD_MAGIC;
    if !is_payload && header[4..8] != MARKER_MAGIC {
        return None;
    }
    let length = u32_at(header, 8) as usize;
    if length > PAYLOAD_BYTES_MAX {
        return None;
    }
    let record = bytes.get(..RECORD_HEADER_BYTES + length)?;
    let checksum = u32_at(header, 0);
    if checksum != crc32c::crc32c_append(seed, &record[4..]) {
        return None;
    }
    Some(Record {
        sequence: u64_at(header, 16),
        synced_through: u64_at(header, 24),
        predecessor_checksum: u32_at(header, 12),
        checksum,
        payload: is_payload.then_some(&record[RECORD_HEADER_BYTES..]),
        bytes: record.len(),
    })
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(bytes[offset..offset + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(bytes[offset..offset + 8].try_into().expect("eight bytes"))
}

fn u128_at(bytes: &[u8], offset: usize) -> u128 {
    u128::from_le_bytes(bytes[offset..offset + 16].try_into().expect("sixteen bytes"))
}
