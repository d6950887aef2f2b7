//! Small puts at a steady rate, whether or not earlier puts are answered. A latency counts from the
//! time at which the put was due, so that puts queued behind a delay count, too.

use super::driver::Driver;
use super::{ANSWER_TIMEOUT, Limits, check_done, submit_request};
use crate::error::{BenchError, Result};
use crate::latencies::Latencies;
use crate::workload::{Sequence, Work};
use nicekv_client::{Config, Keyspace, Request};
use nicekv_proto::{Expiry, Now, Operation};
use nicekv_runtime::{new_client_id, now};
use std::net::SocketAddrV4;
use std::time::Duration;

pub(crate) struct SteadyLoad {
    driver: Driver,
    keyspace: Keyspace,
    sequence: Sequence,
    /// When each put in flight was due, by the index of its ticket.
    due_ns: Vec<u64>,
    latencies: Latencies,
}

impl SteadyLoad {
    /// A client whose socket belongs to the calling thread's network namespace.
    pub(crate) fn bind(address: SocketAddrV4, keyspace: impl Into<Keyspace>) -> std::io::Result<Self> {
        let (keyspace, id) = (keyspace.into(), new_client_id()?);
        Ok(Self {
            driver: Driver::bind(address, Config::new(id, keyspace))?,
            keyspace,
            sequence: Sequence::new(Work::Put, 0),
            due_ns: Vec::new(),
            latencies: Latencies::default(),
        })
    }

    /// Puts every `pace` until the time is up or the load is stopped. Returns when all puts are
    /// answered.
    pub(crate) fn run(&mut self, pace: Duration, limits: Limits<'_>) -> Result<Latencies> {
        let pace_ns = pace.as_nanos() as u64;
        let mut due_ns = now().boot_ns;
        let end_ns = now().after(limits.duration);
        while due_ns < end_ns && !limits.stop.is_stopped() {
            let now = now();
            // Puts that are overdue are sent together.
            while due_ns <= now.boot_ns && self.driver.core.room() > 0 {
                self.submit(now, due_ns)?;
                due_ns += pace_ns;
            }
            self.turn(due_ns)?;
        }
        while self.driver.core.in_flight() > 0 {
            self.turn(u64::MAX)?;
        }
        Ok(std::mem::take(&mut self.latencies))
    }

    fn submit(&mut self, now: Now, due_ns: u64) -> Result<()> {
        let step = self.sequence.next().ok_or_else(|| BenchError::Failed("too many puts".into()))?;
        let (key, value) = (step.key(), step.value());
        let request = Request::update(&key, Operation::Set { value: &value, expiry: Expiry::Never });
        let ticket = submit_request(&mut self.driver.core, now, self.keyspace.id, request, ANSWER_TIMEOUT)?;
        let length = self.due_ns.len().max(ticket.index() + 1);
        self.due_ns.resize(length, 0);
        self.due_ns[ticket.index()] = due_ns;
        Ok(())
    }

    /// Sends, and receives until `until_ns` or a deadline of the client.
    fn turn(&mut self, until_ns: u64) -> Result<()> {
        let now = self.driver.turn_until(until_ns)?;
        while let Some(completion) = self.driver.core.poll_event() {
            let took_ns = now.boot_ns - self.due_ns[completion.ticket.index()];
            check_done("a put", completion.result)?;
            self.latencies.record(took_ns);
        }
        Ok(())
    }
}
