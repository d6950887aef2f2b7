//! One generation of tables, compiled for lookup, with the hits of its entries.
//!
//! Tables that a change does not touch are shared with the generation before: an incremental update compiles one table.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use nicekv_proto::NodeId;
use nicekv_proto::large::receiver_bit;

use crate::lpm::LongestPrefixMatch;
use crate::records::Records;
use crate::stages::admit::{self, OPCODES_READ, OPCODES_UPDATE};
use crate::tables::{HostIndex, Match, MemberSet, Places};
use crate::{EntryRequests, Hop, HostId, Prefix, Ring, TABLE_COUNT, Table, TableSet};

/// By which port a member of a group is reached, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) port: u16,
    pub(crate) hop: Hop,
    /// Those of who is reached so, in a group whose addresses have masks; else all.
    places: u16,
}

/// Who of an entry's members is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receivers {
    /// Hosts with these bits ([`receiver_bit`]). Who is behind a trunk is known to the switch there.
    Named(u16),
    /// Members in these places, also behind trunks.
    Placed(u16),
}

impl Way {
    /// Whether a copy goes there that is for these receivers.
    pub(crate) fn is_for(&self, receivers: Receivers) -> bool {
        match receivers {
            Receivers::Named(bits) => {
                self.hop.host().is_none_or(|host| bits & receiver_bit(NodeId(host.0)) != 0)
            }
            Receivers::Placed(places) => self.places & places != 0,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Generation {
    pub(crate) tables: TableSet,
    pub(crate) hosts: HostIndex,
    /// Per entry of `multicast_vring`, and of `record`: each port once.
    ways: [Arc<Vec<Vec<Way>>>; 2],
    compiled: Compiled,
    /// Per table, per entry in the order of `tables`.
    hits: [Vec<u64>; TABLE_COUNT],
    /// Of those whose entries serve multicast rings; nothing in the others.
    requests: [Vec<EntryRequests>; TABLE_COUNT],
}

/// What entries match.
#[derive(Clone, Debug)]
struct Compiled {
    /// Per table that matches addresses; nothing in the others.
    prefixes: [Arc<LongestPrefixMatch>; TABLE_COUNT],
    records: Arc<Records>,
}

impl Generation {
    /// Compiles validated tables. Hits of an entry that `old` has already (same match) go on counting.
    pub(crate) fn new(tables: TableSet, old: Option<&Self>) -> Self {
        let prefixes = Table::ALL.map(|table| Arc::new(compile(&tables, table)));
        let compiled = Compiled { prefixes, records: Arc::new(Records::new(&tables)) };
        let hosts = HostIndex::new(&tables.hosts, &tables.trunks);
        let ways = [Table::Multicast, Table::Record].map(|table| Arc::new(all_ways(&tables, table, &hosts)));
        Self::with_compiled(tables, (hosts, ways), compiled, old)
    }

    /// The generation after `self`, of which `table` alone differs.
    pub(crate) fn updated(&self, tables: TableSet, table: Table) -> Self {
        let mut compiled = self.compiled.clone();
        compiled.prefixes[table as usize] = Arc::new(compile(&tables, table));
        let hosts = self.hosts.clone();
        let mut ways = self.ways.clone();
        match table {
            Table::Multicast => ways[0] = Arc::new(all_ways(&tables, table, &hosts)),
            Table::Record => {
                ways[1] = Arc::new(all_ways(&tables, table, &hosts));
                compiled.records = Arc::new(Records::new(&tables));
            }
            Table::Unicast | Table::Division => {}
        }
        Self::with_compiled(tables, (hosts, ways), compiled, Some(self))
    }

    fn with_compiled(
        tables: TableSet,
        (hosts, ways): (HostIndex, [Arc<Vec<Vec<Way>>>; 2]),
        compiled: Compiled,
        old: Option<&Self>,
    ) -> Self {
        let hits = Table::ALL.map(|table| match old {
            Some(old) => inherited(&tables, old, table, old.hits(table)),
            None => vec![0; tables.entries(table)],
        });
        let requests = Table::ALL.map(|table| match old {
            _ if !table.is_of_updates() => Vec::new(),
            Some(old) => inherited(&tables, old, table, &old.requests[table as usize]),
            None => vec![EntryRequests::default(); tables.entries(table)],
        });
        Self { hosts, ways, compiled, hits, requests, tables }
    }

    /// The ways to the members of an entry of `multicast_vring`.
    pub(crate) fn ways(&self, entry: usize) -> &[Way] {
        &self.ways[0][entry]
    }

    /// The ways to the members of an entry of `record`.
    pub(crate) fn ways_of_record(&self, entry: usize) -> &[Way] {
        &self.ways[1][entry]
    }

    /// The way to one host.
    pub(crate) fn way_to(&self, host: HostId) -> Way {
        way(&self.hosts, host)
    }

    /// The position of the entry with the longest prefix that covers `address` in `scope`; counts the hit.
    pub(crate) fn lookup(&mut self, table: Table, scope: Option<u32>, address: [u8; 4]) -> Option<usize> {
        let index = self.find(table, scope, address)?;
        self.count_hit(table, index);
        Some(index)
    }

    /// The same; counts nothing.
    pub(crate) fn find(&self, table: Table, scope: Option<u32>, address: [u8; 4]) -> Option<usize> {
        let key = u64::from(scope.unwrap_or(0)) << 32 | u64::from(u32::from_be_bytes(address));
        Some(self.compiled.prefixes[table as usize].lookup(key)? as usize)
    }

    pub(crate) fn count_hit(&mut self, table: Table, entry: usize) {
        self.hits[table as usize][entry] += 1;
    }

    /// Whether the keyspace of this unicast ring is matched by records.
    pub(crate) fn has_records(&self, ring: Prefix) -> bool {
        self.compiled.records.has(ring)
    }

    /// The position of the record of a match value; counts the hit.
    pub(crate) fn find_record(&mut self, ring: Prefix, (keyspace, value): (u16, u128)) -> Option<usize> {
        let index = self.compiled.records.find(ring, keyspace, value)?;
        self.hits[Table::Record as usize][index] += 1;
        Some(index)
    }

    /// The last value of the record of a match value.
    pub(crate) fn border(&self, ring: Prefix, (keyspace, value): (u16, u128)) -> Option<u128> {
        let record = self.compiled.records.find(ring, keyspace, value)?;
        Some(self.tables.record[record].last)
    }

    /// Counts a request of a client that an entry has matched.
    pub(crate) fn count_request(&mut self, table: Table, entry: usize, ring: Ring, opcode: Option<u8>) {
        let requests = &mut self.requests[table as usize][entry];
        match (ring, opcode) {
            (Ring::Unicast, _) => requests.reads += 1,
            (_, Some(opcode)) if admit::holds(OPCODES_UPDATE, opcode) => requests.updates += 1,
            (_, Some(opcode)) if admit::holds(OPCODES_READ, opcode) => requests.reads += 1,
            _ => {}
        }
    }

    /// Requests of each entry, likewise.
    pub(crate) fn requests(&self, table: Table) -> Vec<EntryRequests> {
        if table.is_of_updates() {
            return self.requests[table as usize].clone();
        }
        self.hits(table).iter().map(|hits| EntryRequests { reads: *hits, updates: 0 }).collect()
    }

    /// Hits of each entry, in the order of the tables.
    pub(crate) fn hits(&self, table: Table) -> &[u64] {
        &self.hits[table as usize]
    }
}

/// Of `multicast_vring`, or of `record`.
fn all_ways(tables: &TableSet, table: Table, hosts: &HostIndex) -> Vec<Vec<Way>> {
    if table == Table::Record {
        return tables.record.iter().map(|entry| ways_to(hosts, &entry.members, None)).collect();
    }
    tables.multicast.iter().map(|entry| ways_to(hosts, &entry.members, entry.places.as_ref())).collect()
}

/// Each port once, with the places of all who are reached by it.
fn ways_to(hosts: &HostIndex, members: &MemberSet, places: Option<&Places>) -> Vec<Way> {
    let mut ways: Vec<Way> = match places {
        Some(places) => {
            places.masks(members).map(|(member, places)| Way { places, ..way(hosts, member) }).collect()
        }
        None => members.as_slice().iter().map(|member| way(hosts, *member)).collect(),
    };
    ways.sort_unstable_by_key(|way| way.hop);
    ways.dedup_by(|next, kept| {
        let is_same = next.hop == kept.hop;
        kept.places |= if is_same { next.places } else { 0 };
        is_same
    });
    ways
}

fn way(hosts: &HostIndex, id: HostId) -> Way {
    let host = hosts.get(id).expect("validated tables know every host they name");
    let hop = if host.is_remote { Hop::Trunk(host.port) } else { Hop::Host(id) };
    Way { port: host.port, hop, places: u16::MAX }
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

/// What the entries of `old` have counted, for those of `tables` that match the same.
fn inherited<C: Copy + Default>(tables: &TableSet, old: &Generation, table: Table, counted: &[C]) -> Vec<C> {
    let old_rules = old.tables.rules(table);
    let before: BTreeMap<Match, C> =
        old_rules.iter().map(|(matches, _)| *matches).zip(counted.iter().copied()).collect();
    let count = |(matches, _): &(Match, _)| before.get(matches).copied().unwrap_or_default();
    tables.rules(table).iter().map(count).collect()
}
