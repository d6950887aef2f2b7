//! The paper's tables and figures: their setups and rows.

use super::paper::{
    CHUNKS_KIB, DISKS_MIB, RISES, TABLE_5, TENTATIVE_US, Tentative, poisson_percent, printed,
};
use super::rows::{THROUGHPUT, averages, beside_paper, logarithmic, row};
use super::runs::{Measured, Runs};
use super::setup::{GROUPS, Protocol, Setup, chunk_name};
use crate::line_chart::{Axes, Chart};
use crate::report::{self, Row};
use crate::statistics::{mean, ratios};

/// Minimum ratio of two printed values whose order is compared.
const ORDERED: f64 = 1.05;
/// Parts of a run, for figures that change while it lasts.
const PARTS: usize = 10;

/// Tables and figures of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    /// Averages with disks of 400 MB/s.
    Table2,
    /// Averages with disks of 1,000 MB/s.
    Table3,
    /// How many requests meet a tentative bid.
    Table5,
    /// Latencies of 16K chunks, one after the other.
    Fig8,
    /// Throughput with 128K chunks.
    Fig9,
    /// Throughput with 16K chunks.
    Fig10,
    /// Latencies of 16K chunks, sorted.
    Fig11,
    /// Throughput with 128K chunks of 30 initiators.
    Fig12,
    /// Throughput with 1M chunks of 30 initiators.
    Fig13,
}

impl Figure {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Table2 => "table2",
            Self::Table3 => "table3",
            Self::Table5 => "table5",
            Self::Fig8 => "fig8",
            Self::Fig9 => "fig9",
            Self::Fig10 => "fig10",
            Self::Fig11 => "fig11",
            Self::Fig12 => "fig12",
            Self::Fig13 => "fig13",
        }
    }

    pub(crate) fn setups(self) -> Vec<Setup> {
        let all = |chunks: &[u32], disks: &[u32], initiators: u16| {
            let cells = disks.iter().flat_map(|disk| chunks.iter().map(move |chunk| (*chunk, *disk)));
            let of = |(chunk, disk)| {
                Protocol::ALL.map(|protocol| Setup { initiators, ..Setup::new(protocol, chunk, disk) })
            };
            cells.flat_map(of).collect::<Vec<_>>()
        };
        match self {
            Self::Table2 => all(&CHUNKS_KIB, &DISKS_MIB[..1], 90),
            Self::Table3 => all(&CHUNKS_KIB, &DISKS_MIB[1..], 90),
            Self::Table5 => CHUNKS_KIB.map(|chunk| Setup::new(Protocol::M, chunk, 1_000)).to_vec(),
            Self::Fig8 => all(&[16], &DISKS_MIB[..1], 30),
            Self::Fig9 => all(&[128], &DISKS_MIB, 90),
            Self::Fig10 => all(&[16], &DISKS_MIB, 90),
            Self::Fig11 => all(&[16], &DISKS_MIB[..1], 90),
            Self::Fig12 => all(&[128], &DISKS_MIB, 30),
            Self::Fig13 => all(&[1_024], &DISKS_MIB, 30),
        }
    }

    pub(crate) fn rows(self, runs: &Runs) -> Vec<Row> {
        let name = self.name();
        let by_chunk =
            |measured: &Measured| averages((name, "chunk, KB", measured.setup.chunk_kib.into()), measured);
        let by_disk =
            |measured: &Measured| averages((name, "disk, MB/s", measured.setup.disk_mib.into()), measured);
        match self {
            Self::Table2 | Self::Table3 => runs.all.iter().flat_map(by_chunk).collect(),
            Self::Table5 => runs.all.iter().flat_map(tentative).collect(),
            Self::Fig8 => runs.all.iter().flat_map(one_after_the_other).collect(),
            Self::Fig11 => runs.all.iter().flat_map(percentiles).collect(),
            Self::Fig9 | Self::Fig10 | Self::Fig12 | Self::Fig13 => {
                let rows = runs.all.iter().flat_map(by_disk);
                rows.filter(|row| row.metric == THROUGHPUT).chain(rises(name, runs)).collect()
            }
        }
    }

    pub(crate) fn charts(self, runs: &Runs, rows: &[Row]) -> Vec<Chart> {
        let latencies =
            |measured: &Measured| measured.outcomes.first().map(|outcome| outcome.latencies_us.clone());
        let axes = |x| Axes { x, y: "us".into(), is_logarithmic: false, is_y_logarithmic: false };
        match self {
            Self::Fig8 => {
                // A chart for each, as points of several runs would hide each other.
                let chart = |measured: &Measured| {
                    let points = numbered(latencies(measured).unwrap_or_default());
                    let (name, title) = (measured.setup.protocol.name(), measured.setup.workload());
                    let title = format!("fig8  put latency, {title}");
                    Chart {
                        title,
                        axes: axes("chunk"),
                        curves: vec![(name.into(), points)],
                        marks: Vec::new(),
                    }
                };
                runs.all.iter().map(chart).collect()
            }
            Self::Fig11 => {
                let curve = |measured: &Measured| {
                    let mut sorted = latencies(measured).unwrap_or_default();
                    sorted.sort_by(f64::total_cmp);
                    (measured.setup.protocol.name().into(), numbered(sorted))
                };
                let title = "fig11  sorted put latency, 16K, 400 MB/s, 90 initiators".into();
                let curves = runs.all.iter().map(curve).collect();
                vec![Chart { title, axes: axes("chunk, by its latency"), curves, marks: Vec::new() }]
            }
            _ => report::charts(rows, logarithmic),
        }
    }

    pub(crate) fn notes(self, runs: &Runs) -> Vec<String> {
        match self {
            Self::Table5 => vec![format!(
                "Table 5 is 1 − e^(−λ · {TENTATIVE_US} us) of the paper's λ. Requests come in bursts, when chunks of a group are done, and a bid stays tentative for two control messages and two trips, 6.8 us."
            )],
            Self::Fig8 | Self::Fig11 => vec!["The paper prints no figures of this picture.".into()],
            Self::Fig12 | Self::Fig13 => {
                vec!["The paper's bars are lost: their content is in its text.".into()]
            }
            _ => order(runs),
        }
    }
}

fn numbered(latencies_us: Vec<f64>) -> Vec<(f64, f64)> {
    latencies_us.into_iter().enumerate().map(|(number, latency)| (number as f64, latency)).collect()
}

/// A row of Table 5.
fn tentative(measured: &Measured) -> Vec<Row> {
    let setup = &measured.setup;
    let key = ("table5", "chunk, KB", setup.chunk_kib.into());
    let Some(printed) = TABLE_5.iter().find(|printed| printed.chunk_kib == setup.chunk_kib) else {
        return Vec::new();
    };
    let Tentative { requests_per_us, percent, .. } = *printed;
    let ours =
        |chunks_per_second: f64| poisson_percent(chunks_per_second / f64::from(GROUPS) / 1e6, TENTATIVE_US);
    let of = |metric, figures| beside_paper(row(key, setup, (metric, "%"), figures), Some(percent));
    vec![
        of("Poisson, λ printed", vec![poisson_percent(requests_per_us, TENTATIVE_US)]),
        of("Poisson, λ of our throughput", measured.each(|outcome| ours(outcome.chunks_per_second))),
        of("requests that meet a tentative bid", measured.each(|outcome| outcome.met_percent())),
    ]
}

fn percentile(latencies_us: &[f64], percent: usize) -> f64 {
    let mut sorted = latencies_us.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) * percent / 100).copied().unwrap_or_default()
}

fn percentiles(measured: &Measured) -> Vec<Row> {
    let key = ("fig11", "percent of chunks", 0.0);
    let names = [
        "latency, 10th percentile",
        "latency, median",
        "latency, 90th percentile",
        "latency, 99th percentile",
    ];
    let of = |(metric, percent): (&str, usize)| {
        let figures = measured.each(|outcome| percentile(&outcome.latencies_us, percent));
        row(key, &measured.setup, (metric, "us"), figures)
    };
    names.into_iter().zip([10, 50, 90, 99]).map(of).collect()
}

/// Whether latency changes in the course of a run, by tenths of it.
fn one_after_the_other(measured: &Measured) -> Vec<Row> {
    let key = ("fig8", "chunk", 0.0);
    let parts = |latencies_us: &[f64]| {
        let part = latencies_us.len().div_ceil(PARTS).max(1);
        latencies_us.chunks(part).map(mean).collect::<Vec<_>>()
    };
    // Without the first part, which includes the start.
    let highest = |latencies_us: &[f64]| {
        let parts = parts(latencies_us);
        let settled = parts.get(1..).unwrap_or_default();
        settled.iter().copied().fold(0.0, f64::max) / mean(settled)
    };
    let of = |metric, figures| row(key, &measured.setup, metric, figures);
    vec![
        of(("latency", "us"), measured.each(|outcome| outcome.latency_us)),
        of(
            ("latency, 99th percentile", "us"),
            measured.each(|outcome| percentile(&outcome.latencies_us, 99)),
        ),
        of(
            ("highest of nine tenths ÷ their mean", ""),
            measured.each(|outcome| highest(&outcome.latencies_us)),
        ),
    ]
}

/// Throughput with fast disks ÷ that with slow ones.
fn rises(panel: &'static str, runs: &Runs) -> Vec<Row> {
    let rise = |protocol: Protocol| {
        let of = |disk: u32| runs.find(|setup| setup.protocol == protocol && setup.disk_mib == disk);
        let (slow, fast) = (of(DISKS_MIB[0])?, of(DISKS_MIB[1])?);
        let [fast_rates, slow_rates] =
            [fast, slow].map(|measured| measured.each(|outcome| outcome.chunks_per_second));
        let known = RISES.iter().find(|(chunk, _)| *chunk == fast.setup.chunk_kib);
        let is_printed = protocol == Protocol::M && fast.setup.initiators == 90;
        let paper = known.filter(|_| is_printed).map(|(_, rise)| *rise);
        let ratios = ratios(&fast_rates, &slow_rates);
        Some(beside_paper(row((panel, "", 0.0), &fast.setup, ("1000 MB/s ÷ 400 MB/s", ""), ratios), paper))
    };
    Protocol::ALL.into_iter().filter_map(rise).collect()
}

/// Whether protocols are in the printed order, where printed values differ by more than 5 %.
pub(crate) fn order(runs: &Runs) -> Vec<String> {
    let mut compared = 0;
    let mut notes = Vec::new();
    for one in &runs.all {
        for other in &runs.all {
            let is_alike = Setup { protocol: one.setup.protocol, ..other.setup } == one.setup;
            let (Some(first), Some(second)) = (printed(&one.setup), printed(&other.setup)) else { continue };
            if !is_alike || first.chunks_per_second < ORDERED * second.chunks_per_second {
                continue;
            }
            compared += 1;
            if one.throughput() <= other.throughput() {
                let Setup { chunk_kib, disk_mib, .. } = one.setup;
                let [better, worse] = [one, other].map(|measured| measured.setup.protocol.name());
                notes.push(format!(
                    "not in the printed order: {better} and {worse}, {}, {disk_mib} MB/s",
                    chunk_name(chunk_kib)
                ));
            }
        }
    }
    if compared > 0 {
        notes.push(format!(
            "{} of {compared} pairs that differ by more than 5 % are in the printed order",
            compared - notes.len()
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replicast_sim::runs::measure;

    #[test]
    fn every_figure_has_rows_and_charts() {
        use Figure::{Fig8, Fig9, Fig10, Fig11, Fig12, Fig13, Table2, Table3, Table5};
        for figure in [Table2, Table3, Table5, Fig8, Fig9, Fig10, Fig11, Fig12, Fig13] {
            // Small chunks, as they are fast to simulate.
            let short = |setup: Setup| Setup { chunk_kib: setup.chunk_kib.min(128), ..setup };
            let setups: Vec<Setup> = figure.setups().into_iter().map(short).collect();
            let runs = measure(&setups, &(1..=1));
            let rows = figure.rows(&runs);
            assert!(rows.len() >= setups.len(), "{figure:?}");
            let is_drawn = !figure.charts(&runs, &rows).is_empty();
            assert!(is_drawn && !figure.notes(&runs).is_empty(), "{figure:?}");
        }
    }

    #[test]
    fn a_pair_in_another_order_is_named() {
        let setups = [Protocol::UchCcp, Protocol::M].map(|protocol| Setup::new(protocol, 128, 1_000));
        let mut runs = measure(&setups, &(1..=1));
        assert_eq!(order(&runs), ["1 of 1 pairs that differ by more than 5 % are in the printed order"]);
        runs.all[1].outcomes[0].chunks_per_second = 1.0;
        assert!(order(&runs)[0].contains("replicast-m and uch-ccp, 128K"), "{:?}", order(&runs));
    }
}
