//! Forcing values, by themselves or before the log's records that name them.
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

/// What [`super::Values`] and [`ValueSync`] share.
pub(super) struct Shared {
    pub(super) files: Arc<dyn Files>,
    pub(super) directory: PathBuf,
    state: Mutex<SyncState>,
    /// Held for the whole of a force, so that no two overlap.
    forcing: Mutex<()>,
    /// Sequence number through which finished values are durable.
    synced: AtomicU64,
}

struct SyncState {
    /// Sequence number of the last value that was finished.
    finished: u64,
    /// Files with values that are finished and not forced. Its bound is the number of values finished during one force.
    unsynced: Vec<Arc<ValueFile>>,
    /// A segment was created since the last force of the directory.
    directory_changed: bool,
    failed: Option<String>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder of this lock panics")
}

impl Shared {
    /// The state after opening: everything through `synced` is durable.
    pub(super) fn new(files: Arc<dyn Files>, directory: PathBuf, synced: u64) -> Self {
        let state = SyncState { finished: synced, unsynced: vec![], directory_changed: false, failed: None };
        let (state, forcing) = (Mutex::new(state), Mutex::new(()));
        Self { files, directory, state, forcing, synced: AtomicU64::new(synced) }
    }

    pub(super) fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    /// A header with this sequence number, or a part of it, was handed to the operating system.
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

    /// Only a full disk leaves the values usable: any other failure of a write is permanent, and returned as such.
    pub(super) fn permanent(&self, error: StoreError) -> StoreError {
        if error.is_out_of_space() { error } else { self.fail(&error) }
    }

    fn fail(&self, error: &StoreError) -> StoreError {
        let mut state = locked(&self.state);
        StoreError::ValuesFailed { reason: state.failed.get_or_insert_with(|| error.to_string()).clone() }
    }

    /// The sticky failure, if any.
    pub(super) fn check(&self) -> Result<()> {
        match &locked(&self.state).failed {
            Some(reason) => Err(StoreError::ValuesFailed { reason: reason.clone() }),
            None => Ok(()),
        }
    }

    pub(super) fn force(&self) -> Result<()> {
        let _forcing = locked(&self.forcing);
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
            let failed = |error| self.fail(&StoreError::io("force", &self.directory)(error));
            self.files.sync_directory(&self.directory).map_err(failed)?;
        }
        self.synced.fetch_max(finished, Ordering::AcqRel);
        Ok(())
    }
}

/// Forces values, also from another thread than the one that writes them. Given to [`crate::Log::sync_first`], it makes one group commit
/// of both.
#[derive(Clone)]
pub struct ValueSync {
    pub(super) shared: Arc<Shared>,
}

impl ValueSync {
    /// Makes every value durable that was finished before the call. After one failure every call fails (docs/FAULTS.md row 8).
    pub fn sync(&self) -> Result<()> {
        self.shared.force()
    }
}

impl SyncFirst for ValueSync {
    fn sync_first(&self) -> Result<()> {
        self.shared.force()
    }
}
