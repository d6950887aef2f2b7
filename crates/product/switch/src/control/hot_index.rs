//! The agent's own copy of table `hot`: its entries, for operators, and the newest installed
//! instance. The agent does not read them from the back end, because that would begin a new
//! counting period.

use alloc::collections::BTreeMap;

use nicekv_proto::KeyDigest;

use crate::HotEntry;

/// The hot entries that the back end has accepted.
#[derive(Clone, Debug, Default)]
pub(super) struct HotIndex {
    entries: BTreeMap<(u16, [u8; 16]), HotEntry>,
    newest: u64,
}

impl HotIndex {
    /// The newest instance that was installed or reported; 0: none.
    pub(super) fn newest(&self) -> u64 {
        self.newest
    }

    /// Records an instance that the back end has reported.
    pub(super) fn note_newest(&mut self, instance: u64) {
        self.newest = self.newest.max(instance);
    }

    /// Records a change that the back end has accepted.
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
