//! Random faults, then healing: no stale value is ever served, and the cluster becomes ready again.

use proptest::prelude::*;

use nicekv_proto::Duration;

use super::cluster::{Cluster, config, pair};
use crate::SwitchId;

/// Begins or ends a random fault.
pub(super) fn disturb(cluster: &mut Cluster) {
    let ids = cluster.node_ids();
    let id = ids[cluster.random.below(ids.len() as u64) as usize];
    let other = ids[cluster.random.below(ids.len() as u64) as usize];
    let switch = SwitchId(cluster.random.below(2) as u16);
    match cluster.random.below(18) {
        0 | 1 => cluster.kill(id),
        2..=4 if cluster.nodes[&id].running.is_none() => cluster.start(id),
        // A restart that is faster than the suspicion.
        2 => cluster.start(id),
        5 => drop(cluster.mute.insert(id)),
        6 => drop(cluster.deaf.insert(id)),
        7 | 8 => {
            cluster.mute.clear();
            cluster.deaf.clear();
        }
        9 if id != other => drop(cluster.apart.insert(pair(id, other))),
        10 => cluster.apart.clear(),
        11 => cluster.disconnect(switch),
        12 => cluster.connect(switch),
        13 => cluster.restart_switch(switch),
        14 => cluster.kill_metadata(),
        15 => cluster.loss_percent = cluster.random.below(40),
        16 => ids.iter().for_each(|id| cluster.kill(*id)),
        17 if may_wipe(cluster) => {
            cluster.nodes.get_mut(&id).unwrap().wipe();
            cluster.start(id);
        }
        _ => {}
    }
    if cluster.core.is_none() && cluster.random.below(2) == 0 {
        cluster.start_metadata();
    }
}

/// Whether a disk may be lost: everything else must be well, and the metadata service must have
/// noticed earlier losses. More losses at once would lose data in any system.
fn may_wipe(cluster: &Cluster) -> bool {
    let Some(core) = cluster.core.as_ref().filter(|core| core.status().ready) else { return false };
    cluster.nodes.iter().all(|(id, node)| {
        let known = core.observations.membership.live(*id);
        node.running.as_ref().is_some_and(|running| known == Some(running.process))
    })
}

pub(super) fn heal(cluster: &mut Cluster) {
    (cluster.loss_percent, cluster.mute, cluster.deaf, cluster.apart) = Default::default();
    if cluster.core.is_none() {
        cluster.start_metadata();
    }
    for id in cluster.node_ids() {
        if cluster.nodes[&id].running.is_none() {
            cluster.start(id);
        }
    }
    for switch in cluster.config.switches.clone() {
        cluster.connect(switch);
    }
}

fn survive(seed: u64, nodes: u16, replicas: usize) {
    let mut config = config(nodes, replicas);
    config.timing.handoff_delay = Some(Duration::from_millis(seed % 4 * 50));
    config.timing.rebalance_delay = Some(Duration::from_millis(100));
    (config.timing.divide_interval, config.timing.divide_gets_min) = (Duration::from_millis(200), 50);
    let mut cluster = Cluster::new(config, seed);
    cluster.is_asked = true;
    cluster.run_until_ready(1000);
    cluster.run(100);
    assert!(cluster.checks.stale_checks > 100, "the check for stale values ran");
    for _ in 0..40 {
        disturb(&mut cluster);
        let pause = 1 + cluster.random.below(250);
        cluster.run(pause);
    }
    heal(&mut cluster);
    // Time to notice a recent restart.
    cluster.run(200);
    // In the worst case an expelled node must return and copy.
    cluster.run_until_ready(4000);
    let puts = cluster.puts;
    cluster.run(50);
    assert!(cluster.puts >= puts + 100, "every partition accepts puts again");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn three_nodes_survive_random_faults(seed: u64) {
        survive(seed, 3, 3);
    }

    #[test]
    fn five_nodes_of_three_replicas_survive_random_faults(seed: u64) {
        survive(seed, 5, 3);
    }

    #[test]
    fn four_nodes_of_two_replicas_survive_random_faults(seed: u64) {
        survive(seed, 4, 2);
    }
}
