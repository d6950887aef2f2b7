//! The workloads of the paper's figures, their metrics, and the paper's ratios.

use super::testbed::{NODES, RECORDS, REPLICAS, Rounds, SYSTEMS, Turn};
use super::workload::{KEY_BYTES, KEYS, Mix, SCAN_KEYS_MAX, Skew, VALUE_BYTES};
use crate::report::Row;
use crate::statistics::{median, ratios};
use serde_json::{Value, json};
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    pub(crate) skew: Skew,
    pub(crate) mix: Mix,
}

const fn reads(skew: Skew) -> Workload {
    Workload { skew, mix: Mix::Writes(0.0) }
}

const fn writes(skew: Skew, share: f64) -> Workload {
    Workload { skew, mix: Mix::Writes(share) }
}

/// Fig. 13: (a) reads against skew, (b) writes uniform, (c) writes at Zipf 1.2; reads of (b) and
/// (c) are those of (a).
pub(crate) const THROUGHPUTS: [Workload; 15] = [
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
pub(crate) const LATENCIES: [Workload; 3] =
    [reads(Skew::Uniform), writes(Skew::Uniform, 1.0), Workload { skew: Skew::Uniform, mix: Mix::Scans }];

/// A figure of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metric {
    Throughput,
    Mean,
    Median,
    Tail,
    /// Processor time of the whole machine.
    Cost,
}

impl Metric {
    pub(crate) const OF_THROUGHPUT: [Self; 2] = [Self::Throughput, Self::Cost];
    pub(crate) const OF_LATENCY: [Self; 4] = [Self::Mean, Self::Median, Self::Tail, Self::Cost];

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

/// The paper's ratios: throughput ours ÷ theirs, times theirs ÷ ours.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Papers {
    /// Ratio to the server-driven system, from least to most.
    server: Option<(f64, f64)>,
    client: Option<f64>,
}

/// The paper's tables 1 and 2, for gets, puts and scans: mean, median and 99th percentile in
/// milliseconds of switch, client and server.
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

impl Metric {
    fn of(self, turn: &Turn) -> f64 {
        match self {
            Self::Throughput => turn.measured.throughput(),
            Self::Mean => turn.latencies.mean_us(),
            Self::Median => turn.latencies.quantile_us(0.5),
            Self::Tail => turn.latencies.quantile_us(0.99),
            Self::Cost => turn.measured.cost_us(),
        }
    }
}

impl Workload {
    pub(crate) fn with_skew(self, skew: Skew) -> Self {
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

    fn papers(&self, metric: Metric) -> Papers {
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
        match metric {
            Metric::Throughput => Papers {
                server: Some(match (operation, is_skewed) {
                    (0, _) => (1.26, 1.39),
                    (_, false) => (1.26, 1.44),
                    (_, true) => (1.37, 1.47),
                }),
                client: (operation == 0).then_some(0.95),
            },
            Metric::Mean => of_tables(0),
            Metric::Median => of_tables(1),
            Metric::Tail => of_tables(2),
            Metric::Cost => Papers { server: None, client: None },
        }
    }

    /// A metric of all three systems. The switch has a row for its ratio to each of the others;
    /// above 1 the switch is better.
    pub(crate) fn rows(&self, metric: Metric, rounds: &Rounds, parameters: &Value) -> Vec<Row> {
        let figures = |system: usize| rounds.iter().map(|turns| metric.of(&turns[system])).collect();
        self.rows_of(metric, &[figures(0), figures(1), figures(2)], parameters)
    }

    fn rows_of(&self, metric: Metric, figures: &[Vec<f64>; 3], parameters: &Value) -> Vec<Row> {
        let row = |system: usize| {
            let row = Row::new(self.title(), SYSTEMS[system].1, metric.name(), figures[system].clone());
            row.parameters(parameters.clone()).peer(system > 0)
        };
        let papers = self.papers(metric);
        let beside = |other: usize| {
            let ratio = match metric {
                Metric::Throughput => ratios(&figures[0], &figures[other]),
                _ => ratios(&figures[other], &figures[0]),
            };
            row(0).ratio(SYSTEMS[other].1, median(&ratio))
        };
        let server = match papers.server {
            Some((least, most)) if least == most => format!("paper: {least:.2}"),
            Some((least, most)) => format!("paper: {least:.2} to {most:.2}"),
            None => String::new(),
        };
        let client = papers.client.map_or_else(String::new, |ratio| format!("paper: {ratio:.2}"));
        vec![beside(1).remark(client), beside(2).remark(server), row(1), row(2)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(metric: Metric) -> Vec<Row> {
        let figures = [vec![20.0, 2.0, 30.0], vec![20.0, 2.0, 30.0], vec![10.0, 1.0, 20.0]];
        writes(Skew::Zipf(1.2), 1.0).rows_of(metric, &figures, &json!({}))
    }

    #[test]
    fn a_ratio_above_one_is_in_favour_of_the_switch() {
        let ratios = |metric| rows(metric).into_iter().map(|row| row.ratio).collect::<Vec<_>>();
        let to = |system: &str, ratio: f64| Some((system.to_owned(), ratio));
        let throughput = [to("client-driven", 1.0), to("server-driven", 2.0), None, None];
        assert_eq!(ratios(Metric::Throughput), throughput);
        assert_eq!(ratios(Metric::Mean)[1], to("server-driven", 0.5));
    }

    #[test]
    fn the_papers_ratios_are_those_of_its_text() {
        let server = |skew, mix, metric| Workload { skew, mix }.papers(metric).server.unwrap().0;
        let round = |ratio: f64| (ratio * 100.0).round() / 100.0;
        let (get, put, zipf) = (Mix::Writes(0.0), Mix::Writes(1.0), Skew::Zipf(1.2));
        assert_eq!(round(server(Skew::Uniform, get, Metric::Mean)), 1.19);
        assert_eq!(round(server(Skew::Uniform, put, Metric::Tail)), 1.14);
        assert_eq!(round(server(zipf, Mix::Scans, Metric::Mean)), 1.28);
        assert_eq!(round(server(zipf, put, Metric::Tail)), 1.92);
    }
}
