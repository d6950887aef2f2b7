//! The result of a request.

use nicekv_client::{Answer, OperationError, Outcome, SharedBytes};
use nicekv_proto::{Form, OpId};

/// The result of a request.
#[derive(Clone, Copy, Debug)]
pub struct Answered<'a> {
    pub result: Result<Answer<'a>, OperationError>,
    /// The buffer of the value, if the value is large.
    pub shared: Option<&'a SharedBytes>,
    /// The host's explanation why no replica has answered; empty, or begins with a semicolon.
    pub cause: &'a str,
}

impl Answered<'_> {
    /// The result of a request that only succeeds or fails.
    pub fn confirmed(result: Result<(), OperationError>) -> Self {
        let answer = Answer {
            outcome: Outcome::Done,
            version: OpId::NONE,
            expiry_ms: 0,
            integer: 0,
            value: None,
            form: Form::Plain,
        };
        result.map(|()| answer).into()
    }
}

impl<'a> From<Result<Answer<'a>, OperationError>> for Answered<'a> {
    fn from(result: Result<Answer<'a>, OperationError>) -> Self {
        Self { result, shared: None, cause: "" }
    }
}
