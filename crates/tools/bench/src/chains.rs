//! `nicekv bench chains`: what a durable put costs when replicas receive it one after the other
//! instead of all at once.
//!
//! Both keyspaces are in one lab, on the same three nodes. Each round measures one and then the
//! other.

use crate::error::Result;
use crate::keyspace::Replicated;
use crate::lab::{CLIENT, Engine, Lab, LabPlan, Size};
use crate::load::measure_rounds;
use crate::load::native::{Callers, NativeLoad};
use crate::report::{Comparison, Goal, Report};
use crate::session::{RoundsArguments, SessionArguments};
use crate::workload::{VALUE_BYTES, Work};
use serde_json::json;

const SIZE: Size = Size { nodes: 3, replicas: 3 };
const CALLERS: [usize; 2] = [64, 1];
/// Minimum throughput of puts along a chain, as a part of that by multicast.
const KEPT_MIN: f64 = 0.9;

/// Arguments of `nicekv bench chains`.
#[derive(Clone, Debug, clap::Args)]
pub struct ChainsArguments {
    #[command(flatten)]
    rounds: RoundsArguments,
    #[command(flatten)]
    session: SessionArguments,
}

pub(crate) fn run(arguments: &ChainsArguments) -> Result<()> {
    let session = arguments.session.start()?;
    let chains = Replicated::Chain.keyspace().expect("only multicast is the lab's default");
    let options = ["--keyspace", &chains];
    let lab = Lab::up(&LabPlan { options: &options, ..session.plan(SIZE, Engine::Durable) })?;
    let client = |replicated: Replicated| {
        let keyspace = replicated.known(SIZE)?;
        lab.client(CLIENT, |address| NativeLoad::bind(address, keyspace))
    };
    let mut loads = [client(Replicated::Chain)?, client(Replicated::Multicast)?];
    let mut comparisons = Vec::new();
    for callers in CALLERS {
        let title = format!("durable put along a chain of three, {callers} in flight");
        let (rounds, costs) = measure_rounds(&title, arguments.rounds.rounds, |side, round| {
            loads[side].run_warm(Work::Put, round, Callers::single(callers), &session)
        })?;
        comparisons.push(Comparison {
            target: None,
            goal: (callers > 1).then_some(Goal::AtLeast(KEPT_MIN)),
            title,
            network: Some(session.network.name()),
            metric: "throughput",
            unit: "1/s",
            peer: "by multicast",
            parameters: json!({
                "network": session.network.name(),
                "callers": callers,
                "value_bytes": VALUE_BYTES,
                "seconds": session.round_time().as_secs_f64(),
            }),
            rounds,
            costs,
        });
    }
    let mut report = Report::new("chains");
    report.comparisons(&comparisons);
    session.finish(report)
}
