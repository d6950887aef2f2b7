//! Disk of a replica: log, sync thread, engine, and disk space.
//!
//! ```text
//!   Append ─▶ buffer of the log          one batch of requests
//!   Sync   ─▶ write, once the batch is executed ─▶ sync by the node's thread, or by group commit ─▶ Synced
//!   Write  ─▶ engine (memory)  ── at intervals: sync the log, then sync the engine
//! ```
//!
//! Invariants:
//! - The engine on disk is never ahead of the log on disk: the log is synced before a sync of the
//!   engine begins, and the engine never starts one by itself. Otherwise, if the log loses the
//!   decision of an op, the op could be evaluated on its own result.
//! - The log is trimmed only to the start of a checkpoint, and a checkpoint begins with the first
//!   record of a segment, so replay never begins in the middle of a history. Therefore the log is
//!   written (which may begin a segment) only when no request is left.

use super::durable_log::{DurableLog, LogObservation, LogSyncing};
use super::snapshot::{Next, Snapshot, carry_out};
use super::spaces::Spaces;
use super::storage_options::StorageOptions;
use super::values::{Done, Found, LargeValues};
use nicekv_proto::recovery::put_keyed_entry;
use nicekv_proto::{Duration, Now, PartitionId};
use nicekv_replica::Replica;
use nicekv_replica::{DiskSpace, StorageCompletion, StorageRequest, gathered_keys};
use nicekv_store::{EngineSync, StoreError};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Time limit of executing requests in one turn. Then the node does its other work, above all
/// heartbeats.
const SLICE: Duration = Duration::from_millis(4);
/// Pause between attempts to sync an engine that has run out of space.
const SYNC_RETRY: Duration = Duration::from_secs(1);
/// Pause between steps of emptying cleared spaces, so that other work has the disk and the
/// processor most of the time.
const EMPTY_PAUSE: Duration = Duration::from_millis(5);

/// Executes the replica's storage requests.
pub struct NodeStorage {
    engine: Spaces,
    values: LargeValues,
    /// Whether segments of large values may have space to reclaim.
    is_compacting: bool,
    /// Held while this node compacts on a disk that is short of space.
    turn: Option<Turn>,
    /// `None` if the node is volatile.
    log: Option<DurableLog>,
    /// Number of records appended or replayed, as the core counts them.
    appended: u64,
    sync_wanted: bool,
    /// Time of the next step of emptying a space.
    empty_at_ns: u64,
    /// The time limit was reached before all requests were executed.
    is_unfinished: bool,
    syncs_wanted: Vec<AfterSync>,
    syncs: VecDeque<(EngineSync, AfterSync)>,
    /// Time of the next attempt to sync an engine that has run out of space.
    retry_sync_ns: u64,
    options: StorageOptions,
    /// Bytes written to the engine since its last sync began.
    unsynced_bytes: u64,
    value: Vec<u8>,
    entries: Vec<u8>,
    /// Snapshot of the partition that is being backed up.
    snapshot: Option<Snapshot>,
}

enum AfterSync {
    Nothing,
    Trim { before: u64 },
}

/// The permission to compact large values while space is short. Only one node of the process has it
/// at a time: on a shared disk, the free space may suffice for one only.
struct Turn;

static IS_TAKEN: AtomicBool = AtomicBool::new(false);

impl Turn {
    /// Takes the permission; `None` if another node is compacting.
    fn take() -> Option<Self> {
        (!IS_TAKEN.swap(true, Ordering::Acquire)).then_some(Self)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        IS_TAKEN.store(false, Ordering::Release);
    }
}

impl NodeStorage {
    pub(super) fn new(
        engine: Spaces,
        values: LargeValues,
        log: Option<DurableLog>,
        appended: u64,
        options: StorageOptions,
    ) -> Self {
        Self {
            engine,
            values,
            is_compacting: false,
            turn: None,
            log,
            appended,
            sync_wanted: false,
            empty_at_ns: 0,
            is_unfinished: false,
            syncs_wanted: Vec::new(),
            syncs: VecDeque::new(),
            retry_sync_ns: 0,
            options,
            unsynced_bytes: 0,
            value: Vec::new(),
            entries: Vec::new(),
            snapshot: None,
        }
    }

    /// Starts a snapshot of a partition, and ends the previous one. Call it when no request is
    /// left.
    pub(super) fn begin_snapshot(&mut self, partition: PartitionId) -> Result<(), StoreError> {
        self.end_snapshot()?;
        self.snapshot = Some(Snapshot::new(partition));
        Ok(())
    }

    /// Returns the next part of the snapshot.
    pub(super) fn next_of_snapshot(&mut self) -> Result<Next, StoreError> {
        match &mut self.snapshot {
            Some(snapshot) => snapshot.next(&self.engine, &mut self.values),
            None => Ok(Next::End),
        }
    }

    pub(super) fn end_snapshot(&mut self) -> Result<(), StoreError> {
        self.is_compacting |= self.snapshot.is_some();
        self.snapshot.take().map_or(Ok(()), |snapshot| snapshot.end(&mut self.values))
    }

    /// Statistics of the log; `None` if the node is volatile.
    pub(super) fn observe_log(&self) -> Option<LogObservation> {
        self.log.as_ref().map(DurableLog::observe)
    }

    /// Whether no sync is pending or running.
    #[cfg(test)]
    pub(super) fn is_at_rest(&self) -> bool {
        self.log.as_ref().is_none_or(DurableLog::is_at_rest)
    }

    /// Whether [`Self::run`] must be called again at once.
    pub(super) fn is_unfinished(&self) -> bool {
        self.is_unfinished
    }

    /// Whether [`Self::run`] must be called soon, although no event will wake the node.
    pub(super) fn is_busy(&self) -> bool {
        !self.syncs.is_empty() || self.engine.is_emptying() || self.is_compacting
    }

    /// Starts the requested sync of the log. If a sync is returned, the caller must make it:
    /// because the caller has time, or because nothing may be written before a sync of the engine
    /// begins.
    pub(super) fn start_sync(&mut self, has_time: bool) -> Option<Arc<LogSyncing>> {
        let is_awaited = self.is_sync_awaited();
        let has_time = has_time && !self.is_unfinished;
        self.log.as_mut()?.start_sync(has_time, is_awaited)
    }

    /// Whether a sync of the engine will begin after the next log sync.
    pub(super) fn is_sync_awaited(&self) -> bool {
        !self.syncs_wanted.is_empty() && !self.is_unfinished
    }

    /// Reports finished log syncs to the core, and begins engine syncs that have waited for one.
    /// Call it before anything else is written.
    pub(super) fn finish_log_syncs(&mut self, now: Now, core: &mut Replica) -> Result<(), StoreError> {
        let Some(log) = &mut self.log else { return Ok(()) };
        if let Some(through) = log.finish_log_syncs()? {
            core.set_durable(log.durable().0);
            core.handle_storage(now, StorageCompletion::Synced { through });
        }
        self.begin_syncs()
    }

    /// Executes requests, and those that follow from their completions, within the time limit.
    pub(super) fn run(&mut self, now: Now, core: &mut Replica) -> Result<(), StoreError> {
        self.finish_syncs(now, core)?;
        if self.unsynced_bytes >= self.sync_bytes() && self.syncs_wanted.is_empty() {
            self.syncs_wanted.push(AfterSync::Nothing);
        }
        self.empty_if_due(now)?;
        let until_ns = crate::now().after(SLICE);
        loop {
            self.is_unfinished = !self.execute(now, core, until_ns)?;
            if self.is_unfinished {
                return Ok(());
            }
            if self.sync_wanted && !self.is_full_after_sync(now, core)? {
                continue;
            }
            return self.want_syncs(core);
        }
    }

    fn sync_bytes(&self) -> u64 {
        let is_short = self.log.as_ref().is_some_and(|log| log.space.state() != DiskSpace::Enough);
        self.options.engine_sync_bytes / if is_short { 2 } else { 1 }
    }

    /// Writes records that need no sync to the operating system, with the log's marker of what is
    /// durable. Also starts checkpoints, compaction and engine syncs that space requires.
    pub(super) fn idle(&mut self, now: Now, core: &mut Replica) -> Result<(), StoreError> {
        if self.is_unfinished {
            return Ok(());
        }
        if let Some(log) = &mut self.log {
            if log.space.watch(now)? && self.syncs.is_empty() {
                // A sync lets the engine drop tables that it no longer needs.
                self.syncs_wanted.push(AfterSync::Nothing);
            }
            // Short of space, segments are worth compacting that were not before.
            self.is_compacting |= log.space.state() != DiskSpace::Enough;
            // Without merges, tables take more and more space. It is better to refuse puts while
            // the reserve still suffices for a merge.
            if self.engine.merge_lacked_space() && log.space.state() == DiskSpace::Enough {
                log.space.run_out()?;
            }
            let is_short = log.space.state() != DiskSpace::Enough;
            self.engine.set_space_short(is_short);
            if log.is_trim_due(now, &self.options, self.engine.disk_bytes(), is_short) {
                log.rotate()?;
            }
            log.write(self.appended, core)?;
            core.set_disk_space(log.space.state());
        }
        self.run(now, core)
    }

    /// Makes everything durable before an orderly stop.
    pub(super) fn close(&mut self) -> Result<(), StoreError> {
        let Some(log) = &mut self.log else { return Ok(()) };
        log.close()?;
        self.engine.sync()
    }

    /// Executes requests. Returns `true` when no request is left, `false` if the time limit was
    /// reached.
    fn execute(&mut self, now: Now, core: &mut Replica, until_ns: u64) -> Result<bool, StoreError> {
        loop {
            let Some(request) = core.poll_storage() else { return Ok(true) };
            match request {
                StorageRequest::Append { payload } => {
                    self.appended += 1;
                    if let Some(log) = &mut self.log {
                        log.append(payload)?;
                    }
                }
                StorageRequest::Sync => self.sync_wanted = true,
                StorageRequest::Read { token, partition, key } => {
                    let completion = match self.engine.get_into(partition, key, &mut self.value) {
                        Ok(found) => {
                            let entry = found.then_some(self.value.as_slice());
                            StorageCompletion::Read { token, entry }
                        }
                        Err(StoreError::Corrupt { .. }) => StorageCompletion::ReadCorrupt { token },
                        Err(error) => return Err(error),
                    };
                    core.handle_storage(now, completion);
                }
                StorageRequest::Write { partition, key, entry } => {
                    before_write(&mut self.snapshot, &self.engine, partition, key)?;
                    self.engine.put(partition, key, entry)?;
                    self.unsynced_bytes += (key.len() + entry.len()) as u64;
                }
                StorageRequest::Remove { partition, key } => {
                    before_write(&mut self.snapshot, &self.engine, partition, key)?;
                    self.engine.remove(partition, key)?;
                    self.unsynced_bytes += key.len() as u64;
                }
                StorageRequest::Clear { partition } => {
                    self.snapshot.iter_mut().for_each(|snapshot| snapshot.before_clear(partition));
                    self.unsynced_bytes += self.engine.clear(partition)?;
                }
                StorageRequest::Scan { token, partition, after, bytes_max } => {
                    self.entries.clear();
                    let entries = &mut self.entries;
                    let mut put = |key: &[u8], entry: &[u8]| put_keyed_entry(entries, key, entry);
                    let page = self.engine.scan_each(partition, after, bytes_max, &mut put)?;
                    self.give_page(now, core, token, &page.corrupt, page.more);
                    if crate::now().boot_ns >= until_ns {
                        return Ok(false);
                    }
                }
                StorageRequest::Gather { token, partition, keys, bytes_max } => {
                    let (corrupt, more) = self.gather(partition, keys, bytes_max, until_ns)?;
                    self.give_page(now, core, token, &corrupt, more);
                    if crate::now().boot_ns >= until_ns {
                        return Ok(false);
                    }
                }
                StorageRequest::Trim { before } => self.syncs_wanted.push(AfterSync::Trim { before }),
                of_value => {
                    let done = carry_out(&mut self.snapshot, &mut self.values, &of_value, &mut self.value)?;
                    self.finish_value(now, core, done);
                }
            }
        }
    }

    /// Passes the result of a large-value request to the core.
    fn finish_value(&mut self, now: Now, core: &mut Replica, done: Done) {
        match done {
            Done::Written => {}
            Done::Marked(first) => {
                if let Some((log, first)) = self.log.as_mut().zip(first) {
                    log.sync_first(first);
                }
            }
            Done::Ended(name, end) => core.handle_storage(now, StorageCompletion::ValueEnded { name, end }),
            Done::Read(token, found) => {
                let bytes = (found == Found::Here).then_some(&self.value[..]);
                let is_damaged = found == Found::Damaged;
                core.handle_storage(now, StorageCompletion::ValueRead { token, bytes, is_damaged });
            }
            Done::Removed => self.is_compacting = true,
        }
    }

    /// Passes a page that was read to the core.
    fn give_page(&self, now: Now, core: &mut Replica, token: u64, corrupt: &[Vec<u8>], more: bool) {
        let entries = &self.entries[..];
        core.handle_storage(now, StorageCompletion::Scan { token, entries, corrupt, more });
    }

    /// Reads the entries of these keys until the byte limit or the time limit is reached. Returns
    /// damaged keys, and whether there are more keys to read.
    fn gather(
        &mut self,
        partition: PartitionId,
        keys: &[u8],
        bytes_max: usize,
        until_ns: u64,
    ) -> Result<(Vec<Vec<u8>>, bool), StoreError> {
        self.entries.clear();
        let (mut corrupt, mut keys) = (Vec::new(), gathered_keys(keys));
        let has_time = |entries: &[u8]| entries.is_empty() || crate::now().boot_ns < until_ns;
        while self.entries.len() < bytes_max && has_time(&self.entries) {
            let Some(key) = keys.next() else { return Ok((corrupt, false)) };
            match self.engine.get_into(partition, key, &mut self.value) {
                Ok(true) => put_keyed_entry(&mut self.entries, key, &self.value),
                Ok(false) => {}
                Err(StoreError::Corrupt { key, .. }) => corrupt.push(key),
                Err(error) => return Err(error),
            }
        }
        Ok((corrupt, keys.next().is_some()))
    }

    /// Does a step of emptying a cleared space if it is due.
    fn empty_if_due(&mut self, now: Now) -> Result<(), StoreError> {
        if self.engine.is_emptying() && now.boot_ns >= self.empty_at_ns {
            self.unsynced_bytes += self.engine.empty_piece()?;
            self.empty_at_ns = now.after(EMPTY_PAUSE);
        }
        if self.is_compacting && now.boot_ns >= self.empty_at_ns {
            self.empty_at_ns = now.after(EMPTY_PAUSE);
            let space = self.log.as_ref().map(|log| &log.space);
            let room =
                space.filter(|space| space.state() != DiskSpace::Enough).map(|space| space.free_bytes() / 2);
            if room.is_some() && self.turn.is_none() {
                self.turn = Turn::take();
            }
            if room.is_none() || self.turn.is_some() {
                self.is_compacting = self.values.compact(room)?;
            }
            if !self.values.is_copying() {
                self.turn = None;
            }
        }
        Ok(())
    }

    /// Requests the sync that the batch needs. Returns whether it must wait for disk space.
    fn is_full_after_sync(&mut self, now: Now, core: &mut Replica) -> Result<bool, StoreError> {
        match &mut self.log {
            None => core.handle_storage(now, StorageCompletion::Synced { through: self.appended }),
            Some(log) => {
                if !log.write(self.appended, core)? {
                    return Ok(true);
                }
                log.want_sync(self.appended);
            }
        }
        self.sync_wanted = false;
        Ok(false)
    }

    /// Requests a sync of the log before a sync of the engine, so that the engine does not get
    /// ahead of it; later if the disk is full.
    fn want_syncs(&mut self, core: &mut Replica) -> Result<(), StoreError> {
        match &mut self.log {
            Some(log) if !self.syncs_wanted.is_empty() => {
                if log.write(self.appended, core)? {
                    log.want_sync(self.appended);
                }
                Ok(())
            }
            Some(_) => Ok(()),
            None => self.begin_syncs(),
        }
    }

    /// Begins the waiting syncs of the engine if everything in it is durable in the log.
    fn begin_syncs(&mut self) -> Result<(), StoreError> {
        if !self.is_sync_awaited() || self.log.as_ref().is_some_and(|log| !log.is_synced()) {
            return Ok(());
        }
        self.unsynced_bytes = 0;
        let sync = self.engine.sync_begin()?;
        self.syncs.extend(self.syncs_wanted.drain(..).map(|then| (sync, then)));
        Ok(())
    }

    fn finish_syncs(&mut self, now: Now, core: &mut Replica) -> Result<(), StoreError> {
        if self.syncs.is_empty() {
            return Ok(());
        }
        let synced = match (self.engine.synced(), &mut self.log) {
            (Err(error), Some(log)) if error.is_out_of_space() => {
                // Nothing is lost: all data is in the log.
                if now.boot_ns >= self.retry_sync_ns {
                    self.retry_sync_ns = now.after(SYNC_RETRY);
                    log.space.run_out()?;
                    core.set_disk_space(log.space.state());
                    self.syncs_wanted.push(AfterSync::Nothing);
                }
                return Ok(());
            }
            (synced, _) => synced?,
        };
        while let Some((_, then)) = self.syncs.pop_front_if(|(sync, _)| *sync <= synced) {
            match (then, &mut self.log) {
                (AfterSync::Trim { before }, Some(log)) => {
                    log.trim(before, now.after(self.options.trim_interval))?;
                }
                (AfterSync::Nothing | AfterSync::Trim { .. }, _) => {}
            }
        }
        Ok(())
    }
}

/// Lets the snapshot of the key's partition keep the key's old entry.
fn before_write(
    snapshot: &mut Option<Snapshot>,
    engine: &Spaces,
    partition: PartitionId,
    key: &[u8],
) -> Result<(), StoreError> {
    snapshot.as_mut().map_or(Ok(()), |snapshot| snapshot.before_write(engine, partition, key))
}
