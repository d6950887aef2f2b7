//! `nicekv bench kernel-gets`: what gets gain when the nodes' kernels answer them, and what puts
//! lose.
//!
//! Two labs are up that differ in nothing else. Each round measures one and then the other.

use crate::error::Result;
use crate::lab::{CLIENT, Engine, Lab, LabPlan, Size};
use crate::load::measure_rounds;
use crate::load::native::{Callers, NativeLoad, PRELOAD_TIMEOUT};
use crate::report::{Comparison, Goal, Report};
use crate::session::{RoundsArguments, SessionArguments};
use crate::workload::{KEYS, VALUE_BYTES, Work};
use nicekv_client::Keyspace;
use nicekv_lab::topology::WIRE_PORT;
use nicekv_proto::placement::Vrings;
use serde_json::json;

const SIZE: Size = Size { nodes: 3, replicas: 3 };
/// Minimum throughput of puts with kernel gets, as a part of that without.
const PUTS_KEPT_MIN: f64 = 0.95;
/// The labs, and the kernel memory of a node in MiB: more than all keys need, and none.
const LABS: [(&str, &str); 2] = [("kernel", "32"), ("process", "0")];

/// Arguments of `nicekv bench kernel-gets`.
#[derive(Clone, Debug, clap::Args)]
pub struct KernelGetsArguments {
    #[command(flatten)]
    rounds: RoundsArguments,
    #[command(flatten)]
    session: SessionArguments,
}

/// An operation, and how many are in flight.
#[derive(Clone, Copy)]
struct Case {
    title: &'static str,
    work: Work,
    callers: usize,
    goal: Option<Goal>,
}

const PUTS_KEPT: Option<Goal> = Some(Goal::AtLeast(PUTS_KEPT_MIN));
const CASES: [Case; 4] = [
    Case { title: "get, one in flight", work: Work::Get, callers: 1, goal: None },
    Case { title: "get, 64 in flight", work: Work::Get, callers: 64, goal: None },
    Case { title: "put, one in flight", work: Work::Put, callers: 1, goal: None },
    Case { title: "put, 64 in flight", work: Work::Put, callers: 64, goal: PUTS_KEPT },
];

pub(crate) fn run(arguments: &KernelGetsArguments) -> Result<()> {
    let session = arguments.session.start()?;
    let network = session.network.name();
    let (mut labs, mut loads) = (Vec::new(), Vec::new());
    for (suffix, mebibytes) in LABS {
        let options = ["--kernel-get-mib", mebibytes];
        let plan = session.plan(SIZE, Engine::Memory);
        let lab = Lab::up(&LabPlan { options: &options, suffix: Some(suffix), ..plan })?;
        let keyspace = Keyspace { partition_bits: None, ..Vrings::on_network(WIRE_PORT).into() };
        let mut load = lab.client(CLIENT, |address| NativeLoad::bind(address, keyspace))?;
        load.preload(session.limits(PRELOAD_TIMEOUT))?;
        labs.push(lab);
        loads.push(load);
    }
    let mut comparisons = Vec::new();
    for Case { title, work, callers, goal } in CASES {
        let (rounds, costs) = measure_rounds(title, arguments.rounds.rounds, |side, round| {
            loads[side].run_warm(work, round, Callers::single(callers), &session)
        })?;
        comparisons.push(Comparison {
            target: None,
            goal,
            title: title.into(),
            network: Some(network),
            metric: "throughput",
            unit: "1/s",
            peer: "by processes",
            parameters: json!({
                "network": network,
                "callers": callers,
                "value_bytes": VALUE_BYTES,
                "keys": KEYS,
                "seconds": session.round_time().as_secs_f64(),
            }),
            rounds,
            costs,
        });
    }
    let mut report = Report::new("kernel-gets");
    report.comparisons(&comparisons);
    session.finish(report)
}
