//! What a transaction does to its keys: its steps, one after the other, each on what those before have left.
//!
//! Like [`evaluate`](crate::evaluate::evaluate) it is a function of the op and of what its keys are, and nothing else.

use crate::evaluate::{KeyValue, Verdict, condition_holds, evaluate};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use nicekv_wire::limits::TRANSACTION_BYTES_MAX;
use nicekv_wire::recovery::Entry;
use nicekv_wire::replication::Effect;
use nicekv_wire::transaction::{Act, Step, Taken};
use nicekv_wire::{Form, OpId, Operation, Status, Update};
use smallvec::SmallVec;

/// Takes the steps of a transaction, or none if one requires what is not so (T4); `state`: what a key of it is. Whatever has no room in one decision takes no effect, nor what needs a large value.
/// A bug has what is required pass `unread`.
pub(crate) fn take_steps(
    update: &Update<'_>,
    state: impl Fn(&[u8]) -> Option<KeyValue>,
    unread: bool,
) -> Verdict {
    let mut states: BTreeMap<&[u8], Option<KeyValue>> = BTreeMap::new();
    let mut verdicts: Vec<(&[u8], Verdict)> = Vec::new();
    for step in Step::each(update.operation.value()) {
        let state = states.entry(step.key).or_insert_with(|| state(step.key));
        let verdict = match step.act {
            Act::Require(condition) if !unread && !condition_holds(condition, state.as_ref()) => {
                return Verdict::unchanged(Status::ConditionFailed, None);
            }
            Act::Require(_) => Verdict::unchanged(Status::Ok, None),
            Act::Read => read(state.as_ref()),
            Act::Apply { operation, condition, return_old } => {
                let update = Update { key: step.key, operation, condition, return_old, ..*update };
                let verdict = evaluate(&update, state.as_ref());
                if let Some(after) = after(&verdict, &operation) {
                    *state = after;
                }
                verdict
            }
        };
        if verdict.form == Form::Large && verdict.value_is_result {
            return Verdict::unchanged(Status::ValueTooLong, None);
        }
        verdicts.push((step.key, verdict));
    }
    join(update.op, verdicts)
}

fn read(state: Option<&KeyValue>) -> Verdict {
    match state {
        Some(_) => Verdict::unchanged(Status::Ok, state).with_old(state),
        None => Verdict::unchanged(Status::NotFound, None),
    }
}

/// What the key is afterwards, if that is not what it was.
fn after(verdict: &Verdict, operation: &Operation<'_>) -> Option<Option<KeyValue>> {
    let (value, form) = match verdict.effect {
        Effect::None | Effect::Transaction => return None,
        Effect::Remove => return Some(None),
        Effect::Store => (verdict.value.clone(), verdict.form),
        Effect::StorePrepared => (operation.value().into(), operation.form()),
    };
    let Verdict { version, expiry_ms, .. } = *verdict;
    Some(Some(KeyValue { version, expiry_ms, value, form }))
}

fn join(op: OpId, mut verdicts: Vec<(&[u8], Verdict)>) -> Verdict {
    let mut written: BTreeSet<&[u8]> = BTreeSet::new();
    // Of what is written several times only the last is.
    for (key, verdict) in verdicts.iter_mut().rev().filter(|(_, verdict)| verdict.effect != Effect::None) {
        if !written.insert(key) {
            verdict.effect = Effect::None;
            if !verdict.value_is_result {
                (verdict.value, verdict.form) = (Vec::new(), Form::Plain);
            }
        }
    }
    let mut value = Vec::new();
    for (_, verdict) in &verdicts {
        taken(verdict).append(&mut value);
    }
    if value.len() > TRANSACTION_BYTES_MAX {
        return Verdict::unchanged(Status::ValueTooLong, None);
    }
    let effect = if written.is_empty() { Effect::None } else { Effect::Transaction };
    let unchanged = Verdict::unchanged(Status::Ok, None);
    Verdict { effect, version: op, value, value_is_result: true, ..unchanged }
}

fn taken(verdict: &Verdict) -> Taken<'_> {
    let &Verdict { effect, status, expiry_ms, integer, form, value_is_result, .. } = verdict;
    Taken { status, effect, value_is_result, form, value: &verdict.value, expiry_ms, integer }
}

/// What a decided transaction writes: of each key it writes one entry.
pub(crate) fn entries<'a>(
    steps: &'a [u8],
    taken: &'a [u8],
    (index, version): (u64, OpId),
) -> SmallVec<[(&'a [u8], Entry<'a>); 1]> {
    let entry = |(step, taken): (Step<'a>, Taken<'a>)| {
        let (value, form) = match taken.effect {
            Effect::None | Effect::Transaction => return None,
            Effect::Remove => (None, Form::Plain),
            Effect::Store => (Some(taken.value), taken.form),
            Effect::StorePrepared => match step.act {
                Act::Apply { operation, .. } => (Some(operation.value()), operation.form()),
                Act::Require(_) | Act::Read => return None,
            },
        };
        let version = if value.is_some() { version } else { OpId::NONE };
        Some((step.key, Entry { index, version, expiry_ms: taken.expiry_ms, form, value }))
    };
    Step::each(steps).zip(Taken::each(taken)).filter_map(entry).collect()
}

#[cfg(test)]
mod tests;
