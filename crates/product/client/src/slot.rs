//! What is known of one request under way.

use crate::OperationError;
use crate::exchange::{Buffers, Exchange, Round};
use crate::summary::Summary;
use nicekv_proto::OpId;

/// See `in_flight`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Free,
    /// Its datagram is written, and has not been sent.
    Waiting,
    InFlight,
    /// It is answered by the name of a large value, which is being read.
    Reading,
    /// Waits before it tries again as a new op, or, being wanted, for the driver to allow that.
    Pausing,
    Done,
}

/// Where a request stands (`turns`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Out,
    InLine,
    Parked,
    Counted,
    Probe,
    /// It is heard of, and takes as long as it takes: a large value is put.
    Apart,
}

/// What a slot knows of its turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) standing: Standing,
    /// Part of the vring that the datagram goes to.
    pub(crate) destination: u8,
    /// In how many datagrams it goes, or is likely to be answered.
    pub(crate) datagrams: u16,
}

impl Turn {
    pub(crate) const NONE: Self = Self { standing: Standing::Out, destination: 0, datagrams: 1 };
}

#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) state: State,
    pub(crate) generation: u32,
    /// Its index is in `InFlight::outgoing`.
    pub(crate) queued: bool,
    /// Index of its keyspace.
    pub(crate) keyspace: usize,
    pub(crate) op: OpId,
    pub(crate) round: Round,
    /// The vnode of what leads the datagram that it was sent in, and whether that is itself.
    pub(crate) led_by: (u16, bool),
    pub(crate) turn: Turn,
    /// Tries of this round so far, those under earlier op ids included.
    pub(crate) attempts: u32,
    /// When the last datagram was sent.
    pub(crate) sent_ns: u64,
    /// When the first one was, of those in this round and under this op id, and how many there have been.
    pub(crate) first_sent_ns: u64,
    pub(crate) copies: u32,
    /// A datagram of the request has been sent, so that something may have come of it.
    pub(crate) was_sent: bool,
    pub(crate) retry_ns: u64,
    pub(crate) deadline_ns: u64,
    /// By so much a large value may still move that.
    pub(crate) patience_ns: u64,
    /// When its large value is to be looked after, as `InFlight::due` has it; `u64::MAX`: it has none that needs it.
    pub(crate) due_ns: u64,
    /// The caller asked how long the value is, not what it is.
    pub(crate) wants_length: bool,
    /// Longer values are not read before the driver allows it.
    pub(crate) auto_read_bytes_max: usize,
    /// It waits for that, and had so much time left before its deadline.
    pub(crate) wanted: Option<u64>,
    pub(crate) exchange: Exchange,
    pub(crate) buffers: Buffers,
    pub(crate) result: Result<Summary, OperationError>,
}

impl Slot {
    pub(crate) fn new(exchange: Exchange, buffers: Buffers) -> Self {
        Self {
            state: State::Free,
            generation: 0,
            queued: false,
            keyspace: 0,
            op: OpId::NONE,
            round: Round::Read,
            led_by: (0, true),
            turn: Turn::NONE,
            attempts: 0,
            sent_ns: 0,
            first_sent_ns: 0,
            copies: 0,
            was_sent: false,
            retry_ns: 0,
            deadline_ns: 0,
            patience_ns: 0,
            due_ns: u64::MAX,
            wants_length: false,
            auto_read_bytes_max: usize::MAX,
            wanted: None,
            exchange,
            buffers,
            result: Err(OperationError::TimedOut),
        }
    }
}
