//! RENAME, RENAMENX and COPY: a value that gets another key, or one more.
//!
//! ```text
//!   get source ─▶ transaction: source is as it was read, (target is absent,) put target, (delete source) ─▶ done
//!       ▲                │ something was not so
//!       │                ▼
//!       └────── transaction: source is as it was read, target is there ─▶ the target is in the way
//! ```
//!
//! As with WATCH it is versions that are compared, so what others see is one step. Its keys have to be of one partition, as those of a transaction. Who writes to
//! them meanwhile makes it begin anew, [`TRIES_MAX`] times.

use crate::answered::Answered;
use crate::asking::Asking;
use crate::error::CommandError;
use crate::reply::ReplyWriter;
use nicekv_client::transaction::{Transaction, results};
use nicekv_client::{Answer, OperationError, Outcome, Request, SubmitError};
use nicekv_proto::limits::LONG_VALUE_BYTES_MAX;
use nicekv_proto::{Condition, Expiry, Form, KeyspaceId, OpId, Operation};

/// How often it begins at most.
const TRIES_MAX: u32 = 16;

/// What is to become of the source and the target, and what is said of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    /// RENAME.
    Rename,
    /// RENAMENX.
    RenameIfAbsent,
    /// COPY.
    Copy {
        /// Over what the target has.
        replaces: bool,
    },
}

impl Move {
    /// Whether a target that is there is left as it is.
    fn needs_absent(self) -> bool {
        !matches!(self, Self::Rename | Self::Copy { replaces: true })
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Moving {
    keyspace: KeyspaceId,
    what: Move,
    source: Box<[u8]>,
    target: Box<[u8]>,
    tries: u32,
    is_asked: bool,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// The source is to be read.
    Reads,
    /// It has been: all is to be done.
    Moves(OpId, Transaction),
    /// It was not so: whether the target was in the way.
    Looks(Transaction),
    /// How it has ended.
    Over(Result<Ended, CommandError>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Done,
    NoSource,
    InTheWay,
}

impl Moving {
    pub(crate) fn new(keyspace: KeyspaceId, what: Move, source: &[u8], target: &[u8]) -> Self {
        let (source, target) = (source.into(), target.into());
        Self { keyspace, what, source, target, tries: 0, is_asked: false, stage: Stage::Reads }
    }

    /// What is done with the source, after it was read.
    fn found(&self, answer: &Answer<'_>) -> Stage {
        if answer.outcome != Outcome::Done {
            return Stage::Over(Ok(Ended::NoSource));
        }
        if self.source == self.target {
            let is_in_the_way = self.what == Move::RenameIfAbsent;
            return Stage::Over(Ok(if is_in_the_way { Ended::InTheWay } else { Ended::Done }));
        }
        match self.transaction(answer) {
            Ok(transaction) => Stage::Moves(answer.version, transaction),
            Err(error) => Stage::Over(Err(error)),
        }
    }

    fn transaction(&self, answer: &Answer<'_>) -> Result<Transaction, CommandError> {
        let value = answer.value.unwrap_or_default();
        // Hashes have no more.
        let limit = LONG_VALUE_BYTES_MAX;
        if value.len() > limit {
            let text = format!(
                "ERR value of {} bytes exceeds the limit of {limit} bytes for a value that gets another key",
                value.len()
            );
            return Err(CommandError::text(text));
        }
        let expiry = if answer.expiry_ms == 0 { Expiry::Never } else { Expiry::At(answer.expiry_ms) };
        let operation = match answer.form {
            Form::Hash => Operation::SetHash { fields: value, expiry },
            _ => Operation::Set { value, expiry },
        };
        let build = || -> Result<Transaction, SubmitError> {
            let mut transaction = Transaction::default();
            transaction.require(&self.source, Condition::IfVersion(answer.version))?;
            if self.what.needs_absent() {
                transaction.require(&self.target, Condition::IfAbsent)?;
            }
            transaction.add(&Request::update(&self.target, operation))?;
            if !matches!(self.what, Move::Copy { .. }) {
                transaction.add(&Request::update(&self.source, Operation::Delete))?;
            }
            Ok(transaction)
        };
        build().map_err(CommandError::from)
    }

    /// Something was not as the transaction requires it.
    fn not_so(&mut self, version: OpId) -> Stage {
        if !self.what.needs_absent() {
            return self.again();
        }
        let mut transaction = Transaction::default();
        let required = transaction
            .require(&self.source, Condition::IfVersion(version))
            .and_then(|()| transaction.require(&self.target, Condition::IfPresent));
        match required {
            Ok(()) => Stage::Looks(transaction),
            Err(error) => Stage::Over(Err(error.into())),
        }
    }

    fn again(&mut self) -> Stage {
        self.tries += 1;
        if self.tries < TRIES_MAX {
            return Stage::Reads;
        }
        const TEXT: &str = "ERR others write to the keys all the while; nothing was done";
        Stage::Over(Err(CommandError::fixed(TEXT)))
    }

    fn answered(&mut self, result: Result<Answer<'_>, OperationError>) -> Stage {
        let stage = std::mem::replace(&mut self.stage, Stage::Reads);
        let answer = match result {
            Ok(answer) => answer,
            Err(error) => return Stage::Over(Err(CommandError::of_transaction(error))),
        };
        let is_so = answer.outcome != Outcome::ConditionFailed;
        match stage {
            Stage::Reads => self.found(&answer),
            Stage::Moves(version, _) if !is_so => self.not_so(version),
            Stage::Moves(..) => {
                let failed = results(&answer).find_map(Result::err);
                Stage::Over(failed.map_or(Ok(Ended::Done), |error| Err(error.into())))
            }
            Stage::Looks(_) if is_so => Stage::Over(Ok(Ended::InTheWay)),
            Stage::Looks(_) => self.again(),
            over @ Stage::Over(_) => over,
        }
    }
}

impl Asking for Moving {
    fn next(&mut self) -> Option<(KeyspaceId, u32, Request<'_>)> {
        if self.is_over() || std::mem::replace(&mut self.is_asked, true) {
            return None;
        }
        let request = match &self.stage {
            Stage::Reads => Request::Get { key: &self.source },
            Stage::Moves(_, transaction) | Stage::Looks(transaction) => transaction.request()?,
            Stage::Over(_) => return None,
        };
        Some((self.keyspace, 0, request))
    }

    fn take(&mut self, _: u32, answered: Answered<'_>) -> bool {
        self.is_asked = false;
        self.stage = self.answered(answered.result);
        self.is_over()
    }

    fn fail(&mut self, _: u32, error: CommandError) {
        self.stage = Stage::Over(Err(error));
    }

    fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over(_))
    }

    fn write(self: Box<Self>, reply: &mut ReplyWriter<'_>) {
        let Stage::Over(ended) = self.stage else { unreachable!("it is over") };
        match (ended, self.what) {
            (Err(error), _) => reply.error(error.as_bytes()),
            (Ok(Ended::NoSource), Move::Copy { .. }) => reply.integer(0),
            (Ok(Ended::NoSource), _) => reply.error(b"ERR no such key"),
            (Ok(_), Move::Rename) => reply.simple("OK"),
            (Ok(ended), _) => reply.integer((ended == Ended::Done).into()),
        }
    }

    fn memory(&self) -> usize {
        let transaction = match &self.stage {
            Stage::Moves(_, transaction) | Stage::Looks(transaction) => transaction.bytes(),
            _ => 0,
        };
        self.source.len() + self.target.len() + transaction
    }
}
