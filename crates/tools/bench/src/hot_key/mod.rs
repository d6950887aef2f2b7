//! `nicekv bench hot-key`: how many gets of one key a cluster answers, with more and more copies of it, and with its value in the switch (KVSwitch, and NetCache as baseline).
//!
//! ```text
//!   client-0, client-1 ═══ switch ═══ what each node may send: 20 Mbit/s ═══ owner, holders
//! ```
//!
//! A lab for each case, alike but for `[hot]`: they are up at once and take turns. Nodes' links are what is full, as servers are in the paper, so that two processors are enough
//! to see who answers; the nodes' kernels answer nothing. In each round a case begins cold, is asked until the key is spread as the case says, is measured, and is left alone
//! until nothing of the key is in the switch any more.

mod cases;
mod puts;

use crate::arguments::{FileArguments, LengthArguments, NetworkArguments, RoundsArguments};
use crate::curves::{self, Axes, Chart};
use crate::error::{BenchError, Result};
use crate::lab::Network;
use crate::latencies::Latencies;
use crate::load::Measured;
use crate::plot::{self, Bar, Panel};
use crate::report::{self, Goal};
use crate::statistics::{Summary, figure};
use cases::{CASES, Case, Field};
use nicekv_runtime::Stop;
use serde_json::{Value, json};
use std::time::Duration;

const NAME: &str = "hot-key";
/// Periods of the policy until a key is spread, and until nothing of it is left.
const SPREAD_MAX: f64 = 2.0;
const GONE_MAX: f64 = 3.0;

/// Arguments of `nicekv bench hot-key`.
#[derive(Clone, Debug, clap::Args)]
pub struct HotKeyArguments {
    #[command(flatten)]
    length: LengthArguments,
    #[command(flatten)]
    rounds: RoundsArguments,
    /// What each node may send, in Mbit/s; 0: as much as it can
    #[arg(long, default_value_t = 20, value_name = "MBIT")]
    node_mbit: u32,
    /// Only these cases, by their places in the table, the first one, 0, among them
    #[arg(long, value_name = "CASES", value_delimiter = ',')]
    only: Vec<usize>,
    #[command(flatten)]
    network: NetworkArguments,
    #[command(flatten)]
    files: FileArguments,
}

/// What a case has shown, round by round.
#[derive(Default)]
struct Figures {
    /// Gets a second.
    rates: Vec<f64>,
    /// Of gets so many were sent again, in percent.
    again: Vec<f64>,
    /// In periods.
    spread: Vec<f64>,
    gone: Vec<f64>,
    /// Of puts while others get the key: of that key, and of another one of the same owner.
    hot_puts: Latencies,
    cold_puts: Latencies,
}

struct Row {
    case: &'static Case,
    figures: Figures,
}

pub(crate) fn run(arguments: &HotKeyArguments) -> Result<()> {
    let stop = Stop::new();
    stop.on_signals().map_err(BenchError::system("handle signals"))?;
    let mut rows = measure(arguments, &stop)?;
    for Row { figures, .. } in &mut rows {
        for puts in [&mut figures.hot_puts, &mut figures.cold_puts] {
            *puts = std::mem::take(puts).sorted();
        }
    }
    let network = arguments.network.network();
    print!("{}\n{}", report::aligned(&table(&rows)), report::aligned(&puts_table(&rows)));
    println!("Periods are those that ended at the metadata service until it had changed the switch.");
    let json: String = rows.iter().flat_map(|row| row.json(&rows[0], network, arguments)).collect();
    arguments.files.write_image(NAME, &json, &plot::svg(&panels(&rows)))?;
    arguments.files.draw("hot-key-puts", &curves::svg(&charts(&rows)))
}

fn measure(arguments: &HotKeyArguments, stop: &Stop) -> Result<Vec<Row>> {
    let directory = arguments.files.directory()?;
    let network = arguments.network.network();
    let is_chosen = |place: usize| place == 0 || arguments.only.is_empty() || arguments.only.contains(&place);
    let chosen = CASES.iter().enumerate().filter(|(place, _)| is_chosen(*place));
    let field = |(place, case): (usize, &'static Case)| {
        let field = Field::new(case, (place, network), arguments.node_mbit, directory.path(), stop)?;
        Ok((field, Row { case, figures: Figures::default() }))
    };
    let mut fields = chosen.map(field).collect::<Result<Vec<_>>>()?;
    for round in 1..=arguments.rounds.rounds {
        // Who is first in one round is last in the next.
        if round > 1 {
            fields.reverse();
        }
        for (field, row) in &mut fields {
            round_of(field, &mut row.figures, arguments.length.round_time(), stop)?;
            let Figures { rates, again, spread, gone, .. } = &row.figures;
            let last = |figures: &[f64]| figures.last().copied().unwrap_or_default();
            let (rate, again, spread, gone) = (last(rates), last(again), last(spread), last(gone));
            eprintln!(
                "{round} {}: {rate:.0}/s, {again:.1} % again, spread in {spread} periods, gone in {gone}",
                row.case.name
            );
        }
    }
    if arguments.rounds.rounds.is_multiple_of(2) {
        fields.reverse();
    }
    Ok(fields.into_iter().map(|(_, row)| row).collect())
}

fn round_of(field: &mut Field, figures: &mut Figures, time: Duration, stop: &Stop) -> Result<()> {
    let spread = field.heat(stop)?;
    let gets = field.gets(time, stop)?;
    let sum = |of: fn(&Measured) -> f64| gets.iter().map(of).sum::<f64>();
    figures.rates.push(sum(Measured::throughput));
    let operations = sum(|measured| measured.operations as f64);
    figures.again.push(100.0 * sum(|measured| measured.retries as f64) / operations);
    field.heat(stop)?;
    let (hot, cold) = field.puts(time / 2, stop)?;
    figures.hot_puts.extend(&hot);
    figures.cold_puts.extend(&cold);
    figures.spread.extend(spread.map(|periods| periods as f64));
    figures.gone.push(field.cool(stop)? as f64);
    Ok(())
}

impl Row {
    fn ratios(&self, first: &Self) -> Vec<f64> {
        let rates = self.figures.rates.iter().zip(&first.figures.rates);
        rates.map(|(rate, first)| rate / first).collect()
    }

    fn json(&self, first: &Self, network: Network, arguments: &HotKeyArguments) -> Vec<String> {
        let Figures { rates, again, spread, gone, hot_puts, cold_puts } = &self.figures;
        let Case { name, holders_max, values_max } = *self.case;
        let parameters: Value = json!({
            "network": network.name(),
            "holders_max": holders_max,
            "values_max": values_max,
            "clients": cases::CLIENTS,
            "callers": cases::CALLERS,
            "node_mbit": arguments.node_mbit,
            "period_ms": cases::PERIOD.as_millis() as u64,
            "seconds": arguments.length.round_time().as_secs_f64(),
        });
        let row = |metric: (&str, &str), figures: &[f64], ratio| {
            report::row_of(NAME, name, &parameters, metric, figures, ratio)
        };
        let ratio = (first.case.name, Summary::of(self.ratios(first)).median);
        let mut lines =
            vec![row(("throughput", "1/s"), rates, Some(ratio)), row(("sent_again", "%"), again, None)];
        for (metric, periods) in [("until_spread", spread), ("until_gone", gone)] {
            lines.extend((!periods.is_empty()).then(|| row((metric, "period"), periods, None)));
        }
        for (key, puts) in [("hot", hot_puts), ("cold", cold_puts)] {
            let of = |part: f64| [puts.quantile_us(part)];
            lines.push(row((&format!("put_{key}_p50"), "us"), &of(0.5), None));
            lines.push(row((&format!("put_{key}_p99"), "us"), &of(0.99), None));
        }
        lines
    }
}

fn table(rows: &[Row]) -> Vec<[String; 6]> {
    let header = ["the key is at", "gets/s", "÷ first", "[min .. max]", "periods until so", "until gone"];
    let judged = |figures: &[f64], goal: Goal| {
        if figures.is_empty() {
            return String::new();
        }
        let median = Summary::of(figures.iter().copied()).median;
        format!("{median:.1} {goal}: {}", if goal.is_met(median) { "yes" } else { "no" })
    };
    let row = |row: &Row| {
        let Summary { median, min, max } = Summary::of(row.ratios(&rows[0]));
        let Figures { rates, spread, gone, .. } = &row.figures;
        [
            row.case.name.into(),
            figure(Summary::of(rates.iter().copied()).median),
            format!("{median:.2}"),
            format!("[{min:.2} .. {max:.2}]"),
            judged(spread, Goal::AtMost(SPREAD_MAX)),
            judged(gone, Goal::AtMost(GONE_MAX)),
        ]
    };
    std::iter::once(header.map(String::from)).chain(rows.iter().map(row)).collect()
}

fn puts_table(rows: &[Row]) -> Vec<[String; 5]> {
    let header = ["puts, us, while others get the key", "mean", "p50", "p90", "p99"];
    let mut lines = vec![header.map(String::from)];
    for Row { case, figures } in rows {
        for (key, puts) in [("that key", &figures.hot_puts), ("another key", &figures.cold_puts)] {
            let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|part| figure(puts.quantile_us(part)));
            lines.push([format!("{}: {key}", case.name), figure(puts.mean_us()), p50, p90, p99]);
        }
    }
    lines
}

fn panels(rows: &[Row]) -> Vec<Panel> {
    let rates = |row: &Row| Bar::ours(row.case.name, Summary::of(row.figures.rates.iter().copied()));
    let panel = |title: &str, of: &dyn Fn(&Case) -> bool| Panel {
        title: format!("gets of one key{title}, 1/s"),
        bars: rows.iter().filter(|row| of(row.case)).map(rates).collect(),
    };
    // Beside those of the switch the others are hardly seen.
    vec![panel(", none in the switch", &|case| case.values_max == 0), panel("", &|_| true)]
}

fn charts(rows: &[Row]) -> Vec<Chart> {
    let axes = Axes { x: "us", y: "part of all puts", is_logarithmic: true, is_y_logarithmic: false };
    let curve = |name, puts: &Latencies| {
        let part = |part: u32| f64::from(part) / 100.0;
        (name, (1..100).map(|of| (puts.quantile_us(part(of)), part(of))).collect())
    };
    let chart = |Row { case, figures }: &Row| Chart {
        title: format!("puts while others get one key, which is at {}", case.name),
        axes,
        curves: vec![curve("of that key", &figures.hot_puts), curve("of another key", &figures.cold_puts)],
        marks: Vec::new(),
    };
    rows.iter().map(chart).collect()
}
