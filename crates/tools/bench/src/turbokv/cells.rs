//! What is measured, and what the paper says of it.

use super::field::{NODES, RECORDS, REPLICAS, Rounds, SYSTEMS};
use super::workload::{KEY_BYTES, KEYS, Mix, SCAN_KEYS_MAX, Skew, VALUE_BYTES};
use crate::plot::{Bar, Panel};
use crate::report;
use crate::statistics::{Summary, figure};
use serde_json::{Value, json};
use std::time::Duration;

/// The columns of the table.
pub(crate) const HEADER: [&str; 9] =
    ["workload", "metric", "switch", "client", "server", "server ratio", "paper", "client ratio", "paper"];

/// A workload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    pub(crate) skew: Skew,
    pub(crate) mix: Mix,
}

const fn reads(skew: Skew) -> Cell {
    Cell { skew, mix: Mix::Writes(0.0) }
}

const fn writes(skew: Skew, share: f64) -> Cell {
    Cell { skew, mix: Mix::Writes(share) }
}

/// Fig. 13: (a) reads against skew, (b) writes uniform, (c) writes at Zipf 1.2, whose first cells are of (a).
pub(crate) const THROUGHPUTS: [Cell; 15] = [
    reads(Skew::Zipf(0.9)),
    reads(Skew::Zipf(0.95)),
    reads(Skew::Zipf(0.99)),
    reads(Skew::Uniform),
    writes(Skew::Uniform, 0.1),
    writes(Skew::Uniform, 0.25),
    writes(Skew::Uniform, 0.5),
    writes(Skew::Uniform, 0.75),
    writes(Skew::Uniform, 1.0),
    reads(Skew::Zipf(1.2)),
    writes(Skew::Zipf(1.2), 0.1),
    writes(Skew::Zipf(1.2), 0.25),
    writes(Skew::Zipf(1.2), 0.5),
    writes(Skew::Zipf(1.2), 0.75),
    writes(Skew::Zipf(1.2), 1.0),
];

/// Fig. 14 and 15.
pub(crate) const LATENCIES: [Cell; 3] =
    [reads(Skew::Uniform), writes(Skew::Uniform, 1.0), Cell { skew: Skew::Uniform, mix: Mix::Scans }];

/// What is taken from a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Throughput,
    Mean,
    Median,
    Tail,
    /// Processor time of everybody.
    Cost,
}

impl Wanted {
    pub(crate) const THROUGHPUT: [Self; 2] = [Self::Throughput, Self::Cost];
    pub(crate) const TIMES: [Self; 4] = [Self::Mean, Self::Median, Self::Tail, Self::Cost];

    fn name(self) -> (&'static str, &'static str) {
        match self {
            Self::Throughput => ("throughput", "op/s"),
            Self::Mean => ("mean_time", "us"),
            Self::Median => ("p50_time", "us"),
            Self::Tail => ("p99_time", "us"),
            Self::Cost => ("cpu_per_op", "us"),
        }
    }
}

/// Ratios that the paper has.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Papers {
    /// To what the servers coordinate: of throughput ours ÷ theirs, of times theirs ÷ ours.
    server: Option<(f64, f64)>,
    client: Option<f64>,
}

/// Of the paper's tables 1 and 2: mean, median and 99th percentile in milliseconds of switch, client and server.
const TABLES: [[[[f64; 3]; 3]; 3]; 2] = [
    [
        [[72.5, 71.2, 103.3], [69.8, 68.8, 98.6], [86.6, 87.7, 127.8]],
        [[123.5, 121.8, 165.8], [117.5, 116.1, 153.5], [138.2, 138.0, 189.0]],
        [[84.3, 80.0, 160.2], [80.8, 76.5, 139.0], [109.0, 104.0, 184.5]],
    ],
    [
        [[72.2, 71.8, 105.3], [71.4, 70.9, 104.0], [102.8, 99.8, 206.8]],
        [[126.8, 125.4, 172.4], [119.7, 117.2, 167.3], [178.3, 170.9, 330.6]],
        [[87.3, 80.3, 204.0], [85.6, 80.0, 196.0], [112.0, 104.5, 242.6]],
    ],
];

impl Cell {
    /// The same of other keys.
    pub(crate) fn of(self, skew: Skew) -> Self {
        Self { skew, ..self }
    }

    pub(crate) fn title(&self) -> String {
        let what = match self.mix {
            Mix::Writes(0.0) => "get".into(),
            Mix::Writes(1.0) => "put".into(),
            Mix::Writes(share) => format!("{:.0} % puts", share * 100.0),
            Mix::Scans => format!("scan of 1 to {SCAN_KEYS_MAX}"),
        };
        format!("{what}, {}", self.skew.name())
    }

    pub(crate) fn parameters(
        &self,
        engine: &str,
        network: &str,
        callers: usize,
        duration: Duration,
    ) -> Value {
        let (write_ratio, scan_keys_max) = match self.mix {
            Mix::Writes(share) => (share, 0),
            Mix::Scans => (0.0, SCAN_KEYS_MAX),
        };
        json!({
            "skew": self.skew.name(), "write_ratio": write_ratio, "scan_keys_max": scan_keys_max,
            "callers": callers, "nodes": NODES, "replicas": REPLICAS, "records": RECORDS, "keys": KEYS,
            "key_bytes": KEY_BYTES, "value_bytes": VALUE_BYTES, "engine": engine, "switch": network,
            "round_seconds": duration.as_secs_f64(),
        })
    }

    fn papers(&self, wanted: Wanted) -> Papers {
        let is_skewed = self.skew != Skew::Uniform;
        let operation = match self.mix {
            Mix::Writes(0.0) => 0,
            Mix::Writes(_) => 1,
            Mix::Scans => 2,
        };
        let of_tables = |place: usize| {
            let rows = TABLES[usize::from(is_skewed)][operation];
            let ratio = |system: usize| rows[system][place] / rows[0][place];
            Papers { server: Some((ratio(2), ratio(2))), client: Some(ratio(1)) }
        };
        match wanted {
            Wanted::Throughput => Papers {
                server: Some(match (operation, is_skewed) {
                    (0, _) => (1.26, 1.39),
                    (_, false) => (1.26, 1.44),
                    (_, true) => (1.37, 1.47),
                }),
                client: (operation == 0).then_some(0.95),
            },
            Wanted::Mean => of_tables(0),
            Wanted::Median => of_tables(1),
            Wanted::Tail => of_tables(2),
            Wanted::Cost => Papers { server: None, client: None },
        }
    }

    /// What all rounds have shown.
    pub(crate) fn compare(&self, wanted: Wanted, rounds: &Rounds) -> Compared {
        let take = |system: usize| -> Vec<f64> {
            let of = |turns: &[super::field::Turn; 3]| {
                let turn = &turns[system];
                match wanted {
                    Wanted::Throughput => turn.measured.throughput(),
                    Wanted::Mean => turn.latencies.mean_us(),
                    Wanted::Median => turn.latencies.quantile_us(0.5),
                    Wanted::Tail => turn.latencies.quantile_us(0.99),
                    Wanted::Cost => turn.measured.cost_us(),
                }
            };
            rounds.iter().map(of).collect()
        };
        Compared {
            title: self.title(),
            wanted,
            figures: [take(0), take(1), take(2)],
            papers: self.papers(wanted),
        }
    }
}

/// A metric of the three.
#[derive(Clone, Debug)]
pub(crate) struct Compared {
    title: String,
    wanted: Wanted,
    /// Of each round.
    figures: [Vec<f64>; 3],
    papers: Papers,
}

impl Compared {
    fn summary(&self, system: usize) -> Summary {
        Summary::of(self.figures[system].iter().copied())
    }

    /// By how much the switch is better, within the rounds: of throughput ours ÷ theirs, of times theirs ÷ ours.
    fn ratios(&self, system: usize) -> Summary {
        let ratio = |(ours, theirs): (&f64, &f64)| match self.wanted {
            Wanted::Throughput => ours / theirs,
            _ => theirs / ours,
        };
        Summary::of(self.figures[0].iter().zip(&self.figures[system]).map(ratio))
    }

    /// A row of the table.
    pub(crate) fn columns(&self) -> [String; 9] {
        let ratio = |system| {
            let Summary { median, min, max } = self.ratios(system);
            format!("{median:.2} [{min:.2} .. {max:.2}]")
        };
        let (metric, unit) = self.wanted.name();
        let papers_server = match self.papers.server {
            Some((least, most)) if least == most => format!("{least:.2}"),
            Some((least, most)) => format!("{least:.2} to {most:.2}"),
            None => String::new(),
        };
        [
            self.title.clone(),
            format!("{metric}, {unit}"),
            figure(self.summary(0).median),
            figure(self.summary(1).median),
            figure(self.summary(2).median),
            ratio(2),
            papers_server,
            ratio(1),
            self.papers.client.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
        ]
    }

    pub(crate) fn line(&self) -> String {
        self.columns().join("  ")
    }

    /// A line of JSON for each; the switch's have a ratio to each of the others.
    pub(crate) fn json(&self, bench: &str, parameters: &Value) -> String {
        let mut lines = String::new();
        for (system, (_, name)) in SYSTEMS.iter().enumerate() {
            let figures = &self.figures[system];
            let mut push = |ratio| {
                lines.push_str(&report::row_of(bench, name, parameters, self.wanted.name(), figures, ratio));
            };
            match system {
                0 => (1..SYSTEMS.len())
                    .for_each(|other| push(Some((SYSTEMS[other].1, self.ratios(other).median)))),
                _ => push(None),
            }
        }
        lines
    }

    pub(crate) fn panel(&self) -> Panel {
        let bar = |(system, (_, name)): (usize, (_, &str))| {
            let bar = Bar::ours(name, self.summary(system));
            Bar { is_peers: system > 0, ..bar }
        };
        let bars = SYSTEMS.into_iter().enumerate().map(bar).collect();
        let (metric, unit) = self.wanted.name();
        Panel { title: format!("{}, {metric}, {unit}", self.title), bars }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(wanted: Wanted) -> Compared {
        let cell = writes(Skew::Zipf(1.2), 1.0);
        let figures = [vec![20.0, 2.0, 30.0], vec![20.0, 2.0, 30.0], vec![10.0, 1.0, 20.0]];
        Compared { title: cell.title(), wanted, figures, papers: cell.papers(wanted) }
    }

    #[test]
    fn a_ratio_above_one_is_for_the_switch() {
        assert_eq!(compared(Wanted::Throughput).ratios(2), Summary { median: 2.0, min: 1.5, max: 2.0 });
        assert_eq!(compared(Wanted::Mean).ratios(2).median, 0.5);
        assert_eq!(compared(Wanted::Mean).ratios(1).median, 1.0);
    }

    #[test]
    fn the_papers_ratios_are_those_of_its_text() {
        let server = |skew, mix, wanted| Cell { skew, mix }.papers(wanted).server.unwrap().0;
        let round = |ratio: f64| (ratio * 100.0).round() / 100.0;
        let (get, put, zipf) = (Mix::Writes(0.0), Mix::Writes(1.0), Skew::Zipf(1.2));
        assert_eq!(round(server(Skew::Uniform, get, Wanted::Mean)), 1.19);
        assert_eq!(round(server(Skew::Uniform, put, Wanted::Tail)), 1.14);
        assert_eq!(round(server(zipf, Mix::Scans, Wanted::Mean)), 1.28);
        assert_eq!(round(server(zipf, put, Wanted::Tail)), 1.92);
    }

    #[test]
    fn every_system_has_lines_of_json() {
        let lines = compared(Wanted::Throughput).json("turbokv-fig13", &json!({}));
        let rows: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let systems: Vec<_> = rows.iter().map(|row| row["system"].as_str().unwrap()).collect();
        assert_eq!(systems, ["switch-driven", "switch-driven", "client-driven", "server-driven"]);
        assert_eq!((&rows[1]["ratio_to"], &rows[1]["ratio"]), (&json!("server-driven"), &json!(2.0)));
        assert_eq!(rows[3]["ratio"], Value::Null);
    }
}
