//! What the threads of a gateway share of its users. Nobody takes a lock to run a command: connections hold their user (`standing`), and look at a number.

use super::log::{AccessLog, Denied, Entry, Reason};
use super::source::UserSource;
use super::users::Users;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Access {
    source: UserSource,
    /// Changes of the users so far; written with the users locked.
    changes: AtomicU64,
    users: Mutex<Arc<Users>>,
    log: Mutex<AccessLog>,
    /// By the places of [`Reason::ALL`].
    denied: [AtomicU64; Reason::ALL.len()],
}

impl Access {
    /// As the source says now.
    pub(crate) fn new(source: UserSource) -> Result<Self, String> {
        let users = Mutex::new(Arc::new(source.read()?));
        Ok(Self { source, users, ..Self::default() })
    }

    /// Counts how often users were changed, from 1.
    pub(crate) fn version(&self) -> u64 {
        self.changes.load(Ordering::Acquire) + 1
    }

    /// The users now, and their version.
    pub(crate) fn users(&self) -> (Arc<Users>, u64) {
        let users = self.locked();
        (users.clone(), self.version())
    }

    /// Replaces the users by what `change` makes of them, unless it fails. Threads are to be woken then.
    pub(crate) fn change<T, E>(&self, change: impl FnOnce(&Users) -> Result<(Users, T), E>) -> Result<T, E> {
        let mut users = self.locked();
        let (changed, result) = change(&users)?;
        *users = Arc::new(changed);
        self.changes.fetch_add(1, Ordering::Release);
        Ok(result)
    }

    /// Reads the file again, all of it or nothing.
    pub(crate) fn load(&self) -> Result<(), String> {
        self.change(|_| Ok((self.source.read()?, ())))
    }

    pub(crate) fn has_file(&self) -> bool {
        self.source != UserSource::Open
    }

    fn locked(&self) -> MutexGuard<'_, Arc<Users>> {
        // The users are whole whenever the lock is free.
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something was refused.
    pub(crate) fn note(&self, denied: Denied<'_>, unix_ms: u64) {
        let place = Reason::ALL.iter().position(|reason| *reason == denied.reason).expect("all are there");
        self.denied[place].fetch_add(1, Ordering::Relaxed);
        self.log.lock().unwrap_or_else(PoisonError::into_inner).note(denied, unix_ms);
    }

    /// How often something was refused, by the places of [`Reason::ALL`].
    pub(crate) fn denied(&self) -> [u64; Reason::ALL.len()] {
        self.denied.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    pub(crate) fn newest_denied(&self, count: usize) -> Vec<Entry> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).newest(count)
    }

    pub(crate) fn forget_denied(&self) {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
