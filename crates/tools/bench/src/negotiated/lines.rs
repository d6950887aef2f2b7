//! What is printed of a case.

use super::load::{CHUNK_BYTES, Measured};
use super::{Case, MBIT, NAME, NegotiatedArguments, System, bed};
use crate::plot::{Bar, Panel};
use crate::report::{self, Goal};
use crate::statistics::Summary;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// With full links, M ÷ TCP, chunks a second.
const THROUGHPUT_MIN: f64 = 1.3;
/// With one disk ten times slower, M ÷ TCP, p99.
const P99_MAX: f64 = 0.3;

/// A figure of a measurement.
struct Metric {
    name: &'static str,
    unit: &'static str,
    of: fn(&Measured) -> f64,
}

const THROUGHPUT: Metric =
    Metric { name: "throughput", unit: "MB/s", of: |measured| measured.megabytes_per_second };
const P50: Metric = Metric { name: "p50", unit: "ms", of: |measured| measured.p50_ms };
const P99: Metric = Metric { name: "p99", unit: "ms", of: |measured| measured.p99_ms };
const SENT: Metric = Metric { name: "sent_per_byte", unit: "ratio", of: |measured| measured.sent };
const BUSY: Metric = Metric { name: "processors_busy", unit: "ratio", of: |measured| measured.busy };
const METRICS: [Metric; 5] = [THROUGHPUT, P50, P99, SENT, BUSY];

/// What a case has to show.
pub(super) struct Shown {
    pub(super) table: String,
    pub(super) json: String,
    pub(super) panels: Vec<Panel>,
}

/// Rounds of a case, of each system in the order of [`System::ALL`].
#[derive(Default)]
pub(super) struct Rows([Vec<Measured>; 3]);

impl Rows {
    pub(super) fn note(&mut self, system: System, measured: Measured) {
        self.0[system as usize].push(measured);
    }

    fn figures(&self, system: System, metric: &Metric) -> Vec<f64> {
        self.0[system as usize].iter().map(metric.of).collect()
    }

    /// Of each round, one side's beside that of TCP.
    fn ratios(&self, system: System, metric: &Metric) -> Vec<f64> {
        let (ours, hashed) = (self.figures(system, metric), self.figures(System::Hashed, metric));
        ours.into_iter().zip(hashed).map(|(ours, hashed)| ours / hashed).collect()
    }

    /// What got through of others' traffic.
    fn others(&self, system: System) -> Vec<f64> {
        self.0[system as usize].iter().filter_map(|measured| measured.others).collect()
    }

    pub(super) fn show(&self, case: Case, arguments: &NegotiatedArguments) -> Shown {
        let parameters = parameters(case, arguments);
        Shown {
            table: self.table(case) + &self.verdict(case),
            json: self.json(case, &parameters),
            panels: [THROUGHPUT, P99].iter().map(|metric| self.panel(case, metric)).collect(),
        }
    }

    fn table(&self, case: Case) -> String {
        let header = [
            "MB/s",
            "[min .. max]",
            "÷ TCP",
            "p50 ms",
            "÷ TCP",
            "p99 ms",
            "[min .. max]",
            "÷ TCP",
            "sent ÷ put",
            "busy",
        ];
        let title = format!("{}, 1 MiB chunks, links of {MBIT} Mbit/s", case.name());
        let mut lines = vec![std::array::from_fn::<_, 11, _>(|at| match at {
            0 => title.clone(),
            at => header[at - 1].to_owned(),
        })];
        for system in System::ALL {
            let summary = |metric| Summary::of(self.figures(system, metric));
            let ratio = |metric| format!("{:.2}", Summary::of(self.ratios(system, metric)).median);
            let [throughput, p50, p99, sent, busy] = METRICS.each_ref().map(summary);
            lines.push([
                system.name().to_owned(),
                format!("{:.1}", throughput.median),
                format!("[{:.1} .. {:.1}]", throughput.min, throughput.max),
                ratio(&THROUGHPUT),
                format!("{:.0}", p50.median),
                ratio(&P50),
                format!("{:.0}", p99.median),
                format!("[{:.0} .. {:.0}]", p99.min, p99.max),
                ratio(&P99),
                format!("{:.2}", sent.median),
                format!("{:.0} %", busy.median * 100.0),
            ]);
        }
        report::aligned(&lines)
    }

    /// Whether what was wanted of the case is there.
    fn verdict(&self, case: Case) -> String {
        let mut text = String::new();
        if let Some((what, metric, goal)) = goal(case) {
            let Summary { median, min, max } = Summary::of(self.ratios(System::Multicast, &metric));
            let met = if goal.is_met(median) { "yes" } else { "no" };
            let _ = writeln!(text, "{what}: {median:.2} [{min:.2} .. {max:.2}], target {goal}: {met}");
        }
        for system in System::ALL {
            let others = self.others(system);
            if !others.is_empty() {
                let Summary { median, min, max } = Summary::of(others);
                let name = system.name();
                let _ = writeln!(
                    text,
                    "others' traffic that got through beside {name}: {median:.2} [{min:.2} .. {max:.2}]"
                );
            }
        }
        text
    }

    fn json(&self, case: Case, parameters: &Value) -> String {
        let mut text = String::new();
        for system in System::ALL {
            for metric in &METRICS {
                let ratio = Summary::of(self.ratios(system, metric)).median;
                let beside = (system != System::Hashed).then_some((System::Hashed.name(), ratio));
                let figures = self.figures(system, metric);
                text += &report::row_of(
                    NAME,
                    system.name(),
                    parameters,
                    (metric.name, metric.unit),
                    &figures,
                    beside,
                );
            }
        }
        for system in System::ALL {
            let others = self.others(system);
            if !others.is_empty() {
                text += &report::row_of(
                    NAME,
                    system.name(),
                    parameters,
                    ("others_arrived", "ratio"),
                    &others,
                    None,
                );
            }
        }
        if let Some((_, metric, _)) = goal(case) {
            let ratios = self.ratios(System::Multicast, &metric);
            let name = format!("{}_m_to_tcp", metric.name);
            text += &report::row(NAME, parameters, (&name, "ratio"), &ratios, None);
        }
        text
    }

    fn panel(&self, case: Case, metric: &Metric) -> Panel {
        let bar = |system: System| Bar {
            is_peers: system == System::Hashed,
            ..Bar::ours(system.name(), Summary::of(self.figures(system, metric)))
        };
        let title = format!("{}, {}, {}", case.name(), metric.name, metric.unit);
        Panel { title, bars: System::ALL.into_iter().map(bar).collect() }
    }
}

/// What is wanted of a case.
fn goal(case: Case) -> Option<(&'static str, Metric, Goal)> {
    match case {
        Case::Full => Some(("M ÷ TCP, throughput", THROUGHPUT, Goal::AtLeast(THROUGHPUT_MIN))),
        Case::SlowDisk => Some(("M ÷ TCP, p99", P99, Goal::AtMost(P99_MAX))),
        Case::BusyLink => None,
    }
}

fn parameters(case: Case, arguments: &NegotiatedArguments) -> Value {
    let period = case.period(arguments.quick);
    json!({
        "case": case.name(), "network": arguments.network.network().name(), "mbit": MBIT, "nodes": bed::NODES,
        "copies": bed::COPIES, "clients": arguments.clients, "under_way": arguments.under_way, "chunk_bytes": CHUNK_BYTES,
        "seconds": period.length.as_secs(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Wrapped {
        #[command(flatten)]
        arguments: NegotiatedArguments,
    }

    fn rows(ours: f64, hashed: f64) -> Rows {
        let measured = |figure: f64| Measured {
            megabytes_per_second: figure,
            p50_ms: figure,
            p99_ms: figure,
            sent: 1.1,
            busy: 0.5,
            negotiations: 1.0,
            others: None,
            chunks: 100,
        };
        let mut rows = Rows::default();
        for _ in 0..5 {
            rows.note(System::Multicast, measured(ours));
            rows.note(System::Unicast, measured(2.0));
            rows.note(System::Hashed, measured(hashed));
        }
        rows
    }

    fn shown(case: Case, ours: f64, hashed: f64) -> Shown {
        rows(ours, hashed).show(case, &Wrapped::parse_from(["bench", "--quick"]).arguments)
    }

    #[test]
    fn both_targets_are_judged_by_ratios_to_tcp() {
        let verdict =
            |case, ours| shown(case, ours, 10.0).table.lines().last().unwrap_or_default().to_owned();
        assert_eq!(verdict(Case::Full, 13.0), "M ÷ TCP, throughput: 1.30 [1.30 .. 1.30], target ≥ 1.3: yes");
        assert!(verdict(Case::Full, 12.0).ends_with("1.20 [1.20 .. 1.20], target ≥ 1.3: no"));
        assert_eq!(verdict(Case::SlowDisk, 3.0), "M ÷ TCP, p99: 0.30 [0.30 .. 0.30], target ≤ 0.3: yes");
        assert!(verdict(Case::SlowDisk, 4.0).ends_with("0.40 [0.40 .. 0.40], target ≤ 0.3: no"));
        assert!(verdict(Case::BusyLink, 4.0).starts_with("TCP "));
    }

    #[test]
    fn each_figure_of_each_side_is_a_line_of_json() {
        let shown = shown(Case::Full, 20.0, 10.0);
        let lines: Vec<Value> = shown.json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((lines.len(), shown.panels.len()), (3 * METRICS.len() + 1, 2));
        assert_eq!((&lines[0]["system"], &lines[0]["ratio"]), (&json!("M"), &json!(2.0)));
        assert_eq!(lines[10]["ratio_to"], Value::Null, "TCP is what others are compared with");
        assert_eq!(lines[15]["metric"], "throughput_m_to_tcp");
    }
}
