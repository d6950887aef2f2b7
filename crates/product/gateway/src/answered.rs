//! How requests ended.

use crate::permits::Kept;
use nicekv_client::{Answer, OperationError};
use std::sync::Arc;

/// How a request ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered<'a> {
    pub(crate) result: Result<Answer<'a>, OperationError>,
    /// The answer's value, where it is a large one.
    pub(crate) kept: Option<&'a Arc<Kept>>,
}

impl<'a> From<Result<Answer<'a>, OperationError>> for Answered<'a> {
    fn from(result: Result<Answer<'a>, OperationError>) -> Self {
        Self { result, kept: None }
    }
}
