//! The engine's thread: brings buffers into the tree, writes tables, compacts.
//!
//! ```text
//!   wait for a sync ─▶ insert its buffers ─▶ write a table, force, list ─▶ it is done ─▶ compact while it pays
//!                                                                                       └─▶ much is removed: merge all
//! ```
//!
//! Compaction makes flushing wait, and so what is written next is bounded by how fast tables are merged.
//!
//! The library leaves what it has written of a table that it cannot finish, and looks for such files only when it opens a tree. On a full disk that is
//! the space that was to come back, so what a step leaves that fails is removed here (`unlisted`).

use super::buffer::Buffer;
use super::unlisted;
use crate::files::{Files, RealFiles};
use crate::{Result, StoreError};
use lsm_tree::{AbstractTree, AnyTree, SeqNo, SequenceNumberCounter, compaction::Leveled};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Compactions in a row before flushing is looked at again.
const COMPACTIONS_IN_A_ROW_MAX: usize = 4;
/// Runs in the tree's first level above which reads suffer and compaction continues.
const FIRST_LEVEL_RUNS_GOAL: usize = 4;
/// When removals and what they hide are a third of what the tables hold, all tables are merged into one run without either: so space
/// comes back though nothing else is written. Fewer removals than this are not worth it.
const REMOVALS_MIN: u64 = 1_000;
/// Nor are larger tables merged at once, since flushing would wait for long: there removals sink from level to level as more is written.
const MERGED_BYTES_MAX: u64 = 1 << 30;
/// Largest table that merging makes: the size that the library's levels have.
const TABLE_BYTES: u64 = 64 << 20;
/// Tables are not merged for so long after a merge that found no space: it takes what there is, and gives it back, and the log could use it.
const COMPACTION_RETRY: Duration = Duration::from_secs(5);

/// What the engine and its thread share.
pub(super) struct Worker {
    pub(super) tree: AnyTree,
    pub(super) sequence: SequenceNumberCounter,
    /// One above the newest entry of the tree.
    pub(super) visible: SequenceNumberCounter,
    pub(super) work: Mutex<Work>,
    pub(super) changed: Condvar,
}

#[derive(Default)]
pub(super) struct Work {
    /// Buffers to be inserted into the tree.
    pub(super) buffers: Vec<Arc<Buffer>>,
    /// Buffers that nobody needs any more.
    pub(super) spent: Vec<Arc<Buffer>>,
    /// Last sync begun, and last one finished or failed.
    pub(super) begun: u64,
    ended: u64,
    pub(super) finished: u64,
    /// Why the sync `ended` failed, if it did, and whether for lack of space.
    failure: Option<(String, bool)>,
    pub(super) closed: bool,
}

impl Worker {
    pub(super) fn locked(&self) -> MutexGuard<'_, Work> {
        self.work.lock().expect("no holder of this lock panics")
    }

    pub(super) fn run(&self) {
        let mut compact_from = Instant::now();
        while let Some((sync, buffers)) = self.next() {
            if buffers.iter().all(|buffer| buffer.is_empty()) && self.tree.version_free_list_len() > 1 {
                self.let_go_of_tables();
            }
            for buffer in buffers {
                self.insert(&buffer);
            }
            // Below it, flushing and compacting keep only what is newest: no key that is read has anything newer on its way.
            let watermark = self.visible.get();
            let outcome = self.flush(watermark);
            let is_flushed = outcome.is_ok();
            self.end(sync, outcome);
            if is_flushed && Instant::now() >= compact_from {
                let compacted = self.compact(watermark).and_then(|()| self.drop_removals());
                if compacted.is_err_and(|error| is_out_of_space(&error)) {
                    compact_from = Instant::now() + COMPACTION_RETRY;
                }
            }
        }
    }

    fn next(&self) -> Option<(u64, Vec<Arc<Buffer>>)> {
        loop {
            let idle = |work: &mut Work| work.begun == work.ended && work.spent.is_empty() && !work.closed;
            let mut work =
                self.changed.wait_while(self.locked(), idle).expect("no holder of this lock panics");
            if work.closed {
                return None;
            }
            if work.begun != work.ended {
                return Some((work.begun, std::mem::take(&mut work.buffers)));
            }
            let spent = std::mem::take(&mut work.spent);
            drop(work);
            drop(spent);
        }
    }

    fn insert(&self, buffer: &Buffer) {
        let mut tree_key = Vec::new();
        buffer.for_each(|partition, (key, value)| {
            set_tree_key(&mut tree_key, partition, key);
            self.write(&tree_key, value);
        });
        self.tree.rotate_memtable();
    }

    fn write(&self, tree_key: &[u8], value: Option<&[u8]>) {
        let sequence = self.sequence.next();
        match value {
            Some(value) => self.tree.insert(tree_key, value, sequence),
            None => self.tree.remove(tree_key, sequence),
        };
        self.visible.fetch_max(sequence + 1);
    }

    /// The library deletes tables that a compaction has replaced only when it writes a later one. If nothing else is to be written, that is
    /// a removal of a key that sorts before all partitions: on a full disk nothing else may come until they are gone.
    fn let_go_of_tables(&self) {
        self.write(&[0], None);
        self.tree.rotate_memtable();
    }

    fn flush(&self, watermark: SeqNo) -> lsm_tree::Result<()> {
        self.step(|tree| tree.flush(&tree.get_flush_lock(), watermark).map(drop))
    }

    /// Something that writes tables. If it fails the tables that are listed are as they were, and others there are none.
    fn step(&self, step: impl FnOnce(&AnyTree) -> lsm_tree::Result<()>) -> lsm_tree::Result<()> {
        let first = self.tree.next_table_id();
        let outcome = step(&self.tree);
        if outcome.is_err() {
            let _ = unlisted::remove(&self.tree, first); // what is left is found when the tree is opened
        }
        outcome
    }

    fn end(&self, sync: u64, outcome: lsm_tree::Result<()>) {
        let mut work = self.locked();
        work.ended = sync;
        work.failure = outcome.err().map(|error| (error.to_string(), is_out_of_space(&error)));
        if work.failure.is_none() {
            work.finished = sync;
        }
        self.changed.notify_all();
    }

    /// A compaction that fails leaves the tables as they were; flushing meets the same disk and reports it.
    fn compact(&self, watermark: SeqNo) -> lsm_tree::Result<()> {
        let strategy = Arc::new(Leveled::default());
        for _ in 0..COMPACTIONS_IN_A_ROW_MAX {
            self.step(|tree| tree.compact(strategy.clone(), watermark))?;
            if self.tree.l0_run_count() <= FIRST_LEVEL_RUNS_GOAL {
                break;
            }
        }
        Ok(())
    }

    /// See [`REMOVALS_MIN`]. As with any compaction, what fails leaves the tables as they were.
    fn drop_removals(&self) -> lsm_tree::Result<()> {
        if !self.is_merging_worth_it() {
            return Ok(());
        }
        self.step(|tree| tree.major_compact(TABLE_BYTES, self.visible.get()))?;
        self.let_go_of_tables();
        let _ = self.flush(self.visible.get()); // the tables only stay a little longer
        Ok(())
    }

    fn is_merging_worth_it(&self) -> bool {
        let (removals, entries) = (self.tree.tombstone_count(), self.tree.approximate_len() as u64);
        if removals < REMOVALS_MIN || removals < entries / 6 {
            return false;
        }
        // Old and new tables are there together: on a disk without room for both, a merge that fails would only take what is left.
        let bytes = self.tree.disk_space();
        let available = RealFiles.available(&self.tree.tree_config().path).unwrap_or(0);
        bytes <= MERGED_BYTES_MAX && bytes <= available
    }

    pub(super) fn wait_for(&self, sync: u64) -> Result<()> {
        let running = |work: &mut Work| work.ended < sync;
        let work = self.changed.wait_while(self.locked(), running).expect("no holder of this lock panics");
        work.synced().map(drop)
    }
}

impl Work {
    pub(super) fn synced(&self) -> Result<u64> {
        match &self.failure {
            Some((reason, is_out_of_space)) => Err(StoreError::Engine {
                operation: "write a table",
                reason: reason.clone(),
                is_out_of_space: *is_out_of_space,
            }),
            None => Ok(self.finished),
        }
    }
}

/// Partition and key are one tree key, the partition big-endian first: a partition is a range.
pub(super) fn set_tree_key(tree_key: &mut Vec<u8>, partition: u32, key: &[u8]) {
    tree_key.clear();
    tree_key.extend_from_slice(&partition.to_be_bytes());
    tree_key.extend_from_slice(key);
}

pub(super) fn failed(operation: &'static str) -> impl Fn(lsm_tree::Error) -> StoreError {
    move |error| {
        let (reason, is_out_of_space) = (error.to_string(), is_out_of_space(&error));
        match error {
            lsm_tree::Error::Io(_) => StoreError::Engine { operation, reason, is_out_of_space },
            _ => StoreError::EngineDamaged { operation, reason },
        }
    }
}

fn is_out_of_space(error: &lsm_tree::Error) -> bool {
    matches!(error, lsm_tree::Error::Io(error) if crate::error::is_out_of_space(error))
}
