//! `nicekv bench overload`: what is answered, and what is sent twice, when more is asked than the cluster can do.
//!
//! ```text
//!   closed loop, many callers ──▶ the carried load      open loop at 1 ×, 2 ×, 10 × of it ──▶ goodput, retries
//! ```
//!
//! Peers have no part in it: the targets are that less than 1 % is sent again, and that the goodput stays within 10 % of its peak.

use crate::arguments::{FileArguments, LengthArguments, NetworkArguments};
use crate::error::{BenchError, Result};
use crate::lab::{Engine, Lab, LabPlan, Size};
use crate::load::native::{Callers, NativeLoad};
use crate::load::open::{self, Offered};
use crate::load::{Limits, Measured};
use crate::plot::{Bar, Panel};
use crate::report;
use crate::statistics::{ROUNDS_MIN, Summary};
use crate::workload::{KEYS, Sequence, VALUE_BYTES, Work};
use nicekv_lab::topology::{Host, WIRE_PORT};
use nicekv_proto::placement::Vrings;
use nicekv_runtime::Stop;
use serde_json::json;
use std::net::SocketAddrV4;
use std::time::Duration;

const SIZE: Size = Size { nodes: 3, replicas: 3 };
const CLIENT: Host = Host::Client(0);
/// Callers that find out what the cluster carries.
const CALLERS: Callers = Callers { count: 256, at_once: 1 };
const MULTIPLES: [u32; 3] = [1, 2, 10];
const PRELOAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Of what is sent, so much may be sent again.
const RETRIES_PERCENT_MAX: f64 = 1.0;
/// Of the best goodput, so much must be left.
const KEPT_MIN: f64 = 0.9;

/// Arguments of `nicekv bench overload`.
#[derive(Clone, Debug, clap::Args)]
pub struct OverloadArguments {
    #[command(flatten)]
    length: LengthArguments,
    /// Rounds of each load
    #[arg(long, default_value_t = ROUNDS_MIN, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    #[command(flatten)]
    network: NetworkArguments,
    #[command(flatten)]
    files: FileArguments,
}

/// A kind of load, and what became of it in each round at each multiple.
struct Row {
    engine: Engine,
    work: Work,
    rounds: Vec<[Offered; MULTIPLES.len()]>,
}

pub(crate) fn run(arguments: &OverloadArguments) -> Result<()> {
    let stop = Stop::new();
    stop.on_signals().map_err(BenchError::system("handle signals"))?;
    let directory = arguments.files.directory()?;
    let mut rows = Vec::new();
    for (engine, works) in
        [(Engine::Memory, [Work::Get, Work::Put].as_slice()), (Engine::Durable, [Work::Put].as_slice())]
    {
        let lab = Lab::up(&LabPlan::new(SIZE, engine, arguments.network.network(), directory.path()))?;
        for &work in works {
            let rounds =
                (1..=arguments.rounds).map(|round| measure(arguments, &lab, work, round.into(), &stop));
            rows.push(Row { engine, work, rounds: rounds.collect::<Result<_>>()? });
        }
    }
    rows.iter().for_each(Row::print);
    let panels: Vec<Panel> = rows.iter().flat_map(Row::panels).collect();
    arguments.files.write("overload", &json_lines(&rows), &panels)
}

/// What the cluster carries just now, then the loads.
fn measure(
    arguments: &OverloadArguments,
    lab: &Lab,
    work: Work,
    round: u64,
    stop: &Stop,
) -> Result<[Offered; MULTIPLES.len()]> {
    let duration = arguments.length.round_time();
    let (address, vrings) = (SocketAddrV4::new(CLIENT.address(), 0), Vrings::on_network(WIRE_PORT));
    let limits = |duration| Limits { duration, stop };
    let carried = || -> Result<Measured> {
        let mut load = NativeLoad::bind(address, vrings).map_err(BenchError::system("make a socket"))?;
        load.run(Sequence::new(Work::Preload, 0), CALLERS, limits(PRELOAD_TIMEOUT))?;
        load.run(Sequence::new(work, round), CALLERS, limits(duration))
    };
    let carried = lab.inside(CLIENT, carried)??.throughput();
    let mut offered = [Offered::default(); MULTIPLES.len()];
    for (offered, multiple) in offered.iter_mut().zip(MULTIPLES) {
        let rate = carried * f64::from(multiple);
        let offer = || open::offer(address, vrings, Sequence::new(work, round), rate, limits(duration));
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

impl Row {
    fn name(&self) -> &'static str {
        match (self.work, self.engine) {
            (Work::Get, _) => "get",
            (_, Engine::Memory) => "put",
            (_, Engine::Durable) => "durable put",
        }
    }

    /// At one multiple, of each round: goodput, retries of a hundred, goodput as a part of the round's best.
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
        let panel = |metric: usize, title: String| {
            let bar = |(index, multiple): (usize, &u32)| {
                let figures = self.figures(index)[metric].clone();
                Bar::ours(format!("{multiple} x the carried load"), Summary::of(figures))
            };
            Panel { title, bars: MULTIPLES.iter().enumerate().map(bar).collect() }
        };
        let name = self.name();
        [panel(0, format!("{name}, answered, op/s")), panel(1, format!("{name}, sent again, %"))]
    }

    fn print(&self) {
        for (index, multiple) in MULTIPLES.iter().enumerate() {
            let [goodput, retries, kept] = self.figures(index).map(Summary::of);
            let is_met = retries.median < RETRIES_PERCENT_MAX && kept.median >= KEPT_MIN;
            println!(
                "{:11}  {multiple:2} x  {:7.0} op/s [{:.0} .. {:.0}]  of the best {:.2}  sent again {:.2} % [{:.2} .. {:.2}]  {}",
                self.name(),
                goodput.median,
                goodput.min,
                goodput.max,
                kept.median,
                retries.median,
                retries.min,
                retries.max,
                if is_met { "met" } else { "missed" },
            );
        }
    }
}

fn json_lines(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows {
        for (index, multiple) in MULTIPLES.iter().enumerate() {
            let parameters = json!({
                "work": row.name(), "engine": row.engine.name(), "load": multiple, "value_bytes": VALUE_BYTES,
                "keys": KEYS, "nodes": SIZE.nodes, "replicas": SIZE.replicas,
            });
            let metrics = [("goodput", "op/s"), ("retries", "%"), ("kept", "of the best")];
            for (figures, metric) in row.figures(index).iter().zip(metrics) {
                text.push_str(&report::row("overload", &parameters, metric, figures, None));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let row = Row { engine: Engine::Memory, work: Work::Get, rounds };
        let [goodput, retries, kept] = row.figures(2);
        assert_eq!((goodput, retries, kept), (vec![50.0], vec![3.0], vec![0.5]));
        let [goodput, retries] = row.panels().map(|panel| panel.bars[1].summary.median);
        assert_eq!((goodput, retries), (100.0, 2.0));
    }
}
