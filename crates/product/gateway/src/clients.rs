//! The connections of all threads, as CLIENT LIST shows them and CLIENT KILL finds them.
//!
//! A connection writes what has changed of it to its own entry, after commands that may have changed it; the thread that it is on closes it when it is told to.

use nicekv_proto::KeyspaceId;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A connection.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    /// CLIENT ID.
    pub(crate) id: u64,
    /// The peer's and ours.
    pub(crate) addresses: Option<(SocketAddr, SocketAddr)>,
    pub(crate) since_unix_ms: u64,
    /// The place of its thread.
    pub(crate) thread: usize,
    /// The subject of the last command, and when that began.
    last: (AtomicUsize, AtomicU64),
    told: Mutex<Told>,
    /// CLIENT NO-EVICT.
    is_spared: AtomicBool,
}

/// What changes of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) name: Vec<u8>,
    pub(crate) user: Vec<u8>,
    pub(crate) keyspace: KeyspaceId,
    pub(crate) is_resp3: bool,
    pub(crate) channels: usize,
    pub(crate) patterns: usize,
    /// Commands that MULTI has queued.
    pub(crate) queued: Option<usize>,
    pub(crate) is_monitor: bool,
}

impl Told {
    fn flags(&self, is_spared: bool) -> String {
        let all = [
            (self.is_monitor, 'O'),
            (self.channels + self.patterns > 0, 'P'),
            (self.queued.is_some(), 'x'),
            (is_spared, 'e'),
        ];
        let flags: String = all.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).collect();
        if flags.is_empty() { "N".into() } else { flags }
    }
}

impl Listed {
    pub(crate) fn new(id: u64, addresses: Option<(SocketAddr, SocketAddr)>, since_unix_ms: u64) -> Self {
        Self { id, addresses, since_unix_ms, ..Self::default() }
    }

    /// The same, on this thread.
    pub(crate) fn on_thread(&self, thread: usize) -> Self {
        Self { thread, ..Self::new(self.id, self.addresses, self.since_unix_ms) }
    }

    /// A command has begun, by the number of its subject.
    pub(crate) fn touch(&self, subject: usize, unix_ms: u64) {
        self.last.0.store(subject, Ordering::Relaxed);
        self.last.1.store(unix_ms, Ordering::Relaxed);
    }

    pub(crate) fn last_subject(&self) -> usize {
        self.last.0.load(Ordering::Relaxed)
    }

    pub(crate) fn is_spared(&self) -> bool {
        self.is_spared.load(Ordering::Relaxed)
    }

    pub(crate) fn spare(&self, is_spared: bool) {
        self.is_spared.store(is_spared, Ordering::Relaxed);
    }

    pub(crate) fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is of this type, by Redis' names.
    pub(crate) fn is_of(&self, kind: ClientType) -> bool {
        let told = self.told();
        let listens = told.channels + told.patterns > 0;
        match kind {
            ClientType::Normal => !listens,
            ClientType::Listening => listens,
            ClientType::Replication => false,
        }
    }

    /// The peer's address, as Redis writes it.
    pub(crate) fn peer(&self) -> String {
        self.addresses.map(|(peer, _)| peer.to_string()).unwrap_or_default()
    }

    /// Ours.
    pub(crate) fn local(&self) -> String {
        self.addresses.map(|(_, local)| local.to_string()).unwrap_or_default()
    }

    /// Its line, in the words and the order of Redis.
    pub(crate) fn line(&self, unix_ms: u64, command: &str) -> String {
        let told = self.told().clone();
        let age_s = unix_ms.saturating_sub(self.since_unix_ms) / 1_000;
        let last_ms = self.last.1.load(Ordering::Relaxed).max(self.since_unix_ms);
        let idle_s = unix_ms.saturating_sub(last_ms) / 1_000;
        let [name, user] = [&told.name, &told.user].map(|bytes| String::from_utf8_lossy(bytes));
        let multi = told.queued.map_or("-1".into(), |queued| queued.to_string());
        let protocol = if told.is_resp3 { 3 } else { 2 };
        format!(
            "id={} addr={} laddr={} name={name} age={age_s} idle={idle_s} flags={} db={} sub={} psub={} ssub=0 multi={multi} cmd={command} \
             user={user} redir=-1 resp={protocol}",
            self.id,
            self.peer(),
            self.local(),
            told.flags(self.is_spared()),
            told.keyspace.0,
            told.channels,
            told.patterns,
        )
    }
}

/// Of a client, as CLIENT LIST and CLIENT KILL have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientType {
    Normal,
    Listening,
    /// Masters and replicas, of which there are none.
    Replication,
}

impl ClientType {
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        match name.to_ascii_lowercase().as_slice() {
            b"normal" => Some(Self::Normal),
            b"pubsub" => Some(Self::Listening),
            b"master" | b"replica" | b"slave" => Some(Self::Replication),
            _ => None,
        }
    }
}

/// All of them, by their ids.
#[derive(Debug, Default)]
pub(crate) struct Clients(Mutex<BTreeMap<u64, Arc<Listed>>>);

impl Clients {
    fn all(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Listed>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, listed: Arc<Listed>) {
        self.all().insert(listed.id, listed);
    }

    pub(crate) fn remove(&self, id: u64) {
        self.all().remove(&id);
    }

    /// As of now.
    pub(crate) fn list(&self) -> Vec<Arc<Listed>> {
        self.all().values().cloned().collect()
    }
}
