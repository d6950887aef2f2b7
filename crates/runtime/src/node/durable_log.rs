//! The log of a node as its storage uses it: forces by the thread that commits in groups, checkpoints by which it stays bounded, and what
//! happens when the disk is full.

use super::space::Space;
use super::storage::StorageOptions;
use crate::Waker;
use nicekv_replication::Replica;
use nicekv_store::{DataDirectory, GroupCommit, Log, LogPosition, LogSync, StoreError};
use nicekv_wire::Now;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// See [`StorageOptions::trim_bytes_min`].
const ENGINE_PART: u64 = 16;

/// How far the thread has forced the log since the node looked last.
type Inbox = Arc<Mutex<Option<Result<LogPosition, StoreError>>>>;

pub(super) struct DurableLog {
    log: Log,
    sync: LogSync,
    commit: GroupCommit,
    inbox: Inbox,
    /// (position that is being forced, number of its record), ascending.
    waiting: VecDeque<(LogPosition, u64)>,
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
    ) -> Self {
        let inbox = Inbox::default();
        let notify = {
            let inbox = inbox.clone();
            Box::new(move |forced| {
                *inbox.lock().expect("no holder of this lock panics") = Some(forced);
                waker.wake();
            })
        };
        Self {
            commit: GroupCommit::start(log.sync_handle(), notify),
            sync: log.sync_handle(),
            segments: log.segments(),
            trim_at_ns,
            trimmed_bytes: 0,
            log,
            inbox,
            waiting: VecDeque::new(),
            checkpoint: None,
            space,
            _directory: directory,
        }
    }

    pub(super) fn append(&mut self, payload: &[u8]) -> Result<(), StoreError> {
        self.log.append(payload).map(drop)
    }

    /// What is written is to be forced, through the record of this number.
    pub(super) fn begin_force(&mut self, appended: u64) {
        self.waiting.push_back((self.log.last(), appended));
        self.commit.request(self.log.last());
    }

    /// Number of the last record that was forced since this was asked last.
    pub(super) fn finish_forces(&mut self) -> Result<Option<u64>, StoreError> {
        let Some(forced) = self.inbox.lock().expect("no holder of this lock panics").take() else {
            return Ok(None);
        };
        let position = forced?;
        let mut through = None;
        while let Some((_, record)) = self.waiting.pop_front_if(|(waiting, _)| *waiting <= position) {
            through = Some(record);
        }
        Ok(through)
    }

    /// Forces what is written, and waits for that.
    pub(super) fn force(&mut self) -> Result<(), StoreError> {
        self.sync.sync().map(drop)
    }

    /// Makes everything durable.
    pub(super) fn close(&mut self) -> Result<(), StoreError> {
        self.log.write()?;
        self.force()
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
    pub(super) fn is_trim_due(&self, now: Now, options: &StorageOptions, engine_bytes: u64) -> bool {
        let least = options.trim_bytes_min.max(self.trimmed_bytes).max(engine_bytes / ENGINE_PART);
        now.boot_ns >= self.trim_at_ns
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
