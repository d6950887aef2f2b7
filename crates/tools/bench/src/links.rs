//! `nicekv bench links`: what a put of 1 MB is on the wire, to three replicas.
//!
//! ```text
//!   ours:  client ──1──▶ switch ──1──▶ each of three            4 MB on all links; a primary has as much as a secondary
//!   redis: client ──1──▶ primary ──1──▶ each of two             6 MB; the primary has three times as much
//! ```
//!
//! The baseline of the papers is a store whose primary sends on what it gets; Redis with `WAIT 2` is one. Both are counted at the hosts' interfaces, one after the other in each
//! round, with all that is on these: headers, reports, acknowledgements, heartbeats.

use crate::arguments::{FileArguments, NetworkArguments, RoundsArguments};
use crate::cables::Carried;
use crate::error::{BenchError, Result};
use crate::lab::{Engine, Lab, LabPlan, Size};
use crate::load::large::{LARGE_BYTES, LargeLoad};
use crate::load::large_redis::LargeRedis;
use crate::plot::{Bar, Panel};
use crate::redis_server::Group;
use crate::report;
use crate::statistics::{Summary, in_turn};
use crate::workload::{Sequence, Step, Work};
use nicekv_lab::topology::{Host, WIRE_PORT};
use nicekv_proto::placement::{Vrings, key_digest};
use nicekv_runtime::Stop;
use serde_json::{Value, json};
use std::net::SocketAddrV4;

const NAME: &str = "links";
const NODES: u8 = 3;
const SIZE: Size = Size { nodes: NODES, replicas: NODES };
const CLIENT: Host = Host::Client(0);
const REDIS_PORT: u16 = 6390;
const REDIS: &str = "redis-wait-2";
/// From which come those of one primary.
const KEYS_DRAWN: usize = 1_000;
/// In a round, of each side.
const PUTS: usize = 64;
const PUTS_QUICK: usize = 16;
/// P7 and P8.
const ALL_MAX: f64 = 1.08;
const SHARE: std::ops::RangeInclusive<f64> = 0.9..=1.1;

/// Arguments of `nicekv bench links`.
#[derive(Clone, Debug, clap::Args)]
pub struct LinksArguments {
    /// Put 16 values in a round instead of 64
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    rounds: RoundsArguments,
    #[command(flatten)]
    network: NetworkArguments,
    #[command(flatten)]
    files: FileArguments,
}

/// What a round has shown of a side.
#[derive(Clone, Copy, Debug)]
struct Shares {
    /// Bytes on all links ÷ (1 + R) times those of the values.
    all: f64,
    /// Bytes of the primary's link ÷ those of a secondary's, on average.
    primary: f64,
}

pub(crate) fn run(arguments: &LinksArguments) -> Result<()> {
    let stop = Stop::new();
    stop.on_signals().map_err(BenchError::system("handle signals"))?;
    crate::redis_server::installed_version()?;
    let directory = arguments.files.directory()?;
    let network = arguments.network.network();
    let lab = Lab::up(&LabPlan::new(SIZE, Engine::Memory, network, directory.path()))?;
    let (primary, mut steps) = keys_of_one_primary(&lab.status()?)?;
    steps.truncate(if arguments.quick { PUTS_QUICK } else { PUTS });
    let address = SocketAddrV4::new(CLIENT.address(), 0);
    let bind = || LargeLoad::bind(address, Vrings::on_network(WIRE_PORT), LARGE_BYTES);
    let mut ours = lab.inside(CLIENT, bind)?.map_err(BenchError::system("make a client's socket"))?;
    let group = Group { count: NODES, port: REDIS_PORT, durable: false };
    let _servers = group.start(lab.hosts(), CLIENT, directory.path(), &stop)?;
    let connect = || LargeRedis::connect(group.address(), LARGE_BYTES, usize::from(NODES) - 1);
    let mut redis = lab.inside(CLIENT, connect)?.map_err(BenchError::system("connect to redis"))?;
    let mut rounds = Vec::new();
    for round in 1..=arguments.rounds.rounds {
        let measure = |side: usize| match side {
            0 => shares((&lab, &stop), primary, &steps, |step| ours.execute(step)),
            _ => shares((&lab, &stop), 0, &steps, |step| redis.execute(step)),
        };
        let both = in_turn(round, measure)?;
        let [our, theirs] = both;
        eprintln!(
            "{round}: all links {:.3}, redis {:.3}; primary's {:.2}, redis {:.2}",
            our.all, theirs.all, our.primary, theirs.primary
        );
        rounds.push(both);
    }
    let rows = rows(&rounds);
    print!("{}", report::aligned(&table(&rows)));
    let parameters = json!({
        "network": network.name(),
        "value_bytes": LARGE_BYTES,
        "puts": steps.len(),
        "nodes": NODES,
        "replicas": NODES,
        "mtu": 1500,
    });
    arguments.files.write(NAME, &json_lines(&rows, &parameters), &panels(&rows))
}

/// A primary, and puts of keys of which it is the primary.
fn keys_of_one_primary(status: &Value) -> Result<(u8, Vec<Step>)> {
    let failed = || BenchError::Failed(format!("who is whose primary is not told: {}", status["partitions"]));
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

/// Puts, and what has gone over the links meanwhile; `primary`: the node whose puts they are.
fn shares(
    (lab, stop): (&Lab, &Stop),
    primary: u8,
    steps: &[Step],
    mut put: impl FnMut(&Step) -> Result<()>,
) -> Result<Shares> {
    let others = [CLIENT, Host::Metadata];
    let hosts = || (0..NODES).map(Host::Node).chain(others);
    let carried = || hosts().map(|host| Carried::by(lab.hosts(), host)).collect::<Result<Vec<_>>>();
    let before = carried()?;
    for step in steps {
        if stop.is_stopped() {
            return Err(BenchError::Interrupted);
        }
        put(step)?;
    }
    let after = carried()?;
    let bytes: Vec<u64> =
        after.iter().zip(before).map(|(after, before)| after.since(before).both()).collect();
    Ok(Shares::of(&bytes, primary, steps.len() * LARGE_BYTES))
}

impl Shares {
    /// Of what has gone over the links, those of the nodes first, while `value_bytes` were put.
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

/// A figure of both sides in all rounds, and what it is to be.
struct Row {
    target: &'static str,
    metric: &'static str,
    title: &'static str,
    goal: String,
    is_met: fn(f64) -> bool,
    paper: &'static str,
    ours: Vec<f64>,
    redis: Vec<f64>,
}

fn rows(rounds: &[[Shares; 2]]) -> [Row; 2] {
    let all = |side: usize| rounds.iter().map(|round| round[side].all).collect();
    let primary = |side: usize| rounds.iter().map(|round| round[side].primary).collect();
    [
        Row {
            target: "P7",
            metric: "all_links",
            title: "bytes on all links ÷ (1 + R) values",
            goal: format!("≤ {ALL_MAX}"),
            is_met: |figure| figure <= ALL_MAX,
            paper: "others ÷ NICE 1.7 to 3.5 (Fig. 6)",
            ours: all(0),
            redis: all(1),
        },
        Row {
            target: "P8",
            metric: "primary_link",
            title: "bytes of the primary's link ÷ a secondary's",
            goal: format!("{} to {}", SHARE.start(), SHARE.end()),
            is_met: |figure| SHARE.contains(&figure),
            paper: "NICE 1, a primary that sends on 3 (Fig. 7)",
            ours: primary(0),
            redis: primary(1),
        },
    ]
}

fn median(figures: &[f64]) -> f64 {
    Summary::of(figures.iter().copied()).median
}

impl Row {
    fn cells(&self) -> [String; 8] {
        let Summary { median: ours, min, max } = Summary::of(self.ours.iter().copied());
        let met = if (self.is_met)(ours) { "yes" } else { "no" };
        [
            self.target.into(),
            self.title.into(),
            format!("{ours:.3}"),
            format!("[{min:.3} .. {max:.3}]"),
            self.goal.clone(),
            met.into(),
            format!("{:.3}", median(&self.redis)),
            self.paper.into(),
        ]
    }

    /// Redis' beside ours, as the papers have it.
    fn ratio(&self) -> f64 {
        let ratios: Vec<f64> = self.redis.iter().zip(&self.ours).map(|(redis, ours)| redis / ours).collect();
        median(&ratios)
    }
}

fn table(rows: &[Row]) -> Vec<[String; 8]> {
    let header = ["", "1 MB put, R = 3", "nicekv", "[min .. max]", "target", "met", REDIS, "papers"];
    std::iter::once(header.map(String::from)).chain(rows.iter().map(Row::cells)).collect()
}

fn json_lines(rows: &[Row], parameters: &Value) -> String {
    let lines = |row: &Row| {
        let metric = (row.metric, "ratio");
        let ours = report::row(NAME, parameters, metric, &row.ours, Some(row.target));
        ours + &report::row_of(NAME, REDIS, parameters, metric, &row.redis, Some(("nicekv", row.ratio())))
    };
    rows.iter().map(lines).collect()
}

fn panels(rows: &[Row]) -> Vec<Panel> {
    let panel = |row: &Row| {
        let bar = |name, figures: &[f64]| Bar::ours(name, Summary::of(figures.iter().copied()));
        let redis = Bar { is_peers: true, ..bar(REDIS, &row.redis) };
        Panel { title: format!("{}  {}", row.target, row.title), bars: vec![bar("nicekv", &row.ours), redis] }
    };
    rows.iter().map(panel).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_primary_that_sends_on_has_three_times_as_much() {
        // Nodes 0 to 2, client, metadata service.
        let ours = Shares::of(&[100, 100, 100, 100, 0], 1, 100);
        assert_eq!((ours.all, ours.primary), (1.0, 1.0));
        let theirs = Shares::of(&[300, 100, 100, 100, 0], 0, 100);
        assert_eq!((theirs.all, theirs.primary), (1.5, 3.0));
        let [all, primary] = rows(&[[ours, theirs], [ours, theirs]]);
        assert_eq!((all.ratio(), primary.ratio()), (1.5, 3.0));
        assert_eq!([&all, &primary].map(|row| row.cells()[5].clone()), ["yes", "yes"]);
        let swapped = rows(&[[theirs, ours]]);
        assert_eq!(swapped.map(|row| row.cells()[5].clone()), ["no", "no"]);
    }

    #[test]
    fn puts_are_of_keys_of_one_primary() {
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
