//! Syncs values, alone or before the log records that name them.
//!
//! ```text
//!   Values::finish ──▶ unsynced files ─┐           LogSync::sync
//!   Log::write ──▶ records ────────────┼─▶ 1. value segments, their directory
//!                                      └─▶ 2. log segments ──▶ acknowledge
//! ```

use super::file::ValueFile;
use crate::{Result, StoreError, files::Files, log::SyncFirst};
use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
};

/// State shared by [`super::Values`] and [`ValueSync`].
pub(super) struct Shared {
    pub(super) files: Arc<dyn Files>,
    pub(super) directory: PathBuf,
    state: Mutex<SyncState>,
    /// Held during a sync, so that no two overlap.
    syncing: Mutex<()>,
    /// Sequence number up to which finished values are durable.
    synced: AtomicU64,
}

struct SyncState {
    /// Sequence number of the last finished value.
    finished: u64,
    /// Files with finished but unsynced values. Bounded by the number of values finished during one
    /// sync.
    unsynced: Vec<Arc<ValueFile>>,
    /// Whether a segment was created since the last sync of the directory.
    directory_changed: bool,
    failed: Option<String>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder of this lock panics")
}

impl Shared {
    /// State after opening: everything up to `synced` is durable.
    pub(super) fn new(files: Arc<dyn Files>, directory: PathBuf, synced: u64) -> Self {
        let state = SyncState { finished: synced, unsynced: vec![], directory_changed: false, failed: None };
        let (state, syncing) = (Mutex::new(state), Mutex::new(()));
        Self { files, directory, state, syncing, synced: AtomicU64::new(synced) }
    }

    pub(super) fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    /// A header with this sequence number, or part of it, was written to the operating system.
    pub(super) fn note_finished(&self, file: &Arc<ValueFile>, sequence: u64) {
        let mut state = locked(&self.state);
        state.finished = sequence;
        if !state.unsynced.iter().any(|other| Arc::ptr_eq(other, file)) {
            state.unsynced.push(file.clone());
        }
    }

    /// A segment was created.
    pub(super) fn note_created(&self) {
        locked(&self.state).directory_changed = true;
    }

    /// Only after a full disk do the values stay usable: any other write failure is made permanent
    /// and returned.
    pub(super) fn permanent(&self, error: StoreError) -> StoreError {
        if error.is_out_of_space() { error } else { self.fail(&error) }
    }

    fn fail(&self, error: &StoreError) -> StoreError {
        let mut state = locked(&self.state);
        StoreError::ValuesFailed { reason: state.failed.get_or_insert_with(|| error.to_string()).clone() }
    }

    /// The permanent failure, if any.
    pub(super) fn check(&self) -> Result<()> {
        match &locked(&self.state).failed {
            Some(reason) => Err(StoreError::ValuesFailed { reason: reason.clone() }),
            None => Ok(()),
        }
    }

    pub(super) fn sync(&self) -> Result<()> {
        let _syncing = locked(&self.syncing);
        self.check()?;
        let (finished, unsynced, directory_changed) = {
            let mut state = locked(&self.state);
            (
                state.finished,
                std::mem::take(&mut state.unsynced),
                std::mem::take(&mut state.directory_changed),
            )
        };
        for file in &unsynced {
            file.sync().map_err(|error| self.fail(&error))?;
        }
        if directory_changed {
            let failed = |error| self.fail(&StoreError::io("sync", &self.directory)(error));
            self.files.sync_directory(&self.directory).map_err(failed)?;
        }
        self.synced.fetch_max(finished, Ordering::AcqRel);
        Ok(())
    }
}

/// Syncs values, also from another thread than the one that writes them. Passed to
/// [`crate::Log::sync_first`], it makes one group commit of both.
#[derive(Clone)]
pub struct ValueSync {
    pub(super) shared: Arc<Shared>,
}

impl ValueSync {
    /// Makes every value durable that was finished before the call. After one failure every call
    /// fails (docs/FAULTS.md row 8).
    pub fn sync(&self) -> Result<()> {
        self.shared.sync()
    }
}

impl SyncFirst for ValueSync {
    fn sync_first(&self) -> Result<()> {
        self.shared.sync()
    }
}
