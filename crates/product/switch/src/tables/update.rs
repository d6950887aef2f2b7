//! An incremental update: one table changes, all others stay as they are.
//!
//! ```text
//!   generation g (installed)  +  TableUpdate { base: g, generation: g', one table }  =  generation g'
//! ```
//!
//! It gives the same guarantees as installing the whole set: the result is validated as a whole,
//! and either replaces generation g in one flip or is refused and changes nothing. It is cheaper
//! only if the unchanged tables are long.

use serde::{Deserialize, Serialize};

use super::error::TableError;
use super::set::{TableChange, TableSet};

/// A change of one table of an installed generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableUpdate {
    /// The generation that must be in force.
    pub base: u64,
    /// The generation that results.
    pub generation: u64,
    /// The change.
    pub change: TableChange,
}

impl TableUpdate {
    /// The update from `old` to `new`; `None` unless exactly one table differs and nothing else.
    pub fn between(old: &TableSet, new: &TableSet) -> Option<Self> {
        let diff = TableSet::diff(old, new);
        if !diff.hosts.is_empty() || !diff.trunks.is_empty() {
            return None;
        }
        let mut changes = TableChange::all(diff);
        let change = changes.pop().filter(|_| changes.is_empty())?;
        Some(Self { base: old.generation, generation: new.generation, change })
    }

    /// The generation that results from applying the update to `installed`. The result is not
    /// validated.
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

    /// Whether `tables` is the result of this update.
    pub fn is_applied(&self, tables: &TableSet) -> bool {
        tables.generation == self.generation && self.change.is_applied(tables)
    }
}
