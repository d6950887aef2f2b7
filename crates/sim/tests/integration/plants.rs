//! Planted bugs are found within 2,000 seeds and two minutes of processor time, however busy the machine is. An ordinary run tries a sample of
//! them, `.ci/long` all; `ONLY=NAME,NAME` those.

use nicekv_sim::plants::PLANTS;
use rustix::time::{ClockId, clock_gettime};
use std::io::Write;
use std::time::Duration;

const TIME_MAX: Duration = Duration::from_secs(120);

/// Of an ordinary run: one bug in so many.
const SAMPLE: usize = 8;

#[test]
fn planted_bugs_are_found_first_half() {
    hunt(0);
}

#[test]
fn planted_bugs_are_found_second_half() {
    hunt(1);
}

/// Every other one of the bugs of this run, so that two parts run beside each other.
fn hunt(half: usize) {
    let mut missed = Vec::new();
    let wanted: Vec<_> = match std::env::var("ONLY") {
        Ok(only) => PLANTS.iter().filter(|plant| only.split(',').any(|name| name == plant.name)).collect(),
        Err(_) if nicekv_tools::runs_long() => PLANTS.iter().collect(),
        Err(_) => PLANTS.iter().step_by(SAMPLE).collect(),
    };
    for plant in wanted.into_iter().skip(half).step_by(2) {
        let began = processor_time();
        let hunted = plant.hunt(None, None);
        let took = processor_time() - began;
        let (seeds, seconds) = (hunted.seeds, took.as_secs_f64());
        let what =
            hunted.found.as_ref().map_or("NOT FOUND", |found| found.violation.lines().next().unwrap_or(""));
        let line = format!("{:32} {:4} {seeds:3} seeds {seconds:5.1} s  {what}", plant.name, plant.rule);
        writeln!(std::io::stderr(), "{line}").expect("standard error is open");
        if hunted.found.is_none() || took > TIME_MAX {
            missed.push(plant.name);
        }
    }
    assert!(missed.is_empty(), "not found in time: {missed:?}");
}

/// Of this thread.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("it does not run backwards")
}
