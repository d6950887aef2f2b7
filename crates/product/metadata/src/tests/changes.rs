//! Nodes are added, drained and removed while puts continue.

use nicekv_proto::placement::KeyspaceSpec;
use nicekv_proto::{KeyspaceId, NodeId};

use super::cluster::{Cluster, config, keyspace, partitions};
use super::node::{Node, address};
use super::scenarios::{is_gone, is_member, partition, puts_go_on, ready};
use crate::{Change, NodeTarget, Plan, Refused};

pub(super) const NEW: NodeId = NodeId(4);

pub(super) fn add(node: NodeId) -> Change {
    let (name, address) = (format!("node-{node}", node = node.0), address(node));
    Change::Add { name, address, mac: [2, 0, 0, 0, 0, node.0 as u8], switch_port: node.0, home: None }
}

pub(super) fn drain(node: NodeId) -> Change {
    Change::Drain { name: format!("node-{}", node.0) }
}

pub(super) fn remove(node: NodeId) -> Change {
    Change::Remove { name: format!("node-{}", node.0) }
}

/// Requests a change. Repeats the request while another step is being persisted, and waits until an
/// accepted change is persisted.
pub(super) fn change(cluster: &mut Cluster, change: &Change) -> Result<Plan, Refused> {
    for _ in 0..100 {
        match cluster.core().change(change) {
            Err(Refused::Busy) => cluster.run(1),
            outcome => {
                cluster.run(if outcome.is_ok() { 20 } else { 0 });
                return outcome;
            }
        }
    }
    panic!("the change was refused as busy for too long");
}

/// A cluster of three nodes, and a fourth node that runs but has not been added.
fn with_a_fourth() -> Cluster {
    let mut cluster = ready(3, 3);
    cluster.nodes.insert(NEW, Node::new(NEW.0, 0));
    cluster.start(NEW);
    cluster
}

pub(super) fn is_settled(cluster: &Cluster) -> bool {
    let status = cluster.status();
    status.ready && status.moves == 0
}

pub(super) fn refused(cluster: &mut Cluster, wanted: &Change, why: &str) {
    let nodes = |cluster: &Cluster| cluster.state().unwrap().nodes;
    let before = nodes(cluster);
    assert_eq!(change(cluster, wanted).unwrap_err().to_string(), why);
    assert_eq!(nodes(cluster), before, "a refused change has no effect");
}

#[test]
fn a_node_is_added_and_takes_its_share() {
    let mut cluster = with_a_fourth();
    cluster.run(100);
    assert!(is_gone(&cluster, NEW), "the node has not been added");
    let plan = cluster.core().plan(&add(NEW)).unwrap();
    let moving: usize = plan.moves.iter().map(|(_, _, count)| count).sum();
    assert!(plan.node == NEW.0 && plan.replicas == 12 && (1..=4).contains(&moving), "{plan:?}");
    assert_eq!(change(&mut cluster, &add(NEW)).unwrap(), plan);
    cluster.run_until(3000, "it has its share", is_settled);
    let held = partitions().filter(|id| is_member(&cluster, *id, NEW)).count();
    assert_eq!(held, moving);
    assert!(partitions().all(|id| partition(&cluster, id).members.len() == 3), "replaced members are gone");
    puts_go_on(&mut cluster);
    // A new leader knows the node, although its configuration does not have it.
    cluster.kill_metadata();
    cluster.start_metadata();
    cluster.run_until(1000, "ready again", is_settled);
    assert_eq!(cluster.status().nodes[3].share, held);
}

#[test]
fn added_node_that_does_not_run_is_waited_for() {
    let mut cluster = with_a_fourth();
    cluster.kill(NEW);
    change(&mut cluster, &add(NEW)).unwrap();
    cluster.run(500);
    assert!(is_gone(&cluster, NEW) && cluster.status().moves > 0);
    puts_go_on(&mut cluster);
    cluster.start(NEW);
    cluster.run_until(3000, "it has its share", is_settled);
}

#[test]
fn drained_node_is_added_again() {
    let mut cluster = with_a_fourth();
    change(&mut cluster, &add(NEW)).unwrap();
    cluster.run_until(3000, "added", is_settled);
    change(&mut cluster, &drain(NodeId(1))).unwrap();
    cluster.run_until(3000, "drained", |cluster| is_settled(cluster) && is_gone(cluster, NodeId(1)));
    let status = &cluster.status().nodes[0];
    assert_eq!((status.desired, status.members, status.share), (NodeTarget::Drained, 0, 0));
    puts_go_on(&mut cluster);
    change(&mut cluster, &add(NodeId(1))).unwrap();
    cluster.run_until(3000, "back", is_settled);
    assert!(partitions().any(|id| is_member(&cluster, id, NodeId(1))));
}

#[test]
fn a_dead_node_is_removed_and_forgotten() {
    let mut cluster = with_a_fourth();
    change(&mut cluster, &add(NEW)).unwrap();
    cluster.run_until(3000, "added", is_settled);
    cluster.kill(NodeId(2));
    cluster.run_until(2000, "out", |cluster| is_gone(cluster, NodeId(2)));
    change(&mut cluster, &remove(NodeId(2))).unwrap();
    let is_forgotten = |cluster: &Cluster| cluster.status().nodes.iter().all(|node| node.id != 2);
    cluster.run_until(3000, "forgotten", |cluster| is_settled(cluster) && is_forgotten(cluster));
    puts_go_on(&mut cluster);
    // The node returns, and its messages are counted as forged.
    let forged = cluster.status().counters.forged;
    cluster.start(NodeId(2));
    cluster.run(500);
    assert!(cluster.status().counters.forged > forged && is_gone(&cluster, NodeId(2)));
    refused(&mut cluster, &remove(NodeId(2)), "there is no node \"node-2\"; see `nicekv node list`");
}

#[test]
fn invalid_change_is_refused() {
    let mut cluster = with_a_fourth();
    let too_few = "without node-1: keyspace \"default\": 3 replicas need at least as many nodes, there are 2";
    refused(&mut cluster, &drain(NodeId(1)), too_few);
    refused(&mut cluster, &remove(NodeId(1)), too_few);
    refused(&mut cluster, &add(NodeId(1)), "node-1 already holds its share");
    let other =
        Change::Add { name: "node-1".into(), address: address(NEW), mac: [2; 6], switch_port: 9, home: None };
    refused(&mut cluster, &other, "node-1 is already a node of this cluster, with other settings");
    let same_port =
        Change::Add { name: "node-4".into(), address: address(NEW), mac: [2; 6], switch_port: 1, home: None };
    refused(&mut cluster, &same_port, "node-4 has the id, address or switch port of another node");
    let nowhere = Change::Add {
        name: "node-4".into(),
        address: address(NEW),
        mac: [2; 6],
        switch_port: 4,
        home: Some(9),
    };
    refused(&mut cluster, &nowhere, "no path of trunks leads from switch 0 to switch 9");
    change(&mut cluster, &add(NEW)).unwrap();
    cluster.run_until(3000, "added", is_settled);
    change(&mut cluster, &drain(NEW)).unwrap();
    refused(&mut cluster, &drain(NEW), "node-4 is already drained");
    change(&mut cluster, &add(NEW)).unwrap();
    change(&mut cluster, &remove(NEW)).unwrap();
    refused(&mut cluster, &add(NEW), "node-4 is already being removed");
}

#[test]
fn new_keyspace_waits_for_enough_nodes() {
    let mut cluster = Cluster::new(config(4, 3), 1);
    cluster.run_until_ready(200);
    change(&mut cluster, &drain(NEW)).unwrap();
    cluster.run_until(3000, "drained", |cluster| is_settled(cluster) && is_gone(cluster, NEW));
    let wide = KeyspaceSpec {
        id: KeyspaceId(1),
        name: "wide".into(),
        unicast: [10, 12, 0, 0].into(),
        multicast: [10, 13, 0, 0].into(),
        ..keyspace(4)
    };
    cluster.config.keyspaces.push(wide);
    cluster.kill_metadata();
    cluster.start_metadata();
    cluster.config.switches.clone().into_iter().for_each(|switch| cluster.restart_switch(switch));
    cluster.run(1000);
    let status = cluster.status();
    let waits = "keyspace wide needs 4 nodes that hold data; the cluster has 3";
    assert_eq!((status.keyspaces.len(), status.why_not_ready.unwrap().as_str()), (1, waits));
    puts_go_on(&mut cluster);
    change(&mut cluster, &add(NEW)).unwrap();
    cluster.run_until(3000, "all is there", is_settled);
    assert_eq!(cluster.status().keyspaces.len(), 2);
}

#[test]
fn dead_sole_holder_is_not_removed() {
    let mut cluster = Cluster::new(config(4, 1), 1);
    cluster.run_until_ready(200);
    let victim = partition(&cluster, partitions().next().unwrap()).primary;
    cluster.kill(victim);
    cluster.run(500);
    let refusal = change(&mut cluster, &remove(victim)).unwrap_err();
    assert!(matches!(refusal, Refused::LastHolder { partitions, .. } if partitions > 0), "{refusal}");
}
