//! The figures of a case, and its targets.

use super::load::Measured;
use super::{Case, MBIT, System};
use crate::report::{Goal, NICEKV, Report, Row};
use crate::statistics::ratios;
use serde_json::Value;

/// A figure of a measurement.
struct Metric {
    name: &'static str,
    unit: &'static str,
    of: fn(&Measured) -> f64,
}

const THROUGHPUT: Metric =
    Metric { name: "throughput", unit: "MB/s", of: |measured| measured.megabytes_per_second };
const P99: Metric = Metric { name: "p99", unit: "ms", of: |measured| measured.p99_ms };
const METRICS: [Metric; 5] = [
    THROUGHPUT,
    Metric { name: "p50", unit: "ms", of: |measured| measured.p50_ms },
    P99,
    Metric { name: "sent_per_byte", unit: "ratio", of: |measured| measured.sent },
    Metric { name: "processors_busy", unit: "ratio", of: |measured| measured.busy },
];

/// The rounds of a case, of each system in the order of [`System::ALL`].
#[derive(Default)]
pub(super) struct Results([Vec<Measured>; 3]);

impl Results {
    pub(super) fn add(&mut self, system: System, measured: Measured) {
        self.0[system as usize].push(measured);
    }

    fn figures(&self, system: System, metric: &Metric) -> Vec<f64> {
        self.0[system as usize].iter().map(metric.of).collect()
    }

    pub(super) fn report(&self, case: Case, parameters: &Value, report: &mut Report) {
        report.rows_with_bars(&self.rows(case, parameters));
    }

    fn rows(&self, case: Case, parameters: &Value) -> Vec<Row> {
        let workload = format!("{}, 1 MiB chunks, links of {MBIT} Mbit/s", case.name());
        let row = |system: &str, metric: (&str, &'static str), figures: Vec<f64>| {
            Row::new(&workload, system, metric, figures).parameters(parameters.clone())
        };
        let mut rows = Vec::new();
        for metric in &METRICS {
            for system in System::ALL {
                let row = row(system.name(), (metric.name, metric.unit), self.figures(system, metric));
                rows.push(match system {
                    System::Hashed => row.peer(true),
                    _ => row.beside(System::Hashed.name(), &self.figures(System::Hashed, metric)),
                });
            }
        }
        for system in System::ALL {
            let arrived: Vec<f64> =
                self.0[system as usize].iter().filter_map(|measured| measured.background).collect();
            if !arrived.is_empty() {
                rows.push(row(system.name(), ("others_arrived", "ratio"), arrived));
            }
        }
        if let Some((metric, goal)) = goal(case) {
            let [ours, hashed] =
                [System::Multicast, System::Hashed].map(|system| self.figures(system, &metric));
            let name = format!("{}_m_to_tcp", metric.name);
            rows.push(row(NICEKV, (&name, "ratio"), ratios(&ours, &hashed)).goal(goal));
        }
        rows
    }
}

/// The target of a case, for the ratio of Replicast-M to TCP.
fn goal(case: Case) -> Option<(Metric, Goal)> {
    match case {
        Case::Full => Some((THROUGHPUT, Goal::AtLeast(1.3))),
        Case::SlowDisk => Some((P99, Goal::AtMost(0.3))),
        Case::BusyLink => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(case: Case, ours: f64, hashed: f64) -> Vec<Row> {
        let measured = |figure: f64| Measured {
            megabytes_per_second: figure,
            p50_ms: figure,
            p99_ms: figure,
            sent: 1.1,
            busy: 0.5,
            negotiations: 1.0,
            background: None,
            chunks: 100,
        };
        let mut results = Results::default();
        for _ in 0..5 {
            results.add(System::Multicast, measured(ours));
            results.add(System::Unicast, measured(2.0));
            results.add(System::Hashed, measured(hashed));
        }
        results.rows(case, &Value::Null)
    }

    #[test]
    fn both_targets_are_judged_by_ratios_to_tcp() {
        let is_met = |case, ours| rows(case, ours, 10.0).last().and_then(Row::is_met);
        assert_eq!([13.0, 12.0].map(|ours| is_met(Case::Full, ours)), [Some(true), Some(false)]);
        assert_eq!([3.0, 4.0].map(|ours| is_met(Case::SlowDisk, ours)), [Some(true), Some(false)]);
        assert_eq!(is_met(Case::BusyLink, 4.0), None);
    }

    #[test]
    fn each_system_has_a_row_for_each_metric() {
        let rows = rows(Case::Full, 20.0, 10.0);
        assert_eq!(rows.len(), 3 * METRICS.len() + 1);
        assert_eq!((rows[0].system.as_str(), &rows[0].ratio), ("M", &Some(("TCP".into(), 2.0))));
        assert_eq!(rows[2].ratio, None, "TCP is what the others are compared with");
        assert_eq!(rows[15].metric, "throughput_m_to_tcp");
    }
}
