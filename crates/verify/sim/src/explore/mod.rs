//! Every state of a tiny cluster: three replicas, one key, two clients with one call each.
//!
//! Time stands still and every timeout is zero. A [`World`] is a state; [`Step`]s lead from one to
//! the next: a message arrives or is lost, a sync ends, a client calls, a node crashes, the
//! metadata service changes the epoch, a node handles its deadlines. The bounds say how many of the
//! rarer steps may happen. The search is depth first and visits each state once. When no work is in
//! flight, the cluster is brought to rest (nodes that are down are removed, everything is
//! delivered), every member is read, and the history is judged. Invariants are checked in every
//! state.
//!
//! What keeps the number of states small, and why no bug is missed by it:
//! * an answer reaches its client at once: a later arrival would only allow more orders;
//! * a message that its receiver would refuse in the present state stays in flight (refusing it
//!   equals losing it, which has its own bound); one that will always be refused is removed;
//! * copies of a message count as one message; duplication is left to the random runs;
//! * the content of the log is part of the state only as long as a node may still crash.

mod message;
pub mod parts;
mod rest;
mod world;

pub use message::Message;
pub use world::{Bounds, Call, Step, World, op};

use crate::checker::{self, Verdict};
use std::collections::{HashMap, HashSet};

/// The result of an exploration.
#[derive(Clone, Debug, Default)]
pub struct Exploration {
    /// Number of different states.
    pub states: usize,
    pub steps: usize,
    /// States with no work in flight, which were brought to rest and judged.
    pub ends: usize,
    /// Different histories at these ends.
    pub histories: usize,
    /// Whether the bound on states was reached before every state was visited.
    pub truncated: bool,
    /// The first violation, and the steps that lead to it.
    pub violation: Option<(String, Vec<Step>)>,
}

/// Visits everything that can be reached from `world`, up to `states_max` states or the first
/// violation.
pub fn explore(world: World, states_max: usize) -> Exploration {
    let mut explorer = Explorer { states_max, ..Explorer::default() };
    explorer.visit(world);
    explorer.seen
}

#[derive(Default)]
struct Explorer {
    states_max: usize,
    seen: Exploration,
    visited: HashSet<u64>,
    ended: HashSet<u64>,
    judged: HashMap<Vec<checker::Call>, bool>,
}

/// A state on the current path, and its steps that are still to be tried.
struct Frame {
    world: World,
    steps: Vec<Step>,
    taken: Option<Step>,
}

impl Explorer {
    fn visit(&mut self, start: World) {
        let mut path: Vec<Frame> = Vec::new();
        self.arrive(&mut path, start, None);
        while let Some(frame) = path.last_mut() {
            let Some(step) = frame.steps.pop() else {
                path.pop();
                continue;
            };
            let mut world = frame.world.clone();
            self.seen.steps += 1;
            if world.take(&step) {
                self.arrive(&mut path, world, Some(step));
            }
            self.seen.truncated = self.seen.states >= self.states_max;
            if self.seen.violation.is_some() || self.seen.truncated {
                return;
            }
        }
    }

    fn arrive(&mut self, path: &mut Vec<Frame>, world: World, taken: Option<Step>) {
        if !self.visited.insert(world.fingerprint(true)) {
            return;
        }
        self.seen.states += 1;
        let steps = world.steps();
        let wrong = world.broken_invariant().or_else(|| match world.is_at_end(&steps) {
            true => self.end(&world),
            false => None,
        });
        path.push(Frame { world, steps, taken });
        if let Some(wrong) = wrong {
            let steps = path.iter().filter_map(|frame| frame.taken.clone()).collect();
            self.seen.violation = Some((wrong, steps));
        }
    }

    fn end(&mut self, world: &World) -> Option<String> {
        if !self.ended.insert(world.fingerprint(false)) {
            return None;
        }
        self.seen.ends += 1;
        let calls = match rest::bring_to_rest(world.clone()) {
            Ok(calls) => calls,
            Err(wrong) => return Some(wrong),
        };
        let is_linearizable = *self.judged.entry(calls).or_insert_with_key(|calls| {
            self.seen.histories += 1;
            checker::check(calls) == Verdict::Linearizable
        });
        (!is_linearizable).then(|| format!("not linearizable: {:?}", world.calls()))
    }
}
