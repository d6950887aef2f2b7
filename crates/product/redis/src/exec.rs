//! EXEC and scripts: all steps are sent as one request. Then large values that the results refer to
//! are read, and finally messages are published, one after the other. Neither happens if nothing
//! was applied or the outcome is unknown.
//!
//! ```text
//!   Apply ─▶ ReadLarge, all at once ─▶ Publish ─▶ Over
//!     ▲          │ a value was overwritten meanwhile, and nothing was changed
//!     └──────────┘
//! ```
//!
//! A node does not know how many clients a script's message will reach, nor whether the script's
//! user may publish it. So the script sees 0 as the result of PUBLISH, and messages to forbidden
//! channels are dropped here.

use crate::acl::User;
use crate::answered::Answered;
use crate::call::Call;
use crate::continuation::{Continuation, Effect, Next, QueuedSteps};
use crate::element::{Element, NextResult, QueuedCommands};
use crate::error::CommandError;
use crate::large_results::{LargeResults, without_reference};
use crate::message::Message;
use crate::resp::{Protocol, ReplyBuffer, ReplyWriter};
use crate::script_reply;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use nicekv_client::transaction::{Transaction, results};
use nicekv_client::{OperationError, Outcome, Request};
use nicekv_proto::KeyspaceId;

/// Maximum attempts of a transaction that only reads.
const TRIES_MAX: u32 = 16;

/// The connection for which a transaction or script runs.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) keyspace: KeyspaceId,
    pub(crate) protocol: Protocol,
    /// Time of the call.
    pub(crate) unix_ms: u64,
    /// `None`: the caller may publish to all channels.
    pub(crate) user: Option<Arc<User>>,
}

/// A running transaction or script.
#[derive(Debug)]
pub(crate) struct Exec {
    caller: Caller,
    /// It is a single script (not in a transaction), whose reply is the reply of the command.
    is_script: bool,
    stage: Stage,
    /// The request of this stage is in flight.
    is_sent: bool,
    tries: u32,
}

#[derive(Debug)]
enum Stage {
    Apply(QueuedCommands),
    ReadLarge(QueuedCommands, LargeResults),
    /// The number is the index of the next message; all pieces before it have their reply.
    Publish(Vec<Piece>, usize),
    Over(Result<Option<Vec<Piece>>, CommandError>),
}

/// The reply to a command, or the message whose result it will be.
#[derive(Debug)]
enum Piece {
    Ready(ReplyBuffer),
    Publish(Message),
    /// A message published by a script, which adds nothing to the reply; `None` once it is
    /// published.
    OfScript(Option<Message>),
}

impl Piece {
    fn message(&self) -> Option<&Message> {
        match self {
            Self::Publish(message) | Self::OfScript(Some(message)) => Some(message),
            Self::Ready(_) | Self::OfScript(None) => None,
        }
    }
}

impl Exec {
    /// Runs a script of this many steps.
    pub(crate) fn of_script(caller: Caller, transaction: Transaction, steps: usize) -> Self {
        let elements = vec![Element::Steps(QueuedSteps::Script(steps))];
        let commands = QueuedCommands { transaction, required: 0, elements };
        Self { is_script: true, ..Self::new(caller, commands) }
    }

    /// Runs a transaction, which has at least one step or message.
    pub(crate) fn new(caller: Caller, commands: QueuedCommands) -> Self {
        let stage = Stage::Over(Ok(None));
        let mut this = Self { caller, is_script: false, stage, is_sent: false, tries: 0 };
        this.stage = match commands.transaction.is_empty() {
            true => this.publish(commands.elements, core::iter::empty()),
            false => Stage::Apply(commands),
        };
        this
    }

    fn piece(&self, write: impl FnOnce(&mut ReplyWriter<'_>)) -> Piece {
        let mut out = ReplyBuffer::default();
        write(&mut ReplyWriter { out: &mut out, protocol: self.caller.protocol });
        Piece::Ready(out)
    }

    /// Processes the answer to all steps.
    fn applied(&self, commands: QueuedCommands, answered: Answered<'_>) -> Stage {
        let Answered { result, cause, .. } = answered;
        let answer = match result {
            Ok(answer) if answer.outcome == Outcome::ConditionFailed => return Stage::Over(Ok(None)),
            Ok(answer) => answer,
            Err(error) if self.is_script => {
                return Stage::Over(Err(CommandError::of_script(error, cause)));
            }
            Err(error) => return Stage::Over(Err(CommandError::of_transaction(error, cause))),
        };
        let QueuedCommands { transaction, required, elements } = &commands;
        match LargeResults::of(transaction, *required, elements, &answer) {
            Some(large) => Stage::ReadLarge(commands, large),
            None => {
                let results = results(&answer).skip(commands.required).map(without_reference);
                self.publish(commands.elements, results)
            }
        }
    }

    /// Called when all large values have been read.
    fn read(&mut self, commands: QueuedCommands, large: &LargeResults) -> Stage {
        self.tries += 1;
        if large.is_stale() && commands.only_reads() {
            return match self.tries < TRIES_MAX {
                true => Stage::Apply(commands),
                false => Stage::Over(Err(OperationError::Busy.into())),
            };
        }
        self.publish(commands.elements, large.each().skip(commands.required))
    }

    /// Makes the replies from the results of all steps; publishing comes next.
    fn publish<'a>(&self, elements: Vec<Element>, mut results: impl Iterator<Item = Answered<'a>>) -> Stage {
        // If the answer lacks a result, the node has not executed the step.
        let next: NextResult<'_, 'a> =
            &mut || results.next().unwrap_or_else(|| Err(OperationError::OutcomeUnknown).into());
        let mut pieces = Vec::with_capacity(elements.len());
        for element in elements {
            match element {
                Element::Publish(message) => pieces.push(Piece::Publish(message)),
                Element::Steps(QueuedSteps::Script(steps)) => {
                    let last = (0..steps).map(|_| next()).last();
                    let mut messages = Vec::new();
                    pieces.push(self.piece(|reply| messages = script_reply::write(last, reply)));
                    let user = self.caller.user.as_ref();
                    messages.retain(|message| {
                        user.is_none_or(|user| user.may_use_channel(&message.channel, false))
                    });
                    pieces.extend(messages.into_iter().map(|message| Piece::OfScript(Some(message))));
                }
                element => pieces.push(self.piece(|reply| element.write(next, self.caller.unix_ms, reply))),
            }
        }
        Self::next_message(pieces, 0)
    }

    fn next_message(pieces: Vec<Piece>, from: usize) -> Stage {
        let place = pieces[from..].iter().position(|piece| piece.message().is_some());
        match place {
            Some(place) => Stage::Publish(pieces, from + place),
            None => Stage::Over(Ok(Some(pieces))),
        }
    }

    fn published(&self, mut pieces: Vec<Piece>, at: usize, result: Result<i64, CommandError>) -> Stage {
        pieces[at] = match pieces[at] {
            Piece::Publish(_) => self.piece(|reply| match &result {
                Ok(count) => reply.integer(*count),
                Err(error) => reply.error(error.as_bytes()),
            }),
            Piece::Ready(_) | Piece::OfScript(_) => Piece::OfScript(None),
        };
        Self::next_message(pieces, at + 1)
    }

    fn take_stage(&mut self) -> Stage {
        self.is_sent = false;
        core::mem::replace(&mut self.stage, Stage::Over(Ok(None)))
    }
}

impl Continuation for Exec {
    fn next<'a>(&'a mut self, _: &Call<'a>) -> Next<'a> {
        let is_sent = core::mem::replace(&mut self.is_sent, true);
        let request = match &mut self.stage {
            Stage::Over(_) => return Next::Done,
            Stage::ReadLarge(_, large) => large.next(),
            _ if is_sent => None,
            Stage::Apply(commands) => commands.transaction.request().map(|request| (0, request)),
            Stage::Publish(pieces, at) => pieces[*at].message().map(|message| {
                let Message { channel, message } = message;
                (0, Request::Publish { channel, message })
            }),
        };
        match request {
            Some((part, request)) => Next::Request(self.caller.keyspace, part, request),
            None => Next::Wait,
        }
    }

    fn take(&mut self, part: u32, answered: Answered<'_>) -> bool {
        self.stage = match self.take_stage() {
            Stage::Apply(commands) => self.applied(commands, answered),
            Stage::ReadLarge(commands, mut large) => match large.take(part, answered) {
                true => self.read(commands, &large),
                false => Stage::ReadLarge(commands, large),
            },
            Stage::Publish(pieces, at) => {
                let result = answered.result.map(|answer| answer.integer);
                let result = result.map_err(|error| CommandError::of_operation(error, answered.cause));
                self.published(pieces, at, result)
            }
            over @ Stage::Over(_) => over,
        };
        self.is_over()
    }

    fn fail(&mut self, part: u32, error: CommandError) {
        self.stage = match self.take_stage() {
            Stage::Publish(pieces, at) => self.published(pieces, at, Err(error)),
            Stage::ReadLarge(commands, mut large) => {
                match large.take(part, Err(OperationError::Busy).into()) {
                    true => self.read(commands, &large),
                    false => Stage::ReadLarge(commands, large),
                }
            }
            _ => Stage::Over(Err(error)),
        };
    }

    fn in_flight(&self) -> usize {
        if let Stage::ReadLarge(_, large) = &self.stage { large.in_flight() } else { 1 }
    }

    fn reads_several(&self) -> bool {
        matches!(self.stage, Stage::ReadLarge(..))
    }

    fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over(_))
    }

    fn write(self: Box<Self>, reply: &mut ReplyWriter<'_>) -> Effect {
        match self.stage {
            Stage::Over(Ok(Some(pieces))) => {
                if !self.is_script {
                    let replies = pieces.iter().filter(|piece| !matches!(piece, Piece::OfScript(_)));
                    reply.array(replies.count());
                }
                for piece in pieces {
                    if let Piece::Ready(ready) = piece {
                        reply.out.append(ready);
                    }
                }
            }
            Stage::Over(Err(error)) => reply.error(error.as_bytes()),
            _ => reply.null_array(),
        }
        Effect::None
    }

    fn memory(&self) -> usize {
        let of_piece = |piece: &Piece| match piece {
            Piece::Ready(reply) => reply.own_bytes(),
            other => other.message().map_or(0, Message::memory),
        };
        let of_pieces = |pieces: &Vec<Piece>| {
            pieces.capacity() * size_of::<Piece>() + pieces.iter().map(of_piece).sum::<usize>()
        };
        match &self.stage {
            Stage::Apply(commands) => commands.memory(),
            Stage::ReadLarge(commands, large) => commands.memory() + large.memory(),
            Stage::Publish(pieces, _) | Stage::Over(Ok(Some(pieces))) => of_pieces(pieces),
            Stage::Over(_) => 0,
        }
    }

    fn queue(
        &self,
        _: &Call<'_>,
        transaction: &mut Transaction,
    ) -> Result<Option<QueuedSteps>, CommandError> {
        let Stage::Apply(commands) = &self.stage else { return Ok(None) };
        transaction.append(&commands.transaction)?;
        Ok(Some(QueuedSteps::Script(commands.transaction.len())))
    }
}
