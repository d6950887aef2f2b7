//! Spares of chains (C8): a node that replaces an absent original copies everything, and is then a
//! member like any other. Five nodes, three replicas.

use nicekv_proto::control::MemberRole;
use nicekv_proto::placement::{KeyspaceSpec, Protocol};
use nicekv_proto::{Duration, NodeId, PartitionId};

use super::cluster::{Cluster, config, keyspace, partitions};
use super::scenarios::{is_gone, partition, puts_go_on};
use crate::Health;
use crate::state::{Partition, Standing};

const P0: PartitionId = PartitionId(0);

fn ready() -> Cluster {
    let mut config = config(5, 3);
    config.timing.handoff_delay = Some(Duration::from_millis(200));
    config.keyspaces = vec![KeyspaceSpec { protocol: Protocol::Chain, ..keyspace(3) }];
    let mut cluster = Cluster::new(config, 1);
    cluster.run_until_ready(300);
    cluster
}

fn order(cluster: &Cluster) -> Vec<NodeId> {
    partition(cluster, P0).members.iter().map(|member| member.node).collect()
}

fn is_spare_serving(partition: &Partition) -> bool {
    let last = partition.members.last().unwrap();
    partition.members.len() == 3
        && !partition.originals.contains(&last.node)
        && last.standing == Standing::Serving
}

/// Kills the node at this place of the chain, and waits until a spare serves instead. Returns both
/// nodes.
fn replaced(cluster: &mut Cluster, place: usize) -> (NodeId, NodeId) {
    let away = order(cluster)[place];
    cluster.kill(away);
    cluster.run_until(400, "removed", |cluster| is_gone(cluster, away));
    assert_eq!(order(cluster).len(), 2, "a failover waits for no spare");
    let took = cluster.run_until(400, "a spare", |cluster| order(cluster).len() == 3);
    assert!((190..230).contains(&took), "{took} ms");
    let with_spare = partition(cluster, P0);
    let spare = with_spare.members[2];
    assert_eq!((with_spare.role(&spare), spare.handoff), (MemberRole::Newcomer, false));
    assert!(with_spare.tail() != spare.node, "the spare has no data yet");
    cluster.run_until(400, "the spare serves", |cluster| is_spare_serving(&partition(cluster, P0)));
    (away, spare.node)
}

#[test]
fn spare_joins_at_the_tail_and_leaves_when_the_original_has_copied() {
    for place in 0..3 {
        let mut cluster = ready();
        let before = order(&cluster);
        let (away, spare) = replaced(&mut cluster, place);
        assert_eq!(partition(&cluster, P0).tail(), spare);
        // A chain's tables depend on its epoch (C5), and switches are waited for (C7).
        cluster.run(60);
        assert!(cluster.is_routed(P0, spare), "the tail answers the gets");
        let status = cluster.status().partitions.into_iter().find(|it| it.id == P0.0).unwrap();
        let shown = status.members.last().unwrap();
        assert_eq!((status.health, shown.handoff, shown.leaving), (Health::Covered, true, false));
        puts_go_on(&mut cluster);
        assert!(!cluster.status().ready, "an original is absent");

        cluster.start(away);
        cluster.run_until(400, "original and spare are members", |cluster| order(cluster).len() == 4);
        assert_eq!(order(&cluster)[2..], [spare, away], "a joiner is last in the chain");
        cluster.run_until_ready(900);
        let mut after = before;
        after.retain(|node| *node != away);
        after.push(away);
        assert_eq!((order(&cluster), partition(&cluster, P0).tail()), (after, away));
        assert!(!cluster.is_routed(P0, spare));
        puts_go_on(&mut cluster);
    }
}

#[test]
fn complete_spare_may_lead_and_be_the_last_member() {
    let mut cluster = ready();
    let (away, spare) = replaced(&mut cluster, 1);
    let others = order(&cluster)[..2].to_vec();
    for node in &others {
        cluster.kill(*node);
        cluster.run_until(500, "removed", |cluster| is_gone(cluster, *node));
    }
    assert_eq!(partition(&cluster, P0).primary, spare);
    cluster.run(300);
    assert!(!order(&cluster).iter().any(|node| others.contains(node)));
    for node in others.into_iter().chain([away]) {
        cluster.start(node);
    }
    cluster.run_until_ready(3000);
    let is_settled = |cluster: &Cluster, id| {
        let partition = partition(cluster, id);
        partition.members.iter().all(|member| partition.originals.contains(&member.node))
    };
    cluster.run_until(100, "no spares", |cluster| partitions().all(|id| is_settled(cluster, id)));
    cluster.run_until_ready(3000);
    puts_go_on(&mut cluster);
}

/// A spare that returns as another process, or with another disk, is not a spare any more, and
/// another node replaces it.
#[test]
fn dead_spare_is_replaced() {
    let mut cluster = ready();
    let away = order(&cluster)[2];
    cluster.kill(away);
    cluster.run_until(700, "a spare", |cluster| {
        let partition = partition(cluster, P0);
        partition.members.len() == 3 && !partition.members[2].standing.is_consistent()
    });
    let spare = order(&cluster)[2];
    cluster.kill(spare);
    cluster.nodes.get_mut(&spare).unwrap().wipe();
    cluster.run_until(800, "another spare serves", |cluster| is_spare_serving(&partition(cluster, P0)));
    assert_ne!(order(&cluster)[2], spare);
    for node in [spare, away] {
        cluster.start(node);
    }
    cluster.run_until_ready(3000);
    puts_go_on(&mut cluster);
}
