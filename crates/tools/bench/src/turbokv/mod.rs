//! `nicekv bench turbokv-fig13`, `turbokv-fig14`, `turbokv-fig15`, `turbokv-table1`,
//! `turbokv-table2`: the switch, the client or any node finds the node for a request (TurboKV §8).
//!
//! ```text
//!   switch-driven   client ─▶ switch, which has the records ─▶ node
//!   client-driven   client, which has a directory ─▶ node                          the paper's ideal: it is always up to date
//!   server-driven   client ─▶ any node, which has a directory ─▶ node
//! ```
//!
//! The paper has eight software switches between four clients and sixteen nodes (its Fig. 12). Here
//! a single switch is between one client host and sixteen nodes, for all three systems. The
//! pictures of its figures are lost: their content is in its text, and in its tables, which are of
//! Fig. 14 and Fig. 15.

pub(crate) mod load;
mod migration;
mod testbed;
pub(crate) mod workload;
mod workloads;

use crate::error::Result;
use crate::lab::Engine;
use crate::latencies::Latencies;
use crate::line_chart::{Axes, Chart};
use crate::report::{Report, Row};
use crate::session::{Session, SessionArguments};
use std::time::Duration;
use testbed::{Rounds, Testbed};
use workload::{Popularity, Skew};
use workloads::{LATENCIES, Metric, THROUGHPUTS, Workload};

/// Rounds of each workload.
const ROUNDS: u32 = 5;
/// Callers where throughput is measured …
const CALLERS_MANY: usize = 64;
/// … and where latency is: as many as the paper has clients.
const CALLERS_FEW: usize = 4;

/// Arguments of `nicekv bench turbokv-…`.
#[derive(Clone, Debug, clap::Args)]
pub struct TurbokvArguments {
    /// Storage engine of the nodes
    #[arg(long, value_enum, default_value_t)]
    engine: EngineArgument,
    #[command(flatten)]
    session: SessionArguments,
}

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum EngineArgument {
    /// In the nodes' memory only
    #[default]
    Memory,
    /// On a disk: an acknowledged put survives a power loss
    Durable,
}

/// Figures and tables of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    /// Throughput: reads against skew, writes uniform, writes skewed.
    Fig13,
    /// Distribution of latencies, uniform.
    Fig14,
    /// Distribution of latencies, Zipf 1.2.
    Fig15,
    /// Mean and percentiles of Fig. 14.
    Table1,
    /// Mean and percentiles of Fig. 15.
    Table2,
}

impl Figure {
    fn name(self) -> &'static str {
        match self {
            Self::Fig13 => "turbokv-fig13",
            Self::Fig14 => "turbokv-fig14",
            Self::Fig15 => "turbokv-fig15",
            Self::Table1 => "turbokv-table1",
            Self::Table2 => "turbokv-table2",
        }
    }

    fn workloads(self) -> Vec<Workload> {
        match self {
            Self::Fig13 => THROUGHPUTS.to_vec(),
            Self::Fig14 | Self::Table1 => {
                LATENCIES.map(|workload| workload.with_skew(Skew::Uniform)).to_vec()
            }
            Self::Fig15 | Self::Table2 => {
                LATENCIES.map(|workload| workload.with_skew(Skew::Zipf(1.2))).to_vec()
            }
        }
    }

    fn is_drawn_as_curves(self) -> bool {
        matches!(self, Self::Fig14 | Self::Fig15)
    }
}

pub(crate) fn run(figure: Figure, arguments: &TurbokvArguments) -> Result<()> {
    let session = arguments.session.start()?;
    let engine = match arguments.engine {
        EngineArgument::Memory => Engine::Memory,
        EngineArgument::Durable => Engine::Durable,
    };
    let duration = Duration::from_millis(session.few_or(250, 2_000));
    let mut report = Report::new(figure.name());
    compare_systems(figure, engine, duration, &session, &mut report)?;
    if figure == Figure::Fig13 {
        report.print();
        migration::measure(engine, (ROUNDS, duration), &session, &mut report)?;
    }
    session.finish(report)
}

fn compare_systems(
    figure: Figure,
    engine: Engine,
    duration: Duration,
    session: &Session,
    report: &mut Report,
) -> Result<()> {
    let mut testbed = Testbed::start(engine, session)?;
    let mut popularity: Option<(Skew, Popularity)> = None;
    let mut rows = Vec::new();
    let (callers, metrics) = match figure {
        Figure::Fig13 => (CALLERS_MANY, &Metric::OF_THROUGHPUT[..]),
        _ => (CALLERS_FEW, &Metric::OF_LATENCY[..]),
    };
    for workload in figure.workloads() {
        if popularity.as_ref().is_none_or(|(skew, _)| *skew != workload.skew) {
            popularity = Some((workload.skew, Popularity::new(workload.skew)));
        }
        let Some((_, popularity)) = &popularity else { unreachable!("computed above") };
        let rounds = testbed.measure(popularity, workload.mix, callers, (ROUNDS, duration))?;
        let parameters = workload.parameters(engine.name(), session.network.name(), callers, duration);
        for metric in metrics {
            let of_metric = workload.rows(*metric, &rounds, &parameters);
            eprintln!("{}", summary(&of_metric));
            rows.extend(of_metric);
        }
        if figure.is_drawn_as_curves() {
            report.charts([chart(&workload, &rounds)]);
        }
    }
    match figure.is_drawn_as_curves() {
        true => report.rows(&rows),
        false => report.rows_with_bars(&rows),
    }
    Ok(())
}

fn summary(rows: &[Row]) -> String {
    let average = |row: &Row| format!("{} {:.1}", row.system, row.average());
    let Row { workload, metric, unit, .. } = &rows[0];
    format!("{workload}, {metric}, {unit}: {}", rows[1..].iter().map(average).collect::<Vec<_>>().join(", "))
}

/// The distribution of the latencies of all rounds.
fn chart(workload: &Workload, rounds: &Rounds) -> Chart {
    let curve = |(system, (_, name)): (usize, (_, &str))| {
        let mut all = Latencies::default();
        rounds.iter().for_each(|turns| all.add(&turns[system].latencies));
        let points = (0..=100).map(|percent| f64::from(percent) / 100.0);
        (name.to_owned(), points.map(|part| (all.quantile_us(part), part)).collect())
    };
    let axes = Axes { x: "us", y: "part of all".into(), is_logarithmic: true, is_y_logarithmic: false };
    let curves = testbed::SYSTEMS.into_iter().enumerate().map(curve).collect();
    Chart { title: workload.title(), axes, curves, marks: Vec::new() }
}
