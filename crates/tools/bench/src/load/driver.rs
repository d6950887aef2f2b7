//! A NICEKV client and its socket, on the calling thread.

use crate::error::{BenchError, Result};
use nicekv_client::{ClientCore, Config};
use nicekv_proto::Now;
use nicekv_runtime::{BusyPoll, UdpEndpoint, now, readable, receive_into, wait};
use std::net::SocketAddrV4;

/// Batches received before answers are processed.
const RECEIVE_ROUNDS_MAX: usize = 2;
/// The same of an open loop, where more answers may be waiting.
const OPEN_RECEIVE_ROUNDS_MAX: usize = 8;

pub(crate) struct Driver {
    pub(crate) core: ClientCore,
    endpoint: UdpEndpoint,
    busy_poll: BusyPoll,
}

fn failed() -> impl FnOnce(std::io::Error) -> BenchError {
    BenchError::system("use the client's socket")
}

impl Driver {
    /// The socket belongs to the calling thread's network namespace.
    pub(crate) fn bind(address: SocketAddrV4, config: Config) -> std::io::Result<Self> {
        let (core, endpoint) = (ClientCore::new(config), UdpEndpoint::bind(address)?);
        Ok(Self { core, endpoint, busy_poll: BusyPoll::new(BusyPoll::DEFAULT) })
    }

    /// A turn of a closed loop: sends what is due, waits until datagrams arrive or a deadline
    /// passes, and handles them. It busy-polls before it sleeps. Returns the time after the wait.
    pub(crate) fn turn(&mut self) -> Result<Now> {
        let Self { core, endpoint, busy_poll } = self;
        endpoint.send_with(|out| core.poll_transmit(out)).map_err(failed())?;
        let deadline_ns = core.next_deadline();
        let mut receive = || receive_into(core, endpoint, RECEIVE_ROUNDS_MAX);
        if !busy_poll.look(deadline_ns, &mut receive).map_err(failed())? {
            wait(&mut [readable(&*endpoint)], deadline_ns).map_err(failed())?;
            receive_into(core, endpoint, RECEIVE_ROUNDS_MAX).map_err(failed())?;
        }
        let now = now();
        busy_poll.begin(now);
        if core.next_deadline().is_some_and(|deadline_ns| deadline_ns <= now.boot_ns) {
            core.handle_deadline(now);
        }
        Ok(now)
    }

    /// A turn of an open loop, which has more to send at `until_ns`: the same without busy-polling.
    /// The time that it returns is that after receiving: latencies up to the turn's start would be
    /// too short.
    pub(crate) fn turn_until(&mut self, until_ns: u64) -> Result<Now> {
        let Self { core, endpoint, .. } = self;
        endpoint.send_with(|out| core.poll_transmit(out)).map_err(failed())?;
        let deadline_ns = core.next_deadline().map_or(until_ns, |deadline_ns| deadline_ns.min(until_ns));
        wait(&mut [readable(&*endpoint)], Some(deadline_ns)).map_err(failed())?;
        receive_into(core, endpoint, OPEN_RECEIVE_ROUNDS_MAX).map_err(failed())?;
        let now = now();
        core.handle_deadline(now);
        Ok(now)
    }
}
