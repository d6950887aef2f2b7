//! Ops that crash every node that evaluates them, and the marks that survive the crash (T6).

use nicekv_proto::OpId;
use nicekv_replica::{MarkKeeper, OpMarks};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How often an op may end a process.
const ENDS_MAX: u32 = 2;
const MILLION: u64 = 1_000_000;

/// The marks of a node's disk.
#[derive(Clone, Default)]
pub(crate) struct Marks(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// Of a million ops.
    deadly: u64,
    /// By this one the process has ended.
    ended_by: Option<OpId>,
    ends: BTreeMap<OpId, u32>,
}

impl Marks {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process starts; `deadly` of a million ops crash it.
    pub(crate) fn begin_process(&self, deadly: u64) -> OpMarks {
        let state = &mut *self.state();
        state.deadly = deadly;
        if let Some(op) = state.ended_by.take() {
            *state.ends.entry(op).or_default() += 1;
        }
        let barred = state.ends.iter().filter(|(_, ends)| **ends >= ENDS_MAX).map(|(op, _)| *op);
        OpMarks::new(Arc::new(self.clone()), barred.collect())
    }

    /// Whether the process has ended by an op.
    pub(crate) fn has_ended(&self) -> bool {
        self.state().ended_by.is_some()
    }
}

impl MarkKeeper for Marks {
    fn begin(&self, op: OpId) {
        let state = &mut *self.state();
        let drawn = (op.client.0 ^ op.sequence).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        if drawn % MILLION < state.deadly {
            state.ended_by.get_or_insert(op);
        }
    }

    // What comes behind the end of the process does not happen.
    fn end(&self) {}
}
