//! Table `hot` of one switch: the wanted entries, the installed ones, and their difference.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use nicekv_hotkeys::HotKey;
use nicekv_proto::NodeId;
use nicekv_switch::HotEntry;
use nicekv_switch::control::ControlRequest;

use crate::config::host_id;

/// A wanted entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The primary of the key's partition.
    pub(crate) owner: NodeId,
    /// Nodes with copies that are not members of the partition.
    pub(crate) holders: Vec<NodeId>,
    /// Whether the switch may store a copy as well (H9). An entry without any copies only counts.
    pub(crate) in_switch: bool,
    /// Number of turns of the round robin that take the default route.
    pub(crate) owner_turns: u8,
}

impl Wanted {
    /// Whether the key has copies, so that its owner must be notified.
    pub(crate) fn is_copied(&self) -> bool {
        self.in_switch || !self.holders.is_empty()
    }
}

/// An entry that is installed or being installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    /// Identifies this installation of the entry.
    pub(crate) instance: u64,
    pub(crate) entry: Wanted,
}

/// The entries by key.
pub(crate) type Table = BTreeMap<HotKey, Placed>;

/// The difference between two tables. A key in `set` need not be in `removed`: its new instance
/// replaces the old one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) removed: Vec<(HotKey, u64)>,
    /// Entries to install, ascending by instance.
    pub(super) set: Vec<(HotKey, Placed)>,
}

/// Generates instance numbers that are never used twice: the leader's term in the upper half, a
/// counter in the lower.
#[derive(Clone, Debug)]
pub(super) struct Instances {
    term: u64,
    count: u32,
}

impl Instances {
    pub(super) fn of_term(term: u64) -> Self {
        Self { term, count: 0 }
    }

    /// The next instance. `None`: this leader has used all of its numbers, which does not happen in
    /// practice.
    pub(super) fn take(&mut self) -> Option<u64> {
        self.count = self.count.checked_add(1)?;
        Some(self.term << 32 | u64::from(self.count))
    }
}

impl Change {
    /// The difference from the installed table to the wanted entries. A changed entry is a new
    /// instance (H1, H8).
    pub(super) fn between(
        there: &Table,
        wanted: &BTreeMap<HotKey, Wanted>,
        instances: &mut Instances,
    ) -> Self {
        let gone = there.iter().filter(|(key, _)| !wanted.contains_key(key));
        let removed = gone.map(|(key, placed)| (*key, placed.instance)).collect();
        let is_new = |key: &HotKey, entry: &Wanted| there.get(key).is_none_or(|there| there.entry != *entry);
        let new = wanted.iter().filter(|(key, entry)| is_new(key, entry));
        let place = |(key, entry): (&HotKey, &Wanted)| {
            Some((*key, Placed { instance: instances.take()?, entry: entry.clone() }))
        };
        Self { removed, set: new.map_while(place).collect() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.set.is_empty()
    }

    /// Number of entries in the difference.
    pub(super) fn len(&self) -> usize {
        self.removed.len() + self.set.len()
    }

    /// The newest instance after the change; 0 if the change installs none.
    pub(super) fn newest(&self) -> u64 {
        self.set.last().map_or(0, |(_, placed)| placed.instance)
    }

    pub(super) fn request(&self, term: u64) -> ControlRequest {
        let entry = |(key, placed): &(HotKey, Placed)| HotEntry {
            keyspace: key.keyspace.0,
            digest: key.digest.0,
            instance: placed.instance,
            owner_turns: placed.entry.owner_turns,
            holders: placed.entry.holders.iter().copied().map(host_id).collect(),
            in_switch: placed.entry.in_switch,
        };
        ControlRequest::ChangeHot {
            term,
            clear: false,
            removed: self.removed.iter().map(|(_, instance)| *instance).collect(),
            set: self.set.iter().map(entry).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec;
    use nicekv_proto::{KeyDigest, KeyspaceId};
    use proptest::prelude::*;

    /// Wanted entries, given as key, owner, holder, and whether the switch may store a copy.
    fn wanted(entries: &[(u8, u16, u16, bool)]) -> BTreeMap<HotKey, Wanted> {
        let entry = |&(key, owner, holder, in_switch): &(u8, u16, u16, bool)| {
            let key = HotKey { keyspace: KeyspaceId(1), digest: KeyDigest([key; 16]) };
            (key, Wanted { owner: NodeId(owner), holders: vec![NodeId(holder)], owner_turns: 1, in_switch })
        };
        entries.iter().map(entry).collect()
    }

    proptest! {
        #[test]
        fn differences_reach_the_wanted_table_without_reusing_instances(
            steps in prop::collection::vec(prop::collection::vec((0_u8..6, 0_u16..2, 2_u16..4, any::<bool>()), 0..6), 1..12),
        ) {
            let (mut table, mut instances) = (Table::new(), Instances::of_term(3));
            let mut used = BTreeSet::new();
            for step in steps {
                let wanted = wanted(&step);
                let change = Change::between(&table, &wanted, &mut instances);
                let before = table.clone();
                for (key, instance) in &change.removed {
                    prop_assert_eq!(table.remove(key).map(|gone| gone.instance), Some(*instance));
                }
                for (key, placed) in &change.set {
                    prop_assert!(placed.instance >> 32 == 3 && used.last().is_none_or(|last| last < &placed.instance));
                    used.insert(placed.instance);
                    table.insert(*key, placed.clone());
                }
                let made: BTreeMap<HotKey, Wanted> =
                    table.iter().map(|(key, placed)| (*key, placed.entry.clone())).collect();
                prop_assert_eq!(made, wanted);
                // An unchanged entry keeps its instance.
                let stays = |(key, placed): (&HotKey, &Placed)| {
                    before.get(key).is_none_or(|before| (before.entry == placed.entry) == (before == placed))
                };
                prop_assert!(table.iter().all(stays));
                prop_assert!(Change::between(&table, &self::wanted(&step), &mut instances).is_empty());
            }
        }
    }

    #[test]
    fn leader_without_instances_installs_nothing() {
        let mut instances = Instances { term: 1, count: u32::MAX - 1 };
        let change =
            Change::between(&Table::new(), &wanted(&[(1, 0, 2, false), (2, 0, 2, true)]), &mut instances);
        assert_eq!((change.set.len(), change.newest()), (1, 0x1_ffff_ffff));
    }
}
