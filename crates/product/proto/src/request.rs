//! What clients ask: [`Get`] and [`Update`].

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
    /// A read of one key. Answered by any replica that is consistent and within its lease, or passed by it to the primary.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Get<'a>: Get or ForwardedGet if forwarded {
        header {
            /// The keyspace of the key.
            keyspace: KeyspaceId,
            /// Names the request, so that its reply is recognised.
            op: OpId,
            /// Digest of the key.
            digest: KeyDigest,
            /// Where the reply goes, if not to the sender.
            reply_to: Option<SocketAddrV4>,
        }
        body {
            /// In a [`ForwardedGet`](crate::Opcode::ForwardedGet), the forwarding replica's partition, epoch and name.
            forwarded: Option<(PartitionId, Epoch, NodeId)> as Forwarded,
            /// The key, at most [`KEY_BYTES_MAX`] bytes.
            key: &'a [u8] as Key,
            /// Bytes that are there so that the kernel of a node may answer in their place (G8).
            padding: usize as Zeros,
        }
    }
}

tagged! {
    /// When an update applies; evaluated by the primary in its own order.
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
        /// Only if chunks with this stamp are not collected by the round that the partition has adopted: it is the lowest one of those that a manifest names (P9).
        4 => Stamped(Round),
        /// Both.
        5 => StampedIfVersion {
            /// As of [`Self::Stamped`].
            stamp: Round,
            /// As of [`Self::IfVersion`].
            version: OpId,
        },
    }
}

impl Condition {
    /// The stamp that it names.
    pub fn stamp(self) -> Option<Round> {
        match self {
            Self::Stamped(stamp) | Self::StampedIfVersion { stamp, .. } => Some(stamp),
            _ => None,
        }
    }
}

tagged! {
    /// What a set does to the expiry time of a key.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Expiry {
        /// The new value never expires.
        #[default]
        0 => Never,
        /// The expiry time stays as it is.
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
    /// What an update does if its condition holds.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub enum Operation<'a> {
        /// Stores `value`.
        1 => Set {
            /// The new value, at most [`small_value_bytes_max`](crate::limits::small_value_bytes_max) bytes.
            value: &'a [u8] as Value,
            /// Its expiry.
            expiry: Expiry,
        },
        /// Removes the key.
        2 => Delete,
        /// Adds to a decimal 64-bit integer (absent counts as 0); the expiry stays.
        3 => Increment(i64),
        /// Adds to a floating-point number (absent counts as 0); the expiry stays.
        4 => IncrementFloat(LongDouble),
        /// Appends to the value (absent counts as empty); the expiry stays.
        5 => Append(&'a [u8] as LongValue),
        /// Sets the expiry time of a present key, in milliseconds of the Unix epoch. One in the past makes the primary delete the key.
        6 => Expire {
            /// The new expiry time.
            at_ms: u64,
            /// When it applies.
            condition: ExpireCondition,
        },
        /// Removes the expiry time of a present key.
        7 => Persist,
        /// Stores the large value that is named so, once it is there ([`crate::large`]).
        8 => SetLarge {
            /// A [`Reference`](crate::large::Reference), whose name is the update's.
            reference: &'a [u8] as Value,
            /// Its expiry.
            expiry: Expiry,
        },
        /// Appends the large value that is named so, once it is there; the expiry stays. The [`Reference`](crate::large::Reference) has the update's name.
        9 => AppendLarge(&'a [u8] as Value),
        /// Takes the [`Step`](crate::transaction::Step)s that are encoded so, all or none; the update's key is that of the first, it is unconditional, and does not return what was before.
        10 => Transaction(&'a [u8] as Steps),
        /// Sets fields of a hash (absent: without fields); the expiry stays. Tells how many there were not before.
        11 => SetFields {
            /// Encoded [`Field`](crate::hash::Field)s. Of a name that comes twice the last counts.
            fields: &'a [u8] as Fields,
            /// Whether what is there stays as it is.
            only_new: bool,
        },
        /// Removes fields of a hash, by their encoded [`Name`](crate::hash::Name)s; the expiry stays. Tells how many there were.
        12 => RemoveFields(&'a [u8] as Names),
        /// Adds to a field that is a decimal 64-bit integer (absent counts as 0); the expiry stays. Tells the sum.
        13 => IncrementField {
            /// The field.
            name: &'a [u8] as Bytes<0, HASH_BYTES_MAX>,
            /// What is added.
            delta: i64,
        },
        /// Adds to a field that is a floating-point number (absent counts as 0), which [`Field::with_delta`](crate::hash::Field::with_delta) names; the expiry stays. Tells the hash
        /// afterwards.
        14 => IncrementFieldFloat(&'a [u8] as FieldDelta),
        /// Stores a hash.
        15 => SetHash {
            /// Encoded [`Field`](crate::hash::Field)s, of different names.
            fields: &'a [u8] as Fields,
            /// Its expiry.
            expiry: Expiry,
        },
        /// Sets a bit of the value, the highest of the first byte being number 0; zeros are appended as far as there is no such byte. Tells what it was; the expiry stays.
        16 => SetBit {
            /// Which.
            offset: u32,
            /// To what.
            bit: bool,
        },
        /// Writes bytes over those of the value from there on; zeros are appended as far as it ends before. Tells its length; the expiry stays, and where there are no bytes, all does.
        17 => SetRange {
            /// Where.
            offset: u32,
            /// What.
            bytes: &'a [u8] as LongValue,
        },
        /// Stores a value for which no datagram has room.
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

    /// What the bytes are that it carries, if they become the value.
    pub fn form(&self) -> Form {
        match self {
            Self::SetLarge { .. } | Self::AppendLarge(_) => Form::Large,
            Self::SetHash { .. } => Form::Hash,
            Self::SetLong { .. } => Form::Long,
            _ => Form::Plain,
        }
    }

    /// Whether it needs a hash, or no value.
    pub fn is_of_hash(&self) -> bool {
        matches!(
            self,
            Self::SetFields { .. }
                | Self::RemoveFields(_)
                | Self::IncrementField { .. }
                | Self::IncrementFieldFloat(_)
        )
    }

    /// How many bytes it may carry for a key of so many.
    pub fn value_bytes_max(&self, key_bytes: usize) -> usize {
        match self {
            Self::Transaction(_) => TRANSACTION_BYTES_MAX,
            Self::SetLong { .. } | Self::Append(_) | Self::SetRange { .. } => LONG_VALUE_BYTES_MAX,
            _ if self.is_of_hash() || self.form() == Form::Hash => HASH_BYTES_MAX,
            _ => small_value_bytes_max(key_bytes),
        }
    }

    /// The same for where there are no large values: of a value for which no datagram has room, [`Self::SetLong`].
    #[must_use]
    pub fn in_one_message(self, key_bytes: usize) -> Self {
        match self {
            Self::Set { value, expiry } if Form::of_length(key_bytes, value.len()) == Form::Long => {
                Self::SetLong { value, expiry }
            }
            other => other,
        }
    }

    /// Whether a key of so many bytes can have what it carries.
    pub fn check_beside(&self, key_bytes: usize) -> Result<(), DecodeError> {
        let value = self.value();
        match self.form() {
            form @ (Form::Large | Form::Long) => form.check_beside(key_bytes, Some(value)),
            Form::Plain | Form::Hash => {
                in_range("value", value.len(), 0, self.value_bytes_max(key_bytes)).map(|_| ())
            }
        }
    }

    /// Whether the key may have another value afterwards that is not what it had before, nor none.
    pub fn makes_value(&self) -> bool {
        !matches!(self, Self::Delete | Self::Expire { .. } | Self::Persist)
    }

    /// The encoded [`Reference`] of the large value that it carries, if it carries one.
    pub fn reference(&self) -> Option<&'a [u8]> {
        match self {
            Self::SetLarge { reference, .. } | Self::AppendLarge(reference) => Some(reference),
            _ => None,
        }
    }
}

message! {
    /// An operation that changes a key; multicast to every replica, decided by the primary.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct Update<'a>: Update where is_possible {
        header {
            /// The keyspace of the key.
            keyspace: KeyspaceId,
            /// Names the update for ever.
            op: OpId,
            /// Digest of the key.
            digest: KeyDigest,
            /// Where the reply goes, if not to the sender.
            reply_to: Option<SocketAddrV4>,
        }
        body {
            /// Every update of this client with a smaller sequence is finished: it has its result, or gave up and will never retry (R10).
            watermark: u64,
            /// When it applies.
            condition: Condition,
            /// Whether the reply carries the value from before.
            return_old: bool,
            /// The key, at most [`KEY_BYTES_MAX`] bytes.
            key: &'a [u8] as Key,
            /// What it does.
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
