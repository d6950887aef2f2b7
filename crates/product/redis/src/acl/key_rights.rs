//! Which keys a user may read and write: patterns, each for reading, writing, or both.

use crate::command::KeyAccess;
use alloc::vec::Vec;
use nicekv_proto::glob;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KeyRights {
    is_all: bool,
    patterns: Vec<Pattern>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    may: Access,
    pattern: Vec<u8>,
}

/// Whether a key is read, written, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Access {
    reads: bool,
    writes: bool,
}

impl Access {
    pub(super) const BOTH: Self = Self { reads: true, writes: true };

    /// Parses the letters `R` and `W`, in upper or lower case.
    pub(super) fn of_letters(letters: &[u8]) -> Option<Self> {
        let has = |letter: u8| letters.iter().any(|one| one.eq_ignore_ascii_case(&letter));
        let is_known = letters.iter().all(|one| b"rw".contains(&one.to_ascii_lowercase()));
        (is_known && !letters.is_empty()).then(|| Self { reads: has(b'r'), writes: has(b'w') })
    }

    /// The access that a command needs. `has_get`: GET is one of its options.
    pub(super) fn needed(access: KeyAccess, has_get: bool) -> Self {
        let (reads, writes) = match access {
            KeyAccess::None | KeyAccess::Metadata => (false, false),
            KeyAccess::Read => (true, false),
            KeyAccess::Write => (false, true),
            KeyAccess::ReadWrite => (true, true),
            KeyAccess::WriteAndReadIfGet => (has_get, true),
        };
        Self { reads, writes }
    }

    fn covers(self, needed: Self) -> bool {
        (self.reads || !needed.reads) && (self.writes || !needed.writes)
    }
}

impl KeyRights {
    pub(super) fn set_all(&mut self, is_all: bool) {
        *self = Self { is_all, patterns: Vec::new() };
    }

    pub(super) fn is_all(&self) -> bool {
        self.is_all
    }

    /// Adds a pattern. Returns false if all keys are already allowed, so that the pattern would
    /// have no effect.
    pub(super) fn add(&mut self, may: Access, pattern: &[u8]) -> bool {
        if may == Access::BOTH && pattern == b"*" {
            self.set_all(true);
            return true;
        }
        if self.is_all {
            return false;
        }
        match self.patterns.iter_mut().find(|known| known.pattern == pattern) {
            Some(known) => {
                known.may.reads |= may.reads;
                known.may.writes |= may.writes;
            }
            None => self.patterns.push(Pattern { may, pattern: pattern.to_vec() }),
        }
        true
    }

    pub(super) fn allow(&self, key: &[u8], needed: Access) -> bool {
        let allows = |one: &Pattern| one.may.covers(needed) && glob::matches(&one.pattern, key);
        self.is_all || self.patterns.iter().any(allows)
    }

    /// The rules as text.
    pub(super) fn describe(&self) -> Vec<u8> {
        if self.is_all {
            return b"~*".to_vec();
        }
        let rule = |Pattern { may, pattern }: &Pattern| {
            let prefix: &[u8] = match (may.reads, may.writes) {
                (true, false) => b"%R~",
                (false, _) => b"%W~",
                (true, true) => b"~",
            };
            [prefix, pattern].concat()
        };
        self.patterns.iter().map(rule).collect::<Vec<_>>().join(&b' ')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_allow_reading_writing_or_both() {
        let mut keys = KeyRights::default();
        for (letters, pattern) in [("rw", "both:*"), ("R", "read:*"), ("w", "write:*")] {
            assert!(keys.add(Access::of_letters(letters.as_bytes()).unwrap(), pattern.as_bytes()));
        }
        for (access, allowed, refused) in [
            (KeyAccess::Read, "both:1 read:1", "write:1 other"),
            (KeyAccess::Write, "both:1 write:1", "read:1 other"),
            (KeyAccess::ReadWrite, "both:1", "read:1 write:1 other"),
            (KeyAccess::Metadata, "both:1 read:1 write:1", "other both"),
            (KeyAccess::WriteAndReadIfGet, "both:1 write:1", "read:1"),
        ] {
            let may = |key: &str| keys.allow(key.as_bytes(), Access::needed(access, false));
            allowed.split(' ').for_each(|key| assert!(may(key), "{access:?} {key}"));
            refused.split(' ').for_each(|key| assert!(!may(key), "{access:?} {key}"));
        }
        assert!(
            !keys.allow(b"write:1", Access::needed(KeyAccess::WriteAndReadIfGet, true)),
            "SET … GET also reads"
        );
        assert_eq!(keys.describe(), b"~both:* %R~read:* %W~write:*");
        assert!(keys.add(Access::of_letters(b"w").unwrap(), b"read:*"));
        assert_eq!(keys.describe(), b"~both:* ~read:* %W~write:*");
    }

    #[test]
    fn patterns_are_refused_once_all_keys_are_allowed() {
        let mut keys = KeyRights::default();
        assert!(keys.add(Access::of_letters(b"r").unwrap(), b"*") && !keys.is_all());
        assert!(keys.add(Access::BOTH, b"*") && keys.is_all());
        assert!(keys.add(Access::BOTH, b"*") && !keys.add(Access::BOTH, b"a"));
        assert!(keys.allow(b"anything", Access::BOTH) && keys.describe() == b"~*");
        keys.set_all(false);
        assert!(
            !keys.allow(b"anything", Access::needed(KeyAccess::Metadata, false)) && keys.describe() == b""
        );
        for letters in ["", "x", "rx"] {
            assert_eq!(Access::of_letters(letters.as_bytes()), None);
        }
    }
}
