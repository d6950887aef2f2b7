//! RENAME, RENAMENX and COPY.
//!
//! ```text
//!   read source ─▶ transaction: source unchanged, (target absent,) put target, (delete source) ─▶ done
//!       ▲                │ a condition did not hold
//!       │                ▼
//!       └────── transaction: source unchanged, target present ─▶ the target exists
//! ```
//!
//! The transaction compares versions, as after WATCH, so for other clients the command is a single
//! step. Both keys must be in one partition, as in any transaction. If another client writes to the
//! keys meanwhile, the command starts over, up to [`TRIES_MAX`] times.

use crate::answered::Answered;
use crate::call::Call;
use crate::continuation::{Continuation, Effect, Next};
use crate::error::CommandError;
use crate::resp::ReplyWriter;
use alloc::boxed::Box;
use alloc::format;
use nicekv_client::transaction::{Transaction, results};
use nicekv_client::{Answer, Outcome, Request, SubmitError};
use nicekv_proto::limits::LONG_VALUE_BYTES_MAX;
use nicekv_proto::{Condition, Expiry, Form, KeyspaceId, OpId, Operation};

/// Maximum attempts while other clients write to the keys.
const TRIES_MAX: u32 = 16;

/// The command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RenameKind {
    /// RENAME.
    Rename,
    /// RENAMENX.
    RenameIfAbsent,
    /// COPY.
    Copy {
        /// The option REPLACE: overwrites the target.
        replaces: bool,
    },
}

impl RenameKind {
    /// Whether an existing target is left unchanged.
    fn needs_absent(self) -> bool {
        !matches!(self, Self::Rename | Self::Copy { replaces: true })
    }
}

/// A running command.
#[derive(Debug)]
pub(crate) struct Rename {
    keyspace: KeyspaceId,
    kind: RenameKind,
    source: Box<[u8]>,
    target: Box<[u8]>,
    tries: u32,
    is_sent: bool,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    ReadSource,
    /// The transaction that moves the value, whose version was this.
    Move(OpId, Transaction),
    /// A condition did not hold: this transaction checks whether the target exists.
    CheckTarget(Transaction),
    Over(Result<Ended, CommandError>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Done,
    NoSource,
    TargetExists,
}

impl Rename {
    pub(crate) fn new(keyspace: KeyspaceId, kind: RenameKind, source: &[u8], target: &[u8]) -> Self {
        let (source, target) = (source.into(), target.into());
        Self { keyspace, kind, source, target, tries: 0, is_sent: false, stage: Stage::ReadSource }
    }

    /// The next stage once the source has been read.
    fn found(&self, answer: &Answer<'_>) -> Stage {
        if answer.outcome != Outcome::Done {
            return Stage::Over(Ok(Ended::NoSource));
        }
        if self.source == self.target {
            let target_exists = self.kind == RenameKind::RenameIfAbsent;
            return Stage::Over(Ok(if target_exists { Ended::TargetExists } else { Ended::Done }));
        }
        match self.transaction(answer) {
            Ok(transaction) => Stage::Move(answer.version, transaction),
            Err(error) => Stage::Over(Err(error)),
        }
    }

    fn transaction(&self, answer: &Answer<'_>) -> Result<Transaction, CommandError> {
        let value = answer.value.unwrap_or_default();
        // A hash never exceeds this limit.
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
            if self.kind.needs_absent() {
                transaction.require(&self.target, Condition::IfAbsent)?;
            }
            transaction.add(&Request::update(&self.target, operation))?;
            if !matches!(self.kind, RenameKind::Copy { .. }) {
                transaction.add(&Request::update(&self.source, Operation::Delete))?;
            }
            Ok(transaction)
        };
        build().map_err(CommandError::from)
    }

    /// Decides what to do after a condition of the transaction did not hold.
    fn refused(&mut self, version: OpId) -> Stage {
        if !self.kind.needs_absent() {
            return self.again();
        }
        let mut transaction = Transaction::default();
        let required = transaction
            .require(&self.source, Condition::IfVersion(version))
            .and_then(|()| transaction.require(&self.target, Condition::IfPresent));
        match required {
            Ok(()) => Stage::CheckTarget(transaction),
            Err(error) => Stage::Over(Err(error.into())),
        }
    }

    fn again(&mut self) -> Stage {
        self.tries += 1;
        if self.tries < TRIES_MAX {
            return Stage::ReadSource;
        }
        const TEXT: &str = "ERR other clients keep writing to the keys; nothing was done";
        Stage::Over(Err(CommandError::fixed(TEXT)))
    }

    fn answered(&mut self, answered: Answered<'_>) -> Stage {
        let stage = core::mem::replace(&mut self.stage, Stage::ReadSource);
        let answer = match answered.result {
            Ok(answer) => answer,
            Err(error) => return Stage::Over(Err(CommandError::of_transaction(error, answered.cause))),
        };
        let holds = answer.outcome != Outcome::ConditionFailed;
        match stage {
            Stage::ReadSource => self.found(&answer),
            Stage::Move(version, _) if !holds => self.refused(version),
            Stage::Move(..) => {
                let failed = results(&answer).find_map(Result::err);
                Stage::Over(failed.map_or(Ok(Ended::Done), |error| Err(error.into())))
            }
            Stage::CheckTarget(_) if holds => Stage::Over(Ok(Ended::TargetExists)),
            Stage::CheckTarget(_) => self.again(),
            over @ Stage::Over(_) => over,
        }
    }
}

impl Continuation for Rename {
    fn next<'a>(&'a mut self, _: &Call<'a>) -> Next<'a> {
        if self.is_over() {
            return Next::Done;
        }
        if core::mem::replace(&mut self.is_sent, true) {
            return Next::Wait;
        }
        let request = match &self.stage {
            Stage::ReadSource => Some(Request::Get { key: &self.source }),
            Stage::Move(_, transaction) | Stage::CheckTarget(transaction) => transaction.request(),
            Stage::Over(_) => None,
        };
        request.map_or(Next::Done, |request| Next::Request(self.keyspace, 0, request))
    }

    fn take(&mut self, _: u32, answered: Answered<'_>) -> bool {
        self.is_sent = false;
        self.stage = self.answered(answered);
        self.is_over()
    }

    fn fail(&mut self, _: u32, error: CommandError) {
        self.stage = Stage::Over(Err(error));
    }

    fn in_flight(&self) -> usize {
        self.is_sent.into()
    }

    fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over(_))
    }

    fn write(self: Box<Self>, reply: &mut ReplyWriter<'_>) -> Effect {
        let Stage::Over(ended) = self.stage else { unreachable!("it is over") };
        match (ended, self.kind) {
            (Err(error), _) => reply.error(error.as_bytes()),
            (Ok(Ended::NoSource), RenameKind::Copy { .. }) => reply.integer(0),
            (Ok(Ended::NoSource), _) => reply.error(b"ERR no such key"),
            (Ok(_), RenameKind::Rename) => reply.simple("OK"),
            (Ok(ended), _) => reply.integer((ended == Ended::Done).into()),
        }
        Effect::None
    }

    fn memory(&self) -> usize {
        let transaction = match &self.stage {
            Stage::Move(_, transaction) | Stage::CheckTarget(transaction) => transaction.bytes(),
            _ => 0,
        };
        self.source.len() + self.target.len() + transaction
    }
}
