//! Connections, as CLIENT LIST shows them and CLIENT KILL selects them.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use nicekv_proto::KeyspaceId;

/// A connection, as other connections see it.
#[derive(Clone, Debug, Default)]
pub struct ClientInfo {
    pub id: u64,
    /// Addresses as Redis writes them.
    pub peer: String,
    pub local: String,
    pub since_unix_ms: u64,
    /// When the last command began.
    pub active_unix_ms: u64,
    /// The last command, by its number in the table of subjects.
    pub last_subject: usize,
    /// Set by CLIENT NO-EVICT.
    pub is_spared: bool,
    pub details: ClientDetails,
}

/// The details that change with commands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientDetails {
    pub name: Vec<u8>,
    pub user: Vec<u8>,
    pub keyspace: KeyspaceId,
    pub is_resp3: bool,
    pub channels: usize,
    pub patterns: usize,
    /// Number of commands that MULTI has queued.
    pub queued: Option<usize>,
    pub is_monitor: bool,
}

impl ClientInfo {
    fn flags(&self) -> String {
        let details = &self.details;
        let all = [
            (details.is_monitor, 'O'),
            (details.channels + details.patterns > 0, 'P'),
            (details.queued.is_some(), 'x'),
            (self.is_spared, 'e'),
        ];
        let flags: String = all.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).collect();
        if flags.is_empty() { "N".to_owned() } else { flags }
    }

    /// The connection's line of CLIENT LIST, with the fields and the order of Redis.
    pub fn line(&self, unix_ms: u64, command: &str) -> String {
        let details = &self.details;
        let age_s = unix_ms.saturating_sub(self.since_unix_ms) / 1_000;
        let active_ms = self.active_unix_ms.max(self.since_unix_ms);
        let idle_s = unix_ms.saturating_sub(active_ms) / 1_000;
        let [name, user] = [&details.name, &details.user].map(|bytes| String::from_utf8_lossy(bytes));
        let multi = details.queued.map_or("-1".to_owned(), |queued| queued.to_string());
        let protocol = if details.is_resp3 { 3 } else { 2 };
        format!(
            "id={} addr={} laddr={} name={name} age={age_s} idle={idle_s} flags={} db={} sub={} psub={} ssub=0 multi={multi} cmd={command} \
             user={user} redir=-1 resp={protocol}",
            self.id,
            self.peer,
            self.local,
            self.flags(),
            details.keyspace.0,
            details.channels,
            details.patterns,
        )
    }

    pub(crate) fn is_of(&self, client_type: ClientType) -> bool {
        let is_subscriber = self.details.channels + self.details.patterns > 0;
        match client_type {
            ClientType::Normal => !is_subscriber,
            ClientType::PubSub => is_subscriber,
            ClientType::Replication => false,
        }
    }
}

/// Type of a client, as CLIENT LIST and CLIENT KILL name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientType {
    Normal,
    PubSub,
    /// Masters and replicas; there are no such connections here.
    Replication,
}

impl ClientType {
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        match name.to_ascii_lowercase().as_slice() {
            b"normal" => Some(Self::Normal),
            b"pubsub" => Some(Self::PubSub),
            b"master" | b"replica" | b"slave" => Some(Self::Replication),
            _ => None,
        }
    }
}
