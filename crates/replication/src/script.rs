//! A script as a step of a transaction (T5): it has the keys that were declared for it, as the steps before have left them, and what it leaves is what those steps do.

use crate::evaluate::{KeyValue, Verdict, evaluate};
use crate::transaction::{after, read};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use nicekv_node::{ScriptCall, ScriptKeys, ScriptTold, Scripts};
use nicekv_wire::limits::TRANSACTION_BYTES_MAX;
use nicekv_wire::replication::Effect;
use nicekv_wire::{Condition, Form, Operation, Status, Update};

/// Who runs scripts; bugs have what they do differ.
pub(crate) struct Runner<'a> {
    pub(crate) scripts: &'a Scripts,
    /// Instead of the time that a script was called.
    pub(crate) clock_ms: Option<u64>,
    /// Whether one that fails takes effect nevertheless.
    pub(crate) keeps_failures: bool,
}

/// What has become of a script.
pub(crate) struct Ran<'a> {
    /// It tells the reply.
    pub(crate) verdict: Verdict,
    /// The keys that it has changed or removed, as they are now.
    pub(crate) written: Vec<(&'a [u8], Option<KeyValue>)>,
}

impl Runner<'_> {
    /// Runs a script of `update` on keys that are in these states.
    pub(crate) fn run<'a>(
        &self,
        update: &Update<'_>,
        (keys, call): (&[&'a [u8]], &ScriptCall<'_>),
        states: &BTreeMap<&'a [u8], Option<KeyValue>>,
    ) -> Ran<'a> {
        let call = ScriptCall { unix_ms: self.clock_ms.unwrap_or(call.unix_ms), keys, ..*call };
        let of = |key: &&'a [u8]| (*key, states.get(*key).cloned().flatten());
        let now = keys.iter().map(of).collect();
        let mut lent = Lent { update, unix_ms: call.unix_ms, now, written: BTreeSet::new() };
        let end = self.scripts.run(&call, &mut lent);
        if end.reply.len() > TRANSACTION_BYTES_MAX {
            let verdict = Verdict::unchanged(Status::ValueTooLong, None);
            return Ran { verdict, written: Vec::new() };
        }
        let verdict =
            Verdict { value: end.reply, value_is_result: true, ..Verdict::unchanged(Status::Ok, None) };
        let Lent { now, written, .. } = lent;
        let takes_effect = !end.has_failed || self.keeps_failures;
        let written = now.into_iter().filter(|(key, _)| takes_effect && written.contains(key)).collect();
        Ran { verdict, written }
    }
}

/// What is done to a key that is so afterwards, and was there or not before.
pub(crate) fn effect(was_there: bool, state: Option<&KeyValue>) -> Verdict {
    let unchanged = Verdict::unchanged(Status::Ok, state);
    match state {
        Some(state) => Verdict {
            effect: Effect::Store,
            value: state.value.clone(),
            form: state.form,
            expiry_ms: state.expiry_ms,
            ..unchanged
        },
        None if was_there => Verdict { effect: Effect::Remove, ..unchanged },
        None => unchanged,
    }
}

struct Lent<'a, 'u> {
    update: &'u Update<'u>,
    unix_ms: u64,
    now: BTreeMap<&'a [u8], Option<KeyValue>>,
    written: BTreeSet<&'a [u8]>,
}

impl ScriptKeys for Lent<'_, '_> {
    fn has(&self, key: &[u8]) -> bool {
        self.now.contains_key(key)
    }

    fn get(&self, key: &[u8]) -> ScriptTold {
        told(read(self.now.get(key).and_then(Option::as_ref)))
    }

    fn update(
        &mut self,
        key: &[u8],
        operation: &Operation<'_>,
        condition: Condition,
        return_old: bool,
    ) -> ScriptTold {
        let Some((&own, state)) = self.now.get_key_value(key) else {
            return told(Verdict::unchanged(Status::CrossPartition, None));
        };
        let operation = operation.in_one_message(own.len());
        if operation.check_beside(own.len()).is_err() {
            return told(Verdict::unchanged(Status::ValueTooLong, None));
        }
        let update = Update { key: own, operation, condition, return_old, ..*self.update };
        let verdict = evaluate(&update, state.as_ref());
        if verdict.tells_large() {
            return told(Verdict::unchanged(Status::ValueTooLong, None));
        }
        if let Some(after) = after(&verdict, &operation) {
            // What has expired when the script was called it does not see.
            let is_over = |state: &KeyValue| state.expiry_ms != 0 && state.expiry_ms <= self.unix_ms;
            self.now.insert(own, after.filter(|state| !is_over(state)));
            self.written.insert(own);
        }
        told(verdict)
    }
}

fn told(verdict: Verdict) -> ScriptTold {
    let Verdict { status, value, value_is_result, form, expiry_ms, integer, .. } = verdict;
    let (value, form) = if value_is_result { (Some(value), form) } else { (None, Form::Plain) };
    ScriptTold { status, value, form, expiry_ms, integer }
}

#[cfg(test)]
mod tests;
