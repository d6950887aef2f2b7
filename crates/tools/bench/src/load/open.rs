//! An open loop: requests come at a rate, whether or not earlier ones are answered, as those of many users do.

use super::Limits;
use crate::error::{BenchError, Result};
use crate::workload::Sequence;
use nicekv_client::{ClientCore, Config, Outcome};
use nicekv_proto::KeyspaceId;
use nicekv_proto::placement::Vrings;
use nicekv_runtime::{UdpEndpoint, new_client_id, now, readable, receive_into, wait};
use std::net::SocketAddrV4;
use std::time::Duration;

/// A request is given up after so long: users of an overloaded store wait no longer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// Between two looks at how many requests are due.
const TURN: Duration = Duration::from_micros(200);
/// Batches received before requests are looked at.
const RECEIVE_ROUNDS_MAX: usize = 8;

/// What became of the requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Offered {
    /// Requests that came.
    pub(crate) offered: u64,
    /// Answered in time.
    pub(crate) answered: u64,
    /// Not taken, or given up before anything was sent: the client had too many.
    pub(crate) refused: u64,
    /// Sent, and not answered in time.
    pub(crate) failed: u64,
    /// Datagrams sent again.
    pub(crate) retries: u64,
    pub(crate) elapsed: Duration,
}

impl Offered {
    /// Answers per second.
    pub(crate) fn goodput(&self) -> f64 {
        self.answered as f64 / self.elapsed.as_secs_f64()
    }

    /// Datagrams sent again, of a hundred requests that were sent.
    pub(crate) fn retries_percent(&self) -> f64 {
        100.0 * self.retries as f64 / (self.answered + self.failed).max(1) as f64
    }
}

/// Offers `rate` requests per second from a socket of the calling thread's network namespace.
pub(crate) fn offer(
    address: SocketAddrV4,
    vrings: Vrings,
    mut sequence: Sequence,
    rate: f64,
    limits: Limits<'_>,
) -> Result<Offered> {
    let system = || BenchError::system("use the client's socket");
    let mut endpoint = UdpEndpoint::bind(address).map_err(system())?;
    let mut core = ClientCore::new(Config::new(new_client_id().map_err(system())?, vrings));
    let (mut counts, begun) = (Offered::default(), now());
    loop {
        let turn = now();
        let elapsed = Duration::from_nanos(turn.boot_ns - begun.boot_ns);
        if elapsed >= limits.duration || limits.stop.is_stopped() {
            counts.elapsed = elapsed;
            break;
        }
        let due = (rate * elapsed.as_secs_f64()) as u64 - counts.offered;
        counts.offered += due;
        let taken = due.min(core.room() as u64);
        counts.refused += due - taken;
        for step in sequence.by_ref().take(taken as usize) {
            super::submit(&mut core, turn, KeyspaceId::DEFAULT, &step, ANSWER_TIMEOUT)?;
        }
        endpoint.send_with(|out| core.poll_transmit(out)).map_err(system())?;
        wait(&mut [readable(&endpoint)], Some(turn.after(TURN))).map_err(system())?;
        // Not when the turn began: what answers take would seem shorter than it is.
        receive_into(&mut core, &mut endpoint, RECEIVE_ROUNDS_MAX).map_err(system())?;
        core.handle_deadline(now());
        count_answers(&mut core, &mut counts);
    }
    if limits.stop.is_stopped() {
        return Err(BenchError::Interrupted);
    }
    counts.retries = core.counters().retries;
    Ok(counts)
}

fn count_answers(core: &mut ClientCore, counts: &mut Offered) {
    while let Some(completion) = core.poll_event() {
        match completion.result {
            Ok(answer) if answer.outcome == Outcome::Done => counts.answered += 1,
            Err(nicekv_client::OperationError::Busy) => counts.refused += 1,
            _ => counts.failed += 1,
        }
    }
}
