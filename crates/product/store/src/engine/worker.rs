//! Thread of the durable engine: inserts buffers into the tree, writes tables, compacts.
//!
//! ```text
//!   wait for a sync ─▶ insert its buffers ─▶ write a table, sync, list ─▶ it is done ─▶ compact while it pays
//!                                                                                       ├─▶ much is removed: merge all
//!                                                                                       └─▶ space is short: sink removals
//! ```
//!
//! Flushing waits for compaction, so that new writes are bounded by the speed of merges.
//!
//! When the disk has no room for a second copy of the tables, removals are merged with what they
//! hide piece by piece:
//!
//! ```text
//!   levels 1 to 5 ─▶ level 6, a few tables at a time      ┌─ level 0, cut into tables as narrow as those of level 6 ─▶ level 5
//!                                                         └▶ level 6, a few tables at a time: removals and what they hide go
//! ```
//!
//! When the library cannot finish a table, it leaves the partial file and looks for such files only
//! when it opens a tree. On a full disk that is the space to be reclaimed, so the files of a failed
//! step are removed here (`unlisted`).

use super::buffer::Buffer;
use super::unlisted;
use crate::files::{Files, RealFiles};
use crate::{Result, StoreError};
use lsm_tree::{
    AbstractTree, AnyTree, SeqNo, SequenceNumberCounter,
    compaction::{Leveled, MoveDown},
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Compactions in a row before pending flushes are checked.
const COMPACTIONS_IN_A_ROW_MAX: usize = 4;
/// Runs in the tree's first level above which reads suffer and compaction continues.
const FIRST_LEVEL_RUNS_GOAL: usize = 4;
/// When removals and what they hide are a third of the tables' content, all tables are merged into
/// one run without either, so that space is reclaimed even if nothing else is written. Below this
/// number of removals it is not worth it.
const REMOVALS_MIN: u64 = 1_000;
/// Larger trees are not merged at once, since flushes would wait for too long: there, removals sink
/// from level to level as more is written.
const MERGED_BYTES_MAX: u64 = 1 << 30;
/// Size factor of tables while there is space.
const USUAL_TABLES: u64 = 4;
/// When space is short, removals are sunk if that reclaims this part of a table.
const SINK_DIVISOR: u64 = 8;
/// Merges in a row while removals sink, before pending flushes are checked.
const SINK_STEPS_MAX: usize = 16;
/// Tables into which the first level is cut for each table of the last level, and at most: each
/// overlaps few tables there.
const CUTS_PER_TABLE: u64 = 4;
const CUTS_MAX: u64 = 1024;
/// Constants of the library.
const LAST_LEVEL: usize = 6;
const BEFORE_LAST_LEVEL: usize = 5;
/// Tree keys below and above those of all partitions, which are longer. They are in the tree from
/// the start and so in its last level: the library merges a table only with tables whose key range
/// encloses its own.
const BOUNDS: [&[u8]; 2] = [&[0], &[0xff]];
/// A tree key between the [`BOUNDS`] that no partition uses.
const UNUSED_KEY: [u8; 2] = [0, 0];
/// Pause after a merge that ran out of space: it takes all space for a while, which the log could
/// use.
const COMPACTION_RETRY: Duration = Duration::from_secs(5);
/// The same pause while space is short, since merges are what reclaims it.
const SHORT_RETRY: Duration = Duration::from_secs(1);

/// Engines of one process merge one after the other: on a shared disk the free space may be enough
/// for one merge only.
static MERGES: Mutex<()> = Mutex::new(());

/// State shared by the engine and its thread.
pub(super) struct Worker {
    pub(super) tree: AnyTree,
    pub(super) sequence: SequenceNumberCounter,
    /// Sequence number after the newest entry of the tree.
    pub(super) visible: SequenceNumberCounter,
    pub(super) work: Mutex<Work>,
    pub(super) changed: Condvar,
    /// Size of tables written by merges when space is short.
    pub(super) table_bytes: u64,
    /// Whether the disk is full, or nearly so.
    pub(super) is_short: AtomicBool,
    /// Whether a merge has run out of space.
    pub(super) merge_lacked_space: AtomicBool,
}

#[derive(Default)]
pub(super) struct Work {
    /// Buffers to be inserted into the tree.
    pub(super) buffers: Vec<Arc<Buffer>>,
    /// Buffers to be freed.
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
            // Below this number, flushes and compactions keep only the newest version of a key: no
            // reader needs an older one.
            let watermark = self.visible.get();
            let outcome = self.flush(watermark);
            let is_flushed = outcome.is_ok();
            self.end(sync, outcome);
            if is_flushed && Instant::now() >= compact_from {
                let is_short = self.is_short.load(Ordering::Relaxed);
                let compacted = match is_short {
                    true => self.sink(),
                    false => self.compact(watermark).and_then(|room| Ok(self.drop_removals()? && room)),
                };
                let has_room = *compacted.as_ref().unwrap_or(&true);
                if !has_room || compacted.is_err_and(|error| is_out_of_space(&error)) {
                    compact_from = Instant::now() + if is_short { SHORT_RETRY } else { COMPACTION_RETRY };
                    self.merge_lacked_space.store(true, Ordering::Relaxed);
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
        if self.tree.approximate_len() == 0 {
            BOUNDS.iter().for_each(|key| self.write(key, Some(&[])));
        }
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

    /// The library deletes replaced tables only when it writes a later one. If nothing else is to
    /// be written, this writes a removal of a key that sorts before all partitions: on a full disk,
    /// nothing else may be accepted until they are deleted.
    fn let_go_of_tables(&self) {
        self.write(&UNUSED_KEY, None);
        self.tree.rotate_memtable();
    }

    fn flush(&self, watermark: SeqNo) -> lsm_tree::Result<()> {
        self.step(|tree| tree.flush(&tree.get_flush_lock(), watermark).map(drop))
    }

    /// Runs a step that writes tables. If it fails, the listed tables are unchanged and no others
    /// exist.
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

    /// A failed compaction leaves the tables unchanged; the next flush meets the same disk and
    /// reports it. `false` if there is no room for it.
    fn compact(&self, watermark: SeqNo) -> lsm_tree::Result<bool> {
        let strategy = Arc::new(Leveled::default().with_table_target_size(USUAL_TABLES * self.table_bytes));
        for _ in 0..COMPACTIONS_IN_A_ROW_MAX {
            let into = (1..=LAST_LEVEL).find(|level| self.tables_of(*level) > 0).unwrap_or(LAST_LEVEL);
            if self.l0_is_due() && !self.has_room(self.bytes_of(0) + self.bytes_of(into)) {
                return Ok(false);
            }
            self.merge(|tree| tree.compact(strategy.clone(), watermark))?;
            if self.tree.l0_run_count() <= FIRST_LEVEL_RUNS_GOAL {
                break;
            }
        }
        Ok(true)
    }

    fn l0_is_due(&self) -> bool {
        self.tables_of(0) >= FIRST_LEVEL_RUNS_GOAL
    }

    /// Whether the disk has room for a merge's output, and some more for other writers. A merge
    /// that runs out of space takes all of it first.
    fn has_room(&self, bytes: u64) -> bool {
        let available = RealFiles.available(&self.tree.tree_config().path).unwrap_or(0);
        bytes + USUAL_TABLES * self.table_bytes <= available
    }

    /// Estimated size of tables of this size without removals and what they hide.
    fn live_bytes(&self, bytes: u64) -> u64 {
        let (removals, entries) = (self.tree.tombstone_count(), self.tree.approximate_len() as u64);
        let (shown, hidden) = (entries.saturating_sub(2 * removals), entries.saturating_sub(removals));
        (u128::from(bytes) * u128::from(shown) / u128::from(hidden.max(1))) as u64
    }

    /// See [`REMOVALS_MIN`]. A failure leaves the tables unchanged.
    fn drop_removals(&self) -> lsm_tree::Result<bool> {
        if !self.is_merging_worth_it() {
            return Ok(true);
        }
        self.merge(|tree| tree.major_compact(USUAL_TABLES * self.table_bytes, self.visible.get()))?;
        self.let_go_of_tables();
        let _ = self.flush(self.visible.get()); // the tables only stay a little longer
        Ok(true)
    }

    /// Runs a step while other engines wait.
    fn merge(&self, merge: impl FnOnce(&AnyTree) -> lsm_tree::Result<()>) -> lsm_tree::Result<()> {
        let _turn = MERGES.lock().unwrap_or_else(PoisonError::into_inner);
        self.step(merge)
    }

    /// Moves removals and all else to the last level, where removals disappear together with what
    /// they hide. Each merge takes the first level, or a few tables, so that it fits into the
    /// reserve of a full disk. The rest is left for the next sync when the steps are used up.
    /// `false` if there is no room for the next merge.
    fn sink(&self) -> lsm_tree::Result<bool> {
        let (mut steps, mut has_room) = (0, true);
        while steps < SINK_STEPS_MAX && self.sinking_gives_back() {
            let before = self.tree.current_version().id();
            let deepest = (1..LAST_LEVEL).rfind(|level| self.tables_of(*level) > 0);
            let bytes = match deepest {
                Some(BEFORE_LAST_LEVEL) => {
                    let bytes = self.bytes_of(BEFORE_LAST_LEVEL) + self.bytes_of(LAST_LEVEL);
                    self.live_bytes(bytes / self.tables_of(BEFORE_LAST_LEVEL) as u64)
                }
                Some(_) => 0,
                None => self.bytes_of(0),
            };
            has_room = self.has_room(bytes);
            if !has_room {
                break;
            }
            match deepest {
                Some(BEFORE_LAST_LEVEL) => self.sink_some_tables()?,
                Some(level) => {
                    let down = Arc::new(MoveDown(level as u8, BEFORE_LAST_LEVEL as u8));
                    self.merge(|tree| tree.compact(down, self.visible.get()))?;
                }
                None => self.cut_first_level()?,
            }
            if self.tree.current_version().id() == before {
                break;
            }
            steps += 1;
        }
        if steps > 0 {
            self.let_go_of_tables();
            let _ = self.flush(self.visible.get()); // the tables only stay a little longer
        }
        Ok(has_room)
    }

    /// Merges the tables of the second-to-last level that need least space with the last level.
    fn sink_some_tables(&self) -> lsm_tree::Result<()> {
        let first = (1..LAST_LEVEL).find(|level| self.tables_of(*level) > 0).unwrap_or(BEFORE_LAST_LEVEL);
        // Size limits of the levels: none, except for the second-to-last level, which must become
        // empty.
        let strategy = match BEFORE_LAST_LEVEL - first {
            0 => Leveled::default().with_l0_threshold(0),
            above => {
                let mut ratios = vec![1.0; above];
                ratios[above - 1] = 0.0;
                Leveled::default().with_l0_threshold(u8::MAX).with_level_ratio_policy(ratios)
            }
        };
        let strategy = Arc::new(strategy.with_table_target_size(self.table_bytes));
        self.merge(|tree| tree.compact(strategy, self.visible.get()))
    }

    /// Merges the first level into the empty second-to-last level, in tables as narrow as those of
    /// the last level.
    fn cut_first_level(&self) -> lsm_tree::Result<()> {
        // The library moves a level with a single run unchanged; two overlapping runs are merged,
        // and thereby cut.
        BOUNDS.iter().for_each(|key| self.write(key, Some(&[])));
        self.tree.rotate_memtable();
        self.flush(self.visible.get())?;
        let cuts = (CUTS_PER_TABLE * self.bytes_of(LAST_LEVEL) / self.table_bytes).clamp(1, CUTS_MAX);
        let cut_bytes = self.bytes_of(0).div_ceil(cuts).clamp(1, self.table_bytes);
        let strategy = Leveled::default().with_l0_threshold(0).with_table_target_size(cut_bytes);
        self.merge(|tree| tree.compact(Arc::new(strategy), self.visible.get()))
    }

    fn tables_of(&self, level: usize) -> usize {
        self.tree.level_table_count(level).unwrap_or_default()
    }

    fn bytes_of(&self, level: usize) -> u64 {
        let version = self.tree.current_version();
        let runs = version.level(level).into_iter().flat_map(|level| level.iter());
        runs.flat_map(|run| run.iter()).map(|table| table.metadata.file_size).sum()
    }

    /// Whether sinking is worthwhile: the first level is large, or removals hide much, assuming
    /// that each hides an entry of average size.
    fn sinking_gives_back(&self) -> bool {
        let (removals, entries) = (self.tree.tombstone_count(), self.tree.approximate_len() as u64);
        let average = self.tree.disk_space() / entries.saturating_sub(removals).max(1);
        removals * average >= self.table_bytes / SINK_DIVISOR
            || self.tree.l0_run_count() > FIRST_LEVEL_RUNS_GOAL
    }

    fn is_merging_worth_it(&self) -> bool {
        let (removals, entries) = (self.tree.tombstone_count(), self.tree.approximate_len() as u64);
        if removals < REMOVALS_MIN || removals < entries / 6 {
            return false;
        }
        // Old and new tables exist at the same time: on a disk without room for both, a merge would
        // fail and take the remaining space.
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

/// Partition and key form one tree key, with the big-endian partition first: a partition is a
/// range.
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
