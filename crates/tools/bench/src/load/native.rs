//! The native client under load: one op per datagram, unless the keyspace lets the client batch
//! them.

use super::driver::Driver;
use super::{ANSWER_TIMEOUT, Limits, Measured, Meter};
use crate::error::{BenchError, Result};
use crate::session::Session;
use crate::workload::{Sequence, Step, Work};
use nicekv_client::{Answer, Config, Keyspace, OperationError, Outcome};
use nicekv_proto::{KeyspaceId, Now};
use nicekv_runtime::{new_client_id, now};
use std::net::SocketAddrV4;
use std::time::Duration;

/// Fills caches and connections before a measurement.
pub(crate) const WARM_UP: Duration = Duration::from_millis(300);
/// Every key is stored by then.
pub(crate) const PRELOAD_TIMEOUT: Duration = Duration::from_secs(30);
pub(crate) const PRELOADERS: Callers = Callers { count: 64, at_once: 1 };

/// A client of a NICEKV cluster.
pub(crate) struct NativeLoad {
    driver: Driver,
    keyspace: KeyspaceId,
    /// The op and the caller of each request in flight, by the index of its ticket.
    steps: Vec<Option<(Step, usize)>>,
    /// Ops in flight of each caller.
    callers: Vec<usize>,
    /// Callers without ops in flight.
    free: Vec<usize>,
}

/// Callers of a closed loop. Each sends its next ops when all its last ops are answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Callers {
    pub(crate) count: usize,
    /// Ops that each caller sends at once.
    pub(crate) at_once: usize,
}

impl Callers {
    /// Callers with one op each.
    pub(crate) const fn single(count: usize) -> Self {
        Self { count, at_once: 1 }
    }
}

impl NativeLoad {
    /// A client whose socket belongs to the calling thread's network namespace.
    pub(crate) fn bind(address: SocketAddrV4, keyspace: impl Into<Keyspace>) -> std::io::Result<Self> {
        let keyspace = keyspace.into();
        let id = keyspace.id;
        let driver = Driver::bind(address, Config::new(new_client_id()?, keyspace))?;
        Ok(Self { driver, keyspace: id, steps: Vec::new(), callers: Vec::new(), free: Vec::new() })
    }

    pub(crate) fn run(
        &mut self,
        mut sequence: Sequence,
        callers: Callers,
        limits: Limits<'_>,
    ) -> Result<Measured> {
        let retries_before = self.driver.core.counters().retries;
        let mut failures = Failures::default();
        let mut meter = Meter::start(limits);
        let begun = now();
        self.callers = vec![0; callers.count];
        self.free = (0..callers.count).collect();
        self.ask(begun, &mut sequence, callers.at_once)?;
        while self.driver.core.in_flight() > 0 {
            let now = self.driver.turn()?;
            let finished = self.take_answers(&mut failures);
            if meter.count(finished) {
                self.ask(now, &mut sequence, callers.at_once)?;
            }
        }
        failures.check()?;
        let retries = self.driver.core.counters().retries - retries_before;
        Ok(Measured { retries, ..meter.finish()? })
    }

    /// Runs `work` for a round of the session, after a warm-up.
    pub(crate) fn run_warm(
        &mut self,
        work: Work,
        round: u64,
        callers: Callers,
        session: &Session,
    ) -> Result<Measured> {
        self.run(Sequence::new(work, 2 * round), callers, session.limits(WARM_UP))?;
        self.run(Sequence::new(work, 2 * round + 1), callers, session.limits(session.round_time()))
    }

    /// Stores every key that gets read.
    pub(crate) fn preload(&mut self, limits: Limits<'_>) -> Result<Measured> {
        self.run(Sequence::new(Work::Preload, 0), PRELOADERS, limits)
    }

    /// Sends the next ops of every caller that has none in flight.
    fn ask(&mut self, now: Now, sequence: &mut Sequence, at_once: usize) -> Result<()> {
        while let Some(caller) = self.free.pop() {
            for step in sequence.by_ref().take(at_once) {
                self.submit(now, step, caller)?;
            }
        }
        Ok(())
    }

    fn submit(&mut self, now: Now, step: Step, caller: usize) -> Result<()> {
        let ticket = super::submit(&mut self.driver.core, now, self.keyspace, &step, ANSWER_TIMEOUT)?;
        if self.steps.len() <= ticket.index() {
            self.steps.resize(ticket.index() + 1, None);
        }
        self.steps[ticket.index()] = Some((step, caller));
        self.callers[caller] += 1;
        Ok(())
    }

    /// Checks the answers that have arrived; returns their number.
    fn take_answers(&mut self, failures: &mut Failures) -> u64 {
        let mut finished = 0;
        while let Some(completion) = self.driver.core.poll_event() {
            let (step, caller) = self.steps[completion.ticket.index()].take().expect("submitted here");
            if !is_right(&step, completion.result) {
                failures.note(&step, completion.result);
            }
            finished += 1;
            self.callers[caller] -= 1;
            if self.callers[caller] == 0 {
                self.free.push(caller);
            }
        }
        finished
    }
}

fn is_right(step: &Step, result: std::result::Result<Answer<'_>, OperationError>) -> bool {
    result.is_ok_and(|answer| {
        answer.outcome == Outcome::Done && (!step.is_get() || answer.value == Some(step.value().as_slice()))
    })
}

/// Ops that failed or got a wrong answer.
#[derive(Default)]
struct Failures {
    count: u64,
    first: Option<String>,
}

impl Failures {
    fn note(&mut self, step: &Step, result: std::result::Result<Answer<'_>, OperationError>) {
        self.count += 1;
        self.first.get_or_insert_with(|| {
            let key = step.key().escape_ascii().to_string();
            match result {
                Err(error) => format!("{key}: {error}"),
                Ok(answer) => format!("{key}: wrong answer, {:?}", answer.outcome),
            }
        });
    }

    fn check(self) -> Result<()> {
        match self.first {
            None => Ok(()),
            Some(first) => {
                Err(BenchError::Failed(format!("nicekv: {} ops failed, the first was {first}", self.count)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::testing::limits;
    use nicekv_proto::placement::Vrings;
    use nicekv_proto::{Datagram, Form, OpId, Reply, Status};
    use nicekv_runtime::{Stop, UdpEndpoint, readable, wait};
    use std::net::Ipv4Addr;

    type AnswerTo = fn(&[u8]) -> (Status, Option<Vec<u8>>);

    /// Runs `work` against a server that answers each key by `answer`.
    fn run(work: Work, answer: AnswerTo) -> Result<Measured> {
        let mut server = UdpEndpoint::bind_switch("lo", 0).unwrap();
        let vrings = Vrings::on_loopback(server.local_address().port());
        let mut load = NativeLoad::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0), vrings).unwrap();
        let (stop, ended) = (Stop::new(), Stop::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.is_stopped() {
                    wait(&mut [readable(&server)], Some(now().boot_ns + 10_000_000)).unwrap();
                    let mut replies = Vec::new();
                    server
                        .receive(|message| replies.push((message.from, reply_to(message.bytes, answer))))
                        .unwrap();
                    let mut replies = replies.into_iter();
                    let next = |out: &mut Vec<u8>| {
                        replies.next().map(|(to, reply)| {
                            out.extend_from_slice(&reply);
                            to
                        })
                    };
                    server.send_with(next).unwrap();
                }
            });
            let measured = load.run(Sequence::new(work, 1), Callers { count: 2, at_once: 4 }, limits(&stop));
            ended.stop();
            measured
        })
    }

    fn reply_to(request: &[u8], answer: AnswerTo) -> Vec<u8> {
        let (op, key) = match Datagram::decode(request).unwrap().1 {
            Datagram::Get(get) => (get.op, get.key),
            Datagram::Update(update) => (update.op, update.key),
            other => panic!("{other:?}"),
        };
        let (status, value) = answer(key);
        let mut bytes = Vec::new();
        let value = value.as_deref();
        Reply { form: Form::Plain, op, status, version: OpId::NONE, expiry_ms: 0, integer: 0, value }
            .encode(&mut bytes);
        bytes
    }

    fn right_value(key: &[u8]) -> (Status, Option<Vec<u8>>) {
        (Status::Ok, Some(Step::preloaded(key).value().to_vec()))
    }

    #[test]
    fn right_answers_are_counted() {
        assert!(run(Work::Get, right_value).unwrap().operations > 0);
        assert!(run(Work::Put, |_| (Status::Ok, None)).unwrap().operations > 0);
    }

    #[test]
    fn wrong_answers_fail_the_run_and_are_counted() {
        let wrong = |result: Result<Measured>| result.unwrap_err().to_string();
        let other_value = wrong(run(Work::Get, |_| (Status::Ok, Some(vec![7; 64]))));
        assert!(other_value.contains("ops failed") && other_value.contains("wrong answer"), "{other_value}");
        let not_stored = wrong(run(Work::Put, |_| (Status::DiskFull, None)));
        assert!(not_stored.contains("disk is full"), "{not_stored}");
    }
}
