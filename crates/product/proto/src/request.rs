//! Requests of clients: [`Get`] and [`Update`].

pub mod transaction;

use crate::bytes::in_range;
use crate::chain_header::ChainHeader;
use crate::chunk::Round;
use crate::codec::Zeros;
use crate::codec::{Bytes, Key, LongValue, Value};
use crate::declare::{code, codec_of, for_each, layout, message, part, tagged};
use crate::forwarded::Forwarded;
use crate::hash::{FieldDelta, Fields, Names};
use crate::large::Reference;
use crate::limits::{
    DATAGRAM_BYTES_MAX, HASH_BYTES_MAX, KEY_BYTES_MAX, LONG_VALUE_BYTES_MAX, PAIR_BYTES_MAX,
    TRANSACTION_BYTES_MAX, small_value_bytes_max,
};
use crate::number::LongDouble;
use crate::{DecodeError, Epoch, Form, KeyDigest, KeyspaceId, NodeId, OpId, PartitionId};
use core::mem::size_of;
use core::net::SocketAddrV4;
use transaction::{Step, Steps};

message! {
    /// Reads one key. Any consistent replica with a lease answers, or forwards the request to the
    /// primary.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Get<'a>: Get or ForwardedGet if forwarded {
        header {
            /// The keyspace of the key.
            keyspace: KeyspaceId,
            /// Names the request and its reply.
            op: OpId,
            /// Digest of the key.
            digest: KeyDigest,
            /// Address for the reply, if not the sender.
            reply_to: Option<SocketAddrV4>,
        }
        body {
            /// In a [`ForwardedGet`](crate::Opcode::ForwardedGet), the forwarding replica's partition, epoch and name.
            forwarded: Option<(PartitionId, Epoch, NodeId)> as Forwarded,
            /// The key, at most [`KEY_BYTES_MAX`] bytes.
            key: &'a [u8] as Key,
            /// Padding: a node's kernel may answer with a reply of at most the request's length
            /// (G8).
            padding: usize as Zeros,
        }
    }
}

tagged! {
    /// Condition of an update; evaluated by the primary in decision order.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Condition {
        /// Always.
        #[default]
        0 => Always,
        /// Only if the key has no value (put-if-absent).
        1 => IfAbsent,
        /// Only if the key has a value (put-if-present).
        2 => IfPresent,
        /// Only if the key's last put has this op id (put-if-version, R5). [`OpId::NONE`] means absent.
        3 => IfVersion(OpId),
        /// Only if chunks with this stamp, the lowest of those in a manifest, are not collected in
        /// the partition's current round (P9).
        4 => Stamped(Round),
        /// Both [`Self::Stamped`] and [`Self::IfVersion`].
        5 => StampedIfVersion {
            /// Stamp, as in [`Self::Stamped`].
            stamp: Round,
            /// Version, as in [`Self::IfVersion`].
            version: OpId,
        },
    }
}

impl Condition {
    /// The stamp of the condition.
    pub fn stamp(self) -> Option<Round> {
        match self {
            Self::Stamped(stamp) | Self::StampedIfVersion { stamp, .. } => Some(stamp),
            _ => None,
        }
    }
}

tagged! {
    /// Effect of a set on the expiry time.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Expiry {
        /// The new value never expires.
        #[default]
        0 => Never,
        /// The expiry time is kept.
        1 => Keep,
        /// The new value expires at this time, in milliseconds of the Unix epoch.
        2 => At(u64),
    }
}

code! {
    /// When an [`Operation::Expire`] applies to a key that is present.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum ExpireCondition {
        /// Always.
        #[default]
        Always = 0,
        /// Only if the key has no expiry time.
        IfNone = 1,
        /// Only if it has one.
        IfSome = 2,
        /// Only if the new time is later than the present one (no expiry counts as infinitely late).
        IfLater = 3,
        /// Only if it is earlier (no expiry counts as infinitely late).
        IfEarlier = 4,
        /// Both [`Self::IfSome`] and [`Self::IfLater`].
        IfSomeAndLater = 5,
        /// Both [`Self::IfSome`] and [`Self::IfEarlier`].
        IfSomeAndEarlier = 6,
    }
}

tagged! {
    /// Effect of an update whose condition holds.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub enum Operation<'a> {
        /// Stores `value`.
        1 => Set {
            /// The new value, at most [`small_value_bytes_max`](crate::limits::small_value_bytes_max) bytes.
            value: &'a [u8] as Value,
            /// Its expiry.
            expiry: Expiry,
        },
        /// Deletes the key.
        2 => Delete,
        /// Adds to a decimal 64-bit integer (absent counts as 0); keeps the expiry time.
        3 => Increment(i64),
        /// Adds to a floating-point number (absent counts as 0); keeps the expiry time.
        4 => IncrementFloat(LongDouble),
        /// Appends to the value (absent counts as empty); keeps the expiry time.
        5 => Append(&'a [u8] as LongValue),
        /// Sets the expiry time of a present key, in milliseconds of the Unix epoch. If it is in
        /// the past, the primary deletes the key.
        6 => Expire {
            /// The new expiry time.
            at_ms: u64,
            /// Condition on the current expiry time.
            condition: ExpireCondition,
        },
        /// Removes the expiry time of a present key.
        7 => Persist,
        /// Stores a large value, once all its chunks have arrived ([`crate::large`]).
        8 => SetLarge {
            /// A [`Reference`](crate::large::Reference), named by this update.
            reference: &'a [u8] as Value,
            /// Its expiry.
            expiry: Expiry,
        },
        /// Appends a large value, once all its chunks have arrived; keeps the expiry time. The
        /// [`Reference`](crate::large::Reference) is named by this update.
        9 => AppendLarge(&'a [u8] as Value),
        /// Performs the encoded [`Step`](crate::transaction::Step)s, all or none. The update has
        /// the key of the first step, no condition, and does not return the old value.
        10 => Transaction(&'a [u8] as Steps),
        /// Sets fields of a hash (an absent key has none); keeps the expiry time. Returns the
        /// number of new fields.
        11 => SetFields {
            /// Encoded [`Field`](crate::hash::Field)s. The last of several with the same name
            /// counts.
            fields: &'a [u8] as Fields,
            /// Whether existing fields keep their values.
            only_new: bool,
        },
        /// Removes the fields with these encoded [`Name`](crate::hash::Name)s; keeps the expiry
        /// time. Returns the number of removed fields.
        12 => RemoveFields(&'a [u8] as Names),
        /// Adds to a field that is a decimal 64-bit integer (absent counts as 0); keeps the expiry
        /// time. Returns the sum.
        13 => IncrementField {
            /// The field.
            name: &'a [u8] as Bytes<0, HASH_BYTES_MAX>,
            /// Summand.
            delta: i64,
        },
        /// Adds to a field that is a floating-point number (absent counts as 0), given by
        /// [`Field::with_delta`](crate::hash::Field::with_delta); keeps the expiry time. Returns
        /// the hash afterwards.
        14 => IncrementFieldFloat(&'a [u8] as FieldDelta),
        /// Stores a hash.
        15 => SetHash {
            /// Encoded [`Field`](crate::hash::Field)s with distinct names.
            fields: &'a [u8] as Fields,
            /// Its expiry.
            expiry: Expiry,
        },
        /// Sets a bit of the value; bit 0 is the highest bit of the first byte. Extends the value
        /// with zeros as needed; keeps the expiry time. Returns the old bit.
        16 => SetBit {
            /// Number of the bit.
            offset: u32,
            /// New value of the bit.
            bit: bool,
        },
        /// Overwrites bytes of the value from `offset` on. Extends the value with zeros as needed;
        /// keeps the expiry time. Returns the new length; no bytes change nothing.
        17 => SetRange {
            /// Offset in bytes.
            offset: u32,
            /// The bytes.
            bytes: &'a [u8] as LongValue,
        },
        /// Stores a value that is too long for a datagram.
        18 => SetLong {
            /// The new value, more than [`small_value_bytes_max`](crate::limits::small_value_bytes_max) bytes.
            value: &'a [u8] as LongValue,
            /// Its expiry.
            expiry: Expiry,
        },
    }
}

impl<'a> Operation<'a> {
    /// The bytes that the operation carries.
    pub fn value(&self) -> &'a [u8] {
        match self {
            Self::Set { value, .. } | Self::SetLarge { reference: value, .. } => value,
            Self::Append(value) | Self::AppendLarge(value) | Self::Transaction(value) => value,
            Self::SetHash { fields: value, .. } | Self::SetFields { fields: value, .. } => value,
            Self::RemoveFields(value) => value,
            Self::IncrementField { name: value, .. } | Self::IncrementFieldFloat(value) => value,
            Self::SetRange { bytes: value, .. } | Self::SetLong { value, .. } => value,
            _ => &[],
        }
    }

    /// Form of the carried bytes, if they become the value.
    pub fn form(&self) -> Form {
        match self {
            Self::SetLarge { .. } | Self::AppendLarge(_) => Form::Large,
            Self::SetHash { .. } => Form::Hash,
            Self::SetLong { .. } => Form::Long,
            _ => Form::Plain,
        }
    }

    /// Whether it requires that the key holds a hash or nothing.
    pub fn is_of_hash(&self) -> bool {
        matches!(
            self,
            Self::SetFields { .. }
                | Self::RemoveFields(_)
                | Self::IncrementField { .. }
                | Self::IncrementFieldFloat(_)
        )
    }

    /// Most bytes that it may carry, next to a key of `key_bytes` bytes.
    pub fn value_bytes_max(&self, key_bytes: usize) -> usize {
        match self {
            Self::Transaction(_) => TRANSACTION_BYTES_MAX,
            Self::SetLong { .. } | Self::Append(_) | Self::SetRange { .. } => LONG_VALUE_BYTES_MAX,
            _ if self.is_of_hash() || self.form() == Form::Hash => HASH_BYTES_MAX,
            _ => small_value_bytes_max(key_bytes),
        }
    }

    /// The same where large values are not supported: values too long for a datagram are
    /// [`Self::SetLong`].
    #[must_use]
    pub fn in_one_message(self, key_bytes: usize) -> Self {
        match self {
            Self::Set { value, expiry } if Form::of_length(key_bytes, value.len()) == Form::Long => {
                Self::SetLong { value, expiry }
            }
            other => other,
        }
    }

    /// Whether its bytes fit next to a key of `key_bytes` bytes.
    pub fn check_beside(&self, key_bytes: usize) -> Result<(), DecodeError> {
        let value = self.value();
        match self.form() {
            form @ (Form::Large | Form::Long) => form.check_beside(key_bytes, Some(value)),
            Form::Plain | Form::Hash => {
                in_range("value", value.len(), 0, self.value_bytes_max(key_bytes)).map(|_| ())
            }
        }
    }

    /// Whether the key may have a value afterwards that is neither the old one nor absent.
    pub fn makes_value(&self) -> bool {
        !matches!(self, Self::Delete | Self::Expire { .. } | Self::Persist)
    }

    /// The encoded [`Reference`] of the large value that it carries, if any.
    pub fn reference(&self) -> Option<&'a [u8]> {
        match self {
            Self::SetLarge { reference, .. } | Self::AppendLarge(reference) => Some(reference),
            _ => None,
        }
    }
}

message! {
    /// Changes a key; multicast to every replica, decided by the primary.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct Update<'a>: Update where is_possible {
        header {
            /// The keyspace of the key.
            keyspace: KeyspaceId,
            /// Names the update; never reused.
            op: OpId,
            /// Digest of the key.
            digest: KeyDigest,
            /// Address for the reply, if not the sender.
            reply_to: Option<SocketAddrV4>,
        }
        body {
            /// Every update of this client with a smaller sequence is finished: it has its result,
            /// or the client has given up and will never retransmit it (R10).
            watermark: u64,
            /// Condition.
            condition: Condition,
            /// Whether the reply contains the old value.
            return_old: bool,
            /// The key, at most [`KEY_BYTES_MAX`] bytes.
            key: &'a [u8] as Key,
            /// Effect.
            operation: Operation<'a> as Operation<'static>,
        }
    }
}

const _: () = assert!(Update::FIXED_BYTES + PAIR_BYTES_MAX + 64 <= DATAGRAM_BYTES_MAX);
const _: () = assert!(Get::FIXED_BYTES + KEY_BYTES_MAX + ChainHeader::BYTES <= DATAGRAM_BYTES_MAX);

impl Update<'_> {
    fn is_possible(&self) -> Result<(), DecodeError> {
        if self.op.sequence == 0 {
            return Err(DecodeError::UnknownValue { field: "sequence", value: 0 });
        }
        if self.watermark > self.op.sequence {
            return Err(DecodeError::UnknownValue { field: "watermark", value: self.watermark });
        }
        if let Operation::Transaction(steps) = self.operation {
            let first = Step::each(steps).next().map(|step| step.key);
            if first != Some(self.key) || self.condition != Condition::Always || self.return_old {
                return Err(DecodeError::UnknownValue { field: "transaction", value: self.op.sequence });
            }
        }
        self.operation.check_beside(self.key.len())?;
        match self.operation.reference() {
            Some(reference) if Reference::checked(reference).name != self.op => {
                Err(DecodeError::UnknownValue { field: "name of a large value", value: self.op.sequence })
            }
            _ => Ok(()),
        }
    }
}
