//! Puts of small values at a steady pace, whether or not earlier ones are answered, and how long each takes: from when it was due, so that who waits behind a delay counts, too.

use super::{ANSWER_TIMEOUT, Limits, submit_request};
use crate::error::{BenchError, Result};
use crate::latencies::Latencies;
use crate::workload::{Sequence, Work};
use nicekv_client::{ClientCore, Config, Keyspace, Outcome, Request};
use nicekv_proto::{Expiry, Now, Operation};
use nicekv_runtime::{UdpEndpoint, new_client_id, now, readable, receive_into, wait};
use std::net::SocketAddrV4;
use std::time::Duration;

/// Batches received before puts are looked at.
const RECEIVE_ROUNDS_MAX: usize = 2;

/// A client that puts.
pub(crate) struct SteadyLoad {
    core: ClientCore,
    endpoint: UdpEndpoint,
    keyspace: Keyspace,
    sequence: Sequence,
    /// When each put under way was due, by the index of its ticket.
    due_ns: Vec<u64>,
    latencies: Latencies,
}

impl SteadyLoad {
    /// From a socket of the calling thread's network namespace.
    pub(crate) fn bind(address: SocketAddrV4, keyspace: impl Into<Keyspace>) -> Result<Self> {
        let failed = || BenchError::system("make a client's socket");
        let (keyspace, id) = (keyspace.into(), new_client_id().map_err(failed())?);
        Ok(Self {
            core: ClientCore::new(Config::new(id, keyspace)),
            endpoint: UdpEndpoint::bind(address).map_err(failed())?,
            keyspace,
            sequence: Sequence::new(Work::Put, 0),
            due_ns: Vec::new(),
            latencies: Latencies::default(),
        })
    }

    /// Puts every `pace` until the time is over or it is told to stop. All are answered then.
    pub(crate) fn run(&mut self, pace: Duration, limits: Limits<'_>) -> Result<Latencies> {
        let pace_ns = pace.as_nanos() as u64;
        let mut due_ns = now().boot_ns;
        let end_ns = now().after(limits.duration);
        while due_ns < end_ns && !limits.stop.is_stopped() {
            let now = now();
            // Those that should have left meanwhile leave together.
            while due_ns <= now.boot_ns && self.core.room() > 0 {
                self.submit(now, due_ns)?;
                due_ns += pace_ns;
            }
            self.turn(due_ns)?;
        }
        while self.core.in_flight() > 0 {
            self.turn(u64::MAX)?;
        }
        Ok(std::mem::take(&mut self.latencies))
    }

    fn submit(&mut self, now: Now, due_ns: u64) -> Result<()> {
        let step = self.sequence.next().ok_or_else(|| BenchError::Failed("too many puts".into()))?;
        let (key, value) = (step.key(), step.value());
        let request = Request::update(&key, Operation::Set { value: &value, expiry: Expiry::Never });
        let ticket = submit_request(&mut self.core, now, self.keyspace.id, request, ANSWER_TIMEOUT)?;
        let length = self.due_ns.len().max(ticket.index() + 1);
        self.due_ns.resize(length, 0);
        self.due_ns[ticket.index()] = due_ns;
        Ok(())
    }

    /// Sends, and takes what comes until then.
    fn turn(&mut self, until_ns: u64) -> Result<()> {
        let Self { core, endpoint, .. } = self;
        let system = || BenchError::system("use the client's socket");
        endpoint.send_with(|out| core.poll_transmit(out)).map_err(system())?;
        let deadline_ns = core.next_deadline().map_or(until_ns, |deadline_ns| deadline_ns.min(until_ns));
        wait(&mut [readable(&*endpoint)], Some(deadline_ns)).map_err(system())?;
        receive_into(core, endpoint, RECEIVE_ROUNDS_MAX).map_err(system())?;
        let now = now();
        core.handle_deadline(now);
        while let Some(completion) = core.poll_event() {
            let took_ns = now.boot_ns - self.due_ns[completion.ticket.index()];
            match completion.result {
                Ok(answer) if answer.outcome == Outcome::Done => self.latencies.note(took_ns)?,
                Ok(answer) => return Err(BenchError::Failed(format!("a put: {:?}", answer.outcome))),
                Err(error) => return Err(BenchError::Failed(format!("a put: {error}"))),
            }
        }
        Ok(())
    }
}
