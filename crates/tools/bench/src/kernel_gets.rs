//! `nicekv bench kernel-gets`: what it brings gets that nodes' kernels answer them, and what it costs puts.
//!
//! Two labs are up, alike but for that; rounds ask one and the other in turn.

use crate::arguments::{FileArguments, LengthArguments, NetworkArguments, RoundsArguments};
use crate::error::{BenchError, Result};
use crate::lab::{Engine, Lab, LabPlan, Size};
use crate::load::native::{Callers, NativeLoad};
use crate::load::{Limits, Measured};
use crate::report::{self, Comparison, Goal};
use crate::statistics::{Rounds, in_turn};
use crate::workload::{KEYS, Sequence, VALUE_BYTES, Work};
use nicekv_client::Keyspace;
use nicekv_lab::topology::{Host, WIRE_PORT};
use nicekv_proto::placement::Vrings;
use nicekv_runtime::Stop;
use serde_json::{Map, Value, json};
use std::net::SocketAddrV4;
use std::time::Duration;

const SIZE: Size = Size { nodes: 3, replicas: 3 };
const WARM_UP: Duration = Duration::from_millis(300);
/// Puts are to keep so much of their throughput.
const PUTS_KEPT_MIN: f64 = 0.95;
/// Of a node's memory: more than all keys need.
const MEBIBYTES: [&str; 2] = ["32", "0"];

/// Arguments of `nicekv bench kernel-gets`.
#[derive(Clone, Debug, clap::Args)]
pub struct KernelGetsArguments {
    #[command(flatten)]
    length: LengthArguments,
    #[command(flatten)]
    rounds: RoundsArguments,
    #[command(flatten)]
    network: NetworkArguments,
    #[command(flatten)]
    files: FileArguments,
}

/// What is asked.
#[derive(Clone, Copy)]
struct Case {
    title: &'static str,
    work: Work,
    callers: usize,
    goal: Option<Goal>,
}

const CASES: [Case; 4] = [
    Case { title: "get, one in flight", work: Work::Get, callers: 1, goal: None },
    Case { title: "get, 64 in flight", work: Work::Get, callers: 64, goal: None },
    Case { title: "put, one in flight", work: Work::Put, callers: 1, goal: None },
    Case {
        title: "put, 64 in flight",
        work: Work::Put,
        callers: 64,
        goal: Some(Goal::AtLeast(PUTS_KEPT_MIN)),
    },
];

pub(crate) fn run(arguments: &KernelGetsArguments) -> Result<()> {
    let stop = Stop::new();
    stop.on_signals().map_err(BenchError::system("handle signals"))?;
    let directory = arguments.files.directory()?;
    let network = arguments.network.network();
    let lab = |name: &str, mebibytes: &str| {
        let plan = LabPlan::new(SIZE, Engine::Memory, network, directory.path());
        Lab::up(&LabPlan { further: &["--kernel-get-mib", mebibytes], apart: Some(name), ..plan })
    };
    let labs = [lab("kernel", MEBIBYTES[0])?, lab("process", MEBIBYTES[1])?];
    let mut loads = [client(&labs[0])?, client(&labs[1])?];
    for load in &mut loads {
        preload(load, &stop)?;
    }
    let mut comparisons = Vec::new();
    for case in CASES {
        let (mut rates, mut costs) = (Rounds::default(), Rounds::default());
        for round in 1..=arguments.rounds.rounds {
            let time = arguments.length.round_time();
            let measure = |side: usize| ask(&mut loads[side], case, u64::from(round), (time, &stop));
            let [kernel, process] = in_turn(round, measure)?;
            eprintln!("{}: {:.0}/s, {:.0}/s", case.title, kernel.throughput(), process.throughput());
            rates.pairs.push((kernel.throughput(), process.throughput()));
            costs.pairs.push((kernel.cost_us(), process.cost_us()));
        }
        comparisons.push(Comparison {
            bench: "kernel-gets",
            target: None,
            goal: case.goal,
            title: case.title.into(),
            network: Some(network.name()),
            metric: "throughput",
            unit: "1/s",
            peer: "by processes",
            parameters: parameters(network.name(), case, arguments.length.round_time()),
            rounds: rates,
            costs,
        });
    }
    print!("{}", report::table(&comparisons));
    arguments.files.write("kernel-gets", &report::json(&comparisons), &report::panels(&comparisons))
}

fn parameters(network: &str, case: Case, time: Duration) -> Map<String, Value> {
    let parameters = json!({
        "network": network,
        "callers": case.callers,
        "value_bytes": VALUE_BYTES,
        "keys": KEYS,
        "seconds": time.as_secs_f64(),
    });
    let Value::Object(parameters) = parameters else { unreachable!("an object above") };
    parameters
}

fn client(lab: &Lab) -> Result<NativeLoad> {
    let address = SocketAddrV4::new(Host::Client(0).address(), 0);
    let keyspace = Keyspace { partition_bits: None, ..Vrings::on_network(WIRE_PORT).into() };
    let bind = || NativeLoad::bind(address, keyspace);
    lab.inside(Host::Client(0), bind)?.map_err(BenchError::system("make a client's socket"))
}

/// Every key has a value.
fn preload(load: &mut NativeLoad, stop: &Stop) -> Result<()> {
    let limits = Limits { duration: Duration::from_secs(30), stop };
    load.run(Sequence::new(Work::Preload, 0), Callers::single(64), limits).map(drop)
}

fn ask(load: &mut NativeLoad, case: Case, round: u64, (time, stop): (Duration, &Stop)) -> Result<Measured> {
    let mut run = |seed, duration| {
        load.run(Sequence::new(case.work, seed), Callers::single(case.callers), Limits { duration, stop })
    };
    run(2 * round, WARM_UP)?;
    run(2 * round + 1, time)
}
