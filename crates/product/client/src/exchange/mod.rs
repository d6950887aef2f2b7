//! The protocol of one request: what is sent to replicas, and what their answers mean.
//!
//! ```text
//!   begin ──▶ first round      on_datagram ──▶ Wait, Send (next round), RestartLater, ReadLarge, Done, …
//!                              on_timeout  ──▶ Resend, Send
//! ```
//!
//! An exchange knows its protocol, and nothing of clocks, retries or other requests: `in_flight` has these, and does what
//! an exchange asks for ([`Step`]). A new protocol is a module here and a variant of [`Exchange`].

mod buffers;
mod multicast;
mod quorum;
mod step;
#[cfg(test)]
mod tests;

use crate::{Keyspace, OperationError, Request, SubmitError};
pub(crate) use buffers::Buffers;
use multicast::MulticastExchange;
use nicekv_proto::{Datagram, Replication};
use quorum::QuorumExchange;
pub(crate) use step::{Attempt, Round, Step};

/// One request, in the protocol of its keyspace.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Exchange {
    Multicast(MulticastExchange),
    Quorum(QuorumExchange),
}

impl Exchange {
    /// Whether the datagram may be padded with zeros: only a get that any consistent replica may
    /// answer.
    pub(crate) fn may_be_padded(&self) -> bool {
        matches!(self, Self::Multicast(exchange) if exchange.is_get())
    }

    /// Fails if the keyspace's protocol does not support the request.
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
        attempt: Attempt,
        keyspace: &Keyspace,
        request: &Request<'_>,
        buffers: &mut Buffers,
    ) -> Round {
        debug_assert!(buffers.large.is_none(), "the completion of the request before was taken");
        buffers.is_for_chain = keyspace.replication == Replication::Chain;
        match self {
            Self::Multicast(exchange) => exchange.begin(attempt, keyspace, request, buffers),
            Self::Quorum(exchange) => exchange.begin(attempt, keyspace, request, buffers),
        }
    }

    /// An answer to this op has arrived.
    pub(crate) fn on_datagram(&mut self, datagram: &Datagram<'_>, buffers: &mut Buffers) -> Step {
        match self {
            Self::Multicast(exchange) => exchange.on_datagram(datagram, buffers),
            Self::Quorum(exchange) => exchange.on_datagram(datagram, buffers),
        }
    }

    /// Whether the request reads a key and changes nothing, so that it may start over under another
    /// op id.
    pub(crate) fn is_get(&self) -> bool {
        match self {
            Self::Multicast(exchange) => exchange.is_get(),
            Self::Quorum(exchange) => exchange.is_get(),
        }
    }

    /// Whether the switch passes the datagram to a single node, which answers.
    pub(crate) fn is_asked_of_one(&self) -> bool {
        matches!(self, Self::Multicast(exchange) if exchange.is_get())
    }

    /// Whether the request may share a datagram with others.
    pub(crate) fn may_share(&self) -> bool {
        !matches!(self, Self::Multicast(exchange) if exchange.is_scan() || exchange.is_about_channels())
    }

    /// Whether the request is about a channel, not a key.
    pub(crate) fn is_about_channels(&self) -> bool {
        matches!(self, Self::Multicast(exchange) if exchange.is_about_channels())
    }

    /// No answer came in time.
    pub(crate) fn on_timeout(&mut self, buffers: &mut Buffers) -> Step {
        match self {
            Self::Multicast(exchange) => exchange.on_timeout(buffers),
            Self::Quorum(exchange) => exchange.on_timeout(buffers),
        }
    }

    /// Starts over: writes the datagram of the first round under another op id.
    pub(crate) fn begin_afresh(&mut self, attempt: Attempt, buffers: &mut Buffers) -> Round {
        match self {
            Self::Multicast(exchange) => exchange.begin_afresh(attempt, buffers),
            Self::Quorum(exchange) => exchange.begin_afresh(attempt, buffers),
        }
    }

    /// The error of a request whose large value is not read: it exceeds a limit, or is no longer wanted.
    pub(crate) fn unread(&self, limit: Option<usize>) -> OperationError {
        match (self.given_up(), limit) {
            (OperationError::TimedOut, Some(limit)) => OperationError::ResultTooLong { limit },
            (error, _) => error,
        }
    }

    /// The error of a request that is ended now without an answer.
    pub(crate) fn given_up(&self) -> OperationError {
        match self {
            Self::Multicast(exchange) => exchange.given_up(),
            Self::Quorum(exchange) => exchange.given_up(),
        }
    }
}
