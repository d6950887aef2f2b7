//! MULTI … EXEC of a connection, and what it watches.
//!
//! ```text
//!             MULTI                  EXEC ─▶ all commands as one request, if what is watched is as it was
//!   Nothing ─────────▶ Queueing ────▶ Nothing
//!     │ WATCH            │ DISCARD
//!     ▼                  ▼
//!   versions of keys   forgotten, as by UNWATCH
//! ```
//!
//! A command is planned when it is queued: its requests become steps of the transaction at once, so that what is kept of a queue has the length of one message at most. What one command has wrong at
//! that time (it does not exist, has too few arguments, or is not allowed to the user) refuses all of the transaction, as in Redis; and so does one that has no room left, or is none for a transaction.
//! What comes of them, [`Executing`](crate::executing::Executing) sees to.
//! Users may change before EXEC, which asks again, and does nothing if one command is not allowed any more.

use crate::answered::Answered;
use crate::error::CommandError;
use crate::gathering::{FinishMany, Gathering};
use crate::message::Message;
use crate::plan::{Call, Finish, Plan};
use crate::reply::ReplyWriter;
use crate::rope::Rope;
use crate::security::{Refusal, User};
use nicekv_client::Request;
use nicekv_client::transaction::Transaction;
use nicekv_proto::transaction::Act;
use nicekv_proto::{Condition, KeyspaceId, OpId};

/// Most commands that are queued, and bytes of replies that they have already.
const COMMANDS_MAX: usize = 8_192;
const READY_BYTES_MAX: usize = 64 << 10;
/// Most keys that are watched: each is a step of the transaction.
const WATCHED_MAX: usize = 1_024;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Multi {
    watched: Watched,
    queue: Option<Queue>,
}

/// Keys whose versions were read, or are being read.
#[derive(Debug, Default)]
struct Watched {
    keyspace: KeyspaceId,
    keys: Vec<Box<[u8]>>,
    versions: Vec<OpId>,
    /// A version could not be read: it counts as another one than at EXEC.
    is_lost: bool,
}

#[derive(Debug, Default)]
struct Queue {
    transaction: Transaction,
    elements: Vec<Element>,
    /// What each of the elements takes.
    asked: Vec<Asked>,
    ready_bytes: usize,
    is_refused: bool,
}

/// What a command needs a right to, beside the keys of its steps.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// Number of the subject.
    subject: usize,
    has_get: bool,
    steps: usize,
}

/// The reply of one command of a transaction.
#[derive(Debug)]
pub(crate) enum Element {
    /// It has no requests.
    Ready(Rope),
    One(Finish),
    Many(FinishMany, usize),
    /// Of a script, which has so many steps.
    Script(usize),
    /// What is published when all else was taken.
    Publish(Message),
}

/// The results of a transaction's steps, one after the other.
pub(crate) type Next<'n, 'a> = &'n mut dyn FnMut() -> Answered<'a>;

impl Element {
    /// Bytes that it occupies.
    pub(crate) fn memory(&self) -> usize {
        let beside = match self {
            Self::Ready(reply) => reply.own_bytes(),
            Self::Publish(message) => message.memory(),
            Self::One(_) | Self::Many(..) | Self::Script(_) => 0,
        };
        size_of::<Self>() + beside
    }

    /// Of each of its steps, whether it wants the value, and not only how long that is.
    pub(crate) fn wants(&self) -> impl Iterator<Item = bool> + use<> {
        let (wants, steps) = match self {
            Self::Ready(_) | Self::Publish(_) => (false, 0),
            Self::One(finish) => (finish.wants_value(), 1),
            Self::Many(finish, requests) => (finish.wants_values(), *requests),
            Self::Script(steps) => (false, *steps),
        };
        std::iter::repeat_n(wants, steps)
    }

    /// Replies by as many results as it has steps.
    pub(crate) fn write(self, next: Next<'_, '_>, unix_ms: u64, reply: &mut ReplyWriter<'_>) {
        match self {
            Self::Ready(ready) => reply.out.append(ready),
            Self::One(finish) => finish.write(next(), unix_ms, reply),
            Self::Many(finish, requests) => {
                let mut gathering = Gathering::new(finish, requests);
                for part in 0..requests {
                    gathering.take(part, next());
                }
                gathering.write(reply);
            }
            // Whoever takes the others sees to these.
            Self::Publish(_) | Self::Script(_) => reply.error(b"ERR not executed"),
        }
    }
}

/// What EXEC has.
#[derive(Debug)]
pub(crate) enum Execution {
    /// A reply.
    Ready(Rope),
    /// What is to be done.
    Steps(Steps),
}

/// The commands of a transaction.
#[derive(Debug)]
pub(crate) struct Steps {
    pub(crate) transaction: Transaction,
    /// The first ones, which are no command's.
    pub(crate) required: usize,
    pub(crate) elements: Vec<Element>,
}

impl Steps {
    /// Whether they change nothing.
    pub(crate) fn only_read(&self) -> bool {
        self.transaction.steps().all(|step| matches!(step.act, Act::Require(_) | Act::Read))
    }

    pub(crate) fn memory(&self) -> usize {
        self.transaction.bytes() + self.elements.iter().map(Element::memory).sum::<usize>()
    }
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
    pub(crate) fn is_queueing(&self) -> bool {
        self.queue.is_some()
    }

    /// How many commands are queued, if MULTI has begun.
    pub(crate) fn queued(&self) -> Option<usize> {
        self.queue.as_ref().map(|queue| queue.elements.len())
    }

    /// Bytes that it occupies beside itself, about.
    pub(crate) fn memory(&self) -> usize {
        let keys: usize =
            self.watched.keys.iter().map(|key| key.len() + size_of::<(Box<[u8]>, OpId)>()).sum();
        let queued = self.queue.as_ref().map_or(0, Queue::memory);
        keys + queued
    }

    /// Ends it without executing anything.
    pub(crate) fn discard(&mut self) -> Result<(), CommandError> {
        self.queue.take().ok_or(CommandError::fixed("ERR DISCARD without MULTI"))?;
        self.unwatch();
        Ok(())
    }

    pub(crate) fn unwatch(&mut self) {
        self.watched = Watched::default();
    }

    pub(crate) fn end(&mut self) {
        *self = Self::default();
    }

    /// The versions of these keys are going to be read.
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

    /// They were; none: not all of them.
    pub(crate) fn watched(&mut self, versions: Option<Vec<OpId>>) {
        match versions {
            Some(versions) => self.watched.versions.extend(versions),
            None => self.watched.is_lost = true,
        }
    }

    /// Something is wrong with a command: EXEC will refuse all of them, and if it was EXEC itself they are gone. What is said of it.
    pub(crate) fn fail(&mut self, is_exec: bool, error: CommandError) -> CommandError {
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

    /// Whether a user may do all that is queued.
    pub(crate) fn check<'a>(&'a self, user: &User) -> Result<(), Refusal<'a>> {
        let Some(queue) = &self.queue else { return Ok(()) };
        let mut keys = queue.transaction.keys();
        queue.asked.iter().zip(&queue.elements).try_for_each(
            |(Asked { subject, has_get, steps }, element)| {
                user.check(*subject, keys.by_ref().take(*steps), *has_get)?;
                match element {
                    Element::Publish(Message { channel, .. }) if !user.may_channel(channel, false) => {
                        Err(Refusal::Channel(channel))
                    }
                    _ => Ok(()),
                }
            },
        )
    }

    /// Queues a command that asks for a right to this subject, and to GET of it; `written`: its reply, if it has one already.
    pub(crate) fn queue(
        &mut self,
        (subject, has_get): (usize, bool),
        call: &Call<'_>,
        planned: Result<Plan<'_>, CommandError>,
        written: Rope,
        error: impl FnOnce(&CommandError) -> Rope,
    ) -> Result<(), CommandError> {
        let Some(queue) = self.queue.as_mut().filter(|queue| !queue.is_refused) else { return Ok(()) };
        let before = queue.transaction.len();
        let element = match planned {
            Ok(Plan::One(Request::Publish { channel, message }, _)) => {
                Element::Publish(Message { channel: channel.into(), message: message.into() })
            }
            Ok(Plan::One(request, finish)) => {
                queue.transaction.add(&request)?;
                Element::One(finish)
            }
            Ok(Plan::Made(made, finish)) => {
                queue.transaction.add(&made.request())?;
                Element::One(finish)
            }
            Ok(Plan::Put(put, finish)) => {
                queue.transaction.add(&put.request())?;
                Element::One(finish)
            }
            Ok(Plan::Many(many)) => {
                for key in &many.keys {
                    queue.transaction.add(&(many.request)(call, *key as usize))?;
                }
                Element::Many(many.finish, many.keys.len())
            }
            Ok(Plan::Script(script, steps)) => {
                queue.transaction.append(&script)?;
                Element::Script(steps)
            }
            Ok(_) => Element::Ready(written),
            // Redis tells that when the command is executed.
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
        queue.asked.push(Asked { subject, has_get, steps: queue.transaction.len() - before });
        Ok(())
    }

    /// EXEC: what was queued, of which nothing is left.
    pub(crate) fn execute(
        &mut self,
        keyspace: KeyspaceId,
        reply: impl FnOnce(&mut dyn FnMut(&mut ReplyWriter<'_>)) -> Rope,
    ) -> Result<Execution, CommandError> {
        let Some(queue) = self.queue.take() else {
            return Err(CommandError::fixed("ERR EXEC without MULTI"));
        };
        let Watched { keyspace: of, keys, versions, is_lost } = std::mem::take(&mut self.watched);
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
                for element in std::mem::take(&mut elements) {
                    if let Element::Ready(ready) = element {
                        reply.out.append(ready);
                    }
                }
            };
            return Ok(Execution::Ready(reply(write)));
        }
        Ok(Execution::Steps(Steps { transaction, required, elements }))
    }
}

impl Queue {
    fn memory(&self) -> usize {
        let bytes = size_of::<Element>() + size_of::<Asked>();
        self.elements.capacity().max(self.asked.capacity()) * bytes
            + self.ready_bytes
            + self.transaction.bytes()
    }
}
