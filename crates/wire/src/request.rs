//! What clients ask: [`Get`] and [`Update`].

use crate::bytes::{Reader, flag, in_range, put};
use crate::header::{Header, Opcode};
use crate::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::number::LongDouble;
use crate::{ClientId, DecodeError, Epoch, KeyDigest, KeyspaceId, NodeId, OpId, PartitionId};
use alloc::vec::Vec;
use core::mem::size_of;
use core::net::SocketAddrV4;
use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A read of one key. Answered by any replica that is consistent and within its lease, or passed by it to the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Get<'a> {
    /// The keyspace of the key.
    pub keyspace: KeyspaceId,
    /// Names the request, so that its reply is recognised.
    pub op: OpId,
    /// Digest of the key.
    pub digest: KeyDigest,
    /// Where the reply goes, if not to the sender.
    pub reply_to: Option<SocketAddrV4>,
    /// In a [`Opcode::ForwardedGet`], the forwarding replica's partition, epoch and name.
    pub forwarded: Option<(PartitionId, Epoch, NodeId)>,
    /// The key, 1 to [`KEY_BYTES_MAX`] bytes.
    pub key: &'a [u8],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct GetLayout {
    partition: U32,
    epoch: U32,
    node: U16,
    key_length: U16,
}
const _: () = assert!(size_of::<GetLayout>() == 12);

impl<'a> Get<'a> {
    /// Writes the datagram to `out`, which is cleared.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let opcode = if self.forwarded.is_some() { Opcode::ForwardedGet } else { Opcode::Get };
        let (partition, epoch, node) = self.forwarded.unwrap_or_default();
        let header = Header {
            opcode,
            keyspace: self.keyspace,
            reply_to: self.reply_to,
            op: self.op,
            digest: self.digest,
        };
        header.encode(out, |out| {
            let layout = GetLayout {
                partition: partition.0.into(),
                epoch: epoch.0.into(),
                node: node.0.into(),
                key_length: (self.key.len() as u16).into(),
            };
            put(out, &layout);
            out.extend_from_slice(self.key);
        });
    }

    pub(crate) fn decode(header: &Header, body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let layout: GetLayout = reader.layout("get")?;
        let length = in_range("key_length", layout.key_length.get().into(), 1, KEY_BYTES_MAX)?;
        let key = reader.bytes(length, "key_length")?;
        reader.finish("get")?;
        let route =
            (PartitionId(layout.partition.get()), Epoch(layout.epoch.get()), NodeId(layout.node.get()));
        let forwarded = (header.opcode == Opcode::ForwardedGet).then_some(route);
        if forwarded.is_none() && route != Default::default() {
            return Err(DecodeError::UnknownValue {
                field: "route of a client's get",
                value: route.1.0.into(),
            });
        }
        Ok(Self {
            keyspace: header.keyspace,
            op: header.op,
            digest: header.digest,
            reply_to: header.reply_to,
            forwarded,
            key,
        })
    }
}

/// When an update applies; evaluated by the primary in its own order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// Always.
    #[default]
    Always,
    /// Only if the key has no value (put-if-absent).
    IfAbsent,
    /// Only if the key has a value (put-if-present).
    IfPresent,
    /// Only if the key's last put has this op id (put-if-version, R5). [`OpId::NONE`] means absent.
    IfVersion(OpId),
}

/// What a set does to the expiry time of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expiry {
    /// The new value never expires.
    #[default]
    Never,
    /// The expiry time stays as it is.
    Keep,
    /// The new value expires at this time, in milliseconds of the Unix epoch.
    At(u64),
}

/// When an [`Operation::Expire`] applies to a key that is present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExpireCondition {
    /// Always.
    #[default]
    Always,
    /// Only if the key has no expiry time.
    IfNone,
    /// Only if it has one.
    IfSome,
    /// Only if the new time is later than the present one (no expiry counts as infinitely late).
    IfLater,
    /// Only if it is earlier (no expiry counts as infinitely late).
    IfEarlier,
    /// Both [`Self::IfSome`] and [`Self::IfLater`].
    IfSomeAndLater,
    /// Both [`Self::IfSome`] and [`Self::IfEarlier`].
    IfSomeAndEarlier,
}

impl ExpireCondition {
    const ALL: [Self; 7] = [
        Self::Always,
        Self::IfNone,
        Self::IfSome,
        Self::IfLater,
        Self::IfEarlier,
        Self::IfSomeAndLater,
        Self::IfSomeAndEarlier,
    ];
}

/// What an update does if its condition holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operation<'a> {
    /// Stores `value`.
    Set {
        /// The new value, at most [`VALUE_BYTES_MAX`] bytes.
        value: &'a [u8],
        /// Its expiry.
        expiry: Expiry,
    },
    /// Removes the key.
    Delete,
    /// Adds to a decimal 64-bit integer (absent counts as 0); the expiry stays.
    Increment(i64),
    /// Adds to a floating-point number (absent counts as 0); the expiry stays.
    IncrementFloat(LongDouble),
    /// Appends to the value (absent counts as empty); the expiry stays.
    Append(&'a [u8]),
    /// Sets the expiry time of a present key, in milliseconds of the Unix epoch. One in the past makes the primary delete the key.
    Expire {
        /// The new expiry time.
        at_ms: u64,
        /// When it applies.
        condition: ExpireCondition,
    },
    /// Removes the expiry time of a present key.
    Persist,
}

impl<'a> Operation<'a> {
    /// The bytes that the operation carries.
    pub fn value(&self) -> &'a [u8] {
        match self {
            Self::Set { value, .. } | Self::Append(value) => value,
            _ => &[],
        }
    }
}

/// An operation that changes a key; multicast to every replica, decided by the primary.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Update<'a> {
    /// The keyspace of the key.
    pub keyspace: KeyspaceId,
    /// Names the update for ever.
    pub op: OpId,
    /// Digest of the key.
    pub digest: KeyDigest,
    /// Where the reply goes, if not to the sender.
    pub reply_to: Option<SocketAddrV4>,
    /// Every update of this client with a smaller sequence is finished: it has its result, or gave up and will never retry (R10).
    pub watermark: u64,
    /// When it applies.
    pub condition: Condition,
    /// Whether the reply carries the value from before.
    pub return_old: bool,
    /// What it does.
    pub operation: Operation<'a>,
    /// The key, 1 to [`KEY_BYTES_MAX`] bytes.
    pub key: &'a [u8],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct UpdateLayout {
    watermark: U64,
    operation: u8,
    condition: u8,
    /// `Expiry` of a set, `ExpireCondition` of an expire.
    mode: u8,
    return_old: u8,
    key_length: U16,
    value_length: U16,
    /// An increment (of an integer; that of a float is in place of a value) or an expiry time.
    operand: U64,
    version_client: U64,
    version_sequence: U64,
}
const _: () = assert!(size_of::<UpdateLayout>() == 40);
const _: () = assert!(
    Header::BYTES + size_of::<UpdateLayout>() + KEY_BYTES_MAX + VALUE_BYTES_MAX + 64
        <= crate::limits::DATAGRAM_BYTES_MAX
);

impl<'a> Update<'a> {
    /// Writes the datagram to `out`, which is cleared.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let header = Header {
            opcode: Opcode::Update,
            keyspace: self.keyspace,
            reply_to: self.reply_to,
            op: self.op,
            digest: self.digest,
        };
        let float;
        let value = match self.operation {
            Operation::IncrementFloat(delta) => {
                float = delta.to_bytes();
                &float
            }
            _ => self.operation.value(),
        };
        let (condition, version) = match self.condition {
            Condition::Always => (0, OpId::NONE),
            Condition::IfAbsent => (1, OpId::NONE),
            Condition::IfPresent => (2, OpId::NONE),
            Condition::IfVersion(version) => (3, version),
        };
        let (operation, mode, operand) = encode_operation(&self.operation);
        header.encode(out, |out| {
            let layout = UpdateLayout {
                watermark: self.watermark.into(),
                operation,
                condition,
                mode,
                return_old: self.return_old.into(),
                key_length: (self.key.len() as u16).into(),
                value_length: (value.len() as u16).into(),
                operand: operand.into(),
                version_client: version.client.0.into(),
                version_sequence: version.sequence.into(),
            };
            put(out, &layout);
            out.extend_from_slice(self.key);
            out.extend_from_slice(value);
        });
    }

    pub(crate) fn decode(header: &Header, body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let layout: UpdateLayout = reader.layout("update")?;
        let key_length = in_range("key_length", layout.key_length.get().into(), 1, KEY_BYTES_MAX)?;
        let value_length = in_range("value_length", layout.value_length.get().into(), 0, VALUE_BYTES_MAX)?;
        let key = reader.bytes(key_length, "key_length")?;
        let value = reader.bytes(value_length, "value_length")?;
        reader.finish("update")?;
        let version =
            OpId { client: ClientId(layout.version_client.get()), sequence: layout.version_sequence.get() };
        let condition = match layout.condition {
            0 => Condition::Always,
            1 => Condition::IfAbsent,
            2 => Condition::IfPresent,
            3 => Condition::IfVersion(version),
            other => return Err(DecodeError::UnknownValue { field: "condition", value: other.into() }),
        };
        if layout.condition != 3 && version != OpId::NONE {
            return Err(DecodeError::UnknownValue { field: "version", value: version.sequence });
        }
        if header.op.sequence == 0 {
            return Err(DecodeError::UnknownValue { field: "sequence", value: 0 });
        }
        if layout.watermark.get() > header.op.sequence {
            return Err(DecodeError::UnknownValue { field: "watermark", value: layout.watermark.get() });
        }
        Ok(Self {
            keyspace: header.keyspace,
            op: header.op,
            digest: header.digest,
            reply_to: header.reply_to,
            watermark: layout.watermark.get(),
            condition,
            return_old: flag("return_old", layout.return_old)?,
            operation: decode_operation(&layout, value)?,
            key,
        })
    }
}

fn encode_operation(operation: &Operation<'_>) -> (u8, u8, u64) {
    match *operation {
        Operation::Set { expiry: Expiry::Never, .. } => (1, 0, 0),
        Operation::Set { expiry: Expiry::Keep, .. } => (1, 1, 0),
        Operation::Set { expiry: Expiry::At(at_ms), .. } => (1, 2, at_ms),
        Operation::Delete => (2, 0, 0),
        Operation::Increment(delta) => (3, 0, delta as u64),
        Operation::IncrementFloat(_) => (4, 0, 0),
        Operation::Append(_) => (5, 0, 0),
        Operation::Expire { at_ms, condition } => (6, condition as u8, at_ms),
        Operation::Persist => (7, 0, 0),
    }
}

fn decode_operation<'a>(layout: &UpdateLayout, value: &'a [u8]) -> Result<Operation<'a>, DecodeError> {
    let operand = layout.operand.get();
    let unknown = |field, value: u64| Err(DecodeError::UnknownValue { field, value });
    let operation = match (layout.operation, layout.mode) {
        (1, 0) => Operation::Set { value, expiry: Expiry::Never },
        (1, 1) => Operation::Set { value, expiry: Expiry::Keep },
        (1, 2) => Operation::Set { value, expiry: Expiry::At(operand) },
        (2, 0) => Operation::Delete,
        (3, 0) => Operation::Increment(operand as i64),
        (4, 0) => match LongDouble::from_bytes(value) {
            Some(delta) => Operation::IncrementFloat(delta),
            None => return unknown("float", value.len() as u64),
        },
        (5, 0) => Operation::Append(value),
        (6, mode) => {
            let Some(&condition) = ExpireCondition::ALL.get(usize::from(mode)) else {
                return unknown("mode", mode.into());
            };
            Operation::Expire { at_ms: operand, condition }
        }
        (7, 0) => Operation::Persist,
        (1..=7, mode) => return unknown("mode", mode.into()),
        (other, _) => return unknown("operation", other.into()),
    };
    if layout.operation != 4 && operation.value().len() != value.len() {
        return Err(DecodeError::LengthMismatch { field: "value_length", stated: value.len(), actual: 0 });
    }
    let uses_operand = matches!((layout.operation, layout.mode), (1, 2) | (3 | 6, _));
    if !uses_operand && operand != 0 {
        return unknown("operand", operand);
    }
    Ok(operation)
}
