//! Chains are split and merged like other partitions, and the children are chains in the same order
//! (C10).

use nicekv_proto::placement::{KeyspaceSpec, Protocol};
use nicekv_proto::{NodeId, PartitionId};

use super::super::cluster::{Cluster, config, keyspace};
use super::{begin, finish, layout, merge, split, state};

fn of_chains() -> Cluster {
    let mut config = config(3, 3);
    config.keyspaces = vec![KeyspaceSpec { protocol: Protocol::Chain, ..keyspace(3) }];
    let mut cluster = Cluster::new(config, 1);
    cluster.run_until_ready(3000);
    cluster
}

/// A partition's members in their order, its primary, and whether its epoch is activated.
fn chain(cluster: &Cluster, partition: u32) -> (Vec<NodeId>, NodeId, bool) {
    let state = state(cluster);
    let partition = state.partition(PartitionId(partition)).unwrap();
    (partition.members.iter().map(|member| member.node).collect(), partition.primary, partition.activated)
}

#[test]
fn children_of_a_chain_keep_its_order() {
    let mut cluster = of_chains();
    // A member that returns without data is last in the chain, whatever the ring's order is.
    let (before, head, _) = chain(&cluster, 1);
    cluster.kill(head);
    cluster.run(400);
    cluster.nodes.get_mut(&head).unwrap().wipe();
    cluster.start(head);
    cluster.run_until_ready(3000);
    let order: Vec<NodeId> = before[1..].iter().copied().chain([head]).collect();
    assert_eq!(chain(&cluster, 1), (order.clone(), order[0], true));
    begin(&mut cluster, &split(1));
    finish(&mut cluster);
    assert_eq!(layout(&cluster), [(0, 0), (0x4000, 4), (0x6000, 5), (0x8000, 2), (0xc000, 3)]);
    for child in [4, 5] {
        assert_eq!(chain(&cluster, child), (order.clone(), order[0], true));
    }
    // Two partitions with the same members in different orders are merged in the order of the first
    // one.
    let (second, ..) = chain(&cluster, 2);
    assert_ne!(second, order);
    begin(&mut cluster, &merge(5, 2));
    finish(&mut cluster);
    assert_eq!(chain(&cluster, 6), (order.clone(), order[0], true));
}

/// A child is activated only after all its members have acknowledged it, because one of them was
/// the tail of another chain (C7).
#[test]
fn new_partition_is_not_served_before_all_members_know_it() {
    let mut cluster = of_chains();
    begin(&mut cluster, &split(0));
    cluster.run_until(3000, "children", |cluster| state(cluster).partition(PartitionId(4)).is_some());
    assert!(!chain(&cluster, 4).2 && !chain(&cluster, 5).2);
    finish(&mut cluster);
    assert!(chain(&cluster, 4).2 && chain(&cluster, 5).2);
}
