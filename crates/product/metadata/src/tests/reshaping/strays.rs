//! Stray partitions, which a node has found on its disk without an assignment, because it restarted
//! with an older disk (R16).

use nicekv_proto::control::{Assign, Report, ReportKind};
use nicekv_proto::{Datagram, Epoch, Now, Replication};

use super::*;
use crate::tests::node::encode;
use crate::tests::scenarios::partition;

/// The assignment that the node gets when it reports the partition.
fn told(cluster: &mut Cluster, node: u16, partition: u32) -> Option<Assign> {
    let node = NodeId(node);
    let incarnation = cluster.nodes[&node].running.as_ref().unwrap().process.incarnation;
    let kind = ReportKind::Stray(Replication::Multicast);
    let (partition, epoch) = (PartitionId(partition), Epoch::default());
    let report = encode(|out| Report { node, incarnation, partition, epoch, kind }.encode(out));
    let now = Now { boot_ns: cluster.now_ns, unix_ms: 0 };
    let core = cluster.core();
    core.handle_datagram(now, address(node), &report);
    core.handle_batch_end(now);
    let (mut bytes, mut told) = (Vec::new(), None);
    while let Some(to) = core.poll_transmit(&mut bytes) {
        if let (_, Datagram::Assign(assign)) = Datagram::decode(&bytes).unwrap()
            && to == address(node)
            && assign.partition == partition
        {
            told = Some(assign);
        }
    }
    told
}

#[test]
fn unneeded_stray_is_discarded() {
    let mut cluster = ready(4, 3);
    let first = partition(&cluster, PartitionId(0));
    let outside = (1..=4).find(|node| !first.has(NodeId(*node))).unwrap();
    let member = first.members[0].node.0;
    let discarded = told(&mut cluster, outside, 0).unwrap();
    assert!(discarded.discard && discarded.epoch == first.epoch());
    assert_eq!(told(&mut cluster, member, 0), None, "a member needs its data");
    assert_eq!(told(&mut cluster, outside, 99), None, "a newer state may have given this id");

    begin(&mut cluster, &split(0));
    reach(&mut cluster, ReshapingPhase::Forming);
    let forming = partition(&cluster, PartitionId(0)).forming.unwrap();
    let child = forming.children[0].partition.0;
    assert_eq!(told(&mut cluster, member, child), None, "the child will be created");
    finish(&mut cluster);
    let gone = told(&mut cluster, member, 0).unwrap();
    assert!(gone.discard && gone.members.is_empty());

    let first = partition(&cluster, PartitionId(1));
    let outside = (1..=4).find(|node| !first.has(NodeId(*node))).unwrap();
    let away = first.members[0].node;
    cluster.kill(away);
    cluster.run_until(1000, "a member is removed", |cluster| {
        partition(cluster, PartitionId(1)).member(away).is_none()
    });
    assert_eq!(told(&mut cluster, outside, 1), None, "a replica is missing, so the data may be needed");
}
