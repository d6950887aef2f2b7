//! EXEC, and scripts: all steps are taken as one request. What they have named is read then, and what is to be published is published last, one message after the other; neither if nothing was done, or
//! nobody knows.
//!
//! ```text
//!   takes ─▶ reads large values, all at once ─▶ publishes ─▶ over
//!     ▲                │ one was overwritten meanwhile, and nothing was changed
//!     └────────────────┘
//! ```
//!
//! Of what a script publishes nodes know neither who is told nor whether its user may: it is told 0, and what may not be is left out here.

use crate::answered::Answered;
use crate::asking::Asking;
use crate::caller::Caller;
use crate::error::CommandError;
use crate::message::Message;
use crate::named::{NamedValues, without_name};
use crate::reply::{Protocol, ReplyWriter};
use crate::rope::Rope;
use crate::scripting;
use crate::security::User;
use crate::transaction::{Element, Next, Steps};
use nicekv_client::transaction::{Transaction, results};
use nicekv_client::{OperationError, Outcome, Request};
use nicekv_proto::KeyspaceId;
use std::sync::Arc;

/// How often one that only reads begins at most.
const TRIES_MAX: u32 = 16;

/// See the module.
#[derive(Debug)]
pub(crate) struct Executing {
    keyspace: KeyspaceId,
    /// For replies that are made before the last one is known.
    protocol: Protocol,
    unix_ms: u64,
    /// Who publishes what scripts do; none: may publish to all channels.
    user: Option<Arc<User>>,
    /// There is one command, whose reply is that of all.
    is_script: bool,
    stage: Stage,
    /// Whether that is under way.
    is_asked: bool,
    tries: u32,
}

#[derive(Debug)]
enum Stage {
    Takes(Steps),
    Reads(Steps, NamedValues),
    /// All before this one have a reply.
    Publishes(Vec<Piece>, usize),
    Over(Result<Option<Vec<Piece>>, CommandError>),
}

/// The reply of a command, or what it depends on.
#[derive(Debug)]
enum Piece {
    Ready(Rope),
    Publish(Message),
    /// Of a script, or it was.
    Beside(Option<Message>),
}

impl Piece {
    fn message(&self) -> Option<&Message> {
        match self {
            Self::Publish(message) | Self::Beside(Some(message)) => Some(message),
            Self::Ready(_) | Self::Beside(None) => None,
        }
    }
}

impl Executing {
    /// A script, which has so many steps.
    pub(crate) fn of_script(caller: Caller, transaction: Transaction, steps: usize) -> Self {
        let elements = vec![Element::Script(steps)];
        Self { is_script: true, ..Self::new(caller, Steps { transaction, required: 0, elements }) }
    }

    /// A transaction, or at least a message.
    pub(crate) fn new(caller: Caller, steps: Steps) -> Self {
        let Caller { keyspace, protocol, unix_ms, user } = caller;
        let (is_script, is_asked, tries) = (false, false, 0);
        let stage = Stage::Over(Ok(None));
        let mut this = Self { keyspace, protocol, unix_ms, user, is_script, stage, is_asked, tries };
        this.stage = match steps.transaction.is_empty() {
            true => this.publishes(steps.elements, std::iter::empty()),
            false => Stage::Takes(steps),
        };
        this
    }

    fn piece(&self, write: impl FnOnce(&mut ReplyWriter<'_>)) -> Piece {
        let mut out = Rope::default();
        write(&mut ReplyWriter { out: &mut out, protocol: self.protocol });
        Piece::Ready(out)
    }

    /// An answer to all steps.
    fn taken(&self, steps: Steps, answered: Answered<'_>) -> Stage {
        let answer = match answered.result {
            Ok(answer) if answer.outcome == Outcome::ConditionFailed => return Stage::Over(Ok(None)),
            Ok(answer) => answer,
            Err(error) if self.is_script => return Stage::Over(Err(CommandError::of_script(error))),
            Err(error) => return Stage::Over(Err(CommandError::of_transaction(error))),
        };
        let Steps { transaction, required, elements } = &steps;
        match NamedValues::of(transaction, *required, elements, &answer) {
            Some(named) => Stage::Reads(steps, named),
            None => {
                let results = results(&answer).skip(steps.required).map(without_name);
                self.publishes(steps.elements, results)
            }
        }
    }

    /// All large values were read.
    fn read(&mut self, steps: Steps, named: &NamedValues) -> Stage {
        self.tries += 1;
        if named.is_stale() && steps.only_read() {
            return match self.tries < TRIES_MAX {
                true => Stage::Takes(steps),
                false => Stage::Over(Err(OperationError::Busy.into())),
            };
        }
        self.publishes(steps.elements, named.each().skip(steps.required))
    }

    /// The replies of all that was taken; the messages are next.
    fn publishes<'a>(
        &self,
        elements: Vec<Element>,
        mut results: impl Iterator<Item = Answered<'a>>,
    ) -> Stage {
        // What a node has left out was not taken.
        let next: Next<'_, 'a> =
            &mut || results.next().unwrap_or_else(|| Err(OperationError::OutcomeUnknown).into());
        let mut pieces = Vec::with_capacity(elements.len());
        for element in elements {
            match element {
                Element::Publish(message) => pieces.push(Piece::Publish(message)),
                Element::Script(steps) => {
                    let last = (0..steps).map(|_| next().result).last();
                    let mut messages = Vec::new();
                    pieces.push(self.piece(|reply| messages = scripting::write(last, reply)));
                    let may = |message: &Message| {
                        self.user.as_ref().is_none_or(|user| user.may_channel(&message.channel, false))
                    };
                    pieces
                        .extend(messages.into_iter().filter(may).map(|message| Piece::Beside(Some(message))));
                }
                element => pieces.push(self.piece(|reply| element.write(next, self.unix_ms, reply))),
            }
        }
        Self::go_on(pieces, 0)
    }

    fn go_on(pieces: Vec<Piece>, from: usize) -> Stage {
        let place = pieces[from..].iter().position(|piece| piece.message().is_some());
        match place {
            Some(place) => Stage::Publishes(pieces, from + place),
            None => Stage::Over(Ok(Some(pieces))),
        }
    }

    fn told(&self, mut pieces: Vec<Piece>, at: usize, told: Result<i64, CommandError>) -> Stage {
        pieces[at] = match pieces[at] {
            Piece::Publish(_) => self.piece(|reply| match &told {
                Ok(count) => reply.integer(*count),
                Err(error) => reply.error(error.as_bytes()),
            }),
            Piece::Ready(_) | Piece::Beside(_) => Piece::Beside(None),
        };
        Self::go_on(pieces, at + 1)
    }

    fn take_stage(&mut self) -> Stage {
        self.is_asked = false;
        std::mem::replace(&mut self.stage, Stage::Over(Ok(None)))
    }
}

impl Asking for Executing {
    fn next(&mut self) -> Option<(KeyspaceId, u32, Request<'_>)> {
        let is_asked = std::mem::replace(&mut self.is_asked, true);
        let (part, request) = match &mut self.stage {
            Stage::Reads(_, named) => named.next()?,
            _ if is_asked => return None,
            Stage::Takes(steps) => (0, steps.transaction.request()?),
            Stage::Publishes(pieces, at) => {
                let Message { channel, message } = pieces[*at].message()?;
                (0, Request::Publish { channel, message })
            }
            Stage::Over(_) => return None,
        };
        Some((self.keyspace, part, request))
    }

    fn take(&mut self, part: u32, answered: Answered<'_>) -> bool {
        self.stage = match self.take_stage() {
            Stage::Takes(steps) => self.taken(steps, answered),
            Stage::Reads(steps, mut named) => match named.take(part, answered) {
                true => self.read(steps, &named),
                false => Stage::Reads(steps, named),
            },
            Stage::Publishes(pieces, at) => {
                let told = answered.result.map(|answer| answer.integer).map_err(CommandError::from);
                self.told(pieces, at, told)
            }
            over @ Stage::Over(_) => over,
        };
        self.is_over()
    }

    fn fail(&mut self, part: u32, error: CommandError) {
        self.stage = match self.take_stage() {
            Stage::Publishes(pieces, at) => self.told(pieces, at, Err(error)),
            Stage::Reads(steps, mut named) => match named.take(part, Err(OperationError::Busy).into()) {
                true => self.read(steps, &named),
                false => Stage::Reads(steps, named),
            },
            _ => Stage::Over(Err(error)),
        };
    }

    fn reading(&self) -> Option<usize> {
        if let Stage::Reads(_, named) = &self.stage { Some(named.under_way()) } else { None }
    }

    fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over(_))
    }

    fn write(self: Box<Self>, reply: &mut ReplyWriter<'_>) {
        match self.stage {
            Stage::Over(Ok(Some(pieces))) => {
                if !self.is_script {
                    let count = pieces.iter().filter(|piece| !matches!(piece, Piece::Beside(_))).count();
                    reply.array(count);
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
            Stage::Takes(steps) => steps.memory(),
            Stage::Reads(steps, named) => steps.memory() + named.memory(),
            Stage::Publishes(pieces, _) | Stage::Over(Ok(Some(pieces))) => of_pieces(pieces),
            Stage::Over(_) => 0,
        }
    }
}
