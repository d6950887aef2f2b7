//! An incremental update: one table changes, everything else stays as it is.
//!
//! ```text
//!   generation g (installed)  +  TableUpdate { base: g, generation: g', one table }  =  generation g'
//! ```
//!
//! It is no weaker than installing the whole set: the result is validated as a whole, takes the place of generation g by one
//! flip, or is refused and changes nothing. It only costs less, where one table changes and others are long.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{Changes, Entry, Match, Table, TableChange, TableError, TableSet};

/// A change of one table of an installed generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableUpdate {
    /// The generation that must be installed.
    pub base: u64,
    /// The generation that results.
    pub generation: u64,
    /// What changes.
    pub change: TableChange,
}

/// What changes in a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryChanges<T> {
    /// Matches of the entries that go.
    pub removed: Vec<Match>,
    /// Entries that come, or take the place of those with the same match.
    pub set: Vec<T>,
}

impl TableUpdate {
    /// What leads from `old` to `new`, if they differ in one table and nothing else.
    pub fn between(old: &TableSet, new: &TableSet) -> Option<Self> {
        let diff = TableSet::diff(old, new);
        if !diff.hosts.is_empty() || !diff.trunks.is_empty() {
            return None;
        }
        let mut changes = TableChange::all(diff);
        let change = changes.pop().filter(|_| changes.is_empty())?;
        Some(Self { base: old.generation, generation: new.generation, change })
    }

    /// The generation that results from `installed`; not validated.
    pub fn applied_to(&self, installed: Option<&TableSet>) -> Result<TableSet, TableError> {
        let base = installed.filter(|tables| tables.generation == self.base);
        let Some(base) = base else {
            let installed = installed.map(|tables| tables.generation);
            return Err(TableError::OtherBase { base: self.base, installed });
        };
        let mut tables = base.clone();
        self.change.apply(&mut tables)?;
        tables.generation = self.generation;
        Ok(tables)
    }

    /// Whether `tables` are what it has led to.
    pub fn is_applied(&self, tables: &TableSet) -> bool {
        tables.generation == self.generation && self.change.is_applied(tables)
    }
}

impl<T: Entry> EntryChanges<T> {
    pub(super) fn of(changes: Changes<T>) -> Self {
        let removed = changes.removed.iter().map(Entry::matches).collect();
        let set = changes.added.into_iter().chain(changes.changed.into_iter().map(|(_, new)| new)).collect();
        Self { removed, set }
    }

    /// An entry that is set twice is twice in the result, which is refused for it.
    pub(super) fn apply(&self, table: Table, entries: &mut Vec<T>) -> Result<(), TableError> {
        let mut places: BTreeMap<Match, Option<T>> =
            entries.drain(..).map(|entry| (entry.matches(), Some(entry))).collect();
        for &matches in &self.removed {
            if places.remove(&matches).is_none() {
                return Err(TableError::NothingToRemove { table, matches });
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
        let there: BTreeMap<Match, &T> = entries.iter().map(|entry| (entry.matches(), entry)).collect();
        self.set.iter().all(|entry| there.get(&entry.matches()) == Some(&entry))
            && !self.removed.iter().any(|matches| there.contains_key(matches))
    }
}
