//! The client of a keyspace, whichever its replication: what drivers and handles see.

use crate::client_core::PrimaryCore;
use crate::{Completion, Config, Counters, QuorumCore, Request, SubmitError, Ticket};
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_wire::Now;

/// A client of one keyspace. See the [crate documentation](crate) and the driver's duties below.
///
/// The driver calls `handle_*` for input, then sends what [`Self::poll_transmit`] yields, takes what [`Self::poll_event`] yields, and
/// calls [`Self::handle_deadline`] no later than at [`Self::next_deadline`]. `now` must never go backwards.
///
/// ```
/// use nicekv_client::{ClientCore, Config, OPERATION_TIMEOUT, Request};
/// use nicekv_placement::Vrings;
/// use nicekv_wire::{ClientId, Now};
///
/// let mut client = ClientCore::new(Config::new(ClientId::new(1_700_000_000_000, 7), Vrings::on_loopback(7400)));
/// let now = Now { boot_ns: 1_000, unix_ms: 1_700_000_000_000 };
/// let ticket = client.submit(now, Request::Get { key: b"color" }, now.after(OPERATION_TIMEOUT)).unwrap();
/// let mut datagram = Vec::new();
/// let vnode_address = client.poll_transmit(&mut datagram).unwrap();
/// assert_eq!(vnode_address.ip().octets()[..2], [127, 10]);
/// # let _ = ticket;
/// ```
#[derive(Clone, Debug)]
pub struct ClientCore(Either);

#[derive(Clone, Debug)]
enum Either {
    /// A primary answers, or a consistent replica for it.
    Primary(PrimaryCore),
    /// Replicas answer, and this side counts (R14).
    Quorum(QuorumCore),
}

macro_rules! whichever {
    ($self:ident, $core:ident => $call:expr) => {
        match $self {
            Self(Either::Primary($core)) => $call,
            Self(Either::Quorum($core)) => $call,
        }
    };
}

impl ClientCore {
    /// A client that has done nothing yet.
    pub fn new(config: Config) -> Self {
        Self(match config.quorum {
            None => Either::Primary(PrimaryCore::new(config)),
            Some(quorum) => Either::Quorum(QuorumCore::new(config, quorum)),
        })
    }

    /// Its settings.
    pub fn config(&self) -> &Config {
        whichever!(self, core => core.config())
    }

    /// What it has done so far.
    pub fn counters(&self) -> Counters {
        whichever!(self, core => core.counters())
    }

    /// Requests that were submitted and whose completion has not been taken.
    pub fn in_flight(&self) -> usize {
        whichever!(self, core => core.in_flight())
    }

    /// Requests that may be submitted now before one is refused with [`SubmitError::WindowFull`].
    pub fn room(&self) -> usize {
        whichever!(self, core => core.room())
    }

    /// Starts a request. It is answered, or fails, at about `deadline_ns` of the boot-time clock at the latest.
    ///
    /// # Errors
    /// The request is outside the limits, or of a kind that the keyspace has not.
    pub fn submit(
        &mut self,
        now: Now,
        request: Request<'_>,
        deadline_ns: u64,
    ) -> Result<Ticket, SubmitError> {
        whichever!(self, core => core.submit(now, request, deadline_ns))
    }

    /// A datagram arrived at the client's socket.
    pub fn handle_datagram(&mut self, now: Now, bytes: &[u8]) {
        whichever!(self, core => core.handle_datagram(now, bytes));
    }

    /// Retries and gives up what is due.
    pub fn handle_deadline(&mut self, now: Now) {
        whichever!(self, core => core.handle_deadline(now));
    }

    /// When to call [`Self::handle_deadline`], in nanoseconds of the boot-time clock.
    pub fn next_deadline(&self) -> Option<u64> {
        whichever!(self, core => core.next_deadline())
    }

    /// Writes the next datagram to `out`, which is cleared, and says where it goes.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<SocketAddrV4> {
        whichever!(self, core => core.poll_transmit(out))
    }

    /// Takes the next completion. Its ticket's index may be used again from here on.
    pub fn poll_event(&mut self) -> Option<Completion<'_>> {
        whichever!(self, core => core.poll_event())
    }
}
