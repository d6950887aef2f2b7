//! Scripts: programs of clients that a node runs on keys of one partition. What runs them is not of this crate, which knows no language.
//!
//! A script (T5) is run by whoever decides, and what it has done is in the decision. It may be run again by who leads next, and must come to the same then (R3): its end is a function
//! of what it is, of its arguments, of the time that it was called, and of what its keys are; of no clock, and of nothing random.
//!
//! The exception is a script that is ended for the processor time that it takes, or because what runs it has crashed: another node's run may end otherwise. Its end says so
//! ([`ScriptEnd::may_differ`]), and then nobody is told before all members have forced the decision.
//!
//! An engine may go on with a script while the node does other things: then it has no end yet, its op stays undecided with its keys locked, and the engine is asked again until it has. One
//! script runs at a time; others wait in the order in which they came ([`Scripts`]). As many can wait as ops can be open.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::{Debug, Display, Formatter, Result};
use nicekv_proto::{Condition, Form, Now, OpId, Operation, PartitionId, Status, StoredKey};

/// Time between two questions whether a script has ended.
const ASK_INTERVAL_NS: u64 = 200_000;

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
    /// Encoded [`Argument`](nicekv_proto::transaction::Argument)s.
    pub arguments: &'a [u8],
}

/// Which run of a script is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptRun {
    /// The transaction that it is a step of.
    pub op: OpId,
    /// Which step.
    pub step: u32,
    /// How often the node has asked for its end before; for engines that are tested.
    pub asked: u32,
    /// Another node may have run it before, and have told its end: it has far more time than usual.
    pub is_recovered: bool,
}

/// What became of a script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScriptEnd {
    /// The reply, in the words of RESP2; at most [`TRANSACTION_BYTES_MAX`](nicekv_proto::limits::TRANSACTION_BYTES_MAX), or it has failed.
    pub reply: Vec<u8>,
    /// Whether it has failed: then nothing of it takes effect.
    pub has_failed: bool,
    /// Whether another run of it may end otherwise: it was ended for its time, or took a good part of what it has, or what ran it has crashed.
    pub may_differ: bool,
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

    /// About the work of an operation on a key, as the length of a plain value that takes as long.
    fn work_bytes(&self, key: &[u8]) -> usize;

    /// Changes a key, which it may have.
    fn update(
        &mut self,
        key: &[u8],
        operation: &Operation<'_>,
        condition: Condition,
        return_old: bool,
    ) -> ScriptTold;
}

/// Keys that can go to another process, and come back changed.
pub trait ScriptStates: ScriptKeys {
    /// Appends all keys with their states.
    fn export(&self, out: &mut Vec<u8>);

    /// Takes what was changed in the other process. Nothing is taken of what is damaged, or speaks of other keys.
    fn import(&mut self, written: &[u8]) -> core::result::Result<(), DamagedStates>;
}

/// States that are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DamagedStates;

impl Display for DamagedStates {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str("damaged states of keys")
    }
}

impl core::error::Error for DamagedStates {}

/// Runs scripts, one at a time, and takes a bounded time and memory for each.
pub trait ScriptEngine: Send + Sync {
    /// Runs a script to its end, or goes on with it; `None`: it, or another one, is still running, so ask again later.
    fn run(&self, run: &ScriptRun, call: &ScriptCall<'_>, keys: &mut dyn ScriptStates) -> Option<ScriptEnd>;

    /// Whether a script is still running, so that nothing is to be gained by asking.
    fn is_busy(&self) -> bool {
        false
    }

    /// The node's thread has done other things: it may wait for scripts again.
    fn end_turn(&self) {}
}

/// What a node has to run scripts, if it has it, and which ops wait for it.
#[derive(Clone, Default)]
pub struct Scripts {
    engine: Option<Arc<dyn ScriptEngine>>,
    /// The first is the one that is running.
    waiting: VecDeque<WaitingScript>,
    /// The ops of these.
    ops: BTreeSet<OpId>,
    /// The first of those that have waited, while its partition decides.
    turn: Option<Turn>,
    ask_at_ns: Option<u64>,
}

/// An op that waits for a script.
#[derive(Clone, Debug)]
pub(crate) struct WaitingScript {
    pub(crate) partition: PartitionId,
    pub(crate) key: StoredKey,
    op: OpId,
    asked: u32,
}

#[derive(Clone, Copy, Debug)]
struct Turn {
    op: OpId,
    asked: u32,
    waits_again: bool,
}

impl Scripts {
    /// Scripts that this runs.
    pub fn new(engine: Arc<dyn ScriptEngine>) -> Self {
        Self { engine: Some(engine), ..Self::default() }
    }

    /// Runs a script to its end; where nothing can, that is its failure. `None`: it has none yet, and its op is to [wait](Self::wait).
    pub fn run(
        &self,
        (op, step, is_recovered): (OpId, u32, bool),
        call: &ScriptCall<'_>,
        keys: &mut dyn ScriptStates,
    ) -> Option<ScriptEnd> {
        let Some(engine) = &self.engine else {
            let reply = b"-ERR this node runs no scripts\r\n".to_vec();
            return Some(ScriptEnd { reply, has_failed: true, may_differ: false });
        };
        let turn = self.turn.filter(|turn| turn.op == op);
        if turn.is_none() && !self.waiting.is_empty() {
            return None;
        }
        let asked = turn.map_or(0, |turn| turn.asked);
        engine.run(&ScriptRun { op, step, asked, is_recovered }, call, keys)
    }

    /// An op waits for a script: the partition is asked for the op's first key again (`Partition::on_script_turn`).
    pub fn wait(&mut self, now: Now, partition: PartitionId, key: StoredKey, op: OpId) {
        if !self.ops.insert(op) {
            return;
        }
        match &mut self.turn {
            Some(turn) if turn.op == op => {
                turn.waits_again = true;
                let asked = turn.asked.saturating_add(1);
                self.waiting.push_front(WaitingScript { partition, key, op, asked });
            }
            _ => self.waiting.push_back(WaitingScript { partition, key, op, asked: 1 }),
        }
        self.ask_at_ns.get_or_insert(now.boot_ns + ASK_INTERVAL_NS);
    }

    /// How many ops wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The next one that may be decided, if it is time to ask.
    pub(crate) fn begin_turn(&mut self, now: Now) -> Option<WaitingScript> {
        self.ask_at_ns.filter(|at_ns| now.boot_ns >= *at_ns)?;
        let first = self.waiting.front()?;
        if self.engine.as_ref().is_some_and(|engine| engine.is_busy()) {
            self.ask_at_ns = Some(now.boot_ns + ASK_INTERVAL_NS);
            return None;
        }
        self.turn = Some(Turn { op: first.op, asked: first.asked, waits_again: false });
        let first = self.waiting.pop_front()?;
        self.ops.remove(&first.op);
        Some(first)
    }

    /// Its partition has decided it, or lets it wait on; whether others may have their turn.
    pub(crate) fn end_one_turn(&mut self, now: Now) -> bool {
        let waits = self.turn.take().is_some_and(|turn| turn.waits_again);
        self.ask_at_ns = match (self.waiting.is_empty(), waits) {
            (true, _) => None,
            (false, true) => Some(now.boot_ns + ASK_INTERVAL_NS),
            (false, false) => Some(now.boot_ns),
        };
        !waits
    }

    /// When to ask again.
    pub(crate) fn next_deadline(&self) -> u64 {
        self.ask_at_ns.unwrap_or(u64::MAX)
    }

    /// See [`ScriptEngine::end_turn`].
    pub(crate) fn end_turn(&self) {
        if let Some(engine) = &self.engine {
            engine.end_turn();
        }
    }
}

impl Debug for Scripts {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        write!(formatter, "Scripts({}, {} waiting)", self.engine.is_some(), self.waiting.len())
    }
}
