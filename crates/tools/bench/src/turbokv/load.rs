//! A closed loop of gets, puts and scans; each caller has one op in flight.
//!
//! A scan is requested piece by piece, and is answered when its range is covered. It must list
//! every key of the range, as all keys exist all the time.

use super::workload::{BIG_BYTES, KEYS, Op, Ops, VALUE_BYTES, is_value_of, key, value};
use crate::error::{BenchError, Result};
use crate::latencies::Latencies;
use crate::load::driver::Driver;
use crate::load::{ANSWER_TIMEOUT, Limits, Measured, Meter, submit_request};
use nicekv_client::{Config, Outcome, Request, Ticket};
use nicekv_proto::limits::DATAGRAM_BYTES_MAX;
use nicekv_proto::scan::{ScanPiece, ScanWants};
use nicekv_proto::{Datagram, Expiry, KeyspaceId, MatchRange, Now, Operation};
use nicekv_runtime::now;
use std::net::SocketAddrV4;

/// An op in flight.
#[derive(Clone, Copy, Debug)]
struct Asked {
    op: Op,
    since_ns: u64,
    /// The number of the next key that a scan must list.
    next: u32,
}

pub(crate) struct MixedLoad {
    driver: Driver,
    keyspace: KeyspaceId,
    /// Ops in flight, by the index of their tickets.
    asked: Vec<Option<Asked>>,
    versions: u64,
    /// Whether the value of each key is big. Empty: none is.
    big: Vec<bool>,
}

impl MixedLoad {
    /// A client whose socket belongs to the calling thread's network namespace.
    pub(crate) fn bind(address: SocketAddrV4, config: Config) -> std::io::Result<Self> {
        let keyspace = config.keyspaces[0].id;
        let driver = Driver::bind(address, config)?;
        Ok(Self { driver, keyspace, asked: Vec::new(), versions: 0, big: Vec::new() })
    }

    /// Makes values of these keys big, from the next preload on.
    pub(crate) fn set_big(&mut self, big: Vec<bool>) {
        self.big = big;
    }

    /// Stores every key once.
    pub(crate) fn preload(&mut self, callers: usize, limits: Limits<'_>) -> Result<()> {
        let mut numbers = 0..KEYS;
        let (measured, _) = self.run_all(callers, limits, &mut || numbers.next().map(Op::Put))?;
        match measured.operations == u64::from(KEYS) {
            true => Ok(()),
            false => Err(BenchError::Failed(format!("{} of {KEYS} keys were stored", measured.operations))),
        }
    }

    pub(crate) fn run(
        &mut self,
        mut ops: Ops<'_>,
        callers: usize,
        limits: Limits<'_>,
    ) -> Result<(Measured, Latencies)> {
        self.run_all(callers, limits, &mut || Some(ops.next()))
    }

    fn run_all(
        &mut self,
        callers: usize,
        limits: Limits<'_>,
        next: &mut dyn FnMut() -> Option<Op>,
    ) -> Result<(Measured, Latencies)> {
        let retries = self.driver.core.counters().retries;
        let (mut meter, mut latencies) = (Meter::start(limits), Latencies::default());
        for op in (0..callers).map_while(|_| next()) {
            self.begin(now(), op)?;
        }
        while self.driver.core.in_flight() > 0 {
            let now = self.driver.turn()?;
            for _ in 0..self.take_answers(now, &mut meter, &mut latencies)? {
                if let Some(op) = next() {
                    self.begin(now, op)?;
                }
            }
        }
        let retries = self.driver.core.counters().retries - retries;
        Ok((Measured { retries, ..meter.finish()? }, latencies))
    }

    fn begin(&mut self, now: Now, op: Op) -> Result<()> {
        let (Op::Get(first) | Op::Put(first) | Op::Scan(first, _)) = op;
        self.ask(now, Asked { op, since_ns: now.boot_ns, next: first })
    }

    fn ask(&mut self, now: Now, asked: Asked) -> Result<()> {
        let ticket = match asked.op {
            Op::Get(number) => self.submit(now, Request::Get { key: &key(number) })?,
            Op::Put(number) => {
                self.versions += 1;
                let (key, value) = (key(number), value(number, self.versions, bytes_of(&self.big, number)));
                let operation = Operation::Set { value: &value, expiry: Expiry::Never };
                self.submit(now, Request::update(&key, operation))?
            }
            Op::Scan(_, last) => {
                let [first, last] = [asked.next, last].map(|number| u128::from_be_bytes(key(number)));
                let range = MatchRange::new(first, last).expect("keys are in the order of their numbers");
                let (wants, bytes_max) = (ScanWants::Values, DATAGRAM_BYTES_MAX);
                // A place to continue from, so that the node need not search the partition from its
                // beginning.
                let before = range.first().checked_sub(1).map(u128::to_be_bytes);
                let after = before.as_ref().map(<[u8; 16]>::as_slice);
                self.submit(now, Request::Scan { wants, range, after, bytes_max, pieces: 1 })?
            }
        };
        if self.asked.len() <= ticket.index() {
            self.asked.resize(ticket.index() + 1, None);
        }
        self.asked[ticket.index()] = Some(asked);
        Ok(())
    }

    fn submit(&mut self, now: Now, request: Request<'_>) -> Result<Ticket> {
        submit_request(&mut self.driver.core, now, self.keyspace, request, ANSWER_TIMEOUT)
    }

    /// Checks the answers that have arrived, and requests the rest of scans. Returns how many
    /// callers are free.
    fn take_answers(&mut self, now: Now, meter: &mut Meter<'_>, latencies: &mut Latencies) -> Result<usize> {
        let (mut unfinished, mut free) = (Vec::new(), 0);
        while let Some(completion) = self.driver.core.poll_event() {
            let mut asked = self.asked[completion.ticket.index()].take().expect("submitted here");
            let wrong = |what: &dyn std::fmt::Display| {
                Err(BenchError::Failed(format!("{:?} was answered wrongly: {what}", asked.op)))
            };
            let answer = match completion.result {
                Err(error) => return wrong(&error),
                Ok(answer) if answer.outcome != Outcome::Done => {
                    return wrong(&format!("{:?}", answer.outcome));
                }
                Ok(answer) => answer,
            };
            let value = answer.value.unwrap_or_default();
            match asked.op {
                Op::Get(number) if !is_value_of(value, &key(number), bytes_of(&self.big, number)) => {
                    return wrong(&"another value");
                }
                Op::Scan(_, last) => match listed_through(value, asked.next, last) {
                    None => return wrong(&"keys are missing, or others listed"),
                    Some(next) if next <= last => {
                        asked.next = next;
                        unfinished.push(asked);
                        continue;
                    }
                    Some(_) => {}
                },
                _ => {}
            }
            if meter.count(1) {
                latencies.record(now.boot_ns.saturating_sub(asked.since_ns));
                free += 1;
            }
        }
        unfinished.into_iter().try_for_each(|asked| self.ask(now, asked))?;
        Ok(free)
    }
}

fn bytes_of(big: &[bool], number: u32) -> usize {
    if big.get(number as usize) == Some(&true) { BIG_BYTES } else { VALUE_BYTES }
}

/// The number of the first key that a piece does not cover, if it lists exactly the keys from
/// `next` to there. Each key has its own match value.
fn listed_through(piece: &[u8], next: u32, last: u32) -> Option<u32> {
    let Ok((_, Datagram::ScanPiece(piece))) = Datagram::decode(piece) else { return None };
    let end = covered_end(&piece, next, last)?;
    let mut numbers = next..end;
    let mut is_next = |entry: nicekv_proto::scan::Scanned<'_>| {
        let number = numbers.next();
        number.is_some_and(|number| entry.key == key(number))
            && entry.value.is_some_and(|value| is_value_of(value, entry.key, VALUE_BYTES))
    };
    (piece.entries().all(&mut is_next) && numbers.is_empty()).then_some(end)
}

/// The same for a request of the keys from `next` to `last`; `None` if the piece covers none of
/// them.
fn covered_end(piece: &ScanPiece<'_>, next: u32, last: u32) -> Option<u32> {
    let number_after = |value: u128| {
        let mut numbers = next..=last;
        numbers.find(|number| u128::from_be_bytes(key(*number)) > value).unwrap_or(last + 1)
    };
    let end = match piece.more {
        true => number_after(u128::from_be_bytes(piece.covered_through()?.try_into().ok()?)),
        false => number_after(piece.range.last()),
    };
    (end > next).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_proto::scan::Scanned;
    use nicekv_proto::{Epoch, Form, OpId, PartitionId};

    /// A piece with the keys `listed`, in answer to a request of the keys `asked`.
    fn piece(asked: (u32, u32), listed: impl IntoIterator<Item = u32>, more: bool) -> Vec<u8> {
        let (mut bytes, mut out) = (Vec::new(), Vec::new());
        let mut count = 0;
        for number in listed {
            Scanned { key: &key(number), form: Form::Plain, value: Some(&value(number, 9, VALUE_BYTES)) }
                .append(&mut bytes);
            count += 1;
        }
        let [first, last] = [asked.0, asked.1].map(|number| u128::from_be_bytes(key(number)));
        let range = MatchRange::new(first, last).unwrap();
        let (op, partition, epoch) = (OpId::NONE, PartitionId(1), Epoch(1));
        ScanPiece { op, partition, epoch, range, more, count, through: None, listed: &bytes }
            .encode(&mut out);
        out
    }

    #[test]
    fn a_piece_lists_all_that_it_covers() {
        assert_eq!(listed_through(&piece((5, 9), 5..=9, false), 5, 9), Some(10));
        assert_eq!(listed_through(&piece((5, 7), 5..=7, false), 5, 9), Some(8), "the record ends at 7");
        assert_eq!(listed_through(&piece((5, 9), 5..=6, true), 5, 9), Some(7));
        for wrong in [vec![5, 6, 8, 9], vec![5, 6, 7, 8], vec![6, 7, 8, 9], vec![5, 6, 7, 8, 9, 10]] {
            assert_eq!(listed_through(&piece((5, 9), wrong.clone(), false), 5, 9), None, "{wrong:?}");
        }
        assert_eq!(listed_through(&piece((5, 9), [], true), 5, 9), None, "nothing is covered");
        assert_eq!(listed_through(b"", 5, 9), None);
    }
}
