//! The search is *just in time*: it takes events in the order of time, and decides nothing before
//! it must. When an op is due, every configuration in which it has not happened yet is replaced by
//! all those in which it has just happened, by any sequence of ops that may happen before.
//!
//! Between two events only the [`Frontier`] is kept, so a history may have any length; when no call
//! is open, the frontier has just the possible states of the register. Four things keep a frontier
//! small: gets and refusals are done as soon as they fit (they change nothing); spending fewer
//! open-ended ops is better ([`Frontier`]); an open-ended op that is overwritten unseen did not
//! happen; and ops that the [`timeline`](crate::timeline) has made equal.
//!
//! At first only a few configurations are kept ([`LEVELS`]), those with the fewest ops. If they
//! reach the end, there is an order. If none is left, the search goes back a little and keeps more,
//! then further back ([`Trail`]), and finally to where it first dropped some. Only a complete
//! search reports a violation.

mod settle;
mod trail;

use crate::Call;
use crate::frontier::{Configuration, add, remove};
use crate::timeline::{Applies, Class, Event, Kind, OpIndex, Timeline};
use alloc::vec;
use alloc::vec::Vec;
use settle::{Effort, Settled, Settlement, observe};
use trail::Trail;

/// Maximum configurations that are kept at once.
pub const CONFIGURATIONS_MAX: usize = 1 << 18;
/// Maximum ops that are tried in one check.
pub const STEPS_MAX: u64 = 200_000_000;
/// Efforts of the search. It uses the next one when the one before was not enough.
const LEVELS: [Effort; 4] = [
    Effort { width: 16, steps: 256 },
    Effort { width: 512, steps: 1 << 14 },
    Effort { width: 1 << 14, steps: 1 << 20 },
    Effort { width: CONFIGURATIONS_MAX, steps: STEPS_MAX },
];
/// For each number of searches that failed at the same event: how many events the next search goes
/// back, and the level with which it begins. `None` goes back to where the first configuration was
/// dropped.
const RETRIES: [(Option<usize>, usize); 5] =
    [(Some(256), 1), (Some(2_048), 1), (Some(2_048), 2), (None, 2), (None, 3)];
/// After this number of events beyond the failure, the search returns to the lowest level.
const RELIEF: usize = 64;

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Some order explains all answers.
    Linearizable,
    /// No order explains all answers.
    Violation,
    /// No verdict within [`CONFIGURATIONS_MAX`] and [`STEPS_MAX`]: too many concurrent calls with
    /// indistinguishable effects.
    TooLarge,
}

/// Judges the calls on one key, which is absent at first.
pub fn check(calls: &[Call]) -> Verdict {
    check_within(calls, &LEVELS)
}

fn check_within(calls: &[Call], levels: &[Effort]) -> Verdict {
    match Timeline::new(calls) {
        Some(timeline) => Search::new(&timeline, levels).run(),
        None => Verdict::Violation,
    }
}

/// The ops that may take effect now.
#[derive(Clone, Default)]
pub(crate) struct Pending {
    pub(crate) observers: Vec<OpIndex>,
    pub(crate) updates: Vec<OpIndex>,
    pub(crate) open: Vec<Family>,
}

/// Open-ended ops of a family, by the condition under which they apply, ascending.
#[derive(Clone, Default)]
pub(crate) struct Family([Vec<OpIndex>; 3]);

impl Family {
    /// Which of them may take effect next.
    pub(crate) fn next(&self, is_present: bool, spent: &[OpIndex]) -> Option<OpIndex> {
        let weak = if is_present { Applies::IfPresent } else { Applies::IfAbsent };
        let classes = [weak, Applies::Always].map(|applies| &self.0[applies as usize]);
        classes.into_iter().flatten().find(|op| spent.binary_search(op).is_err()).copied()
    }
}

/// A state of the search at a point of the timeline.
#[derive(Clone)]
pub(crate) struct Point {
    pub(crate) next_event: usize,
    pub(crate) pending: Pending,
    pub(crate) frontier: Vec<Configuration>,
}

struct Search<'a> {
    timeline: &'a Timeline<'a>,
    levels: &'a [Effort],
    here: Point,
    trail: Trail,
    /// Index into `levels`.
    level: usize,
    /// The furthest event at which no configuration was left. `failures` counts how often.
    hard: usize,
    failures: usize,
    steps_left: u64,
}

impl<'a> Search<'a> {
    fn new(timeline: &'a Timeline<'a>, levels: &'a [Effort]) -> Self {
        let start = Configuration::default();
        let here = Point { next_event: 0, pending: Pending::default(), frontier: vec![start] };
        let trail = Trail::default();
        Self { timeline, levels, here, trail, level: 0, hard: 0, failures: 0, steps_left: STEPS_MAX }
    }

    fn run(mut self) -> Verdict {
        while let Some(event) = self.timeline.events.get(self.here.next_event) {
            match *event {
                Event::Called(op) => self.call(op),
                Event::Due(op) => self.settle(op),
            }
            if self.steps_left == 0 {
                return Verdict::TooLarge;
            }
            if self.here.frontier.is_empty() {
                match self.go_back() {
                    Ok(()) => continue,
                    Err(verdict) => return verdict,
                }
            }
            self.here.next_event += 1;
            if self.level > 0 && self.here.next_event > self.hard + RELIEF {
                self.level = 0;
            }
            self.trail.pass(&self.here);
        }
        Verdict::Linearizable
    }

    /// Goes back, since no kept configuration explains the next answer.
    fn go_back(&mut self) -> Result<(), Verdict> {
        if self.trail.left_out.is_none() {
            return Err(Verdict::Violation);
        }
        let event = self.here.next_event;
        if event > self.hard {
            (self.hard, self.failures) = (event, 0);
        }
        let &(distance, level) = RETRIES.get(self.failures).ok_or(Verdict::TooLarge)?;
        self.failures += 1;
        self.level = level;
        self.here = self.trail.back(distance.map(|distance| event.saturating_sub(distance)));
        Ok(())
    }

    fn call(&mut self, index: OpIndex) {
        let pending = &mut self.here.pending;
        match self.timeline.ops[index as usize].kind {
            Kind::Update => add(&mut pending.updates, index),
            Kind::Open(Class { family, applies }) => {
                let families = pending.open.len().max(family + 1);
                pending.open.resize_with(families, Family::default);
                pending.open[family].0[applies as usize].push(index);
            }
            Kind::Observer => {
                add(&mut pending.observers, index);
                for configuration in &mut self.here.frontier {
                    observe(self.timeline, &[index], configuration);
                }
            }
        }
    }

    /// Replaces the frontier by the configurations in which `due` has happened.
    fn settle(&mut self, due: OpIndex) {
        let settlement = Settlement::new(self.timeline, &self.here, due);
        let Settled { frontier, is_complete, steps } = settlement.run(&self.levels[self.level]);
        self.steps_left = self.steps_left.saturating_sub(steps);
        if !is_complete {
            self.trail.leave_out(&self.here);
        }
        self.here.frontier = frontier;
        let pending = &mut self.here.pending;
        let _ = remove(&mut pending.updates, due) || remove(&mut pending.observers, due);
    }
}

#[cfg(test)]
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../tests/integration/reference/mod.rs"]
mod reference;

#[cfg(test)]
mod tests {
    use super::reference::{history, orders, spoil};
    use super::*;
    use nicekv_testkit::Random;

    /// A search that keeps almost nothing at first, and so goes back all the time.
    #[test]
    fn backtracking_loses_no_configuration() {
        let levels = [1, 2, 3, CONFIGURATIONS_MAX].map(|width| Effort { width, steps: width as u64 });
        let mut random = Random::new(2);
        for number in 0..20_000 {
            let mut calls = history(&mut random);
            if random.below(2) == 0 {
                spoil(&mut calls, &mut random);
            }
            let expected = if orders(&calls) { Verdict::Linearizable } else { Verdict::Violation };
            assert_eq!(check_within(&calls, &levels), expected, "history {number}: {calls:?}");
        }
    }

    #[test]
    fn kept_configurations_are_bounded() {
        let levels = [1, 1, 1, 1].map(|width| Effort { width, steps: 1 });
        let mut random = Random::new(3);
        let verdicts: Vec<Verdict> =
            (0..2_000).map(|_| check_within(&history(&mut random), &levels)).collect();
        assert!(verdicts.contains(&Verdict::TooLarge), "a bound is reported");
        assert!(!verdicts.contains(&Verdict::Violation), "reaching a bound is no violation");
    }
}
