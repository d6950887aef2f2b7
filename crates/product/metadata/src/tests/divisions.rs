//! Gets are divided among replicas by source (NICE §4.5). Divisions change when replicas come and
//! go and when load shifts.

use std::collections::BTreeMap;

use nicekv_proto::control::{SourceGets, Sources};
use nicekv_proto::{Duration, NodeId, Now, PartitionId};
use nicekv_switch::HostId;

use super::cluster::{Cluster, config, partitions};
use super::node::{address, encode};
use super::scenarios::{is_gone, partition};
use crate::SwitchId;

const HOT: PartitionId = PartitionId(2);
/// The interval of changes by load, in milliseconds.
const INTERVAL: u64 = 300;

fn ready() -> Cluster {
    let mut config = config(4, 3);
    config.timing.divide_interval = Duration::from_millis(INTERVAL);
    config.timing.divide_gets_min = 100;
    let mut cluster = Cluster::new(config, 1);
    cluster.run_until_ready(200);
    cluster.run(50);
    cluster
}

/// The node to which a switch routes a client's get.
fn asked(cluster: &Cluster, id: PartitionId, client: u8) -> NodeId {
    let tables = cluster.switches[&SwitchId(0)].tables.as_ref().expect("the switch is filled");
    let claims = tables.division.iter().filter(|entry| entry.partition == id.0);
    let claims = claims.filter(|entry| entry.source.contains([10, 20, 2, client]));
    let unicast = tables
        .unicast
        .iter()
        .find(|entry| entry.partition == id.0)
        .expect("every partition has a unicast entry");
    let HostId(host) =
        claims.max_by_key(|entry| entry.source.length).map_or(unicast.host, |entry| entry.host);
    NodeId(host)
}

/// Reports gets: each client sends the given number, and the nodes that receive them report them.
pub(super) fn ask(cluster: &mut Cluster, id: PartitionId, clients: &[(u8, u32)]) {
    let mut told: BTreeMap<NodeId, Vec<SourceGets>> = BTreeMap::new();
    for &(client, gets) in clients {
        let source = u32::from_be_bytes([10, 20, 2, client]);
        told.entry(asked(cluster, id, client)).or_default().push(SourceGets { partition: id, source, gets });
    }
    for (node, gets) in told {
        let Some(running) = &cluster.nodes[&node].running else { continue };
        let incarnation = running.process.incarnation;
        let sources = Sources { node, gets, incarnation, sent_ns: cluster.now_ns };
        let now = Now { boot_ns: cluster.now_ns, unix_ms: 0 };
        if let Some(core) = &mut cluster.core {
            core.handle_datagram(now, address(node), &encode(|out| sources.encode(out)));
        }
    }
}

/// Reports the same gets every 50 ms for this time.
fn keep_asking(cluster: &mut Cluster, milliseconds: u64, id: PartitionId, clients: &[(u8, u32)]) {
    for _ in 0..milliseconds / 50 {
        ask(cluster, id, clients);
        cluster.run(50);
    }
}

/// Number of gets that each node would receive if all clients sent theirs once more.
fn shares(cluster: &Cluster, id: PartitionId, clients: &[(u8, u32)]) -> BTreeMap<NodeId, u32> {
    let mut shares = BTreeMap::new();
    for (client, gets) in clients {
        *shares.entry(asked(cluster, id, *client)).or_default() += gets;
    }
    shares
}

fn generation(cluster: &Cluster) -> u64 {
    cluster.switches[&SwitchId(0)].tables.as_ref().unwrap().generation
}

#[track_caller]
fn assert_equal_shares(cluster: &Cluster, clients: &[(u8, u32)]) {
    let shares = shares(cluster, HOT, clients);
    let fair = clients.iter().map(|(_, gets)| gets).sum::<u32>() / 3;
    let is_fair = |share: &u32| (fair * 9 / 10..=fair * 11 / 10).contains(share);
    assert!(shares.len() == 3 && shares.values().all(is_fair), "{shares:?}, an equal share is {fair}");
}

#[test]
fn three_clients_of_a_hot_object_are_served_in_equal_shares_by_three_replicas() {
    let mut cluster = ready();
    // Neighbouring addresses: without load they are in one part.
    let clients = [(1, 100), (2, 100), (3, 100)];
    assert_eq!(shares(&cluster, HOT, &clients).len(), 1);
    keep_asking(&mut cluster, 2 * INTERVAL, HOT, &clients);
    assert_equal_shares(&cluster, &clients);
    let tables = cluster.switches[&SwitchId(0)].tables.clone().unwrap();
    let entries = tables.division.iter().filter(|entry| entry.partition == HOT.0).count();
    assert_eq!(entries, 2, "two divisions, and one entry in each ring: R + 1");
    let balancing = cluster.status().balancing.unwrap();
    assert_eq!((balancing.divided, balancing.left_out, balancing.entries_per_partition), (4, 0, 4));
    assert_eq!((balancing.sources, balancing.divided_by_load), (3, 1));
}

#[test]
fn shifted_load_changes_divisions_and_small_changes_do_not() {
    let mut cluster = ready();
    keep_asking(&mut cluster, 2 * INTERVAL, HOT, &[(1, 100), (2, 100), (3, 100)]);
    let before = generation(&cluster);
    keep_asking(&mut cluster, 4 * INTERVAL, HOT, &[(1, 104), (2, 98), (3, 100)]);
    assert_eq!(generation(&cluster), before, "a few percent are noise");
    // Other clients send gets, all of them from a range where one client did before.
    let others = [(64, 90), (65, 30), (66, 30), (67, 30), (72, 90)];
    keep_asking(&mut cluster, 6 * INTERVAL, HOT, &others);
    assert_equal_shares(&cluster, &others);
    assert!(generation(&cluster) <= before + 6, "at most one change per interval");
    let settled = generation(&cluster);
    keep_asking(&mut cluster, 4 * INTERVAL, HOT, &others);
    assert_eq!(generation(&cluster), settled);
}

#[test]
fn few_gets_change_no_divisions() {
    let mut cluster = ready();
    let before = generation(&cluster);
    // Only 96 gets in two intervals.
    for _ in 0..4 {
        ask(&mut cluster, HOT, &[(1, 16), (2, 16), (3, 16)]);
        cluster.run(INTERVAL);
    }
    assert_eq!(generation(&cluster), before);
}

#[test]
fn divisions_follow_the_serving_members() {
    let mut cluster = ready();
    let clients = [(1, 100), (2, 100), (3, 100)];
    keep_asking(&mut cluster, 2 * INTERVAL, HOT, &clients);
    let secondary = partition(&cluster, HOT).divisions.list[0].node;
    cluster.kill(secondary);
    cluster.run_until(400, "gone", |cluster| is_gone(cluster, secondary));
    cluster.run(300);
    let state = partition(&cluster, HOT);
    assert!(!state.divisions.among.contains(&secondary), "{state:?}");
    assert_eq!(state.divisions.among.len(), 3, "the handoff answers gets, too");
    cluster.start(secondary);
    cluster.run_until_ready(2000);
    cluster.run(20);
    let state = partition(&cluster, HOT);
    assert!(state.divisions.list.iter().any(|division| division.node == secondary), "{state:?}");
    keep_asking(&mut cluster, 3 * INTERVAL, HOT, &clients);
    assert_equal_shares(&cluster, &clients);
}

#[test]
fn a_new_leader_goes_on_with_the_same_divisions() {
    let mut cluster = ready();
    keep_asking(&mut cluster, 2 * INTERVAL, HOT, &[(1, 100), (2, 100), (3, 100)]);
    let tables = |cluster: &Cluster| cluster.switches[&SwitchId(0)].tables.clone().unwrap().division;
    let before = tables(&cluster);
    cluster.kill_metadata();
    cluster.start_metadata();
    cluster.run_until_ready(1000);
    cluster.run(2 * INTERVAL);
    assert_eq!(tables(&cluster), before);
}

#[test]
fn repeated_and_outdated_reports_are_ignored() {
    let mut cluster = ready();
    let node = asked(&cluster, HOT, 1);
    let incarnation = cluster.nodes[&node].running.as_ref().unwrap().process.incarnation;
    let cell = |partition, gets| SourceGets { partition, source: 0x0a14_0201, gets };
    let told = |sent_ns, incarnation, gets: Vec<SourceGets>| Sources { node, gets, incarnation, sent_ns };
    let messages = [
        told(5, incarnation, vec![cell(HOT, 10), cell(PartitionId(99), 10)]),
        told(5, incarnation, vec![cell(HOT, 10)]),
        told(4, incarnation, vec![cell(HOT, 10)]),
        told(9, incarnation + 1, vec![cell(HOT, 10)]),
    ];
    let now = Now { boot_ns: cluster.now_ns, unix_ms: 0 };
    for message in messages {
        cluster.core().handle_datagram(now, address(node), &encode(|out| message.encode(out)));
    }
    let clients = nicekv_switch::Prefix::new([10, 20, 2, 0], 24);
    let loads = &cluster.core().observations.loads;
    assert_eq!(loads.of(HOT, clients).inside, [(0x0a14_0201, 10)]);
    assert_eq!((loads.of(PartitionId(99), clients).total(), loads.known()), (0, 1));
    assert_eq!(cluster.status().counters.stale, 1);
    // The load is halved with each interval, and disappears in the end.
    cluster.run(6 * INTERVAL);
    assert_eq!(cluster.core().observations.loads.known(), 0);
}

/// Reports changing loads for every partition, in tests with many other events.
pub(super) fn ask_everything(cluster: &mut Cluster) {
    if cluster.switches[&SwitchId(0)].tables.is_none() {
        return;
    }
    for id in partitions() {
        let phase = (cluster.now_ns / 400_000_000 + u64::from(id.0)) as u8;
        let clients: Vec<_> = (0..4).map(|client| (phase.wrapping_mul(37) ^ client, 40)).collect();
        ask(cluster, id, &clients);
    }
}
