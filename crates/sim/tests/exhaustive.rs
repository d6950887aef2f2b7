//! Every state of three replicas with one key and two clients, within small bounds; then the same with planted bugs.
//!
//! An ordinary run takes about a minute. `NICEKV_EXPLORE_WIDER=1` adds bounds that take hours and many GB.

use nicekv_replication::Plant;
use nicekv_sim::checker::model::{Action, Change, When};
use nicekv_sim::explore::{Bounds, Call, Exploration, World, explore, op};

/// More states than any ordinary part has; reaching it is a failure, for then not everything was seen.
const STATES_MAX: usize = 3_000_000;
const WIDER_STATES_MAX: usize = 400_000_000;

const NOTHING: Bounds = Bounds {
    losses: 0,
    crashes: 0,
    restarts: 0,
    removals: 0,
    removes_live: false,
    sweeps: 0,
    slow_disks: false,
};
const SLOW_DISKS: Bounds = Bounds { slow_disks: true, ..NOTHING };
const LOSS: Bounds = Bounds { losses: 1, ..NOTHING };
const LOSS_AND_SWEEP: Bounds = Bounds { losses: 1, sweeps: 1, ..NOTHING };
const FAILOVER: Bounds = Bounds { crashes: 1, removals: 1, ..NOTHING };
const RESTART: Bounds = Bounds { crashes: 1, restarts: 1, ..NOTHING };
const SUSPICION: Bounds = Bounds { removals: 1, removes_live: true, ..NOTHING };

/// Prints past the test harness, which keeps what a passing test prints to itself.
fn say(line: &str) {
    use std::io::Write;
    writeln!(std::io::stderr(), "exhaustive: {line}").expect("standard error is open");
}

fn update(client: usize, condition: When, change: Change) -> Call {
    Call::Update(Action::Update { op: op(client), condition, return_old: false, change })
}

fn set(client: usize) -> Call {
    update(client, When::Always, Change::Set(vec![b'0' + client as u8]))
}

fn increment(client: usize) -> Call {
    update(client, When::Always, Change::Increment(1))
}

fn put_if_absent(client: usize) -> Call {
    update(client, When::IfAbsent, Change::Set(vec![b'0' + client as u8]))
}

fn delete(client: usize) -> Call {
    update(client, When::IfPresent, Change::Delete)
}

fn increments() -> Vec<Call> {
    vec![increment(0), increment(1)]
}

fn puts_if_absent() -> Vec<Call> {
    vec![put_if_absent(0), put_if_absent(1)]
}

fn set_and_get() -> Vec<Call> {
    vec![set(0), Call::Get]
}

fn increment_and_get() -> Vec<Call> {
    vec![increment(0), Call::Get]
}

fn visit(
    name: &str,
    script: &[Call],
    bounds: Bounds,
    plant: Option<Plant>,
    states_max: usize,
) -> Exploration {
    let seen = explore(World::new(script.to_vec(), bounds, plant), states_max);
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
    let seen = visit(name, script, bounds, None, states_max);
    if let Some((what, steps)) = seen.violation {
        let steps: Vec<String> = steps.iter().map(|step| format!("  {step:?}\n")).collect();
        panic!("{what}\nafter\n{}", steps.concat());
    }
    assert!(!seen.truncated, "not everything was visited");
    seen.states
}

#[test]
fn every_state_of_two_updates_is_sound() {
    let mut states = 0;
    for (name, script, parts) in [
        ("set, set", vec![set(0), set(1)], &[SLOW_DISKS, LOSS][..]),
        ("set, delete", vec![set(0), delete(1)], &[SLOW_DISKS, LOSS]),
        ("increment, increment", increments(), &[SLOW_DISKS, LOSS, FAILOVER]),
        ("put-if-absent twice", puts_if_absent(), &[SLOW_DISKS, LOSS, FAILOVER]),
    ] {
        for bounds in parts {
            states += visit_all(name, &script, *bounds, STATES_MAX);
        }
    }
    say(&format!("two updates: {states} states in all"));
}

#[test]
fn every_state_of_an_update_and_a_get_is_sound() {
    let mut states = 0;
    for (name, script) in [("set, get", set_and_get()), ("increment, get", increment_and_get())] {
        for bounds in [SLOW_DISKS, LOSS_AND_SWEEP, FAILOVER, RESTART, SUSPICION] {
            states += visit_all(name, &script, bounds, STATES_MAX);
        }
    }
    say(&format!("an update and a get: {states} states in all"));
}

#[test]
fn wider_bounds_if_asked_for() {
    if std::env::var_os("NICEKV_EXPLORE_WIDER").is_none() {
        say("NOT RUN: the wider exploration, which NICEKV_EXPLORE_WIDER=1 asks for");
        return;
    }
    let either = Bounds { removes_live: true, ..FAILOVER };
    let lossy_failover = Bounds { losses: 1, ..either };
    let slow_failover = Bounds { slow_disks: true, ..FAILOVER };
    for (name, script) in [
        ("set, get", set_and_get()),
        ("increment, get", increment_and_get()),
        ("set, set", vec![set(0), set(1)]),
        ("set, delete", vec![set(0), delete(1)]),
        ("increment, increment", increments()),
        ("put-if-absent twice", puts_if_absent()),
    ] {
        for bounds in [FAILOVER, LOSS_AND_SWEEP, slow_failover, RESTART, either, lossy_failover] {
            visit_all(name, &script, bounds, WIDER_STATES_MAX);
        }
    }
}

#[test]
fn planted_bugs_are_found() {
    for (plant, script, bounds) in [
        (Plant::DecideBeforeAllAcks, set_and_get(), FAILOVER),
        (Plant::StaleGetAtLockedSecondary, set_and_get(), FAILOVER),
        (Plant::GetDuringRecovery, set_and_get(), FAILOVER),
        (Plant::RecoveryAborts, set_and_get(), FAILOVER),
        (Plant::AdoptNothing, set_and_get(), FAILOVER),
        (Plant::AckBeforeForce, set_and_get(), RESTART),
        (Plant::IgnoreContention, increments(), FAILOVER),
        (Plant::ShowContendedEarly, increments(), FAILOVER),
    ] {
        let seen = visit(&format!("{plant:?}:"), &script, bounds, Some(plant), STATES_MAX);
        let (what, _) = seen.violation.unwrap_or_else(|| panic!("{plant:?} was not found"));
        println!("  {}", what.lines().next().unwrap_or_default());
    }
}
