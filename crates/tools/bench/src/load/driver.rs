//! A client of ours and its socket, on the calling thread.

use crate::error::{BenchError, Result};
use nicekv_client::{ClientCore, Config};
use nicekv_proto::Now;
use nicekv_runtime::{BusyPoll, UdpEndpoint, now, readable, receive_into, wait};
use std::net::SocketAddrV4;

/// Batches received before answers are looked at.
const RECEIVE_ROUNDS_MAX: usize = 2;

pub(crate) struct Driver {
    pub(crate) core: ClientCore,
    endpoint: UdpEndpoint,
    busy_poll: BusyPoll,
}

impl Driver {
    /// The socket belongs to the calling thread's network namespace.
    pub(crate) fn bind(address: SocketAddrV4, config: Config) -> std::io::Result<Self> {
        let (core, endpoint) = (ClientCore::new(config), UdpEndpoint::bind(address)?);
        Ok(Self { core, endpoint, busy_poll: BusyPoll::new(BusyPoll::DEFAULT) })
    }

    /// Sends what there is to send, waits until there is something to do, and does it. When that was.
    pub(crate) fn turn(&mut self) -> Result<Now> {
        let Self { core, endpoint, busy_poll } = self;
        let system = || BenchError::system("use the client's socket");
        endpoint.send_with(|out| core.poll_transmit(out)).map_err(system())?;
        let deadline_ns = core.next_deadline();
        let mut receive = || receive_into(core, endpoint, RECEIVE_ROUNDS_MAX);
        if !busy_poll.look(deadline_ns, &mut receive).map_err(system())? {
            wait(&mut [readable(&*endpoint)], deadline_ns).map_err(system())?;
            receive_into(core, endpoint, RECEIVE_ROUNDS_MAX).map_err(system())?;
        }
        let now = now();
        busy_poll.begin(now);
        if core.next_deadline().is_some_and(|deadline_ns| deadline_ns <= now.boot_ns) {
            core.handle_deadline(now);
        }
        Ok(now)
    }
}
