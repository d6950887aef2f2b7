//! Explores every state of a tiny model: one key, two nodes that may own it one after the other,
//! one copy (at a holder or in the switch), two sets, and some gets. Owners and holder are the real
//! code; a few lines here model how the key is replicated, and what the switch counts and stores.
//! Messages arrive in any order, and some never arrive.
//!
//! The property: a get is never answered with an older value than the newest one that was decided
//! when the get passed the switch.

mod switch;
mod world;

use std::collections::{HashSet, VecDeque};
use std::vec::Vec;
use world::{Bugs, Place, Step, World};

const STATES_MAX: usize = 30_000;

struct Explored {
    states: usize,
    violation: Option<Vec<Step>>,
    /// Number of gets that were answered from copies.
    answered: usize,
    /// Whether every reachable state was visited before the bound.
    is_whole: bool,
}

/// Explores breadth first, up to `states_max` states.
fn explore(first: World, states_max: usize) -> Explored {
    let mut explored = Explored { states: 0, violation: None, answered: 0, is_whole: false };
    let mut seen = HashSet::new();
    seen.insert(first.fingerprint());
    // For each state its predecessor and the step that led to it.
    let mut ways: Vec<(usize, Option<Step>)> = std::vec![(0, None)];
    let mut open = VecDeque::from([(first, 0)]);
    while let Some((mut world, at)) = open.pop_front() {
        explored.states += 1;
        if explored.states >= states_max {
            return explored;
        }
        for step in world.steps() {
            let mut next = world.clone();
            let (is_right, is_answered) = next.take(step);
            explored.answered += usize::from(is_answered);
            if !is_right {
                explored.violation = Some(way_to(&ways, at, step));
                return explored;
            }
            if seen.insert(next.fingerprint()) {
                ways.push((at, Some(step)));
                open.push_back((next, ways.len() - 1));
            }
        }
    }
    explored.is_whole = true;
    explored
}

fn way_to(ways: &[(usize, Option<Step>)], mut at: usize, last: Step) -> Vec<Step> {
    let mut way = std::vec![last];
    while let (before, Some(step)) = ways[at] {
        way.push(step);
        at = before;
    }
    way.reverse();
    way
}

/// Takes up to `ways` random walks through the model with two sets. Returns the number of the first
/// walk that violates the property.
fn walk(place: Place, bugs: Bugs, ways: u64) -> Option<u64> {
    (1..=ways).find(|way| {
        let (mut world, mut random) = (World::new(place, 2, bugs), *way);
        loop {
            let steps = world.steps();
            if steps.is_empty() {
                return false;
            }
            let mut draw = || {
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                steps[(random >> 33) as usize % steps.len()]
            };
            // Prefer steps other than these two, so that walks contain more interleavings.
            let step = (0..3).map(|_| draw()).find(|step| !matches!(step, Step::Tick | Step::Fetch(_)));
            let step = step.unwrap_or_else(draw);
            if !world.take(step).0 {
                return true;
            }
        }
    })
}

#[test]
fn gets_see_every_decision_from_before_they_passed_the_switch() {
    // With one set the search is complete: 1,184,019 states with a holder, 274,245 with a copy
    // in the switch.
    let is_wide = std::env::var_os("NICEKV_EXPLORE_WIDER").is_some();
    let states_max = if is_wide { 40 * STATES_MAX } else { STATES_MAX };
    for place in [Place::Holder, Place::Switch] {
        for sets in [1, 2] {
            let world = World::new(place, sets, Bugs::default());
            let Explored { states, violation, answered, is_whole } = explore(world, states_max);
            std::println!(
                "{place:?}, {sets} sets: {states} states, all: {is_whole}; {answered} gets answered from copies"
            );
            assert!(violation.is_none(), "{violation:#?}");
            assert!(answered > 100, "copies are shown");
        }
        assert_eq!(walk(place, Bugs::default(), 20_000), None, "a random walk violates the property");
    }
}

#[test]
fn each_rule_of_the_switch_is_needed() {
    let in_switch = [
        Bugs { stale_shown: true, ..Bugs::default() },
        Bugs { looks_once: true, ..Bugs::default() },
        Bugs { switch_lease_unchecked: true, ..Bugs::default() },
    ];
    for bugs in in_switch {
        let found = walk(Place::Switch, bugs, 100_000);
        std::println!("{bugs:?}: found on way {found:?}");
        assert!(found.is_some(), "{bugs:?} was not found");
    }
}
