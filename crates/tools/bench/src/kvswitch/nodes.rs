//! `nicekv bench kvswitch-nodes`: throughput against skew and against big values (KVSwitch Fig. 7b,
//! 7d), with real nodes.
//!
//! ```text
//!   client: callers in a closed loop ═══ switch ═══ a limited rate of replies of each ═══ 32 nodes
//! ```
//!
//! Each node's link limits its datagrams per second to the client, of any length, as the paper's
//! servers answer a limited rate of requests; so two processors suffice for 32 nodes. Messages
//! between nodes are not limited: leases of copies take the same number of datagrams however many
//! requests a node answers, and the paper's nodes answer more. Each system has a lab, one after the
//! other. No system knows the workload: it has a few periods to find hot keys before it is
//! measured. Nodes' kernels answer no gets, as their answers would bypass the links' limits.

use crate::error::Result;
use crate::keyspace;
use crate::lab::{CLIENT, Engine, Lab, LabPlan, Size};
use crate::report::{Goal, Report, Row, charts};
use crate::session::{RoundsArguments, Session, SessionArguments};
use crate::statistics::median;
use crate::turbokv::load::MixedLoad;
use crate::turbokv::workload::{BIG_BYTES, Mix, Ops, Popularity, Skew, VALUE_BYTES};
use nicekv_client::Config;
use nicekv_lab::topology::Host;
use nicekv_runtime::new_client_id;
use serde_json::json;
use std::time::Duration;

const NODES: u8 = 32;
const PARTITIONS: u32 = 256;
const KEYSPACE: &str = "hot=id=1,replicas=1,partitions=256,balancing=hot";
/// Requests in flight: eight per node if load is even.
const CALLERS: usize = 256;
const SKEW: f64 = 0.99;
const PRELOAD_TIMEOUT: Duration = Duration::from_secs(120);
/// Minimum throughput at the paper's skew, as a part of that without skew.
const KEPT_MIN: f64 = 0.98;

/// Arguments of `nicekv bench kvswitch-nodes`.
#[derive(Clone, Debug, clap::Args)]
pub struct NodesArguments {
    #[command(flatten)]
    rounds: RoundsArguments,
    /// Replies that each node may send in a second
    #[arg(long, default_value_t = 400, value_name = "N", value_parser = clap::value_parser!(u32).range(100..=100_000))]
    node_rate: u32,
    /// How long a system is under load before it is measured: its periods are a second long
    #[arg(long, default_value_t = 12, value_name = "SECONDS")]
    settling: u64,
    /// Only these systems
    #[arg(long, value_delimiter = ',', default_values = SYSTEMS.map(|system| system.name), value_parser = SYSTEMS.map(|system| system.name))]
    systems: Vec<String>,
    #[command(flatten)]
    session: SessionArguments,
}

/// A system of the paper.
#[derive(Clone, Copy, Debug)]
struct System {
    name: &'static str,
    /// Options of `nicekv lab up` for copies.
    hot: [&'static str; 4],
    /// The paper's throughput ÷ that without skew: at Zipf 0.99, and there with half the values
    /// big.
    paper: [Option<f64>; 2],
}

const fn system(
    name: &'static str,
    holders: &'static str,
    values: &'static str,
    paper: [Option<f64>; 2],
) -> System {
    System { name, hot: ["--hot-holders", holders, "--hot-values", values], paper }
}

const SYSTEMS: [System; 3] = [
    system("original", "0", "0", [Some(2.1 / 15.4), None]),
    system("netcache", "0", "1000", [Some(19.0 / 15.4), Some(8.1 / 15.4)]),
    system("kvswitch", "31", "0", [Some(1.0), Some(1.0)]),
];

#[derive(Clone, Copy, Debug, PartialEq)]
struct Workload {
    panel: &'static str,
    skew: f64,
    big_percent: u32,
}

/// A system's results under a workload, round by round.
struct Measured {
    system: &'static System,
    workload: Workload,
    /// Gets per second.
    rates: Vec<f64>,
    /// Datagrams sent again, in percent of gets.
    sent_again: Vec<f64>,
}

fn workloads(quick: bool) -> Vec<Workload> {
    let skews: &[f64] = if quick { &[0.0, 0.99] } else { &[0.0, 0.9, 0.95, 0.99, 1.5] };
    let percents: &[u32] = if quick { &[50] } else { &[10, 25, 50] };
    let by_skew = skews.iter().map(|skew| Workload { panel: "7b", skew: *skew, big_percent: 0 });
    let by_size = percents.iter().map(|percent| Workload { panel: "7d", skew: SKEW, big_percent: *percent });
    by_skew.chain(by_size).collect()
}

pub(crate) fn run(arguments: &NodesArguments) -> Result<()> {
    let session = arguments.session.start()?;
    let mut measured = Vec::new();
    for system in SYSTEMS.iter().filter(|system| arguments.systems.iter().any(|name| name == system.name)) {
        measured.extend(measure(system, arguments, &session)?);
    }
    let rows: Vec<Row> =
        measured.iter().map(|one| one.row(&measured, &session, arguments.node_rate)).collect();
    let mut report = Report::new("kvswitch-nodes");
    report.rows(&rows);
    report.note(format_args!(
        "The paper's servers answer 15.4 M/s without skew, of 100 million keys; these have 100,000. Its NetCache keeps values of 128 bytes at most in the switch, this one of 1,024: big \
         ones of {BIG_BYTES} are no obstacle to it."
    ));
    // The curves of 7d begin without big values, as in 7b.
    let without_big = rows.iter().filter(|row| row.at == Some(("skew", SKEW)));
    let without_big =
        without_big.map(|row| row.clone().panel("7d").at("big values, %", 0.0)).collect::<Vec<_>>();
    report.charts(charts(&[rows, without_big].concat(), |_| (false, false)));
    session.finish(report)
}

/// Measures all workloads of a system.
fn measure(system: &'static System, arguments: &NodesArguments, session: &Session) -> Result<Vec<Measured>> {
    let size = Size { nodes: NODES, replicas: 1 };
    let options = [&["--keyspace", KEYSPACE, "--kernel-get-mib", "0"][..], &system.hot].concat();
    eprintln!("starting a lab of {NODES} nodes: {}", system.name);
    let lab = Lab::up(&LabPlan { options: &options, ..session.plan(size, Engine::Memory) })?;
    let keyspace = keyspace::known(KEYSPACE, size, PARTITIONS)?;
    let mut load =
        lab.client(CLIENT, |address| MixedLoad::bind(address, Config::new(new_client_id()?, keyspace)))?;
    load.preload(CALLERS, session.limits(PRELOAD_TIMEOUT))?;
    (0..NODES).try_for_each(|node| {
        lab.hosts().limit_datagrams(Host::Node(node), CLIENT.address(), arguments.node_rate)
    })?;
    let settling = Duration::from_secs(arguments.settling);
    let (mut all, mut big_percent) = (Vec::new(), 0);
    for workload in workloads(session.quick) {
        let skew = if workload.skew > 0.0 { Skew::Zipf(workload.skew) } else { Skew::Uniform };
        let popularity = Popularity::new(skew);
        if workload.big_percent != big_percent {
            big_percent = workload.big_percent;
            load.set_big(popularity.big(big_percent));
            load.preload(CALLERS, session.limits(PRELOAD_TIMEOUT))?;
        }
        load.run(Ops::new(&popularity, Mix::Writes(0.0), 0), CALLERS, session.limits(settling))?;
        let mut measured = Measured { system, workload, rates: Vec::new(), sent_again: Vec::new() };
        for seed in 1..=arguments.rounds.rounds {
            let ops = Ops::new(&popularity, Mix::Writes(0.0), seed.into());
            let (run, _) = load.run(ops, CALLERS, session.limits(session.round_time()))?;
            measured.rates.push(run.throughput());
            measured.sent_again.push(100.0 * run.retries as f64 / run.operations as f64);
        }
        let (panel, title, rate) = (workload.panel, workload.title(), median(&measured.rates));
        eprintln!("{panel} {title}, {}: {rate:.0}/s", system.name);
        all.push(measured);
    }
    Ok(all)
}

impl Workload {
    fn title(&self) -> String {
        match self.big_percent {
            0 => format!("Zipf {}", self.skew),
            percent => format!("Zipf {}, {percent} % big", self.skew),
        }
    }
}

impl Measured {
    /// The row, beside the same system without skew.
    fn row(&self, all: &[Self], session: &Session, node_rate: u32) -> Row {
        let Self { system, workload, rates, sent_again } = self;
        let Workload { panel, skew, big_percent } = *workload;
        let is_even = |other: &&Self| other.system.name == system.name && other.workload.skew == 0.0;
        let kept = median(rates) / all.iter().find(is_even).map_or(f64::NAN, |even| median(&even.rates));
        let paper = match (skew, big_percent) {
            (SKEW, 0) => system.paper[0],
            (SKEW, 50) => system.paper[1],
            _ => None,
        };
        let is_judged = system.name == "kvswitch" && skew == SKEW && big_percent == 0;
        let (axis, place) =
            if panel == "7b" { ("skew", skew) } else { ("big values, %", big_percent.into()) };
        Row::new(workload.title(), system.name, ("throughput", "1/s"), rates.clone())
            .panel(panel)
            .at(axis, place)
            .ratio("uniform", kept)
            .goal(is_judged.then_some(Goal::AtLeast(KEPT_MIN)))
            .remark(format!(
                "{:.1} % sent again{}",
                median(sent_again),
                paper.map_or_else(String::new, |paper| format!("; paper's ratio: {paper:.2}"))
            ))
            .parameters(json!({
                "network": session.network.name(),
                "panel": panel,
                "zipf": skew,
                "big_percent": big_percent,
                "value_bytes": VALUE_BYTES,
                "big_bytes": BIG_BYTES,
                "nodes": NODES,
                "node_rate": node_rate,
                "callers": CALLERS,
            }))
    }
}
