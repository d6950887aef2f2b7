//! Nodes that hold data of quorum keyspaces (R14) are added, drained and removed.

use nicekv_proto::placement::Protocol;
use nicekv_proto::{NodeId, PartitionId};

use super::changes::{NEW, add, change, drain, is_settled, refused, remove};
use super::cluster::{Cluster, config};
use super::node::Node;
use super::scenarios::partition;

/// Three nodes, R = 3, and a fourth node that has been added.
fn with_a_fourth(write_set: u8) -> Cluster {
    let mut config = config(3, 3);
    config.keyspaces[0].protocol = Protocol::Quorum { write_set };
    let mut cluster = Cluster::new(config, 1);
    cluster.run_until_ready(200);
    cluster.nodes.insert(NEW, Node::new(NEW.0, 0));
    cluster.start(NEW);
    change(&mut cluster, &add(NEW)).unwrap();
    cluster.run_until(3000, "added", is_settled);
    cluster
}

fn held(cluster: &Cluster, node: NodeId) -> Vec<PartitionId> {
    let is_there = |id: &PartitionId| partition(cluster, *id).has(node);
    cluster.ids().into_iter().filter(is_there).collect()
}

#[test]
fn quorum_members_follow_the_ring_for_any_write_set() {
    for write_set in 1..=3 {
        let mut cluster = with_a_fourth(write_set);
        assert!(!held(&cluster, NEW).is_empty());
        change(&mut cluster, &drain(NodeId(1))).unwrap();
        cluster
            .run_until(3000, "drained", |cluster| is_settled(cluster) && held(cluster, NodeId(1)).is_empty());
        for id in cluster.ids() {
            let partition = partition(&cluster, id);
            assert!(partition.is_whole() && partition.members.len() == 3, "k = {write_set}: {partition:?}");
        }
        change(&mut cluster, &add(NodeId(1))).unwrap();
        cluster.run_until(3000, "back", is_settled);
        change(&mut cluster, &remove(NodeId(2))).unwrap();
        let is_forgotten = |cluster: &Cluster| cluster.status().nodes.iter().all(|node| node.id != 2);
        cluster.run_until(3000, "forgotten", |cluster| is_settled(cluster) && is_forgotten(cluster));
    }
}

#[test]
fn dead_node_is_removed_if_others_hold_its_data() {
    let mut cluster = with_a_fourth(2);
    cluster.kill(NodeId(2));
    cluster.run(500);
    assert!(!held(&cluster, NodeId(2)).is_empty(), "the dead node stays a member, because it may return");
    change(&mut cluster, &drain(NodeId(2))).unwrap();
    cluster.run(1000);
    assert!(
        !held(&cluster, NodeId(2)).is_empty() && cluster.status().moves > 0,
        "the drain waits for the dead node"
    );
    change(&mut cluster, &remove(NodeId(2))).unwrap();
    let is_forgotten = |cluster: &Cluster| cluster.status().nodes.iter().all(|node| node.id != 2);
    cluster.run_until(3000, "forgotten", |cluster| is_settled(cluster) && is_forgotten(cluster));
}

#[test]
fn dead_node_that_may_be_the_only_holder_is_not_removed() {
    let mut cluster = with_a_fourth(1);
    cluster.kill(NodeId(2));
    cluster.run(500);
    let why = "node-2 is not live, and may be the only node with values of keyspace \"default\", whose write set is 1; bring it back first";
    refused(&mut cluster, &remove(NodeId(2)), why);
    assert_eq!(cluster.core().plan(&remove(NodeId(2))).unwrap_err().to_string(), why);
    // A drained node that is dead is waited for, and so is a node that dies while it is being
    // removed.
    change(&mut cluster, &drain(NodeId(2))).unwrap();
    cluster.run(1000);
    assert!(!held(&cluster, NodeId(2)).is_empty() && cluster.status().moves > 0);
    cluster.start(NodeId(2));
    cluster.run_until(3000, "drained", |cluster| is_settled(cluster) && held(cluster, NodeId(2)).is_empty());
    change(&mut cluster, &remove(NodeId(2))).unwrap();
    let is_forgotten = |cluster: &Cluster| cluster.status().nodes.iter().all(|node| node.id != 2);
    cluster.run_until(3000, "forgotten", is_forgotten);
}
