//! Load on few keys: partitions migrate to nodes with little load (TurboKV §5.1).

use super::script::{MILLISECOND_NS, Played, Script, Stage};
use crate::checker::Action;
use crate::checker::model::{Change, When};
use crate::cluster::{Cluster, Scenario};
use crate::faults::Faults;
use crate::keyspace::{Key, Shape};
use nicekv_metadata::{MigrationStatus, Status};
use nicekv_proto::placement::{KeyOrder, match_digest};
use nicekv_proto::{Duration, PartitionId};
use nicekv_testkit::Random;

pub(super) const SCRIPTS: &[Script] = &[
    Script {
        name: "load-on-the-first-of-ordered-keys",
        row: 35,
        what: "Zipf-distributed gets of ordered keys; within ten periods no node has more than 1.3 times the mean load",
        shape: |scenario| ordered(scenario, Shape::multicast(3, 2)),
        play: |stage| spread(stage),
    },
    Script {
        name: "load-on-the-first-of-chains",
        row: 35,
        what: "the same for chains, whose tails answer",
        shape: |scenario| ordered(scenario, Shape::chain(3, 2)),
        play: |stage| spread(stage),
    },
    Script {
        name: "one-key-is-too-hot",
        row: 35,
        what: "a single key exceeds the load of a node: it is reported, and not moved back and forth",
        shape: |scenario| ordered(scenario, Shape::multicast(1, 2)),
        play: |stage| hold_still(stage),
    },
];

const KEYS: usize = 400;
const PERIOD_MS: u64 = 250;
/// Interval between two calls.
const PACE_NS: u64 = 200_000;
/// Number of periods within which load must be spread.
const PERIODS: u64 = 10;
/// A script fails if its periods take longer than this.
const PLAY_MS: u64 = 20_000;
/// Maximum load of a node after that, in percent of the mean.
const EVEN_PERCENT: u64 = 130;

/// Six nodes, and ordered keys, all in one of four partitions.
fn ordered(scenario: &mut Scenario, shape: Shape) {
    scenario.nodes = 6;
    scenario.keyspaces = vec![shape.by_range().that_migrates()];
    let name = |number: usize| format!("key-{number:06}").into_bytes();
    scenario.workload.keys = (0..KEYS).map(|number| Key { keyspace: 0, name: name(number) }).collect();
    scenario.workload.calls = 0;
    scenario.clients = 4;
    scenario.balancing = false;
    scenario.faults = Faults::NONE;
    scenario.timing.balance_period = Duration::from_millis(PERIOD_MS);
    scenario.timing.balance_requests_min = 200;
    // Leaders are moved to their preferred nodes soon.
    scenario.timing.rebalance_delay = Some(Duration::from_millis(PERIOD_MS));
}

/// Relative frequencies of keys, as cumulative sums of their weights.
struct Weights(Vec<f64>);

impl Weights {
    fn new(weights: impl Iterator<Item = f64>) -> Self {
        let sums = weights.scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        });
        Self(sums.collect())
    }

    /// Frequencies by Zipf's law: the first key is the most frequent.
    fn zipf(exponent: f64) -> Self {
        Self::new((1..=KEYS).map(|rank| (rank as f64).powf(-exponent)))
    }

    /// A key in the middle is as frequent as all others together.
    fn one() -> Self {
        Self::new((0..KEYS).map(|key| if key == KEYS / 2 { KEYS as f64 } else { 1.0 }))
    }

    fn draw(&self, random: &mut Random) -> usize {
        let at = random.below(1 << 40) as f64 / (1u64 << 40) as f64 * self.0[KEYS - 1];
        self.0.partition_point(|sum| *sum <= at).min(KEYS - 1)
    }
}

/// Clients call for this time, four of five calls being gets. Returns the number of gets and of
/// updates for each key.
fn ask(stage: &mut Stage, milliseconds: u64, weights: &Weights) -> Vec<(u64, u64)> {
    let mut asked = vec![(0, 0); KEYS];
    let end_ns = stage.cluster.now_ns() + milliseconds * MILLISECOND_NS;
    while stage.cluster.now_ns() + PACE_NS <= end_ns && stage.cluster.violation().is_none() {
        let key = weights.draw(&mut stage.random);
        let client = stage.random.below(stage.cluster.clients().len() as u64) as usize;
        let action = if stage.random.below(5) > 0 {
            asked[key].0 += 1;
            Action::Get
        } else {
            asked[key].1 += 1;
            let op = stage.cluster.clients()[client].next_op();
            let change = Change::Set(format!("{}", op.sequence).into_bytes());
            Action::Update { op, condition: When::Always, return_old: false, change }
        };
        stage.cluster.call(client, key, action);
        let next_ns = stage.cluster.now_ns() + PACE_NS;
        stage.cluster.run_until(next_ns, |_| false);
    }
    asked
}

fn status(cluster: &Cluster) -> Option<Status> {
    cluster.metadata().map(nicekv_metadata::Metadata::status)
}

fn told(cluster: &Cluster) -> Option<MigrationStatus> {
    status(cluster)?.migrations.into_iter().next()
}

fn value(key: &Key) -> u128 {
    match_digest(KeyOrder::Range, &key.name).match_value()
}

/// The load of the most loaded node, in percent of the mean, if the calls `asked` were made with
/// the partitions' present places. A get loads the node that answers it; an update loads all
/// members.
fn hottest_percent(cluster: &Cluster, asked: &[(u64, u64)]) -> Option<u64> {
    let status = status(cluster)?;
    let mut loads = vec![0; cluster.nodes().len()];
    for (key, (reads, updates)) in cluster.scenario().workload.keys.iter().zip(asked) {
        let holds = |range: nicekv_proto::MatchRange| range.contains(value(key));
        let partition = status.partitions.iter().find(|partition| partition.range().is_some_and(holds))?;
        let place = |node: u16| cluster.nodes().iter().position(|it| it.id.0 == node);
        loads[place(partition.tail.unwrap_or(partition.primary))?] += reads;
        for member in &partition.members {
            loads[place(member.node)?] += updates;
        }
    }
    let total: u64 = loads.iter().sum();
    Some(loads.iter().max()? * 100 * loads.len() as u64 / total.max(1))
}

/// Clients call until this many balancing periods have ended.
fn ask_for_periods(stage: &mut Stage, periods: u64, weights: &Weights) -> Played {
    for _ in 0..PLAY_MS / PERIOD_MS {
        ask(stage, PERIOD_MS, weights);
        if told(&stage.cluster)?.periods >= periods {
            return Some(());
        }
    }
    let waits_for = told(&stage.cluster)?.waits_for;
    stage.violations.push(format!("{periods} periods do not end: {waits_for:?}"));
    Some(())
}

fn spread(stage: &mut Stage) -> Played {
    stage.run_before(|cluster, _| crate::judge::is_whole(cluster))?;
    let weights = Weights::zipf(0.99);
    let before = ask(stage, PERIOD_MS, &weights);
    let before = hottest_percent(&stage.cluster, &before)?;
    ask_for_periods(stage, PERIODS, &weights)?;
    for periods in [PERIODS, PERIODS + 3] {
        ask_for_periods(stage, periods, &weights)?;
        let after = ask(stage, 4 * PERIOD_MS, &weights);
        let after = hottest_percent(&stage.cluster, &after)?;
        if after > EVEN_PERCENT {
            let what = told(&stage.cluster)?.events;
            let line = format!("a node has {after} % of the mean load after {periods} periods: {what:?}");
            stage.violations.push(line);
        }
    }
    let told = told(&stage.cluster)?;
    // The script has shown something only if load was uneven at first, and moves and splits have
    // evened it.
    (before >= 300 && told.moves > 0 && told.splits > 0).then_some(())
}

fn hold_still(stage: &mut Stage) -> Played {
    stage.run_before(|cluster, _| crate::judge::is_whole(cluster))?;
    let weights = Weights::one();
    let hot = value(&stage.cluster.scenario().workload.keys[KEYS / 2]);
    let mut places = Vec::new();
    // Three times as long as a partition stays in place after a move.
    for period in 1..=3 * PERIODS {
        ask_for_periods(stage, period, &weights)?;
        let status = status(&stage.cluster)?;
        let holds = |range: nicekv_proto::MatchRange| range.contains(hot);
        let partition = status.partitions.iter().find(|partition| partition.range().is_some_and(holds))?;
        places.push((PartitionId(partition.id), partition.primary));
    }
    let told = told(&stage.cluster)?;
    let is_named = told.hot_keys.iter().any(|key| key.value == format!("{hot:032x}"));
    if !is_named {
        stage.violations.push(format!("the key that is too hot is not reported: {told:?}"));
    }
    let moves = places.windows(2).filter(|pair| pair[0].1 != pair[1].1).count();
    if moves > 1 {
        stage.violations.push(format!("a key that no node can take has moved {moves} times: {places:?}"));
    }
    Some(())
}
