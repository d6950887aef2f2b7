//! `nicekv bench turbokv-fig13`, `turbokv-fig14`, `turbokv-fig15`, `turbokv-table1`, `turbokv-table2`: who finds the node for a request (TurboKV §8).
//!
//! ```text
//!   switch-driven   client ─▶ switch, which has the records ─▶ node
//!   client-driven   client, which has a directory ─▶ node                          the paper's ideal: it is always up to date
//!   server-driven   client ─▶ any node, which has a directory ─▶ node
//! ```
//!
//! The paper has eight software switches between four clients and sixteen nodes (its Fig. 12); here one switch is between one client host and sixteen nodes, the same for
//! all three. Its figures' pictures are lost: what they show is told by its text, and by its tables, which are of Fig. 14 and Fig. 15.

mod cells;
mod field;
pub(crate) mod load;
mod migration;
pub(crate) mod workload;

use crate::arguments::{FileArguments, NetworkArguments};
use crate::curves::{self, Axes, Chart};
use crate::error::{BenchError, Result};
use crate::lab::Engine;
use crate::report;
use cells::{Cell, LATENCIES, THROUGHPUTS, Wanted};
use field::{Field, Rounds};
use nicekv_runtime::Stop;
use std::time::Duration;
use workload::{Popularity, Skew};

/// Rounds of each cell.
const ROUNDS: u32 = 5;
/// Callers at once where throughput is measured …
const CALLERS_MANY: usize = 64;
/// … and where the time of an op is: as many as the paper has clients.
const CALLERS_FEW: usize = 4;

/// Arguments of `nicekv bench turbokv-…`.
#[derive(Clone, Debug, clap::Args)]
pub struct TurbokvArguments {
    /// Measure for a quarter of a second instead of two in each round
    #[arg(long)]
    quick: bool,
    /// How nodes keep data
    #[arg(long, value_enum, default_value_t)]
    engine: Kept,
    #[command(flatten)]
    network: NetworkArguments,
    #[command(flatten)]
    files: FileArguments,
}

/// How nodes keep data.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum Kept {
    /// Not beyond their processes
    #[default]
    Memory,
    /// On a disk: an answered put survives a power loss
    Durable,
}

/// Which of the paper's figures and tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    /// Throughput: reads against skew, writes uniform, writes skewed.
    Fig13,
    /// Distribution of latencies, uniform.
    Fig14,
    /// The same, Zipf 1.2.
    Fig15,
    /// Figures of Fig. 14.
    Table1,
    /// Figures of Fig. 15.
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

    fn cells(self) -> Vec<Cell> {
        match self {
            Self::Fig13 => THROUGHPUTS.to_vec(),
            Self::Fig14 | Self::Table1 => LATENCIES.map(|cell| cell.of(Skew::Uniform)).to_vec(),
            Self::Fig15 | Self::Table2 => LATENCIES.map(|cell| cell.of(Skew::Zipf(1.2))).to_vec(),
        }
    }
}

pub(crate) fn run(figure: Figure, arguments: &TurbokvArguments) -> Result<()> {
    let stop = Stop::new();
    stop.on_signals().map_err(BenchError::system("handle signals"))?;
    let directory = arguments.files.directory()?;
    let engine = match arguments.engine {
        Kept::Memory => Engine::Memory,
        Kept::Durable => Engine::Durable,
    };
    let network = arguments.network.network();
    let mut field = Field::up(engine, network, directory.path(), &stop)?;
    let duration = Duration::from_millis(if arguments.quick { 250 } else { 2_000 });
    let (mut text, mut lines, mut panels, mut charts) = (Vec::new(), String::new(), Vec::new(), Vec::new());
    let mut popularity: Option<(Skew, Popularity)> = None;
    for cell in figure.cells() {
        if popularity.as_ref().is_none_or(|(skew, _)| *skew != cell.skew) {
            popularity = Some((cell.skew, Popularity::new(cell.skew)));
        }
        let Some((_, popularity)) = &popularity else { unreachable!("made above") };
        let callers = if figure == Figure::Fig13 { CALLERS_MANY } else { CALLERS_FEW };
        let rounds = field.measure(popularity, cell.mix, callers, (ROUNDS, duration))?;
        let parameters = cell.parameters(engine.name(), network.name(), callers, duration);
        let metrics = if figure == Figure::Fig13 { &Wanted::THROUGHPUT[..] } else { &Wanted::TIMES[..] };
        for wanted in metrics {
            let compared = cell.compare(*wanted, &rounds);
            eprintln!("{}", compared.line());
            lines.push_str(&compared.json(figure.name(), &parameters));
            panels.push(compared.panel());
            text.push(compared.columns());
        }
        charts.push(chart(&cell, &rounds));
    }
    drop(field);
    print!("{}", report::aligned(&[&[cells::HEADER.map(String::from)], &text[..]].concat()));
    if figure == Figure::Fig13 {
        let lab = (engine, network, directory.path());
        let migration = migration::measure(lab, (ROUNDS, duration), &stop)?;
        print!("{}", migration.text());
        lines.push_str(&migration.json());
        panels.extend(report::panels(&[migration.comparison]));
    }
    match figure {
        Figure::Fig14 | Figure::Fig15 => {
            arguments.files.write_image(figure.name(), &lines, &curves::svg(&charts))
        }
        _ => arguments.files.write(figure.name(), &lines, &panels),
    }
}

/// The distribution of the times of all rounds.
fn chart(cell: &Cell, rounds: &Rounds) -> Chart {
    let curve = |(system, (_, name)): (usize, (_, &'static str))| {
        let mut all = crate::latencies::Latencies::default();
        rounds.iter().for_each(|turns| all.extend(&turns[system].latencies));
        let all = all.sorted();
        let points = (0..=100).map(|percent| f64::from(percent) / 100.0);
        (name, points.map(|part| (all.quantile_us(part), part)).collect())
    };
    let axes = Axes { x: "us", y: "part of all", is_logarithmic: true, is_y_logarithmic: false };
    let curves = field::SYSTEMS.into_iter().enumerate().map(curve).collect();
    Chart { title: cell.title(), axes, curves, marks: Vec::new() }
}
