//! What a node answers to a client.

use crate::bytes::{Reader, in_range, put};
use crate::header::{Header, Opcode};
use crate::limits::VALUE_BYTES_MAX;
use crate::{ClientId, DecodeError, KeyDigest, KeyspaceId, OpId};
use alloc::vec::Vec;
use core::mem::size_of;
use zerocopy::network_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Status {
    /// A get found the key; an update was applied.
    Ok = 0,
    /// The key has no value; an update that needs one was not applied.
    NotFound = 1,
    /// The update's condition did not hold; it was not applied.
    ConditionFailed = 2,
    /// The value is not a decimal 64-bit integer.
    NotAnInteger = 3,
    /// The value is not a decimal number.
    NotAFloat = 4,
    /// The sum is outside the range of its type.
    Overflow = 5,
    /// The result would be longer than the limit.
    ValueTooLong = 6,
    /// The op is older than what replicas remember of its client (R10): whether it took effect is not known.
    Expired = 7,
    /// A bound of the replicas is reached; nothing was stored; try again later.
    Busy = 8,
    /// A replica's disk is full; nothing was stored.
    DiskFull = 9,
    /// The request is well-formed but asks for what this node does not have (a keyspace that does not exist).
    NoSuchKeyspace = 10,
}

impl Status {
    const ALL: [Self; 11] = [
        Self::Ok,
        Self::NotFound,
        Self::ConditionFailed,
        Self::NotAnInteger,
        Self::NotAFloat,
        Self::Overflow,
        Self::ValueTooLong,
        Self::Expired,
        Self::Busy,
        Self::DiskFull,
        Self::NoSuchKeyspace,
    ];

    /// The status with this number.
    pub fn decode(value: u8) -> Result<Self, DecodeError> {
        let unknown = DecodeError::UnknownValue { field: "status", value: value.into() };
        Self::ALL.get(usize::from(value)).copied().ok_or(unknown)
    }
}

/// The answer to a [`Get`](crate::Get) or an [`Update`](crate::Update).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The op that is answered.
    pub op: OpId,
    /// What happened.
    pub status: Status,
    /// The version that the reply speaks of: of the value read, or now current after an update; [`OpId::NONE`] if absent.
    pub version: OpId,
    /// When that value expires, in milliseconds of the Unix epoch; 0 is never.
    pub expiry_ms: u64,
    /// The integer after an increment, the length after an append.
    pub integer: i64,
    /// The value read; after an update with `return_old` the value from before; after a float increment the new one.
    pub value: Option<&'a [u8]>,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ReplyLayout {
    status: u8,
    has_value: u8,
    value_length: U16,
    reserved: [u8; 4],
    version_client: U64,
    version_sequence: U64,
    expiry_ms: U64,
    integer: U64,
}
const _: () = assert!(size_of::<ReplyLayout>() == 40);

impl<'a> Reply<'a> {
    /// A reply without a value.
    pub fn bare(op: OpId, status: Status) -> Self {
        Self { op, status, version: OpId::NONE, expiry_ms: 0, integer: 0, value: None }
    }

    /// Writes the datagram to `out`, which is cleared.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let header = Header {
            opcode: Opcode::Reply,
            keyspace: KeyspaceId::DEFAULT,
            reply_to: None,
            op: self.op,
            digest: KeyDigest::default(),
        };
        let value = self.value.unwrap_or_default();
        header.encode(out, |out| {
            let layout = ReplyLayout {
                status: self.status as u8,
                has_value: self.value.is_some().into(),
                value_length: (value.len() as u16).into(),
                reserved: [0; 4],
                version_client: self.version.client.0.into(),
                version_sequence: self.version.sequence.into(),
                expiry_ms: self.expiry_ms.into(),
                integer: (self.integer as u64).into(),
            };
            put(out, &layout);
            out.extend_from_slice(value);
        });
    }

    pub(crate) fn decode(header: &Header, body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let layout: ReplyLayout = reader.layout("reply")?;
        crate::bytes::reserved_bytes("reserved", &layout.reserved)?;
        let length = in_range("value_length", layout.value_length.get().into(), 0, VALUE_BYTES_MAX)?;
        let value = reader.bytes(length, "value_length")?;
        reader.finish("reply")?;
        let has_value = crate::bytes::flag("has_value", layout.has_value)?;
        if !has_value && !value.is_empty() {
            return Err(DecodeError::UnknownValue { field: "has_value", value: 0 });
        }
        Ok(Self {
            op: header.op,
            status: Status::decode(layout.status)?,
            version: OpId {
                client: ClientId(layout.version_client.get()),
                sequence: layout.version_sequence.get(),
            },
            expiry_ms: layout.expiry_ms.get(),
            integer: layout.integer.get() as i64,
            value: has_value.then_some(value),
        })
    }
}
