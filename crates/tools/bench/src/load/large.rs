//! One caller's large values: a client of ours, and the values of both sides.
//!
//! A value is computed once; what tells it from others, and its parts from those of others, is a stamp in every [`STAMP_EVERY`] bytes, which costs next to nothing: both sides' figures
//! are of moving values, and not of making them.

use super::driver::Driver;
use super::{ANSWER_TIMEOUT, Limits, Measured, Meter, submit_request};
use crate::error::{BenchError, Result};
use crate::workload::{Random, Step};
use nicekv_client::{Answer, Config, Keyspace, OperationError, Outcome, Request};
use nicekv_proto::{Expiry, KeyspaceId, Operation};
use nicekv_runtime::{new_client_id, now};
use std::net::SocketAddrV4;

/// Of the values that are compared.
pub(crate) const LARGE_BYTES: usize = 1 << 20;
/// Keys of a workload.
pub(crate) const LARGE_KEYS: u32 = 32;
/// Puts of one run: nodes keep for ten seconds what was written over, which is to fit in memory.
pub(crate) const PUTS_MAX: usize = 256;
/// Less than a chunk, so that there is one in each.
const STAMP_EVERY: usize = 512;
const STAMP_BYTES: usize = size_of::<u64>();

/// Writes bytes that are no stamp, once.
pub(crate) fn fill(bytes: &mut [u8]) {
    let mut random = Random(0);
    bytes.chunks_mut(STAMP_BYTES).for_each(|word| {
        let drawn = random.next().to_le_bytes();
        word.copy_from_slice(&drawn[..word.len()]);
    });
}

/// Makes `bytes` the value of an op.
pub(crate) fn stamp(bytes: &mut [u8], step: &Step) {
    let stamp = step.stamp().to_le_bytes();
    for part in bytes.chunks_mut(STAMP_EVERY) {
        let length = part.len().min(STAMP_BYTES);
        part[..length].copy_from_slice(&stamp[..length]);
    }
}

/// A client of a NICEKV cluster, with one op in flight.
pub(crate) struct LargeLoad {
    driver: Driver,
    keyspace: KeyspaceId,
    /// Of the op under way: what is put, or what is to be got.
    value: Vec<u8>,
}

impl LargeLoad {
    /// A client whose socket belongs to the calling thread's network namespace, and whose values are so long.
    pub(crate) fn bind(
        address: SocketAddrV4,
        keyspace: impl Into<Keyspace>,
        value_bytes: usize,
    ) -> std::io::Result<Self> {
        let keyspace = keyspace.into();
        let id = keyspace.id;
        let driver = Driver::bind(address, Config::new(new_client_id()?, keyspace))?;
        let mut value = vec![0; value_bytes];
        fill(&mut value);
        Ok(Self { driver, keyspace: id, value })
    }

    /// Carries out `steps`, one after the other, until the time or they are over, or so many puts as nodes have room for.
    pub(crate) fn run(
        &mut self,
        steps: impl IntoIterator<Item = Step>,
        limits: Limits<'_>,
    ) -> Result<Measured> {
        let retries_before = self.driver.core.counters().retries;
        let mut meter = Meter::start(limits);
        for step in steps.into_iter().take_while(bounded()) {
            self.execute(&step)?;
            if !meter.count(1) {
                break;
            }
        }
        let retries = self.driver.core.counters().retries - retries_before;
        Ok(Measured { retries, ..meter.finish()? })
    }

    /// An op, until it is answered.
    pub(crate) fn execute(&mut self, step: &Step) -> Result<()> {
        stamp(&mut self.value, step);
        let key = step.key();
        let request = match step.is_get() {
            true => Request::Get { key: &key },
            false => Request::update(&key, Operation::Set { value: &self.value, expiry: Expiry::Never }),
        };
        submit_request(&mut self.driver.core, now(), self.keyspace, request, ANSWER_TIMEOUT)?;
        while self.driver.core.in_flight() > 0 {
            self.driver.turn()?;
            while let Some(completion) = self.driver.core.poll_event() {
                check(step, completion.result, &self.value)?;
            }
        }
        Ok(())
    }
}

fn check(
    step: &Step,
    result: std::result::Result<Answer<'_>, OperationError>,
    expected: &[u8],
) -> Result<()> {
    let failed = |what: String| {
        let key = step.key();
        BenchError::Failed(format!("nicekv: {}: {what}", key.escape_ascii()))
    };
    let answer = result.map_err(|error| failed(error.to_string()))?;
    if answer.outcome != Outcome::Done {
        return Err(failed(format!("{:?}", answer.outcome)));
    }
    match step.is_get() && answer.value != Some(expected) {
        true => Err(failed("another value than was put".into())),
        false => Ok(()),
    }
}

/// Whether a step of a run is to be carried out: no more puts are than nodes have room for.
pub(crate) fn bounded() -> impl FnMut(&Step) -> bool {
    let mut puts = 0;
    move |step| {
        puts += usize::from(!step.is_get());
        puts <= PUTS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Sequence, Work};

    #[test]
    fn every_chunk_of_a_value_tells_whose_it_is() {
        let mut steps = Sequence::of_first(LARGE_KEYS, Work::Put, 1);
        let mut value_of = |bytes: &mut Vec<u8>| {
            stamp(bytes, &steps.next().unwrap());
            bytes.clone()
        };
        let mut bytes = vec![0; LARGE_BYTES];
        fill(&mut bytes);
        let (one, other) = (value_of(&mut bytes), value_of(&mut bytes));
        let chunks = |value: &[u8]| value.chunks(1_408).map(<[u8]>::to_vec).collect::<Vec<_>>();
        assert!(chunks(&one).iter().zip(chunks(&other)).all(|(one, other)| *one != other));
        let same = Sequence::of_first(LARGE_KEYS, Work::Put, 1).next().unwrap();
        stamp(&mut bytes, &same);
        assert_eq!(bytes, one);
    }

    #[test]
    fn a_value_that_was_not_put_is_no_answer() {
        let get = Sequence::of_first(1, Work::Get, 1).next().unwrap();
        let answer = |value| {
            Ok(Answer {
                outcome: Outcome::Done,
                version: nicekv_proto::OpId::NONE,
                expiry_ms: 0,
                integer: 0,
                value,
                form: nicekv_proto::Form::Plain,
            })
        };
        assert!(check(&get, answer(Some(&[1, 2])), &[1, 2]).is_ok());
        for wrong in [None, Some(&[1, 3][..])] {
            assert!(check(&get, answer(wrong), &[1, 2]).is_err());
        }
        assert!(check(&get, Err(OperationError::TimedOut), &[1, 2]).is_err());
    }

    #[test]
    fn puts_of_a_run_are_bounded_and_gets_are_not() {
        let count = |work| Sequence::new(work, 1).take(1_000).take_while(bounded()).count();
        assert_eq!((count(Work::Put), count(Work::Get)), (PUTS_MAX, 1_000));
    }
}
