//! One request in flight.

use crate::OperationError;
use crate::exchange::{Buffers, Exchange, Round};
use crate::request::Summary;
use nicekv_proto::OpId;

/// See the diagram of the parent module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Free,
    /// Its datagram is written, and flow control has not admitted it.
    Waiting,
    InFlight,
    /// It is answered by a reference to a large value, which is being read.
    Reading,
    /// Waits before it is tried again as a new op, or for the driver to allow its large read.
    Pausing,
    Done,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) state: State,
    pub(super) generation: u32,
    /// Its index is in `InFlight::outgoing`.
    pub(super) queued: bool,
    /// Index of its keyspace.
    pub(super) keyspace: usize,
    pub(super) op: OpId,
    pub(super) round: Round,
    /// The vnode of the request that led its last datagram, and whether that is itself.
    pub(super) leader: (u16, bool),
    /// Tries of this round, also those under earlier op ids.
    pub(super) attempts: u32,
    /// When its last datagram left.
    pub(super) sent_ns: u64,
    /// When its first datagram in this round and under this op id left, and how many have.
    pub(super) first_sent_ns: u64,
    pub(super) copies: u32,
    /// A datagram of the request has left, so it may have taken effect.
    pub(super) was_sent: bool,
    pub(super) retry_ns: u64,
    pub(super) deadline_ns: u64,
    /// How far a large value may still move the deadline.
    pub(super) extension_ns: u64,
    /// When its large value is due, as in `InFlight::large`; `u64::MAX`: nothing is.
    pub(super) large_due_ns: u64,
    /// The caller asked for the value's length only.
    pub(super) wants_length: bool,
    /// A longer value is not read before the driver allows it.
    pub(super) auto_read_bytes_max: usize,
    /// It waits for that, and had so much time left before its deadline.
    pub(super) pending_read_ns: Option<u64>,
    pub(super) exchange: Exchange,
    pub(super) buffers: Buffers,
    pub(super) result: Result<Summary, OperationError>,
}

impl Slot {
    pub(super) fn new(exchange: Exchange, buffers: Buffers) -> Self {
        Self {
            state: State::Free,
            generation: 0,
            queued: false,
            keyspace: 0,
            op: OpId::NONE,
            round: Round::Read,
            leader: (0, true),
            attempts: 0,
            sent_ns: 0,
            first_sent_ns: 0,
            copies: 0,
            was_sent: false,
            retry_ns: 0,
            deadline_ns: 0,
            extension_ns: 0,
            large_due_ns: u64::MAX,
            wants_length: false,
            auto_read_bytes_max: usize::MAX,
            pending_read_ns: None,
            exchange,
            buffers,
            result: Err(OperationError::TimedOut),
        }
    }
}
