//! What an agent knows of hot keys: which entries its back end has, for operators, and the newest instance that it has installed.
//!
//! Reading the back end would tell the same, but begins a new period of counting.

use alloc::collections::BTreeMap;

use nicekv_proto::KeyDigest;

use crate::HotEntry;

/// See the module. At most as many entries as the back end has taken.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownHot {
    entries: BTreeMap<(u16, [u8; 16]), HotEntry>,
    newest: u64,
}

impl KnownHot {
    /// The newest instance that was installed or told of; 0: none.
    pub(super) fn newest(&self) -> u64 {
        self.newest
    }

    /// The back end has this one.
    pub(super) fn note_newest(&mut self, instance: u64) {
        self.newest = self.newest.max(instance);
    }

    /// The back end has taken a change.
    pub(super) fn change(&mut self, clear: bool, removed: &[u64], set: &[HotEntry]) {
        if clear {
            self.entries.clear();
        } else if !removed.is_empty() {
            let mut removed = removed.to_vec();
            removed.sort_unstable();
            self.entries.retain(|_, entry| removed.binary_search(&entry.instance).is_err());
        }
        for entry in set {
            self.note_newest(entry.instance);
            self.entries.insert((entry.keyspace, entry.digest), entry.clone());
        }
    }

    /// The entry of a key.
    pub(super) fn of(&self, keyspace: u16, value: u128) -> Option<&HotEntry> {
        self.entries.get(&(keyspace, KeyDigest::of_match_value(value).0))
    }
}
