//! A range-partitioned keyspace: its tables, and the requests that it allows. Carrying out a split
//! does not depend on where it is.

use nicekv_proto::KeyspaceId;
use nicekv_proto::placement::{KeyOrder, KeyspaceSpec};

use super::super::cluster::{Cluster, config, keyspace};
use super::{begin, split};
use crate::{MatchValue, PartitionChange};

fn by_range() -> Cluster {
    let mut config = config(3, 3);
    config.keyspaces.push(KeyspaceSpec {
        id: KeyspaceId(1),
        name: "orders".into(),
        order: KeyOrder::Range,
        partitions: 2,
        unicast: [10, 12, 0, 0].into(),
        multicast: [10, 13, 0, 0].into(),
        ..keyspace(3)
    });
    let mut cluster = Cluster::new(config, 1);
    cluster.run_until_ready(3000);
    cluster
}

/// The records of a switch: first and last match value, and partition, ascending.
fn records(cluster: &Cluster) -> Vec<(u128, u128, u32)> {
    let tables = cluster.switches.values().next().unwrap().tables.as_ref().unwrap();
    let mut records: Vec<_> = tables.record.iter().map(|it| (it.first, it.last, it.partition)).collect();
    records.sort_unstable();
    records
}

fn at(partition: u32, value: u128) -> PartitionChange {
    PartitionChange::SplitAt { partition, first: MatchValue(value) }
}

#[test]
fn partitions_are_split_at_any_value_and_have_records_instead_of_vnodes() {
    let mut cluster = by_range();
    let (half, cut) = (1 << 127, (0x6d << 120) + 1);
    assert_eq!(records(&cluster), [(0, half - 1, 4), (half, u128::MAX, 5)]);
    let tables = cluster.switches.values().next().unwrap().tables.clone().unwrap();
    assert_eq!(
        (tables.unicast.len(), tables.multicast.len()),
        (4, 4),
        "only the default keyspace has vnode entries"
    );
    assert!(tables.record.iter().all(|it| it.keyspace == 1 && it.members.as_slice().len() == 3));

    let plan = cluster.core().plan_partitions(&at(4, cut)).unwrap();
    let children = [(0, cut - 1), (cut, half - 1)].map(|(first, last)| (MatchValue(first), MatchValue(last)));
    assert_eq!((plan.children.as_slice(), plan.by_range), (&children[..], true));
    assert_eq!(plan.moves, [], "three nodes hold every partition, so nothing moves");
    // The second half may consist of only the last match value.
    let plan = cluster.core().plan_partitions(&at(5, u128::MAX)).unwrap();
    assert_eq!(plan.children[1], (MatchValue(u128::MAX), MatchValue(u128::MAX)));
    // Without a given value a partition is split in the middle.
    let plan = cluster.core().plan_partitions(&split(4)).unwrap();
    assert_eq!(plan.children[1].0, MatchValue(1 << 126));
    for (wanted, why) in [
        (at(5, half), "its second half cannot begin at 80000000000000000000000000000000"),
        (at(4, half), "its second half cannot begin at 80000000000000000000000000000000"),
        (at(4, 0), "its second half cannot begin at 00000000000000000000000000000000"),
        (at(0, 5), "partition 0 of keyspace \"default\" has hashed keys; give a vnode to split at"),
    ] {
        let refused = cluster.core().change_partitions(&wanted).unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
    let reshaping = begin(&mut cluster, &at(4, cut));
    assert_eq!(super::state(&cluster).reshapings[0].at, Some(cut), "{reshaping:?}");
}
