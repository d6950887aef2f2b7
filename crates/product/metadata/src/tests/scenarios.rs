//! Single failures and their consequences. Times are in milliseconds: heartbeat 40, suspicion after
//! 120, lease wait 169.

use nicekv_proto::control::{DiskSpace, Heartbeat};
use nicekv_proto::{Duration, NodeId, Now, PartitionId};

use super::cluster::{Cluster, config, pair, partitions};
use super::node::{address, encode};
use crate::state::{Partition, State};
use crate::{ConfigError, MemberStatusState, Metadata, NodeState, PartitionState, StateError, SwitchId};

const SWITCHES: [SwitchId; 2] = [SwitchId(0), SwitchId(1)];

pub(super) fn ready(nodes: u16, replicas: usize) -> Cluster {
    let mut cluster = Cluster::new(config(nodes, replicas), 1);
    cluster.run_until_ready(200);
    cluster
}

pub(super) fn partition(cluster: &Cluster, id: PartitionId) -> Partition {
    cluster.state().unwrap().partition(id).unwrap().clone()
}

pub(super) fn epochs(cluster: &Cluster) -> Vec<u32> {
    partitions().map(|id| partition(cluster, id).epoch).collect()
}

pub(super) fn is_member(cluster: &Cluster, id: PartitionId, node: NodeId) -> bool {
    partition(cluster, id).member(node).is_some()
}

pub(super) fn is_gone(cluster: &Cluster, node: NodeId) -> bool {
    partitions().all(|id| !is_member(cluster, id, node) && !cluster.is_routed(id, node))
}

#[track_caller]
pub(super) fn puts_go_on(cluster: &mut Cluster) {
    let before = cluster.acknowledged.clone();
    cluster.run(3);
    assert!(partitions().all(|id| cluster.acknowledged[&id] > before[&id]), "every partition takes puts");
}

#[test]
fn bootstrap_waits_for_all_nodes() {
    let mut cluster = Cluster::new(config(3, 3), 1);
    cluster.kill(NodeId(2));
    cluster.run(300);
    let status = cluster.status();
    assert!(!status.ready && status.partitions.is_empty());
    assert_eq!(status.why_not_ready.as_deref(), Some("waiting for node-2 to start for the first time"));

    cluster.start(NodeId(2));
    let took = cluster.run_until_ready(200);
    assert!(took < 150, "{took} ms");
    assert_eq!(epochs(&cluster), [1; 4]);
    puts_go_on(&mut cluster);
    let status = cluster.status();
    assert!(status.nodes.iter().all(|node| node.state == NodeState::Live));
    assert!(status.partitions.iter().all(|partition| {
        partition.state == PartitionState::Active
            && partition.members.len() == 3
            && partition.members.iter().all(|member| member.state == MemberStatusState::Consistent)
    }));
    // Gets of each partition are divided among three members.
    for id in partitions() {
        assert!(cluster.node_ids().iter().all(|node| cluster.is_routed(id, *node)));
    }
    cluster.run(250);
    let tables = cluster.status().tables;
    let entries: Vec<_> = tables.iter().map(|table| (table.name.as_str(), table.entries)).collect();
    assert_eq!(entries[0], ("unicast_vring", 4));
    assert_eq!(entries[2], ("multicast_vring", 4));
    // The client addresses have four parts per partition, one or two of which are the primary's.
    assert!(entries[1].0 == "division" && (8..=12).contains(&entries[1].1), "{entries:?}");
    let json = serde_json::to_value(cluster.status()).unwrap();
    assert_eq!(json["nodes"][0]["state"], "live");
    assert_eq!(json["partitions"][0]["members"][0]["state"], "consistent");
}

#[test]
fn a_dead_secondary_is_removed_and_returns() {
    let mut cluster = ready(3, 3);
    let id = PartitionId(0);
    let primary = partition(&cluster, id).primary;
    let dead = cluster.node_ids().into_iter().find(|node| *node != primary).unwrap();
    cluster.kill(dead);
    let took = cluster.run_until(400, "activated without it", |cluster| {
        let partition = partition(cluster, id);
        partition.member(dead).is_none() && partition.activated
    });
    assert!(took < 200, "{took} ms");
    cluster.run(10);
    assert!(is_gone(&cluster, dead));
    assert_eq!(partition(&cluster, id).primary, primary);
    puts_go_on(&mut cluster);
    assert_eq!(cluster.status().why_not_ready.as_deref(), Some("partition 0: 2 of 3 members are consistent"));

    cluster.start(dead);
    cluster.run_until(200, "joining", |cluster| is_member(cluster, id, dead));
    assert!(!partition(&cluster, id).member(dead).unwrap().standing.is_consistent());
    cluster.run_until_ready(500);
    assert!(partitions().all(|id| cluster.is_routed(id, dead)));
    puts_go_on(&mut cluster);
}

#[test]
fn a_dead_primary_is_replaced_by_a_consistent_member() {
    let mut cluster = ready(5, 3);
    let before = cluster.state().unwrap();
    let dead = before.partition(PartitionId(0)).unwrap().primary;
    cluster.kill(dead);
    cluster.run_until(400, "replaced", |cluster| is_gone(cluster, dead));
    cluster.run(20);
    for (id, old) in before.partitions() {
        let new = partition(&cluster, id);
        assert!(old.member(new.primary).unwrap().standing.is_consistent());
        let touched = old.member(dead).is_some();
        assert_eq!(new.epoch, if touched { 2 } else { 1 }, "only its partitions change");
    }
    puts_go_on(&mut cluster);
}

#[test]
fn two_dead_nodes_leave_the_last() {
    let mut cluster = ready(3, 3);
    cluster.kill(NodeId(1));
    cluster.run(5);
    cluster.kill(NodeId(2));
    let last = |cluster: &Cluster| {
        partitions().all(|id| {
            let partition = partition(cluster, id);
            partition.primary == NodeId(3) && partition.members.len() == 1 && partition.activated
        })
    };
    cluster.run_until(500, "one is left", last);
    cluster.run(10);
    // The last member answers gets, but puts need R - 1 members.
    assert!(partitions().all(|id| cluster.nodes[&NodeId(3)].answers(id, cluster.now_ns)));
    // The last member is not removed when it dies.
    cluster.kill(NodeId(3));
    cluster.run(1000);
    assert!(last(&cluster));
    assert!(cluster.status().partitions.iter().all(|partition| partition.state == PartitionState::Waiting));
    // Another node that returns is not a substitute for it.
    cluster.start(NodeId(1));
    cluster.run(1000);
    assert!(last(&cluster));
    cluster.start(NodeId(3));
    cluster.start(NodeId(2));
    cluster.run_until_ready(1500);
}

#[test]
fn a_false_suspicion_heals() {
    let mut cluster = ready(3, 3);
    let (id, muted) = (PartitionId(0), NodeId(2));
    cluster.mute.insert(muted);
    cluster.run_until(400, "suspected", |cluster| !is_member(cluster, id, muted));
    cluster.mute.clear();
    cluster.run_until_ready(500);
    // Three epochs: removed, joined, consistent.
    assert_eq!(epochs(&cluster), [4; 4]);
}

/// docs/FAULTS.md row 12, both directions: detected within three heartbeats and the time to report
/// it.
#[test]
fn deaf_node_is_deposed_as_fast_as_a_mute_one() {
    let deposed = |cut: fn(&mut Cluster, NodeId), mend: fn(&mut Cluster)| {
        let mut cluster = ready(3, 3);
        let primary = partition(&cluster, PartitionId(0)).primary;
        cut(&mut cluster, primary);
        let took = cluster.run_until(2000, "deposed", |cluster| is_gone(cluster, primary));
        cluster.run(1000);
        assert!(is_gone(&cluster, primary), "a node that works in one direction only does not return");
        puts_go_on(&mut cluster);
        mend(&mut cluster);
        cluster.run_until_ready(500);
        took
    };
    let mute = deposed(|cluster, node| cluster.mute = [node].into(), |cluster| cluster.mute.clear());
    let deaf = deposed(|cluster, node| cluster.deaf = [node].into(), |cluster| cluster.deaf.clear());
    assert!(mute <= 150 && deaf <= 200, "{mute} and {deaf} ms");
}

#[test]
fn probes_make_up_for_lost_heartbeats() {
    let mut cluster = ready(3, 3);
    // It is unlikely that three heartbeats in a row and the probes between them are lost.
    cluster.loss_percent = 25;
    cluster.run(4000);
    cluster.loss_percent = 0;
    let suspicions: u32 = epochs(&cluster).iter().sum::<u32>() - 4;
    assert!(suspicions < 4 * 10, "{suspicions} new epochs in 100 heartbeats");
}

#[test]
fn one_of_two_nodes_that_cannot_communicate_is_removed() {
    let mut cluster = ready(3, 3);
    let id = PartitionId(0);
    let primary = partition(&cluster, id).primary;
    let other = cluster.node_ids().into_iter().find(|node| *node != primary).unwrap();
    cluster.apart.insert(pair(primary, other));
    cluster.run_until(1500, "one is out", |cluster| !is_member(cluster, id, other));
    assert_eq!(partition(&cluster, id).primary, primary, "the node that reaches the third one stays");
    cluster.run(50);
    let before = cluster.acknowledged[&id];
    cluster.run(500);
    assert!(cluster.acknowledged[&id] > before + 400, "puts continue while the node is barred");
    cluster.apart.clear();
    cluster.run_until_ready(3000);
}

#[test]
fn a_fast_restart_keeps_the_members() {
    let mut cluster = ready(3, 3);
    cluster.start(NodeId(1));
    cluster.run(20);
    cluster.run_until_ready(300);
    assert_eq!(epochs(&cluster), [2; 4], "readmitted without copying");
    puts_go_on(&mut cluster);
}

#[test]
fn a_restart_with_empty_storage_joins_anew() {
    let mut cluster = ready(3, 3);
    let (id, node) = (PartitionId(0), NodeId(1));
    cluster.nodes.get_mut(&node).unwrap().wipe();
    cluster.start(node);
    let process = cluster.nodes[&node].running.as_ref().unwrap().process;
    cluster.run_until(200, "live", |cluster| {
        cluster.core.as_ref().unwrap().observations.membership.live(node) == Some(process)
    });
    let why = cluster.status().why_not_ready.unwrap();
    assert!(
        why.contains("node-1 has been restarted"),
        "the restart is reported before anything is decided: {why}"
    );
    cluster.run_until(200, "joining", |cluster| {
        partition(cluster, id).member(node).is_some_and(|member| !member.standing.is_consistent())
    });
    cluster.run_until_ready(500);
    assert_eq!(epochs(&cluster), [3; 4], "first removed and joining, then consistent");
    assert!(partitions().all(|id| cluster.nodes[&node].value(id) == cluster.acknowledged[&id]));
}

#[test]
fn last_member_with_an_empty_storage_means_data_loss() {
    let mut cluster = ready(1, 1);
    cluster.nodes.get_mut(&NodeId(1)).unwrap().wipe();
    cluster.start(NodeId(1));
    cluster.run(2000);
    let status = cluster.status();
    assert!(status.partitions.iter().all(|partition| partition.state == PartitionState::Lost));
    let why = status.why_not_ready.unwrap();
    assert!(why.contains("lost"), "{why}");
}

#[test]
fn after_power_loss_each_partition_gets_one_epoch() {
    let mut cluster = ready(5, 3);
    cluster.run(30);
    let ids = cluster.node_ids();
    // All die at once, but the last messages from them arrived at different times.
    ids.iter().for_each(|id| cluster.kill(*id));
    cluster.run(1000);
    assert_eq!(epochs(&cluster), [1; 4], "no member is removed when all have died");
    cluster.kill_metadata();
    cluster.run(100);
    cluster.start_metadata();
    for id in ids {
        cluster.start(id);
        cluster.run(40);
    }
    cluster.run_until_ready(500);
    assert_eq!(epochs(&cluster), [2; 4]);
    puts_go_on(&mut cluster);
}

#[test]
fn after_power_loss_an_absent_member_times_out() {
    let mut cluster = ready(3, 3);
    let ids = cluster.node_ids();
    ids.iter().for_each(|id| cluster.kill(*id));
    cluster.run(500);
    cluster.start(NodeId(1));
    cluster.start(NodeId(2));
    cluster.run(300);
    assert_eq!(epochs(&cluster), [1; 4], "within the grace period");
    cluster.run_until(400, "without the third", |cluster| {
        partitions().all(|id| partition(cluster, id).activated && partition(cluster, id).members.len() == 2)
    });
    cluster.run(20);
    puts_go_on(&mut cluster);
}

#[test]
fn a_new_leader_raises_the_term_and_grants_nothing_at_first() {
    let mut cluster = ready(3, 3);
    let term = cluster.status().term;
    cluster.kill_metadata();
    cluster.run(20);
    cluster.start_metadata();
    let leases = cluster.checks.leases;
    cluster.run(168);
    assert_eq!(cluster.checks.leases, leases, "a previous leader may have granted leases");
    cluster.run_until_ready(200);
    assert_eq!(cluster.status().term, term + 1);
    assert_eq!(epochs(&cluster), [1; 4], "nothing has changed");
    cluster.run(100);
    assert!(cluster.checks.leases > leases);
}

/// A node with a long lease of the previous leader falls silent, and no switch answers.
#[test]
fn new_leader_waits_for_unknown_leases() {
    let mut config = config(3, 3);
    config.timing.lease = Duration::from_millis(400);
    let mut cluster = Cluster::new(config, 1);
    cluster.run_until_ready(200);
    SWITCHES.iter().for_each(|id| cluster.disconnect(*id));
    cluster.mute.insert(NodeId(1));
    cluster.deaf.insert(NodeId(1));
    cluster.run_until(400, "removed", |cluster| !is_member(cluster, PartitionId(0), NodeId(1)));
    cluster.kill_metadata();
    cluster.start_metadata();
    SWITCHES.iter().for_each(|id| cluster.disconnect(*id));
    cluster.run(449);
    assert!(!partition(&cluster, PartitionId(0)).activated, "the lease has not ended");
    cluster.run_until(50, "activated", |cluster| partition(cluster, PartitionId(0)).activated);
}

#[test]
fn acknowledging_switches_shorten_the_wait_for_the_lease() {
    let activation = |connected: bool| {
        let mut cluster = ready(3, 3);
        if !connected {
            // One unreachable switch suffices for the long wait.
            cluster.disconnect(SWITCHES[0]);
        }
        // The node receives nothing from the service: its heartbeats arrive until they show too
        // many missing answers.
        cluster.deaf.insert(NodeId(1));
        cluster.run_until(2000, "removed", |cluster| !is_member(cluster, PartitionId(0), NodeId(1)));
        cluster.run_until(400, "activated", |cluster| partition(cluster, PartitionId(0)).activated)
    };
    let (fast, slow) = (activation(true), activation(false));
    // If the switches acknowledge, the wait is two thirds of the lease, the part for clients that
    // do not come through switches. Otherwise it is the whole lease. The time since the last grant
    // is subtracted from both.
    assert!((40..=113).contains(&fast) && (fast + 35..=169).contains(&slow), "{fast} and {slow} ms");
}

/// docs/FAULTS.md row 25.
#[test]
fn switch_that_refuses_tables_delays_a_removal_and_is_reported() {
    let mut cluster = ready(3, 3);
    cluster.run(50);
    let filled = cluster.switches[&SWITCHES[1]].tables.clone();
    cluster.switches.get_mut(&SWITCHES[1]).unwrap().is_full = true;
    cluster.kill(NodeId(2));
    cluster.run_until(300, "removed", |cluster| !is_member(cluster, PartitionId(0), NodeId(2)));
    cluster.run(5);
    assert!(!partition(&cluster, PartitionId(0)).activated, "one switch still names the removed member");
    let took =
        cluster.run_until(100, "its lease is over", |cluster| partition(cluster, PartitionId(0)).activated);
    assert!(took < 80, "{took} ms");
    cluster.run(20);
    assert_eq!(cluster.switches[&SWITCHES[1]].tables, filled, "the previous tables stay in force");
    let [fine, full] = cluster.status().switches.try_into().unwrap();
    assert_eq!((fine.current, fine.error), (true, None));
    assert_eq!((full.connected, full.current), (true, false));
    assert_eq!(full.error.as_deref(), Some("table division is full"));

    cluster.switches.get_mut(&SWITCHES[1]).unwrap().is_full = false;
    cluster.run_until(300, "it is asked again", |cluster| cluster.status().switches[1].current);
    assert_eq!(cluster.status().switches[1].error, None);
    assert_eq!(cluster.switches[&SWITCHES[0]].tables, cluster.switches[&SWITCHES[1]].tables);
    puts_go_on(&mut cluster);
}

#[test]
fn a_switch_that_restarts_empty_is_filled_again() {
    let mut cluster = ready(3, 3);
    let filled = cluster.switches[&SWITCHES[0]].tables.clone();
    cluster.restart_switch(SWITCHES[0]);
    assert!(!cluster.status().ready && cluster.switches[&SWITCHES[0]].tables.is_none());
    cluster.run_until_ready(50);
    assert_eq!(cluster.switches[&SWITCHES[0]].tables, filled);
}

#[test]
fn tables_that_do_not_change_are_not_sent_again() {
    let mut cluster = ready(3, 3);
    let generation = cluster.switches[&SWITCHES[0]].tables.as_ref().unwrap().generation;
    cluster.run(1000);
    assert_eq!(cluster.switches[&SWITCHES[0]].tables.as_ref().unwrap().generation, generation);
}

#[test]
fn invalid_datagrams_are_counted() {
    let mut cluster = ready(3, 3);
    let now = Now { boot_ns: cluster.now_ns, unix_ms: 0 };
    let heartbeat = |node| {
        encode(|out| {
            Heartbeat {
                node: NodeId(node),
                incarnation: 1,
                storage: 1,
                sent_ns: 1,
                unanswered: 0,
                space: DiskSpace::Enough,
                opened: 0,
                durable: 0,
            }
            .encode(out);
        })
    };
    let core = cluster.core();
    core.handle_datagram(now, address(NodeId(1)), b"x");
    core.handle_datagram(now, address(NodeId(1)), &heartbeat(2));
    core.handle_datagram(now, address(NodeId(9)), &heartbeat(9));
    let counters = cluster.status().counters;
    assert_eq!((counters.malformed, counters.forged), (1, 2));
}

#[test]
fn mismatched_configuration_and_state_are_refused() {
    let cluster = ready(3, 3);
    let stored = cluster.stored.as_deref().unwrap();
    let start = |config, bytes| Metadata::new(config, bytes, Now::default()).err();
    let too_few = start(config(3, 4), None).unwrap().to_string();
    assert_eq!(too_few, "keyspace \"default\": 4 replicas need at least as many nodes, there are 3");
    let mut twice = config(3, 3);
    twice.nodes[1].switch_port = 1;
    let twice = start(twice, None);
    assert_eq!(twice, Some(StateError::Config(ConfigError::DuplicateNode { node: NodeId(2) })));
    let other = crate::Config { cluster: 8, ..config(3, 3) };
    assert_eq!(start(other, Some(stored)), Some(StateError::OtherCluster { found: 7, expected: 8 }));
    let unknown = StateError::NodeUnknown { name: "node-4".into() };
    assert_eq!(start(config(4, 3), Some(stored)), Some(unknown));
    let missing = StateError::NodeMissing { name: "node-3".into() };
    assert_eq!(start(config(2, 2), Some(stored)), Some(missing));
    let mut moved = config(3, 3);
    moved.nodes[1].mac = [2; 6];
    assert_eq!(start(moved, Some(stored)), None, "the same node at another address");
    assert!(matches!(start(config(3, 2), Some(stored)), Some(StateError::KeyspaceChanged { .. })));
    let newer = [&[99], &stored[1..]].concat();
    assert_eq!(start(config(3, 3), Some(&newer)), Some(StateError::Format { found: 99 }));
    for length in 0..stored.len() {
        assert!(start(config(3, 3), Some(&stored[..length])).is_some(), "cut at {length}");
    }
    let state = State::resume(&config(3, 3), stored).unwrap();
    assert_eq!(crate::persisted_version(stored), Ok(state.version));
}
