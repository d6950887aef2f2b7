//! The outcome of an op, kept for a client that asks again.

use alloc::boxed::Box;
use nicekv_proto::replication::Decision;
use nicekv_proto::{Form, OpId, Reply, Status};

/// About how many bytes a result takes without its value.
const RESULT_FIXED_BYTES: usize = 96;

/// The remembered result of a decided op.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredResult {
    pub(crate) status: Status,
    pub(crate) version: OpId,
    pub(crate) expiry_ms: u64,
    pub(crate) integer: i64,
    pub(crate) value: Option<Box<[u8]>>,
    pub(crate) form: Form,
}

impl StoredResult {
    pub(crate) fn of(decision: &Decision<'_>) -> Self {
        Self {
            status: decision.status,
            version: decision.version,
            expiry_ms: decision.expiry_ms,
            integer: decision.integer,
            value: decision.value_is_result.then(|| decision.value.into()),
            form: if decision.value_is_result { decision.form } else { Form::Plain },
        }
    }

    pub(crate) fn reply(&self, op: OpId) -> Reply<'_> {
        Reply {
            op,
            status: self.status,
            version: self.version,
            expiry_ms: self.expiry_ms,
            integer: self.integer,
            value: self.value.as_deref(),
            form: self.form,
        }
    }

    /// About how many bytes the result takes in memory.
    pub(crate) fn bytes(&self) -> usize {
        RESULT_FIXED_BYTES + self.value.as_ref().map_or(0, |value| value.len())
    }
}
