//! A node's log as its storage uses it: syncs on the node's own thread (`hand_off`) or by group
//! commit, checkpoints that bound its length, and full disks.

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

/// Divisor for the engine's size, see [`StorageOptions::trim_bytes_min`].
const ENGINE_PART: u64 = 16;
/// While disk space is short, the log is trimmed once this part of a segment is written.
const SHORT_PART: u64 = 8;

/// A sync that probably takes longer is not made on the node's own thread, because arriving gets
/// would wait for it.
const QUICK: Duration = Duration::from_millis(1);

/// Most records of a sync on the node's own thread: as many as a single caller causes.
const FEW_RECORDS: u64 = 4;
/// Number of such small syncs in a row before one is made on the node's own thread. Otherwise group
/// commit syncs: it syncs one batch while the node prepares the next, which with many callers saves
/// more time than the thread switches cost.
const FEW_IN_A_ROW: u32 = 32;

/// Syncs the log, on either thread, and reports the result to the node.
pub(super) struct LogSyncing {
    sync: LogSync,
    /// Result since the node's last check: the position up to which the log was synced, or the
    /// error.
    inbox: Mutex<Option<Result<LogPosition, StoreError>>>,
    waker: Waker,
    /// Whether the node's own thread is syncing.
    is_out: AtomicBool,
}

impl LogSyncing {
    /// Syncs the log on the node's own thread.
    pub(super) fn sync_here(&self) {
        self.post(self.sync.sync());
        self.is_out.store(false, Ordering::Release);
    }

    /// Wakes the node.
    pub(super) fn wake(&self) {
        self.waker.wake();
    }

    /// Stores the result of a sync. A stored error is never replaced. Syncs that end at the same
    /// time may report in any order.
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
    /// Number of records written since the start.
    pub records: u64,
    /// Number of segments of the log.
    pub segments: usize,
}

pub(super) struct DurableLog {
    log: Log,
    syncing: Arc<LogSyncing>,
    commit: GroupCommit,
    /// Positions that need a sync, each with the number of its record; ascending.
    waiting: VecDeque<(LogPosition, u64)>,
    /// `Some` if no sync of the last item of `waiting` has been started: the number of records
    /// since the item before.
    wanted: Option<u64>,
    /// Number of the last record that needs a sync.
    wanted_through: u64,
    /// Number of consecutive syncs of at most [`FEW_RECORDS`] records.
    few_in_a_row: u32,
    /// Position up to which group commit was requested.
    handed: Option<LogPosition>,
    segments: usize,
    /// When the log is trimmed although its last segment is not full.
    trim_at_ns: u64,
    /// Length of the log after the last trim.
    trimmed_bytes: u64,
    /// Number and position of the first record of the last checkpoint, until the log before it is
    /// trimmed.
    checkpoint: Option<(u64, LogPosition)>,
    pub(super) space: Space,
    /// The directory's lock, released after everything else.
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

    /// Adds something that each log sync must sync first.
    pub(super) fn sync_first(&mut self, first: Arc<dyn SyncFirst>) {
        self.log.sync_first(first);
    }

    pub(super) fn append(&mut self, payload: &[u8]) -> Result<(), StoreError> {
        self.log.append(payload).map(drop)
    }

    /// Requests a sync of all written records, up to the record with this number.
    pub(super) fn want_sync(&mut self, appended: u64) {
        self.waiting.push_back((self.log.last(), appended));
        let records = self.wanted.unwrap_or_default() + (appended - self.wanted_through);
        self.wanted = Some(records);
        self.wanted_through = appended;
    }

    /// Starts the requested sync. It is returned to the caller, to be made on its thread, if the
    /// caller `waits` for it; or if the caller has time, there is little to sync, no sync is
    /// running, and this one will probably be quick. Otherwise group commit makes it.
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

    /// Processes finished syncs. Returns the number of the last synced record if it has changed
    /// since the last call.
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

    /// Position up to which the log is durable.
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

    /// Whether no sync is requested or running.
    #[cfg(test)]
    pub(super) fn is_at_rest(&self) -> bool {
        self.wanted.is_none() && self.handed.is_none() && self.waiting.is_empty()
    }

    /// Whether all appended records are durable.
    pub(super) fn is_synced(&self) -> bool {
        self.log.synced() >= self.log.last()
    }

    /// Writes and syncs all records.
    pub(super) fn close(&mut self) -> Result<(), StoreError> {
        self.log.write()?;
        self.syncing.sync.sync()?;
        self.log.close()
    }

    /// Writes appended records to the operating system. Call it only when no request is left. If a
    /// segment begins and no checkpoint is running, the core writes one. On a full disk the write
    /// is retried later; returns `false` if even the reserve has no room for it.
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

    /// Writes appended records; returns `false` if the disk is full.
    fn write_or_stall(&mut self) -> Result<bool, StoreError> {
        match self.log.write() {
            Err(error) if error.is_out_of_space() => Ok(false),
            written => written.map(|()| true),
        }
    }

    /// Trims the log up to the checkpoint that began with record `before`.
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
    /// space it does not wait for the interval: trimming the log reclaims space soonest.
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
            // Retried later, as any write.
            Err(error) if error.is_out_of_space() => Ok(()),
            rotated => rotated,
        }
    }
}
