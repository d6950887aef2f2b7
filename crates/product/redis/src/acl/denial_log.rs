//! The newest refusals, for ACL LOG. A refusal that is repeated within a minute increments the
//! count of its entry.

use alloc::borrow::ToOwned;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;

/// Maximum number of entries.
const ENTRIES_MAX: usize = 128;
/// Equal refusals within this time share an entry.
const REPETITION_MS: u64 = 60_000;
/// Maximum bytes kept of a name or key.
const OBJECT_BYTES_MAX: usize = 128;

/// Why access was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DenialReason {
    /// Wrong password, or no such user.
    Auth,
    Command,
    Key,
    Channel,
}

impl DenialReason {
    pub const ALL: [Self; 4] = [Self::Auth, Self::Command, Self::Key, Self::Channel];

    /// The name that Redis uses for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::Command => "command",
            Self::Key => "key",
            Self::Channel => "channel",
        }
    }
}

/// A refusal.
#[derive(Clone, Copy, Debug)]
pub struct Denial<'a> {
    pub reason: DenialReason,
    /// The command, key or channel that was refused; for a failed login, the command (AUTH or HELLO).
    pub object: &'a [u8],
    pub user: &'a [u8],
    /// The connection, as CLIENT INFO describes it.
    pub client: &'a str,
}

/// An entry of ACL LOG.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DenialEntry {
    pub number: u64,
    pub count: u64,
    pub reason: DenialReason,
    pub object: Vec<u8>,
    pub user: Vec<u8>,
    pub client: String,
    pub created_unix_ms: u64,
    pub updated_unix_ms: u64,
}

#[derive(Debug, Default)]
pub struct DenialLog {
    /// Entries, newest first.
    entries: VecDeque<DenialEntry>,
    numbered: u64,
}

impl DenialLog {
    pub fn note(&mut self, denial: Denial<'_>, unix_ms: u64) {
        let Denial { reason, object, user, client } = denial;
        let (object, user) = (cut(object), cut(user));
        let is_same = |entry: &DenialEntry| {
            entry.reason == reason
                && entry.object == object
                && entry.user == user
                && unix_ms.saturating_sub(entry.updated_unix_ms) <= REPETITION_MS
        };
        let same = self.entries.iter().position(is_same).and_then(|place| self.entries.remove(place));
        let (number, count, created_unix_ms) = match same {
            Some(entry) => (entry.number, entry.count + 1, entry.created_unix_ms),
            None => {
                self.numbered += 1;
                (self.numbered - 1, 1, unix_ms)
            }
        };
        self.entries.truncate(ENTRIES_MAX - 1);
        self.entries.push_front(DenialEntry {
            number,
            count,
            reason,
            object: object.to_vec(),
            user: user.to_vec(),
            client: client.to_owned(),
            created_unix_ms,
            updated_unix_ms: unix_ms,
        });
    }

    /// The newest entries, at most `count`.
    pub fn newest(&self, count: usize) -> Vec<DenialEntry> {
        self.entries.iter().take(count).cloned().collect()
    }

    pub fn clear(&mut self) {
        self.entries.clear();
    }
}

fn cut(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(OBJECT_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denial<'a>(reason: DenialReason, object: &'a str, user: &'a str) -> Denial<'a> {
        Denial { reason, object: object.as_bytes(), user: user.as_bytes(), client: "id=1" }
    }

    #[test]
    fn a_repetition_is_counted_and_comes_first() {
        let mut log = DenialLog::default();
        log.note(denial(DenialReason::Auth, "AUTH", "alice"), 1_000);
        log.note(denial(DenialReason::Key, "k", "alice"), 2_000);
        log.note(denial(DenialReason::Auth, "AUTH", "alice"), 61_000);
        log.note(denial(DenialReason::Auth, "AUTH", "bob"), 61_000);
        let told: Vec<_> =
            log.newest(10).into_iter().map(|entry| (entry.number, entry.count, entry.user)).collect();
        assert_eq!(told, [(2, 1, b"bob".to_vec()), (0, 2, b"alice".to_vec()), (1, 1, b"alice".to_vec())]);
        let entry = &log.newest(2)[1];
        assert_eq!((entry.created_unix_ms, entry.updated_unix_ms), (1_000, 61_000));
        log.note(denial(DenialReason::Auth, "AUTH", "alice"), 121_001);
        assert_eq!((log.newest(1)[0].number, log.newest(1)[0].count), (3, 1), "a minute later");
        log.clear();
        assert!(log.newest(10).is_empty());
    }

    #[test]
    fn entries_and_their_lengths_are_bounded() {
        let mut log = DenialLog::default();
        for number in 0..1_000 {
            log.note(denial(DenialReason::Auth, "AUTH", &format!("{number}{}", "x".repeat(10_000))), 5);
        }
        let entries = log.newest(10_000);
        assert_eq!((entries.len(), entries[0].number), (ENTRIES_MAX, 999));
        assert!(entries.iter().all(|entry| entry.user.len() == OBJECT_BYTES_MAX));
    }
}
