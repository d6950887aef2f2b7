//! Scripts: programs of clients that a node runs on keys of one partition. What runs them is not of this crate, which knows no language.
//!
//! A script (T5) is run by whoever decides, and what it has done is in the decision. It may be run again by who leads next, and must come to the same then (R3): its end is a function
//! of what it is, of its arguments, of the time that it was called, and of what its keys are; of no clock, and of nothing random.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::{Debug, Formatter, Result};
use nicekv_wire::{Condition, Form, Operation, Status};

/// What is to be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptCall<'a> {
    /// The time that it knows, in milliseconds of the Unix epoch.
    pub unix_ms: u64,
    /// Whether it may change nothing.
    pub is_read_only: bool,
    /// What it is.
    pub source: &'a [u8],
    /// The keys that were declared, in this order.
    pub keys: &'a [&'a [u8]],
    /// Encoded [`Argument`](nicekv_wire::transaction::Argument)s.
    pub arguments: &'a [u8],
}

/// What became of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptEnd {
    /// The reply, in the words of RESP2; at most [`TRANSACTION_BYTES_MAX`](nicekv_wire::limits::TRANSACTION_BYTES_MAX), or it has failed.
    pub reply: Vec<u8>,
    /// Whether it has failed: then nothing of it takes effect.
    pub has_failed: bool,
}

/// What a get or an update of a key tells a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptTold {
    /// As clients are told.
    pub status: Status,
    /// Of a large value its reference.
    pub value: Option<Vec<u8>>,
    /// What that is.
    pub form: Form,
    /// Of the key afterwards, in milliseconds of the Unix epoch; 0 is never.
    pub expiry_ms: u64,
    /// As clients are told.
    pub integer: i64,
}

/// The keys of a script, as it has left them so far.
pub trait ScriptKeys {
    /// Whether it may have this key.
    fn has(&self, key: &[u8]) -> bool;

    /// What a key is, which it may have.
    fn get(&self, key: &[u8]) -> ScriptTold;

    /// Changes a key, which it may have.
    fn update(
        &mut self,
        key: &[u8],
        operation: &Operation<'_>,
        condition: Condition,
        return_old: bool,
    ) -> ScriptTold;
}

/// Runs scripts, and takes a bounded time and memory for it.
pub trait ScriptEngine: Send + Sync {
    /// Runs one to its end.
    fn run(&self, call: &ScriptCall<'_>, keys: &mut dyn ScriptKeys) -> ScriptEnd;
}

/// What a node has to run scripts, if it has it.
#[derive(Clone, Default)]
pub struct Scripts(Option<Arc<dyn ScriptEngine>>);

impl Scripts {
    /// Scripts that this runs.
    pub fn new(engine: Arc<dyn ScriptEngine>) -> Self {
        Self(Some(engine))
    }

    /// Runs one to its end; where nothing can, that is its failure.
    pub fn run(&self, call: &ScriptCall<'_>, keys: &mut dyn ScriptKeys) -> ScriptEnd {
        match &self.0 {
            Some(engine) => engine.run(call, keys),
            None => ScriptEnd { reply: b"-ERR this node runs no scripts\r\n".to_vec(), has_failed: true },
        }
    }
}

impl Debug for Scripts {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        write!(formatter, "Scripts({})", self.0.is_some())
    }
}
