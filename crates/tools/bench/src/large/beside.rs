//! Small puts at a steady pace, alone and while values of 64 MiB are put.

use super::{LargeArguments, NAME, Shown};
use crate::error::{BenchError, Result};
use crate::lab::{Engine, Lab, LabPlan, Size};
use crate::latencies::Latencies;
use crate::load::Limits;
use crate::load::large::LargeLoad;
use crate::load::steady::SteadyLoad;
use crate::plot::{Bar, Panel};
use crate::report::{self, Goal};
use crate::statistics::{Summary, figure};
use crate::workload::{Sequence, VALUE_BYTES, Work};
use nicekv_lab::topology::{Host, WIRE_PORT};
use nicekv_proto::placement::Vrings;
use nicekv_runtime::Stop;
use serde_json::json;
use std::net::SocketAddrV4;
use std::path::Path;
use std::time::{Duration, Instant};

const SIZE: Size = Size { nodes: 3, replicas: 3 };
const SMALL: Host = Host::Client(0);
const LARGE: Host = Host::Client(1);
const BYTES: usize = 64 << 20;
/// Keys of large values: what is written over takes room for a while.
const KEYS: u32 = 2;
/// In a round.
const PUTS: usize = 3;
const PUTS_QUICK: usize = 1;
/// A thousand a second.
const PACE: Duration = Duration::from_millis(1);
/// Small puts alone, in each round.
const ALONE: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(60);
const P99_US: f64 = 5_000.0;

/// What a round has shown.
struct Round {
    alone: Latencies,
    beside: Latencies,
    /// MB a second of the large ones.
    rate: f64,
}

pub(super) fn run(arguments: &LargeArguments, directory: &Path, stop: &Stop) -> Result<Shown> {
    let network = arguments.network.network();
    let plan = LabPlan::new(SIZE, Engine::Memory, network, directory);
    let lab = Lab::up(&LabPlan { clients: 2, apart: Some("beside"), ..plan })?;
    let vrings = Vrings::on_network(WIRE_PORT);
    let at = |host: Host| SocketAddrV4::new(host.address(), 0);
    let mut small = lab.inside(SMALL, || SteadyLoad::bind(at(SMALL), vrings))??;
    let large = lab.inside(LARGE, || LargeLoad::bind(at(LARGE), vrings, BYTES))?;
    let mut large = large.map_err(BenchError::system("make a client's socket"))?;
    let puts = if arguments.quick { PUTS_QUICK } else { PUTS };
    let mut rounds = Vec::new();
    for number in 1..=arguments.rounds.rounds {
        let alone = small.run(PACE, Limits { duration: ALONE, stop })?.sorted();
        let (beside, took) = both(&mut small, &mut large, (number, puts), stop)?;
        let rate = (puts * BYTES) as f64 / 1e6 / took.as_secs_f64();
        eprintln!(
            "{number}: small puts, p99: alone {:.0} us, beside large ones {:.0} us; {rate:.0} MB/s",
            alone.quantile_us(0.99),
            beside.quantile_us(0.99)
        );
        rounds.push(Round { alone, beside, rate });
        if stop.is_stopped() {
            return Err(BenchError::Interrupted);
        }
    }
    let parameters = json!({
        "network": network.name(), "nodes": SIZE.nodes, "replicas": SIZE.replicas, "value_bytes": VALUE_BYTES,
        "large_bytes": BYTES, "large_puts": puts, "pace_us": PACE.as_micros() as u64,
    });
    Ok(show(&rounds, &parameters))
}

/// Small puts as long as large ones are under way, and how long that was.
fn both(
    small: &mut SteadyLoad,
    large: &mut LargeLoad,
    (round, puts): (u32, usize),
    stop: &Stop,
) -> Result<(Latencies, Duration)> {
    let (enough, began) = (Stop::new(), Instant::now());
    std::thread::scope(|scope| {
        let steady = scope.spawn(|| small.run(PACE, Limits { duration: PATIENCE, stop: &enough }));
        let mut steps = Sequence::of_first(KEYS, Work::Put, round.into()).take(puts);
        let put = steps.try_for_each(|step| match stop.is_stopped() {
            true => Err(BenchError::Interrupted),
            false => large.execute(&step),
        });
        let took = began.elapsed();
        enough.stop();
        let latencies = steady.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        put?;
        Ok((latencies?.sorted(), took))
    })
}

fn show(rounds: &[Round], parameters: &serde_json::Value) -> Shown {
    let of = |what: &dyn Fn(&Round) -> f64| rounds.iter().map(what).collect::<Vec<_>>();
    let alone = of(&|round| round.alone.quantile_us(0.99));
    let beside = of(&|round| round.beside.quantile_us(0.99));
    let medians = of(&|round| round.beside.quantile_us(0.5));
    let rates = of(&|round| round.rate);
    let goal = Goal::AtMost(P99_US);
    let line = |what: &str, unit: &str, figures: &[f64], goal: Option<Goal>| {
        let Summary { median, min, max } = Summary::of(figures.iter().copied());
        let met = goal.map(|goal| if goal.is_met(median) { "yes" } else { "no" }).unwrap_or_default();
        let goal = goal.map(|goal| goal.to_string()).unwrap_or_default();
        let spread = format!("[{} .. {}]", figure(min), figure(max));
        [format!("{what}, {unit}"), figure(median), spread, goal, met.into()]
    };
    let lines = [
        ["1,000 small puts a second", "", "[min .. max]", "target", "met"].map(String::from),
        line("p99, alone", "us", &alone, None),
        line("p50, beside puts of 64 MiB", "us", &medians, None),
        line("p99, beside puts of 64 MiB", "us", &beside, Some(goal)),
        line("the large ones meanwhile", "MB/s", &rates, None),
    ];
    let row = |metric: &str, unit: &str, figures: &[f64]| {
        report::row(NAME, parameters, (metric, unit), figures, None)
    };
    let json = [
        row("small_put_p99_alone", "us", &alone),
        row("small_put_p50_beside", "us", &medians),
        row("small_put_p99_beside", "us", &beside),
        row("large_put_rate", "MB/s", &rates),
    ];
    let bars =
        vec![Bar::ours("alone", Summary::of(alone)), Bar::ours("beside puts of 64 MiB", Summary::of(beside))];
    let panels = vec![Panel { title: "1,000 small puts a second, p99, us".into(), bars }];
    Shown { table: report::aligned(&lines), json: json.concat(), panels }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_is_judged_by_the_median_of_rounds() {
        let latencies = |us: u64| {
            let mut all = Latencies::default();
            (0..100).for_each(|_| all.note(us * 1_000).unwrap());
            all.sorted()
        };
        let round = |us| Round { alone: latencies(100), beside: latencies(us), rate: 300.0 };
        let met = |rounds: &[Round]| show(rounds, &json!({})).table.contains("yes");
        assert!(met(&[round(4_000), round(4_000), round(9_000)]));
        assert!(!met(&[round(4_000), round(9_000), round(9_000)]));
        let shown = show(&[round(4_000)], &json!({}));
        assert_eq!((shown.json.lines().count(), shown.panels[0].bars.len()), (4, 2));
    }
}
