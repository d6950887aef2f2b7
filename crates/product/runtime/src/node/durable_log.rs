//! A node's log as its storage uses it: syncs on the node's own thread (`hand_off`) or by group commit,
//! checkpoints that bound its length, and full disks.

use super::space::Space;
use super::storage_options::StorageOptions;
use crate::Waker;
use nicekv_proto::{Durations, Now};
use nicekv_replica::Replica;
use nicekv_store::{DataDirectory, GroupCommit, Log, LogPosition, LogSync, StoreError, SyncFirst};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// See [`StorageOptions::trim_bytes_min`].
const ENGINE_PART: u64 = 16;
/// While space is short, the log is trimmed after this part of a segment.
const SHORT_PART: u64 = 8;

/// Longest syncs made on the node's own thread: arriving gets wait for them.
const QUICK: Duration = Duration::from_millis(1);

/// Most records of such a sync: as many as a single caller causes.
const FEW_RECORDS: u64 = 4;
/// Number of such small syncs in a row that is required first. All others are left to group commit:
/// it syncs one batch while the node prepares the next, which with many callers is worth more than
/// the thread switches cost.
const FEW_IN_A_ROW: u32 = 32;

/// A sync of the log, on whichever thread, and how to report it.
pub(super) struct LogSyncing {
    sync: LogSync,
    /// Position synced since the node checked last.
    inbox: Mutex<Option<Result<LogPosition, StoreError>>>,
    waker: Waker,
    /// The node's own thread is syncing.
    is_out: AtomicBool,
}

impl LogSyncing {
    /// Syncs on the node's own thread.
    pub(super) fn sync_here(&self) {
        self.post(self.sync.sync());
        self.is_out.store(false, Ordering::Release);
    }

    /// Wakes the node.
    pub(super) fn wake(&self) {
        self.waker.wake();
    }

    /// A failure stays; syncs that end at the same time may be reported in any order.
    fn post(&self, synced: Result<LogPosition, StoreError>) {
        let mut inbox = self.inbox.lock().expect("no holder of this lock panics");
        *inbox = Some(match (inbox.take(), synced) {
            (Some(Ok(before)), Ok(position)) => Ok(before.max(position)),
            (Some(Err(error)), _) => Err(error),
            (_, synced) => synced,
        });
    }
}

/// Statistics of a node's log.
#[derive(Clone, Copy, Debug)]
pub struct LogObservation {
    /// Histogram of sync durations.
    pub syncs: Durations,
    /// Records written in total.
    pub records: u64,
    /// Number of segments.
    pub segments: usize,
}

pub(super) struct DurableLog {
    log: Log,
    syncing: Arc<LogSyncing>,
    commit: GroupCommit,
    /// (position being synced, number of its record), ascending.
    waiting: VecDeque<(LogPosition, u64)>,
    /// The last item of `waiting` is not being synced yet, and has this many records more than the
    /// one before.
    wanted: Option<u64>,
    /// Number of the last record that needs a sync.
    wanted_through: u64,
    /// Consecutive syncs for at most [`FEW_RECORDS`].
    few_in_a_row: u32,
    /// Position that group commit was asked for.
    handed: Option<LogPosition>,
    segments: usize,
    /// Time from which partly filled segments are removed.
    trim_at_ns: u64,
    /// Length of the log after the last trim.
    trimmed_bytes: u64,
    /// Number and position of the first record of a checkpoint, until the log before it is trimmed.
    checkpoint: Option<(u64, LogPosition)>,
    pub(super) space: Space,
    /// Dropped last.
    _directory: DataDirectory,
}

impl DurableLog {
    /// Wraps a replayed log. `waker` is woken when a sync is done.
    pub(super) fn new(
        log: Log,
        space: Space,
        directory: DataDirectory,
        trim_at_ns: u64,
        waker: Waker,
    ) -> std::io::Result<Self> {
        let sync = log.sync_handle();
        let syncing = LogSyncing { sync, inbox: Mutex::default(), waker, is_out: AtomicBool::new(false) };
        let syncing = Arc::new(syncing);
        let notify = {
            let syncing = syncing.clone();
            Box::new(move |synced| {
                syncing.post(synced);
                syncing.wake();
            })
        };
        Ok(Self {
            commit: GroupCommit::start(log.sync_handle(), notify)?,
            syncing,
            segments: log.segments(),
            trim_at_ns,
            trimmed_bytes: 0,
            log,
            waiting: VecDeque::new(),
            wanted: None,
            wanted_through: 0,
            few_in_a_row: 0,
            handed: None,
            checkpoint: None,
            space,
            _directory: directory,
        })
    }

    /// Adds a dependency of each sync.
    pub(super) fn sync_first(&mut self, first: Arc<dyn SyncFirst>) {
        self.log.sync_first(first);
    }

    pub(super) fn append(&mut self, payload: &[u8]) -> Result<(), StoreError> {
        self.log.append(payload).map(drop)
    }

    /// Written records are to be synced, up to the record with this number.
    pub(super) fn want_sync(&mut self, appended: u64) {
        self.waiting.push_back((self.log.last(), appended));
        let records = self.wanted.unwrap_or_default() + (appended - self.wanted_through);
        self.wanted = Some(records);
        self.wanted_through = appended;
    }

    /// Starts the pending sync: by group commit, or returned to the caller, if it has nothing else
    /// to do, there is little to sync, no sync is running, and it will probably be quick; or if it
    /// `waits` for it.
    pub(super) fn start_sync(&mut self, has_time: bool, waits: bool) -> Option<Arc<LogSyncing>> {
        let records = self.wanted.take()?;
        self.few_in_a_row = if records <= FEW_RECORDS { self.few_in_a_row.saturating_add(1) } else { 0 };
        let is_small = self.few_in_a_row > FEW_IN_A_ROW && self.syncing.sync.recent() <= QUICK;
        if waits || has_time && is_small && self.handed.is_none() {
            let was_out = self.syncing.is_out.swap(true, Ordering::AcqRel);
            if !was_out {
                return Some(self.syncing.clone());
            }
        }
        self.handed = Some(self.log.last());
        self.commit.request(self.log.last());
        None
    }

    /// Number of the last record synced since the last call.
    pub(super) fn finish_log_syncs(&mut self) -> Result<Option<u64>, StoreError> {
        let Some(synced) = self.syncing.inbox.lock().expect("no holder of this lock panics").take() else {
            return Ok(None);
        };
        let position = synced?;
        self.handed = self.handed.filter(|handed| *handed > position);
        let mut through = None;
        while let Some((_, record)) = self.waiting.pop_front_if(|(waiting, _)| *waiting <= position) {
            through = Some(record);
        }
        Ok(through)
    }

    /// Position up to which it is durable.
    pub(super) fn durable(&self) -> LogPosition {
        self.log.synced()
    }

    pub(super) fn observe(&self) -> LogObservation {
        LogObservation {
            syncs: self.syncing.sync.syncs(),
            records: self.log.last().0,
            segments: self.log.segments(),
        }
    }

    /// Whether no sync is pending or running.
    #[cfg(test)]
    pub(super) fn is_at_rest(&self) -> bool {
        self.wanted.is_none() && self.handed.is_none() && self.waiting.is_empty()
    }

    /// Whether all appended records are durable.
    pub(super) fn is_synced(&self) -> bool {
        self.log.synced() >= self.log.last()
    }

    /// Makes everything durable.
    pub(super) fn close(&mut self) -> Result<(), StoreError> {
        self.log.write()?;
        self.syncing.sync.sync()?;
        self.log.close()
    }

    /// Writes appended records when no request is left. A full disk is remembered and retried. If a
    /// segment begins and no checkpoint is running, the core writes one. `false` if the disk has no
    /// room even for this.
    pub(super) fn write(&mut self, appended: u64, core: &mut Replica) -> Result<bool, StoreError> {
        let mut is_written = self.write_or_stall()?;
        if !is_written {
            is_written = self.space.run_out()? && self.write_or_stall()?;
            core.set_disk_space(self.space.state());
        }
        let begins_segment = self.log.segments() != self.segments;
        self.segments = self.log.segments();
        if begins_segment && self.checkpoint.is_none() {
            self.checkpoint = Some((appended + 1, LogPosition(self.log.last().0 + 1)));
            core.checkpoint();
        }
        Ok(is_written)
    }

    /// `false` if there is no space.
    fn write_or_stall(&mut self) -> Result<bool, StoreError> {
        match self.log.write() {
            Err(error) if error.is_out_of_space() => Ok(false),
            written => written.map(|()| true),
        }
    }

    /// Trims the log before the checkpoint that began with record `before`.
    pub(super) fn trim(&mut self, before: u64, next_at_ns: u64) -> Result<(), StoreError> {
        let (first, position) = self.checkpoint.take().expect("trimmed after a checkpoint only");
        assert_eq!(first, before, "to where it began");
        self.log.trim(position)?;
        self.segments = self.log.segments();
        self.trimmed_bytes = self.log.segment_bytes();
        self.trim_at_ns = next_at_ns;
        Ok(())
    }

    /// Whether a checkpoint is due although the segment is not full. On a disk that is short of
    /// space it is due at once: the log is the space that can be reclaimed soonest.
    pub(super) fn is_trim_due(
        &self,
        now: Now,
        options: &StorageOptions,
        engine_bytes: u64,
        is_short: bool,
    ) -> bool {
        let least = match is_short {
            true => options.segment_bytes_max / SHORT_PART,
            false => options.trim_bytes_min.max(self.trimmed_bytes).max(engine_bytes / ENGINE_PART),
        };
        (is_short || now.boot_ns >= self.trim_at_ns)
            && self.checkpoint.is_none()
            && self.log.segment_bytes() >= self.trimmed_bytes + least
    }

    /// Ends the segment: the next [`Self::write`] begins a checkpoint.
    pub(super) fn rotate(&mut self) -> Result<(), StoreError> {
        match self.log.write_and_rotate() {
            // As with any write, retried later.
            Err(error) if error.is_out_of_space() => Ok(()),
            rotated => rotated,
        }
    }
}
