//! `nicekv bench links`: bytes on the links while 1 MB values are put to three replicas.
//!
//! ```text
//!   nicekv: client ──1──▶ switch ──1──▶ each of three           4 MB on all links; a primary carries as much as a secondary
//!   redis:  client ──1──▶ primary ──1──▶ each of two            6 MB; the primary carries three times as much
//! ```
//!
//! The papers' baseline is a store whose primary forwards each value to its replicas, as Redis with
//! `WAIT 2` does. Both are counted at the hosts' interfaces, one after the other in each round,
//! with headers, reports, acknowledgements and heartbeats.

use crate::error::{BenchError, Result};
use crate::lab::{CLIENT, Engine, Lab, Size};
use crate::link_bytes::LinkBytes;
use crate::load::large::{LARGE_BYTES, LargeLoad};
use crate::load::large_redis::LargeRedis;
use crate::redis_server::{self, Group};
use crate::report::{Goal, NICEKV, Report, Row};
use crate::session::{RoundsArguments, Session, SessionArguments};
use crate::statistics::in_turn;
use crate::workload::{Sequence, Step, Work};
use nicekv_lab::topology::{Host, WIRE_PORT};
use nicekv_proto::placement::{Vrings, key_digest};
use serde_json::{Value, json};

const NODES: u8 = 3;
const SIZE: Size = Size { nodes: NODES, replicas: NODES };
const REDIS_PORT: u16 = 6390;
const REDIS: &str = "redis-wait-2";
/// Keys drawn, of which those of one primary are used.
const KEYS_DRAWN: usize = 1_000;
/// Puts of each side in a round.
const PUTS: usize = 64;
const PUTS_QUICK: usize = 16;
/// Targets P7 and P8.
const ALL_LINKS: Goal = Goal::AtMost(1.08);
const PRIMARY_LINK: Goal = Goal::Between(0.9, 1.1);

/// Arguments of `nicekv bench links`.
#[derive(Clone, Debug, clap::Args)]
pub struct LinksArguments {
    #[command(flatten)]
    rounds: RoundsArguments,
    #[command(flatten)]
    session: SessionArguments,
}

/// One side's figures in a round.
#[derive(Clone, Copy, Debug)]
struct Shares {
    /// Bytes on all links ÷ (1 + R) times the bytes of the values.
    all: f64,
    /// Bytes on the primary's link ÷ those on a secondary's, on average.
    primary: f64,
}

pub(crate) fn run(arguments: &LinksArguments) -> Result<()> {
    redis_server::installed_version()?;
    let session = arguments.session.start()?;
    let lab = Lab::up(&session.plan(SIZE, Engine::Memory))?;
    let (primary, mut steps) = keys_of_one_primary(&lab.status()?)?;
    steps.truncate(session.few_or(PUTS_QUICK, PUTS));
    let vrings = Vrings::on_network(WIRE_PORT);
    let mut ours = lab.client(CLIENT, |address| LargeLoad::bind(address, vrings, LARGE_BYTES))?;
    let group = Group { count: NODES, port: REDIS_PORT, durable: false };
    let _servers = group.start(lab.hosts(), CLIENT, session.directory(), &session.stop)?;
    let replicas = usize::from(NODES) - 1;
    let mut redis = lab.client(CLIENT, |_| LargeRedis::connect(group.address(), LARGE_BYTES, replicas))?;
    let mut rounds = Vec::new();
    for round in 1..=arguments.rounds.rounds {
        let both = in_turn(round, |side| match side {
            0 => shares((&lab, &session), primary, &steps, |step| ours.execute(step)),
            _ => shares((&lab, &session), 0, &steps, |step| redis.execute(step)),
        })?;
        let [our, theirs] = both;
        eprintln!(
            "{round}: all links {:.3}, redis {:.3}; primary's {:.2}, redis {:.2}",
            our.all, theirs.all, our.primary, theirs.primary
        );
        rounds.push(both);
    }
    let parameters = json!({
        "network": session.network.name(),
        "value_bytes": LARGE_BYTES,
        "puts": steps.len(),
        "nodes": NODES,
        "replicas": NODES,
        "mtu": 1500,
    });
    let mut report = Report::new("links");
    report.rows_with_bars(&rows(&rounds, &parameters));
    session.finish(report)
}

/// A node, and puts of keys of which it is the primary.
fn keys_of_one_primary(status: &Value) -> Result<(u8, Vec<Step>)> {
    let failed = || BenchError::Failed(format!("the lab reports no primaries: {}", status["partitions"]));
    let partitions = status["partitions"].as_array().ok_or_else(failed)?;
    let primary_of = |step: &Step| {
        let value = key_digest(&step.key()).match_value();
        let has_it = |partition: &&Value| partition["keyspace"] == 0 && is_in(partition, value);
        partitions.iter().find(has_it).and_then(|partition| partition["primary"].as_u64())
    };
    let mut steps: Vec<Step> = Sequence::new(Work::Put, 0).take(KEYS_DRAWN).collect();
    let primary = steps.first().and_then(primary_of).ok_or_else(failed)?;
    steps.retain(|step| primary_of(step) == Some(primary));
    Ok((u8::try_from(primary).map_err(|_| failed())?, steps))
}

fn is_in(partition: &Value, value: u128) -> bool {
    let border = |name: &str| u128::from_str_radix(partition[name].as_str()?, 16).ok();
    let borders = border("first").zip(border("last"));
    borders.is_some_and(|(first, last)| (first..=last).contains(&value))
}

/// Puts all `steps`, whose primary is node `primary`, and counts the bytes on the links meanwhile.
fn shares(
    (lab, session): (&Lab, &Session),
    primary: u8,
    steps: &[Step],
    mut put: impl FnMut(&Step) -> Result<()>,
) -> Result<Shares> {
    let others = [CLIENT, Host::Metadata];
    let hosts = || (0..NODES).map(Host::Node).chain(others);
    let counted = || hosts().map(|host| LinkBytes::of(lab.hosts(), host)).collect::<Result<Vec<_>>>();
    let before = counted()?;
    for step in steps {
        session.check()?;
        put(step)?;
    }
    let after = counted()?;
    let bytes: Vec<u64> =
        after.iter().zip(before).map(|(after, before)| after.since(before).both()).collect();
    Ok(Shares::of(&bytes, primary, steps.len() * LARGE_BYTES))
}

impl Shares {
    /// From the bytes on each link, those of the nodes first, while `value_bytes` were put.
    fn of(bytes: &[u64], primary: u8, value_bytes: usize) -> Self {
        let (nodes, primary) = (usize::from(NODES), usize::from(primary));
        let all: u64 = bytes.iter().sum();
        let secondaries = bytes[..nodes].iter().sum::<u64>() - bytes[primary];
        Self {
            all: all as f64 / ((1 + nodes) * value_bytes) as f64,
            primary: bytes[primary] as f64 * (nodes - 1) as f64 / secondaries as f64,
        }
    }
}

/// Both metrics, each for NICEKV and for Redis. The ratio is others ÷ NICEKV, as in the papers.
fn rows(rounds: &[[Shares; 2]], parameters: &Value) -> Vec<Row> {
    let pair = |(target, goal): (&'static str, Goal), metric, title, paper, of: fn(&Shares) -> f64| {
        let figures = |side: usize| rounds.iter().map(|round| of(&round[side])).collect::<Vec<_>>();
        let row = |system, side| {
            let row = Row::new(title, system, (metric, "ratio"), figures(side));
            row.parameters(parameters.clone())
        };
        let ours = row(NICEKV, 0).goal(goal).target(target).remark(paper);
        [ours, row(REDIS, 1).beside(NICEKV, &figures(0)).peer(true)]
    };
    let all = pair(
        ("P7", ALL_LINKS),
        "all_links",
        "bytes on all links ÷ (1 + R) values",
        "paper: others ÷ NICE 1.7 to 3.5 (Fig. 6)",
        |shares| shares.all,
    );
    let primary = pair(
        ("P8", PRIMARY_LINK),
        "primary_link",
        "bytes of the primary's link ÷ a secondary's",
        "paper: NICE 1, a forwarding primary 3 (Fig. 7)",
        |shares| shares.primary,
    );
    [all, primary].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forwarding_primary_carries_three_times_as_much() {
        // Nodes 0 to 2, client, metadata service.
        let ours = Shares::of(&[100, 100, 100, 100, 0], 1, 100);
        assert_eq!((ours.all, ours.primary), (1.0, 1.0));
        let theirs = Shares::of(&[300, 100, 100, 100, 0], 0, 100);
        assert_eq!((theirs.all, theirs.primary), (1.5, 3.0));
        let judged = |rounds: &[[Shares; 2]]| {
            let rows = rows(rounds, &Value::Null);
            [0, 2].map(|ours| (rows[ours].is_met(), rows[ours + 1].ratio.as_ref().map(|(_, ratio)| *ratio)))
        };
        let met = Some(true);
        assert_eq!(judged(&[[ours, theirs], [ours, theirs]]), [(met, Some(1.5)), (met, Some(3.0))]);
        assert_eq!(judged(&[[theirs, ours]]).map(|(met, _)| met), [Some(false); 2]);
    }

    #[test]
    fn puts_use_keys_of_one_primary() {
        let half = 1_u128 << 127;
        let hex = |value: u128| format!("{value:032x}");
        let status = json!({ "partitions": [
            { "keyspace": 1, "primary": 0, "first": hex(0), "last": hex(u128::MAX) },
            { "keyspace": 0, "primary": 1, "first": hex(0), "last": hex(half - 1) },
            { "keyspace": 0, "primary": 2, "first": hex(half), "last": hex(u128::MAX) },
        ] });
        let (primary, steps) = keys_of_one_primary(&status).unwrap();
        assert!((200..800).contains(&steps.len()), "{}", steps.len());
        let is_upper = |step: &Step| key_digest(&step.key()).match_value() >= half;
        assert!(steps.iter().all(|step| is_upper(step) == (primary == 2)));
        assert!(keys_of_one_primary(&json!({})).is_err());
    }
}
