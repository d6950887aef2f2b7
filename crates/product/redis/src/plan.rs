//! What is to be done for a command.

use crate::continuation::Continuation;
use crate::finish::Finish;
use crate::subscription::SubscriptionRequest;
use alloc::boxed::Box;
use alloc::vec::Vec;
use nicekv_client::Request;
use nicekv_client::transaction::Transaction;
use nicekv_proto::{Condition, Expiry, Operation};

/// What is to be done for a command.
#[derive(Debug)]
pub enum Plan<'a> {
    /// The handler has written the reply.
    Replied,
    /// The handler has written the reply, and the connection is closed behind it.
    Close,
    /// One request.
    Request(PlannedRequest<'a>, Finish),
    /// Several requests.
    Continue(Box<dyn Continuation>),
    /// Change what the connection is subscribed to.
    Subscribe(SubscriptionRequest),
}

impl<'a> Plan<'a> {
    /// One request made of the arguments.
    pub fn request(request: Request<'a>, finish: Finish) -> Self {
        Self::Request(PlannedRequest::Arguments(request), finish)
    }
}

/// A request, with the bytes that were made for it.
#[derive(Debug)]
pub enum PlannedRequest<'a> {
    /// All of it is in the command's arguments.
    Arguments(Request<'a>),
    /// An update whose bytes are no argument.
    Built(BuiltUpdate<'a>),
    /// All steps or none.
    Transaction(Transaction),
}

/// An update of one key.
#[derive(Debug)]
pub struct BuiltUpdate<'a> {
    pub key: &'a [u8],
    pub condition: Condition,
    pub bytes: Vec<u8>,
    pub operation: BuiltOperation,
}

/// What an update does with the bytes that were made for it.
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
