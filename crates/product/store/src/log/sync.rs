//! Forcing the log from another thread.

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

/// What records name and must therefore be durable before them.
pub trait SyncFirst: Send + Sync {
    /// Makes durable all that records name which were written before the call.
    fn sync_first(&self) -> Result<()>;
}

/// What [`super::Log`] and [`LogSync`] share.
pub(super) struct Shared {
    pub(super) files: Arc<dyn Files>,
    pub(super) directory: PathBuf,
    state: Mutex<SyncState>,
    /// Held for the whole of a force, so that no two overlap.
    forcing: Mutex<()>,
    /// Written by forces and trims.
    manifest: Mutex<Manifest>,
    /// Sequence number through which the log is durable.
    synced: AtomicU64,
    /// Moving average of how long a force takes.
    recent_ns: AtomicU64,
    /// How long forces took.
    forces: SharedDurations,
}

/// Weight of what was before in the average of forces, to one of the newest.
const RECENT_WEIGHT: u64 = 7;
/// A longer force counts as one of this: a stall is forgotten after some forces.
const RECENT_NS_MAX: u64 = 64_000_000;

struct SyncState {
    /// Sequence number through which the operating system has the log.
    written: u64,
    /// Segments with unforced bytes and their first positions, oldest first; all but the last are full. Grows by one
    /// per segment written during one force, so its bound is the disk.
    unsynced: Vec<(LogPosition, Arc<dyn StoreFile>)>,
    /// A segment was created since the last force of the directory.
    directory_changed: bool,
    /// Forced before the segments.
    first: Option<Arc<dyn SyncFirst>>,
    failed: Option<String>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder of this lock panics")
}

impl Shared {
    /// The state after recovery: everything through `synced` is durable.
    pub(super) fn new(files: Arc<dyn Files>, directory: PathBuf, manifest: Manifest, synced: u64) -> Self {
        let (unsynced, directory_changed) = (vec![], false);
        let state = SyncState { written: synced, unsynced, directory_changed, first: None, failed: None };
        let (state, forcing, manifest) = (Mutex::new(state), Mutex::new(()), Mutex::new(manifest));
        let (synced, recent_ns) = (AtomicU64::new(synced), AtomicU64::new(0));
        let forces = SharedDurations::default();
        Self { files, directory, state, forcing, manifest, synced, recent_ns, forces }
    }

    pub(super) fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    pub(super) fn written(&self) -> u64 {
        locked(&self.state).written
    }

    /// Bytes of `file`, the segment that begins with `first`, up to record `sequence` were handed to the operating system.
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

    /// See [`super::Log::sync_first`].
    pub(super) fn set_first(&self, first: Arc<dyn SyncFirst>) {
        locked(&self.state).first = Some(first);
    }

    /// Makes the failure permanent, and returns it as such. The first one is kept.
    pub(super) fn fail(&self, error: &StoreError) -> StoreError {
        let mut state = locked(&self.state);
        StoreError::LogFailed { reason: state.failed.get_or_insert_with(|| error.to_string()).clone() }
    }

    /// The sticky failure, if any.
    pub(super) fn check(&self) -> Result<()> {
        match &locked(&self.state).failed {
            Some(reason) => Err(StoreError::LogFailed { reason: reason.clone() }),
            None => Ok(()),
        }
    }

    fn force(&self) -> Result<LogPosition> {
        let _forcing = locked(&self.forcing);
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
        let failed = |error| self.fail(&StoreError::io("force", &self.directory)(error));
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

    /// Names a segment that holds durable records, unless it is named already: one sync more per segment.
    fn name_in_manifest(&self, newest: LogPosition, durable: LogPosition) -> Result<()> {
        self.replace_manifest(|extent| {
            if extent.last < Some(newest) {
                (extent.last, extent.durable) = (Some(newest), durable);
            }
        })
    }

    /// Changes what the manifest says, durably. A failure is permanent, but for a full disk.
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

    /// By whoever forces: they take turns.
    fn measured(&self, took: Duration) {
        self.forces.count(took);
        let took_ns = (took.as_nanos() as u64).min(RECENT_NS_MAX);
        let before = self.recent_ns.load(Ordering::Relaxed);
        let recent_ns = (before * RECENT_WEIGHT + took_ns) / (RECENT_WEIGHT + 1);
        self.recent_ns.store(recent_ns, Ordering::Relaxed);
    }
}

/// Forces the log, also from another thread than the one that appends.
pub struct LogSync {
    pub(super) shared: Arc<Shared>,
}

impl LogSync {
    /// Makes every record durable that [`super::Log::write`] had handed to the operating system before the call,
    /// and returns the position of the last one. After one failure every call fails (docs/FAULTS.md row 8).
    pub fn sync(&self) -> Result<LogPosition> {
        self.shared.force()
    }

    /// How long forces have taken lately.
    pub fn recent(&self) -> Duration {
        Duration::from_nanos(self.shared.recent_ns.load(Ordering::Relaxed))
    }

    /// How long each force so far has taken.
    pub fn forces(&self) -> Durations {
        self.shared.forces.read()
    }

    /// Position of the last record that the operating system has.
    pub fn written(&self) -> LogPosition {
        LogPosition(self.shared.written())
    }
}
