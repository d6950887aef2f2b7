//! What goes into a [`ClientCore`](crate::ClientCore) and comes out of it.

use crate::{Keyspace, OperationError, SubmitError};
use nicekv_proto::large::Reference;
use nicekv_proto::limits::{KEY_BYTES_MAX, LONG_VALUE_BYTES_MAX, PUBLISHED_BYTES_MAX, small_value_bytes_max};
use nicekv_proto::publish::ListenKind;
use nicekv_proto::scan::{ScanPiece, ScanWants};
use nicekv_proto::{Condition, Datagram, Form, HeaderLayout, MatchRange, OpId, Operation};

/// One op on one key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Request<'a> {
    /// Reads a key.
    Get {
        /// At most [`KEY_BYTES_MAX`] bytes.
        key: &'a [u8],
    },
    /// Asks how long the value of a key is, without reading it.
    Length {
        /// At most [`KEY_BYTES_MAX`] bytes.
        key: &'a [u8],
    },
    /// Reads the large value of a key of which a transaction has told that it is this one, if it still is: [`OperationError::OldValueGone`] if not.
    Named {
        /// At most [`KEY_BYTES_MAX`] bytes.
        key: &'a [u8],
        /// Which one.
        reference: Reference,
    },
    /// Lists pieces of the keyspace: of the partition in which `range` begins, and of those behind it. [`Scan`](crate::Scan) makes these.
    Scan {
        /// What of it.
        wants: ScanWants,
        /// Keys with these match values.
        range: MatchRange,
        /// Keys after this one.
        after: Option<&'a [u8]>,
        /// How long the answer may be, about; no longer than a datagram.
        bytes_max: usize,
        /// Into how many pieces a switch may split it, at least 1.
        pieces: u8,
    },
    /// Says to the members of a partition who listens to a channel, or to a pattern of channels. [`Subscriptions`](crate::Subscriptions) makes these.
    Listen {
        /// Which of both.
        kind: ListenKind,
        /// The channel, or the pattern; up to [`KEY_BYTES_MAX`] bytes.
        name: &'a [u8],
        /// Of a pattern: the partition that has this match value.
        from: u128,
        /// How many listen; 0: nobody any more.
        count: u32,
        /// For how long, unless it is said again.
        hold_ms: u32,
    },
    /// Sends a message to whoever listens to a channel, at most once. The answer's integer is how many were told.
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
        /// When it applies.
        condition: Condition,
        /// Whether the answer carries the value from before.
        return_old: bool,
        /// What it does; values of at most [`LONG_VALUE_BYTES_MAX`] bytes, but of a set or an append in a keyspace that has large values of at most
        /// [`Config::value_bytes_max`](crate::Config::value_bytes_max).
        operation: Operation<'a>,
    },
}

impl<'a> Request<'a> {
    /// An unconditional update that does not ask for the old value.
    pub fn update(key: &'a [u8], operation: Operation<'a>) -> Self {
        Self::Update { key, condition: Condition::Always, return_old: false, operation }
    }

    /// As it goes to where nothing splits scans: keyspaces that are matched by vnodes, and nodes.
    pub(crate) fn alone(self) -> Self {
        match self {
            Self::Scan { wants, range, after, bytes_max, .. } => {
                Self::Scan { wants, range, after, bytes_max, pieces: 1 }
            }
            other => other,
        }
    }

    /// The key; of a scan, the one after which it goes on.
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

    /// The bytes that it carries.
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

    /// Whether the request is within the limits of one message.
    pub fn check(&self) -> Result<(), SubmitError> {
        self.check_key()?;
        self.check_value(self.small_value_limit())
    }

    /// How long its value may be where large ones may be `large` bytes long.
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

    /// How long what it carries, and what comes of it, may be where values are small.
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

/// Names a submitted request until its [`Completion`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl Ticket {
    /// Less than [`Config::in_flight_max`](crate::Config::in_flight_max), and different for all requests in flight: callers can keep
    /// what they know of a request in a plain array.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// How a request ended that was answered.
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
    /// Version of the value read, or now current after an update; [`OpId::NONE`] if absent.
    pub version: OpId,
    /// When that value expires, in milliseconds of the Unix epoch; 0 is never.
    pub expiry_ms: u64,
    /// The integer after an increment, how many were told of what was published, the length after an append or of the value that [`Request::Length`] asks for.
    pub integer: i64,
    /// The value read; after an update with `return_old` the value from before; after a float increment the new one; after a scan, what
    /// [`Self::pieces`] reads; after a [`Request::Listen`], the last match value of the partition that was told.
    pub value: Option<&'a [u8]>,
    /// What the value is: [`Form::Hash`] if it is the [`Field`](nicekv_proto::hash::Field)s of a hash, and [`Form::Plain`] if it is itself. In what became of a transaction's step it may be
    /// [`Form::Large`]: the value is a [`Reference`] then, for [`Request::Named`].
    pub form: Form,
}

impl<'a> Answer<'a> {
    /// The pieces that answer a scan, in the order in which they came.
    pub fn pieces(&self) -> impl Iterator<Item = ScanPiece<'a>> + use<'a> {
        pieces_of(self.value)
    }
}

/// What the value of an answer to a scan says.
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
    /// Which.
    pub ticket: Ticket,
    /// The op id that it was sent under last; [`OpId::NONE`] if it was not.
    pub op: OpId,
    /// Its answer.
    pub result: Result<Answer<'a>, OperationError>,
}
