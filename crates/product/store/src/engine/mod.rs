//! Engines: applied state, by partition and key.
//!
//! An engine may lag behind the log and need not survive a crash by itself: after a restart the log
//! is applied again from the position at which the last finished sync began. So applying must be
//! idempotent, and the log is trimmed only up to that position.

mod buffer;
mod checksummed;
mod durable;
mod memory;
mod merge;
mod unlisted;
mod worker;

pub use checksummed::Checksummed;
pub use durable::{DurableOptions, LsmEngine, OPEN_TABLES_MAX};
pub use memory::MemoryEngine;

use crate::{Result, StoreError};
use std::path::Path;

/// The durable engine: an LSM tree whose values carry checksums of our own.
pub type DurableEngine = Checksummed<LsmEngine>;

impl DurableEngine {
    /// Opens or creates the engine in `directory`, which must be used for nothing else.
    pub fn open(directory: &Path, options: DurableOptions) -> Result<Self> {
        Ok(Self::new(LsmEngine::open(directory, options)?))
    }

    /// Whether there is an engine in `directory`.
    pub fn is_in(directory: &Path) -> bool {
        unlisted::has_version(directory)
    }

    /// The error for a `directory` whose engine is missing.
    pub fn missing(directory: &Path) -> StoreError {
        let reason = "it is missing, though the log goes on from what it held".into();
        StoreError::EngineFileDamaged { path: unlisted::suspect(directory), reason }
    }
}

/// A sync in progress; later ones compare greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct EngineSync(pub(crate) u64);

/// Part of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanPage {
    /// (key, value), ascending by key.
    pub entries: Vec<(Vec<u8>, Vec<u8>)>,
    /// Keys, ascending, with damaged values; they are not among `entries`.
    pub corrupt: Vec<Vec<u8>>,
    /// Whether there are more; continue after the last key.
    pub more: bool,
}

impl ScanPage {
    /// The last key of the page.
    pub fn last_key(&self) -> Option<&[u8]> {
        let entry = self.entries.last().map(|(key, _)| key.as_slice());
        entry.max(self.corrupt.last().map(Vec::as_slice))
    }
}

/// Applied state of a replica, used by one thread. All calls except [`Engine::sync`],
/// [`Engine::scan`] and [`Engine::clear`] usually take microseconds.
pub trait Engine: Send {
    /// Reads a value into `value`, replacing its content; `false`, and an empty `value`, if there
    /// is none. A damaged value is [`StoreError::Corrupt`](crate::StoreError::Corrupt); writing the
    /// key again repairs it.
    fn get_into(&self, partition: u32, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;

    /// Stores a value, replacing an older one.
    fn put(&mut self, partition: u32, key: &[u8], value: &[u8]) -> Result<()>;

    /// Removes a key; a missing key is no error.
    fn remove(&mut self, partition: u32, key: &[u8]) -> Result<()>;

    /// Entries of a partition in key order, after the key `after`. A page ends with the entry that
    /// makes its keys and values reach `bytes_max`, so it has at least one if any exists. The state
    /// may change between pages.
    fn scan(&self, partition: u32, after: Option<&[u8]>, bytes_max: usize) -> Result<ScanPage>;

    /// The same page, with the entries passed to `each` instead of copied; the returned page has
    /// none.
    fn scan_each(
        &self,
        partition: u32,
        after: Option<&[u8]>,
        bytes_max: usize,
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<ScanPage> {
        let mut page = self.scan(partition, after, bytes_max)?;
        page.entries.drain(..).for_each(|(key, value)| each(&key, &value));
        Ok(page)
    }

    /// Removes all keys of a partition. Time, and space until compaction, grow with their number.
    fn clear(&mut self, partition: u32) -> Result<()>;

    /// Begins to make everything durable that was applied before the call. Does not wait, unless
    /// the engine's memory bound is reached.
    fn sync_begin(&mut self) -> Result<EngineSync>;

    /// The latest finished sync, or the error that made the engine give up for now; the next sync
    /// tries again. Releases memory of durable entries.
    fn synced(&mut self) -> Result<EngineSync>;

    /// Makes everything durable that was applied before the call, and waits for it.
    fn sync(&mut self) -> Result<()>;

    /// Approximate number of keys of all partitions; may count overwritten and removed ones.
    fn approximate_keys(&self) -> u64;

    /// While space is short, syncs also reclaim what removals hide, even if little is written.
    fn set_space_short(&self, is_short: bool);

    /// Whether a merge has run out of space since the last call.
    fn merge_lacked_space(&self) -> bool;

    /// Approximate disk space of the tables.
    fn disk_bytes(&self) -> u64;

    /// Reads a value.
    fn get(&self, partition: u32, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(self.get_into(partition, key, &mut value)?.then_some(value))
    }
}
