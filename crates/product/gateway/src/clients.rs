//! The connections of all threads, for CLIENT LIST and CLIENT KILL.
//!
//! A connection updates its own entry after commands that may have changed it. CLIENT KILL does not
//! close a connection of another thread: that thread does.

use nicekv_redis::client_info::{ClientDetails, ClientInfo};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A connection, as other threads see it.
#[derive(Debug, Default)]
pub(crate) struct ClientEntry {
    /// As in CLIENT ID.
    pub(crate) id: u64,
    /// The peer's address, and the gateway's.
    addresses: Option<(SocketAddr, SocketAddr)>,
    since_unix_ms: u64,
    /// Index of the thread that serves the connection.
    pub(crate) thread: usize,
    /// The last command (a number of `SUBJECTS`), and when it began, in Unix milliseconds.
    last: (AtomicUsize, AtomicU64),
    details: Mutex<ClientDetails>,
    /// Set by CLIENT NO-EVICT: this connection is closed last if memory runs out.
    is_spared: AtomicBool,
}

impl ClientEntry {
    pub(crate) fn new(id: u64, addresses: Option<(SocketAddr, SocketAddr)>, since_unix_ms: u64) -> Self {
        Self { id, addresses, since_unix_ms, ..Self::default() }
    }

    /// A fresh entry for the same connection, served by this thread.
    pub(crate) fn on_thread(&self, thread: usize) -> Self {
        Self { thread, ..Self::new(self.id, self.addresses, self.since_unix_ms) }
    }

    /// Records that a command begins; `subject` is its number in `SUBJECTS`.
    pub(crate) fn touch(&self, subject: usize, unix_ms: u64) {
        self.last.0.store(subject, Ordering::Relaxed);
        self.last.1.store(unix_ms, Ordering::Relaxed);
    }

    pub(crate) fn is_spared(&self) -> bool {
        self.is_spared.load(Ordering::Relaxed)
    }

    pub(crate) fn spare(&self, is_spared: bool) {
        self.is_spared.store(is_spared, Ordering::Relaxed);
    }

    fn details(&self) -> MutexGuard<'_, ClientDetails> {
        self.details.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_details(&self, details: ClientDetails) {
        *self.details() = details;
    }

    /// The peer's address, as Redis writes it.
    pub(crate) fn peer(&self) -> String {
        self.addresses.map(|(peer, _)| peer.to_string()).unwrap_or_default()
    }

    pub(crate) fn info(&self) -> ClientInfo {
        ClientInfo {
            id: self.id,
            peer: self.peer(),
            local: self.addresses.map(|(_, local)| local.to_string()).unwrap_or_default(),
            since_unix_ms: self.since_unix_ms,
            active_unix_ms: self.last.1.load(Ordering::Relaxed),
            last_subject: self.last.0.load(Ordering::Relaxed),
            is_spared: self.is_spared(),
            details: self.details().clone(),
        }
    }
}

/// All connections, by id.
#[derive(Debug, Default)]
pub(crate) struct Clients(Mutex<BTreeMap<u64, Arc<ClientEntry>>>);

impl Clients {
    fn all(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<ClientEntry>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, client: Arc<ClientEntry>) {
        self.all().insert(client.id, client);
    }

    pub(crate) fn remove(&self, id: u64) {
        self.all().remove(&id);
    }

    pub(crate) fn list(&self) -> Vec<Arc<ClientEntry>> {
        self.all().values().cloned().collect()
    }

    pub(crate) fn get(&self, id: u64) -> Option<Arc<ClientEntry>> {
        self.all().get(&id).cloned()
    }
}
