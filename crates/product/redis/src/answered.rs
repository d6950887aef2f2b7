//! How a request ended.

use nicekv_client::{Answer, OperationError, Outcome, SharedBytes};
use nicekv_proto::{Form, OpId};

/// How a request ended.
#[derive(Clone, Copy, Debug)]
pub struct Answered<'a> {
    pub result: Result<Answer<'a>, OperationError>,
    /// The buffer of the answer's value, if that is large.
    pub shared: Option<&'a SharedBytes>,
    /// What the host knows about why no replica has answered; empty or begins with a semicolon.
    pub cause: &'a str,
}

impl Answered<'_> {
    /// A request that has no answer but its success.
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
