//! The plan of a command: the requests that the host sends for it, or its finished reply.

use crate::continuation::Continuation;
use crate::finish::Finish;
use crate::subscription::SubscriptionRequest;
use alloc::boxed::Box;
use alloc::vec::Vec;
use nicekv_client::Request;
use nicekv_client::transaction::Transaction;
use nicekv_proto::{Condition, Expiry, Operation};

/// How the host completes a command, as decided by the handler.
#[derive(Debug)]
pub enum Plan<'a> {
    /// Nothing: the handler has written the reply.
    Replied,
    /// Close the connection after the reply, which the handler has written.
    Close,
    /// Send one request.
    Request(PlannedRequest<'a>, Finish),
    /// Send several requests.
    Continue(Box<dyn Continuation>),
    /// Change the connection's subscriptions.
    Subscribe(SubscriptionRequest),
}

impl<'a> Plan<'a> {
    /// One request that consists of arguments of the command.
    pub fn request(request: Request<'a>, finish: Finish) -> Self {
        Self::Request(PlannedRequest::Arguments(request), finish)
    }
}

/// A request, and any bytes that the handler has built for it.
#[derive(Debug)]
pub enum PlannedRequest<'a> {
    /// A request whose bytes are arguments of the command.
    Arguments(Request<'a>),
    /// An update whose bytes the handler has built.
    Built(BuiltUpdate<'a>),
    /// A transaction, of which all steps are executed or none.
    Transaction(Transaction),
}

/// An update of one key, with bytes that the handler has built.
#[derive(Debug)]
pub struct BuiltUpdate<'a> {
    pub key: &'a [u8],
    pub condition: Condition,
    pub bytes: Vec<u8>,
    pub operation: BuiltOperation,
}

/// The use of these bytes in an update.
#[derive(Clone, Copy, Debug)]
pub enum BuiltOperation {
    Set(Expiry),
    SetHash(Expiry),
    SetFields { only_new: bool },
    RemoveFields,
    IncrementFieldFloat,
}

impl PlannedRequest<'_> {
    pub fn request(&self) -> Request<'_> {
        match self {
            Self::Arguments(request) => *request,
            Self::Built(built) => built.request(),
            Self::Transaction(transaction) => transaction.request().expect("a planned transaction has steps"),
        }
    }
}

impl BuiltUpdate<'_> {
    fn request(&self) -> Request<'_> {
        let bytes = self.bytes.as_slice();
        let operation = match self.operation {
            BuiltOperation::Set(expiry) => Operation::Set { value: bytes, expiry },
            BuiltOperation::SetHash(expiry) => Operation::SetHash { fields: bytes, expiry },
            BuiltOperation::SetFields { only_new } => Operation::SetFields { fields: bytes, only_new },
            BuiltOperation::RemoveFields => Operation::RemoveFields(bytes),
            BuiltOperation::IncrementFieldFloat => Operation::IncrementFieldFloat(bytes),
        };
        Request::Update { key: self.key, condition: self.condition, return_old: false, operation }
    }
}
