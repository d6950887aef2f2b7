//! An open loop: requests arrive at a rate, whether or not earlier requests are answered, as those
//! of many users do.

use super::Limits;
use super::driver::Driver;
use crate::error::{BenchError, Result};
use crate::workload::Sequence;
use nicekv_client::{ClientCore, Config, Outcome};
use nicekv_proto::KeyspaceId;
use nicekv_proto::placement::Vrings;
use nicekv_runtime::{new_client_id, now};
use std::net::SocketAddrV4;
use std::time::Duration;

/// A request is given up after this time: users of an overloaded store wait no longer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval at which requests that are due are sent.
const TURN: Duration = Duration::from_micros(200);
/// The outcomes of the offered requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Offered {
    /// Requests that arrived at the client.
    pub(crate) offered: u64,
    /// Answered in time.
    pub(crate) answered: u64,
    /// Rejected by the client, which had too many in flight, before anything was sent.
    pub(crate) refused: u64,
    /// Sent, but not answered in time.
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

    /// Datagrams sent again per hundred requests that were sent.
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
    let failed = || BenchError::system("open a client's socket");
    let config = Config::new(new_client_id().map_err(failed())?, vrings);
    let mut driver = Driver::bind(address, config).map_err(failed())?;
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
        let taken = due.min(driver.core.room() as u64);
        counts.refused += due - taken;
        for step in sequence.by_ref().take(taken as usize) {
            super::submit(&mut driver.core, turn, KeyspaceId::DEFAULT, &step, ANSWER_TIMEOUT)?;
        }
        driver.turn_until(turn.after(TURN))?;
        count_answers(&mut driver.core, &mut counts);
    }
    if limits.stop.is_stopped() {
        return Err(BenchError::Interrupted);
    }
    counts.retries = driver.core.counters().retries;
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
