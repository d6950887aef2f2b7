//! The log of a node as its storage uses it: forces by the node's own thread (`helm`) or by the one that commits in groups, checkpoints by
//! which it stays bounded, and what happens when the disk is full.

use super::space::Space;
use super::storage::StorageOptions;
use crate::Waker;
use nicekv_proto::{Durations, Now};
use nicekv_replica::replication::Replica;
use nicekv_store::{DataDirectory, GroupCommit, Log, LogPosition, LogSync, StoreError, SyncFirst};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// See [`StorageOptions::trim_bytes_min`].
const ENGINE_PART: u64 = 16;
/// While space is short the log is trimmed after this part of a segment.
const SHORT_PART: u64 = 8;

/// Forces are made by the node's own thread while they take no longer: gets that arrive meanwhile wait for it.
const QUICK: Duration = Duration::from_millis(1);

/// And while they are for so few records, as they are with one caller.
const FEW_RECORDS: u64 = 4;
/// And have been so many times in a row. Otherwise they are left to the thread that commits in groups: it forces one batch while the node prepares
/// the next, which with many callers is worth more than what the switches of threads cost.
const FEW_IN_A_ROW: u32 = 32;

/// A force of the log, by whichever thread makes it, and what is to be told of it.
pub(super) struct Forcing {
    sync: LogSync,
    /// How far the log has been forced since the node looked last.
    inbox: Mutex<Option<Result<LogPosition, StoreError>>>,
    waker: Waker,
    /// The node's own thread forces, and has not yet come back.
    is_out: AtomicBool,
}

impl Forcing {
    /// Forces on the thread of the node.
    pub(super) fn force_here(&self) {
        self.post(self.sync.sync());
        self.is_out.store(false, Ordering::Release);
    }

    /// Makes the node look.
    pub(super) fn wake(&self) {
        self.waker.wake();
    }

    /// A failure stays, and forces that end at the same time are told in any order.
    fn post(&self, forced: Result<LogPosition, StoreError>) {
        let mut inbox = self.inbox.lock().expect("no holder of this lock panics");
        *inbox = Some(match (inbox.take(), forced) {
            (Some(Ok(before)), Ok(position)) => Ok(before.max(position)),
            (Some(Err(error)), _) => Err(error),
            (_, forced) => forced,
        });
    }
}

/// What a node's log says of itself.
#[derive(Clone, Copy, Debug)]
pub struct LogObservation {
    /// How long its forces took.
    pub forces: Durations,
    /// Records ever written.
    pub records: u64,
    /// Segments that are kept.
    pub segments: usize,
}

pub(super) struct DurableLog {
    log: Log,
    forcing: Arc<Forcing>,
    commit: GroupCommit,
    /// (position that is being forced, number of its record), ascending.
    waiting: VecDeque<(LogPosition, u64)>,
    /// What is last in `waiting` is not yet being forced, and is so many records more than before.
    wanted: Option<u64>,
    /// Number of the last record of which a force was wanted.
    wanted_through: u64,
    /// Forces that were wanted for [`FEW_RECORDS`] or less since there was a larger one.
    few_in_a_row: u32,
    /// The thread that commits in groups has been asked for this.
    handed: Option<LogPosition>,
    segments: usize,
    /// Not full segments are let go of from then on.
    trim_at_ns: u64,
    /// What was left of the log when it was trimmed last.
    trimmed_bytes: u64,
    /// Number and position of the first record of a checkpoint until the log before it is let go.
    checkpoint: Option<(u64, LogPosition)>,
    pub(super) space: Space,
    /// Dropped last.
    _directory: DataDirectory,
}

impl DurableLog {
    /// Of a log that has been replayed. `waker` is woken when a force is done.
    pub(super) fn new(
        log: Log,
        space: Space,
        directory: DataDirectory,
        trim_at_ns: u64,
        waker: Waker,
    ) -> std::io::Result<Self> {
        let sync = log.sync_handle();
        let forcing = Forcing { sync, inbox: Mutex::default(), waker, is_out: AtomicBool::new(false) };
        let forcing = Arc::new(forcing);
        let notify = {
            let forcing = forcing.clone();
            Box::new(move |forced| {
                forcing.post(forced);
                forcing.wake();
            })
        };
        Ok(Self {
            commit: GroupCommit::start(log.sync_handle(), notify)?,
            forcing,
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

    /// Each force begins with this.
    pub(super) fn sync_first(&mut self, first: Arc<dyn SyncFirst>) {
        self.log.sync_first(first);
    }

    pub(super) fn append(&mut self, payload: &[u8]) -> Result<(), StoreError> {
        self.log.append(payload).map(drop)
    }

    /// What is written is to be forced, through the record of this number.
    pub(super) fn want_force(&mut self, appended: u64) {
        self.waiting.push_back((self.log.last(), appended));
        let records = self.wanted.unwrap_or_default() + (appended - self.wanted_through);
        self.wanted = Some(records);
        self.wanted_through = appended;
    }

    /// Has the thread that commits in groups force what is wanted, or the caller: if it has nothing else to do, there is little to force,
    /// nobody forces already, and it will probably not take long; or if it `waits` for that.
    pub(super) fn start_force(&mut self, has_time: bool, waits: bool) -> Option<Arc<Forcing>> {
        let records = self.wanted.take()?;
        self.few_in_a_row = if records <= FEW_RECORDS { self.few_in_a_row.saturating_add(1) } else { 0 };
        let is_small = self.few_in_a_row > FEW_IN_A_ROW && self.forcing.sync.recent() <= QUICK;
        if waits || has_time && is_small && self.handed.is_none() {
            let was_out = self.forcing.is_out.swap(true, Ordering::AcqRel);
            if !was_out {
                return Some(self.forcing.clone());
            }
        }
        self.handed = Some(self.log.last());
        self.commit.request(self.log.last());
        None
    }

    /// Number of the last record that was forced since this was asked last.
    pub(super) fn finish_forces(&mut self) -> Result<Option<u64>, StoreError> {
        let Some(forced) = self.forcing.inbox.lock().expect("no holder of this lock panics").take() else {
            return Ok(None);
        };
        let position = forced?;
        self.handed = self.handed.filter(|handed| *handed > position);
        let mut through = None;
        while let Some((_, record)) = self.waiting.pop_front_if(|(waiting, _)| *waiting <= position) {
            through = Some(record);
        }
        Ok(through)
    }

    /// Position through which it is durable.
    pub(super) fn durable(&self) -> LogPosition {
        self.log.synced()
    }

    pub(super) fn observe(&self) -> LogObservation {
        LogObservation {
            forces: self.forcing.sync.forces(),
            records: self.log.last().0,
            segments: self.log.segments(),
        }
    }

    /// Whether no force is wanted or under way.
    #[cfg(test)]
    pub(super) fn is_at_rest(&self) -> bool {
        self.wanted.is_none() && self.handed.is_none() && self.waiting.is_empty()
    }

    /// Whether all that was appended is durable.
    pub(super) fn is_forced(&self) -> bool {
        self.log.synced() >= self.log.last()
    }

    /// Makes everything durable.
    pub(super) fn close(&mut self) -> Result<(), StoreError> {
        self.log.write()?;
        self.forcing.sync.sync()?;
        self.log.close()
    }

    /// Writes what is appended, when no request is left. A full disk is remembered and tried again. If a segment begins
    /// and no checkpoint is under way, the core writes one. False if the disk does not even take what is to be written now.
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

    /// False if there is no space.
    fn write_or_stall(&mut self) -> Result<bool, StoreError> {
        match self.log.write() {
            Err(error) if error.is_out_of_space() => Ok(false),
            written => written.map(|()| true),
        }
    }

    /// Lets go of what is before the checkpoint that began with the record `before`.
    pub(super) fn trim(&mut self, before: u64, next_at_ns: u64) -> Result<(), StoreError> {
        let (first, position) = self.checkpoint.take().expect("trimmed after a checkpoint only");
        assert_eq!(first, before, "to where it began");
        self.log.trim(position)?;
        self.segments = self.log.segments();
        self.trimmed_bytes = self.log.segment_bytes();
        self.trim_at_ns = next_at_ns;
        Ok(())
    }

    /// Whether it is time for a checkpoint though the segment is not full.
    /// On a disk that is short of space it does not wait for its time: the log is what comes back soonest.
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
            // As for any write: seen to when it is next tried.
            Err(error) if error.is_out_of_space() => Ok(()),
            rotated => rotated,
        }
    }
}
