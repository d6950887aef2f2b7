//! The commands of a transaction, and how each replies from the results of its steps.

use crate::answered::Answered;
use crate::continuation::QueuedSteps;
use crate::each_key::KeyReplies;
use crate::finish::Finish;
use crate::message::Message;
use crate::resp::{ReplyBuffer, ReplyWriter};
use alloc::vec::Vec;
use nicekv_client::transaction::Transaction;
use nicekv_proto::transaction::Act;

/// A command of a transaction.
#[derive(Debug)]
pub(crate) enum Element {
    /// It has no steps, and its reply is known.
    Ready(ReplyBuffer),
    One(Finish),
    Steps(QueuedSteps),
    /// It publishes a message after all steps.
    Publish(Message),
}

/// Returns the results of a transaction's steps, one after the other.
pub(crate) type NextResult<'n, 'a> = &'n mut dyn FnMut() -> Answered<'a>;

impl Element {
    pub(crate) fn memory(&self) -> usize {
        let beside = match self {
            Self::Ready(reply) => reply.own_bytes(),
            Self::Publish(message) => message.memory(),
            Self::One(_) | Self::Steps(_) => 0,
        };
        size_of::<Self>() + beside
    }

    /// For each of its steps, whether the command needs the value or only its length.
    pub(crate) fn wants(&self) -> impl Iterator<Item = bool> + use<> {
        let (wants, steps) = match self {
            Self::Ready(_) | Self::Publish(_) => (false, 0),
            Self::One(finish) => (finish.wants_value(), 1),
            Self::Steps(QueuedSteps::EachKey(finish, keys)) => (finish.wants_values(), *keys),
            Self::Steps(QueuedSteps::Script(steps)) => (false, *steps),
        };
        core::iter::repeat_n(wants, steps)
    }

    /// Writes the reply; takes as many results as the command has steps.
    pub(crate) fn write(self, next: NextResult<'_, '_>, unix_ms: u64, reply: &mut ReplyWriter<'_>) {
        match self {
            Self::Ready(ready) => reply.out.append(ready),
            Self::One(finish) => finish.write(next(), unix_ms, reply),
            Self::Steps(QueuedSteps::EachKey(finish, keys)) => {
                let mut replies = KeyReplies::new(finish, keys);
                for part in 0..keys {
                    replies.take(part, next());
                }
                replies.write(reply);
            }
            // `Exec` writes these replies itself.
            Self::Publish(_) | Self::Steps(QueuedSteps::Script(_)) => reply.error(b"ERR not executed"),
        }
    }
}

/// The commands of a transaction that is ready to run.
#[derive(Debug)]
pub(crate) struct QueuedCommands {
    pub(crate) transaction: Transaction,
    /// Number of first steps that check watched keys; they belong to no command.
    pub(crate) required: usize,
    pub(crate) elements: Vec<Element>,
}

impl QueuedCommands {
    /// Whether the transaction changes nothing.
    pub(crate) fn only_reads(&self) -> bool {
        self.transaction.steps().all(|step| matches!(step.act, Act::Require(_) | Act::Read))
    }

    pub(crate) fn memory(&self) -> usize {
        self.transaction.bytes() + self.elements.iter().map(Element::memory).sum::<usize>()
    }
}
