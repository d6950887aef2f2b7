//! The users of a gateway, which its threads share. Running a command takes no lock: a connection
//! keeps its user, and compares a version.

use crate::user_source::UserSource;
use nicekv_redis::acl::{Denial, DenialEntry, DenialLog, DenialReason, Users};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct SharedUsers {
    source: UserSource,
    /// Changes so far; written with the users locked.
    changes: AtomicU64,
    users: Mutex<Arc<Users>>,
    log: Mutex<DenialLog>,
    /// In the order of [`DenialReason::ALL`].
    denied: [AtomicU64; DenialReason::ALL.len()],
}

impl SharedUsers {
    /// Reads the source.
    pub(crate) fn new(source: UserSource) -> Result<Self, String> {
        let users = Mutex::new(Arc::new(source.read()?));
        Ok(Self { source, users, ..Self::default() })
    }

    /// Number of changes, beginning with 1.
    pub(crate) fn version(&self) -> u64 {
        self.changes.load(Ordering::Acquire) + 1
    }

    /// The users now, and their version.
    pub(crate) fn users(&self) -> (Arc<Users>, u64) {
        let users = self.locked();
        (users.clone(), self.version())
    }

    /// Replaces the users by what `change` makes of them, unless it fails. The caller wakes threads.
    pub(crate) fn change<E>(&self, change: impl FnOnce(&Users) -> Result<Users, E>) -> Result<(), E> {
        let mut users = self.locked();
        *users = Arc::new(change(&users)?);
        self.changes.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Reads the file again, all of it or nothing.
    pub(crate) fn load(&self) -> Result<(), String> {
        self.change(|_| self.source.read())
    }

    pub(crate) fn has_file(&self) -> bool {
        self.source != UserSource::Open
    }

    fn locked(&self) -> MutexGuard<'_, Arc<Users>> {
        // The users are consistent whenever the lock is free.
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts and logs a refusal.
    pub(crate) fn note(&self, denial: Denial<'_>, unix_ms: u64) {
        let place = DenialReason::ALL
            .iter()
            .position(|reason| *reason == denial.reason)
            .expect("ALL has every reason");
        self.denied[place].fetch_add(1, Ordering::Relaxed);
        self.log.lock().unwrap_or_else(PoisonError::into_inner).note(denial, unix_ms);
    }

    /// Number of refusals, in the order of [`DenialReason::ALL`].
    pub(crate) fn denied(&self) -> [u64; DenialReason::ALL.len()] {
        self.denied.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    pub(crate) fn newest_denials(&self, count: usize) -> Vec<DenialEntry> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).newest(count)
    }

    pub(crate) fn forget_denials(&self) {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
