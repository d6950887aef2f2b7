//! Runs a seed and checks it after all faults are healed (docs/FAULTS.md, checks L, D, C, X and V).

mod damage;
mod discarded;
pub(crate) mod explanation;
mod transactions;

use crate::checker::{Call, Verdict, check};
use crate::client::transactions::together;
use crate::client::{HURRY, Workload, scans, stamps};
use crate::cluster::{Cluster, Scenario, Tally};
use crate::faults::{Faults, StoreFaults};
use crate::features;
use crate::keyspace::{self, Key, Shape};
use crate::network::Pace;
use crate::trunks::Trunks;
use explanation::list;
use nicekv_metadata::{Status, Timing};
use nicekv_proto::recovery::Entry;
use nicekv_proto::{Duration, NodeId, PartitionId};
use nicekv_replica::{PartitionStatus, Standing};
use nicekv_testkit::Random;
use std::collections::BTreeMap;

const SECOND_NS: u64 = 1_000_000_000;
/// After all faults are healed, at least one call is answered within this time, while any call is
/// open or a replica is missing (check V).
pub(crate) const PROGRESS_NS: u64 = 20 * SECOND_NS;

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Violations; empty if there are none.
    pub violations: Vec<String>,
    /// Histories with too many concurrent calls of unknown outcome for a verdict.
    pub too_large: usize,
    /// Number of calls checked.
    pub calls: usize,
    /// Calls with unknown outcome.
    pub unknown: usize,
    pub tally: Tally,
}

/// Chooses the seeds in which every host has a switch of its own.
const EDGES: u64 = 0x6564_6765;

/// Chooses the seeds in which there are several instances of the metadata service.
const INSTANCES: u64 = 0x7365_6174;

/// Chooses the seeds in which load shifts between clients.
const SHIFTS: u64 = 0x7368_6966_7473;

/// Chooses how fast nodes discard unneeded data.
const DISCARDS: u64 = 0x64_6973_6361_7264;

/// Chooses the number of spare nodes.
const SPARES: u64 = 0x73_7061_7265;

/// Chooses the seeds in which disks are lost, or replaced by older copies.
const LOST_DISKS: u64 = 0x6c6f_7374_6469_736b;

/// A random scenario. Features with their own random sequence do not change what others draw.
pub fn draw(seed: u64) -> Scenario {
    let scenario = features::hashes::draw(features::transactions::draw(draw_single(seed), seed), seed);
    let mut scenario = features::pubsub::draw(scenario, seed);
    let mut random = Random::new(!(seed ^ LOST_DISKS));
    if random.below(3) == 0 {
        let faults = &mut scenario.faults;
        (faults.disk_lost, faults.disk_older) =
            random.pick(&[(500_000, 0), (0, 1_000_000), (200_000, 800_000)]);
        // With memory engines or slow nodes, all members seldom hold everything, as a loss
        // requires.
        (faults.memory, faults.slow, faults.crash) = (0, 0, faults.crash.max(200));
        faults.power_loss = faults.power_loss.max(random.pick(&[0, 20]));
    }
    features::headers_only::draw(scenario, seed)
}

/// The same without transactions, messages, hashes and lost disks.
pub(crate) fn draw_single(seed: u64) -> Scenario {
    let mut random = Random::new(!seed);
    let (keys, clients) = (random.pick(&[1, 2, 8, 40]), random.between(2, 5) as usize);
    let nodes = random.pick(&[3, 3, 4, 5]);
    let keyspaces = draw_keyspaces(nodes, &mut random, seed);
    let edges = Random::new(seed ^ EDGES).below(5) == 0;
    let scenario = Scenario {
        nodes,
        spares: 0,
        keyspaces: keyspaces.clone(),
        instances: 1,
        store_lease: Duration::from_secs(1),
        store_faults: StoreFaults::NONE,
        switches: random.pick(&[1, 1, 2]),
        trunks: Trunks::None,
        ways_are_whole: false,
        balancing: random.below(3) > 0,
        edges,
        hides_sources: random.below(2) == 0 && !edges,
        matching: Default::default(),
        kernel_gets: features::kernel_gets::drawn(seed),
        hot_interval_ns: 0,
        hot_values: true,
        coordination: features::coordination::draw(seed),
        copy_bytes_per_second: 100 << 20,
        // Drawn from its own random sequence.
        discard_bytes_per_second: Random::new(seed ^ DISCARDS).pick(&[16 << 20, 16 << 20, 1_000]),
        clients,
        workload: Workload {
            // Every keyspace has some keys.
            keys: Key::of_all(keys, &keyspaces),
            skew: 1,
            calls: if keys > 2 { 300 } else { 70 },
            // With few keys, clients have few calls in flight: calls of unknown outcome make a
            // history hard to judge.
            window: if keys > 2 { random.pick(&[1, 2, 4]) } else { random.pick(&[1, 2]) },
            begins_ns: 0,
            retry_min: HURRY,
            pause_ns_max: if keys > 2 { 20_000_000 } else { 60_000_000 },
            timeout_ns: if keys > 2 { random.pick(&[SECOND_NS / 4, SECOND_NS]) } else { 2 * SECOND_NS },
            expiring: random.pick(&[0, 300_000]),
            large: features::large_values::drawn(seed),
            whole_bytes_max: features::large_values::whole_drawn(seed),
            appends: features::large_values::appends_drawn(seed),
            reads_at_once: features::large_values::reads_at_once_drawn(seed),
            gets: 0,
            transactions: 0,
            hashes: 0,
            scripts: 0,
            messages: 0,
            scans: scans::drawn(seed),
            shift_ns: Random::new(seed ^ SHIFTS).pick(&[0, 300_000_000]),
        },
        pace: Pace::VARYING,
        // If the lease is longer than it takes to suspect a node, the metadata service has to wait
        // for it.
        timing: Timing {
            lease: Duration::from_millis(random.pick(&[150, 150, 500])),
            // Drawn from its own random sequence. Only quorum keyspaces use fences.
            fence_interval: Duration::from_millis(Random::new(seed).pick(&[20, 200, 1000])),
            // A run is short and has few requests.
            divide_interval: Duration::from_millis(200),
            divide_gets_min: 4,
            ..Timing::default()
        },
        faults: Faults::draw(&mut random),
        faults_end_ns: 3 * SECOND_NS,
        retries_max: None,
    };
    draw_rest(scenario, seed)
}

/// Adds everything that depends on the drawn scenario, and the features that have their own files.
fn draw_rest(mut scenario: Scenario, seed: u64) -> Scenario {
    draw_dependent(&mut scenario, seed);
    let scenario = features::full_partitions::draw(
        features::switch_trees::draw(features::migration::draw(scenario, seed), seed),
        seed,
    );
    features::empty_keys::draw(
        features::object_names::draw(
            features::long_keys::draw(features::hot_keys::draw(scenario, seed), seed),
            seed,
        ),
        seed,
    )
}

/// Draws what depends on earlier draws.
fn draw_dependent(scenario: &mut Scenario, seed: u64) {
    if scenario.faults.change_interval_ns > 0 {
        scenario.spares = Random::new(seed ^ SPARES).below(4) as usize;
    }
    if scenario.switches > 1 && !scenario.edges && !scenario.hides_sources {
        (scenario.trunks, scenario.switches) = crate::trunks::draw(seed);
    }
    let mut random = Random::new(seed ^ INSTANCES);
    if random.below(3) == 0 {
        features::metadata_faults::share_store(scenario, &mut random);
    }
}

/// Draws one keyspace with primaries, one by quorum, or one of each.
fn draw_keyspaces(nodes: usize, random: &mut Random, seed: u64) -> Vec<Shape> {
    let multicast = Shape::multicast(random.pick(&[3, 3, 3, 2]), random.pick(&[0, 1, 2]));
    let (replicas, write_set) = match nodes {
        5 => random.pick(&[(3, 2), (5, 3), (5, 2), (4, 2)]),
        4 => random.pick(&[(3, 2), (3, 1), (4, 2), (4, 3)]),
        _ => random.pick(&[(3, 2), (3, 2), (3, 1), (3, 3), (2, 1)]),
    };
    let quorum = Shape::quorum(replicas, write_set);
    let shapes = match random.below(7) {
        0..3 => vec![multicast],
        3 | 4 => vec![multicast, quorum],
        5 => vec![quorum, multicast],
        _ => vec![quorum],
    };
    keyspace::with_orders(keyspace::with_chains(shapes, nodes, seed), seed)
}

/// Runs a scenario to its end. Passes trace lines to `print`.
pub fn run(scenario: Scenario, seed: u64, print: Option<fn(&str)>) -> Report {
    let mut cluster = Cluster::new(scenario, seed);
    if let Some(print) = print {
        cluster.trace(print);
    }
    let faults_end_ns = cluster.scenario().faults_end_ns;
    cluster.run_until(faults_end_ns, |cluster| cluster.violation().is_some());
    finish(&mut cluster)
}

/// Heals a cluster, brings it to rest, and judges it.
pub fn finish(cluster: &mut Cluster) -> Report {
    cluster.heal();
    cluster.tell_all_keyspaces();
    let mut report = Report::default();
    if let Some(violation) = cluster.violation() {
        // After a violation all further checks are meaningless.
        report.violations.push(violation.into());
        report.tally = cluster.tally();
        return report;
    }
    come_to_rest(cluster);
    report.violations.extend(features::full_partitions::judge(cluster, PROGRESS_NS, is_whole));
    report.violations.extend(judge_retries(cluster));
    report.violations.extend(judge_losses(cluster));
    report.violations.extend(stamps::judge(cluster.clients()));
    if !all_done(cluster) {
        report.violations.push("some calls are never answered (V)".into());
    }
    if !is_whole(cluster) {
        report.violations.push(format!("not all replicas are consistent again (V): {}", describe(cluster)));
    }
    if report.violations.is_empty() {
        report.violations.extend(features::pubsub::judge(cluster, PROGRESS_NS));
    }
    let keys = cluster.scenario().workload.keys.len();
    cluster.tell_all_keyspaces();
    let is_gone = |cluster: &Cluster, key: usize| {
        cluster.created().is_gone(cluster.scenario().workload.keys[key].keyspace)
    };
    for key in (0..keys).filter(|key| !is_gone(cluster, *key)).collect::<Vec<_>>() {
        for client in 0..cluster.clients().len() {
            cluster.get(client, key);
        }
    }
    let end_ns = cluster.now_ns() + PROGRESS_NS;
    cluster.run_until(end_ns, |cluster| all_done(cluster) && is_quiet(cluster));
    if !is_quiet(cluster) {
        report.violations.push(format!("ops stay open (V): {}", describe(cluster)));
    }
    if cluster.scenario().faults.corruption > 0 {
        damage::judge(cluster, &mut report);
    }
    judge_histories(cluster, &mut report);
    judge_replicas(cluster, &mut report);
    if cluster.scenario().faults.replacement > 0 && report.violations.is_empty() {
        judge_comparison(cluster, &mut report);
    }
    discarded::judge(cluster, &mut report);
    report.violations.extend(cluster.violation().map(String::from));
    report.tally = cluster.tally();
    report
}

/// Runs until all clients are done. With many calls on slow disks this may take longer than
/// [`PROGRESS_NS`], as long as calls are answered.
fn come_to_rest(cluster: &mut Cluster) {
    loop {
        let before = answered(cluster);
        let end_ns = cluster.now_ns() + PROGRESS_NS;
        cluster.run_until(end_ns, |cluster| all_done(cluster) && is_whole(cluster));
        if all_done(cluster) || answered(cluster) == before {
            return;
        }
    }
}

/// Number of calls that were answered.
pub fn answered(cluster: &Cluster) -> usize {
    let calls = cluster.clients().iter().flat_map(|client| client.history());
    let transactions = cluster.clients().iter().flat_map(|client| client.transacting.calls());
    calls.filter(|call| call.call.answered.is_some()).count()
        + transactions.filter(|call| call.answered.is_some()).count()
}

/// Whether every call is answered, every replica is complete, and no op is open.
pub fn is_at_rest(cluster: &Cluster) -> bool {
    all_done(cluster) && is_whole(cluster) && is_quiet(cluster)
}

/// Checks that a node counts as having lost data only if it has (R18).
fn judge_losses(cluster: &Cluster) -> Option<String> {
    let status = cluster.metadata()?.status();
    let is_sound = |id: u16| {
        let node = &cluster.nodes()[usize::from(id) - 1];
        !node.has_forgotten && !node.in_memory
    };
    let wronged = status.nodes.iter().find(|node| node.losses > 0 && is_sound(node.id))?;
    Some(format!("node-{} counts as having lost data, but has not (R18)", wronged.id))
}

/// Checks that clients do not retransmit more than the scenario allows.
fn judge_retries(cluster: &Cluster) -> Option<String> {
    let most = cluster.scenario().retries_max?;
    let counters = || cluster.clients().iter().map(|client| client.counters());
    let (submitted, retries) = (
        counters().map(|counters| counters.submitted).sum::<u64>(),
        counters().map(|counters| counters.retries).sum::<u64>(),
    );
    (retries * 1000 > most * submitted).then(|| {
        format!("{retries} datagrams of {submitted} requests were sent again: more than {most} per thousand")
    })
}

/// Replaces entries at single replicas, and checks that the scrub restores them to what most
/// replicas have.
fn judge_comparison(cluster: &mut Cluster, report: &mut Report) {
    // A repair in progress might spread the replaced entry, so repairs end first.
    let rested_ns = cluster.now_ns() + SECOND_NS;
    cluster.run_until(rested_ns, |_| false);
    let mut told = Vec::new();
    for partition in with_primary(cluster).collect::<Vec<_>>() {
        let holders = members(cluster, partition);
        let stays = |entry: &[u8]| Entry::decode(entry).expect("the core wrote it").expiry_ms == 0;
        let values = cluster.nodes()[holders[0]].disk.values(partition).filter(|(_, entry)| stays(entry));
        let values: BTreeMap<_, _> =
            values.map(|(key, entry)| ((partition, key.to_vec()), entry.to_vec())).collect();
        let keys: Vec<_> = values.keys().cloned().collect();
        cluster.replace_entries(&holders, &keys);
        told.push((holders, values));
    }
    let are_alike = |cluster: &Cluster| {
        told.iter().all(|(holders, values)| {
            let held = |node: &usize| {
                let entries = cluster.nodes()[*node].disk.entries();
                values.iter().all(|(key, entry)| entries.get(key) == Some(entry))
            };
            // With two replicas the primary's entry wins, right or wrong.
            holders.len() < 3 || holders.iter().all(held)
        }) && differing(cluster).is_empty()
    };
    let end_ns = cluster.now_ns() + PROGRESS_NS;
    cluster.run_until(end_ns, are_alike);
    if !are_alike(cluster) {
        report.violations.push(format!("replicas keep differing (C): {}", describe(cluster)));
    }
}

fn all_done(cluster: &Cluster) -> bool {
    cluster.clients().iter().all(|client| client.is_done())
}

/// The partitions that the metadata service knows, with the shapes of their keyspaces.
fn partitions(cluster: &Cluster) -> Vec<(PartitionId, Shape)> {
    let Some(metadata) = cluster.metadata() else { return Vec::new() };
    let partitions = metadata.status().partitions;
    partitions.iter().map(|known| (PartitionId(known.id), cluster.shape(known.keyspace))).collect()
}

fn with_primary(cluster: &Cluster) -> impl Iterator<Item = PartitionId> {
    let partitions = partitions(cluster).into_iter();
    partitions.filter(|(_, shape)| !shape.is_quorum()).map(|(partition, _)| partition)
}

/// The nodes that are consistent members of a partition in its newest epoch.
pub fn members(cluster: &Cluster, partition: PartitionId) -> Vec<usize> {
    consistent(cluster, partition).into_iter().map(|(index, _)| index).collect()
}

/// The consistent members of a partition in its newest epoch: index of the node and its status.
fn consistent(cluster: &Cluster, partition: PartitionId) -> Vec<(usize, PartitionStatus)> {
    let statuses: Vec<_> = cluster
        .nodes()
        .iter()
        .enumerate()
        .filter_map(|(index, node)| {
            let status = node.core.as_ref()?.status();
            Some((index, *status.partition(partition)?))
        })
        .collect();
    let newest = statuses.iter().map(|(_, status)| status.epoch).max();
    statuses
        .into_iter()
        .filter(|(_, status)| Some(status.epoch) == newest && status.standing == Standing::Consistent)
        .collect()
}

/// Whether every partition has exactly its replicas, and nothing is being moved, split or merged.
pub fn is_whole(cluster: &Cluster) -> bool {
    let partitions = partitions(cluster);
    let is_whole =
        |(partition, shape): &(PartitionId, Shape)| consistent(cluster, *partition).len() == shape.replicas;
    // Moves, splits and merges must have ended.
    let is_still = |status: &Status| status.moves == 0 && status.reshapings.is_empty();
    let status = cluster.metadata().map(|metadata| metadata.status());
    let is_as_asked = status.is_some_and(|status| is_still(&status) && has_every_key(cluster, &status));
    is_as_asked && partitions.iter().all(is_whole)
}

/// Whether the partitions of each keyspace cover every match value once. If none was split or
/// merged, there are as many as at the beginning.
fn has_every_key(cluster: &Cluster, status: &Status) -> bool {
    let shapes = &cluster.scenario().keyspaces;
    let created = cluster.created().there();
    let numbers = (0..shapes.len() as u16).chain(created.map(|(number, _)| number));
    numbers.into_iter().all(|number| {
        let of_keyspace = || status.partitions.iter().filter(|partition| partition.keyspace == number);
        let value = |text: &str| u128::from_str_radix(text, 16).expect("hexadecimal digits");
        let mut ranges: Vec<(u128, u128)> =
            of_keyspace().map(|partition| (value(&partition.first), value(&partition.last))).collect();
        ranges.sort_unstable();
        let are_adjacent = ranges.windows(2).all(|pair| pair[0].1.checked_add(1) == Some(pair[1].0));
        let are_all = ranges.first().map(|range| range.0) == Some(0)
            && ranges.last().map(|range| range.1) == Some(u128::MAX);
        are_adjacent
            && are_all
            && (cluster.may_be_reshaped() || ranges.len() == 1 << cluster.shape(number).partition_bits)
    })
}

pub(crate) fn is_quiet(cluster: &Cluster) -> bool {
    partitions(cluster).into_iter().all(|(partition, _)| {
        let members = consistent(cluster, partition);
        let same = members.windows(2).all(|pair| pair[0].1.logged == pair[1].1.logged);
        same && members.iter().all(|(_, status)| status.open_ops == 0)
    })
}

pub(crate) fn describe(cluster: &Cluster) -> String {
    let lines = cluster.nodes().iter().map(|node| match &node.core {
        None => format!("\n  {} is down", node.id),
        Some(core) => format!("\n  {} {:?}", node.id, core.status()),
    });
    let asked = cluster.metadata().map(|metadata| metadata.status()).map(|status| {
        format!("\n  {} moves pending; splits and merges: {:?}", status.moves, status.reshapings)
    });
    lines.chain(asked).collect()
}

fn judge_histories(cluster: &Cluster, report: &mut Report) {
    transactions::judge(cluster, report);
    let keys = &cluster.scenario().workload.keys;
    for (key, name) in keys.iter().enumerate().skip(together(keys)) {
        let calls: Vec<Call> = cluster
            .clients()
            .iter()
            .flat_map(|client| client.history())
            .filter(|call| call.key == key)
            .map(|call| call.call.clone())
            .collect();
        report.calls += calls.len();
        report.unknown += calls.iter().filter(|call| call.answered.is_none()).count();
        let name = String::from_utf8_lossy(&name.name);
        match check(&calls) {
            Verdict::Linearizable => {}
            Verdict::Violation => {
                report
                    .violations
                    .push(format!("the history of {name} is not linearizable (L): {}", list(&calls)));
            }
            Verdict::TooLarge => report.too_large += 1,
        }
    }
}

/// Checks that members of a partition hold the same values (check C). Tombstones may be deleted at
/// different times. Replicas of a quorum keyspace may differ: a read brings the newest version to
/// those that lack it.
fn judge_replicas(cluster: &Cluster, report: &mut Report) {
    for (partition, one, other) in differing(cluster) {
        report.violations.push(format!("partition {partition}: {one} and {other} differ (C)"));
    }
}

/// Pairs of members that do not hold the same values.
fn differing(cluster: &Cluster) -> Vec<(PartitionId, NodeId, NodeId)> {
    let mut differing = Vec::new();
    for partition in with_primary(cluster) {
        let entries = |index: usize| cluster.nodes()[index].disk.values(partition).collect::<Vec<_>>();
        let members = consistent(cluster, partition);
        for pair in members.windows(2) {
            if entries(pair[0].0) != entries(pair[1].0) {
                let (one, other) = (cluster.nodes()[pair[0].0].id, cluster.nodes()[pair[1].0].id);
                differing.push((partition, one, other));
            }
        }
    }
    differing
}
