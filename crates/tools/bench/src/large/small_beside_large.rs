//! Small puts at a steady rate, alone and beside puts of 64 MiB.

use crate::bar_chart::{Bar, Panel};
use crate::error::Result;
use crate::lab::{CLIENT as SMALL, Engine, Lab, LabPlan, Size};
use crate::latencies::Latencies;
use crate::load::Limits;
use crate::load::large::LargeLoad;
use crate::load::steady::SteadyLoad;
use crate::report::{Goal, NICEKV, Report, Row};
use crate::session::Session;
use crate::workload::{Sequence, VALUE_BYTES, Work};
use nicekv_lab::topology::{Host, WIRE_PORT};
use nicekv_proto::placement::Vrings;
use nicekv_runtime::Stop;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const SIZE: Size = Size { nodes: 3, replicas: 3 };
const LARGE: Host = Host::Client(1);
const LARGE_BYTES: usize = 64 << 20;
/// Keys of large values: nodes keep overwritten values for a while.
const KEYS: u32 = 2;
/// Large puts in a round.
const PUTS: usize = 3;
const PUTS_QUICK: usize = 1;
/// Interval of small puts: a thousand a second.
const PACE: Duration = Duration::from_millis(1);
/// Time of small puts alone in each round.
const ALONE: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(60);
const P99_US: Goal = Goal::AtMost(5_000.0);

struct Round {
    alone: Latencies,
    beside: Latencies,
    /// MB per second of the large puts.
    rate: f64,
}

pub(super) fn run(session: &Session, rounds: u32, report: &mut Report) -> Result<()> {
    let plan = session.plan(SIZE, Engine::Memory);
    let lab = Lab::up(&LabPlan { clients: 2, suffix: Some("beside"), ..plan })?;
    let vrings = Vrings::on_network(WIRE_PORT);
    let mut small = lab.client(SMALL, |address| SteadyLoad::bind(address, vrings))?;
    let mut large = lab.client(LARGE, |address| LargeLoad::bind(address, vrings, LARGE_BYTES))?;
    let puts = session.few_or(PUTS_QUICK, PUTS);
    let mut measured = Vec::new();
    for number in 1..=rounds {
        let alone = small.run(PACE, session.limits(ALONE))?;
        let (beside, took) = run_both(&mut small, &mut large, (number, puts), session)?;
        let rate = (puts * LARGE_BYTES) as f64 / 1e6 / took.as_secs_f64();
        eprintln!(
            "{number}: small puts, p99: alone {:.0} us, beside large ones {:.0} us; {rate:.0} MB/s",
            alone.quantile_us(0.99),
            beside.quantile_us(0.99)
        );
        measured.push(Round { alone, beside, rate });
        session.check()?;
    }
    let parameters = json!({
        "network": session.network.name(), "nodes": SIZE.nodes, "replicas": SIZE.replicas, "value_bytes": VALUE_BYTES,
        "large_bytes": LARGE_BYTES, "large_puts": puts, "pace_us": PACE.as_micros() as u64,
    });
    let rows = rows(&measured, &parameters);
    report.rows(&rows);
    let bars =
        vec![Bar::ours("alone", &rows[0].figures), Bar::ours("beside puts of 64 MiB", &rows[2].figures)];
    report.panel(Panel { title: "1,000 small puts a second, p99, us".into(), bars });
    Ok(())
}

/// Runs small puts until the large ones are done. Returns the latencies of the small ones, and the
/// time of the large ones.
fn run_both(
    small: &mut SteadyLoad,
    large: &mut LargeLoad,
    (round, puts): (u32, usize),
    session: &Session,
) -> Result<(Latencies, Duration)> {
    let (enough, began) = (Stop::new(), Instant::now());
    std::thread::scope(|scope| {
        let steady = scope.spawn(|| small.run(PACE, Limits { duration: TIMEOUT, stop: &enough }));
        let mut steps = Sequence::of_first(KEYS, Work::Put, round.into()).take(puts);
        let put = steps.try_for_each(|step| session.check().and_then(|()| large.execute(&step)));
        let took = began.elapsed();
        enough.stop();
        let latencies = steady.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        put?;
        Ok((latencies?, took))
    })
}

fn rows(rounds: &[Round], parameters: &Value) -> [Row; 4] {
    let row = |metric: &str, unit, of: &dyn Fn(&Round) -> f64| {
        let figures = rounds.iter().map(of).collect();
        Row::new("1,000 small puts a second", NICEKV, (metric, unit), figures).parameters(parameters.clone())
    };
    [
        row("small_put_p99_alone", "us", &|round| round.alone.quantile_us(0.99)),
        row("small_put_p50_beside", "us", &|round| round.beside.quantile_us(0.5)),
        row("small_put_p99_beside", "us", &|round| round.beside.quantile_us(0.99)).goal(P99_US),
        row("large_put_rate", "MB/s", &|round| round.rate),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_is_judged_by_the_median_of_rounds() {
        let latencies = |us: u64| {
            let mut all = Latencies::default();
            (0..100).for_each(|_| all.record(us * 1_000));
            all
        };
        let round = |us| Round { alone: latencies(100), beside: latencies(us), rate: 300.0 };
        let is_met = |rounds: &[Round]| rows(rounds, &json!({}))[2].is_met();
        assert_eq!(is_met(&[round(4_000), round(4_000), round(9_000)]), Some(true));
        assert_eq!(is_met(&[round(4_000), round(9_000), round(9_000)]), Some(false));
    }
}
