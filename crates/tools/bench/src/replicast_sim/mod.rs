//! `nicekv bench replicast-sim`, and `nicekv bench table2`, `table3`, `table5`, `fig8` to `fig13`:
//! Replicast at the paper's scale, by a simulation of every frame (Replicast §IV).
//!
//! ```text
//!   setup ─▶ unicast: uch-ccp              ┐
//!         ─▶ negotiated: the cores of M, H ├─▶ metrics ─▶ runs: all seeds ─▶ rows, the paper's value beside ours ─▶ table, JSON, charts
//!             by their event queue         ┘
//! ```
//!
//! 90 targets with a disk each, 30 or 90 initiators that put one chunk after the other, and a
//! network without contention in its middle. Every data frame and every control message is an event
//! with a time in nanoseconds. `nicekv_objects::reservation`, which nodes use, promises and chooses
//! windows. Metrics, start and end of a run are those of the paper's own tool.

mod disk;
mod egress;
mod event_queue;
mod extensions;
mod figures;
mod metrics;
mod negotiated;
mod paper;
mod placement;
mod rows;
mod run;
mod runs;
mod setup;
mod token_bucket;
mod unicast;

use crate::error::Result;
use crate::output::OutputArguments;
use crate::report::{Report, Row, charts};
pub(crate) use figures::Figure;
use paper::{CHUNKS_KIB, DISKS_MIB};
use rows::{averages, logarithmic};
use runs::measure;
use setup::{CROSSING, Extensions, Protocol, Setup};
use std::ops::RangeInclusive;

/// Default of `--seeds`, and that of a quick run.
const SEEDS: RangeInclusive<u64> = 1..=8;
const SEEDS_QUICK: RangeInclusive<u64> = 1..=2;
const INITIATORS_MAX: i64 = 1_000;

/// Arguments of `nicekv bench table2` and its like.
#[derive(Clone, Debug, clap::Args)]
pub struct ReplicastArguments {
    /// Simulate with two seeds instead of eight
    #[arg(long, conflicts_with = "seeds")]
    quick: bool,
    /// Seeds from A to B, both included; default: 1..8
    #[arg(long, value_name = "A..B", value_parser = parse_seeds)]
    seeds: Option<RangeInclusive<u64>>,
    #[command(flatten)]
    output: OutputArguments,
}

/// Arguments of `nicekv bench replicast-sim`.
#[derive(Clone, Debug, clap::Args)]
pub struct ReplicastSimArguments {
    /// One protocol; default: all three
    #[arg(long, value_enum)]
    protocol: Option<Protocol>,
    /// Size of chunks, such as 128K; default: 16K, 128K and 1M
    #[arg(long, value_name = "SIZE", value_parser = parse_chunk)]
    chunk: Option<u32>,
    /// MB/s of disks; default: 400 and 1000
    #[arg(long, value_name = "MB/S", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    disk: Option<u32>,
    /// Initiators: 90 in the paper's tables, 30 in its appendix
    #[arg(long, value_name = "N", default_value_t = 90, value_parser = clap::value_parser!(u16).range(1..=INITIATORS_MAX))]
    initiators: u16,
    /// Seeds from A to B, both included; default: 1..8
    #[arg(long, value_name = "A..B", value_parser = parse_seeds)]
    seeds: Option<RangeInclusive<u64>>,
    /// Requests of this many initiators, if sent in the same nanosecond, reach targets in different
    /// orders; 0: in one order, as if the paper's tool had one thread
    #[arg(long, value_name = "N", default_value_t = CROSSING, value_parser = clap::value_parser!(u16).range(0..=INITIATORS_MAX))]
    crossing: u16,
    /// Simulate what the paper's tool leaves out, each beside a run without it: chunks without a
    /// window are requested again, targets by hash, gets, lost datagrams, unsynchronized clocks
    #[arg(long)]
    beyond: bool,
    /// With --beyond: gets, in percent of all operations
    #[arg(long, value_name = "PERCENT", default_value_t = 30, requires = "beyond", value_parser = clap::value_parser!(u32).range(0..=100))]
    gets: u32,
    /// With --beyond: lost copies of datagrams, per million
    #[arg(long, value_name = "PPM", default_value_t = 100, requires = "beyond", value_parser = clap::value_parser!(u32).range(0..=100_000))]
    loss: u32,
    #[command(flatten)]
    output: OutputArguments,
}

impl ReplicastSimArguments {
    fn setups(&self) -> Vec<Setup> {
        let protocols = self.protocol.map_or(Protocol::ALL.to_vec(), |protocol| vec![protocol]);
        let chunks = self.chunk.map_or(CHUNKS_KIB.to_vec(), |chunk| vec![chunk]);
        let disks = self.disk.map_or(DISKS_MIB.to_vec(), |disk| vec![disk]);
        let (initiators, crossing) = (self.initiators, self.crossing);
        let mut setups = Vec::new();
        for disk in disks {
            for chunk in &chunks {
                let of = |protocol: &Protocol| Setup {
                    initiators,
                    crossing,
                    ..Setup::new(*protocol, *chunk, disk)
                };
                setups.extend(protocols.iter().map(of));
            }
        }
        setups
    }
}

fn parse_seeds(text: &str) -> std::result::Result<RangeInclusive<u64>, String> {
    let bounds =
        text.split_once("..").and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
    match bounds {
        Some((first, last)) if first <= last => Ok(first..=last),
        _ => Err("two numbers A..B, the first not greater than the second".into()),
    }
}

/// Parses a size of chunks; in KiB.
fn parse_chunk(text: &str) -> std::result::Result<u32, String> {
    let error = || "a number of K or M, from 1K to 16M".to_owned();
    let unit = text.char_indices().next_back().ok_or_else(error)?;
    let kib = match unit.1 {
        'K' | 'k' => 1,
        'M' | 'm' => 1_024,
        _ => return Err(error()),
    };
    let number: u32 = text[..unit.0].parse().map_err(|_| error())?;
    let size = number.checked_mul(kib).ok_or_else(error)?;
    if (1..=16 << 10).contains(&size) { Ok(size) } else { Err(error()) }
}

pub(crate) fn run(figure: Figure, arguments: &ReplicastArguments) -> Result<()> {
    let ReplicastArguments { quick, seeds, output } = arguments;
    let seeds = seeds.clone().unwrap_or(if *quick { SEEDS_QUICK } else { SEEDS });
    let runs = measure(&figure.setups(), &seeds);
    let rows = figure.rows(&runs);
    let mut report = Report::new(figure.name());
    report.rows(&rows);
    figure.notes(&runs).iter().for_each(|note| report.note(note));
    report.note(runs.note());
    report.charts(figure.charts(&runs, &rows));
    report.finish(output)
}

/// Simulates setups of the paper's tables, or others.
pub(crate) fn simulate(arguments: &ReplicastSimArguments) -> Result<()> {
    let seeds = arguments.seeds.clone().unwrap_or(SEEDS);
    let plain = arguments.setups();
    let (runs, rows, notes) = if arguments.beyond {
        let (gets_percent, loss_ppm) = (arguments.gets, arguments.loss);
        let all = Extensions { is_retried: true, is_hashed: true, gets_percent, loss_ppm, is_apart: true };
        let setups: Vec<Setup> = plain.iter().flat_map(|setup| extensions::setups(setup, all)).collect();
        let runs = measure(&setups, &seeds);
        let rows = extensions::rows(&runs);
        (runs, rows, Vec::new())
    } else {
        let runs = measure(&plain, &seeds);
        let panel = |disk: u32| match disk {
            400 => "table2",
            1_000 => "table3",
            _ => "",
        };
        let key = |setup: &Setup| (panel(setup.disk_mib), "chunk, KB", setup.chunk_kib.into());
        let averages = runs.all.iter().flat_map(|measured| averages(key(&measured.setup), measured));
        let rows: Vec<Row> = averages.collect();
        let notes = figures::order(&runs);
        (runs, rows, notes)
    };
    let mut report = Report::new("replicast");
    report.rows(&rows);
    notes.iter().for_each(|note| report.note(note));
    report.note(runs.note());
    report.charts(charts(&rows, logarithmic));
    report.finish(&arguments.output)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
