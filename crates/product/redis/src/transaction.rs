//! MULTI … EXEC of a connection, and the keys that it watches.
//!
//! ```text
//!             MULTI                  EXEC ─▶ all commands as one request, if watched keys are unchanged
//!   Nothing ─────────▶ Queueing ────▶ Nothing
//!     │ WATCH            │ DISCARD
//!     ▼                  ▼
//!   versions of keys   forgotten, as by UNWATCH
//! ```
//!
//! A command is planned when it is queued, and its requests become steps of the transaction at
//! once: a queue is never longer than one message. An error at that time (an unknown command, too
//! few arguments, no permission, no room, a command that is not allowed in transactions) makes EXEC
//! refuse the whole transaction, as in Redis. [`Exec`](crate::exec) runs the transaction. EXEC
//! checks permissions again, because users may have changed.

use crate::acl::{Refusal, User};
use crate::call::Call;
use crate::element::{Element, QueuedCommands};
use crate::error::CommandError;
use crate::message::Message;
use crate::plan::{Plan, PlannedRequest};
use crate::resp::{ReplyBuffer, ReplyWriter};
use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;
use nicekv_client::Request;
use nicekv_client::transaction::Transaction;
use nicekv_proto::{Condition, KeyspaceId, OpId};

/// Maximum number of commands of a transaction, and maximum bytes of replies that are known when
/// their commands are queued.
const COMMANDS_MAX: usize = 8_192;
const READY_BYTES_MAX: usize = 64 << 10;
/// Maximum number of watched keys; each is a step of the transaction.
const WATCHED_MAX: usize = 1_024;

#[derive(Debug, Default)]
pub struct Multi {
    watched: Watched,
    queue: Option<Queue>,
}

/// Watched keys, whose versions have been read or are being read.
#[derive(Debug, Default)]
struct Watched {
    keyspace: KeyspaceId,
    keys: Vec<Box<[u8]>>,
    versions: Vec<OpId>,
    /// A version could not be read: EXEC treats the key as changed.
    is_lost: bool,
}

#[derive(Debug, Default)]
struct Queue {
    transaction: Transaction,
    elements: Vec<Element>,
    /// The permissions that each element needs.
    needed: Vec<NeededRights>,
    ready_bytes: usize,
    is_refused: bool,
}

/// The permissions that a command needs, in addition to those on the keys of its steps.
#[derive(Clone, Copy, Debug)]
struct NeededRights {
    /// The subject's number in the table.
    subject: usize,
    has_get: bool,
    steps: usize,
}

/// The work of EXEC.
#[derive(Debug)]
pub(crate) enum Execution {
    /// Nothing to run: the reply is known.
    Ready(ReplyBuffer),
    Commands(QueuedCommands),
}

impl Multi {
    pub(crate) fn begin(&mut self) -> Result<(), CommandError> {
        if self.queue.is_some() {
            return Err(CommandError::fixed("ERR MULTI calls can not be nested"));
        }
        self.queue = Some(Queue::default());
        Ok(())
    }

    /// Whether MULTI has begun.
    pub fn is_queueing(&self) -> bool {
        self.queue.is_some()
    }

    /// Number of queued commands, if MULTI has begun.
    pub fn queued(&self) -> Option<usize> {
        self.queue.as_ref().map(|queue| queue.elements.len())
    }

    /// Approximate heap bytes in use.
    pub fn memory(&self) -> usize {
        let keys: usize =
            self.watched.keys.iter().map(|key| key.len() + size_of::<(Box<[u8]>, OpId)>()).sum();
        let queued = self.queue.as_ref().map_or(0, Queue::memory);
        keys + queued
    }

    /// DISCARD: forgets the queue.
    pub(crate) fn discard(&mut self) -> Result<(), CommandError> {
        self.queue.take().ok_or(CommandError::fixed("ERR DISCARD without MULTI"))?;
        self.unwatch();
        Ok(())
    }

    pub(crate) fn unwatch(&mut self) {
        self.watched = Watched::default();
    }

    pub fn end(&mut self) {
        *self = Self::default();
    }

    /// WATCH: notes keys whose versions are about to be read.
    pub(crate) fn watch<'a>(
        &mut self,
        keyspace: KeyspaceId,
        keys: impl Iterator<Item = &'a [u8]>,
    ) -> Result<(), CommandError> {
        let watched = &mut self.watched;
        if !watched.keys.is_empty() && watched.keyspace != keyspace {
            return Err(CommandError::fixed("ERR keys of another database are watched already"));
        }
        let keys: Vec<_> = keys.map(Box::from).collect();
        if watched.keys.len() + keys.len() > WATCHED_MAX {
            return Err(CommandError::text(format!("ERR more than {WATCHED_MAX} keys are watched")));
        }
        watched.keyspace = keyspace;
        watched.keys.extend(keys);
        Ok(())
    }

    /// Stores the versions that were read; `None`: some could not be read.
    pub fn set_watched(&mut self, versions: Option<Vec<OpId>>) {
        match versions {
            Some(versions) => self.watched.versions.extend(versions),
            None => self.watched.is_lost = true,
        }
    }

    /// A command was refused, so EXEC will refuse the transaction; if it was EXEC itself, the
    /// transaction is forgotten. Returns the error to reply with.
    pub fn fail(&mut self, is_exec: bool, error: CommandError) -> CommandError {
        if is_exec {
            self.end();
            let because = error.as_bytes();
            let because = because.strip_prefix(b"ERR ").unwrap_or(because);
            return CommandError::bytes([b"EXECABORT Transaction discarded because of: ", because].concat());
        }
        if let Some(queue) = &mut self.queue {
            *queue = Queue { is_refused: true, ..Queue::default() };
        }
        error
    }

    /// Checks that a user may run all queued commands.
    pub fn check<'a>(&'a self, user: &User) -> Result<(), Refusal<'a>> {
        let Some(queue) = &self.queue else { return Ok(()) };
        let mut keys = queue.transaction.keys();
        queue.needed.iter().zip(&queue.elements).try_for_each(
            |(NeededRights { subject, has_get, steps }, element)| {
                user.check(*subject, keys.by_ref().take(*steps), *has_get)?;
                match element {
                    Element::Publish(Message { channel, .. }) if !user.may_use_channel(channel, false) => {
                        Err(Refusal::Channel(channel))
                    }
                    _ => Ok(()),
                }
            },
        )
    }

    /// Queues a command. `subject` and `has_get` are the permissions that it needs; `written` is
    /// its reply, if that is known.
    pub fn queue(
        &mut self,
        (subject, has_get): (usize, bool),
        call: &Call<'_>,
        planned: Result<Plan<'_>, CommandError>,
        written: ReplyBuffer,
        error: impl FnOnce(&CommandError) -> ReplyBuffer,
    ) -> Result<(), CommandError> {
        let Some(queue) = self.queue.as_mut().filter(|queue| !queue.is_refused) else { return Ok(()) };
        let before = queue.transaction.len();
        let element = match planned {
            Ok(Plan::Request(PlannedRequest::Arguments(Request::Publish { channel, message }), _)) => {
                Element::Publish(Message { channel: channel.into(), message: message.into() })
            }
            Ok(Plan::Request(request, finish)) => {
                queue.transaction.add(&request.request())?;
                Element::One(finish)
            }
            Ok(Plan::Continue(continuation)) => {
                let steps = continuation.queue(call, &mut queue.transaction)?;
                steps.map_or(Element::Ready(written), Element::Steps)
            }
            Ok(Plan::Replied | Plan::Close | Plan::Subscribe(_)) => Element::Ready(written),
            // As in Redis, such an error is the command's reply when the transaction is executed.
            Err(refused) => Element::Ready(error(&refused)),
        };
        queue.ready_bytes += match &element {
            Element::Ready(reply) => reply.len(),
            Element::Publish(message) => message.memory(),
            _ => 0,
        };
        if queue.elements.len() == COMMANDS_MAX || queue.ready_bytes > READY_BYTES_MAX {
            return Err(CommandError::text(format!("ERR transaction of more than {COMMANDS_MAX} commands")));
        }
        queue.elements.push(element);
        queue.needed.push(NeededRights { subject, has_get, steps: queue.transaction.len() - before });
        Ok(())
    }

    /// EXEC: takes the queued commands.
    pub(crate) fn execute(
        &mut self,
        keyspace: KeyspaceId,
        reply: impl FnOnce(&mut dyn FnMut(&mut ReplyWriter<'_>)) -> ReplyBuffer,
    ) -> Result<Execution, CommandError> {
        let Some(queue) = self.queue.take() else {
            return Err(CommandError::fixed("ERR EXEC without MULTI"));
        };
        let Watched { keyspace: of, keys, versions, is_lost } = core::mem::take(&mut self.watched);
        if queue.is_refused {
            return Err(CommandError::fixed("EXECABORT Transaction discarded because of previous errors."));
        }
        if is_lost || versions.len() < keys.len() {
            return Ok(Execution::Ready(reply(&mut |reply| reply.null_array())));
        }
        if !keys.is_empty() && of != keyspace {
            return Err(CommandError::fixed("EXECABORT keys of another database are watched"));
        }
        let mut transaction = Transaction::default();
        for (key, version) in keys.iter().zip(&versions) {
            transaction.require(key, Condition::IfVersion(*version))?;
        }
        let required = transaction.len();
        transaction.append(&queue.transaction)?;
        let mut elements = queue.elements;
        let publishes = elements.iter().any(|element| matches!(element, Element::Publish(_)));
        if transaction.is_empty() && !publishes {
            let write = &mut |reply: &mut ReplyWriter<'_>| {
                reply.array(elements.len());
                for element in core::mem::take(&mut elements) {
                    if let Element::Ready(ready) = element {
                        reply.out.append(ready);
                    }
                }
            };
            return Ok(Execution::Ready(reply(write)));
        }
        Ok(Execution::Commands(QueuedCommands { transaction, required, elements }))
    }
}

impl Queue {
    fn memory(&self) -> usize {
        let bytes = size_of::<Element>() + size_of::<NeededRights>();
        self.elements.capacity().max(self.needed.capacity()) * bytes
            + self.ready_bytes
            + self.transaction.bytes()
    }
}
