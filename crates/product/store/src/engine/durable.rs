//! The durable engine: an LSM tree (`lsm-tree`, the library that `fjall` is built on).
//!
//! Why not fjall itself: it adds a journal, whose damage is not reliably detected and which can
//! prevent a database from opening after an ordinary power loss, because an unsynced tail may have
//! holes. Our log is authoritative; a second one would cost a write per put and could only
//! disagree. Without it, the tree holds exactly what was flushed to tables, whose blocks the
//! library checksums and syncs before it lists them in its manifest. Everything else is applied
//! again from our log.
//!
//! ```text
//!   node thread                     engine thread
//!   put ─▶ fresh (newest per key)
//!   sync_begin: hand it over ────▶  insert into the tree, write a table, sync, list  ─▶ synced()
//!                                   compact while it pays; merge all when much is removed
//!   get ─▶ fresh, handed over, tree
//! ```
//!
//! Why a buffer in front of the tree: the library syncs its manifest under the lock that writers
//! and readers of the tree take, for up to a tenth of a second on a busy disk. A node waiting for
//! that would miss its heartbeats. A buffer is kept until its entries are visible in the tree, so
//! the tree is read only for keys that no buffer has: entries that the engine thread is inserting
//! or compacting are never read. Buffers find keys by hash; they are ordered only for scans and the
//! engine thread (`buffer`).
//!
//! Memory is bounded: a buffer that reaches `memtable_bytes_max` is handed over, and puts wait
//! while `HANDED_MAX` buffers are not yet on disk.
//!
//! Limit: the library trusts the lengths in a table's directory. A bit flipped there is never
//! served, but may crash the process with a failed allocation when it opens the engine, instead of
//! giving an error.

use super::buffer::Buffer;
use super::merge::{Merged, Source};
use super::unlisted::{lacks_version, suspect};
use super::worker::{Worker, failed, set_tree_key};
use super::{Engine, EngineSync, ScanPage};
use crate::{Result, StoreError};
use foldhash::fast::RandomState;
use lsm_tree::{AbstractTree, AnyTree, Cache, DescriptorTable, Guard, SeqNo, SequenceNumberCounter};
use std::{
    borrow::Cow,
    collections::VecDeque,
    hash::BuildHasher,
    ops::Bound,
    path::Path,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{Builder, JoinHandle},
};

/// Most buffers waiting for the disk; beyond that, puts wait.
const HANDED_MAX: usize = 4;
const PARTITION_BYTES: usize = size_of::<u32>();
/// Reads see the newest version of the tree: entries that are not fully in it yet are still in a
/// buffer. A version number from the counter could belong to a version that the engine's thread
/// drops before the reader looks it up.
const NEWEST: SeqNo = SeqNo::MAX;

/// Whether the tree cannot be opened because of damage. Missing or truncated files count as damage,
/// although the library reports them as operating system errors.
fn unopened(directory: &Path, error: lsm_tree::Error) -> StoreError {
    use std::io::ErrorKind::{InvalidData, InvalidInput, NotFound, UnexpectedEof};
    match error {
        lsm_tree::Error::Io(error)
            if ![InvalidData, InvalidInput, NotFound, UnexpectedEof].contains(&error.kind()) =>
        {
            StoreError::io("open the storage engine in", directory)(error)
        }
        error => StoreError::EngineFileDamaged { path: suspect(directory), reason: error.to_string() },
    }
}

/// Sizes of the durable engine.
#[derive(Clone, Copy, Debug)]
pub struct DurableOptions {
    /// Applied bytes held in memory before they are sealed for the disk.
    pub memtable_bytes_max: u64,
    /// Size of the cache of table blocks.
    pub cache_bytes: u64,
    /// Size of tables written by merges when space is short; otherwise they are 4 times as large.
    pub table_bytes: u64,
}

/// Most open tables; a running merge opens more.
pub const OPEN_TABLES_MAX: usize = 64;

impl Default for DurableOptions {
    fn default() -> Self {
        Self { memtable_bytes_max: 32 << 20, cache_bytes: 64 << 20, table_bytes: 4 << 20 }
    }
}

/// The tree with its thread. Values are stored as given: see [`super::Checksummed`].
pub struct LsmEngine {
    tree: AnyTree,
    options: DurableOptions,
    fresh: Buffer,
    /// Bytes written to `fresh`.
    fresh_bytes: u64,
    /// Buffers that may not be visible in the tree yet, oldest first.
    handed: VecDeque<(EngineSync, Arc<Buffer>)>,
    /// Randomly seeded, since clients choose the keys.
    hasher: RandomState,
    worker: Arc<Worker>,
    thread: Option<JoinHandle<()>>,
}

impl LsmEngine {
    /// Opens or creates the tree in `directory`.
    pub fn open(directory: &Path, options: DurableOptions) -> Result<Self> {
        // The library would create an empty tree, and the data in the tables would be lost.
        if lacks_version(directory) {
            let reason = "it is missing, though there are tables".into();
            return Err(StoreError::EngineFileDamaged { path: suspect(directory), reason });
        }
        let (sequence, visible) = (SequenceNumberCounter::default(), SequenceNumberCounter::default());
        let tree = lsm_tree::Config::new(directory, sequence.clone(), visible.clone())
            .use_cache(Arc::new(Cache::with_capacity_bytes(options.cache_bytes)))
            .use_descriptor_table(Some(Arc::new(DescriptorTable::new(OPEN_TABLES_MAX))))
            .open()
            .map_err(|error| unopened(directory, error))?;
        let next = tree.get_highest_seqno().map_or(0, |newest| newest + 1);
        sequence.fetch_max(next);
        visible.fetch_max(next);
        let worker = Arc::new(Worker {
            tree: tree.clone(),
            sequence,
            visible,
            work: Mutex::default(),
            changed: Condvar::new(),
            table_bytes: options.table_bytes,
            is_short: AtomicBool::new(false),
            merge_lacked_space: AtomicBool::new(false),
        });
        let for_thread = worker.clone();
        let thread = Builder::new().name("engine".into()).spawn(move || for_thread.run());
        let thread = Some(thread.map_err(StoreError::io("start a thread for", directory))?);
        let (fresh, handed, hasher) = (Buffer::default(), VecDeque::new(), RandomState::default());
        Ok(Self { tree, options, fresh, fresh_bytes: 0, handed, hasher, worker, thread })
    }

    fn hash(&self, key: &[u8]) -> u32 {
        self.hasher.hash_one(key) as u32
    }

    /// Takes a write, and keeps memory bounded.
    fn write(&mut self, partition: u32, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.fresh_bytes += (PARTITION_BYTES + key.len() + value.map_or(0, <[u8]>::len)) as u64;
        self.fresh.write(partition, self.hash(key), key, value);
        if self.fresh_bytes >= self.options.memtable_bytes_max {
            self.wait_for_memory()?;
            self.sync_begin()?;
        }
        Ok(())
    }

    fn wait_for_memory(&mut self) -> Result<()> {
        self.let_go();
        match self.handed.front() {
            Some((oldest, _)) if self.handed.len() >= HANDED_MAX => self.worker.wait_for(oldest.0),
            _ => Ok(()),
        }
    }

    /// Drops buffers whose entries are in the tree; the engine's thread frees their memory, which
    /// takes milliseconds.
    fn let_go(&mut self) {
        let mut work = self.worker.locked();
        let before = work.spent.len();
        while let Some((_, buffer)) = self.handed.pop_front_if(|(sync, _)| sync.0 <= work.finished) {
            work.spent.push(buffer);
        }
        if work.spent.len() > before {
            self.worker.changed.notify_all();
        }
    }

    /// Newest first.
    fn buffers(&self) -> impl Iterator<Item = &Buffer> {
        std::iter::once(&self.fresh).chain(self.handed.iter().rev().map(|(_, buffer)| &**buffer))
    }

    /// Writes of a partition after the key `after`, in key order, newest per key, removals
    /// included.
    fn merged<'a>(&'a self, partition: u32, after: Option<&[u8]>) -> Merged<'a> {
        let buffered = self.buffers().flat_map(|buffer| buffer.sequences(partition, after));
        let mut sources: Vec<Source<'a>> = buffered
            .map(|sequence| -> Source<'a> {
                Box::new(sequence.map(|(key, value)| Ok((key.into(), value.map(Cow::from)))))
            })
            .collect();
        let tree = self.tree.range(range(partition, after), NEWEST, None);
        sources.push(Box::new(tree.map(|entry| {
            let (key, value) = entry.into_inner().map_err(failed("scan"))?;
            Ok((Cow::from(key[PARTITION_BYTES..].to_vec()), Some(Cow::from(value.to_vec()))))
        })));
        Merged::new(sources)
    }
}

impl Drop for LsmEngine {
    fn drop(&mut self) {
        self.worker.locked().closed = true;
        self.worker.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic has been reported on its own thread
        }
    }
}

fn tree_key(partition: u32, key: &[u8]) -> Vec<u8> {
    let mut tree_key = Vec::with_capacity(PARTITION_BYTES + key.len());
    set_tree_key(&mut tree_key, partition, key);
    tree_key
}

fn range(partition: u32, after: Option<&[u8]>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let from = match after {
        Some(after) => Bound::Excluded(tree_key(partition, after)),
        None => Bound::Included(tree_key(partition, &[])),
    };
    let to = match partition.checked_add(1) {
        Some(next) => Bound::Excluded(tree_key(next, &[])),
        None => Bound::Unbounded,
    };
    (from, to)
}

impl Engine for LsmEngine {
    fn get_into(&self, partition: u32, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let hash = self.hash(key);
        if let Some(written) = self.buffers().find_map(|buffer| buffer.get(partition, hash, key)) {
            value.extend_from_slice(written.unwrap_or_default());
            return Ok(written.is_some());
        }
        let stored = self.tree.get(tree_key(partition, key), NEWEST);
        let stored = stored.map_err(|error| match error {
            lsm_tree::Error::Io(_) => failed("read")(error),
            _ => StoreError::Corrupt { partition, key: key.to_vec() }, // a block failed the library's own checks
        })?;
        value.extend_from_slice(stored.as_deref().unwrap_or_default());
        Ok(stored.is_some())
    }

    fn put(&mut self, partition: u32, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(partition, key, Some(value))
    }

    fn remove(&mut self, partition: u32, key: &[u8]) -> Result<()> {
        self.write(partition, key, None)
    }

    fn scan(&self, partition: u32, after: Option<&[u8]>, bytes_max: usize) -> Result<ScanPage> {
        let mut page = ScanPage::default();
        let mut bytes = 0;
        for written in self.merged(partition, after) {
            let (key, Some(value)) = written? else { continue };
            if bytes >= bytes_max && !page.entries.is_empty() {
                page.more = true;
                break;
            }
            bytes += key.len() + value.len();
            page.entries.push((key.into_owned(), value.into_owned()));
        }
        Ok(page)
    }

    fn clear(&mut self, partition: u32) -> Result<()> {
        let present = self.merged(partition, None).filter_map(|written| match written {
            Ok((_, None)) => None,
            Ok((key, Some(_))) => Some(Ok(key.into_owned())),
            Err(error) => Some(Err(error)),
        });
        for key in present.collect::<Result<Vec<_>>>()? {
            self.write(partition, &key, None)?;
        }
        Ok(())
    }

    fn sync_begin(&mut self) -> Result<EngineSync> {
        self.let_go();
        let buffer = Arc::new(std::mem::take(&mut self.fresh));
        self.fresh_bytes = 0;
        let mut work = self.worker.locked();
        work.begun += 1;
        let sync = EngineSync(work.begun);
        work.buffers.push(buffer.clone());
        self.worker.changed.notify_all();
        drop(work);
        self.handed.push_back((sync, buffer));
        Ok(sync)
    }

    fn synced(&mut self) -> Result<EngineSync> {
        self.let_go();
        self.worker.locked().synced().map(EngineSync)
    }

    fn sync(&mut self) -> Result<()> {
        let sync = self.sync_begin()?;
        self.worker.wait_for(sync.0)
    }

    fn approximate_keys(&self) -> u64 {
        let buffered: usize = self.handed.iter().map(|(_, buffer)| buffer.len()).sum();
        (self.tree.approximate_len() + buffered + self.fresh.len()) as u64
    }

    fn set_space_short(&self, is_short: bool) {
        self.worker.is_short.store(is_short, Ordering::Relaxed);
    }

    fn merge_lacked_space(&self) -> bool {
        self.worker.merge_lacked_space.swap(false, Ordering::Relaxed)
    }

    fn disk_bytes(&self) -> u64 {
        self.tree.disk_space()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removals_are_reclaimed_in_small_merges_when_space_is_short() {
        const KEYS: u32 = 4_000;
        let directory = tempfile::tempdir().unwrap();
        let options = DurableOptions { table_bytes: 256 << 10, ..DurableOptions::default() };
        let mut engine = LsmEngine::open(directory.path(), options).unwrap();
        // Distinct keys, unordered.
        let key = |number: u32| number.wrapping_mul(2_654_435_761).to_be_bytes();
        let value = |number: u32| -> Vec<u8> {
            (0..1_000u32)
                .map(|at| (number.wrapping_mul(31).wrapping_add(at).wrapping_mul(2_654_435_761) >> 24) as u8)
                .collect()
        };
        for number in 0..KEYS {
            engine.put(number % 7, &key(number), &value(number)).unwrap();
            if number % 500 == 0 {
                engine.sync().unwrap();
            }
        }
        engine.sync().unwrap();
        // There is no room to merge all tables.
        engine.set_space_short(true);
        let before = engine.disk_bytes();
        for number in (0..KEYS).filter(|number| number % 4 != 0) {
            engine.remove(number % 7, &key(number)).unwrap();
        }
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while engine.disk_bytes() > before / 2 {
            let levels: Vec<_> = (0..7).map(|level| engine.tree.level_table_count(level)).collect();
            assert!(
                std::time::Instant::now() < deadline,
                "{} of {before} bytes in {levels:?}, {} removals",
                engine.disk_bytes(),
                engine.tree.tombstone_count()
            );
            engine.sync().unwrap();
        }
        for number in 0..KEYS {
            let expected = (number % 4 == 0).then(|| value(number));
            assert_eq!(engine.get(number % 7, &key(number)).unwrap(), expected, "key {number}");
        }
    }
}
