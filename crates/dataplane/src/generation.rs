//! One generation of tables, compiled for lookup, with the hits of its entries.
//!
//! Tables that a change does not touch are shared with the generation before: an incremental update compiles one table.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use crate::lpm::LongestPrefixMatch;
use crate::tables::{HostIndex, Match};
use crate::{TABLE_COUNT, Table, TableSet};

#[derive(Clone, Debug)]
pub(crate) struct Generation {
    pub(crate) tables: TableSet,
    pub(crate) hosts: HostIndex,
    /// Per table.
    matches: [Arc<LongestPrefixMatch>; TABLE_COUNT],
    /// Per table, per entry in the order of `tables`.
    hits: [Vec<u64>; TABLE_COUNT],
}

impl Generation {
    /// Compiles validated tables. Hits of an entry that `old` has already (same match) go on counting.
    pub(crate) fn new(tables: TableSet, old: Option<&Self>) -> Self {
        let compiled = |table| Arc::new(compile(&tables, table));
        let matches = Table::ALL.map(compiled);
        Self::with_matches(tables, matches, old)
    }

    /// The generation after `self`, of which `table` alone differs.
    pub(crate) fn updated(&self, tables: TableSet, table: Table) -> Self {
        let mut matches = self.matches.clone();
        matches[table as usize] = Arc::new(compile(&tables, table));
        Self::with_matches(tables, matches, Some(self))
    }

    fn with_matches(
        tables: TableSet,
        matches: [Arc<LongestPrefixMatch>; TABLE_COUNT],
        old: Option<&Self>,
    ) -> Self {
        let hits = Table::ALL.map(|table| match old {
            Some(old) => inherited(&tables, old, table),
            None => vec![0; tables.entries(table)],
        });
        Self { hosts: HostIndex::new(&tables.hosts), matches, hits, tables }
    }

    /// The position of the entry with the longest prefix that covers `address` in `scope`; counts the hit.
    pub(crate) fn lookup(&mut self, table: Table, scope: Option<u32>, address: [u8; 4]) -> Option<usize> {
        let key = u64::from(scope.unwrap_or(0)) << 32 | u64::from(u32::from_be_bytes(address));
        let index = self.matches[table as usize].lookup(key)? as usize;
        self.hits[table as usize][index] += 1;
        Some(index)
    }

    /// Hits of each entry, in the order of the tables.
    pub(crate) fn hits(&self, table: Table) -> &[u64] {
        &self.hits[table as usize]
    }
}

fn compile(tables: &TableSet, table: Table) -> LongestPrefixMatch {
    let rules = tables.rules(table);
    LongestPrefixMatch::new(rules.iter().map(|(matches, _)| {
        let scope = u64::from(matches.scope.unwrap_or(0)) << 32;
        (scope | u64::from(matches.prefix.first()), scope | u64::from(matches.prefix.last()))
    }))
}

fn inherited(tables: &TableSet, old: &Generation, table: Table) -> Vec<u64> {
    let old_rules = old.tables.rules(table);
    let before: BTreeMap<Match, u64> =
        old_rules.iter().map(|(matches, _)| *matches).zip(old.hits(table).iter().copied()).collect();
    let hits = |(matches, _): &(Match, _)| before.get(matches).copied().unwrap_or(0);
    tables.rules(table).iter().map(hits).collect()
}
