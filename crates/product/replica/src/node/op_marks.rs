//! Marks of ops that have ended this node's process.
//!
//! An op is synced before it is evaluated; after a restart it is evaluated again, also by the next
//! primary. So an op whose evaluation crashes the process would crash it again and again, at each
//! member. Therefore a node marks the op that it evaluates, in memory that survives the process,
//! and at its next start it knows which op has ended it. After the second time it decides the op as
//! an error instead of evaluating it
//! ([`Status::EndedByStore`](nicekv_proto::Status::EndedByStore)). Like other refusals, that is
//! shown when all members have synced it.
//!
//! The memory is shared with a file, so a mark costs two stores. It need not survive a power
//! failure.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use core::fmt::{Debug, Formatter, Result};
use nicekv_proto::OpId;

/// Stores the mark so that it survives the process.
pub trait MarkKeeper: Send + Sync {
    /// The evaluation of an op begins. If the process ends now, this op has ended it.
    fn begin(&self, op: OpId);

    /// The evaluation has ended.
    fn end(&self);
}

/// The marks of a node; without a keeper nothing is marked.
#[derive(Clone, Default)]
pub struct OpMarks {
    keeper: Option<Arc<dyn MarkKeeper>>,
    barred: BTreeSet<OpId>,
}

impl OpMarks {
    /// `barred`: the ops that have ended the process too often to be evaluated again.
    pub fn new(keeper: Arc<dyn MarkKeeper>, barred: BTreeSet<OpId>) -> Self {
        Self { keeper: Some(keeper), barred }
    }

    /// The evaluation of an op begins.
    pub fn begin(&self, op: OpId) {
        if let Some(keeper) = &self.keeper {
            keeper.begin(op);
        }
    }

    /// The evaluation has ended.
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
