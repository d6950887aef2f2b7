//! Partitions move to nodes with little load (TurboKV §5.1). Switches count requests, nodes sample
//! keys, and steps are carried out like operators' commands.

use nicekv_proto::heat::{Heat, PartitionHeat};
use nicekv_proto::placement::LoadBalancing;
use nicekv_proto::{Duration, NodeId, Now, PartitionId};

use super::cluster::{Cluster, config};
use super::node::{address, encode};
use super::scenarios::partition;
use crate::{Balancing, MigrationStatus, SwitchId};

/// The length of a period, in milliseconds.
const PERIOD: u64 = 400;
const HOT: PartitionId = PartitionId(2);

/// Four nodes and four partitions of 0x4000 vnodes each, with one replica.
fn ready() -> Cluster {
    let mut config = config(4, 1);
    config.balancing = Balancing::None;
    config.keyspaces[0].balancing = LoadBalancing::Migrate;
    config.timing.balance_period = Duration::from_millis(PERIOD);
    config.timing.balance_requests_min = 50;
    config.timing.count_interval = Duration::from_millis(PERIOD / 8);
    config.timing.rebalance_delay = Some(Duration::from_millis(100));
    let mut cluster = Cluster::new(config, 1);
    cluster.run_until_ready(400);
    cluster
}

/// Clients send gets of each of these vnodes for some time, and primaries report the median of
/// their load.
fn keep_asking(cluster: &mut Cluster, milliseconds: u64, vnodes: &[u16]) {
    for _ in 0..milliseconds / 10 {
        for vnode in vnodes {
            let [third, fourth] = vnode.to_be_bytes();
            cluster.switches.get_mut(&SwitchId(0)).unwrap().ask([10, 10, third, fourth], 4);
        }
        tell(cluster, vnodes);
        cluster.run(10);
    }
}

fn tell(cluster: &mut Cluster, vnodes: &[u16]) {
    let state = cluster.state().unwrap();
    for (id, partition) in state.partitions() {
        let value = |vnode: &u16| u128::from(*vnode) << 112;
        let mut asked: Vec<u128> =
            vnodes.iter().map(value).filter(|it| partition.range.contains(*it)).collect();
        asked.sort_unstable();
        let Some(cut) = asked.get(asked.len() / 2).copied() else { continue };
        let share = |count: usize| (1000 * count / asked.len()) as u16;
        let heat = PartitionHeat {
            partition: id,
            requests: 100,
            keys: 0,
            bytes: 0,
            cut,
            middle: 0,
            top: cut,
            below_cut: share(asked.len() / 2),
            for_top: share(1),
        };
        let node = partition.primary;
        let Some(running) = &cluster.nodes[&node].running else { continue };
        let incarnation = running.process.incarnation;
        let heat = Heat { node, partitions: vec![heat], incarnation, sent_ns: cluster.now_ns };
        let now = Now { boot_ns: cluster.now_ns, unix_ms: 0 };
        if let Some(core) = &mut cluster.core {
            core.handle_datagram(now, address(node), &encode(|out| heat.encode(out)));
        }
    }
}

fn told(cluster: &Cluster) -> MigrationStatus {
    cluster.status().migrations[0].clone()
}

#[test]
fn a_hot_partition_is_split_at_the_median_and_halves_go_to_idle_nodes() {
    let mut cluster = ready();
    // Eight adjacent vnodes of one partition: splitting its range in the middle would not help.
    let vnodes: Vec<u16> = (0..8).map(|step| 0x8000 + step).collect();
    let before = partition(&cluster, HOT).primary;
    keep_asking(&mut cluster, 14 * PERIOD, &vnodes);
    let told = told(&cluster);
    let done: Vec<&str> = told.events.iter().map(|(_, what)| what.as_str()).collect();
    assert!(done[0].starts_with("partition 2 is split at 8004"), "{done:?}");
    assert!(done.iter().any(|what| what.contains(" goes from ")), "{done:?}");
    assert!(!done.iter().any(|what| what.contains("refused")), "{done:?}");
    let (_, percent) = told.hottest.clone().unwrap();
    assert!(percent <= 130, "{told:?}");
    let primaries: std::collections::BTreeSet<NodeId> = {
        let state = cluster.state().unwrap();
        let of_hot =
            |it: &&crate::state::Partition| vnodes.iter().any(|v| it.range.contains(u128::from(*v) << 112));
        state.partitions().map(|(_, it)| it).filter(of_hot).map(|it| it.primary).collect()
    };
    assert!(primaries.len() == 4 && primaries.contains(&before), "{primaries:?}");
    // Even load causes no further steps, and no merges.
    let events = told.events.len();
    keep_asking(&mut cluster, 6 * PERIOD, &vnodes);
    assert_eq!(self::told(&cluster).events.len(), events, "{:?}", self::told(&cluster));
}

#[test]
fn no_step_begins_while_a_node_is_absent() {
    let mut cluster = ready();
    let vnodes: Vec<u16> = (0..8).map(|step| 0x8000 + step).collect();
    let away = *cluster.nodes.keys().find(|node| **node != partition(&cluster, HOT).primary).unwrap();
    cluster.kill(away);
    keep_asking(&mut cluster, 6 * PERIOD, &vnodes);
    let waiting = told(&cluster);
    assert_eq!((waiting.events.len(), waiting.waits_for.is_some()), (0, true), "{waiting:?}");
    cluster.start(away);
    keep_asking(&mut cluster, 6 * PERIOD, &vnodes);
    assert!(!told(&cluster).events.is_empty(), "{:?}", told(&cluster));
}

#[test]
fn new_leader_lets_moved_partitions_rest_in_place() {
    let mut cluster = ready();
    let vnodes: Vec<u16> = (0..8).map(|step| 0x8000 + step).collect();
    keep_asking(&mut cluster, 14 * PERIOD, &vnodes);
    let placed = |cluster: &Cluster| {
        let state = cluster.state().unwrap();
        state.partitions().map(|(id, partition)| (id, partition.originals.clone())).collect::<Vec<_>>()
    };
    let before = placed(&cluster);
    cluster.kill_metadata();
    cluster.start_metadata();
    keep_asking(&mut cluster, 5 * PERIOD, &vnodes);
    assert_eq!(placed(&cluster), before);
    // Load moves to other partitions, and cold young partitions are merged in the end.
    keep_asking(&mut cluster, 30 * PERIOD, &[0x0001, 0x0002, 0xc001, 0xc002, 0x4001, 0x4002]);
    let told = told(&cluster);
    assert!(told.events.iter().any(|(_, what)| what.contains("merged")), "{told:?}");
}
