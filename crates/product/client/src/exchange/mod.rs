//! What a client and replicas say to each other about one request, by protocol.
//!
//! ```text
//!   begin ──▶ the first round      on_datagram ──▶ Wait, Send (the next round), Afresh, Forgotten, Done
//!                                  on_timeout  ──▶ Again, Send
//! ```
//!
//! An exchange knows its protocol, and nothing of clocks, retries and other requests: these are [`InFlight`](crate::in_flight)'s,
//! which does what an exchange asks for. A new protocol is a module here, and a variant of [`Exchange`].

mod multicast;
mod quorum;
#[cfg(test)]
mod tests;

use crate::large::{About, Large, Put, SharedBytes};
use crate::summary::Summary;
use crate::{Keyspace, OperationError, Request, SubmitError};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};
use multicast::MulticastExchange;
use nicekv_proto::limits::{DATAGRAM_BYTES_MAX, MEMBERS_MAX, small_value_bytes_max};
use nicekv_proto::quorum::{Quorum, QuorumHeld, Timestamp};
use nicekv_proto::{
    Datagram, HeaderLayout, KeyDigest, KeyspaceId, MatchRange, NodeId, OpId, Operation, Replication,
};
use quorum::QuorumExchange;

/// What an exchange wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// More answers.
    Wait,
    /// Nothing: it has no use for the datagram.
    Stray,
    /// The datagram to be sent once more.
    Again,
    /// The datagram that it has written to be sent, as a round of its own.
    Send(Round),
    /// A pause, then a new op id: nothing was stored under the present one, and that is decided.
    Afresh,
    /// Nothing for now: the answer has named a large value, which is to be read as [`Buffers::large`] says.
    Read,
    /// A new op id at once: the value that was read is not there any more.
    Anew,
    /// The end, with the outcome unknown: replicas remember nothing of this client (R10).
    Forgotten,
    /// The end.
    Done(Result<Summary, OperationError>),
}

/// What a datagram makes replicas do, which tells how long they take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    /// Look.
    Read,
    /// Hold something, durably.
    Write,
}

/// What a try goes by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name {
    pub(crate) op: OpId,
    /// Every op with a smaller sequence is finished.
    pub(crate) watermark: u64,
}

/// What an exchange writes to; kept for the next request, so that nothing is allocated.
#[derive(Clone, Debug)]
pub(crate) struct Buffers {
    /// As [`Config`](crate::Config) says.
    message_value_bytes_max: usize,
    /// Where the datagram goes.
    pub(crate) to: SocketAddrV4,
    /// Where a large value is read.
    pub(crate) unicast: SocketAddrV4,
    /// The key's.
    pub(crate) vnode: u16,
    /// Its members are a chain, so that whom it is for follows from a directory.
    pub(crate) is_for_chain: bool,
    /// Of the present round.
    pub(crate) datagram: Vec<u8>,
    /// Of the answer; before it, whatever the exchange needs.
    pub(crate) value: Vec<u8>,
    /// A large value that is put, or read.
    pub(crate) large: Option<Box<Large>>,
    /// The value of the request that begins, where it is kept.
    pub(crate) kept: Option<SharedBytes>,
    /// The next datagram, while the present one is read.
    spare: Vec<u8>,
    /// Who has answered, and what it holds.
    held: Vec<Held>,
    /// What the pieces of a scan have covered, which are in `value`.
    covered: Vec<MatchRange>,
}

/// What a replica of a quorum keyspace has said that it holds durably.
#[derive(Clone, Copy, Debug)]
struct Held {
    node: NodeId,
    timestamp: Timestamp,
    floor: u64,
}

impl Buffers {
    pub(crate) fn new(message_value_bytes_max: usize) -> Self {
        let to = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        let (datagram, value, large, kept, spare, held, covered) = Default::default();
        let (vnode, is_for_chain) = (0, false);
        Self {
            message_value_bytes_max,
            to,
            unicast: to,
            vnode,
            is_for_chain,
            datagram,
            value,
            large,
            kept,
            spare,
            held,
            covered,
        }
    }

    /// How many replicas hold that version or a newer one.
    fn holders(&self, timestamp: Timestamp) -> usize {
        self.held.iter().filter(|held| held.timestamp >= timestamp).count()
    }

    /// Notes what a replica says; false if these are too many.
    fn note_held(&mut self, said: &QuorumHeld<'_>) -> bool {
        let QuorumHeld { node, timestamp, floor, .. } = *said;
        if let Some(known) = self.held.iter_mut().find(|held| held.node == node) {
            (known.timestamp, known.floor) = (known.timestamp.max(timestamp), known.floor.max(floor));
            return true;
        }
        let has_room = self.held.len() < MEMBERS_MAX;
        if has_room {
            self.held.push(Held { node, timestamp, floor });
        }
        has_room
    }

    /// What the request of the present datagram, under this op id, is about.
    fn about(&self, op: OpId) -> About {
        let header = HeaderLayout::peek(&self.datagram).expect("encoded here");
        About { keyspace: KeyspaceId(header.keyspace.get()), op, digest: KeyDigest(header.digest) }
    }

    /// Keeps what an operation puts, if that is too long for the message; what it is named by in its place. `quorum`: if not all replicas are needed (R14).
    fn keep_large(
        &mut self,
        about: About,
        key: &[u8],
        operation: &Operation<'_>,
        quorum: Option<Quorum>,
    ) -> Option<Vec<u8>> {
        let (Operation::Set { value, .. } | Operation::Append(value)) = operation else { return None };
        let is_whole = quorum.is_none() && value.len() <= self.message_value_bytes_max;
        if is_whole || value.len() <= small_value_bytes_max(key.len()) {
            return None;
        }
        let put = Put::new(about, SharedBytes::of(value, self.kept.as_ref()), quorum);
        let reference = put.reference().bytes();
        self.large = Some(Box::new(Large::Put(put)));
        Some(reference)
    }

    /// The request is over: what is longer than a datagram is not kept for the next one.
    #[cold]
    pub(crate) fn let_go_of_long(&mut self) {
        for buffer in [&mut self.datagram, &mut self.spare] {
            if buffer.capacity() > 2 * DATAGRAM_BYTES_MAX {
                *buffer = Vec::new();
            }
        }
    }

    fn set_value(&mut self, value: &[u8]) {
        self.value.clear();
        self.value.extend_from_slice(value);
    }

    /// Replaces the datagram by one that `write` makes of it.
    fn rewrite(&mut self, write: impl FnOnce(Datagram<'_>, &[u8], &mut Vec<u8>)) {
        let datagram = Datagram::decode(&self.datagram).expect("encoded here").1;
        write(datagram, &self.value, &mut self.spare);
        core::mem::swap(&mut self.datagram, &mut self.spare);
    }
}

/// One request, under way by the protocol of its keyspace.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Exchange {
    Multicast(MulticastExchange),
    Quorum(QuorumExchange),
}

impl Exchange {
    /// Whether zeros at the end of its datagram are of use: of a get that any consistent replica answers.
    pub(crate) fn may_be_lengthened(&self) -> bool {
        matches!(self, Self::Multicast(exchange) if exchange.is_get())
    }

    /// Of a request; fails if the protocol has no way to do that.
    #[inline]
    pub(crate) fn new(replication: Replication, request: &Request<'_>) -> Result<Self, SubmitError> {
        Ok(match replication {
            Replication::Multicast | Replication::Chain => Self::Multicast(MulticastExchange::new(request)),
            Replication::Quorum(quorum) => Self::Quorum(QuorumExchange::new(quorum, request)?),
        })
    }

    /// Writes the first datagram.
    pub(crate) fn begin(
        &mut self,
        name: Name,
        keyspace: &Keyspace,
        request: &Request<'_>,
        buffers: &mut Buffers,
    ) -> Round {
        debug_assert!(buffers.large.is_none(), "the completion of the request before was taken");
        buffers.is_for_chain = keyspace.replication == Replication::Chain;
        match self {
            Self::Multicast(exchange) => exchange.begin(name, keyspace, request, buffers),
            Self::Quorum(exchange) => exchange.begin(name, keyspace, request, buffers),
        }
    }

    /// An answer to this op has arrived.
    pub(crate) fn on_datagram(&mut self, datagram: &Datagram<'_>, buffers: &mut Buffers) -> Step {
        match self {
            Self::Multicast(exchange) => exchange.on_datagram(datagram, buffers),
            Self::Quorum(exchange) => exchange.on_datagram(datagram, buffers),
        }
    }

    /// Whether it reads a key and changes nothing, so that it may begin anew under another op id.
    pub(crate) fn is_get(&self) -> bool {
        match self {
            Self::Multicast(exchange) => exchange.is_get(),
            Self::Quorum(exchange) => exchange.is_get(),
        }
    }

    /// Whether the switch passes what is sent now to one node, and that answers.
    pub(crate) fn is_asked_of_one(&self) -> bool {
        matches!(self, Self::Multicast(exchange) if exchange.is_get())
    }

    /// Whether it shares its datagrams with others.
    pub(crate) fn may_share(&self) -> bool {
        !matches!(self, Self::Multicast(exchange) if exchange.is_scan() || exchange.is_about_channels())
    }

    /// Whether it is about what is published, and not about keys.
    pub(crate) fn is_about_channels(&self) -> bool {
        matches!(self, Self::Multicast(exchange) if exchange.is_about_channels())
    }

    /// It is time for a retry.
    pub(crate) fn on_timeout(&mut self, buffers: &mut Buffers) -> Step {
        match self {
            Self::Multicast(exchange) => exchange.on_timeout(buffers),
            Self::Quorum(exchange) => exchange.on_timeout(buffers),
        }
    }

    /// The pause after [`Step::Afresh`] is over: writes the datagram of the first round under another op id.
    pub(crate) fn begin_afresh(&mut self, name: Name, buffers: &mut Buffers) -> Round {
        match self {
            Self::Multicast(exchange) => exchange.begin_afresh(name, buffers),
            Self::Quorum(exchange) => exchange.begin_afresh(name, buffers),
        }
    }

    /// What to say of a request whose value is not read, as it is longer than a limit, or nobody wants it any more.
    pub(crate) fn unread(&self, limit: Option<usize>) -> OperationError {
        match (self.given_up(), limit) {
            (OperationError::TimedOut, Some(limit)) => OperationError::ResultTooLong { limit },
            (error, _) => error,
        }
    }

    /// What to say of a request that is given up now.
    pub(crate) fn given_up(&self) -> OperationError {
        match self {
            Self::Multicast(exchange) => exchange.given_up(),
            Self::Quorum(exchange) => exchange.given_up(),
        }
    }
}
