//! `nicekv bench overload`: what is answered, and what is sent again, when clients ask for more
//! than the cluster can do.
//!
//! ```text
//!   closed loop, many callers ──▶ the carried load      open loop at 1 ×, 2 ×, 10 × of it ──▶ goodput, retries
//! ```
//!
//! Peers have no part in it. The targets: less than 1 % is sent again, and the goodput stays within
//! 10 % of its peak.

use crate::bar_chart::{Bar, Panel};
use crate::error::{BenchError, Result};
use crate::lab::{CLIENT, Engine, Lab, Size};
use crate::load::Measured;
use crate::load::native::{Callers, NativeLoad, PRELOAD_TIMEOUT};
use crate::load::open::{self, Offered};
use crate::report::{Goal, NICEKV, Report, Row};
use crate::session::{Session, SessionArguments};
use crate::statistics::ROUNDS_MIN;
use crate::workload::{KEYS, Sequence, VALUE_BYTES, Work};
use nicekv_lab::topology::WIRE_PORT;
use nicekv_proto::placement::Vrings;
use serde_json::json;
use std::net::SocketAddrV4;

const SIZE: Size = Size { nodes: 3, replicas: 3 };
/// Callers of the closed loop that measures the carried load.
const CALLERS: Callers = Callers::single(256);
const MULTIPLES: [u32; 3] = [1, 2, 10];
/// Maximum datagrams sent again, in percent of the requests that were sent.
const RETRIES_PERCENT_MAX: f64 = 1.0;
/// Minimum goodput, as a part of the round's best.
const KEPT_MIN: f64 = 0.9;

/// Arguments of `nicekv bench overload`.
#[derive(Clone, Debug, clap::Args)]
pub struct OverloadArguments {
    /// Rounds of each load
    #[arg(long, default_value_t = ROUNDS_MIN, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    #[command(flatten)]
    session: SessionArguments,
}

/// A kind of load, and its outcome in each round at each multiple.
struct Load {
    engine: Engine,
    work: Work,
    rounds: Vec<[Offered; MULTIPLES.len()]>,
}

pub(crate) fn run(arguments: &OverloadArguments) -> Result<()> {
    let session = arguments.session.start()?;
    let mut report = Report::new("overload");
    let mut rows = Vec::new();
    for (engine, works) in
        [(Engine::Memory, [Work::Get, Work::Put].as_slice()), (Engine::Durable, [Work::Put].as_slice())]
    {
        let lab = Lab::up(&session.plan(SIZE, engine))?;
        for &work in works {
            let rounds = (1..=arguments.rounds).map(|round| measure(&session, &lab, work, round.into()));
            let load = Load { engine, work, rounds: rounds.collect::<Result<_>>()? };
            rows.extend(load.rows());
            load.panels().into_iter().for_each(|panel| report.panel(panel));
        }
    }
    report.rows(&rows);
    session.finish(report)
}

/// Measures the load that the cluster carries at the moment, then offers multiples of it.
fn measure(session: &Session, lab: &Lab, work: Work, round: u64) -> Result<[Offered; MULTIPLES.len()]> {
    let (address, vrings) = (SocketAddrV4::new(CLIENT.address(), 0), Vrings::on_network(WIRE_PORT));
    let limits = session.limits(session.round_time());
    let carried = || -> Result<Measured> {
        let mut load = NativeLoad::bind(address, vrings).map_err(BenchError::system("open a socket"))?;
        load.preload(session.limits(PRELOAD_TIMEOUT))?;
        load.run(Sequence::new(work, round), CALLERS, limits)
    };
    let carried = lab.inside(CLIENT, carried)??.throughput();
    let mut offered = [Offered::default(); MULTIPLES.len()];
    for (offered, multiple) in offered.iter_mut().zip(MULTIPLES) {
        let rate = carried * f64::from(multiple);
        let offer = || open::offer(address, vrings, Sequence::new(work, round), rate, limits);
        *offered = lab.inside(CLIENT, offer)??;
        eprintln!(
            "{work:?} {round}: carried {carried:.0} op/s, {multiple} x offered: {:.0} answered, {:.2} % sent again, {} refused, {} failed",
            offered.goodput(),
            offered.retries_percent(),
            offered.refused,
            offered.failed,
        );
    }
    Ok(offered)
}

impl Load {
    fn name(&self) -> &'static str {
        match (self.work, self.engine) {
            (Work::Get, _) => "get",
            (_, Engine::Memory) => "put",
            (_, Engine::Durable) => "durable put",
        }
    }

    /// Figures of each round at one multiple: goodput, datagrams sent again in percent, and goodput
    /// as a part of the round's best.
    fn figures(&self, index: usize) -> [Vec<f64>; 3] {
        let rounds = || self.rounds.iter();
        let best =
            |round: &[Offered; MULTIPLES.len()]| round.iter().map(Offered::goodput).fold(1.0, f64::max);
        [
            rounds().map(|round| round[index].goodput()).collect(),
            rounds().map(|round| round[index].retries_percent()).collect(),
            rounds().map(|round| round[index].goodput() / best(round)).collect(),
        ]
    }

    fn panels(&self) -> [Panel; 2] {
        let panel = |metric: usize, title: &str| {
            let bar = |(index, multiple): (usize, &u32)| {
                Bar::ours(format!("{multiple} x the carried load"), &self.figures(index)[metric])
            };
            let bars = MULTIPLES.iter().enumerate().map(bar).collect();
            Panel { title: format!("{}, {title}", self.name()), bars }
        };
        [panel(0, "answered, op/s"), panel(1, "sent again, %")]
    }

    fn rows(&self) -> Vec<Row> {
        let metrics = [
            ("goodput", "op/s", None),
            ("retries", "%", Some(Goal::AtMost(RETRIES_PERCENT_MAX))),
            ("kept", "of the best", Some(Goal::AtLeast(KEPT_MIN))),
        ];
        let of_multiple = |(index, multiple): (usize, &u32)| {
            let workload = format!("{}, {multiple} x the carried load", self.name());
            let parameters = json!({
                "work": self.name(), "engine": self.engine.name(), "load": multiple, "value_bytes": VALUE_BYTES,
                "keys": KEYS, "nodes": SIZE.nodes, "replicas": SIZE.replicas,
            });
            metrics.into_iter().zip(self.figures(index)).map(move |((metric, unit, goal), figures)| {
                let row = Row::new(&workload, NICEKV, (metric, unit), figures);
                row.goal(goal).parameters(parameters.clone())
            })
        };
        MULTIPLES.iter().enumerate().flat_map(of_multiple).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn goodput_is_compared_with_the_best_of_its_round() {
        let offered = |answered, retries| Offered {
            answered,
            retries,
            failed: 100 - answered,
            elapsed: Duration::from_secs(1),
            ..Offered::default()
        };
        let rounds = vec![[offered(80, 1), offered(100, 2), offered(50, 3)]];
        let load = Load { engine: Engine::Memory, work: Work::Get, rounds };
        let [goodput, retries, kept] = load.figures(2);
        assert_eq!((goodput, retries, kept), (vec![50.0], vec![3.0], vec![0.5]));
        let [goodput, retries] = load.panels().map(|panel| panel.bars[1].summary.median);
        assert_eq!((goodput, retries), (100.0, 2.0));
    }
}
