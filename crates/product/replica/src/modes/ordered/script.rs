//! A script as a step of a transaction (T5). It works on its declared keys, in the state in which
//! the previous steps left them, and its changes become the effects of its declarations.

mod lent;

pub use lent::LentKeys;

use crate::modes::ordered::evaluate::{KeyValue, Verdict};
use crate::{ScriptCall, ScriptEnd, Scripts};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;
use nicekv_proto::limits::TRANSACTION_BYTES_MAX;
use nicekv_proto::replication::Effect;
use nicekv_proto::{Status, Update};

/// Bytes of the values of all keys that a script may declare; they are copied for it.
pub(crate) const SCRIPT_STATES_BYTES_MAX: usize = 4 << 20;

/// Runs scripts for a transaction.
pub(crate) struct Runner<'a> {
    pub(crate) scripts: &'a Scripts,
    /// Whether the op was open when the epoch began.
    pub(crate) is_recovered: bool,
}

/// The outcome of a script.
pub(crate) struct Ran<'a> {
    /// The verdict of the step, with the script's reply as its value.
    pub(crate) verdict: Verdict,
    /// The keys that the script has changed or removed, with their new states.
    pub(crate) written: Vec<(&'a [u8], Option<KeyValue>)>,
}

impl Runner<'_> {
    /// Runs the script that is this step of `update`, on the states of its keys. `None`: it is
    /// still running.
    pub(crate) fn run<'a>(
        &self,
        update: &Update<'_>,
        step: u32,
        (keys, call): (&[&'a [u8]], &ScriptCall<'_>),
        states: &BTreeMap<&'a [u8], Option<KeyValue>>,
    ) -> Option<Ran<'a>> {
        let call = ScriptCall { keys, ..*call };
        let state_of = |key: &'a [u8]| states.get(key).and_then(Option::as_ref);
        let bytes: usize = keys.iter().filter_map(|key| state_of(key)).map(|state| state.value.len()).sum();
        if bytes > SCRIPT_STATES_BYTES_MAX {
            let reply = format!(
                "-ERR the keys of the script have {bytes} bytes, more than the limit of {SCRIPT_STATES_BYTES_MAX} bytes\r\n"
            );
            let end = ScriptEnd { reply: reply.into(), has_failed: true, may_differ: false };
            return Some(Ran { verdict: told_to_client(end), written: Vec::new() });
        }
        let now = keys.iter().map(|key| (*key, state_of(key).cloned())).collect();
        let mut lent = LentKeys::new(update.op, call.unix_ms, now);
        let end = self.scripts.run((update.op, step, self.is_recovered), &call, &mut lent)?;
        if end.reply.len() > TRANSACTION_BYTES_MAX {
            let verdict = Verdict::unchanged(Status::ValueTooLong, None);
            return Some(Ran { verdict, written: Vec::new() });
        }
        let written = if end.has_failed { Vec::new() } else { lent.into_written() };
        Some(Ran { verdict: told_to_client(end), written })
    }
}

fn told_to_client(end: ScriptEnd) -> Verdict {
    let ScriptEnd { reply, may_differ, .. } = end;
    Verdict { value: reply, value_is_result: true, may_differ, ..Verdict::unchanged(Status::Ok, None) }
}

/// The effect on a key that has this new state, and that existed before or not.
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

#[cfg(test)]
mod tests;
