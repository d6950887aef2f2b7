//! A history prepared for the search: its events in order of time, with all irrelevant differences
//! removed.
//!
//! * A version in an answer was written before that answer: its op is *due* then, even if its own
//!   outcome is unknown.
//! * A value that an answer contains with a version was written by the op of that version
//!   ([`Op::left`]), which tells what the op found.
//! * Bytes that an op of unknown outcome sets or appends, and that are in no value of any answer,
//!   are replaced by filler of the same length, so that such ops fall into one class.
//! * A value of the register that is not the beginning of any value in an answer is replaced by
//!   filler of the same length, too ([`Timeline::forget_untold`]).
//! * Versions that appear in no answer and no condition are interchangeable: all become one
//!   ([`UNSEEN`]).
//! * Open-ended ops that are then equal form a [`Class`]: it makes no difference which of them
//!   takes effect.

use crate::Call;
use crate::model::{Action, Answer, Before, Change, Register, When, number};
use alloc::string::ToString;
use alloc::vec::Vec;
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use nicekv_proto::limits::LARGE_VALUE_BYTES_MAX;
use nicekv_proto::{ClientId, OpId, Status};

/// Stands for every version that appears in no answer and no condition.
const UNSEEN: OpId = OpId { client: ClientId(u64::MAX), sequence: u64::MAX - 1 };

/// An index into [`Timeline::ops`].
pub(crate) type OpIndex = u32;

/// How an op may take effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Its answer says that it changed nothing.
    Observer,
    /// It changes something, and must happen before it is due.
    Update,
    /// It may change something, at any time.
    Open(Class),
}

/// Indistinguishable open-ended ops. Those that were called earlier take effect earlier.
///
/// Classes that differ only in their condition form a *family*. Where the unconditional class and a
/// conditional one have the same effect, the conditional one is spent first: the unconditional one
/// can do everything later that the conditional one could.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class {
    pub(crate) family: usize,
    pub(crate) applies: Applies,
}

/// The condition of a [`Class`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applies {
    Always,
    IfPresent,
    IfAbsent,
}

impl Register {
    /// Whether the register holds a version that appears in an answer or a condition.
    pub(crate) fn is_named(&self) -> bool {
        !matches!(self.version(), UNSEEN | OpId::NONE)
    }
}

/// A call.
pub(crate) struct Op {
    pub(crate) action: Action,
    /// `None` if the outcome is unknown.
    pub(crate) answer: Option<Answer>,
    pub(crate) kind: Kind,
    /// Whether its effect and its answer are independent of the previous value.
    pub(crate) is_blind: bool,
    /// Knowledge about the value before the op.
    pub(crate) before: Before,
    /// The op's version and the value that it wrote, if an answer contains both.
    pub(crate) left: Option<(OpId, Vec<u8>)>,
}

/// Maximum length of a 64-bit integer with its sign.
const NUMBER_BYTES_MAX: usize = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// From now on the op may take effect. Sorts first: a call and an answer at the same time
    /// overlap.
    Called(OpIndex),
    /// By now the op must have taken effect.
    Due(OpIndex),
}

pub(crate) struct Timeline<'a> {
    pub(crate) ops: Vec<Op>,
    pub(crate) events: Vec<Event>,
    /// All values in answers, ascending.
    told: Vec<&'a [u8]>,
    filler: Option<u8>,
    /// Whether any op subtracts from a number.
    pub(crate) numbers_shrink: bool,
}

/// Numbers of families by op id, change, whether the previous value is returned, and the version
/// that the condition requires.
#[derive(Default)]
struct Families(HashMap<(OpId, Change, bool, Option<OpId>), usize, FixedState>);

impl Families {
    fn class_of(&mut self, action: &Action) -> Class {
        let Action::Update { op, condition, return_old, change } = action else {
            unreachable!("gets are not open-ended")
        };
        let (applies, version) = match condition {
            When::Always => (Applies::Always, None),
            When::IfPresent => (Applies::IfPresent, None),
            When::IfAbsent => (Applies::IfAbsent, None),
            When::IfVersion(version) => (Applies::Always, Some(*version)),
        };
        let new = self.0.len();
        let family = *self.0.entry((*op, change.clone(), *return_old, version)).or_insert(new);
        Class { family, applies }
    }
}

/// Knowledge about versions, from the answers and conditions of a history.
#[derive(Default)]
struct Named {
    /// Time of the first answer that contains a version.
    told_at: HashMap<OpId, u64, FixedState>,
    asked: HashSet<OpId, FixedState>,
    /// The value that an answer contains with a version.
    values: HashMap<OpId, Vec<u8>, FixedState>,
    /// Op ids that two calls have.
    twice: HashSet<OpId, FixedState>,
    /// Whether some puts have no op id, so that they leave no version.
    has_nameless: bool,
    /// Whether some values may be hashes. Answers to updates of fields do not contain the previous
    /// value.
    has_hashes: bool,
}

impl<'a> Timeline<'a> {
    /// Makes values equal that differ only in bytes which no answer can reveal.
    pub(crate) fn forget_untold(&self, register: &mut Register) {
        if let Some(filler) = self.filler {
            register.forget_untold(&self.told, filler);
        }
    }

    /// `None`: an answer contains the version of an op that had not been called yet.
    pub(crate) fn new(calls: &'a [Call]) -> Option<Self> {
        let named = Named::new(calls);
        let longest = longest(calls);
        let told = told(calls);
        let numbers_shrink = calls.iter().any(subtracts);
        let is_free = |byte: &u8| told.iter().all(|value| value.first() != Some(byte));
        let filler = (0..=u8::MAX).rev().filter(|byte| !byte.is_ascii_digit() && *byte != b'-').find(is_free);
        let mut calls: Vec<&Call> = calls.iter().filter(|call| matters(call)).collect();
        calls.sort_by_key(|call| call.called);
        let (mut ops, mut timed, mut families) = (Vec::new(), Vec::new(), Families::default());
        for (index, call) in (0..).zip(calls) {
            let due = named.due(call);
            if due.is_some_and(|due| due < call.called) {
                return None;
            }
            timed.push((call.called, Event::Called(index)));
            timed.extend(due.map(|due| (due, Event::Due(index))));
            let (mut action, answer) = named.rename(call);
            if let (Action::Update { op: UNSEEN, change, .. }, None, Some(filler)) =
                (&mut action, &answer, filler)
            {
                change.forget_untold(&told, filler);
            }
            let kind = match (&answer, due) {
                (Some(answer), _) if action == Action::Get || answer.status != Status::Ok => Kind::Observer,
                (_, Some(_)) => Kind::Update,
                (_, None) => Kind::Open(families.class_of(&action)),
            };
            let is_blind = is_blind(&action, answer.is_some());
            let left = named.left(&action);
            let before =
                before(&action, answer.as_ref(), left.as_ref().map(|(_, value)| &value[..]), longest);
            ops.push(Op { action, answer, kind, is_blind, before, left });
        }
        timed.sort_unstable();
        let events = timed.into_iter().map(|(_, event)| event).collect();
        Some(Self { ops, events, told, filler, numbers_shrink })
    }
}

/// A get without an answer does not matter.
fn matters(call: &Call) -> bool {
    call.answered.is_some() || call.action != Action::Get
}

fn is_blind(action: &Action, is_answered: bool) -> bool {
    let Action::Update { condition: When::Always, return_old, change, .. } = action else { return false };
    let shows = *return_old || is_answered && *change == Change::Delete;
    !shows && !change.adds()
}

fn subtracts(call: &Call) -> bool {
    matches!(call.action, Action::Update { change: Change::Increment(by), .. } if by < 0)
}

/// All values in answers, ascending.
fn told(calls: &[Call]) -> Vec<&[u8]> {
    let answers = calls.iter().filter_map(|call| call.answered.as_ref());
    let mut told: Vec<&[u8]> = answers.filter_map(|(_, answer)| answer.value.as_deref()).collect();
    told.sort_unstable();
    told.dedup();
    told
}

/// Computes [`Op::before`]. `left`: the value that the op is known to have written.
fn before(action: &Action, answer: Option<&Answer>, left: Option<&[u8]>, longest: usize) -> Before {
    let (condition, change) = match action {
        Action::Get => (When::Always, None),
        Action::Update { condition, change, .. } => (*condition, Some(change)),
    };
    if change.is_some_and(Change::is_of_fields) {
        return Before::Any;
    }
    let adds = change.is_some_and(Change::adds);
    let added_to = change.zip(left).filter(|_| adds).map(|(change, left)| added_to(change, left));
    if let Some(before) = added_to {
        return before.map_or(Before::Untold, Before::Exactly);
    }
    let Some(answer) = answer else {
        return if adds { Before::UpTo(longest) } else { Before::Untold };
    };
    let is_done = answer.status == Status::Ok && *action != Action::Get;
    let is_absent = match answer.status {
        Status::NotFound => true,
        Status::ConditionFailed => condition == When::IfPresent,
        _ => is_done && condition == When::IfAbsent,
    };
    if is_absent || !is_done && answer.tells_version() {
        return Before::Untold;
    }
    match (&answer.value, change) {
        (Some(value), _) => Before::Exactly(value.clone()),
        (None, Some(Change::Increment(by))) if is_done => answer
            .integer
            .checked_sub(*by)
            .map_or(Before::Untold, |before| Before::Exactly(before.to_string().into_bytes())),
        (None, Some(Change::Append(suffix))) if is_done => {
            (answer.integer as usize).checked_sub(suffix.len()).map_or(Before::Untold, Before::UpTo)
        }
        // For an overwriting change it matters only whether there was a value.
        (None, Some(_)) if is_done => Before::Untold,
        _ => Before::UpTo(longest),
    }
}

/// The value that an increment or append found, given the value that it wrote.
fn added_to(change: &Change, left: &[u8]) -> Option<Vec<u8>> {
    match change {
        Change::Append(suffix) => left.strip_suffix(&suffix[..]).map(<[u8]>::to_vec),
        Change::Increment(by) => Some(number(left)?.checked_sub(*by)?.to_string().into_bytes()),
        _ => None,
    }
}

/// An upper bound for the length of values in any order of the calls: the longest that is set, plus
/// everything that is appended.
fn longest(calls: &[Call]) -> usize {
    let (mut set, mut added) = (NUMBER_BYTES_MAX, 0_usize);
    for call in calls {
        match &call.action {
            Action::Update { change: Change::Set(value) | Change::SetExpiring { value, .. }, .. } => {
                set = set.max(value.len());
            }
            Action::Update { change: Change::Append(suffix), .. } => added += suffix.len(),
            _ => {}
        }
    }
    set.saturating_add(added).min(LARGE_VALUE_BYTES_MAX as usize)
}

impl Named {
    fn new(calls: &[Call]) -> Self {
        let mut named = Self::default();
        let mut ops = HashSet::<OpId, FixedState>::default();
        for call in calls {
            let own = match &call.action {
                Action::Get => OpId::NONE,
                Action::Update { op, condition, change, .. } => {
                    if let When::IfVersion(version) = condition {
                        named.asked.insert(*version);
                    }
                    if !ops.insert(*op) {
                        named.twice.insert(*op);
                    }
                    named.has_nameless |= *op == OpId::NONE;
                    named.has_hashes |= change.is_of_fields();
                    *op
                }
            };
            let Some((at, answer)) = &call.answered else { continue };
            if answer.tells_version() && answer.version != own {
                let first = named.told_at.entry(answer.version).or_insert(*at);
                *first = (*first).min(*at);
                if let Some(value) = &answer.value {
                    named.values.entry(answer.version).or_insert_with(|| value.clone());
                }
            }
        }
        named
    }

    /// Makes actions without an answer equal that differ only in what an answer would contain.
    fn forget_answer(&self, action: &mut Action) {
        let Action::Update { condition, return_old, change, .. } = action else { return };
        *return_old &= self.has_hashes && !change.adds();
        match change {
            Change::SetExpiring { at_ms, .. } => *at_ms = 0,
            Change::Erase => *change = Change::Delete,
            _ => {}
        }
        match condition {
            When::IfVersion(OpId::NONE) if !self.has_nameless => *condition = When::IfAbsent,
            When::IfPresent if *change == Change::Delete => *condition = When::Always,
            _ => {}
        }
    }

    /// Time by which the call has taken effect; `None` if it need not take effect.
    fn due(&self, call: &Call) -> Option<u64> {
        let answered = call.answered.as_ref().map(|(at, _)| *at);
        let told = match &call.action {
            Action::Update { op, .. } if *op != OpId::NONE && !self.twice.contains(op) => {
                self.told_at.get(op).copied()
            }
            _ => None,
        };
        answered.into_iter().chain(told).min()
    }

    /// Computes [`Op::left`].
    fn left(&self, action: &Action) -> Option<(OpId, Vec<u8>)> {
        let Action::Update { op, .. } = action else { return None };
        let value = self.values.get(op).filter(|_| *op != OpId::NONE && !self.twice.contains(op))?;
        Some((*op, value.clone()))
    }

    /// The call, with its version replaced by [`UNSEEN`] if it appears nowhere else.
    fn rename(&self, call: &Call) -> (Action, Option<Answer>) {
        let (mut action, mut answer) =
            (call.action.clone(), call.answered.as_ref().map(|(_, answer)| answer.clone()));
        if let Action::Update { op, .. } = &mut action
            && *op != OpId::NONE
            && !self.told_at.contains_key(op)
            && !self.asked.contains(op)
        {
            if let Some(answer) =
                answer.as_mut().filter(|answer| answer.status == Status::Ok && answer.version == *op)
            {
                answer.version = UNSEEN;
            }
            *op = UNSEEN;
        }
        if answer.is_none() {
            self.forget_answer(&mut action);
        }
        (action, answer)
    }
}
