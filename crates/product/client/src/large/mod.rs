//! Large values: those that are too long for a message and move in chunks.
//!
//! ```text
//!   put    update: reference ───────▶ multicast vnode        as every update; again whenever a report is wanted
//!          chunk, mask ─────────────▶ multicast vnode        as fast as reports permit
//!          ◀── report: members, missing chunks ── replicas
//!          ◀── reply ── primary                              the end, as of every update
//!
//!   get    get ─▶ ◀── reply: reference, token                the get is answered; its value is to be read
//!          read: reference, token, first, count ──▶ unicast vnode    as many at a time as arrive in time
//!          ◀── chunk ── a replica                            the end: the last one, if the checksum is right
//! ```
//!
//! A reference is the value's name, length and checksum. A driver that is short of memory can have reads wait
//! ([`Config::auto_read_bytes_max`]):
//!
//! ```text
//!   reference ──▶ pending ── allowed ──▶ reading      suspended: the get gives up its op ── allowed ──▶ sent again ──▶ reading
//! ```
//!
//! [`Put`] and [`Read`] move one value each and know no requests. `in_flight::large` ties them to the slots of their
//! requests; [`LargeValues`] says which slots have something to send, and when.
//!
//! While chunks of a put are under way, its transfer repairs losses and the update's timer is off. When the transfer has
//! ended, or nobody answers it, the update is retried like any other until its deadline. Once replicas report, the op takes
//! no room in the congestion window, and its answer is no round-trip sample: it takes as long as the value does.

mod put;
mod read;
mod read_source;
mod shared_bytes;
mod slow_replicas;

use crate::Config;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_proto::NodeId;
use nicekv_proto::limits::{LARGE_BYTES_MAX, LONG_VALUE_BYTES_MAX, VALUE_BYTES_MAX};
use nicekv_transport::Stragglers;
pub(crate) use put::{Put, Sent};
pub(crate) use read::{ChunkOutcome, Read};
pub(crate) use read_source::{About, ReadSource};
pub use shared_bytes::SharedBytes;
use slow_replicas::SlowReplicas;

/// The large value of a request.
#[derive(Clone, Debug)]
pub(crate) enum Large {
    Put(Put),
    Read(Read),
    /// The value has been read, and its completion has not been taken yet.
    Whole(Vec<u8>),
}

/// The result of polling a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Polled {
    /// A datagram to this address.
    Sent(SocketAddrV4),
    /// An update is queued to be sent again, like a small request.
    Queued,
}

/// The large values of all requests: limits, which slots have something to send, and which replicas
/// are slow.
#[derive(Clone, Debug)]
pub(crate) struct LargeValues {
    /// Time of the last input.
    pub(crate) now_ns: u64,
    /// When each slot's transfer is to be polled.
    pub(crate) due: BTreeSet<(u64, u32)>,
    pub(crate) value_bytes_max: usize,
    pub(crate) message_value_bytes_max: usize,
    pub(crate) auto_read_bytes_max: usize,
    pub(crate) extra_ns_per_byte: u64,
    /// Slots whose read waits for the driver's permission, and which the driver has not taken yet.
    pub(crate) pending_reads: VecDeque<u32>,
    pub(crate) slow: SlowReplicas,
    pub(crate) stragglers: Stragglers<NodeId>,
    /// The value of the last completion.
    delivered: Vec<u8>,
}

impl LargeValues {
    pub(crate) fn new(config: &Config) -> Self {
        let value_bytes_max = config.value_bytes_max;
        assert!(config.message_value_bytes_max <= LONG_VALUE_BYTES_MAX);
        assert!((VALUE_BYTES_MAX..=LARGE_BYTES_MAX as usize).contains(&value_bytes_max));
        Self {
            now_ns: 0,
            due: BTreeSet::new(),
            value_bytes_max,
            message_value_bytes_max: config.message_value_bytes_max,
            auto_read_bytes_max: config.auto_read_bytes_max,
            extra_ns_per_byte: config.extra_ns_per_byte,
            pending_reads: VecDeque::new(),
            slow: SlowReplicas::default(),
            stragglers: Stragglers::new(),
            delivered: Vec::new(),
        }
    }

    /// By how much the deadline of a request may be extended for its large value, at most.
    pub(crate) fn extension_ns_max(&self) -> u64 {
        self.value_bytes_max as u64 * self.extra_ns_per_byte
    }

    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        self.due.first().map(|(due_ns, _)| *due_ns)
    }

    /// Keeps a value as that of the last completion.
    pub(crate) fn deliver(&mut self, large: Large) -> &[u8] {
        if let Large::Whole(value) = large {
            self.delivered = value;
        }
        &self.delivered
    }

    /// The value of the last completion, if it was longer than a datagram.
    pub(crate) fn take_delivered(&mut self) -> Option<Vec<u8>> {
        Some(core::mem::take(&mut self.delivered)).filter(|value| !value.is_empty())
    }

    /// Frees the value of the last completion.
    pub(crate) fn drop_delivered(&mut self) {
        if self.delivered.capacity() > 0 {
            self.delivered = Vec::new();
        }
    }

    /// Whether nothing is left of any large value.
    #[cfg(test)]
    pub(crate) fn is_clean(&self) -> bool {
        self.due.is_empty() && self.delivered.capacity() == 0
    }
}
