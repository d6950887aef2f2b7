//! Puts at a fixed pace, whether or not earlier ones are answered: what a moment without answers looks like to clients.

use crate::error::{BenchError, Result};
use nicekv_client::{ClientCore, Config, Keyspace, Outcome, Request};
use nicekv_proto::{Expiry, Now, Operation};
use nicekv_runtime::{UdpEndpoint, new_client_id, now, readable, wait};
use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Puts in flight are bounded by this time and the pace.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
const VALUE: &[u8] = b"sixty-four bytes or so, as in the other benches, to have some log";

/// Puts one key after the other, every `pace_ns`, until `stopped`, from a socket of the calling thread's network namespace. When each
/// of them succeeded, on the boot-time clock, ascending.
pub(crate) fn put(
    address: SocketAddrV4,
    keyspace: Keyspace,
    keys: &[Vec<u8>],
    pace_ns: u64,
    stopped: &AtomicBool,
) -> Result<Vec<u64>> {
    let system = || BenchError::system("use the client's socket");
    let mut endpoint = UdpEndpoint::bind(address).map_err(system())?;
    let mut core = ClientCore::new(Config::new(new_client_id().map_err(system())?, keyspace));
    let mut successes_ns = Vec::new();
    let mut next_ns = now().boot_ns;
    for key in keys.iter().cycle() {
        let request = Request::update(key, Operation::Set { value: VALUE, expiry: Expiry::Never });
        super::submit_request(&mut core, now(), keyspace.id, request, ANSWER_TIMEOUT)?;
        next_ns += pace_ns;
        while now().boot_ns < next_ns {
            endpoint.send_with(|out| core.poll_transmit(out)).map_err(system())?;
            let deadline_ns = core.next_deadline().map_or(next_ns, |deadline_ns| deadline_ns.min(next_ns));
            wait(&mut [readable(&endpoint)], Some(deadline_ns)).map_err(system())?;
            let now = now();
            endpoint
                .receive(|message| core.handle_datagram(now, message.from, message.bytes))
                .map_err(system())?;
            core.handle_deadline(now);
            take_successes(&mut core, now, &mut successes_ns);
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
