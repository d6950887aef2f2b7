//! 1 MB over links of 100 Mbit/s: puts to 1, 3 … 9 replicas, and gets.

use super::{BURST, MBIT, OP_TIMEOUT, PARTITIONS};
use crate::error::Result;
use crate::keyspace;
use crate::lab::{CLIENT, Engine, Lab, LabPlan, Size};
use crate::load::large::{LARGE_BYTES, LARGE_KEYS, LargeLoad};
use crate::load::large_redis::LargeRedis;
use crate::redis_server::{Group, RedisServer};
use crate::report::{Goal, NICEKV, Report, Row};
use crate::session::Session;
use crate::statistics::{Rounds, in_turn, ratios};
use crate::workload::{Sequence, Work};
use nicekv_lab::topology::Host;
use serde_json::{Value, json};

const NODES: u8 = 9;
const SIZE: Size = Size { nodes: NODES, replicas: NODES };
/// Port of the first group of Redis servers, for R = 1; each further group has the next port.
const REDIS_PORT: u16 = 6390;
/// Ops of each kind in a round.
const OPERATIONS: usize = 4;
const OPERATIONS_QUICK: usize = 1;
/// A put to nine replicas ÷ one to a single replica.
const NINE_TO_ONE: Goal = Goal::AtMost(1.2);

/// A kind of op.
#[derive(Clone, Copy, Debug)]
struct Case {
    work: Work,
    replicas: u8,
    /// The paper's ratio: others ÷ NICE.
    paper: &'static str,
}

const fn put(replicas: u8, paper: &'static str) -> Case {
    Case { work: Work::Put, replicas, paper }
}

const CASES: [Case; 6] = [
    put(1, ""),
    put(3, "up to 4.3, 3.4, 2.6 (Fig. 5)"),
    put(5, ""),
    put(7, ""),
    put(9, "5.5 (Fig. 9)"),
    Case { work: Work::Get, replicas: 3, paper: "2, 1.5; asked directly 1 (Fig. 4)" },
];
/// The puts with fewest and with most replicas.
const ONE: usize = 0;
const NINE: usize = 4;

/// Both sides of a case.
struct Sides {
    case: Case,
    ours: LargeLoad,
    redis: LargeRedis,
    #[allow(dead_code, reason = "ended when they are dropped, after the load")]
    servers: Vec<RedisServer>,
    /// Milliseconds of an op.
    rounds: Rounds,
}

pub(super) fn run(session: &Session, rounds: u32, report: &mut Report) -> Result<()> {
    let keyspaces = CASES[..=NINE].iter().map(Case::keyspace).collect::<Vec<_>>();
    let options: Vec<&str> = keyspaces.iter().flat_map(|text| ["--keyspace", text.as_str()]).collect();
    let plan = session.plan(SIZE, Engine::Memory);
    let lab = Lab::up(&LabPlan { options: &options, suffix: Some("shaped"), ..plan })?;
    let start = |(case, port): (&Case, u16)| Sides::start(*case, port, &lab, session);
    let mut all = CASES.iter().zip(REDIS_PORT..).map(start).collect::<Result<Vec<_>>>()?;
    for host in (0..NODES).map(Host::Node).chain([CLIENT]) {
        lab.hosts().limit(host, MBIT, BURST)?;
    }
    let operations = session.few_or(OPERATIONS_QUICK, OPERATIONS);
    for round in 1..=rounds {
        for sides in &mut all {
            sides.measure(round, operations, session)?;
        }
    }
    let parameters = |case: &Case| {
        json!({
            "network": session.network.name(), "mbit": MBIT, "work": case.name(), "replicas": case.replicas, "nodes": NODES,
            "value_bytes": LARGE_BYTES, "operations": operations,
        })
    };
    let measured: Vec<(Case, Rounds)> = all.into_iter().map(|sides| (sides.case, sides.rounds)).collect();
    report.rows_with_bars(&rows(&measured, parameters));
    Ok(())
}

impl Case {
    fn name(&self) -> &'static str {
        if self.work == Work::Get { "get" } else { "put" }
    }

    fn keyspace(&self) -> String {
        let replicas = self.replicas;
        format!("r{replicas}=id={replicas},replicas={replicas},partitions={PARTITIONS}")
    }
}

impl Sides {
    fn start(case: Case, port: u16, lab: &Lab, session: &Session) -> Result<Self> {
        let keyspace = keyspace::known(&case.keyspace(), SIZE, PARTITIONS)?;
        let mut ours = lab.client(CLIENT, |address| LargeLoad::bind(address, keyspace, LARGE_BYTES))?;
        // Gets need no replicas.
        let count = if case.work == Work::Get { 1 } else { case.replicas };
        let group = Group { count, port, durable: false };
        let servers = group.start(lab.hosts(), CLIENT, session.directory(), &session.stop)?;
        let replicas = usize::from(count) - 1;
        let mut redis =
            lab.client(CLIENT, |_| LargeRedis::connect(group.address(), LARGE_BYTES, replicas))?;
        if case.work == Work::Get {
            let preload = || Sequence::of_first(LARGE_KEYS, Work::Preload, 0);
            ours.run(preload(), session.limits(OP_TIMEOUT))?;
            redis.run(preload(), session.limits(OP_TIMEOUT))?;
        }
        Ok(Self { case, ours, redis, servers, rounds: Rounds::default() })
    }

    fn measure(&mut self, round: u32, operations: usize, session: &Session) -> Result<()> {
        let Self { case, ours, redis, rounds, .. } = self;
        let steps = || Sequence::of_first(LARGE_KEYS, case.work, round.into()).take(operations);
        let limits = session.limits(OP_TIMEOUT);
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
        rounds.push(our_ms, redis_ms);
        Ok(())
    }
}

fn rows(measured: &[(Case, Rounds)], parameters: impl Fn(&Case) -> Value) -> Vec<Row> {
    let row = |case: &Case, workload: &str, system, metric, figures: &[f64]| {
        Row::new(workload, system, metric, figures.to_vec()).parameters(parameters(case))
    };
    let mut rows = Vec::new();
    for (case, Rounds { ours, peers }) in measured {
        let workload = format!("{} of 1 MB, R = {}, {MBIT} Mbit/s", case.name(), case.replicas);
        let metric = ("mean_time", "ms");
        rows.push(row(case, &workload, NICEKV, metric, ours));
        let redis = row(case, &workload, "redis", metric, peers).beside(NICEKV, ours).peer(true);
        rows.push(redis.remark(if case.paper.is_empty() {
            String::new()
        } else {
            format!("paper: {}", case.paper)
        }));
    }
    let nine = ratios(&measured[NINE].1.ours, &measured[ONE].1.ours);
    let (case, workload) = (&measured[NINE].0, "put, R = 9 ÷ R = 1");
    rows.push(
        row(case, workload, NICEKV, ("nine_to_one", "ratio"), &nine).goal(NINE_TO_ONE).paper(Some(1.17)),
    );
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nine_replicas_are_compared_with_one() {
        let replicas = [ONE, NINE].map(|case| (CASES[case].work, CASES[case].replicas));
        assert_eq!(replicas, [(Work::Put, 1), (Work::Put, 9)]);
        let rows = |nine: f64| {
            let time = |case: &Case| if case.replicas == 9 { nine } else { 90.0 };
            let rounds = |case: &Case| Rounds { ours: vec![time(case); 5], peers: vec![180.0; 5] };
            let measured: Vec<(Case, Rounds)> = CASES.iter().map(|case| (*case, rounds(case))).collect();
            rows(&measured, |_| json!({}))
        };
        let last = |nine: f64| rows(nine).pop().map(|row| (row.average(), row.is_met()));
        assert_eq!(rows(99.0).len(), 2 * CASES.len() + 1);
        assert_eq!((last(99.0), last(180.0)), (Some((1.1, Some(true))), Some((2.0, Some(false)))));
    }
}
