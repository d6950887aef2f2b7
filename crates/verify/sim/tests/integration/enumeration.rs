//! Single faults, and some pairs and triples, at points of short runs. An ordinary run takes every
//! single fault and few of the others, `.ci/long` takes more, and `nicekv sim --enumerate` takes
//! all.

use nicekv_sim::enumerate::{Depth, SCRIPTS, enumerate};
use std::io::Write;

#[test]
fn every_single_fault_and_some_pairs_are_survived() {
    let mut wrong = Vec::new();
    for script in SCRIPTS {
        let began = std::time::Instant::now();
        // One in this many pairs and triples is run.
        let share = if nicekv_testkit::runs_long() { 97 } else { 997 };
        let counts = enumerate(script, Depth { pairs: Some(share), triples: Some(share) });
        let seconds = began.elapsed().as_secs_f64();
        let line = format!(
            "{:14} {} points, {} singles, {} pairs, {} triples, {} events, {seconds:.1} s",
            script.name, counts.points, counts.singles, counts.pairs, counts.triples, counts.events
        );
        // Written past the test harness, which hides the output of passing tests.
        writeln!(std::io::stderr(), "{line}").expect("standard error is open");
        if let Some((violation, faults)) = counts.violation {
            let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
            let only = format!("{}:{}", script.name, faults.join("+"));
            wrong.push(format!("{violation}\nreplay: nicekv sim --enumerate --only {only}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
