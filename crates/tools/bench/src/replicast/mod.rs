//! `nicekv bench replicast-sim`, and `nicekv bench table2`, `table3`, `table5`, `fig8` to `fig13`: Replicast at the paper's scale, by a simulation of every frame (Replicast §IV).
//!
//! ```text
//!   setup ─▶ unicast: uch-ccp              ┐
//!         ─▶ negotiated: the cores of M, H ├─▶ tally ─▶ cells: all seeds ─▶ lines, the paper's beside ours ─▶ table, JSON, charts
//!             by their calendar of events  ┘
//! ```
//!
//! 90 targets with a disk each, 30 or 90 initiators that put one chunk after the other, a network without contention in its middle. Every frame of data and every control message
//! is an event with a time in nanoseconds. Windows are promised and chosen by `nicekv_objects::reservation`, which nodes use. What is measured, and how, is as in the paper's own tool,
//! with its start and its end.

mod beyond;
mod bucket;
mod calendar;
mod cells;
mod disk;
mod figures;
mod lines;
mod negotiated;
mod paper;
mod places;
mod reading;
mod run;
mod setup;
mod tally;
mod unicast;

use crate::arguments::OutputArguments;
use crate::curves;
use crate::error::Result;
use crate::report;
use cells::measure;
pub(crate) use figures::Figure;
use lines::{HEADER, HEADER_BEYOND, Line, averages, charts};
use paper::{CHUNKS_KIB, DISKS_MIB};
use setup::{Beyond, CROSSING, Protocol, Setup};
use std::ops::RangeInclusive;

/// Without `--seeds`.
const SEEDS: RangeInclusive<u64> = 1..=8;
const SEEDS_QUICK: RangeInclusive<u64> = 1..=2;
const INITIATORS_MAX: i64 = 1_000;

/// Arguments of `nicekv bench table2` and its like.
#[derive(Clone, Debug, clap::Args)]
pub struct ReplicastArguments {
    /// Simulate with two seeds instead of eight
    #[arg(long, conflicts_with = "seeds")]
    quick: bool,
    /// Seeds from A to B, both included; 1..8 unless told otherwise
    #[arg(long, value_name = "A..B", value_parser = parse_seeds)]
    seeds: Option<RangeInclusive<u64>>,
    #[command(flatten)]
    output: OutputArguments,
}

/// Arguments of `nicekv bench replicast-sim`.
#[derive(Clone, Debug, clap::Args)]
pub struct ReplicastSimArguments {
    /// One protocol; all three unless told otherwise
    #[arg(long, value_enum)]
    protocol: Option<Protocol>,
    /// Size of chunks, as 16K, 128K or 1M; those three unless told otherwise
    #[arg(long, value_name = "SIZE", value_parser = parse_chunk)]
    chunk: Option<u32>,
    /// MB/s of disks; 400 and 1000 unless told otherwise
    #[arg(long, value_name = "MB/S", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    disk: Option<u32>,
    /// Who puts chunks: 90 in the paper's tables, 30 in its appendix
    #[arg(long, value_name = "N", default_value_t = 90, value_parser = clap::value_parser!(u16).range(1..=INITIATORS_MAX))]
    initiators: u16,
    /// Seeds from A to B, both included; 1..8 unless told otherwise
    #[arg(long, value_name = "A..B", value_parser = parse_seeds)]
    seeds: Option<RangeInclusive<u64>>,
    /// Requests of so many initiators that leave in one nanosecond reach targets in orders that differ; 0: in one order, as if the paper's tool had one thread
    #[arg(long, value_name = "N", default_value_t = CROSSING, value_parser = clap::value_parser!(u16).range(0..=INITIATORS_MAX))]
    crossing: u16,
    /// Show what the paper's tool leaves out, each beside a run without it: chunks without a window are asked for again, targets follow from hashes, gets, lost datagrams, clocks
    /// of their own
    #[arg(long)]
    beyond: bool,
    /// With --beyond: gets, of all operations
    #[arg(long, value_name = "PERCENT", default_value_t = 30, requires = "beyond", value_parser = clap::value_parser!(u32).range(0..=100))]
    gets: u32,
    /// With --beyond: lost copies of datagrams, of a million
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

/// In KiB.
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

fn print(header: [&str; 10], lines: &[Line], notes: &[String]) {
    let cells: Vec<_> =
        std::iter::once(header.map(String::from)).chain(lines.iter().map(Line::columns)).collect();
    print!("{}", report::aligned(&cells));
    notes.iter().for_each(|note| println!("{note}"));
}

fn json(bench: &str, lines: &[Line]) -> String {
    lines.iter().map(|line| line.json(bench)).collect()
}

pub(crate) fn run(figure: Figure, arguments: &ReplicastArguments) -> Result<()> {
    let ReplicastArguments { quick, seeds, output } = arguments;
    let seeds = seeds.clone().unwrap_or(if *quick { SEEDS_QUICK } else { SEEDS });
    let runs = measure(&figure.setups(), &seeds);
    let lines = figure.lines(&runs);
    print(HEADER, &lines, &[figure.notes(&runs), vec![runs.note()]].concat());
    let charts = figure.charts(&runs, &lines);
    output.write_image(figure.name(), &json(figure.name(), &lines), &curves::svg(&charts))
}

/// Simulates cells of the paper's tables, or others, and prints what comes of them.
pub(crate) fn simulate(arguments: &ReplicastSimArguments) -> Result<()> {
    const NAME: &str = "replicast";
    let seeds = arguments.seeds.clone().unwrap_or(SEEDS);
    let plain = arguments.setups();
    if arguments.beyond {
        let (gets_percent, loss_ppm) = (arguments.gets, arguments.loss);
        let all = Beyond { is_retried: true, is_hashed: true, gets_percent, loss_ppm, is_apart: true };
        let setups: Vec<Setup> = plain.iter().flat_map(|setup| beyond::setups(setup, all)).collect();
        let runs = measure(&setups, &seeds);
        let lines = beyond::lines(&runs);
        print(HEADER_BEYOND, &lines, &[runs.note()]);
        return arguments.output.write_image(NAME, &json(NAME, &lines), &curves::svg(&charts(&lines)));
    }
    let runs = measure(&plain, &seeds);
    let panel = |disk: u32| match disk {
        400 => "table2",
        1_000 => "table3",
        _ => "",
    };
    let key = |setup: &Setup| (panel(setup.disk_mib), "chunk, KB", setup.chunk_kib.into());
    let lines: Vec<Line> =
        runs.all.iter().flat_map(|measured| averages(key(&measured.setup), measured)).collect();
    print(HEADER, &lines, &[figures::order(&runs), vec![runs.note()]].concat());
    arguments.output.write_image(NAME, &json(NAME, &lines), &curves::svg(&charts(&lines)))
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
