//! Random runs of a realistic cluster. `NICEKV_SIM_SEEDS=17` or `=100..200` runs others than the default ones,
//! `NICEKV_SIM_TRACE=1` writes down what happens.

use nicekv_sim::judge;
use std::io::Write;
use std::ops::Range;

/// Seeds of an ordinary test run.
const SEEDS: Range<u64> = 0..1500;

fn seeds() -> Range<u64> {
    let Ok(given) = std::env::var("NICEKV_SIM_SEEDS") else { return SEEDS };
    let number = |text: &str| text.parse().expect("NICEKV_SIM_SEEDS is a number or a range A..B");
    match given.split_once("..") {
        Some((first, end)) => number(first)..number(end),
        None => number(&given)..number(&given) + 1,
    }
}

#[test]
fn random_runs_are_linearizable_durable_convergent_and_come_to_an_end() {
    let (mut calls, mut unknown, mut too_large, mut events) = (0, 0, 0, 0);
    let (mut crashes, mut power_losses, mut cuts) = (0, 0, 0);
    let mut failed = Vec::new();
    let traces = std::env::var_os("NICEKV_SIM_TRACE").is_some();
    for seed in seeds() {
        let report = judge::run(judge::draw(seed), seed, traces);
        calls += report.calls;
        unknown += report.unknown;
        too_large += report.too_large;
        events += report.tally.events;
        crashes += report.tally.crashes;
        power_losses += report.tally.power_losses;
        cuts += report.tally.cuts;
        if !report.violations.is_empty() {
            println!("seed {seed}: {}", report.violations.join("\n"));
            println!("replay: NICEKV_SIM_SEEDS={seed} cargo test -p nicekv-sim --test seeds");
            failed.push(seed);
        }
    }
    let line = format!(
        "seeds {:?}: {events} events, {calls} calls, {unknown} of them of unknown outcome; {crashes} crashes, {power_losses} losses of \
         all power, {cuts} cuts; {too_large} histories were too large to judge",
        seeds()
    );
    // Past the test harness, which keeps what a passing test prints to itself.
    writeln!(std::io::stderr(), "{line}").expect("standard error is open");
    assert!(too_large <= seeds().count() / 100, "too many histories are not judged");
    assert!(failed.is_empty(), "seeds {failed:?} failed");
}
