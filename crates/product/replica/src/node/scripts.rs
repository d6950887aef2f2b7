//! Scripts: programs of clients that a node runs on keys of one partition. The engine that runs
//! them is not part of this crate, which knows no script language.
//!
//! The primary runs a script (T5), and the decision contains its effects. The next primary may run
//! it again, and must get the same result (R3). So the result may depend only on the script, its
//! arguments, the time of the call, and its keys' states; not on a clock or on random numbers.
//!
//! The exception is a script that is stopped because it has used too much processor time, or
//! because the engine has crashed: a run at another node may end differently.
//! [`ScriptEnd::may_differ`] says so, and then no client is answered before all members have synced
//! the decision.
//!
//! An engine may keep running a script while the node does other work. The op then stays undecided
//! with its keys locked, and the node asks the engine again until the script has ended. One script
//! runs at a time; others wait in the order of their arrival ([`Scripts`]). There are at most as
//! many as open ops.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::{Debug, Display, Formatter, Result};
use nicekv_proto::{Condition, Form, Now, OpId, Operation, PartitionId, Status, StoredKey};

/// Interval at which the node asks the engine whether a script has ended.
const ASK_INTERVAL_NS: u64 = 200_000;

/// A script to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptCall<'a> {
    /// The time that the script sees, in milliseconds of the Unix epoch.
    pub unix_ms: u64,
    /// Whether the script must not change anything.
    pub is_read_only: bool,
    /// The script's text.
    pub source: &'a [u8],
    /// The declared keys, in the order of declaration.
    pub keys: &'a [&'a [u8]],
    /// Encoded [`Argument`](nicekv_proto::transaction::Argument)s.
    pub arguments: &'a [u8],
}

/// One run of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptRun {
    /// The transaction that contains the script.
    pub op: OpId,
    /// Index of the script among the transaction's steps.
    pub step: u32,
    /// How often the node has asked about this run before; for engines in tests.
    pub asked: u32,
    /// Another node may have run the script before and shown its result, so this run gets far more
    /// time than usual.
    pub is_recovered: bool,
}

/// How a script has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScriptEnd {
    /// The reply in RESP2. A script whose reply is longer than
    /// [`TRANSACTION_BYTES_MAX`](nicekv_proto::limits::TRANSACTION_BYTES_MAX) has failed.
    pub reply: Vec<u8>,
    /// Whether the script has failed, and so has no effect.
    pub has_failed: bool,
    /// Whether another run may end differently: the script was stopped for its time, used a good
    /// part of its time, or the engine has crashed.
    pub may_differ: bool,
}

/// The result of a get or update within a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptTold {
    /// Status as in replies to clients.
    pub status: Status,
    /// The value; for a large value, its reference.
    pub value: Option<Vec<u8>>,
    /// The form of the value.
    pub form: Form,
    /// The key's expiry afterwards, in milliseconds of the Unix epoch; 0: never.
    pub expiry_ms: u64,
    /// Integer as in replies to clients.
    pub integer: i64,
}

/// The keys of a script, including its changes so far.
pub trait ScriptKeys {
    /// Whether the script has declared this key.
    fn has(&self, key: &[u8]) -> bool;

    /// Reads a declared key.
    fn get(&self, key: &[u8]) -> ScriptTold;

    /// The work of an operation on a key, measured as the length of a plain value for which it
    /// takes about as long.
    fn work_bytes(&self, key: &[u8]) -> usize;

    /// Changes a declared key.
    fn update(
        &mut self,
        key: &[u8],
        operation: &Operation<'_>,
        condition: Condition,
        return_old: bool,
    ) -> ScriptTold;
}

/// Keys that can be sent to another process and come back changed.
pub trait ScriptStates: ScriptKeys {
    /// Appends all keys with their states.
    fn export(&self, out: &mut Vec<u8>);

    /// Takes in the changes that the other process has made. If the bytes are damaged, or name
    /// other keys, nothing is changed.
    fn import(&mut self, written: &[u8]) -> core::result::Result<(), DamagedStates>;
}

/// The error that bytes are not valid states of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DamagedStates;

impl Display for DamagedStates {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str("damaged states of keys")
    }
}

impl core::error::Error for DamagedStates {}

/// Runs scripts, one at a time, with bounded time and memory for each.
pub trait ScriptEngine: Send + Sync {
    /// Starts or continues a script. Returns how it has ended; `None`: it, or another script, is
    /// still running, so ask again later.
    fn run(&self, run: &ScriptRun, call: &ScriptCall<'_>, keys: &mut dyn ScriptStates) -> Option<ScriptEnd>;

    /// Whether a script is still running, so that asking is pointless.
    fn is_busy(&self) -> bool {
        false
    }

    /// The node's thread has done other work in between, so the engine may again make it wait for a
    /// script.
    fn end_turn(&self) {}
}

/// A node's script engine, if it has one, and the ops that wait for scripts.
#[derive(Clone, Default)]
pub struct Scripts {
    engine: Option<Arc<dyn ScriptEngine>>,
    /// Waiting ops in the order of arrival; the script of the first one is running.
    waiting: VecDeque<WaitingScript>,
    /// The ids of the waiting ops.
    ops: BTreeSet<OpId>,
    /// The op whose turn it is, while its partition tries to decide it.
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
    /// With this engine, and no waiting ops.
    pub fn new(engine: Arc<dyn ScriptEngine>) -> Self {
        Self { engine: Some(engine), ..Self::default() }
    }

    /// Starts or continues a script; without an engine, it fails. `None`: it has not ended, and its
    /// op has to [wait](Self::wait).
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

    /// Makes an op wait for a script. `Partition::on_script_turn` is called later with the op's
    /// first key.
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

    /// Whether an op of this partition waits.
    pub(crate) fn has_waiting(&self, partition: PartitionId) -> bool {
        self.waiting.iter().any(|waiting| waiting.partition == partition)
    }

    /// Number of waiting ops.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Takes the next waiting op, for its partition to decide, if it is time to ask the engine.
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

    /// The partition has decided the op, or has made it wait again. Returns whether the next op may
    /// have its turn at once.
    pub(crate) fn end_one_turn(&mut self, now: Now) -> bool {
        let waits = self.turn.take().is_some_and(|turn| turn.waits_again);
        self.ask_at_ns = match (self.waiting.is_empty(), waits) {
            (true, _) => None,
            (false, true) => Some(now.boot_ns + ASK_INTERVAL_NS),
            (false, false) => Some(now.boot_ns),
        };
        !waits
    }

    /// When the node has to ask the engine again.
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
