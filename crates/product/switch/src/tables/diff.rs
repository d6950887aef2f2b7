//! What changes between two generations, table by table, for the operator's log and for cost accounting.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{Entry, Host, MemberSet, TableSet};

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

impl TableSet {
    /// Whether `next` has other trunks open, or hosts at other ports.
    pub fn leads_otherwise(&self, next: &Self) -> bool {
        let place = |host: &Host| (host.id, host.port, host.is_remote);
        self.trunks != next.trunks || !self.hosts.iter().map(place).eq(next.hosts.iter().map(place))
    }
}

/// Changes of what is no entry of a match table.
pub(super) fn host_changes(old: &[Host], new: &[Host]) -> Changes<Host> {
    changes_by(old, new, |host| host.id)
}

pub(super) fn trunk_changes(old: &[u16], new: &[u16]) -> Changes<u16> {
    changes_by(old, new, |port| *port)
}

pub(super) fn group_changes(old: &TableSet, new: &TableSet) -> Changes<MemberSet> {
    let groups = |tables: &TableSet| tables.groups().into_iter().cloned().collect::<Vec<_>>();
    changes_by(&groups(old), &groups(new), Clone::clone)
}

pub(super) fn entry_changes<T: Entry>(old: &[T], new: &[T]) -> Changes<T> {
    changes_by(old, new, Entry::matches)
}

/// Each list of the result is in ascending order of what its elements are known by.
fn changes_by<T: Clone + PartialEq, K: Ord>(old: &[T], new: &[T], key: impl Fn(&T) -> K) -> Changes<T> {
    let mut remaining: BTreeMap<_, _> = old.iter().map(|entry| (key(entry), entry)).collect();
    let incoming: BTreeMap<_, _> = new.iter().map(|entry| (key(entry), entry)).collect();
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
