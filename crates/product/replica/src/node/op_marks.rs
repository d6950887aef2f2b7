//! Ops that have ended the process of this node.
//!
//! An op is durable before it is evaluated, and is evaluated again after a restart and by who leads next. So one that crashes what evaluates it would do so for ever, on each member. A node
//! therefore marks the op that it evaluates, where the mark survives its process; at its next start it knows which op has ended it. After the second time it decides the op as an error
//! instead of evaluating it ([`Status::EndedByStore`](nicekv_proto::Status::EndedByStore)), and like other refusals that is told when all members have forced it.
//!
//! The mark is in memory that the process shares with a file, so it costs two stores. A loss of power is not what it is for.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use core::fmt::{Debug, Formatter, Result};
use nicekv_proto::OpId;

/// Keeps the mark beyond the process.
pub trait MarkKeeper: Send + Sync {
    /// From here on the process ends by this op, if it ends.
    fn begin(&self, op: OpId);

    /// The op has been evaluated.
    fn end(&self);
}

/// The marks of a node; without a keeper there are none.
#[derive(Clone, Default)]
pub struct OpMarks {
    keeper: Option<Arc<dyn MarkKeeper>>,
    barred: BTreeSet<OpId>,
}

impl OpMarks {
    /// Marks that are kept there; `barred` have ended the process as often as an op may.
    pub fn new(keeper: Arc<dyn MarkKeeper>, barred: BTreeSet<OpId>) -> Self {
        Self { keeper: Some(keeper), barred }
    }

    /// Evaluation of an op begins.
    pub fn begin(&self, op: OpId) {
        if let Some(keeper) = &self.keeper {
            keeper.begin(op);
        }
    }

    /// It has ended.
    pub fn end(&self) {
        if let Some(keeper) = &self.keeper {
            keeper.end();
        }
    }

    /// Whether an op is not to be evaluated.
    pub fn bars(&self, op: OpId) -> bool {
        !self.barred.is_empty() && self.barred.contains(&op)
    }

    /// How many ops are not to be evaluated.
    pub fn barred(&self) -> usize {
        self.barred.len()
    }
}

impl Debug for OpMarks {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        write!(formatter, "OpMarks({}, barred: {:?})", self.keeper.is_some(), self.barred)
    }
}
