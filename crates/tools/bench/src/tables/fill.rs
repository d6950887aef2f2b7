//! The content of the tables: as much as fits, or the minimum that routes.

use crate::switch_links::{CLIENTS, CLIENTS_PREFIX, node_host, sub_prefix};
use nicekv_proto::placement::key_digest;
use nicekv_proto::{KeyDigest, KeyspaceId};
use nicekv_switch::{
    DivisionEntry, GROUP_CAPACITY, HOT_CAPACITY, HostId, HotConfig, HotEntry, MemberSet, MulticastEntry,
    Prefix, RecordEntry, Table, TableSet, UnicastEntry, VringConfig, VringSet,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fill {
    Empty,
    Full,
    /// A keyspace partitioned by range, with one record.
    OneRecord,
    /// The same with as many records as fit, and all other tables full.
    Records,
    /// The same with 4,096 records, all on one node, and other tables empty: it measures the
    /// search.
    RecordsOnly,
    /// A keyspace that spreads its hot keys, as many as fit.
    Hot,
}

/// The rings and the id of the keyspace partitioned by range.
pub(super) const RECORDS: VringConfig =
    VringConfig { unicast: Prefix::new([10, 12, 0, 0], 16), multicast: Prefix::new([10, 13, 0, 0], 16) };
pub(super) const KEYSPACE: KeyspaceId = KeyspaceId(1);

/// The rings of both keyspaces.
pub(super) fn vrings() -> VringSet {
    VringSet::new([VringConfig::DEFAULT, RECORDS]).expect("rings that do not overlap")
}

/// Entries per partition in a full division table.
const DIVISIONS: usize = Table::Division.capacity() / Table::Unicast.capacity();
/// Members of a multicast group.
const REPLICAS: u16 = 3;

/// Random sources and destinations, which no cache can predict: the index of the client's address,
/// and the vnode.
pub(super) fn flows(count: usize) -> impl Iterator<Item = (usize, u16)> {
    let mut random = fastrand::Rng::with_seed(1);
    std::iter::repeat_with(move || (random.usize(..CLIENTS), random.u16(..))).take(count)
}

impl Fill {
    /// The tables of a switch with this many nodes.
    pub(super) fn tables(self, nodes: u16) -> TableSet {
        let tables =
            TableSet { generation: 1, hosts: (1..=nodes).map(node_host).collect(), ..TableSet::default() };
        let VringConfig { unicast, multicast } = VringConfig::DEFAULT;
        match self {
            Self::Empty | Self::Hot => TableSet {
                unicast: vec![to_host(unicast, 0, HostId(1))],
                multicast: vec![to_group(multicast, group(0, nodes))],
                ..tables
            },
            Self::Full => {
                let partitions = 0..Table::Unicast.capacity();
                let unicast = |partition: usize| {
                    to_host(block(unicast, partition), partition as u32, host(partition, nodes))
                };
                let multicast = |partition: usize| {
                    to_group(block(multicast, partition), group(partition % GROUP_CAPACITY, nodes))
                };
                let division = |index: usize| DivisionEntry {
                    partition: (index / DIVISIONS) as u32,
                    source: part_of_clients(index % DIVISIONS),
                    host: host(index / DIVISIONS + index % DIVISIONS + 1, nodes),
                };
                TableSet {
                    unicast: partitions.clone().map(unicast).collect(),
                    division: (0..Table::Division.capacity()).map(division).collect(),
                    multicast: partitions.map(multicast).collect(),
                    ..tables
                }
            }
            Self::OneRecord => TableSet { record: vec![record(0, 0, u128::MAX, nodes)], ..tables },
            Self::Records => {
                TableSet { record: records(Table::Record.capacity(), nodes), ..Self::Full.tables(nodes) }
            }
            Self::RecordsOnly => {
                let RecordEntry { host, members, .. } = record(0, 0, u128::MAX, nodes);
                let moved = |entry| RecordEntry { host, members: members.clone(), ..entry };
                TableSet { record: records(4096, nodes).into_iter().map(moved).collect(), ..tables }
            }
        }
    }

    /// The keyspaces that spread their hot keys.
    pub(super) fn hot_config(self) -> HotConfig {
        let keyspaces = if self == Self::Hot { Vec::from([KeyspaceId::DEFAULT.0]) } else { Vec::new() };
        HotConfig { keyspaces, ..HotConfig::default() }
    }

    /// Entries with instances above `newest`. No copy is ever confirmed: it measures the lookup.
    pub(super) fn hot_entries(self, newest: u64) -> Vec<HotEntry> {
        let entry = |number: usize| HotEntry {
            keyspace: KeyspaceId::DEFAULT.0,
            digest: hot_digest(number).0,
            instance: newest + 1 + number as u64,
            owner_turns: 1,
            holders: Vec::from([HostId(2), HostId(3)]),
            in_switch: false,
        };
        if self == Self::Hot { (0..HOT_CAPACITY).map(entry).collect() } else { Vec::new() }
    }
}

/// The digest of a hot key for each vnode; for numbers beyond the vnodes, of keys that are not hot.
pub(super) fn hot_digest(number: usize) -> KeyDigest {
    let number = if number <= usize::from(u16::MAX) { number % HOT_CAPACITY } else { number };
    key_digest(&number.to_be_bytes())
}

/// `count` records of equal size, which cover all match values.
fn records(count: usize, nodes: u16) -> Vec<RecordEntry> {
    let part = u128::MAX / count as u128;
    let of_part = |number: usize| {
        let first = number as u128 * part;
        let last = if number + 1 == count { u128::MAX } else { first + part - 1 };
        record(number, first, last, nodes)
    };
    (0..count).map(of_part).collect()
}

fn to_host(destination: Prefix, partition: u32, host: HostId) -> UnicastEntry {
    UnicastEntry { destination, partition, host, chain: None }
}

fn to_group(destination: Prefix, members: MemberSet) -> MulticastEntry {
    MulticastEntry { destination, members, chain: None, places: None }
}

fn record(number: usize, first: u128, last: u128, nodes: u16) -> RecordEntry {
    RecordEntry {
        ring: RECORDS.unicast,
        keyspace: KEYSPACE.0,
        first,
        last,
        partition: number as u32,
        host: host(number, nodes),
        members: group(number % GROUP_CAPACITY, nodes),
        chain: None,
    }
}

fn host(number: usize, nodes: u16) -> HostId {
    HostId((number % usize::from(nodes)) as u16 + 1)
}

/// The addresses of a partition in a ring.
fn block(ring: Prefix, partition: usize) -> Prefix {
    sub_prefix(ring, Table::Unicast.capacity().ilog2() as u8, partition as u32)
}

fn part_of_clients(part: usize) -> Prefix {
    sub_prefix(CLIENTS_PREFIX, DIVISIONS.ilog2() as u8, part as u32)
}

/// A different group for each number.
fn group(number: usize, nodes: u16) -> MemberSet {
    let (first, stride) = (number % usize::from(nodes), number / usize::from(nodes) + 1);
    let member = |index: u16| host(first + usize::from(index * index) * stride, nodes);
    MemberSet::new((0..REPLICAS).map(member))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::switch_links::NODES;

    #[test]
    fn full_tables_are_full_and_valid() {
        let vrings = vrings();
        let full = Fill::Full.tables(NODES);
        full.validate(&vrings).unwrap();
        let by_range = Fill::Records.tables(NODES);
        by_range.validate(&vrings).unwrap();
        assert!(Table::ALL.iter().all(|table| by_range.entries(*table) == table.capacity()));
        Fill::OneRecord.tables(NODES).validate(&vrings).unwrap();
        assert_eq!(full.groups().len(), GROUP_CAPACITY);
        assert!(full.multicast.iter().all(|entry| entry.members.as_slice().len() == usize::from(REPLICAS)));
        let empty = Fill::Empty.tables(NODES);
        empty.validate(&vrings).unwrap();
        assert_eq!(Table::ALL.map(|table| empty.entries(table)), [1, 0, 1, 0]);
    }

    #[test]
    fn flows_reach_every_entry() {
        let partitions: std::collections::BTreeSet<u16> =
            flows(1 << 17).map(|(_, vnode)| vnode / 16).collect();
        assert_eq!(partitions.len(), Table::Unicast.capacity());
        assert!(flows(1000).map(|(client, _)| client).max() == Some(CLIENTS - 1));
    }
}
