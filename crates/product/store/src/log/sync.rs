//! Syncs the log from another thread.

use super::{
    LogPosition,
    manifest::{Extent, MANIFEST_FILE, Manifest},
};
use crate::{
    Result, StoreError,
    files::{Files, StoreFile},
};
use nicekv_proto::durations::{Durations, SharedDurations};
use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// A dependency: data that records name and that must be durable before them.
pub trait SyncFirst: Send + Sync {
    /// Makes everything durable that was written before the call.
    fn sync_first(&self) -> Result<()>;
}

/// State shared by [`super::Log`] and [`LogSync`].
pub(super) struct Shared {
    pub(super) files: Arc<dyn Files>,
    pub(super) directory: PathBuf,
    state: Mutex<SyncState>,
    /// Held during a sync, so that no two overlap.
    syncing: Mutex<()>,
    /// Written by syncs and trims.
    manifest: Mutex<Manifest>,
    /// Sequence number up to which the log is durable.
    synced: AtomicU64,
    /// Moving average of the duration of a sync.
    recent_ns: AtomicU64,
    /// Histogram of sync durations.
    syncs: SharedDurations,
}

/// Weight of the old average, relative to the newest sync.
const RECENT_WEIGHT: u64 = 7;
/// Longer syncs count as this long: a stall is forgotten after some syncs.
const RECENT_NS_MAX: u64 = 64_000_000;

struct SyncState {
    /// Sequence number up to which the operating system has the log.
    written: u64,
    /// Segments with unsynced bytes and their first positions, oldest first; all but the last are
    /// full. Grows by one per segment written during one sync, so its bound is the disk.
    unsynced: Vec<(LogPosition, Arc<dyn StoreFile>)>,
    /// Whether a segment was created since the last sync of the directory.
    directory_changed: bool,
    /// Synced before the segments.
    first: Option<Arc<dyn SyncFirst>>,
    failed: Option<String>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder of this lock panics")
}

impl Shared {
    /// State after recovery: everything up to `synced` is durable.
    pub(super) fn new(files: Arc<dyn Files>, directory: PathBuf, manifest: Manifest, synced: u64) -> Self {
        let (unsynced, directory_changed) = (vec![], false);
        let state = SyncState { written: synced, unsynced, directory_changed, first: None, failed: None };
        let (state, syncing, manifest) = (Mutex::new(state), Mutex::new(()), Mutex::new(manifest));
        let (synced, recent_ns) = (AtomicU64::new(synced), AtomicU64::new(0));
        let syncs = SharedDurations::default();
        Self { files, directory, state, syncing, manifest, synced, recent_ns, syncs }
    }

    pub(super) fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    pub(super) fn written(&self) -> u64 {
        locked(&self.state).written
    }

    /// Bytes of `file`, the segment that begins with `first`, were written to the operating system
    /// up to record `sequence`.
    pub(super) fn note_written(&self, first: LogPosition, file: &Arc<dyn StoreFile>, sequence: u64) {
        let mut state = locked(&self.state);
        state.written = sequence;
        if state.unsynced.last().is_none_or(|(last, _)| *last != first) {
            state.unsynced.push((first, file.clone()));
        }
    }

    /// A segment was created.
    pub(super) fn note_created(&self) {
        locked(&self.state).directory_changed = true;
    }

    /// Sets the dependency: see [`super::Log::sync_first`].
    pub(super) fn set_first(&self, first: Arc<dyn SyncFirst>) {
        locked(&self.state).first = Some(first);
    }

    /// Makes the failure permanent, and returns it. The first one is kept.
    pub(super) fn fail(&self, error: &StoreError) -> StoreError {
        let mut state = locked(&self.state);
        StoreError::LogFailed { reason: state.failed.get_or_insert_with(|| error.to_string()).clone() }
    }

    /// The permanent failure, if any.
    pub(super) fn check(&self) -> Result<()> {
        match &locked(&self.state).failed {
            Some(reason) => Err(StoreError::LogFailed { reason: reason.clone() }),
            None => Ok(()),
        }
    }

    fn sync(&self) -> Result<LogPosition> {
        let _syncing = locked(&self.syncing);
        self.check()?;
        let (written, unsynced, directory_changed, first) = {
            let mut state = locked(&self.state);
            let unsynced = std::mem::take(&mut state.unsynced);
            (state.written, unsynced, std::mem::take(&mut state.directory_changed), state.first.clone())
        };
        let began = Instant::now();
        if let Some(first) = first {
            first.sync_first().map_err(|error| self.fail(&error))?;
        }
        let failed = |error| self.fail(&StoreError::io("sync", &self.directory)(error));
        for (_, file) in &unsynced {
            file.sync().map_err(failed)?;
        }
        if directory_changed {
            self.files.sync_directory(&self.directory).map_err(failed)?;
        }
        if let Some((newest, _)) = unsynced.last() {
            self.name_in_manifest(*newest, LogPosition(written)).map_err(|error| self.fail(&error))?;
        }
        self.synced.fetch_max(written, Ordering::AcqRel);
        self.measured(began.elapsed());
        Ok(LogPosition(written))
    }

    /// Names a segment with durable records in the manifest, once: one more sync per segment.
    fn name_in_manifest(&self, newest: LogPosition, durable: LogPosition) -> Result<()> {
        self.replace_manifest(|extent| {
            if extent.last < Some(newest) {
                (extent.last, extent.durable) = (Some(newest), durable);
            }
        })
    }

    /// Changes the manifest durably. A failure is permanent, except for a full disk.
    pub(super) fn replace_manifest(&self, change: impl FnOnce(&mut Extent)) -> Result<()> {
        let mut manifest = locked(&self.manifest);
        let mut extent = manifest.extent();
        change(&mut extent);
        manifest.replace(extent).map_err(|source| {
            let path = self.directory.join(MANIFEST_FILE);
            let error = StoreError::Io { operation: "write", path, source };
            if error.is_out_of_space() { error } else { self.fail(&error) }
        })
    }

    /// Called by syncing threads, one at a time.
    fn measured(&self, took: Duration) {
        self.syncs.count(took);
        let took_ns = (took.as_nanos() as u64).min(RECENT_NS_MAX);
        let before = self.recent_ns.load(Ordering::Relaxed);
        let recent_ns = (before * RECENT_WEIGHT + took_ns) / (RECENT_WEIGHT + 1);
        self.recent_ns.store(recent_ns, Ordering::Relaxed);
    }
}

/// Syncs the log, also from another thread than the one that appends.
pub struct LogSync {
    pub(super) shared: Arc<Shared>,
}

impl LogSync {
    /// Makes every record durable that [`super::Log::write`] had written before the call, and
    /// returns the position of the last one. After one failure every call fails (docs/FAULTS.md row
    /// 8).
    pub fn sync(&self) -> Result<LogPosition> {
        self.shared.sync()
    }

    /// Recent duration of a sync.
    pub fn recent(&self) -> Duration {
        Duration::from_nanos(self.shared.recent_ns.load(Ordering::Relaxed))
    }

    /// Histogram of all sync durations.
    pub fn syncs(&self) -> Durations {
        self.shared.syncs.read()
    }

    /// Position of the last record that the operating system has.
    pub fn written(&self) -> LogPosition {
        LogPosition(self.shared.written())
    }
}
