//! Partitions migrate to nodes with little load (TurboKV §5.1): random runs under faults, and the
//! pause of puts during a move.

use nicekv_metadata::PartitionChange;
use nicekv_proto::PartitionId;
use nicekv_sim::checker::Action;
use nicekv_sim::checker::model::{Change, When};
use nicekv_sim::cluster::{Cluster, Fault, Scenario};
use nicekv_sim::faults::Faults;
use nicekv_sim::judge;
use nicekv_sim::keyspace::{Key, Shape};
use nicekv_sim::network::Pace;
use std::io::Write;

const MILLISECOND_NS: u64 = 1_000_000;
/// Interval between two puts.
const PUT_NS: u64 = 500_000;

/// In ordinary random runs load moves, splits and merges partitions.
#[test]
fn random_runs_move_split_and_merge_partitions_by_load() {
    let migrates = |seed: &u64| judge::draw(*seed).keyspaces.iter().any(|shape| shape.migrates);
    let runs = crate::sampled(40);
    let (mut moves, mut splits, mut merges) = (0, 0, 0);
    for seed in (1..).filter(migrates).take(runs as usize) {
        let report = judge::run(judge::draw(seed), seed, None);
        assert_eq!(report.violations, [""; 0], "replay: nicekv sim --seed {seed}");
        moves += report.tally.of("partitions moved by load");
        splits += report.tally.of("partitions split by load or size");
        merges += report.tally.of("partitions merged as they were cold");
    }
    writeln!(std::io::stderr(), "{moves} moves, {splits} splits, {merges} merges").unwrap();
    assert!(moves * 2 >= runs && splits * 8 >= runs, "{moves} moves, {splits} splits, {merges} merges");
}

/// In runs in which nodes fail, full partitions are split, and cold neighbours merged.
#[test]
fn random_runs_split_full_partitions() {
    let is_bounded = |seed: &u64| judge::draw(*seed).keyspaces.iter().any(|shape| shape.keys_max.is_some());
    let runs = crate::runs(12, 60);
    let (mut full, mut merges, mut crashes) = (0, 0, 0);
    for seed in (1..).filter(is_bounded).take(runs as usize) {
        let report = judge::run(judge::draw(seed), seed, None);
        assert_eq!(report.violations, [""; 0], "replay: nicekv sim --seed {seed}");
        full += report.tally.of("partitions split as they were full");
        merges += report.tally.of("partitions merged as they were cold");
        crashes += report.tally.of("crashes");
    }
    writeln!(std::io::stderr(), "{full} full ones split, {merges} merges, {crashes} crashes").unwrap();
    assert!(
        full * 3 >= runs * 4 && merges >= runs / 60 * 3 && crashes * 3 >= runs * 2,
        "{full} splits, {merges} merges, {crashes} crashes"
    );
}

/// Keys in one partition, and no calls but those that the test makes.
fn quiet(shape: Shape) -> Scenario {
    let mut scenario = judge::draw(1);
    (scenario.nodes, scenario.spares, scenario.instances, scenario.edges) = (5, 0, 1, false);
    (scenario.switches, scenario.clients, scenario.balancing) = (1, 1, false);
    (scenario.pace, scenario.faults, scenario.keyspaces) = (Pace::VARYING, Faults::NONE, vec![shape]);
    scenario.coordination = nicekv_client::Coordination::Switch;
    (scenario.workload.keys, scenario.workload.calls) = (Key::several(0, 40), 0);
    (scenario.workload.shift_ns, scenario.workload.scans) = (0, (0, 0, 1));
    scenario
}

/// Puts all keys in turn for this time. Returns the longest time, in milliseconds, in which no put
/// was answered.
fn put(cluster: &mut Cluster, milliseconds: u64, keys: &[usize]) -> u64 {
    let begun_ns = cluster.now_ns();
    let end_ns = begun_ns + milliseconds * MILLISECOND_NS;
    for key in keys.iter().cycle() {
        if cluster.now_ns() >= end_ns {
            break;
        }
        let op = cluster.clients()[0].next_op();
        let change = Change::Set(format!("{}", op.sequence).into_bytes());
        cluster.call(0, *key, Action::Update { op, condition: When::Always, return_old: false, change });
        let next_ns = cluster.now_ns() + PUT_NS;
        cluster.run_until(next_ns, |_| false);
    }
    let calls = cluster.clients()[0].history().filter(|call| keys.contains(&call.key));
    let mut answered: Vec<u64> =
        calls.filter_map(|call| call.ended_ns).filter(|at| *at >= begun_ns).collect();
    answered.extend([begun_ns, cluster.now_ns()]);
    answered.sort_unstable();
    answered.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0) / MILLISECOND_NS
}

/// The partition that has the first key, and all keys in it.
fn beside_the_first(cluster: &Cluster) -> (PartitionId, Vec<usize>) {
    let status = cluster.metadata().expect("it leads").status();
    let value = |key: &Key| {
        nicekv_proto::placement::match_digest(nicekv_proto::KeyOrder::Hash, &key.name).match_value()
    };
    let keys = &cluster.scenario().workload.keys;
    let holds = |it: &&nicekv_metadata::PartitionStatus| it.range().unwrap().contains(value(&keys[0]));
    let partition = status.partitions.iter().find(holds).expect("each key has a partition");
    let range = partition.range().unwrap();
    let those = (0..keys.len()).filter(|key| range.contains(value(&keys[*key])));
    (PartitionId(partition.id), those.collect())
}

fn count(cluster: &Cluster) -> usize {
    cluster.metadata().map_or(0, |metadata| metadata.status().partitions.len())
}

/// The target: puts pause for at most 100 ms.
#[test]
fn puts_pause_briefly_when_a_partition_is_split_or_moved() {
    for (name, shape) in [("multicast", Shape::multicast(3, 0)), ("chain", Shape::chain(3, 0))] {
        for seed in 1..=8 {
            let mut cluster = Cluster::new(quiet(shape), seed);
            cluster.run_until(2_000 * MILLISECOND_NS, judge::is_whole);
            let all: Vec<usize> = (0..40).collect();
            let before = put(&mut cluster, 200, &all);
            cluster.change_partitions(&PartitionChange::Split { partition: 0, at: None });
            let split = put(&mut cluster, 1_500, &all);
            assert!(
                judge::is_whole(&cluster) && count(&cluster) == 2,
                "{name}, seed {seed}: it is not split"
            );
            let (partition, keys) = beside_the_first(&cluster);
            let leads = cluster.primary(partition).expect("somebody leads");
            cluster.inject(Fault::Drain(leads));
            let moved = put(&mut cluster, 3_000, &keys);
            let has_left = !judge::members(&cluster, partition).contains(&leads);
            assert!(judge::is_whole(&cluster) && has_left, "{name}, seed {seed}: nothing has moved");
            let line = format!(
                "{name}, seed {seed}: no put for {before} ms at rest, {split} ms split, {moved} ms moved"
            );
            writeln!(std::io::stderr(), "{line}").unwrap();
            assert!(split <= 100 && moved <= 100, "{line}");
        }
    }
}
