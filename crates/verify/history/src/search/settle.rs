//! One step of the search: all linearizations in which an op that is due has taken effect.

use super::{CONFIGURATIONS_MAX, Pending, Point};
use crate::frontier::{Configuration, Frontier, add, remove};
use crate::model::{Action, Register, When};
use crate::timeline::{Kind, OpIndex, Timeline};
use alloc::rc::Rc;
use alloc::vec::Vec;

/// Bounds at which a step stops before it has found all configurations.
pub(crate) struct Effort {
    /// Stop after this number of configurations.
    pub(crate) width: usize,
    /// Stop after this number of steps, if a configuration was found.
    pub(crate) steps: u64,
}

/// The result of a step.
pub(crate) struct Settled {
    pub(crate) frontier: Vec<Configuration>,
    /// Whether all configurations were found.
    pub(crate) is_complete: bool,
    /// Number of ops that were tried.
    pub(crate) steps: u64,
}

pub(crate) struct Settlement<'a> {
    timeline: &'a Timeline<'a>,
    here: &'a Point,
    due: OpIndex,
    /// Configurations in which the op has not happened, in the order in which they are continued:
    /// those with fewer ops first.
    ways: Frontier,
    settled: Frontier,
    steps: u64,
}

impl<'a> Settlement<'a> {
    pub(crate) fn new(timeline: &'a Timeline<'a>, here: &'a Point, due: OpIndex) -> Self {
        let (ways, settled) = (Frontier::default(), Frontier::default());
        let mut this = Self { timeline, here, due, ways, settled, steps: 0 };
        here.frontier.iter().cloned().for_each(|configuration| this.keep(configuration));
        this
    }

    pub(crate) fn run(mut self, effort: &Effort) -> Settled {
        let mut place = 0;
        while let Some(way) = self.ways.get(place).cloned() {
            let found = self.settled.len();
            let is_enough = found >= effort.width || (found > 0 && self.steps >= effort.steps);
            if is_enough || self.ways.len() + found >= CONFIGURATIONS_MAX {
                break;
            }
            place += 1;
            self.lead_on(&way);
        }
        let is_complete = place == self.ways.len();
        Settled { frontier: self.settled.into_list(), is_complete, steps: self.steps }
    }

    fn keep(&mut self, mut configuration: Configuration) {
        match remove(&mut configuration.done, self.due) {
            true => self.settled.add(configuration),
            false => self.ways.add(configuration),
        };
    }

    /// Continues a configuration in every possible way.
    fn lead_on(&mut self, way: &Configuration) {
        let pending = &self.here.pending;
        // The due op comes first.
        let is_left = |op: &OpIndex| way.done.binary_search(op).is_err();
        let (due, others): (Vec<_>, Vec<_>) =
            pending.updates.iter().filter(|op| is_left(op)).partition(|op| **op == self.due);
        let is_present = way.register.is_present();
        let open = pending.open.iter().filter_map(|family| family.next(is_present, &way.spent));
        for op in due.into_iter().chain(others).copied().chain(open) {
            self.execute(way, op);
        }
        if let Some(register) = way.register.expired() {
            self.steps += 1;
            self.reach(Configuration { register: Rc::new(register), ..way.clone() });
        }
    }

    fn execute(&mut self, way: &Configuration, index: OpIndex) {
        let op = &self.timeline.ops[index as usize];
        if way.is_unseen && op.is_blind {
            return;
        }
        self.steps += 1;
        let Some(mut register) = way.register.after(&op.action, op.answer.as_ref()) else { return };
        if op.left.as_ref().is_some_and(|(version, value)| register.contradicts(*version, value)) {
            return;
        }
        self.timeline.forget_untold(&mut register);
        let is_unseen = matches!(op.kind, Kind::Open(_));
        if is_unseen && !self.is_of_use(way, &register) {
            return;
        }
        let mut next = Configuration { register: Rc::new(register), is_unseen, ..way.clone() };
        add(if is_unseen { &mut next.spent } else { &mut next.done }, index);
        self.reach(next);
    }

    /// Whether the effect of an open-ended op could be seen: by an op that may happen now, or later
    /// after further updates (increments and appends, ops that require a value, or that start from
    /// an absent key). An op with the same result in both cases has not seen the effect.
    fn is_of_use(&self, way: &Configuration, register: &Register) -> bool {
        let expired = register.expired();
        if register.is_named() || self.may_begin_anew(way, register, expired.is_some()) {
            return true;
        }
        let Pending { observers, updates, .. } = &self.here.pending;
        let mut left = observers.iter().chain(updates).filter(|op| way.done.binary_search(op).is_err());
        left.any(|op| {
            let op = &self.timeline.ops[*op as usize];
            let after = |register: &Register| register.after(&op.action, op.answer.as_ref());
            let sees = |register: &Register| {
                let next = after(register);
                next.is_some() && next != after(&way.register)
            };
            !op.is_blind
                && (sees(register)
                    || expired.as_ref().is_some_and(sees)
                    || register.may_become(&op.before, self.timeline.numbers_shrink))
        })
    }

    /// Whether the new state enables open-ended ops that were not possible before: a value exists
    /// now, may have expired, or has another form.
    fn may_begin_anew(&self, way: &Configuration, register: &Register, may_expire: bool) -> bool {
        let (was, is) = (way.register.is_present(), register.is_present());
        // An op that one form refuses may be valid for the other.
        let is_other = was && is && way.register.form() != register.form();
        if was && is && !may_expire && !is_other {
            return false;
        }
        let is_new = is && !was;
        let mut open = self.here.pending.open.iter().filter_map(|family| family.next(is_new, &way.spent));
        open.any(|op| {
            let op = &self.timeline.ops[op as usize];
            let needs_value = matches!(op.action, Action::Update { condition: When::IfPresent, .. });
            !op.is_blind && (needs_value || !is_new || is_other)
        })
    }

    fn reach(&mut self, mut configuration: Configuration) {
        observe(self.timeline, &self.here.pending.observers, &mut configuration);
        self.keep(configuration);
    }
}

/// Applies observers whose answers match the register. Since they change nothing, earlier is
/// better.
pub(crate) fn observe(timeline: &Timeline<'_>, observers: &[OpIndex], configuration: &mut Configuration) {
    for &index in observers {
        let op = &timeline.ops[index as usize];
        let Some(given) = op.answer.as_ref().filter(|_| configuration.done.binary_search(&index).is_err())
        else {
            continue;
        };
        if configuration.register.shows(&op.action, given) {
            add(&mut configuration.done, index);
            configuration.is_unseen = false;
        }
    }
}
