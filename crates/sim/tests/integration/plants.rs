//! Every planted bug is found, within 2,000 seeds and two minutes of processor time: a busy machine is no reason to miss one.

use nicekv_sim::plants::PLANTS;
use rustix::time::{ClockId, clock_gettime};
use std::io::Write;
use std::time::Duration;

const TIME_MAX: Duration = Duration::from_secs(120);

#[test]
fn planted_bugs_are_found() {
    hunt(0);
}

#[test]
fn and_so_is_every_other_one() {
    hunt(1);
}

/// Every other bug of the list, from there on: two parts run beside each other.
fn hunt(first: usize) {
    let mut missed = Vec::new();
    let is_wanted =
        |name: &str| std::env::var("ONLY").ok().is_none_or(|only| only.split(',').any(|one| one == name));
    for plant in PLANTS.iter().skip(first).step_by(2).filter(|plant| is_wanted(plant.name)) {
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
