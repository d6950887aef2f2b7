//! One request in flight.

use crate::OperationError;
use crate::exchange::{Buffers, Exchange, Round};
use crate::request::Summary;
use nicekv_proto::OpId;

/// The states in the diagram of the parent module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Free,
    /// Its datagram is written, but not admitted by flow control yet.
    Waiting,
    InFlight,
    /// It was answered with a reference to a large value, which is being read.
    Reading,
    /// It waits before it is tried again as a new op, or until the driver allows its large read.
    Pausing,
    Done,
}

/// A request in flight.
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
    /// The vnode of the request that led its last datagram, and whether the leader was this
    /// request.
    pub(super) leader: (u16, bool),
    /// Number of tries in this round, including those under earlier op ids.
    pub(super) attempts: u32,
    /// When its last datagram was sent.
    pub(super) sent_ns: u64,
    /// When its first datagram in this round and under this op id was sent, and how many have been
    /// since.
    pub(super) first_sent_ns: u64,
    pub(super) copies: u32,
    /// A datagram of the request was sent, so it may have taken effect.
    pub(super) was_sent: bool,
    pub(super) retry_ns: u64,
    pub(super) deadline_ns: u64,
    /// By how much a large value may still extend the deadline.
    pub(super) extension_ns: u64,
    /// When its transfer is due, as in `InFlight::large`; `u64::MAX`: it is not scheduled.
    pub(super) large_due_ns: u64,
    /// The caller wants only the length of the value.
    pub(super) wants_length: bool,
    /// Longer values are read only when the driver allows it.
    pub(super) auto_read_bytes_max: usize,
    /// The request waits for that permission; this is the time that was left before its deadline.
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
