//! Values that are too long for a datagram, under way in chunks.
//!
//! ```text
//!   put    update: name, checksum ──▶ multicast vnode        as every update; and once more when reports are asked for
//!          chunk, mask ────────────▶ multicast vnode        as fast as reports say
//!          ◀── report: members, what is missing ── replicas
//!          ◀── reply ── primary                             the end, as of every update
//!
//!   get    get ─▶ ◀── reply: name, token                    the get is answered, and its value is to be read
//!          ask: name, token, first, count ──▶ unicast vnode  as many at a time as come in time
//!          ◀── chunk ── a replica                           the last one, and the checksum is right: the end
//! ```
//!
//! A driver that has little room has long values wait before they are read (`wanted`):
//!
//! ```text
//!   named ──▶ wanted ── allow ──▶ reading        and a get that waits for long: set aside ── allow ──▶ got anew ──▶ reading
//! ```
//!
//! `put` and `read` are one value each, and know no other requests. In `slots` they meet these: what has something to do stands in [`Due`] with the time
//! for it, and is polled when nothing small is to be sent.
//!
//! While chunks of a put are under way, its transfer sees to what is lost, and the timer of the update does not run. When it is over, or nobody answers, the update is sent
//! again and again as every update is, until its deadline. As soon as replicas report, the op takes no room of others any more, and its answer tells nothing
//! of their haste: it takes as long as the value is.

mod asked;
mod put;
mod read;
mod shared;
mod slots;
mod slow;
#[cfg(test)]
mod tests;
mod wanted;

use crate::Config;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
pub(crate) use asked::From;
use core::net::SocketAddrV4;
use nicekv_proto::limits::{LARGE_BYTES_MAX, LONG_VALUE_BYTES_MAX, VALUE_BYTES_MAX};
use nicekv_proto::{KeyDigest, KeyspaceId, NodeId, OpId};
use nicekv_transport::Stragglers;
pub(crate) use put::Put;
pub(crate) use read::Read;
pub use shared::SharedBytes;
use slow::SlowReplicas;

/// What chunks are about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About {
    pub(crate) keyspace: KeyspaceId,
    pub(crate) op: OpId,
    pub(crate) digest: KeyDigest,
}

/// The large value of a request.
#[derive(Clone, Debug)]
pub(crate) enum Large {
    Put(Put),
    Read(Read),
    /// It is here, and its completion is to be taken.
    Whole(Vec<u8>),
}

/// What was written, if anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Polled {
    /// A datagram that goes there.
    Sent(SocketAddrV4),
    /// An update is to be sent again, as small requests are.
    Queued,
}

/// Which slots' large values are to be looked after, and when.
#[derive(Clone, Debug)]
pub(crate) struct Due {
    /// Of the last input.
    pub(crate) now_ns: u64,
    /// As their `due_ns` say.
    slots: BTreeSet<(u64, u32)>,
    value_bytes_max: usize,
    pub(crate) message_value_bytes_max: usize,
    pub(crate) auto_read_bytes_max: usize,
    extra_ns_per_byte: u64,
    /// Slots that wait for the driver to allow what they read, and have not been told to it.
    wanted: VecDeque<u32>,
    slow: SlowReplicas,
    pub(crate) stragglers: Stragglers<NodeId>,
    /// The value of the last completion.
    delivered: Vec<u8>,
}

impl Due {
    pub(crate) fn new(config: &Config) -> Self {
        let value_bytes_max = config.value_bytes_max;
        assert!(config.message_value_bytes_max <= LONG_VALUE_BYTES_MAX);
        assert!((VALUE_BYTES_MAX..=LARGE_BYTES_MAX as usize).contains(&value_bytes_max));
        Self {
            now_ns: 0,
            slots: BTreeSet::new(),
            value_bytes_max,
            message_value_bytes_max: config.message_value_bytes_max,
            auto_read_bytes_max: config.auto_read_bytes_max,
            extra_ns_per_byte: config.extra_ns_per_byte,
            wanted: VecDeque::new(),
            slow: SlowReplicas::default(),
            stragglers: Stragglers::new(),
            delivered: Vec::new(),
        }
    }

    /// How much longer a request may take that is about a large value, whatever that is.
    pub(crate) fn patience_ns(&self) -> u64 {
        self.value_bytes_max as u64 * self.extra_ns_per_byte
    }

    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.slots.first().map(|(due_ns, _)| *due_ns)
    }

    /// A value is taken with its completion.
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

    /// The completion before is not looked at any more.
    pub(crate) fn delivered(&mut self) {
        if self.delivered.capacity() > 0 {
            self.delivered = Vec::new();
        }
    }
}
