//! Large values among the results of a transaction. The node's answer contains references to them;
//! they are read concurrently after the transaction has been applied.

use crate::answered::Answered;
use crate::each_key::Value;
use crate::element::Element;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use nicekv_client::transaction::{Transaction, results};
use nicekv_client::{Answer, OperationError, Outcome, Request};
use nicekv_proto::large::Reference;
use nicekv_proto::{Form, OpId};

/// The results of a transaction, and the large values needed for the replies.
#[derive(Debug)]
pub(crate) struct LargeResults {
    version: OpId,
    results: Box<[u8]>,
    /// The large values in the order of their steps.
    values: Vec<LargeResult>,
    asked: usize,
    answered: usize,
    /// Cause of the last failed read.
    cause: String,
}

#[derive(Debug)]
struct LargeResult {
    step: usize,
    key: Box<[u8]>,
    reference: Reference,
    read: Option<Result<Value, OperationError>>,
}

impl LargeResults {
    /// The large values of an answer that commands need; `None` if they need none.
    pub(crate) fn of(
        transaction: &Transaction,
        required: usize,
        elements: &[Element],
        answer: &Answer<'_>,
    ) -> Option<Self> {
        let is_large = |result: &Result<Answer<'_>, OperationError>| {
            result.as_ref().is_ok_and(|answer| answer.form == Form::Large)
        };
        if !results(answer).any(|result| is_large(&result)) {
            return None;
        }
        let wants = core::iter::repeat_n(false, required).chain(elements.iter().flat_map(Element::wants));
        let mut values = Vec::new();
        for (step, ((result, key), is_wanted)) in
            results(answer).zip(transaction.keys()).zip(wants).enumerate()
        {
            if let Some(reference) = result.ok().and_then(reference).filter(|_| is_wanted) {
                values.push(LargeResult { step, key: key.into(), reference, read: None });
            }
        }
        let results = answer.value.unwrap_or_default().into();
        let named =
            Self { version: answer.version, results, values, asked: 0, answered: 0, cause: String::new() };
        (!named.values.is_empty()).then_some(named)
    }

    /// The next request, and the number of its part.
    pub(crate) fn next(&mut self) -> Option<(u32, Request<'_>)> {
        let LargeResult { key, reference, .. } = self.values.get(self.asked)?;
        self.asked += 1;
        Some((self.asked as u32 - 1, Request::Named { key, reference: *reference }))
    }

    /// Number of requests in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.asked - self.answered
    }

    /// Processes the answer to a part. Returns true if it was the last.
    pub(crate) fn take(&mut self, part: u32, answered: Answered<'_>) -> bool {
        let read =
            answered.result.map(|answer| Value::new(answer.value.unwrap_or_default(), answered.shared));
        if read.is_err() {
            self.cause = answered.cause.into();
        }
        if let Some(named) = self.values.get_mut(part as usize) {
            named.read = Some(read);
        }
        self.answered += 1;
        self.answered == self.values.len()
    }

    /// Whether a value was overwritten before it was read.
    pub(crate) fn is_stale(&self) -> bool {
        self.values.iter().any(|named| matches!(named.read, Some(Err(OperationError::OldValueGone))))
    }

    /// The results of all steps, in which the large values replace the references.
    pub(crate) fn each(&self) -> impl Iterator<Item = Answered<'_>> {
        let outcome = Outcome::Done;
        let (version, value) = (self.version, Some(&*self.results));
        let answer = Answer { outcome, version, expiry_ms: 0, integer: 0, value, form: Form::Plain };
        let mut values = self.values.iter().peekable();
        results(&answer).collect::<Vec<_>>().into_iter().enumerate().map(move |(step, result)| {
            let (Some(named), Ok(answer)) = (values.next_if(|named| named.step == step), result) else {
                return without_reference(result);
            };
            match &named.read {
                Some(Ok(value)) => Answered {
                    result: Ok(Answer { value: Some(value.bytes()), form: Form::Plain, ..answer }),
                    shared: value.shared(),
                    cause: "",
                },
                Some(Err(error)) => Answered { cause: &self.cause, ..Err(*error).into() },
                None => Err(OperationError::TimedOut).into(),
            }
        })
    }

    /// Heap bytes in use.
    pub(crate) fn memory(&self) -> usize {
        let of = |named: &LargeResult| {
            let read = named.read.as_ref().and_then(|read| read.as_ref().ok());
            size_of::<LargeResult>() + named.key.len() + read.map_or(0, Value::memory)
        };
        self.results.len() + self.values.iter().map(of).sum::<usize>()
    }
}

/// Replaces a reference by the length of its value, because the command needs no more.
pub(crate) fn without_reference<'a>(result: Result<Answer<'a>, OperationError>) -> Answered<'a> {
    let shown = |answer: Answer<'a>| match reference(answer) {
        Some(Reference { length, .. }) => {
            Answer { value: None, form: Form::Plain, integer: length.into(), ..answer }
        }
        None => answer,
    };
    result.map(shown).into()
}

fn reference(answer: Answer<'_>) -> Option<Reference> {
    let value = answer.value.filter(|_| answer.form == Form::Large)?;
    Reference::decode(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finish::Finish;
    use nicekv_proto::replication::Effect;
    use nicekv_proto::transaction::Taken;
    use nicekv_proto::{ClientId, Status};

    const NAME: OpId = OpId { client: ClientId(1), sequence: 2 };

    fn answer(value: &[u8]) -> Answer<'_> {
        let (outcome, version, value) = (Outcome::Done, NAME, Some(value));
        Answer { outcome, version, expiry_ms: 0, integer: 0, value, form: Form::Plain }
    }

    #[test]
    fn wanted_values_are_read_and_others_known_by_length() {
        let reference = Reference { name: NAME, length: 70_000, checksum: 7 };
        let (bytes, mut transaction) = (reference.bytes(), Transaction::default());
        let (status, effect, form) = (Status::Ok, Effect::None, Form::Large);
        let (value_is_result, value) = (true, &bytes[..]);
        let large = Taken { status, effect, value_is_result, form, value, expiry_ms: 9, integer: 0 };
        let mut results = Vec::new();
        for _ in 0..2 {
            transaction.add(&Request::Get { key: b"k" }).unwrap();
            large.append(&mut results);
        }
        let elements = [Finish::Value, Finish::Length].map(Element::One);
        let of = |elements: &[Element], results: &[u8]| {
            LargeResults::of(&transaction, 0, elements, &answer(results))
        };
        assert!(of(&[Finish::Length, Finish::Length].map(Element::One), &results).is_none());
        assert!(of(&elements, b"").is_none());
        let mut named = of(&elements, &results).unwrap();
        assert_eq!(named.next(), Some((0, Request::Named { key: b"k", reference })));
        assert_eq!(named.next(), None);
        assert_eq!(named.in_flight(), 1);
        assert_eq!(named.memory(), results.len() + size_of::<LargeResult>() + 1);
        assert!(named.take(0, Ok(answer(b"whole")).into()));
        assert_eq!((named.is_stale(), named.in_flight()), (false, 0));
        let value = Value::new(b"whole", None).memory();
        assert_eq!(named.memory(), results.len() + size_of::<LargeResult>() + 1 + value);
        let told: Vec<_> = named.each().map(|answered| answered.result.unwrap()).collect();
        let values: Vec<_> = told.iter().map(|told| (told.value, told.integer, told.expiry_ms)).collect();
        assert_eq!(values, [(Some(&b"whole"[..]), 0, 9), (None, 70_000, 9)]);
        let mut named = of(&elements, &results).unwrap();
        assert!(named.take(0, Err(OperationError::OldValueGone).into()) && named.is_stale());
    }
}
