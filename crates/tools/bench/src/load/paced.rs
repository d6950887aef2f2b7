//! Puts at a fixed pace, whether or not earlier puts are answered: how clients see an outage.

use super::driver::Driver;
use crate::error::{BenchError, Result};
use nicekv_client::{ClientCore, Config, Keyspace, Outcome, Request};
use nicekv_proto::{Expiry, Now, Operation};
use nicekv_runtime::{new_client_id, now};
use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// With the pace it bounds the number of puts in flight.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
const VALUE: &[u8] = b"sixty-four bytes or so, as in the other benches, to have some log";

/// Puts one key after the other, every `pace_ns`, until `stopped`, from a socket of the calling
/// thread's network namespace. Returns when each put succeeded, on the boot-time clock, in
/// ascending order.
pub(crate) fn put(
    address: SocketAddrV4,
    keyspace: Keyspace,
    keys: &[Vec<u8>],
    pace_ns: u64,
    stopped: &AtomicBool,
) -> Result<Vec<u64>> {
    let failed = || BenchError::system("open a client's socket");
    let config = Config::new(new_client_id().map_err(failed())?, keyspace);
    let mut driver = Driver::bind(address, config).map_err(failed())?;
    let mut successes_ns = Vec::new();
    let mut next_ns = now().boot_ns;
    for key in keys.iter().cycle() {
        let request = Request::update(key, Operation::Set { value: VALUE, expiry: Expiry::Never });
        super::submit_request(&mut driver.core, now(), keyspace.id, request, ANSWER_TIMEOUT)?;
        next_ns += pace_ns;
        while now().boot_ns < next_ns {
            let now = driver.turn_until(next_ns)?;
            take_successes(&mut driver.core, now, &mut successes_ns);
        }
        if stopped.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(successes_ns)
}

fn take_successes(core: &mut ClientCore, now: Now, successes_ns: &mut Vec<u64>) {
    while let Some(completion) = core.poll_event() {
        if completion.result.is_ok_and(|answer| answer.outcome == Outcome::Done) {
            successes_ns.push(now.boot_ns);
        }
    }
}
