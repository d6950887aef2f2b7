//! The LSM tree that holds applied state on disk: `lsm-tree`, the library on which `fjall` is built.
//!
//! Why the tree without fjall around it: fjall adds a journal, whose damage is not reliably detected (FACTS) and which
//! can keep a database from opening after an ordinary power loss, because an unsynced tail may have holes. We have a
//! log that is authoritative; a second one would cost a write per put and could only disagree. Without it the tree
//! holds exactly what was flushed to tables, whose blocks are checksummed by the library and forced before they are
//! listed in its manifest. All the rest is applied again from our log.
//!
//! ```text
//!   node thread                     engine thread
//!   put ─▶ active memtable
//!   sync_begin: seal it ─────────▶  write all sealed ones to a table, force, list  ─▶ synced()
//!                                   compact while it pays
//! ```
//!
//! Partition and key are one tree key, `partition` big-endian first: a partition is a range. Memory is bounded: a
//! memtable that reaches `memtable_bytes_max` is sealed, and a put waits while `SEALED_MEMTABLES_MAX` are not yet
//! on disk.
//!
//! Limit: the library trusts the lengths in a table's directory. A bit flipped there is not served, but can end the
//! process while it opens the engine (by an allocation that fails) instead of giving an error.

use super::{Engine, EngineSync, ScanPage};
use crate::{Result, StoreError};
use lsm_tree::{AbstractTree, AnyTree, Cache, Guard, SeqNo, SequenceNumberCounter, compaction::Leveled};
use std::{
    ops::Bound,
    path::Path,
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread::{Builder, JoinHandle},
};

/// Sealed memtables that may wait for the disk before puts wait too.
const SEALED_MEMTABLES_MAX: usize = 4;
/// Compactions in a row before flushing is looked at again.
const COMPACTIONS_IN_A_ROW_MAX: usize = 4;
/// Runs in the tree's first level above which reads suffer and compaction continues.
const FIRST_LEVEL_RUNS_GOAL: usize = 4;
const PARTITION_BYTES: usize = 2;

/// Sizes of the durable engine.
#[derive(Clone, Copy, Debug)]
pub struct DurableOptions {
    /// Applied bytes held in memory before they are sealed for the disk.
    pub memtable_bytes_max: u64,
    /// Size of the cache of table blocks.
    pub cache_bytes: u64,
}

impl Default for DurableOptions {
    fn default() -> Self {
        Self { memtable_bytes_max: 32 << 20, cache_bytes: 64 << 20 }
    }
}

/// The tree and its thread. Values are stored as given: see [`super::Checksummed`].
pub struct LsmEngine {
    tree: AnyTree,
    sequence: SequenceNumberCounter,
    /// One above the newest write: what reads see.
    visible: SequenceNumberCounter,
    options: DurableOptions,
    worker: Arc<Worker>,
    thread: Option<JoinHandle<()>>,
}

struct Worker {
    tree: AnyTree,
    work: Mutex<Work>,
    changed: Condvar,
}

#[derive(Default)]
struct Work {
    /// Last sync begun, and last one finished or failed.
    begun: u64,
    ended: u64,
    finished: u64,
    /// `visible` when the last sync was begun: below it, flushing and compacting keep only what is newest. Taken on
    /// the node thread, so that no read ever asks for less than what is kept.
    watermark: SeqNo,
    /// Why the sync `ended` failed, if it did.
    failure: Option<String>,
    closed: bool,
}

impl LsmEngine {
    /// Opens or creates the tree in `directory`.
    pub fn open(directory: &Path, options: DurableOptions) -> Result<Self> {
        let (sequence, visible) = (SequenceNumberCounter::default(), SequenceNumberCounter::default());
        let tree = lsm_tree::Config::new(directory, sequence.clone(), visible.clone())
            .use_cache(Arc::new(Cache::with_capacity_bytes(options.cache_bytes)))
            .open()
            .map_err(failed("open"))?;
        let next = tree.get_highest_seqno().map_or(0, |newest| newest + 1);
        sequence.fetch_max(next);
        visible.fetch_max(next);
        let worker = Arc::new(Worker { tree: tree.clone(), work: Mutex::default(), changed: Condvar::new() });
        let for_thread = worker.clone();
        let thread = Builder::new().name("engine".into()).spawn(move || for_thread.run());
        let thread = Some(thread.map_err(StoreError::io("start a thread for", directory))?);
        Ok(Self { tree, sequence, visible, options, worker, thread })
    }

    /// Gives the write its sequence number, makes it visible, and keeps memory bounded.
    fn write(&mut self, apply: impl FnOnce(&AnyTree, SeqNo) -> (u64, u64)) -> Result<()> {
        self.wait_for_memory()?;
        let sequence = self.sequence.next();
        let (_, memtable_bytes) = apply(&self.tree, sequence);
        self.visible.fetch_max(sequence + 1);
        if memtable_bytes >= self.options.memtable_bytes_max {
            self.sync_begin()?;
        }
        Ok(())
    }

    fn wait_for_memory(&mut self) -> Result<()> {
        if self.tree.sealed_memtable_count() < SEALED_MEMTABLES_MAX {
            return Ok(());
        }
        let sync = self.sync_begin()?;
        self.worker.wait_for(sync)
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

impl Worker {
    fn locked(&self) -> MutexGuard<'_, Work> {
        self.work.lock().expect("no holder of this lock panics")
    }

    fn run(&self) {
        while let Some((sync, watermark)) = self.next() {
            let outcome = self.flush(watermark);
            let is_flushed = outcome.is_ok();
            self.end(sync, outcome);
            if is_flushed {
                self.compact(watermark);
            }
        }
    }

    fn next(&self) -> Option<(u64, SeqNo)> {
        let idle = |work: &mut Work| work.begun == work.ended && !work.closed;
        let work = self.changed.wait_while(self.locked(), idle).expect("no holder of this lock panics");
        if work.closed { None } else { Some((work.begun, work.watermark)) }
    }

    fn flush(&self, watermark: SeqNo) -> lsm_tree::Result<()> {
        self.tree.flush(&self.tree.get_flush_lock(), watermark).map(drop)
    }

    fn end(&self, sync: u64, outcome: lsm_tree::Result<()>) {
        let mut work = self.locked();
        work.ended = sync;
        work.failure = outcome.err().map(|error| error.to_string());
        if work.failure.is_none() {
            work.finished = sync;
        }
        self.changed.notify_all();
    }

    /// A compaction that fails leaves the tables as they were; flushing meets the same disk and reports it.
    fn compact(&self, watermark: SeqNo) {
        let strategy = Arc::new(Leveled::default());
        for _ in 0..COMPACTIONS_IN_A_ROW_MAX {
            let outcome = self.tree.compact(strategy.clone(), watermark);
            if outcome.is_err() || self.tree.l0_run_count() <= FIRST_LEVEL_RUNS_GOAL {
                return;
            }
        }
    }

    fn wait_for(&self, sync: EngineSync) -> Result<()> {
        let running = |work: &mut Work| work.ended < sync.0;
        let work = self.changed.wait_while(self.locked(), running).expect("no holder of this lock panics");
        work.synced().map(drop)
    }
}

impl Work {
    fn synced(&self) -> Result<EngineSync> {
        match &self.failure {
            Some(reason) => Err(StoreError::Engine { operation: "write a table", reason: reason.clone() }),
            None => Ok(EngineSync(self.finished)),
        }
    }
}

fn failed(operation: &'static str) -> impl Fn(lsm_tree::Error) -> StoreError {
    move |error| StoreError::Engine { operation, reason: error.to_string() }
}

fn tree_key(partition: u16, key: &[u8]) -> Vec<u8> {
    let mut tree_key = Vec::with_capacity(PARTITION_BYTES + key.len());
    tree_key.extend_from_slice(&partition.to_be_bytes());
    tree_key.extend_from_slice(key);
    tree_key
}

fn range(partition: u16, after: Option<&[u8]>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
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
    fn get_into(&self, partition: u16, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let stored = self.tree.get(tree_key(partition, key), self.visible.get());
        let stored = stored.map_err(|error| match error {
            lsm_tree::Error::Io(_) => failed("read")(error),
            _ => StoreError::Corrupt { partition, key: key.to_vec() }, // a block failed the library's own checks
        })?;
        value.extend_from_slice(stored.as_deref().unwrap_or_default());
        Ok(stored.is_some())
    }

    fn put(&mut self, partition: u16, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(|tree, sequence| tree.insert(tree_key(partition, key), value, sequence))
    }

    fn remove(&mut self, partition: u16, key: &[u8]) -> Result<()> {
        self.write(|tree, sequence| tree.remove(tree_key(partition, key), sequence))
    }

    fn scan(&self, partition: u16, after: Option<&[u8]>, bytes_max: usize) -> Result<ScanPage> {
        let mut page = ScanPage::default();
        let mut bytes = 0;
        for entry in self.tree.range(range(partition, after), self.visible.get(), None) {
            if bytes >= bytes_max && !page.entries.is_empty() {
                page.more = true;
                break;
            }
            let (key, value) = entry.into_inner().map_err(failed("scan"))?;
            bytes += key.len() - PARTITION_BYTES + value.len();
            page.entries.push((key[PARTITION_BYTES..].to_vec(), value.to_vec()));
        }
        Ok(page)
    }

    fn clear(&mut self, partition: u16) -> Result<()> {
        for entry in self.tree.range(range(partition, None), self.visible.get(), None) {
            let key = entry.key().map_err(failed("clear"))?;
            self.write(|tree, sequence| tree.remove(key, sequence))?;
        }
        Ok(())
    }

    fn sync_begin(&mut self) -> Result<EngineSync> {
        self.tree.rotate_memtable();
        let mut work = self.worker.locked();
        work.begun += 1;
        work.watermark = self.visible.get();
        self.worker.changed.notify_all();
        Ok(EngineSync(work.begun))
    }

    fn synced(&self) -> Result<EngineSync> {
        self.worker.locked().synced()
    }

    fn sync(&mut self) -> Result<()> {
        let sync = self.sync_begin()?;
        self.worker.wait_for(sync)
    }

    fn approximate_keys(&self) -> u64 {
        self.tree.approximate_len() as u64
    }
}
