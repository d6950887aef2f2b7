//! One generation of tables, compiled for lookup, with the hit counts of its entries.
//!
//! An incremental update compiles only the table that changes. The new generation shares the other
//! tables with the one before.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use crate::admission::{self, OPCODES_READ, OPCODES_UPDATE};
use crate::lpm::LongestPrefixMatch;
use crate::range_match::RangeMatch;
use crate::traffic_manager::EgressPort;
use crate::{EntryRequests, HostIndex, Match, MulticastEntry, Prefix, Ring, TABLE_COUNT, Table, TableSet};

#[derive(Clone, Debug)]
pub(crate) struct CompiledTables {
    pub(crate) tables: TableSet,
    pub(crate) hosts: HostIndex,
    /// Egress ports of each entry: of `multicast_vring`, then of `record`.
    egress: [Arc<Vec<Vec<EgressPort>>>; 2],
    matchers: Matchers,
    /// Hits by table and entry, in the order of `tables`.
    hits: [Vec<u64>; TABLE_COUNT],
    /// Client requests in the same order, for tables that match updates. Empty for other tables,
    /// all of whose hits are reads.
    requests: [Vec<EntryRequests>; TABLE_COUNT],
}

/// The compiled match keys.
#[derive(Clone, Debug)]
struct Matchers {
    /// Prefixes by table; empty for tables that do not match addresses.
    prefixes: [Arc<LongestPrefixMatch>; TABLE_COUNT],
    records: Arc<RangeMatch>,
}

impl CompiledTables {
    /// Compiles validated tables. An entry inherits the hit count of the entry in `old` with the
    /// same match.
    pub(crate) fn new(tables: TableSet, old: Option<&Self>) -> Self {
        let prefixes = Table::ALL.map(|table| Arc::new(compile(&tables, table)));
        let matchers = Matchers { prefixes, records: Arc::new(RangeMatch::new(&tables)) };
        let hosts = HostIndex::new(&tables.hosts, &tables.trunks);
        let egress = [Table::Multicast, Table::Record];
        let egress = egress.map(|table| Arc::new(all_egress_ports(&tables, table, &hosts)));
        Self::with_matchers(tables, (hosts, egress), matchers, old)
    }

    /// Compiles the generation after `self`, which differs in `table` only.
    pub(crate) fn updated(&self, tables: TableSet, table: Table) -> Self {
        let mut matchers = self.matchers.clone();
        matchers.prefixes[table as usize] = Arc::new(compile(&tables, table));
        let hosts = self.hosts.clone();
        let mut egress = self.egress.clone();
        match table {
            Table::Multicast => egress[0] = Arc::new(all_egress_ports(&tables, table, &hosts)),
            Table::Record => {
                egress[1] = Arc::new(all_egress_ports(&tables, table, &hosts));
                matchers.records = Arc::new(RangeMatch::new(&tables));
            }
            Table::Unicast | Table::Division => {}
        }
        Self::with_matchers(tables, (hosts, egress), matchers, Some(self))
    }

    fn with_matchers(
        tables: TableSet,
        (hosts, egress): (HostIndex, [Arc<Vec<Vec<EgressPort>>>; 2]),
        matchers: Matchers,
        old: Option<&Self>,
    ) -> Self {
        let hits = Table::ALL.map(|table| match old {
            Some(old) => inherited(&tables, old, table, old.hits(table)),
            None => vec![0; tables.entries(table)],
        });
        let requests = Table::ALL.map(|table| match old {
            _ if !table.matches_updates() => Vec::new(),
            Some(old) => inherited(&tables, old, table, &old.requests[table as usize]),
            None => vec![EntryRequests::default(); tables.entries(table)],
        });
        Self { hosts, egress, matchers, hits, requests, tables }
    }

    /// The egress ports that lead to the members of an entry of `multicast_vring`.
    pub(crate) fn multicast_egress(&self, entry: usize) -> &[EgressPort] {
        &self.egress[0][entry]
    }

    /// The egress ports that lead to the members of an entry of `record`.
    pub(crate) fn record_egress(&self, entry: usize) -> &[EgressPort] {
        &self.egress[1][entry]
    }

    /// The index of the entry with the longest prefix that covers `address` in `scope`; counts the
    /// hit.
    pub(crate) fn lookup(&mut self, table: Table, scope: Option<u32>, address: [u8; 4]) -> Option<usize> {
        let index = self.find(table, scope, address)?;
        self.count_hit(table, index);
        Some(index)
    }

    /// Like [`Self::lookup`], but does not count the hit.
    pub(crate) fn find(&self, table: Table, scope: Option<u32>, address: [u8; 4]) -> Option<usize> {
        let key = u64::from(scope.unwrap_or(0)) << 32 | u64::from(u32::from_be_bytes(address));
        Some(self.matchers.prefixes[table as usize].lookup(key)? as usize)
    }

    pub(crate) fn count_hit(&mut self, table: Table, entry: usize) {
        self.hits[table as usize][entry] += 1;
    }

    /// Whether the keyspace with this unicast ring has records instead of vnodes.
    pub(crate) fn has_records(&self, ring: Prefix) -> bool {
        self.matchers.records.has(ring)
    }

    /// The index of the record that covers a match value; counts the hit.
    pub(crate) fn find_record(&mut self, ring: Prefix, (keyspace, value): (u16, u128)) -> Option<usize> {
        let index = self.matchers.records.find(ring, keyspace, value)?;
        self.hits[Table::Record as usize][index] += 1;
        Some(index)
    }

    /// The last value of the record that covers a match value.
    pub(crate) fn record_end(&self, ring: Prefix, (keyspace, value): (u16, u128)) -> Option<u128> {
        let record = self.matchers.records.find(ring, keyspace, value)?;
        Some(self.tables.record[record].last)
    }

    /// Counts a client request that an entry has matched.
    pub(crate) fn count_request(&mut self, table: Table, entry: usize, ring: Ring, opcode: Option<u8>) {
        let requests = &mut self.requests[table as usize][entry];
        match (ring, opcode) {
            (Ring::Unicast, _) => requests.reads += 1,
            (_, Some(opcode)) if admission::holds(OPCODES_UPDATE, opcode) => requests.updates += 1,
            (_, Some(opcode)) if admission::holds(OPCODES_READ, opcode) => requests.reads += 1,
            _ => {}
        }
    }

    /// Client requests of each entry, in the order of the tables.
    pub(crate) fn requests(&self, table: Table) -> Vec<EntryRequests> {
        if table.matches_updates() {
            return self.requests[table as usize].clone();
        }
        self.hits(table).iter().map(|hits| EntryRequests { reads: *hits, updates: 0 }).collect()
    }

    /// Hits of each entry, in the order of the tables.
    pub(crate) fn hits(&self, table: Table) -> &[u64] {
        &self.hits[table as usize]
    }
}

/// The egress ports of each entry of `multicast_vring` or `record`.
fn all_egress_ports(tables: &TableSet, table: Table, hosts: &HostIndex) -> Vec<Vec<EgressPort>> {
    if table == Table::Record {
        return tables.record.iter().map(|entry| EgressPort::to_group(hosts, &entry.members, None)).collect();
    }
    let ports = |entry: &MulticastEntry| EgressPort::to_group(hosts, &entry.members, entry.places.as_ref());
    tables.multicast.iter().map(ports).collect()
}

fn compile(tables: &TableSet, table: Table) -> LongestPrefixMatch {
    let rules = tables.rules(table);
    LongestPrefixMatch::new(rules.iter().filter_map(|(matches, _)| match matches {
        Match::Address { scope, prefix } => {
            let scope = u64::from(scope.unwrap_or(0)) << 32;
            Some((scope | u64::from(prefix.first()), scope | u64::from(prefix.last())))
        }
        Match::Values { .. } => None,
    }))
}

/// For each entry of `tables`, the count of the entry in `old` with the same match, or zero.
fn inherited<C: Copy + Default>(
    tables: &TableSet,
    old: &CompiledTables,
    table: Table,
    counted: &[C],
) -> Vec<C> {
    let old_rules = old.tables.rules(table);
    let before: BTreeMap<Match, C> =
        old_rules.iter().map(|(matches, _)| *matches).zip(counted.iter().copied()).collect();
    let count = |(matches, _): &(Match, _)| before.get(matches).copied().unwrap_or_default();
    tables.rules(table).iter().map(count).collect()
}
