//! Every planted bug is found, within 500 seeds and a minute of processor time: a busy machine is no reason to miss one.

use nicekv_sim::plants::PLANTS;
use rustix::time::{ClockId, clock_gettime};
use std::io::Write;
use std::time::Duration;

const TIME_MAX: Duration = Duration::from_secs(60);

#[test]
fn planted_bugs_are_found() {
    let mut missed = Vec::new();
    for plant in
        PLANTS.iter().filter(|p| std::env::var("ONLY").ok().is_none_or(|o| o.split(',').any(|o| o == p.name)))
    {
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
