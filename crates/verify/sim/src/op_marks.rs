//! Ops that crash every node that evaluates them, and the marks that survive the crash (T6).

use nicekv_proto::OpId;
use nicekv_replica::{MarkKeeper, OpMarks};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum processes of a node that an op may crash.
const ENDS_MAX: u32 = 2;
const MILLION: u64 = 1_000_000;

#[derive(Clone, Default)]
pub(crate) struct Marks(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// Rate of ops that crash the process, per million.
    deadly: u64,
    /// The op that has crashed the present process.
    ended_by: Option<OpId>,
    ends: BTreeMap<OpId, u32>,
}

impl Marks {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a process, which `deadly` of a million ops crash.
    pub(crate) fn begin_process(&self, deadly: u64) -> OpMarks {
        let state = &mut *self.state();
        state.deadly = deadly;
        if let Some(op) = state.ended_by.take() {
            *state.ends.entry(op).or_default() += 1;
        }
        let barred = state.ends.iter().filter(|(_, ends)| **ends >= ENDS_MAX).map(|(op, _)| *op);
        OpMarks::new(Arc::new(self.clone()), barred.collect())
    }

    /// Whether an op has crashed the process.
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

    // The real process would be gone: nothing after the crash has an effect.
    fn end(&self) {}
}
