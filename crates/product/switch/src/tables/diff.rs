//! Differences between two generations of a table.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::entry::Entry;
use super::error::TableError;
use super::host::Host;
use super::members::MemberSet;
use super::rule::Match;

/// The difference of one table, for logs and cost accounting. An entry is *changed* if its match
/// stays and its action differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes<T> {
    /// Entries that are only in the new generation.
    pub added: Vec<T>,
    /// Entries that are only in the old generation.
    pub removed: Vec<T>,
    /// Changed entries: old and new form.
    pub changed: Vec<(T, T)>,
}

impl<T> Changes<T> {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

/// The same difference as operations on the old table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryChanges<T> {
    /// Matches of the entries to remove.
    pub removed: Vec<Match>,
    /// Entries to add; each replaces the entry with the same match.
    pub set: Vec<T>,
}

impl<T: Entry> EntryChanges<T> {
    pub(super) fn of(changes: Changes<T>) -> Self {
        let removed = changes.removed.iter().map(Entry::matches).collect();
        let set = changes.added.into_iter().chain(changes.changed.into_iter().map(|(_, new)| new)).collect();
        Self { removed, set }
    }

    /// Applies the operations. If an entry is set twice, the result contains it twice; validation
    /// refuses that.
    pub(super) fn apply(&self, entries: &mut Vec<T>) -> Result<(), TableError> {
        let mut places: BTreeMap<Match, Option<T>> =
            entries.drain(..).map(|entry| (entry.matches(), Some(entry))).collect();
        for &matches in &self.removed {
            if places.remove(&matches).is_none() {
                return Err(TableError::NothingToRemove { table: T::TABLE, matches });
            }
        }
        for entry in &self.set {
            places.insert(entry.matches(), None);
        }
        entries.extend(places.into_values().flatten());
        entries.extend(self.set.iter().cloned());
        Ok(())
    }

    pub(super) fn is_applied(&self, entries: &[T]) -> bool {
        let installed: BTreeMap<Match, &T> = entries.iter().map(|entry| (entry.matches(), entry)).collect();
        self.set.iter().all(|entry| installed.get(&entry.matches()) == Some(&entry))
            && !self.removed.iter().any(|matches| installed.contains_key(matches))
    }
}

pub(super) fn host_changes(old: &[Host], new: &[Host]) -> Changes<Host> {
    changes_by(old, new, |host| host.id)
}

pub(super) fn trunk_changes(old: &[u16], new: &[u16]) -> Changes<u16> {
    changes_by(old, new, |port| *port)
}

pub(super) fn group_changes(old: BTreeSet<&MemberSet>, new: BTreeSet<&MemberSet>) -> Changes<MemberSet> {
    let owned = |groups: BTreeSet<&MemberSet>| groups.into_iter().cloned().collect::<Vec<_>>();
    changes_by(&owned(old), &owned(new), Clone::clone)
}

pub(super) fn entry_changes<T: Entry>(old: &[T], new: &[T]) -> Changes<T> {
    changes_by(old, new, Entry::matches)
}

/// The difference of two lists. Each list of the result is in ascending order of `key`.
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
