//! Commands that make several requests. Which request comes next may depend on earlier answers.
//!
//! ```text
//!   next ─▶ Request ─▶ store ─▶ take (or fail, if it could not be sent) ─┐
//!    ▲                                                                   │ not over
//!    └───────────────────────────────────────────────────────────────────┤
//!                                                                        └─▶ over ─▶ write
//! ```

use crate::answered::Answered;
use crate::call::Call;
use crate::error::CommandError;
use crate::finish::FinishEachKey;
use crate::resp::ReplyWriter;
use crate::subscription::SubscriptionChange;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt::Debug;
use nicekv_client::Request;
use nicekv_client::transaction::Transaction;
use nicekv_proto::{KeyspaceId, OpId};

/// A command's next step.
#[derive(Debug)]
pub enum Next<'a> {
    /// It sends a request to a keyspace; the number identifies this part of the command.
    Request(KeyspaceId, u32, Request<'a>),
    /// It sends nothing until another answer has arrived.
    Wait,
    /// It sends nothing more. The command's arguments are no longer needed.
    Done,
}

/// How a finished command changes its connection, in addition to its reply.
#[derive(Debug)]
pub enum Effect {
    None,
    /// WATCH has read the versions of its keys; `None` if one of them could not be read.
    Watched(Option<Vec<OpId>>),
    /// The store has confirmed a change of subscriptions, or could not be reached.
    Subscribed(SubscriptionChange),
}

/// How a transaction replies to a command whose requests have become steps of the transaction.
#[derive(Debug)]
pub enum QueuedSteps {
    /// The command has one step for each of this many keys.
    EachKey(FinishEachKey, usize),
    /// The command is a script of this many steps.
    Script(usize),
}

/// A command that makes several requests, while it runs.
pub trait Continuation: Debug + Send {
    /// The next request. `call` is the call of the command.
    fn next<'a>(&'a mut self, call: &Call<'a>) -> Next<'a>;

    /// Processes the answer to a part. Returns true if the command is over.
    fn take(&mut self, part: u32, answered: Answered<'_>) -> bool;

    /// Called if a part could not be sent.
    fn fail(&mut self, part: u32, error: CommandError);

    /// Number of requests that are sent and not answered.
    fn in_flight(&self) -> usize;

    /// Whether several of the command's requests may read large values concurrently.
    fn reads_several(&self) -> bool {
        false
    }

    /// Whether the command may read a large value.
    fn wants_values(&self) -> bool {
        true
    }

    /// Whether the command is over.
    fn is_over(&self) -> bool;

    /// Writes the reply of a command that is over.
    fn write(self: Box<Self>, reply: &mut ReplyWriter<'_>) -> Effect;

    /// Heap bytes in use.
    fn memory(&self) -> usize;

    /// Adds the command's requests as steps to a transaction, instead of sending them. `None` if
    /// that is impossible; the command table keeps such commands out of transactions.
    fn queue(
        &self,
        _call: &Call<'_>,
        _transaction: &mut Transaction,
    ) -> Result<Option<QueuedSteps>, CommandError> {
        Ok(None)
    }
}
