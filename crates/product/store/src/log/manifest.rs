//! Manifest of a log: which segments must exist, and how far the log was durable when it was
//! written.
//!
//! Segments alone do not show that some of them are missing at either end. The manifest names both
//! ends.
//!
//! ```text
//!   page 0 │ slot │ 0 0 0 …        page 1 │ slot │ 0 0 0 …      The intact slot of the greater generation counts.
//!                                                               The next one overwrites the other page.
//! ```
//!
//! # Ordering
//! - A new segment is named when it holds durable records: within the sync that makes its first records durable, after
//!   the segments and the directory, before anyone learns of it. A crash before that leaves a segment that no one needs.
//! - A trim names its new first segment before it removes those before it. A crash between the two leaves segments
//!   before the first: opening removes them.
//! - Opening syncs the slot that it has read before it relies on it: a process that was killed may have left it in the
//!   page cache alone.
//!
//! All integers are little-endian:
//!
//! ```text
//!   0  magic "NICEKVLM"                         32  last segment  u64, 0: none yet
//!   8  format version  u32                      40  durable through  u64
//!  12  checksum of the rest  u32                48  cluster id  u128
//!  16  generation  u64                          64  storage id  u128
//!  24  first segment  u64                       80  node id  u64
//! ```

use super::{LogIdentity, LogPosition};
use crate::{
    Result, StoreError,
    files::{Files, StoreFile, read_all},
};
use std::{io, path::Path, sync::Arc};

pub(super) const MANIFEST_FILE: &str = "manifest";
const MANIFEST_FILE_NEW: &str = "manifest.new";
const FORMAT_VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"NICEKVLM";
const SLOT_BYTES: usize = 88;
/// Each slot has its own page of the disk, so that a torn write of one does not reach the other.
const PAGE_BYTES: usize = 4_096;
const FILE_BYTES: usize = 2 * PAGE_BYTES;

/// The part of a log that must be found when it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// First position of the first segment: earlier segments may be removed.
    pub(super) first: LogPosition,
    /// First position of the last segment with durable records. `None` until the log has its first segment.
    pub(super) last: Option<LogPosition>,
    /// Every record up to this position was durable.
    pub(super) durable: LogPosition,
}

/// The manifest, open as long as the log.
pub(super) struct Manifest {
    file: Arc<dyn StoreFile>,
    identity: LogIdentity,
    generation: u64,
    extent: Extent,
}

impl Manifest {
    /// Opens the manifest in `directory` and makes its content durable. `None` if there is none.
    pub(super) fn open(files: &dyn Files, directory: &Path, identity: &LogIdentity) -> Result<Option<Self>> {
        let path = directory.join(MANIFEST_FILE);
        let file = match files.open(&path, false) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(StoreError::io("open", &path))?,
        };
        let mut content = Vec::new();
        read_all(&*file, &mut content).map_err(StoreError::io("read", &path))?;
        let damaged = || StoreError::LogManifest { path: path.clone(), what: "damaged" };
        if content.len() != FILE_BYTES {
            return Err(damaged());
        }
        let slots = content.chunks_exact(PAGE_BYTES).map(decode);
        let newest = slots.max_by_key(Slot::generation).expect("there are two");
        let (generation, extent) = match newest {
            Slot::Valid { generation, extent, identity: found } if found == *identity => (generation, extent),
            Slot::Valid { .. } => return Err(StoreError::LogForeign { path }),
            Slot::Newer { version } => {
                return Err(StoreError::NewerFormat { path, found: version, known: FORMAT_VERSION });
            }
            Slot::Invalid => return Err(damaged()),
        };
        let manifest = Self { file, identity: *identity, generation, extent };
        manifest.write(generation, &extent).map_err(StoreError::io("write", &path))?;
        Ok(Some(manifest))
    }

    /// Creates the manifest of an empty log, atomically.
    pub(super) fn create(files: &dyn Files, directory: &Path, identity: &LogIdentity) -> Result<Self> {
        let (path, new) = (directory.join(MANIFEST_FILE), directory.join(MANIFEST_FILE_NEW));
        let extent = Extent { first: LogPosition(1), last: None, durable: LogPosition(0) };
        let create = || {
            let file = files.open(&new, true)?;
            file.set_length(0)?;
            file.write_at(0, &[0; FILE_BYTES])?;
            let manifest = Self { file, identity: *identity, generation: 1, extent };
            manifest.write(1, &extent)?;
            files.rename(&new, &path)?;
            files.sync_directory(directory)?;
            Ok(manifest)
        };
        create().map_err(StoreError::io("create", &path))
    }

    pub(super) fn extent(&self) -> Extent {
        self.extent
    }

    /// Replaces the content, durably. After an error either the old or the new content may be on
    /// the disk.
    pub(super) fn replace(&mut self, extent: Extent) -> io::Result<()> {
        if extent == self.extent {
            return Ok(());
        }
        self.write(self.generation + 1, &extent)?;
        self.generation += 1;
        self.extent = extent;
        Ok(())
    }

    fn write(&self, generation: u64, extent: &Extent) -> io::Result<()> {
        let page = (generation % 2) * PAGE_BYTES as u64;
        self.file.write_at(page, &encode(generation, extent, &self.identity))?;
        self.file.sync()
    }
}

enum Slot {
    Valid {
        generation: u64,
        extent: Extent,
        identity: LogIdentity,
    },
    /// The format version is unknown.
    Newer {
        version: u32,
    },
    /// Never written, torn or damaged.
    Invalid,
}

impl Slot {
    fn generation(&self) -> u64 {
        match self {
            Self::Valid { generation, .. } => *generation,
            Self::Newer { .. } => u64::MAX,
            Self::Invalid => 0,
        }
    }
}

fn encode(generation: u64, extent: &Extent, identity: &LogIdentity) -> [u8; SLOT_BYTES] {
    let mut slot = [0; SLOT_BYTES];
    slot[0..8].copy_from_slice(&MAGIC);
    slot[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    slot[16..24].copy_from_slice(&generation.to_le_bytes());
    slot[24..32].copy_from_slice(&extent.first.0.to_le_bytes());
    slot[32..40].copy_from_slice(&extent.last.map_or(0, |last| last.0).to_le_bytes());
    slot[40..48].copy_from_slice(&extent.durable.0.to_le_bytes());
    slot[48..64].copy_from_slice(&identity.cluster_id.to_le_bytes());
    slot[64..80].copy_from_slice(&identity.storage_id.to_le_bytes());
    slot[80..88].copy_from_slice(&identity.node_id.to_le_bytes());
    let checksum = crc32c::crc32c(&slot[16..]);
    slot[12..16].copy_from_slice(&checksum.to_le_bytes());
    slot
}

fn decode(page: &[u8]) -> Slot {
    let slot = &page[..SLOT_BYTES];
    if slot[0..8] != MAGIC {
        return Slot::Invalid;
    }
    let u32_at = |at: usize| u32::from_le_bytes(*slot[at..].first_chunk().expect("four bytes"));
    let u64_at = |at: usize| u64::from_le_bytes(*slot[at..].first_chunk().expect("eight bytes"));
    let u128_at = |at: usize| u128::from_le_bytes(*slot[at..].first_chunk().expect("sixteen bytes"));
    let version = u32_at(8);
    if version > FORMAT_VERSION {
        return Slot::Newer { version };
    }
    if version != FORMAT_VERSION || u32_at(12) != crc32c::crc32c(&slot[16..]) {
        return Slot::Invalid;
    }
    Slot::Valid {
        generation: u64_at(16),
        extent: Extent {
            first: LogPosition(u64_at(24)),
            last: Some(LogPosition(u64_at(32))).filter(|last| last.0 > 0),
            durable: LogPosition(u64_at(40)),
        },
        identity: LogIdentity { cluster_id: u128_at(48), storage_id: u128_at(64), node_id: u64_at(80) },
    }
}
