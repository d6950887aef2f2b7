//! Load generators: closed loops on the calling thread, each bounded by time and by the length of
//! its sequence.
//!
//! ```text
//!  caller 1  ──op──▶ … ──answer, checked──▶ next op
//!  caller 2  ──op──▶ …                                     one thread, each caller has one op in flight
//!  …
//! ```
//!
//! Every load checks every answer, and counts an op only if it was answered in time.

pub(crate) mod driver;
pub(crate) mod echo;
pub(crate) mod echoes;
pub(crate) mod etcd;
pub(crate) mod large;
pub(crate) mod large_redis;
pub(crate) mod native;
pub(crate) mod open;
pub(crate) mod paced;
pub(crate) mod redis;
pub(crate) mod steady;

use crate::cost::MachineTime;
use crate::error::{BenchError, Result};
use crate::statistics::{Rounds, in_turn};
use crate::workload::Step;
use nicekv_client::{Answer, ClientCore, OperationError, Outcome, Request, Ticket};
use nicekv_proto::{Expiry, KeyspaceId, Now, Operation};
use nicekv_runtime::Stop;
use std::time::{Duration, Instant};

/// An op that is not answered by then makes the run fail. Long enough for a failover.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Conditions that end a run before its sequence does.
#[derive(Clone, Copy)]
pub(crate) struct Limits<'a> {
    pub(crate) duration: Duration,
    pub(crate) stop: &'a Stop,
}

/// The result of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    pub(crate) operations: u64,
    pub(crate) elapsed: Duration,
    /// Datagrams sent again, because they or their answers were lost or late.
    pub(crate) retries: u64,
    /// Processor time of the whole machine.
    pub(crate) busy: Duration,
}

impl Measured {
    /// From the rate that another load generator reports, which began at `before`.
    pub(crate) fn at_rate(operations: u64, rate: f64, before: MachineTime) -> Self {
        let elapsed = Duration::from_secs_f64(operations as f64 / rate);
        Self { operations, elapsed, retries: 0, busy: MachineTime::now().since(before).busy }
    }

    /// Ops per second.
    pub(crate) fn throughput(&self) -> f64 {
        self.operations as f64 / self.elapsed.as_secs_f64()
    }

    /// Processor time of the whole machine per op, in microseconds.
    pub(crate) fn cost_us(&self) -> f64 {
        // At least one tick: the kernel counts nothing shorter.
        self.busy.max(crate::cost::TICK).as_secs_f64() * 1e6 / self.operations as f64
    }

    /// Microseconds per op of a single caller.
    pub(crate) fn mean_us(&self) -> f64 {
        self.elapsed.as_secs_f64() * 1e6 / self.operations as f64
    }
}

/// Submits an op to a NICEKV client; it fails after `timeout`.
fn submit(
    core: &mut ClientCore,
    now: Now,
    keyspace: KeyspaceId,
    step: &Step,
    timeout: Duration,
) -> Result<Ticket> {
    let (key, value) = (step.key(), step.value());
    let request = match step.is_get() {
        true => Request::Get { key: &key },
        false => Request::update(&key, Operation::Set { value: &value, expiry: Expiry::Never }),
    };
    submit_request(core, now, keyspace, request, timeout)
}

pub(crate) fn submit_request(
    core: &mut ClientCore,
    now: Now,
    keyspace: KeyspaceId,
    request: Request<'_>,
    timeout: Duration,
) -> Result<Ticket> {
    core.submit(now, keyspace, request, now.after(timeout))
        .map_err(|error| BenchError::Failed(format!("the client refuses an op: {error}")))
}

/// Checks that an op of which only the success matters has succeeded.
pub(crate) fn check_done(what: &str, result: std::result::Result<Answer<'_>, OperationError>) -> Result<()> {
    match result {
        Ok(answer) if answer.outcome == Outcome::Done => Ok(()),
        Ok(answer) => Err(BenchError::Failed(format!("{what}: {:?}", answer.outcome))),
        Err(error) => Err(BenchError::Failed(format!("{what}: {error}"))),
    }
}

/// Measures both sides in every round, in turn: rates in ops per second, and costs in microseconds
/// per op.
pub(crate) fn measure_rounds(
    title: &str,
    rounds: u32,
    mut measure: impl FnMut(usize, u64) -> Result<Measured>,
) -> Result<(Rounds, Rounds)> {
    let (mut rates, mut costs) = (Rounds::default(), Rounds::default());
    for round in 1..=rounds {
        let [ours, peers] = in_turn(round, |side| measure(side, round.into()))?;
        eprintln!("{round}/{rounds} {title}: {:.0}/s, {:.0}/s", ours.throughput(), peers.throughput());
        rates.push(ours.throughput(), peers.throughput());
        costs.push(ours.cost_us(), peers.cost_us());
    }
    Ok((rates, costs))
}

/// Counts ops until the time is up.
pub(crate) struct Meter<'a> {
    limits: Limits<'a>,
    started: Instant,
    machine: MachineTime,
    operations: u64,
    finished: Option<Measured>,
}

impl<'a> Meter<'a> {
    pub(crate) fn start(limits: Limits<'a>) -> Self {
        Self { limits, started: Instant::now(), machine: MachineTime::now(), operations: 0, finished: None }
    }

    /// Counts `operations` answers; false once callers should stop.
    pub(crate) fn count(&mut self, operations: u64) -> bool {
        if self.finished.is_some() {
            return false;
        }
        self.operations += operations;
        let elapsed = self.started.elapsed();
        if elapsed >= self.limits.duration || self.limits.stop.is_stopped() {
            self.finished = Some(self.measured(elapsed));
        }
        self.finished.is_none()
    }

    fn measured(&self, elapsed: Duration) -> Measured {
        let busy = MachineTime::now().since(self.machine).busy;
        Measured { operations: self.operations, elapsed, retries: 0, busy }
    }

    /// Call it after the last answer.
    pub(crate) fn finish(self) -> Result<Measured> {
        if self.limits.stop.is_stopped() {
            return Err(BenchError::Interrupted);
        }
        let elapsed = self.started.elapsed();
        let measured = self.finished.unwrap_or_else(|| self.measured(elapsed));
        if measured.operations == 0 {
            return Err(BenchError::Failed(format!("no op was answered in {elapsed:.1?}")));
        }
        Ok(measured)
    }
}

#[cfg(test)]
mod testing {
    use super::*;

    /// Long enough for a few ops.
    pub(super) fn limits(stop: &Stop) -> Limits<'_> {
        Limits { duration: Duration::from_millis(50), stop }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_counts_until_its_time_is_up_and_fails_without_an_answer() {
        let stop = Stop::new();
        let mut meter = Meter::start(Limits { duration: Duration::ZERO, stop: &stop });
        assert!(!meter.count(3), "the time is up");
        assert!(!meter.count(5), "late answers do not count");
        assert_eq!(meter.finish().unwrap().operations, 3);
        assert!(Meter::start(testing::limits(&stop)).finish().is_err());
    }

    #[test]
    fn a_stop_ends_a_run_without_figures() {
        let stop = Stop::new();
        let mut meter = Meter::start(testing::limits(&stop));
        stop.stop();
        assert!(!meter.count(3));
        assert!(matches!(meter.finish(), Err(BenchError::Interrupted)));
    }
}
