//! What changes between two generations, table by table, for the operator's log and for cost accounting.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::{DivisionEntry, Host, HostId, MemberSet, MulticastEntry, Prefix, TableSet, UnicastEntry};

/// The change of one table. An entry whose match stays and whose action differs is *changed*.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes<T> {
    /// Only in the new generation.
    pub added: Vec<T>,
    /// Only in the old generation.
    pub removed: Vec<T>,
    /// Old and new form.
    pub changed: Vec<(T, T)>,
}

impl<T> Changes<T> {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

/// The change of all tables, each list in ascending order of its match.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "one field per table")]
pub struct TableDiff {
    pub hosts: Changes<Host>,
    pub unicast: Changes<UnicastEntry>,
    pub division: Changes<DivisionEntry>,
    pub multicast: Changes<MulticastEntry>,
    /// Groups are keyed by their member set, hence never *changed*.
    pub groups: Changes<MemberSet>,
}

impl TableDiff {
    /// Whether the two generations route alike.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
            && self.unicast.is_empty()
            && self.division.is_empty()
            && self.multicast.is_empty()
            && self.groups.is_empty()
    }
}

impl TableSet {
    /// What must change to get from `old` to `new`.
    pub fn diff(old: &TableSet, new: &TableSet) -> TableDiff {
        let groups = |tables: &TableSet| tables.groups().into_iter().cloned().collect::<Vec<_>>();
        TableDiff {
            hosts: changes(&old.hosts, &new.hosts),
            unicast: changes(&old.unicast, &new.unicast),
            division: changes(&old.division, &new.division),
            multicast: changes(&old.multicast, &new.multicast),
            groups: changes(&groups(old), &groups(new)),
        }
    }
}

/// The match of an entry.
pub(crate) trait Keyed {
    type Key: Ord;
    fn key(&self) -> Self::Key;
}

impl Keyed for Host {
    type Key = HostId;
    fn key(&self) -> HostId {
        self.id
    }
}

impl Keyed for UnicastEntry {
    type Key = Prefix;
    fn key(&self) -> Prefix {
        self.destination
    }
}

impl Keyed for DivisionEntry {
    type Key = (u32, Prefix);
    fn key(&self) -> (u32, Prefix) {
        (self.partition, self.source)
    }
}

impl Keyed for MulticastEntry {
    type Key = Prefix;
    fn key(&self) -> Prefix {
        self.destination
    }
}

impl Keyed for MemberSet {
    type Key = MemberSet;
    fn key(&self) -> MemberSet {
        self.clone()
    }
}

fn changes<T: Keyed + Clone + PartialEq>(old: &[T], new: &[T]) -> Changes<T> {
    let mut remaining: BTreeMap<_, _> = old.iter().map(|entry| (entry.key(), entry)).collect();
    let incoming: BTreeMap<_, _> = new.iter().map(|entry| (entry.key(), entry)).collect();
    let mut result = Changes { added: Vec::new(), removed: Vec::new(), changed: Vec::new() };
    for (key, entry) in incoming {
        match remaining.remove(&key) {
            None => result.added.push(entry.clone()),
            Some(before) if before != entry => result.changed.push((before.clone(), entry.clone())),
            Some(_) => {}
        }
    }
    result.removed.extend(remaining.into_values().cloned());
    result
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn a_diff_separates_added_removed_and_changed() {
        let entry = |net: u8, host: u16| UnicastEntry {
            destination: Prefix::new([10, 10, net, 0], 24),
            partition: u32::from(net),
            host: HostId(host),
        };
        let group = |net: u8, hosts: [u16; 2]| MulticastEntry {
            destination: Prefix::new([10, 11, net, 0], 24),
            members: MemberSet::new(hosts.map(HostId)),
        };
        let old = TableSet {
            unicast: vec![entry(1, 1), entry(2, 1), entry(3, 1)],
            multicast: vec![group(1, [1, 2]), group(2, [1, 2])],
            ..TableSet::default()
        };
        let new = TableSet {
            unicast: vec![entry(4, 1), entry(3, 1), entry(2, 2)],
            multicast: vec![group(1, [1, 2]), group(2, [2, 3])],
            ..TableSet::default()
        };
        let diff = TableSet::diff(&old, &new);
        assert_eq!(diff.unicast.added, [entry(4, 1)]);
        assert_eq!(diff.unicast.removed, [entry(1, 1)]);
        assert_eq!(diff.unicast.changed, [(entry(2, 1), entry(2, 2))]);
        assert_eq!(diff.multicast.changed.len(), 1);
        assert_eq!(diff.groups.added, [MemberSet::new([HostId(2), HostId(3)])]);
        assert!(diff.groups.removed.is_empty());
        assert!(diff.division.is_empty() && !diff.is_empty());
        assert!(TableSet::diff(&new, &new).is_empty());
    }
}
