//! `nicekv bench hot-key`: gets of one key, with more and more copies of it, and with its value in
//! the switch (KVSwitch, and NetCache as baseline).
//!
//! ```text
//!   client-0, client-1 ═══ switch ═══ 20 Mbit/s out of each node ═══ owner, holders
//! ```
//!
//! Each case has a lab. The labs differ in `[hot]` only; all are up at once and take turns. Nodes'
//! links are the bottleneck, as servers are in the paper, so that two processors suffice; the
//! nodes' kernels answer no gets. In each round a case begins cold, gets the key until it is spread
//! as the case says, is measured, and stays idle until no trace of the key is in the switch.

mod puts;
mod testbed;

use crate::bar_chart::{Bar, Panel};
use crate::error::Result;
use crate::latencies::Latencies;
use crate::line_chart::{Axes, Chart};
use crate::load::Measured;
use crate::report::{Goal, Report, Row};
use crate::session::{RoundsArguments, Session, SessionArguments};
use crate::statistics::figure;
use serde_json::{Value, json};
use testbed::{CASES, Case, Testbed};

/// Maximum periods of the policy until a key is spread, and until no trace of it is left.
const SPREAD: Goal = Goal::AtMost(2.0);
const GONE: Goal = Goal::AtMost(3.0);

/// Arguments of `nicekv bench hot-key`.
#[derive(Clone, Debug, clap::Args)]
pub struct HotKeyArguments {
    #[command(flatten)]
    rounds: RoundsArguments,
    /// What each node may send, in Mbit/s; 0: as much as it can
    #[arg(long, default_value_t = 20, value_name = "MBIT")]
    node_mbit: u32,
    /// Only these cases, by their places in the table; the first one, 0, always runs
    #[arg(long, value_name = "CASES", value_delimiter = ',')]
    only: Vec<usize>,
    #[command(flatten)]
    session: SessionArguments,
}

/// The figures of a case, round by round.
#[derive(Default)]
struct Figures {
    /// Gets per second.
    rates: Vec<f64>,
    /// Datagrams sent again, in percent of gets.
    sent_again: Vec<f64>,
    /// Periods until the key was spread, and until it was gone.
    spread: Vec<f64>,
    gone: Vec<f64>,
    /// Latencies of puts of the hot key, and of another key of the same owner, while other clients
    /// get the hot one.
    hot_puts: Latencies,
    cold_puts: Latencies,
}

pub(crate) fn run(arguments: &HotKeyArguments) -> Result<()> {
    let session = arguments.session.start()?;
    let measured = measure(arguments, &session)?;
    let mut report = Report::new("hot-key");
    let first = &measured[0];
    let rows: Vec<Row> = measured
        .iter()
        .flat_map(|(case, figures)| {
            rows(case, figures, first, parameters(case, &session, arguments.node_mbit))
        })
        .collect();
    report.rows(&rows);
    report.note("Periods are those that ended at the metadata service until it had changed the switch.");
    report.note("");
    report.table(
        &["puts, us, while others get the key", "mean", "p50", "p90", "p99"],
        measured.iter().flat_map(|(case, figures)| puts_lines(case, figures)),
    );
    panels(&measured).into_iter().for_each(|panel| report.panel(panel));
    report.charts(measured.iter().map(|(case, figures)| chart(case, figures)));
    session.finish(report)
}

fn measure(arguments: &HotKeyArguments, session: &Session) -> Result<Vec<(&'static Case, Figures)>> {
    let is_chosen = |place: usize| place == 0 || arguments.only.is_empty() || arguments.only.contains(&place);
    let chosen = CASES.iter().enumerate().filter(|(place, _)| is_chosen(*place));
    let start = |(place, case): (usize, &'static Case)| {
        Ok((Testbed::start(case, place, arguments.node_mbit, session)?, case, Figures::default()))
    };
    let mut all = chosen.map(start).collect::<Result<Vec<_>>>()?;
    for round in 1..=arguments.rounds.rounds {
        // The first case of one round is the last one of the next.
        if round > 1 {
            all.reverse();
        }
        for (testbed, case, figures) in &mut all {
            measure_round(testbed, figures, session)?;
            let last = |figures: &[f64]| figures.last().copied().unwrap_or_default();
            eprintln!(
                "{round} {}: {:.0}/s, {:.1} % again, spread in {} periods, gone in {}",
                case.name,
                last(&figures.rates),
                last(&figures.sent_again),
                last(&figures.spread),
                last(&figures.gone),
            );
        }
    }
    if arguments.rounds.rounds.is_multiple_of(2) {
        all.reverse();
    }
    Ok(all.into_iter().map(|(_, case, figures)| (case, figures)).collect())
}

fn measure_round(testbed: &mut Testbed, figures: &mut Figures, session: &Session) -> Result<()> {
    let (time, stop) = (session.round_time(), &session.stop);
    let spread = testbed.heat(stop)?;
    let gets = testbed.gets(time, stop)?;
    let sum = |of: fn(&Measured) -> f64| gets.iter().map(of).sum::<f64>();
    figures.rates.push(sum(Measured::throughput));
    let operations = sum(|measured| measured.operations as f64);
    figures.sent_again.push(100.0 * sum(|measured| measured.retries as f64) / operations);
    testbed.heat(stop)?;
    let (hot, cold) = testbed.puts(time / 2, stop)?;
    figures.hot_puts.add(&hot);
    figures.cold_puts.add(&cold);
    figures.spread.extend(spread.map(|periods| periods as f64));
    figures.gone.push(testbed.cool(stop)? as f64);
    Ok(())
}

fn parameters(case: &Case, session: &Session, node_mbit: u32) -> Value {
    json!({
        "network": session.network.name(),
        "holders_max": case.holders_max,
        "values_max": case.values_max,
        "clients": testbed::CLIENTS,
        "callers": testbed::CALLERS,
        "node_mbit": node_mbit,
        "period_ms": testbed::PERIOD.as_millis() as u64,
        "seconds": session.round_time().as_secs_f64(),
    })
}

fn rows(case: &Case, figures: &Figures, first: &(&Case, Figures), parameters: Value) -> Vec<Row> {
    let row = |metric: &str, unit, figures: Vec<f64>| {
        Row::new("", case.name, (metric, unit), figures).parameters(parameters.clone())
    };
    let (first_case, first_figures) = first;
    let mut rows = vec![
        row("throughput", "1/s", figures.rates.clone()).beside(first_case.name, &first_figures.rates),
        row("sent_again", "%", figures.sent_again.clone()),
    ];
    let periods = [("until_spread", &figures.spread, SPREAD), ("until_gone", &figures.gone, GONE)];
    for (metric, periods, goal) in periods {
        rows.extend((!periods.is_empty()).then(|| row(metric, "period", periods.clone()).goal(goal)));
    }
    for (key, puts) in [("hot", &figures.hot_puts), ("cold", &figures.cold_puts)] {
        rows.push(row(&format!("put_{key}_p50"), "us", vec![puts.quantile_us(0.5)]));
        rows.push(row(&format!("put_{key}_p99"), "us", vec![puts.quantile_us(0.99)]));
    }
    rows
}

fn puts_lines(case: &Case, figures: &Figures) -> Vec<Vec<String>> {
    let line = |(key, puts): (&str, &Latencies)| {
        let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|quantile| figure(puts.quantile_us(quantile)));
        vec![format!("{}: {key}", case.name), figure(puts.mean_us()), p50, p90, p99]
    };
    [("that key", &figures.hot_puts), ("another key", &figures.cold_puts)].map(line).to_vec()
}

fn panels(measured: &[(&Case, Figures)]) -> [Panel; 2] {
    let panel = |title: &str, is_shown: &dyn Fn(&Case) -> bool| {
        let shown = measured.iter().filter(|(case, _)| is_shown(case));
        let bars = shown.map(|(case, figures)| Bar::ours(case.name, &figures.rates)).collect();
        Panel { title: format!("gets of one key{title}, 1/s"), bars }
    };
    // Beside the rates of the switch the others are hardly visible.
    [panel(", none in the switch", &|case| case.values_max == 0), panel("", &|_| true)]
}

fn chart(case: &Case, figures: &Figures) -> Chart {
    let curve = |name: &str, puts: &Latencies| {
        let point = |percent: u32| {
            let part = f64::from(percent) / 100.0;
            (puts.quantile_us(part), part)
        };
        (name.to_owned(), (1..100).map(point).collect())
    };
    Chart {
        title: format!("puts while others get one key, which is at {}", case.name),
        axes: Axes { x: "us", y: "part of all puts".into(), is_logarithmic: true, is_y_logarithmic: false },
        curves: vec![curve("of that key", &figures.hot_puts), curve("of another key", &figures.cold_puts)],
        marks: Vec::new(),
    }
}
