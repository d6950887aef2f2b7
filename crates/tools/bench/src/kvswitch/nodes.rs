//! `nicekv bench kvswitch-nodes`: throughput against skew and against big values (KVSwitch Fig. 7b, 7d), by the product itself.
//!
//! ```text
//!   client: callers in a closed loop ═══ switch ═══ so many replies a second of each ═══ 32 nodes
//! ```
//!
//! Each node's link lets so many datagrams out to the client in a second, however long they are, as the paper's servers answer so many requests; so two processors are enough for 32 of
//! them. What nodes say among themselves is not limited: leases of copies take as many datagrams of a node however many requests it answers, and the paper's answer more. The systems have a lab each, one after the other: none of them is told of the workload, each has its own periods to find what is hot, and is measured then. Nodes' kernels answer
//! nothing, as their answers would go past the links' limits.

use crate::arguments::{FileArguments, NetworkArguments, RoundsArguments};
use crate::curves::{self, Axes, Chart};
use crate::error::{BenchError, Result};
use crate::keyspace;
use crate::lab::{Engine, Lab, LabPlan, Size};
use crate::load::Limits;
use crate::report::{self, Goal};
use crate::statistics::{Summary, figure};
use crate::turbokv::load::MixedLoad;
use crate::turbokv::workload::{BIG_BYTES, Mix, Ops, Popularity, Skew, VALUE_BYTES};
use nicekv_client::Config;
use nicekv_lab::topology::Host;
use nicekv_runtime::{Stop, new_client_id};
use serde_json::{Value, json};
use std::net::SocketAddrV4;
use std::time::Duration;

const NAME: &str = "kvswitch-nodes";
const NODES: u8 = 32;
const PARTITIONS: u32 = 256;
const KEYSPACE: &str = "hot=id=1,replicas=1,partitions=256,balancing=hot";
/// Requests under way: eight for each node if load is even.
const CALLERS: usize = 256;
const CLIENT: Host = Host::Client(0);
const SKEW: f64 = 0.99;
const PRELOAD_TIMEOUT: Duration = Duration::from_secs(120);
/// Throughput at the paper's skew beside that without any.
const KEPT_MIN: f64 = 0.98;

/// Arguments of `nicekv bench kvswitch-nodes`.
#[derive(Clone, Debug, clap::Args)]
pub struct NodesArguments {
    /// Fewer workloads, and rounds of half a second instead of two
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    rounds: RoundsArguments,
    /// Replies that each node may send in a second
    #[arg(long, default_value_t = 400, value_name = "N", value_parser = clap::value_parser!(u32).range(100..=100_000))]
    node_rate: u32,
    /// How long a system is asked before it is measured: its periods are a second long
    #[arg(long, default_value_t = 12, value_name = "SECONDS")]
    settling: u64,
    /// Only these systems
    #[arg(long, value_delimiter = ',', default_values = SYSTEMS.map(|system| system.name), value_parser = SYSTEMS.map(|system| system.name))]
    systems: Vec<String>,
    #[command(flatten)]
    network: NetworkArguments,
    #[command(flatten)]
    files: FileArguments,
}

/// A system of the paper's.
#[derive(Clone, Copy, Debug)]
struct System {
    name: &'static str,
    /// What `nicekv lab up` is told of copies.
    hot: [&'static str; 4],
    /// The paper's throughput as part of that without skew: at Zipf 0.99, and there with half the values big.
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

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cell {
    panel: &'static str,
    skew: f64,
    big_percent: u32,
}

struct Row {
    system: &'static System,
    cell: Cell,
    rates: Vec<f64>,
    /// Of gets, in percent.
    again: Vec<f64>,
}

fn cells(quick: bool) -> Vec<Cell> {
    let skews: &[f64] = if quick { &[0.0, 0.99] } else { &[0.0, 0.9, 0.95, 0.99, 1.5] };
    let percents: &[u32] = if quick { &[50] } else { &[10, 25, 50] };
    let by_skew = skews.iter().map(|skew| Cell { panel: "7b", skew: *skew, big_percent: 0 });
    let by_size = percents.iter().map(|percent| Cell { panel: "7d", skew: SKEW, big_percent: *percent });
    by_skew.chain(by_size).collect()
}

pub(crate) fn run(arguments: &NodesArguments) -> Result<()> {
    let stop = Stop::new();
    stop.on_signals().map_err(BenchError::system("handle signals"))?;
    let mut rows = Vec::new();
    for system in SYSTEMS.iter().filter(|system| arguments.systems.iter().any(|name| name == system.name)) {
        rows.extend(measure(system, arguments, &stop)?);
    }
    print!("{}", report::aligned(&table(&rows)));
    println!(
        "The paper's servers answer 15.4 M/s without skew, of 100 million keys; these have 100,000. Its NetCache keeps values of 128 bytes at most in the switch, this one of 1,024: big \
         ones of {BIG_BYTES} are no obstacle to it."
    );
    let json: String = rows.iter().map(|row| row.json(&rows, arguments)).collect();
    arguments.files.write_image(NAME, &json, &curves::svg(&charts(&rows)))
}

/// All cells of a system.
fn measure(system: &'static System, arguments: &NodesArguments, stop: &Stop) -> Result<Vec<Row>> {
    let directory = arguments.files.directory()?;
    let size = Size { nodes: NODES, replicas: 1 };
    let further = [&["--keyspace", KEYSPACE, "--kernel-get-mib", "0"][..], &system.hot].concat();
    let plan = LabPlan::new(size, Engine::Memory, arguments.network.network(), directory.path());
    eprintln!("starting a lab of {NODES} nodes: {}", system.name);
    let lab = Lab::up(&LabPlan { further: &further, ..plan })?;
    let keyspace = keyspace::known(KEYSPACE, size, PARTITIONS)?;
    let bind =
        || MixedLoad::bind(SocketAddrV4::new(CLIENT.address(), 0), Config::new(new_client_id()?, keyspace));
    let mut load = lab.inside(CLIENT, bind)?.map_err(BenchError::system("make a client's socket"))?;
    let limits = |duration| Limits { duration, stop };
    load.preload(CALLERS, limits(PRELOAD_TIMEOUT))?;
    (0..NODES).try_for_each(|node| {
        lab.hosts().limit_datagrams(Host::Node(node), CLIENT.address(), arguments.node_rate)
    })?;
    let (round, settling) = (
        Duration::from_millis(if arguments.quick { 500 } else { 2_000 }),
        Duration::from_secs(arguments.settling),
    );
    let (mut rows, mut big_percent) = (Vec::new(), 0);
    for cell in cells(arguments.quick) {
        let popularity = Popularity::new(if cell.skew > 0.0 { Skew::Zipf(cell.skew) } else { Skew::Uniform });
        if cell.big_percent != big_percent {
            big_percent = cell.big_percent;
            load.set_big(popularity.big(big_percent));
            load.preload(CALLERS, limits(PRELOAD_TIMEOUT))?;
        }
        load.run(Ops::new(&popularity, Mix::Writes(0.0), 0), CALLERS, limits(settling))?;
        let mut row = Row { system, cell, rates: Vec::new(), again: Vec::new() };
        for seed in 1..=arguments.rounds.rounds {
            let ops = Ops::new(&popularity, Mix::Writes(0.0), seed.into());
            let (measured, _) = load.run(ops, CALLERS, limits(round))?;
            row.rates.push(measured.throughput());
            row.again.push(100.0 * measured.retries as f64 / measured.operations as f64);
        }
        eprintln!(
            "{} {}: {:.0}/s",
            cell.panel,
            row.workload(),
            Summary::of(row.rates.iter().copied()).median
        );
        rows.push(row);
    }
    Ok(rows)
}

impl Row {
    fn workload(&self) -> String {
        let Cell { skew, big_percent, .. } = self.cell;
        match big_percent {
            0 => format!("Zipf {skew}, {}", self.system.name),
            _ => format!("Zipf {skew}, {big_percent} % big, {}", self.system.name),
        }
    }

    fn median(&self) -> f64 {
        Summary::of(self.rates.iter().copied()).median
    }

    /// As part of the same system's without skew.
    fn kept(&self, all: &[Self]) -> f64 {
        let is_even = |row: &&Self| row.system.name == self.system.name && row.cell.skew == 0.0;
        self.median() / all.iter().find(is_even).map_or(f64::NAN, Self::median)
    }

    fn paper(&self) -> Option<f64> {
        match (self.cell.skew, self.cell.big_percent) {
            (SKEW, 0) => self.system.paper[0],
            (SKEW, 50) => self.system.paper[1],
            _ => None,
        }
    }

    fn goal(&self) -> Option<Goal> {
        let is_judged =
            self.system.name == "kvswitch" && self.cell.skew == SKEW && self.cell.big_percent == 0;
        is_judged.then_some(Goal::AtLeast(KEPT_MIN))
    }

    fn columns(&self, all: &[Self]) -> [String; 8] {
        let Summary { median, min, max } = Summary::of(self.rates.iter().copied());
        let kept = self.kept(all);
        [
            self.cell.panel.into(),
            self.workload(),
            figure(median),
            format!("[{} .. {}]", figure(min), figure(max)),
            format!("{:.1}", Summary::of(self.again.iter().copied()).median),
            format!("{kept:.2}"),
            self.paper().map_or_else(String::new, |paper| format!("{paper:.2}")),
            self.goal().map_or_else(String::new, |goal| {
                format!("{goal}: {}", if goal.is_met(kept) { "yes" } else { "no" })
            }),
        ]
    }

    fn json(&self, all: &[Self], arguments: &NodesArguments) -> String {
        let Cell { panel, skew, big_percent } = self.cell;
        let parameters: Value = json!({
            "network": arguments.network.network().name(),
            "panel": panel,
            "zipf": skew,
            "big_percent": big_percent,
            "value_bytes": VALUE_BYTES,
            "big_bytes": BIG_BYTES,
            "nodes": NODES,
            "node_rate": arguments.node_rate,
            "callers": CALLERS,
        });
        let ratio = Some(("uniform", self.kept(all)));
        report::row_of(NAME, self.system.name, &parameters, ("throughput", "1/s"), &self.rates, ratio)
    }
}

fn table(rows: &[Row]) -> Vec<[String; 8]> {
    let header =
        ["figure", "workload", "gets/s", "[min .. max]", "again, %", "÷ uniform", "paper", "target, met"];
    std::iter::once(header.map(String::from)).chain(rows.iter().map(|row| row.columns(rows))).collect()
}

fn charts(rows: &[Row]) -> Vec<Chart> {
    let chart = |title: &str, x, of: &dyn Fn(&Cell) -> Option<f64>| {
        let axes = Axes { x, y: "1/s", is_logarithmic: false, is_y_logarithmic: false };
        let curve = |system: &System| {
            let own = rows.iter().filter(|row| row.system.name == system.name);
            (system.name, own.filter_map(|row| Some((of(&row.cell)?, row.median()))).collect())
        };
        Chart { title: title.into(), axes, curves: SYSTEMS.iter().map(curve).collect(), marks: Vec::new() }
    };
    vec![
        chart("7b  throughput", "skew", &|cell| (cell.big_percent == 0).then_some(cell.skew)),
        chart("7d  throughput", "big values, %", &|cell| {
            (cell.skew == SKEW).then_some(f64::from(cell.big_percent))
        }),
    ]
}
