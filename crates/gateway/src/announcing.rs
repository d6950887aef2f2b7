//! EXEC of a transaction with messages, and scripts, which may have some: they are published one after the other when all else was taken, and not at all if nothing was, or nobody
//! knows. Of what a script publishes nodes know neither who is told nor whether its user may: it is told 0, and what may not be is left out here.

use crate::answered::Answered;
use crate::asking::Asking;
use crate::caller::Caller;
use crate::error::CommandError;
use crate::message::Message;
use crate::reply::{Protocol, ReplyWriter};
use crate::rope::Rope;
use crate::scripting;
use crate::security::User;
use crate::transaction::{Element, Next};
use nicekv_client::transaction::{Transaction, results};
use nicekv_client::{OperationError, Outcome, Request};
use nicekv_wire::KeyspaceId;
use std::sync::Arc;

/// See the module.
#[derive(Debug)]
pub(crate) struct Announcing {
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
}

#[derive(Debug)]
enum Stage {
    Takes {
        transaction: Transaction,
        /// Steps that are no command's.
        required: usize,
        elements: Vec<Element>,
    },
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

impl Announcing {
    /// A script, which has so many steps.
    pub(crate) fn of_script(caller: Caller, transaction: Transaction, steps: usize) -> Self {
        Self { is_script: true, ..Self::new(caller, (transaction, 0), vec![Element::Script(steps)]) }
    }

    /// A transaction, whose first steps are no command's.
    pub(crate) fn new(
        caller: Caller,
        (transaction, required): (Transaction, usize),
        elements: Vec<Element>,
    ) -> Self {
        let Caller { keyspace, protocol, unix_ms, user } = caller;
        let stage = Stage::Takes { transaction, required, elements };
        let (is_script, is_asked) = (false, false);
        let mut this = Self { keyspace, protocol, unix_ms, user, is_script, stage, is_asked };
        if let Stage::Takes { transaction, elements, .. } = &mut this.stage
            && transaction.is_empty()
        {
            let elements = std::mem::take(elements);
            this.stage = this.publishes(elements, &mut || Err(OperationError::OutcomeUnknown));
        }
        this
    }

    fn piece(&self, write: impl FnOnce(&mut ReplyWriter<'_>)) -> Piece {
        let mut out = Rope::default();
        write(&mut ReplyWriter { out: &mut out, protocol: self.protocol });
        Piece::Ready(out)
    }

    /// The replies of all that was taken; the messages are next.
    fn publishes<'a>(&self, elements: Vec<Element>, next: Next<'_, 'a>) -> Stage {
        let mut pieces = Vec::with_capacity(elements.len());
        for element in elements {
            match element {
                Element::Publish(message) => pieces.push(Piece::Publish(message)),
                Element::Script(steps) => {
                    let last = (0..steps).map(|_| next()).last();
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

impl Asking for Announcing {
    fn next(&mut self) -> Option<(KeyspaceId, u32, Request<'_>)> {
        if self.is_over() || std::mem::replace(&mut self.is_asked, true) {
            return None;
        }
        let request = match &self.stage {
            Stage::Takes { transaction, .. } => transaction.request()?,
            Stage::Publishes(pieces, at) => {
                let Message { channel, message } = pieces[*at].message()?;
                Request::Publish { channel, message }
            }
            Stage::Over(_) => return None,
        };
        Some((self.keyspace, 0, request))
    }

    fn take(&mut self, _: u32, answered: Answered<'_>) -> bool {
        let stage = self.take_stage();
        self.stage = match (stage, answered.result) {
            (Stage::Takes { .. }, Err(error)) => Stage::Over(Err(if self.is_script {
                CommandError::of_script(error)
            } else {
                CommandError::of_transaction(error)
            })),
            (Stage::Takes { .. }, Ok(answer)) if answer.outcome == Outcome::ConditionFailed => {
                Stage::Over(Ok(None))
            }
            (Stage::Takes { required, elements, .. }, Ok(answer)) => {
                let mut results = results(&answer).skip(required);
                let mut next = || results.next().unwrap_or(Err(OperationError::OutcomeUnknown));
                self.publishes(elements, &mut next)
            }
            (Stage::Publishes(pieces, at), result) => {
                self.told(pieces, at, result.map(|answer| answer.integer).map_err(CommandError::from))
            }
            (over @ Stage::Over(_), _) => over,
        };
        self.is_over()
    }

    fn fail(&mut self, _: u32, error: CommandError) {
        self.stage = match self.take_stage() {
            Stage::Publishes(pieces, at) => self.told(pieces, at, Err(error)),
            _ => Stage::Over(Err(error)),
        };
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
            Stage::Takes { transaction, elements, .. } => {
                transaction.bytes() + elements.iter().map(Element::memory).sum::<usize>()
            }
            Stage::Publishes(pieces, _) | Stage::Over(Ok(Some(pieces))) => of_pieces(pieces),
            Stage::Over(_) => 0,
        }
    }
}
