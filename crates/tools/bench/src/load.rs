//! Load generators: closed loops on the calling thread, each bounded by time and by the length of its sequence.
//!
//! ```text
//!  caller 1  ──op──▶ … ──answer, checked──▶ next op
//!  caller 2  ──op──▶ …                                     one thread, each caller has one op in flight
//!  …
//! ```
//!
//! All of them check every answer, and count an op only if it was answered within the time.

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
use crate::workload::Step;
use nicekv_client::{ClientCore, Request, Ticket};
use nicekv_proto::{Expiry, KeyspaceId, Now, Operation};
use nicekv_runtime::Stop;
use std::time::{Duration, Instant};

/// An op that is not answered in this time makes the run fail. Long enough for a failover.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// How a run is bounded, beside the length of its sequence.
#[derive(Clone, Copy)]
pub(crate) struct Limits<'a> {
    pub(crate) duration: Duration,
    pub(crate) stop: &'a Stop,
}

/// What a run has done.
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
    /// What somebody else has measured as a rate, and what the machine was busy with since `before`.
    pub(crate) fn at_rate(operations: u64, rate: f64, before: MachineTime) -> Self {
        let elapsed = Duration::from_secs_f64(operations as f64 / rate);
        Self { operations, elapsed, retries: 0, busy: MachineTime::now().since(before).busy }
    }

    /// Ops per second.
    pub(crate) fn throughput(&self) -> f64 {
        self.operations as f64 / self.elapsed.as_secs_f64()
    }

    /// Microseconds of processor time per op, of everybody who takes part.
    pub(crate) fn cost_us(&self) -> f64 {
        // Nothing costs less than can be counted.
        self.busy.max(crate::cost::TICK).as_secs_f64() * 1e6 / self.operations as f64
    }

    /// Microseconds per op, of a single caller.
    pub(crate) fn mean_us(&self) -> f64 {
        self.elapsed.as_secs_f64() * 1e6 / self.operations as f64
    }
}

/// Hands an op to a client of ours, to be answered within `timeout`.
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

/// Counts ops until the time is over.
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

    /// Notes `operations` answers; true as long as callers shall go on.
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

    /// After the last answer.
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

    /// Long enough for some ops.
    pub(super) fn limits(stop: &Stop) -> Limits<'_> {
        Limits { duration: Duration::from_millis(50), stop }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_counts_until_its_time_is_over_and_fails_without_an_answer() {
        let stop = Stop::new();
        let mut meter = Meter::start(Limits { duration: Duration::ZERO, stop: &stop });
        assert!(!meter.count(3), "the time is over");
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
