//! Bytes of a value segment. All integers are little-endian.
//!
//! ```text
//! segment header, 80 bytes                    extent of a value, at a multiple of 4,096 bytes
//!   0  magic "NICEKVVL"                         0  checksum  u32, CRC32C of header and key, seeded by the place
//!   8  format version  u32                      4  magic "NKvH"
//!  12  checksum of the rest, seeded  u32        8  name: client u64, sequence u64
//!  16  number of the segment  u64              24  length of the value  u64
//!  24  synced through  u64                     32  sequence number  u64
//!  32  cluster id  u128                        40  synced through  u64
//!  48  storage id  u128                        48  owner: partition u32, bytes of its key u32
//!  64  node id  u64                            56  the owner's key
//!  72  1 if it is made for one value  u64       …  a checksum for each block of 64 KiB  u32, seeded by name and block
//!                                               …  at the next multiple of 4,096 bytes: the value
//! ```
//!
//! No two values share a page of the disk, so that a torn write of one does not reach another. The
//! checksum of a header is seeded by identity, segment and offset: neither a header copied from
//! elsewhere nor a client's value that imitates one is accepted (the storage id is random and
//! unknown to clients).

use crate::{Result, StoreError, log::LogIdentity};
use nicekv_proto::{ClientId, OpId};

/// Block size: each block of a value has its own checksum.
pub const BLOCK_BYTES: usize = 64 << 10;
/// Longest value.
pub const VALUE_BYTES_MAX: u64 = 512 << 20;
/// Longest key of an owner.
pub const OWNER_KEY_BYTES_MAX: usize = 1_024;
const _: () = assert!(OWNER_KEY_BYTES_MAX >= nicekv_proto::limits::KEY_BYTES_MAX);

pub(super) const FORMAT_VERSION: u32 = 1;
/// Alignment of extents and values.
pub(super) const ALIGN_BYTES: u64 = 4_096;
/// Offset of the first extent in a segment.
pub(super) const FIRST_EXTENT: u64 = ALIGN_BYTES;
pub(super) const SEGMENT_HEADER_BYTES: usize = 80;
const HEADER_BYTES: usize = 56;
const CHECKSUM_BYTES: usize = 4;
const SEGMENT_MAGIC: [u8; 8] = *b"NICEKVVL";
const VALUE_MAGIC: [u8; 4] = *b"NKvH";

/// Owner of a value, opaque here. After a restart it tells which key a found value belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueOwner {
    /// The partition.
    pub partition: u32,
    /// The key, at most [`OWNER_KEY_BYTES_MAX`] bytes.
    pub key: Vec<u8>,
}

/// Place of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// Number of the segment.
    pub(super) segment: u64,
    pub(super) offset: u64,
    pub(super) key_bytes: usize,
    /// Length of the value.
    pub(super) length: u64,
}

impl Extent {
    /// End of the range of `length` bytes at `offset`, if it lies within the value.
    pub(super) fn end_of(&self, name: OpId, offset: u64, bytes: usize) -> Result<u64> {
        let end = offset.checked_add(bytes as u64).filter(|end| *end <= self.length);
        end.ok_or(StoreError::ValueRange { name, offset, length: self.length })
    }

    /// Length of header, key and checksums.
    pub(super) fn header_bytes(&self) -> usize {
        HEADER_BYTES + self.key_bytes + self.blocks() * CHECKSUM_BYTES
    }

    /// Number of blocks.
    pub(super) fn blocks(&self) -> usize {
        self.length.div_ceil(BLOCK_BYTES as u64) as usize
    }

    /// Length of a block; the last one may be shorter.
    pub(super) fn block_bytes(&self, block: usize) -> usize {
        (self.length - (block * BLOCK_BYTES) as u64).min(BLOCK_BYTES as u64) as usize
    }

    /// Offset in the segment of a block's checksum.
    pub(super) fn checksum_at(&self, block: usize) -> u64 {
        self.offset + (HEADER_BYTES + self.key_bytes + block * CHECKSUM_BYTES) as u64
    }

    /// Offset of the value in the segment.
    pub(super) fn content_at(&self) -> u64 {
        self.offset + aligned(self.header_bytes() as u64)
    }

    /// Length of the whole extent.
    pub(super) fn bytes(&self) -> u64 {
        self.content_at() - self.offset + aligned(self.length)
    }

    /// Offset of the next extent.
    pub(super) fn end(&self) -> u64 {
        self.offset + self.bytes()
    }
}

/// Rounds up to a multiple of [`ALIGN_BYTES`].
pub(super) fn aligned(bytes: u64) -> u64 {
    bytes.next_multiple_of(ALIGN_BYTES)
}

/// File name of the segment with this number.
pub(super) fn segment_name(number: u64) -> String {
    format!("values-{number:016x}.nkvalues")
}

/// Number of a segment, from its file name; `None` for other files.
pub(super) fn parse_segment_name(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("values-")?.strip_suffix(".nkvalues")?;
    let number = u64::from_str_radix(digits, 16).ok()?;
    (segment_name(number) == name).then_some(number)
}

fn identity_seed(identity: &LogIdentity) -> u32 {
    let mut seed = crc32c::crc32c(&SEGMENT_MAGIC);
    seed = crc32c::crc32c_append(seed, &identity.cluster_id.to_le_bytes());
    seed = crc32c::crc32c_append(seed, &identity.storage_id.to_le_bytes());
    crc32c::crc32c_append(seed, &identity.node_id.to_le_bytes())
}

fn place_seed(identity: &LogIdentity, segment: u64, offset: u64) -> u32 {
    let seed = crc32c::crc32c_append(identity_seed(identity), &segment.to_le_bytes());
    crc32c::crc32c_append(seed, &offset.to_le_bytes())
}

/// Seed of the checksums of a value's blocks, independent of its place.
pub(super) fn value_seed(identity: &LogIdentity, name: OpId) -> u32 {
    let seed = crc32c::crc32c_append(identity_seed(identity), &name.client.0.to_le_bytes());
    crc32c::crc32c_append(seed, &name.sequence.to_le_bytes())
}

/// Checksum of an empty block, to be appended to.
pub(super) fn block_seed(value_seed: u32, block: usize) -> u32 {
    crc32c::crc32c_append(value_seed, &(block as u64).to_le_bytes())
}

/// Header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentStart {
    pub(super) number: u64,
    /// Every value up to this sequence number was durable when the segment was created.
    pub(super) synced_through: u64,
    /// Whether it was created for a single value.
    pub(super) is_own: bool,
}

/// Result of checking a segment header.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SegmentHeader {
    Valid(SegmentStart),
    /// Intact, but of another store.
    Foreign,
    /// The format version is unknown.
    Newer {
        version: u32,
    },
    /// Torn or damaged.
    Invalid,
}

/// Encodes the header of a segment.
pub(super) fn encode_segment_header(
    identity: &LogIdentity,
    start: &SegmentStart,
) -> [u8; SEGMENT_HEADER_BYTES] {
    let mut header = [0; SEGMENT_HEADER_BYTES];
    header[0..8].copy_from_slice(&SEGMENT_MAGIC);
    header[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    header[16..24].copy_from_slice(&start.number.to_le_bytes());
    header[24..32].copy_from_slice(&start.synced_through.to_le_bytes());
    header[32..48].copy_from_slice(&identity.cluster_id.to_le_bytes());
    header[48..64].copy_from_slice(&identity.storage_id.to_le_bytes());
    header[64..72].copy_from_slice(&identity.node_id.to_le_bytes());
    header[72..80].copy_from_slice(&u64::from(start.is_own).to_le_bytes());
    let checksum = crc32c::crc32c_append(place_seed(identity, start.number, 0), &header[16..]);
    header[12..16].copy_from_slice(&checksum.to_le_bytes());
    header
}

/// Checks the header of the segment with this number in its name.
pub(super) fn decode_segment_header(bytes: &[u8], identity: &LogIdentity, number: u64) -> SegmentHeader {
    let Some(header) = bytes.get(..SEGMENT_HEADER_BYTES) else { return SegmentHeader::Invalid };
    if header[0..8] != SEGMENT_MAGIC {
        return SegmentHeader::Invalid;
    }
    let version = u32_at(header, 8);
    if version > FORMAT_VERSION {
        return SegmentHeader::Newer { version };
    }
    let found = LogIdentity {
        cluster_id: u128_at(header, 32),
        storage_id: u128_at(header, 48),
        node_id: u64_at(header, 64),
    };
    let start = SegmentStart {
        number: u64_at(header, 16),
        synced_through: u64_at(header, 24),
        is_own: u64_at(header, 72) == 1,
    };
    let checksum = crc32c::crc32c_append(place_seed(&found, start.number, 0), &header[16..]);
    if version != FORMAT_VERSION || u32_at(header, 12) != checksum {
        return SegmentHeader::Invalid;
    }
    let is_ours = found == *identity && start.number == number;
    if is_ours { SegmentHeader::Valid(start) } else { SegmentHeader::Foreign }
}

/// Header of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ValueHeader {
    pub(super) name: OpId,
    pub(super) owner: ValueOwner,
    /// Sequence number: values are numbered as they are finished.
    pub(super) sequence: u64,
    /// Every value up to this sequence number was durable when this one was finished.
    pub(super) synced_through: u64,
}

/// Encodes header, key and checksums of the value in an extent.
pub(super) fn encode_value_header(
    identity: &LogIdentity,
    extent: &Extent,
    value: &ValueHeader,
    checksums: impl Iterator<Item = u32>,
) -> Vec<u8> {
    let mut header = Vec::with_capacity(extent.header_bytes());
    header.extend_from_slice(&[0; CHECKSUM_BYTES]);
    header.extend_from_slice(&VALUE_MAGIC);
    header.extend_from_slice(&value.name.client.0.to_le_bytes());
    header.extend_from_slice(&value.name.sequence.to_le_bytes());
    header.extend_from_slice(&extent.length.to_le_bytes());
    header.extend_from_slice(&value.sequence.to_le_bytes());
    header.extend_from_slice(&value.synced_through.to_le_bytes());
    header.extend_from_slice(&value.owner.partition.to_le_bytes());
    header.extend_from_slice(&(value.owner.key.len() as u32).to_le_bytes());
    header.extend_from_slice(&value.owner.key);
    let checksum = crc32c::crc32c_append(place_seed(identity, extent.segment, extent.offset), &header[4..]);
    header[..CHECKSUM_BYTES].copy_from_slice(&checksum.to_le_bytes());
    checksums.for_each(|checksum| header.extend_from_slice(&checksum.to_le_bytes()));
    debug_assert_eq!(header.len(), extent.header_bytes());
    header
}

/// The value whose extent begins with `bytes` at this place, if its header is intact.
pub(super) fn decode_value_header(
    bytes: &[u8],
    identity: &LogIdentity,
    segment: u64,
    offset: u64,
) -> Option<(Extent, ValueHeader)> {
    let header = bytes.get(..HEADER_BYTES)?;
    let (length, key_bytes) = (u64_at(header, 24), u32_at(header, 52) as usize);
    if header[4..8] != VALUE_MAGIC || length > VALUE_BYTES_MAX || key_bytes > OWNER_KEY_BYTES_MAX {
        return None;
    }
    let checked = bytes.get(CHECKSUM_BYTES..HEADER_BYTES + key_bytes)?;
    let checksum = crc32c::crc32c_append(place_seed(identity, segment, offset), checked);
    if u32_at(header, 0) != checksum {
        return None;
    }
    let owner =
        ValueOwner { partition: u32_at(header, 48), key: bytes[HEADER_BYTES..][..key_bytes].to_vec() };
    let value = ValueHeader {
        name: OpId { client: ClientId(u64_at(header, 8)), sequence: u64_at(header, 16) },
        owner,
        sequence: u64_at(header, 32),
        synced_through: u64_at(header, 40),
    };
    Some((Extent { segment, offset, key_bytes, length }, value))
}

/// Whether no value header was ever written here.
pub(super) fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().take(HEADER_BYTES).all(|byte| *byte == 0)
}

/// The checksums of consecutive blocks in `bytes`.
pub(super) fn checksums(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    bytes.chunks_exact(CHECKSUM_BYTES).map(|bytes| u32_at(bytes, 0))
}

/// Length of the checksums of this many blocks.
pub(super) fn checksums_bytes(blocks: usize) -> usize {
    blocks * CHECKSUM_BYTES
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
