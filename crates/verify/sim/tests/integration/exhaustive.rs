//! Every state of three replicas with one key and two clients, within small bounds.
//!
//! An ordinary run visits one script of each kind with the first bounds, `.ci/long` all. `NICEKV_EXPLORE_WIDER=1` adds
//! bounds that take hours and many GB.

use nicekv_sim::explore::parts::{
    CHAINS, FAILOVER, GETS, LOSS_AND_SWEEP, Part, RESTART, TRANSACTIONS, UPDATES,
};
use nicekv_sim::explore::{Bounds, Call, Exploration, World, explore};

/// Bound on the states of a part. A part that reaches it fails, since some states were not visited.
const STATES_MAX: usize = 3_000_000;
const WIDER_STATES_MAX: usize = 400_000_000;

/// Scripts that an ordinary run visits.
const ORDINARY: [&str; 4] = ["set, set", "set, get", "chain: set, get", "chain: increment, transaction"];

/// Bounds of each script that an ordinary run visits.
const ORDINARY_BOUNDS: usize = 3;

/// Prints past the test harness, which hides the output of passing tests.
fn say(line: &str) {
    use std::io::Write;
    writeln!(std::io::stderr(), "exhaustive: {line}").expect("standard error is open");
}

fn visit(name: &str, script: &[Call], bounds: Bounds, states_max: usize) -> Exploration {
    let world = if name.starts_with("chain") { World::of_chain } else { World::new };
    let seen = explore(world(script.to_vec(), bounds), states_max);
    println!(
        "{name} {bounds:?}: {} states, {} steps, {} ends judged, {} histories{}",
        seen.states,
        seen.steps,
        seen.ends,
        seen.histories,
        if seen.truncated { ", truncated" } else { "" },
    );
    seen
}

fn visit_all(name: &str, script: &[Call], bounds: Bounds, states_max: usize) -> usize {
    let seen = visit(name, script, bounds, states_max);
    if let Some((what, steps)) = seen.violation {
        let steps: Vec<String> = steps.iter().map(|step| format!("  {step:?}\n")).collect();
        panic!("{what}\nafter\n{}", steps.concat());
    }
    assert!(!seen.truncated, "not everything was visited");
    seen.states
}

fn visit_parts(what: &str, parts: &[Part]) {
    let mut states = 0;
    let is_visited = |part: &&Part| nicekv_testkit::runs_long() || ORDINARY.contains(&part.name);
    for part in parts.iter().filter(is_visited) {
        let bounds_max = if nicekv_testkit::runs_long() { usize::MAX } else { ORDINARY_BOUNDS };
        for bounds in part.bounds.iter().take(bounds_max) {
            states += visit_all(part.name, &(part.script)(), *bounds, STATES_MAX);
        }
    }
    say(&format!("{what}: {states} states in all"));
}

#[test]
fn every_state_of_two_updates_is_sound() {
    visit_parts("two updates", UPDATES);
}

#[test]
fn every_state_of_an_update_and_a_get_is_sound() {
    visit_parts("an update and a get", GETS);
}

#[test]
fn every_state_of_an_update_and_a_transaction_is_sound() {
    visit_parts("an update and a transaction", TRANSACTIONS);
}

#[test]
fn every_state_of_a_chain_is_sound() {
    visit_parts("a chain", CHAINS);
}

#[test]
fn every_state_within_wider_bounds_is_sound() {
    if std::env::var_os("NICEKV_EXPLORE_WIDER").is_none() {
        say("NOT RUN: the wider exploration, which NICEKV_EXPLORE_WIDER=1 asks for");
        return;
    }
    let either = Bounds { removes_live: true, ..FAILOVER };
    let lossy_failover = Bounds { losses: 1, ..either };
    let slow_failover = Bounds { slow_disks: true, ..FAILOVER };
    for part in GETS.iter().chain(UPDATES) {
        for bounds in [FAILOVER, LOSS_AND_SWEEP, slow_failover, RESTART, either, lossy_failover] {
            visit_all(part.name, &(part.script)(), bounds, WIDER_STATES_MAX);
        }
    }
}
