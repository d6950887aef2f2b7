//! One caller that puts and gets large values: a NICEKV client, and the values that both sides of a
//! comparison use.
//!
//! The bytes of a value are computed once. A stamp in every [`STAMP_EVERY`] bytes distinguishes
//! values and their parts from each other at next to no cost: the figures are of moving values, not
//! of computing them.

use super::driver::Driver;
use super::{ANSWER_TIMEOUT, Limits, Measured, Meter, submit_request};
use crate::error::{BenchError, Result};
use crate::workload::Step;
use nicekv_client::{Answer, Config, Keyspace, OperationError, Outcome, Request};
use nicekv_proto::{Expiry, KeyspaceId, Operation};
use nicekv_runtime::{new_client_id, now};
use std::net::SocketAddrV4;

/// Bytes of a large value.
pub(crate) const LARGE_BYTES: usize = 1 << 20;
/// Keys of a workload with large values.
pub(crate) const LARGE_KEYS: u32 = 32;
/// Maximum puts of one run: nodes keep overwritten values for ten seconds, and these must fit in
/// memory.
pub(crate) const PUTS_MAX: usize = 256;
/// Bytes between two stamps: less than a chunk, so that every chunk has one.
const STAMP_EVERY: usize = 512;
const STAMP_BYTES: usize = size_of::<u64>();

/// Fills a value with bytes that are not a stamp.
pub(crate) fn fill(bytes: &mut [u8]) {
    fastrand::Rng::with_seed(0).fill(bytes);
}

/// Stamps `bytes`, which makes it the value of an op.
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
    /// The value to put, or the expected value of a get.
    value: Vec<u8>,
}

impl LargeLoad {
    /// A client whose socket belongs to the calling thread's network namespace.
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

    /// Runs `steps` one after the other, until the time is up, at most [`PUTS_MAX`] puts.
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

    /// Runs an op until it is answered.
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

/// A filter of the steps of a run: false after [`PUTS_MAX`] puts.
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
    fn every_chunk_of_a_value_has_a_stamp() {
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
    fn a_value_that_was_not_put_is_rejected() {
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
    fn a_run_bounds_puts_but_not_gets() {
        let count = |work| Sequence::new(work, 1).take(1_000).take_while(bounded()).count();
        assert_eq!((count(Work::Put), count(Work::Get)), (PUTS_MAX, 1_000));
    }
}
