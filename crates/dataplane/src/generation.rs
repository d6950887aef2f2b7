//! One generation of tables, compiled for lookup, with the hits of its entries.
//!
//! Tables that a change does not touch are shared with the generation before: an incremental update compiles one table.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use crate::lpm::LongestPrefixMatch;
use crate::tables::{HostIndex, Match};
use crate::{Hop, HostId, TABLE_COUNT, Table, TableSet};

/// By which port a member of a group is reached, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) port: u16,
    pub(crate) hop: Hop,
}

#[derive(Clone, Debug)]
pub(crate) struct Generation {
    pub(crate) tables: TableSet,
    pub(crate) hosts: HostIndex,
    /// Per entry of `multicast_vring`: each port once.
    ways: Arc<Vec<Vec<Way>>>,
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
        let hosts = HostIndex::new(&tables.hosts);
        let ways = Arc::new(all_ways(&tables, &hosts));
        Self::with_matches(tables, (hosts, ways), matches, old)
    }

    /// The generation after `self`, of which `table` alone differs.
    pub(crate) fn updated(&self, tables: TableSet, table: Table) -> Self {
        let mut matches = self.matches.clone();
        matches[table as usize] = Arc::new(compile(&tables, table));
        let hosts = self.hosts.clone();
        let ways = match table {
            Table::Multicast => Arc::new(all_ways(&tables, &hosts)),
            _ => self.ways.clone(),
        };
        Self::with_matches(tables, (hosts, ways), matches, Some(self))
    }

    fn with_matches(
        tables: TableSet,
        (hosts, ways): (HostIndex, Arc<Vec<Vec<Way>>>),
        matches: [Arc<LongestPrefixMatch>; TABLE_COUNT],
        old: Option<&Self>,
    ) -> Self {
        let hits = Table::ALL.map(|table| match old {
            Some(old) => inherited(&tables, old, table),
            None => vec![0; tables.entries(table)],
        });
        Self { hosts, ways, matches, hits, tables }
    }

    /// The ways to the members of an entry of `multicast_vring`.
    pub(crate) fn ways(&self, entry: usize) -> &[Way] {
        &self.ways[entry]
    }

    /// The way to one host.
    pub(crate) fn way_to(&self, host: HostId) -> Way {
        way(&self.hosts, host)
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

fn all_ways(tables: &TableSet, hosts: &HostIndex) -> Vec<Vec<Way>> {
    let of_members = |members: &[HostId]| {
        let mut ways: Vec<Way> = members.iter().map(|member| way(hosts, *member)).collect();
        ways.sort_unstable_by_key(|way| way.hop);
        ways.dedup();
        ways
    };
    tables.multicast.iter().map(|entry| of_members(entry.members.as_slice())).collect()
}

fn way(hosts: &HostIndex, id: HostId) -> Way {
    let host = hosts.get(id).expect("validated tables know every host they name");
    let hop = if host.is_remote { Hop::Trunk(host.port) } else { Hop::Host(id) };
    Way { port: host.port, hop }
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
