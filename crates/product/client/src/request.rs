//! Requests, and the completions that answer them.

use crate::{Keyspace, OperationError, SubmitError};
use nicekv_proto::large::Reference;
use nicekv_proto::limits::{KEY_BYTES_MAX, LONG_VALUE_BYTES_MAX, PUBLISHED_BYTES_MAX, small_value_bytes_max};
use nicekv_proto::publish::ListenKind;
use nicekv_proto::scan::{ScanPiece, ScanWants};
use nicekv_proto::{Condition, Datagram, Form, HeaderLayout, MatchRange, OpId, Operation};

/// One operation on one key, a scan, or a request about a channel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Request<'a> {
    /// Reads a key.
    Get {
        /// At most [`KEY_BYTES_MAX`] bytes.
        key: &'a [u8],
    },
    /// Returns the length of a key's value in bytes, without reading it.
    Length {
        /// At most [`KEY_BYTES_MAX`] bytes.
        key: &'a [u8],
    },
    /// Reads a key's large value by the reference in a transaction's result. Fails with [`OperationError::OldValueGone`] if
    /// the key has another value by now.
    Named {
        /// At most [`KEY_BYTES_MAX`] bytes.
        key: &'a [u8],
        /// The reference.
        reference: Reference,
    },
    /// Lists a part of the keyspace: from the partition in which `range` begins on. [`Scan`](crate::Scan) makes these.
    Scan {
        /// Keys, values or counts.
        wants: ScanWants,
        /// Match values of the keys.
        range: MatchRange,
        /// Keys after this one only.
        after: Option<&'a [u8]>,
        /// Approximate length of a piece, at most a datagram.
        bytes_max: usize,
        /// Pieces into which a switch may split the request, at least 1.
        pieces: u8,
    },
    /// Announces to the members of a partition how many listeners this client has for a channel, or for a pattern of
    /// channels. [`Subscriptions`](crate::Subscriptions) makes these.
    Listen {
        /// Channel or pattern.
        kind: ListenKind,
        /// The channel, or the pattern; up to [`KEY_BYTES_MAX`] bytes.
        name: &'a [u8],
        /// For a pattern: announce to the partition of this match value.
        from: u128,
        /// Listeners; 0 ends the subscription.
        count: u32,
        /// How long nodes remember it, in milliseconds.
        hold_ms: u32,
    },
    /// Publishes a message to the listeners of a channel, each at most once. The answer's integer is their number.
    Publish {
        /// The channel, up to [`KEY_BYTES_MAX`] bytes.
        channel: &'a [u8],
        /// With the channel up to [`PUBLISHED_BYTES_MAX`] bytes.
        message: &'a [u8],
    },
    /// Changes a key.
    Update {
        /// At most [`KEY_BYTES_MAX`] bytes.
        key: &'a [u8],
        /// The condition under which it applies.
        condition: Condition,
        /// Whether the answer carries the previous value.
        return_old: bool,
        /// The operation. Values have at most [`LONG_VALUE_BYTES_MAX`] bytes; in a set or an append, if the keyspace has
        /// large values, at most [`Config::value_bytes_max`](crate::Config::value_bytes_max).
        operation: Operation<'a>,
    },
}

impl<'a> Request<'a> {
    /// An unconditional update that does not return the previous value.
    pub fn update(key: &'a [u8], operation: Operation<'a>) -> Self {
        Self::Update { key, condition: Condition::Always, return_old: false, operation }
    }

    /// The request in a keyspace where switches do not split scans.
    pub(crate) fn unsplit(self) -> Self {
        match self {
            Self::Scan { wants, range, after, bytes_max, .. } => {
                Self::Scan { wants, range, after, bytes_max, pieces: 1 }
            }
            other => other,
        }
    }

    /// The key, or the channel; of a scan, the key after which it continues.
    pub fn key(&self) -> &'a [u8] {
        match self {
            Self::Get { key } | Self::Length { key } | Self::Named { key, .. } | Self::Update { key, .. } => {
                key
            }
            Self::Scan { after, .. } => after.unwrap_or_default(),
            Self::Listen { name, .. } => name,
            Self::Publish { channel, .. } => channel,
        }
    }

    pub(crate) fn is_transaction(&self) -> bool {
        matches!(self, Self::Update { operation: Operation::Transaction(_), .. })
    }

    /// The value or message that it carries.
    pub fn value(&self) -> &'a [u8] {
        match self {
            Self::Get { .. }
            | Self::Length { .. }
            | Self::Named { .. }
            | Self::Scan { .. }
            | Self::Listen { .. } => &[],
            Self::Publish { message, .. } => message,
            Self::Update { operation, .. } => operation.value(),
        }
    }

    /// Checks the limits of one message.
    ///
    /// # Errors
    /// The key, the value or the message is too long.
    pub fn check(&self) -> Result<(), SubmitError> {
        self.check_key()?;
        self.check_value(self.small_value_limit())
    }

    /// Longest value that it may carry; `large` is the limit for large values.
    pub(crate) fn value_limit(&self, keyspace: &Keyspace, large: usize) -> usize {
        match self {
            Self::Update { operation: Operation::Set { .. } | Operation::Append(_), .. }
                if keyspace.has_large_values() =>
            {
                large
            }
            _ => self.small_value_limit(),
        }
    }

    /// Longest value that it may carry or result in, where values are not large.
    pub(crate) fn small_value_limit(&self) -> usize {
        match self {
            Self::Update { operation: Operation::Set { .. }, .. } => LONG_VALUE_BYTES_MAX,
            Self::Update { key, operation, .. } => operation.value_bytes_max(key.len()),
            Self::Publish { channel, .. } => PUBLISHED_BYTES_MAX.saturating_sub(channel.len()),
            _ => small_value_bytes_max(self.key().len()),
        }
    }

    pub(crate) fn check_key(&self) -> Result<(), SubmitError> {
        let key = self.key();
        if key.len() > KEY_BYTES_MAX {
            return Err(SubmitError::KeyTooLong { bytes: key.len(), limit: KEY_BYTES_MAX });
        }
        Ok(())
    }

    pub(crate) fn check_value(&self, limit: usize) -> Result<(), SubmitError> {
        if let Self::Update { operation, .. } = self
            && operation.reference().is_some()
        {
            return Err(SubmitError::NameOfLarge);
        }
        let bytes = self.value().len();
        if let Self::Publish { channel, .. } = self {
            let (bytes, limit) = (bytes + channel.len(), PUBLISHED_BYTES_MAX);
            return if bytes <= limit { Ok(()) } else { Err(SubmitError::MessageTooLong { bytes, limit }) };
        }
        if bytes <= limit { Ok(()) } else { Err(SubmitError::ValueTooLong { bytes, limit }) }
    }
}

/// Identifies a submitted request until its [`Completion`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl Ticket {
    /// A number below [`Config::in_flight_max`](crate::Config::in_flight_max), different for all requests in flight: an index
    /// for the caller's own table.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// How an answered request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The get found the key; the update was applied.
    Done,
    /// The key has no value; an update that needs one was not applied.
    NotFound,
    /// The update's condition did not hold; it was not applied.
    ConditionFailed,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer<'a> {
    /// How it ended.
    pub outcome: Outcome,
    /// Version of the value that was read, or that is current after an update; [`OpId::NONE`] if there is none.
    pub version: OpId,
    /// When the value expires, in milliseconds of the Unix epoch; 0: never.
    pub expiry_ms: u64,
    /// The integer after an increment, the number of listeners that get a published message, or the length in bytes after an
    /// append and for [`Request::Length`].
    pub integer: i64,
    /// The value that was read. After an update with `return_old`: the previous value; after a float increment: the new one;
    /// after a scan: what [`Self::pieces`] reads; after a [`Request::Listen`]: the last match value of the partition.
    pub value: Option<&'a [u8]>,
    /// [`Form::Plain`], or [`Form::Hash`] if the value is the [`Field`](nicekv_proto::hash::Field)s of a hash. In the result
    /// of a transaction's step it may be [`Form::Large`]: the value is then a [`Reference`] for [`Request::Named`].
    pub form: Form,
}

impl<'a> Answer<'a> {
    /// The pieces that answer a scan, in the order of arrival.
    pub fn pieces(&self) -> impl Iterator<Item = ScanPiece<'a>> + use<'a> {
        pieces_of(self.value)
    }
}

/// An answer without its value, which is in the buffers of its exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) outcome: Outcome,
    pub(crate) version: OpId,
    pub(crate) expiry_ms: u64,
    pub(crate) integer: i64,
    pub(crate) has_value: bool,
    /// Form of the value: [`Form::Plain`] or [`Form::Hash`].
    pub(crate) form: Form,
}

/// The pieces in the value of an answer to a scan.
pub(crate) fn pieces_of(value: Option<&[u8]>) -> impl Iterator<Item = ScanPiece<'_>> {
    let mut rest = value.unwrap_or_default();
    core::iter::from_fn(move || {
        let length = usize::from(HeaderLayout::peek(rest)?.body_length.get()) + size_of::<HeaderLayout>();
        let (piece, behind) = rest.split_at_checked(length)?;
        rest = behind;
        match Datagram::decode(piece) {
            Ok((_, Datagram::ScanPiece(piece))) => Some(piece),
            _ => None,
        }
    })
}

/// A request is finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion<'a> {
    /// The request, as returned by [`ClientCore::submit`](crate::ClientCore::submit).
    pub ticket: Ticket,
    /// The op id under which it was sent last.
    pub op: OpId,
    /// The answer.
    pub result: Result<Answer<'a>, OperationError>,
}
