//! Ops that have ended this node's process.
//!
//! An op is synced before it is evaluated, and evaluated again after a restart and by the next
//! primary. So an op that crashes its evaluation would do so again and again, on each member. A
//! node therefore marks the op that it evaluates, where the mark survives its process; at its next
//! start it knows which op has ended it. After the second time it decides the op as an error
//! instead of evaluating it ([`Status::EndedByStore`](nicekv_proto::Status::EndedByStore)). Like
//! other refusals, that is shown when all members have synced it.
//!
//! The mark is in memory that the process shares with a file, so it costs two stores. It need not
//! survive a power failure.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use core::fmt::{Debug, Formatter, Result};
use nicekv_proto::OpId;

/// Keeps the mark beyond the process.
pub trait MarkKeeper: Send + Sync {
    /// Evaluation of an op begins: if the process ends now, this op has ended it.
    fn begin(&self, op: OpId);

    /// The op was evaluated.
    fn end(&self);
}

/// The marks of a node; without a keeper there are none.
#[derive(Clone, Default)]
pub struct OpMarks {
    keeper: Option<Arc<dyn MarkKeeper>>,
    barred: BTreeSet<OpId>,
}

impl OpMarks {
    /// With the ops that have ended the process as often as an op may.
    pub fn new(keeper: Arc<dyn MarkKeeper>, barred: BTreeSet<OpId>) -> Self {
        Self { keeper: Some(keeper), barred }
    }

    /// Evaluation of an op begins.
    pub fn begin(&self, op: OpId) {
        if let Some(keeper) = &self.keeper {
            keeper.begin(op);
        }
    }

    /// Evaluation has ended.
    pub fn end(&self) {
        if let Some(keeper) = &self.keeper {
            keeper.end();
        }
    }

    /// Whether an op must not be evaluated.
    pub fn bars(&self, op: OpId) -> bool {
        !self.barred.is_empty() && self.barred.contains(&op)
    }

    /// Number of ops that must not be evaluated.
    pub fn barred(&self) -> usize {
        self.barred.len()
    }
}

impl Debug for OpMarks {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        write!(formatter, "OpMarks({}, barred: {:?})", self.keeper.is_some(), self.barred)
    }
}
