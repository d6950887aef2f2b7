//! A history as the search wants it: its events in order of time, and as few differences as can matter.
//!
//! * A version in an answer was written before that answer: its op is *due* then, even if its own outcome is unknown.
//! * A value that an answer contains with a version was written by the op of that version ([`Op::left`]), which shows what that op found.
//! * What an op of unknown outcome sets or adds that is in no value that an answer tells is as good as anything else of its length, so that such ops are of one class.
//! * A value with which none begins that an answer tells is as good as any other one of its length ([`Timeline::forget_untold`]).
//! * Versions that appear in no answer and no condition are interchangeable: all become one ([`UNSEEN`]).
//! * Open-ended ops that are then equal are a [`Class`]: which of them takes effect makes no difference.

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
    /// It changes something, before it is due.
    Update,
    /// It may change something, at any time.
    Open(Class),
}

/// Indistinguishable open-ended ops: those that were called earlier take effect earlier.
///
/// Classes that differ in when they apply only are a *family*. Where the one that applies always and another one could do the same, the
/// other one does: whatever that one could do later, the first can do, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class {
    pub(crate) family: usize,
    pub(crate) applies: Applies,
}

/// See [`Class`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applies {
    Always,
    IfPresent,
    IfAbsent,
}

impl Register {
    /// Whether it holds a version that appears in an answer or a condition.
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
    /// What the value before it was.
    pub(crate) before: Before,
    /// Its version, and the value that it wrote, if an answer contains that.
    pub(crate) left: Option<(OpId, Vec<u8>)>,
}

/// Of a 64-bit integer with its sign.
const NUMBER_BYTES_MAX: usize = 20;

/// What happens at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// From here the op may take effect. Sorts first: a call and an answer of the same time overlap.
    Called(OpIndex),
    /// By now it must have.
    Due(OpIndex),
}

/// See the module.
pub(crate) struct Timeline<'a> {
    pub(crate) ops: Vec<Op>,
    pub(crate) events: Vec<Event>,
    /// All values in answers, ascending, and a byte with which none of them begins, nor a number.
    told: Vec<&'a [u8]>,
    filler: Option<u8>,
    /// Something is subtracted.
    pub(crate) numbers_shrink: bool,
}

/// By op id and change, whether it wants what was before, and the version that the condition asks for.
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

/// What the answers and conditions of a history say about versions.
#[derive(Default)]
struct Named {
    /// The first answer that contains a version.
    told_at: HashMap<OpId, u64, FixedState>,
    asked: HashSet<OpId, FixedState>,
    /// The value that an answer contains with a version.
    values: HashMap<OpId, Vec<u8>, FixedState>,
    /// Op ids that two calls have.
    twice: HashSet<OpId, FixedState>,
    /// Some puts leave no version.
    has_nameless: bool,
    /// Some values may be hashes; answers to their updates do not contain the previous value.
    has_hashes: bool,
}

impl<'a> Timeline<'a> {
    /// Makes values equal of which nothing but their length makes a difference.
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

/// A get that nobody was told anything by does not.
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

/// See [`Op::before`]; `left`: the value that the op is known to have left.
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
        // What is overwritten is there or is not.
        (None, Some(_)) if is_done => Before::Untold,
        _ => Before::UpTo(longest),
    }
}

/// What a change has found that adds to what there is, and has left this.
fn added_to(change: &Change, left: &[u8]) -> Option<Vec<u8>> {
    match change {
        Change::Append(suffix) => left.strip_suffix(&suffix[..]).map(<[u8]>::to_vec),
        Change::Increment(by) => Some(number(left)?.checked_sub(*by)?.to_string().into_bytes()),
        _ => None,
    }
}

/// No value is longer, in whatever order the calls are: the longest that is set, and all that is added.
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

    /// Makes actions equal that differ only in what no answer contains.
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

    /// By when the call has taken effect; `None` if it need not.
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

    /// See [`Op::left`].
    fn left(&self, action: &Action) -> Option<(OpId, Vec<u8>)> {
        let Action::Update { op, .. } = action else { return None };
        let value = self.values.get(op).filter(|_| *op != OpId::NONE && !self.twice.contains(op))?;
        Some((*op, value.clone()))
    }

    /// The call, with a version that appears nowhere else replaced by [`UNSEEN`].
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
