//! How a request was answered.

use crate::Outcome;
use nicekv_proto::{Form, OpId};

/// An answer less its value, which is in the buffers of its exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) outcome: Outcome,
    pub(crate) version: OpId,
    pub(crate) expiry_ms: u64,
    pub(crate) integer: i64,
    pub(crate) has_value: bool,
    /// Of the value: [`Form::Plain`] or [`Form::Hash`].
    pub(crate) form: Form,
}
