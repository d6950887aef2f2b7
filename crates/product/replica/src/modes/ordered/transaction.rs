//! Evaluates a transaction: its steps run one after the other, each on the state that the previous
//! ones have left.
//!
//! Like [`evaluate`](crate::modes::ordered::evaluate::evaluate), this is a function of the op and
//! the states of its keys alone.

use crate::ScriptCall;
use crate::modes::ordered::evaluate::{KeyValue, Verdict, after, condition_holds, evaluate, read};
use crate::modes::ordered::script::{self, Runner};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use nicekv_proto::limits::TRANSACTION_BYTES_MAX;
use nicekv_proto::recovery::Entry;
use nicekv_proto::replication::Effect;
use nicekv_proto::transaction::{Act, Step, Taken};
use nicekv_proto::{Form, OpId, Status, Update};
use smallvec::SmallVec;

/// Why the remaining steps do not run.
enum Halt {
    /// A step has ended the transaction, which has no effect.
    Ended(Status),
    ScriptRunning,
}

/// The state of a transaction whose steps are being run.
struct Taking<'a, 'u> {
    update: &'u Update<'a>,
    states: BTreeMap<&'a [u8], Option<KeyValue>>,
    verdicts: Vec<(&'a [u8], Verdict)>,
    /// How many of the last steps were declarations of keys for a script.
    declared: usize,
}

/// Runs the steps of a transaction; if a requirement does not hold, none of them has an effect
/// (T4). `state` returns the state of one of its keys. `None`: a script is still running, and the
/// steps have to be run again later, on the same states.
///
/// A transaction has no effect if its result does not fit into one decision, or if it asks for the
/// large value of a key that it also writes. The large values of other keys are named in the reply.
pub(crate) fn take_steps(
    update: &Update<'_>,
    state: impl Fn(&[u8]) -> Option<KeyValue>,
    runner: &Runner<'_>,
) -> Option<Verdict> {
    let (states, verdicts) = (BTreeMap::new(), Vec::new());
    let mut taking = Taking { update, states, verdicts, declared: 0 };
    for step in Step::each(update.operation.value()) {
        taking.states.entry(step.key).or_insert_with(|| state(step.key));
        match taking.take(&step, runner) {
            Ok(()) => {}
            Err(Halt::Ended(status)) => return Some(Verdict::unchanged(status, None)),
            Err(Halt::ScriptRunning) => return None,
        }
    }
    Some(join(update.op, taking.verdicts))
}

impl<'a> Taking<'a, '_> {
    fn take(&mut self, step: &Step<'a>, runner: &Runner<'_>) -> Result<(), Halt> {
        let state = self.states.get(step.key).and_then(Option::as_ref);
        let verdict = match step.act {
            Act::Require(condition) if !condition_holds(condition, state) => {
                return Err(Halt::Ended(Status::ConditionFailed));
            }
            Act::Require(_) | Act::Declare => Verdict::unchanged(Status::Ok, None),
            Act::Read => read(state),
            Act::Apply { operation, condition, return_old } => {
                let update = Update { key: step.key, operation, condition, return_old, ..*self.update };
                let mut verdict = evaluate(&update, state);
                let is_gone = matches!(verdict.effect, Effect::StorePrepared | Effect::Remove);
                if is_gone && verdict.tells_large() {
                    verdict = Verdict::unchanged(Status::ValueTooLong, state);
                }
                if let Some(after) = after(&verdict, &operation) {
                    self.states.insert(step.key, after);
                }
                verdict
            }
            Act::Run { unix_ms, is_read_only, source, arguments } => {
                let from = self.verdicts.len() - self.declared;
                let keys: Vec<&'a [u8]> = self.verdicts[from..].iter().map(|(key, _)| *key).collect();
                let call = ScriptCall { unix_ms, is_read_only, source, keys: &[], arguments };
                let number = self.verdicts.len() as u32;
                let ran = runner.run(self.update, number, (&keys, &call), &self.states);
                let ran = ran.ok_or(Halt::ScriptRunning)?;
                self.take_written(from, ran.written);
                ran.verdict
            }
        };
        self.declared = if step.act == Act::Declare { self.declared + 1 } else { 0 };
        self.verdicts.push((step.key, verdict));
        Ok(())
    }

    /// Takes in the states in which a script has left its keys. `from`: index of its first
    /// declaration.
    fn take_written(&mut self, from: usize, written: Vec<(&'a [u8], Option<KeyValue>)>) {
        for (key, state) in written {
            let was_there = self.states.get(key).is_some_and(Option::is_some);
            let declared = self.verdicts[from..].iter_mut().find(|(declared, _)| *declared == key);
            if let Some((_, verdict)) = declared {
                *verdict = script::effect(was_there, state.as_ref());
            }
            self.states.insert(key, state);
        }
    }
}

fn join(op: OpId, mut verdicts: Vec<(&[u8], Verdict)>) -> Verdict {
    let mut written: BTreeMap<&[u8], Option<Vec<u8>>> = BTreeMap::new();
    // If a key is written several times, only the last write counts.
    for (key, verdict) in verdicts.iter_mut().rev().filter(|(_, verdict)| verdict.effect != Effect::None) {
        let is_large = verdict.effect == Effect::Store && verdict.form == Form::Large;
        let large = is_large.then(|| verdict.value.clone());
        if written.contains_key(key) {
            verdict.effect = Effect::None;
            if !verdict.value_is_result {
                (verdict.value, verdict.form) = (Vec::new(), Form::Plain);
            }
        } else {
            written.insert(key, large);
        }
    }
    // The result names a large value that the transaction overwrites, so the client could not read
    // it.
    let is_lost = |(key, verdict): &(&[u8], Verdict)| {
        verdict.tells_large() && written.get(key).is_some_and(|large| large.as_ref() != Some(&verdict.value))
    };
    let may_differ = verdicts.iter().any(|(_, verdict)| verdict.may_differ);
    if verdicts.iter().any(is_lost) {
        return Verdict { may_differ, ..Verdict::unchanged(Status::ValueTooLong, None) };
    }
    let mut value = Vec::new();
    for (_, verdict) in &verdicts {
        taken(verdict).append(&mut value);
    }
    if value.len() > TRANSACTION_BYTES_MAX {
        return Verdict { may_differ, ..Verdict::unchanged(Status::ValueTooLong, None) };
    }
    let effect = if written.is_empty() { Effect::None } else { Effect::Transaction };
    let unchanged = Verdict::unchanged(Status::Ok, None);
    Verdict { effect, version: op, value, value_is_result: true, may_differ, ..unchanged }
}

fn taken(verdict: &Verdict) -> Taken<'_> {
    let &Verdict { effect, status, expiry_ms, integer, form, value_is_result, .. } = verdict;
    Taken { status, effect, value_is_result, form, value: &verdict.value, expiry_ms, integer }
}

/// The entries that a decided transaction writes, one for each written key.
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
                Act::Require(_) | Act::Read | Act::Declare | Act::Run { .. } => return None,
            },
        };
        let version = if value.is_some() { version } else { OpId::NONE };
        Some((step.key, Entry { index, version, expiry_ms: taken.expiry_ms, form, value }))
    };
    Step::each(steps).zip(Taken::each(taken)).filter_map(entry).collect()
}

#[cfg(test)]
mod tests;
