//! Commands that make several requests: which one comes next may depend on the answers.
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

/// What a command asks for next.
#[derive(Debug)]
pub enum Next<'a> {
    /// A request to a keyspace, as this part of the command.
    Request(KeyspaceId, u32, Request<'a>),
    /// Nothing before another answer has come.
    Wait,
    /// Nothing more. The command's arguments are no longer needed.
    Done,
}

/// How a finished command changes its connection, beside the reply.
#[derive(Debug)]
pub enum Effect {
    None,
    /// WATCH has read the versions of its keys; `None` if one could not be read.
    Watched(Option<Vec<OpId>>),
    /// The store has confirmed a change of subscriptions, or could not be told.
    Subscribed(SubscriptionChange),
}

/// How a transaction replies to a command whose requests are its steps.
#[derive(Debug)]
pub enum QueuedSteps {
    /// One step for each of this many keys.
    EachKey(FinishEachKey, usize),
    /// A script of this many steps.
    Script(usize),
}

/// A command that makes several requests.
pub trait Continuation: Debug + Send {
    /// The next request. `call` is the command itself.
    fn next<'a>(&'a mut self, call: &Call<'a>) -> Next<'a>;

    /// Takes the answer to a part; true if the command is over.
    fn take(&mut self, part: u32, answered: Answered<'_>) -> bool;

    /// A part could not be sent.
    fn fail(&mut self, part: u32, error: CommandError);

    /// Requests sent and not answered.
    fn in_flight(&self) -> usize;

    /// Whether several of its requests may read large values at the same time.
    fn reads_several(&self) -> bool {
        false
    }

    /// Whether it may need a large value.
    fn wants_values(&self) -> bool {
        true
    }

    /// Whether it waits for nothing more.
    fn is_over(&self) -> bool;

    /// Writes the reply of a command that is over.
    fn write(self: Box<Self>, reply: &mut ReplyWriter<'_>) -> Effect;

    /// Bytes it occupies, without itself.
    fn memory(&self) -> usize;

    /// Adds its requests to a transaction instead of making them. `None` if it cannot be a part of
    /// one; the table keeps such commands out.
    fn queue(
        &self,
        _call: &Call<'_>,
        _transaction: &mut Transaction,
    ) -> Result<Option<QueuedSteps>, CommandError> {
        Ok(None)
    }
}
