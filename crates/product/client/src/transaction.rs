//! Transactions: several operations on keys of one partition, applied all or none.

use crate::{Answer, OperationError, Outcome, Request, SubmitError};
use alloc::vec::Vec;
use nicekv_proto::limits::KEY_BYTES_MAX;
use nicekv_proto::limits::TRANSACTION_BYTES_MAX;
use nicekv_proto::transaction::{Act, Argument, Step, Taken};
use nicekv_proto::{Condition, Form, OpId, Operation, Status};

/// Steps that are applied in order, all or none. Their keys must be in one partition: give them the same hash tag, as in
/// `{user:1}:name` and `{user:1}:age`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    steps: Vec<u8>,
    count: usize,
}

/// A script that runs at its keys' primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Script<'a> {
    /// The time that the script sees, in milliseconds of the Unix epoch.
    pub unix_ms: u64,
    /// Whether it must not write.
    pub is_read_only: bool,
    /// Its source text.
    pub source: &'a [u8],
    /// All keys that it may access, in one partition.
    pub keys: &'a [&'a [u8]],
    /// Its arguments.
    pub arguments: &'a [&'a [u8]],
}

impl Transaction {
    /// Adds a condition on a key: if it does not hold, nothing is applied.
    ///
    /// # Errors
    /// The key or the transaction is too long.
    pub fn require(&mut self, key: &[u8], condition: Condition) -> Result<(), SubmitError> {
        self.push(key, Act::Require(condition))
    }

    /// Adds a get or an update.
    ///
    /// # Errors
    /// The request is of another kind, or the request or the transaction is too long.
    pub fn add(&mut self, request: &Request<'_>) -> Result<(), SubmitError> {
        request.check()?;
        match *request {
            Request::Get { key } | Request::Length { key } => self.push(key, Act::Read),
            Request::Update { operation: Operation::Transaction(_), .. }
            | Request::Named { .. }
            | Request::Scan { .. }
            | Request::Listen { .. }
            | Request::Publish { .. } => Err(SubmitError::NoStep),
            Request::Update { key, condition, return_old, operation } => {
                let operation = operation.in_one_message(key.len());
                self.push(key, Act::Apply { operation, condition, return_old })
            }
        }
    }

    /// Adds a script. Returns the number of its steps; the result of the last one is its reply, in RESP2. A script without
    /// keys must be alone in its transaction, and runs at the primary of `place`.
    ///
    /// # Errors
    /// A key or the transaction is too long; then nothing was added.
    pub fn run(&mut self, script: &Script<'_>, place: &[u8]) -> Result<usize, SubmitError> {
        let before = self.clone();
        let added = self.push_script(script, place);
        added.inspect_err(|_| *self = before)
    }

    fn push_script(&mut self, script: &Script<'_>, place: &[u8]) -> Result<usize, SubmitError> {
        let Script { keys, arguments, unix_ms, is_read_only, source } = *script;
        let long = keys.iter().chain(arguments).map(|bytes| bytes.len()).sum::<usize>() + source.len();
        if long > TRANSACTION_BYTES_MAX {
            return Err(SubmitError::TransactionTooLong { bytes: long, limit: TRANSACTION_BYTES_MAX });
        }
        let mut encoded = Vec::new();
        arguments.iter().for_each(|bytes| Argument { bytes }.append(&mut encoded));
        if encoded.len() > TRANSACTION_BYTES_MAX {
            return Err(SubmitError::TransactionTooLong {
                bytes: encoded.len(),
                limit: TRANSACTION_BYTES_MAX,
            });
        }
        for key in keys {
            self.push(key, Act::Declare)?;
        }
        let key = keys.first().copied().unwrap_or(place);
        self.push(key, Act::Run { unix_ms, is_read_only, source, arguments: &encoded })?;
        Ok(keys.len() + 1)
    }

    /// Adds all steps of another transaction.
    ///
    /// # Errors
    /// The transaction would be too long.
    pub fn append(&mut self, other: &Self) -> Result<(), SubmitError> {
        let bytes = self.steps.len() + other.steps.len();
        if bytes > TRANSACTION_BYTES_MAX {
            return Err(SubmitError::TransactionTooLong { bytes, limit: TRANSACTION_BYTES_MAX });
        }
        self.steps.extend_from_slice(&other.steps);
        self.count += other.count;
        Ok(())
    }

    fn push(&mut self, key: &[u8], act: Act<'_>) -> Result<(), SubmitError> {
        if key.len() > KEY_BYTES_MAX {
            return Err(SubmitError::KeyTooLong { bytes: key.len(), limit: KEY_BYTES_MAX });
        }
        let before = self.steps.len();
        Step { key, act }.append(&mut self.steps);
        if self.steps.len() > TRANSACTION_BYTES_MAX {
            let bytes = self.steps.len();
            self.steps.truncate(before);
            return Err(SubmitError::TransactionTooLong { bytes, limit: TRANSACTION_BYTES_MAX });
        }
        self.count += 1;
        Ok(())
    }

    /// Number of steps.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Encoded length in bytes, at most [`TRANSACTION_BYTES_MAX`].
    pub fn bytes(&self) -> usize {
        self.steps.len()
    }

    /// Whether it has no steps, so that there is nothing to submit.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The steps, in order.
    pub fn steps(&self) -> impl Iterator<Item = Step<'_>> {
        Step::each(&self.steps)
    }

    /// The keys of the steps, in order.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        Step::each(&self.steps).map(|step| step.key)
    }

    /// The request to submit; `None` without steps.
    pub fn request(&self) -> Option<Request<'_>> {
        let key = self.keys().next()?;
        Some(Request::update(key, Operation::Transaction(&self.steps)))
    }
}

/// The result of each step, from the answer to the request; empty if nothing was applied.
pub fn results<'a>(answer: &Answer<'a>) -> impl Iterator<Item = Result<Answer<'a>, OperationError>> {
    let version = answer.version;
    Taken::each(answer.value.unwrap_or_default()).map(move |taken| result(&taken, version))
}

/// The result of a step, as the answer to its request.
pub fn result<'a>(taken: &Taken<'a>, version: OpId) -> Result<Answer<'a>, OperationError> {
    let outcome = match taken.status {
        Status::NotFound => Outcome::NotFound,
        Status::ConditionFailed => Outcome::ConditionFailed,
        status => OperationError::from_status(status).map_or(Ok(Outcome::Done), Err)?,
    };
    let Taken { expiry_ms, integer, form, .. } = *taken;
    let value = taken.value_is_result.then_some(taken.value);
    let form = match value {
        Some(_) if form == Form::Large => form,
        Some(_) => form.told(),
        None => Form::Plain,
    };
    Ok(Answer { outcome, version, expiry_ms, integer, value, form })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_proto::Expiry;

    #[test]
    fn steps_become_one_request_and_too_many_are_refused() {
        let mut transaction = Transaction::default();
        assert_eq!((transaction.request(), transaction.is_empty()), (None, true));
        transaction.require(b"{t}a", Condition::IfAbsent).unwrap();
        let set = Operation::Set { value: &[7; 900], expiry: Expiry::Never };
        transaction.add(&Request::update(b"{t}b", set)).unwrap();
        transaction.add(&Request::Get { key: b"{t}a" }).unwrap();
        let before = transaction.clone();
        let limit = TRANSACTION_BYTES_MAX;
        let refused = loop {
            if let Err(refused) = transaction.add(&Request::update(b"{t}b", set)) {
                break refused;
            }
        };
        assert!(matches!(refused, SubmitError::TransactionTooLong { limit: of, .. } if of == limit));
        let of_set = (transaction.bytes() - before.bytes()) / (transaction.len() - before.len());
        assert!((900..920).contains(&of_set) && transaction.bytes() <= limit);
        assert_eq!(transaction.len(), before.len() + (limit - before.bytes()) / of_set);
        assert_eq!(before.keys().collect::<Vec<_>>(), [b"{t}a", b"{t}b", b"{t}a"]);
        let request = before.request().unwrap();
        assert_eq!(request.key(), b"{t}a");
        let Request::Update { operation: Operation::Transaction(steps), .. } = request else {
            panic!("{request:?}")
        };
        assert_eq!(Step::each(steps).count(), 3);
        let nested = Request::update(b"{t}a", Operation::Transaction(steps));
        assert_eq!(transaction.add(&nested), Err(SubmitError::NoStep));
    }
}
