//! 1 MB over links of 100 Mbit/s: puts to 1, 3 … 9 replicas, and gets.

use super::{LargeArguments, NAME, Shown};
use crate::error::{BenchError, Result};
use crate::keyspace;
use crate::lab::{Engine, Lab, LabPlan, Size};
use crate::load::Limits;
use crate::load::large::{LARGE_BYTES, LARGE_KEYS, LargeLoad};
use crate::load::large_redis::LargeRedis;
use crate::plot::{Bar, Panel};
use crate::redis_server::{Group, RedisServer};
use crate::report::{self, Goal};
use crate::statistics::{Rounds, Summary, in_turn};
use crate::workload::{Sequence, Work};
use nicekv_lab::topology::Host;
use nicekv_runtime::Stop;
use serde_json::{Value, json};
use std::net::SocketAddrV4;
use std::path::Path;
use std::time::Duration;

const NODES: u8 = 9;
const CLIENT: Host = Host::Client(0);
const MBIT: u32 = 100;
/// What may leave at once.
const BURST: &str = "32k";
const PARTITIONS: u32 = 16;
/// Of the first group of Redis servers, that of R = 1; each next one has the next.
const REDIS_PORT: u16 = 6390;
/// In a round, of each kind.
const OPERATIONS: usize = 4;
const OPERATIONS_QUICK: usize = 1;
/// Until one is answered.
const PATIENCE: Duration = Duration::from_secs(30);
/// A put to nine replicas is to take so many times as long as one to a single one.
const NINE_MAX: f64 = 1.2;

/// A kind of op.
#[derive(Clone, Copy, Debug)]
struct Case {
    work: Work,
    replicas: u8,
    /// What the paper has: others ÷ NICE.
    paper: &'static str,
}

const fn put(replicas: u8, paper: &'static str) -> Case {
    Case { work: Work::Put, replicas, paper }
}

/// The first and the last but one are puts with fewest and with most replicas.
const CASES: [Case; 6] = [
    put(1, ""),
    put(3, "up to 4.3, 3.4, 2.6 (Fig. 5)"),
    put(5, ""),
    put(7, ""),
    put(9, "5.5 (Fig. 9)"),
    Case { work: Work::Get, replicas: 3, paper: "2, 1.5; asked directly 1 (Fig. 4)" },
];
const ONE: usize = 0;
const NINE: usize = 4;

/// Both sides of a case.
struct Field {
    case: Case,
    ours: LargeLoad,
    redis: LargeRedis,
    #[allow(dead_code, reason = "ended when they are dropped, after the load")]
    servers: Vec<RedisServer>,
    /// Milliseconds of an op.
    rounds: Rounds,
}

pub(super) fn run(arguments: &LargeArguments, directory: &Path, stop: &Stop) -> Result<Shown> {
    let network = arguments.network.network();
    let keyspaces = CASES[..=NINE].iter().map(|case| case.keyspace()).collect::<Vec<_>>();
    let further: Vec<&str> = keyspaces.iter().flat_map(|text| ["--keyspace", text.as_str()]).collect();
    let plan = LabPlan::new(Case::SIZE, Engine::Memory, network, directory);
    let lab = Lab::up(&LabPlan { further: &further, apart: Some("shaped"), ..plan })?;
    let mut fields = CASES
        .iter()
        .zip(REDIS_PORT..)
        .map(|(case, port)| Field::new(*case, port, &lab, directory, stop))
        .collect::<Result<Vec<_>>>()?;
    for host in (0..NODES).map(Host::Node).chain([CLIENT]) {
        lab.hosts().limit(host, MBIT, BURST)?;
    }
    let operations = if arguments.quick { OPERATIONS_QUICK } else { OPERATIONS };
    for round in 1..=arguments.rounds.rounds {
        for field in &mut fields {
            field.measure(round, operations, stop)?;
        }
    }
    let parameters = |case: &Case| {
        json!({
            "network": network.name(), "mbit": MBIT, "work": case.name(), "replicas": case.replicas, "nodes": NODES,
            "value_bytes": LARGE_BYTES, "operations": operations,
        })
    };
    Ok(show(&fields.into_iter().map(|field| (field.case, field.rounds)).collect::<Vec<_>>(), parameters))
}

impl Case {
    const SIZE: Size = Size { nodes: NODES, replicas: NODES };

    fn name(&self) -> &'static str {
        if self.work == Work::Get { "get" } else { "put" }
    }

    fn keyspace(&self) -> String {
        let replicas = self.replicas;
        format!("r{replicas}=id={replicas},replicas={replicas},partitions={PARTITIONS}")
    }
}

impl Field {
    fn new(case: Case, port: u16, lab: &Lab, directory: &Path, stop: &Stop) -> Result<Self> {
        let keyspace = keyspace::known(&case.keyspace(), Case::SIZE, PARTITIONS)?;
        let bind = || LargeLoad::bind(SocketAddrV4::new(CLIENT.address(), 0), keyspace, LARGE_BYTES);
        let mut ours = lab.inside(CLIENT, bind)?.map_err(BenchError::system("make a client's socket"))?;
        // Who is asked for values directly has no need of replicas.
        let count = if case.work == Work::Get { 1 } else { case.replicas };
        let group = Group { count, port, durable: false };
        let servers = group.start(lab.hosts(), CLIENT, directory, stop)?;
        let connect = || LargeRedis::connect(group.address(), LARGE_BYTES, usize::from(count) - 1);
        let mut redis = lab.inside(CLIENT, connect)?.map_err(BenchError::system("connect to redis"))?;
        if case.work == Work::Get {
            let preload = || Sequence::of_first(LARGE_KEYS, Work::Preload, 0);
            let limits = Limits { duration: PATIENCE, stop };
            ours.run(preload(), limits)?;
            redis.run(preload(), limits)?;
        }
        Ok(Self { case, ours, redis, servers, rounds: Rounds::default() })
    }

    fn measure(&mut self, round: u32, operations: usize, stop: &Stop) -> Result<()> {
        let Self { case, ours, redis, rounds, .. } = self;
        let steps = || Sequence::of_first(LARGE_KEYS, case.work, round.into()).take(operations);
        let limits = Limits { duration: PATIENCE, stop };
        let measured = in_turn(round, |side| match side {
            0 => ours.run(steps(), limits),
            _ => redis.run(steps(), limits),
        })?;
        let [our_ms, redis_ms] = measured.map(|measured| measured.mean_us() / 1e3);
        let (name, replicas) = (case.name(), case.replicas);
        eprintln!(
            "{round}: {name}, R = {replicas}: {our_ms:.1} ms ({} retries), redis {redis_ms:.1}",
            measured[0].retries
        );
        rounds.pairs.push((our_ms, redis_ms));
        Ok(())
    }
}

fn show(rows: &[(Case, Rounds)], parameters: impl Fn(&Case) -> Value) -> Shown {
    let header = [
        "1 MB, links of 100 Mbit/s",
        "nicekv, ms",
        "[min .. max]",
        "redis",
        "÷ nicekv",
        "paper: others ÷ NICE",
    ];
    let mut lines = vec![header.map(String::from)];
    let (mut json, mut panels) = (String::new(), Vec::new());
    for (case, rounds) in rows {
        let (ours, redis) = (rounds.ours(), rounds.peers());
        let ratio = Summary::of(rounds.pairs.iter().map(|(ours, redis)| redis / ours)).median;
        let title = format!("{}, R = {}", case.name(), case.replicas);
        lines.push([
            title.clone(),
            format!("{:.1}", ours.median),
            format!("[{:.1} .. {:.1}]", ours.min, ours.max),
            format!("{:.1}", redis.median),
            format!("{ratio:.2}"),
            case.paper.into(),
        ]);
        let metric = ("mean_time", "ms");
        let sides = |of: fn(&(f64, f64)) -> f64| rounds.pairs.iter().map(of).collect::<Vec<_>>();
        let parameters = parameters(case);
        json += &report::row(NAME, &parameters, metric, &sides(|pair| pair.0), None);
        json += &report::row_of(
            NAME,
            "redis",
            &parameters,
            metric,
            &sides(|pair| pair.1),
            Some(("nicekv", ratio)),
        );
        let bars = vec![Bar::ours("nicekv", ours), Bar { is_peers: true, ..Bar::ours("redis", redis) }];
        panels.push(Panel { title: format!("{title}, 1 MB over 100 Mbit/s, ms"), bars });
    }
    let nine = nine_to_one(rows);
    let (goal, Summary { median, min, max }) = (Goal::AtMost(NINE_MAX), Summary::of(nine.iter().copied()));
    let met = if goal.is_met(median) { "yes" } else { "no" };
    let line = format!(
        "put, R = 9 ÷ R = 1: {median:.2} [{min:.2} .. {max:.2}], target {goal}: {met} (paper: 1.17)\n"
    );
    json += &report::row(NAME, &parameters(&CASES[NINE]), ("nine_to_one", "ratio"), &nine, None);
    Shown { table: report::aligned(&lines) + &line, json, panels }
}

/// What a put to nine takes beside one to a single replica of the same round.
fn nine_to_one(rows: &[(Case, Rounds)]) -> Vec<f64> {
    let ours = |case: usize| rows[case].1.pairs.iter().map(|(ours, _)| *ours);
    ours(NINE).zip(ours(ONE)).map(|(nine, one)| nine / one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nine_replicas_are_compared_with_one() {
        let replicas = [ONE, NINE].map(|case| (CASES[case].work, CASES[case].replicas));
        assert_eq!(replicas, [(Work::Put, 1), (Work::Put, 9)]);
        let rows = |nine: f64| -> Vec<(Case, Rounds)> {
            let time = |case: &Case| if case.replicas == 9 { nine } else { 90.0 };
            CASES.iter().map(|case| (*case, Rounds { pairs: vec![(time(case), 180.0); 5] })).collect()
        };
        let shown = show(&rows(99.0), |_| json!({}));
        assert!(
            shown.table.contains("1.10 [1.10 .. 1.10]") && shown.table.contains("yes"),
            "{}",
            shown.table
        );
        assert_eq!((shown.json.lines().count(), shown.panels.len()), (2 * CASES.len() + 1, CASES.len()));
        assert!(show(&rows(180.0), |_| json!({})).table.contains("≤ 1.2: no"));
    }
}
