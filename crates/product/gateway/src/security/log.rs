//! What was refused last, for ACL LOG: the same thing again within a minute is counted, not listed anew.

use std::collections::VecDeque;

/// Entries that are kept.
const ENTRIES_MAX: usize = 128;
/// What is the same within this time is one entry.
const TOGETHER_MS: u64 = 60_000;
/// What is kept of a name that was tried, or of a key.
const OBJECT_BYTES_MAX: usize = 128;

/// Why something was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// A wrong password, or a user that is not there.
    Auth,
    Command,
    Key,
    Channel,
}

impl Reason {
    pub(crate) const ALL: [Self; 4] = [Self::Auth, Self::Command, Self::Key, Self::Channel];

    /// As Redis says it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::Command => "command",
            Self::Key => "key",
            Self::Channel => "channel",
        }
    }
}

/// Something that was refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Denied<'a> {
    pub(crate) reason: Reason,
    /// The command, or the key.
    pub(crate) object: &'a [u8],
    pub(crate) user: &'a [u8],
    /// What CLIENT INFO says of the connection.
    pub(crate) client: &'a str,
}

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) number: u64,
    pub(crate) count: u64,
    pub(crate) reason: Reason,
    pub(crate) object: Vec<u8>,
    pub(crate) user: Vec<u8>,
    pub(crate) client: String,
    pub(crate) created_unix_ms: u64,
    pub(crate) updated_unix_ms: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct AccessLog {
    /// Newest first.
    entries: VecDeque<Entry>,
    numbered: u64,
}

impl AccessLog {
    pub(crate) fn note(&mut self, denied: Denied<'_>, unix_ms: u64) {
        let Denied { reason, object, user, client } = denied;
        let (object, user) = (begin(object), begin(user));
        let is_same = |entry: &Entry| {
            entry.reason == reason
                && entry.object == object
                && entry.user == user
                && unix_ms.saturating_sub(entry.updated_unix_ms) <= TOGETHER_MS
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
        self.entries.push_front(Entry {
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

    /// The newest ones.
    pub(crate) fn newest(&self, count: usize) -> Vec<Entry> {
        self.entries.iter().take(count).cloned().collect()
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }
}

fn begin(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(OBJECT_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied<'a>(reason: Reason, object: &'a str, user: &'a str) -> Denied<'a> {
        Denied { reason, object: object.as_bytes(), user: user.as_bytes(), client: "id=1" }
    }

    #[test]
    fn the_same_again_is_counted_and_comes_first() {
        let mut log = AccessLog::default();
        log.note(denied(Reason::Auth, "AUTH", "alice"), 1_000);
        log.note(denied(Reason::Key, "k", "alice"), 2_000);
        log.note(denied(Reason::Auth, "AUTH", "alice"), 61_000);
        log.note(denied(Reason::Auth, "AUTH", "bob"), 61_000);
        let told: Vec<_> =
            log.newest(10).into_iter().map(|entry| (entry.number, entry.count, entry.user)).collect();
        assert_eq!(told, [(2, 1, b"bob".to_vec()), (0, 2, b"alice".to_vec()), (1, 1, b"alice".to_vec())]);
        let entry = &log.newest(2)[1];
        assert_eq!((entry.created_unix_ms, entry.updated_unix_ms), (1_000, 61_000));
        log.note(denied(Reason::Auth, "AUTH", "alice"), 121_001);
        assert_eq!((log.newest(1)[0].number, log.newest(1)[0].count), (3, 1), "a minute later");
        log.clear();
        assert!(log.newest(10).is_empty());
    }

    #[test]
    fn neither_the_list_nor_its_entries_grow_for_ever() {
        let mut log = AccessLog::default();
        for number in 0..1_000 {
            log.note(denied(Reason::Auth, "AUTH", &format!("{number}{}", "x".repeat(10_000))), 5);
        }
        let entries = log.newest(10_000);
        assert_eq!((entries.len(), entries[0].number), (ENTRIES_MAX, 999));
        assert!(entries.iter().all(|entry| entry.user.len() == OBJECT_BYTES_MAX));
    }
}
