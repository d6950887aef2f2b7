//! The users of a gateway, shared by its threads. Running a command takes no lock: a connection
//! keeps a reference to its user, and compares a version number to notice changes.

use crate::user_source::UserSource;
use nicekv_redis::acl::{Denial, DenialEntry, DenialLog, DenialReason, Users};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
pub(crate) struct SharedUsers {
    source: UserSource,
    /// Number of changes so far; incremented with the users locked.
    changes: AtomicU64,
    users: Mutex<Arc<Users>>,
    log: Mutex<DenialLog>,
    /// Number of refusals by reason, in the order of [`DenialReason::ALL`].
    denied: [AtomicU64; DenialReason::ALL.len()],
}

impl SharedUsers {
    /// Reads the users from their source.
    pub(crate) fn new(source: UserSource) -> Result<Self, String> {
        let users = Mutex::new(Arc::new(source.read()?));
        Ok(Self { source, users, ..Self::default() })
    }

    /// Version of the users; 1 at the start, and one more with each change.
    pub(crate) fn version(&self) -> u64 {
        self.changes.load(Ordering::Acquire) + 1
    }

    /// The current users, and their version.
    pub(crate) fn users(&self) -> (Arc<Users>, u64) {
        let users = self.locked();
        (users.clone(), self.version())
    }

    /// Replaces the users by the result of `change`, unless that fails. The caller then wakes all
    /// threads.
    pub(crate) fn change<E>(&self, change: impl FnOnce(&Users) -> Result<Users, E>) -> Result<(), E> {
        let mut users = self.locked();
        *users = Arc::new(change(&users)?);
        self.changes.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Reads the file of users again. If it has an error, no user changes.
    pub(crate) fn load(&self) -> Result<(), String> {
        self.change(|_| self.source.read())
    }

    pub(crate) fn has_file(&self) -> bool {
        self.source != UserSource::Open
    }

    fn locked(&self) -> MutexGuard<'_, Arc<Users>> {
        // No operation panics halfway, so a poisoned lock is safe to use.
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a refusal, and adds it to ACL LOG.
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
