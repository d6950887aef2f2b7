//! Runs in which partitions fill up and are split at their median key while nodes fail; cold
//! neighbours are merged (TurboKV §4.1.2).

use crate::cluster::{Cluster, Scenario};
use crate::faults::Faults;
use crate::keyspace::{Key, Shape};
use nicekv_client::Coordination;
use nicekv_metadata::{Metadata, PartitionStatus};
use nicekv_proto::recovery::Entry;
use nicekv_proto::{Duration, KeyOrder, PartitionId};
use nicekv_testkit::Random;

const MILLISECOND_NS: u64 = 1_000_000;
/// Chooses the seeds in which partitions become full, and their parameters.
const FILLS: u64 = 0x66_696c_6c73;

/// Enough keys that a full partition has several match values and can be split.
const KEYS: usize = 40;

/// In a twelfth of the seeds partitions are so small that keys fill them. Of the faults only the
/// rate and duration of crashes are replaced: while a node is away no partition is split.
pub(crate) fn draw(mut scenario: Scenario, seed: u64) -> Scenario {
    let mut random = Random::new(!(seed ^ FILLS));
    if random.below(12) > 0 {
        return scenario;
    }
    let (replicas, bits) = (random.pick(&[2, 3]), random.pick(&[0, 2, 3]));
    let shape = match random.below(2) {
        0 => Shape::chain(replicas, bits),
        _ => Shape::multicast(replicas, bits),
    };
    let shape = if random.below(3) > 0 { shape.by_range() } else { shape };
    fill(&mut scenario, shape.of_at_most(random.pick(&[3, 6])));
    scenario.nodes = random.pick(&[4, 5, 6]);
    scenario.workload.skew = random.pick(&[1, 2, 8]);
    scenario.timing.balance_period = Duration::from_millis(random.pick(&[20, 40]));
    scenario.faults.crash = random.pick(&[0, 100, 500]);
    scenario.faults.downtime_max_ns = random.pick(&[20, 100]) * MILLISECOND_NS;
    scenario
}

/// Partitions that fill up, with fixed parameters and without faults.
pub(crate) fn fills(scenario: &mut Scenario) {
    fill(scenario, Shape::multicast(3, 2).by_range().of_at_most(3));
    (scenario.nodes, scenario.faults) = (5, Faults::NONE);
    scenario.timing.balance_period = Duration::from_millis(40);
}

fn fill(scenario: &mut Scenario, shape: Shape) {
    scenario.keyspaces = vec![shape];
    scenario.workload.keys = match shape.order {
        KeyOrder::Range => Key::at_borders(0, 4, KEYS),
        KeyOrder::Hash => Key::several(0, KEYS),
    };
    // If some keys are requested more than others, the last partitions are cold.
    scenario.workload.keys.sort_by(|one, other| one.name.cmp(&other.name));
    (scenario.workload.calls, scenario.workload.pause_ns_max) = (500, 12 * MILLISECOND_NS);
    scenario.timing.balance_requests_min = 8;
    scenario.coordination = Coordination::Switch;
}

/// After all faults are healed no partition stays full (check V). Returns what is wrong after
/// `wait_ns`.
pub(crate) fn judge(cluster: &mut Cluster, wait_ns: u64, is_whole: fn(&Cluster) -> bool) -> Vec<String> {
    let end_ns = cluster.now_ns() + wait_ns;
    let is_as_asked = |cluster: &Cluster| full(cluster).is_empty() && is_whole(cluster);
    if !full(cluster).is_empty() {
        cluster.run_until(end_ns, is_as_asked);
    }
    let migrations = |cluster: &Cluster| cluster.metadata().map(|metadata| metadata.status().migrations);
    let stays = |partition| format!("partition {partition} stays full (V): {:?}", migrations(cluster));
    full(cluster).into_iter().map(stays).collect()
}

fn full(cluster: &Cluster) -> Vec<PartitionId> {
    let partitions =
        cluster.metadata().map(Metadata::status).map_or_else(Vec::new, |status| status.partitions);
    let is_full = |partition: &&PartitionStatus| {
        cluster.shape(partition.keyspace).keys_max.is_some_and(|max| keys(cluster, partition) > max)
    };
    partitions.iter().filter(is_full).map(|partition| PartitionId(partition.id)).collect()
}

/// The number of keys that the partition's primary holds.
fn keys(cluster: &Cluster, partition: &PartitionStatus) -> u64 {
    let node = &cluster.nodes()[usize::from(partition.primary) - 1];
    let values = node.disk.values(PartitionId(partition.id));
    values.filter(|(_, entry)| Entry::decode(entry).is_ok_and(|entry| entry.value.is_some())).count() as u64
}
