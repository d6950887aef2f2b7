//! Node-to-node messages by which a replica gets back a value that its disk has damaged.

use crate::bytes::{Reader, in_range, put, reserved, reserved_bytes};
use crate::header::{Header, Opcode};
use crate::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::recovery::Entry;
use crate::{DecodeError, Epoch, NodeId, PartitionId};
use alloc::vec::Vec;
use core::mem::size_of;
use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// From a member that cannot read a key, to one that may: what do you have?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairRequest<'a> {
    /// The member that asks.
    pub sender: NodeId,
    /// The key's partition.
    pub partition: PartitionId,
    /// The epoch of the message.
    pub epoch: Epoch,
    /// The last decision that the sender had logged when it found the damage.
    pub logged: u64,
    /// The last decision that it knew to be held by every member.
    pub released: u64,
    /// The key.
    pub key: &'a [u8],
}

/// What a member's engine has of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState<'a> {
    /// An entry in its stored form, see [`Entry::append`].
    Stored(&'a [u8]),
    /// Nothing.
    Absent,
    /// Something that is damaged there, too: ask another member.
    Corrupt,
}

/// The answer to a [`RepairRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairReply<'a> {
    /// The member that was asked.
    pub sender: NodeId,
    /// The key's partition.
    pub partition: PartitionId,
    /// The epoch of the message.
    pub epoch: Epoch,
    /// [`RepairRequest::logged`] and [`RepairRequest::released`] of the request that is answered.
    pub asked: (u64, u64),
    /// The last decision that `state` can have in it.
    pub through: u64,
    /// The key.
    pub key: &'a [u8],
    /// What the sender has of it.
    pub state: KeyState<'a>,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RequestLayout {
    partition: U32,
    epoch: U32,
    sender: U16,
    key_length: U16,
    reserved: [u8; 4],
    logged: U64,
    released: U64,
}
const _: () = assert!(size_of::<RequestLayout>() == 32);

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ReplyLayout {
    partition: U32,
    epoch: U32,
    sender: U16,
    key_length: U16,
    state: u8,
    reserved: [u8; 3],
    logged: U64,
    released: U64,
    through: U64,
}
const _: () = assert!(size_of::<ReplyLayout>() == 40);

const STORED: u8 = 0;
const ABSENT: u8 = 1;
const CORRUPT: u8 = 2;

impl<'a> RepairRequest<'a> {
    /// Writes the datagram to `out`, which is cleared.
    pub fn encode(&self, out: &mut Vec<u8>) {
        assert!((1..=KEY_BYTES_MAX).contains(&self.key.len()));
        Header::internal(Opcode::RepairRequest).encode(out, |out| {
            let layout = RequestLayout {
                partition: self.partition.0.into(),
                sender: self.sender.0.into(),
                epoch: self.epoch.0.into(),
                logged: self.logged.into(),
                released: self.released.into(),
                key_length: (self.key.len() as u16).into(),
                reserved: [0; 4],
            };
            put(out, &layout);
            out.extend_from_slice(self.key);
        });
    }

    pub(crate) fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let layout: RequestLayout = reader.layout("repair request")?;
        reserved_bytes("reserved", &layout.reserved)?;
        let key = read_key(&mut reader, layout.key_length)?;
        reader.finish("repair request")?;
        Ok(Self {
            sender: NodeId(layout.sender.get()),
            partition: PartitionId(layout.partition.get()),
            epoch: Epoch(layout.epoch.get()),
            logged: layout.logged.get(),
            released: layout.released.get(),
            key,
        })
    }
}

impl<'a> RepairReply<'a> {
    /// Writes the datagram to `out`, which is cleared.
    pub fn encode(&self, out: &mut Vec<u8>) {
        assert!((1..=KEY_BYTES_MAX).contains(&self.key.len()));
        let (state, entry) = match self.state {
            KeyState::Stored(entry) => (STORED, entry),
            KeyState::Absent => (ABSENT, &[][..]),
            KeyState::Corrupt => (CORRUPT, &[][..]),
        };
        assert!(entry.len() <= Entry::FIXED_BYTES + VALUE_BYTES_MAX);
        Header::internal(Opcode::RepairReply).encode(out, |out| {
            let layout = ReplyLayout {
                partition: self.partition.0.into(),
                sender: self.sender.0.into(),
                epoch: self.epoch.0.into(),
                logged: self.asked.0.into(),
                released: self.asked.1.into(),
                through: self.through.into(),
                key_length: (self.key.len() as u16).into(),
                state,
                reserved: [0; 3],
            };
            put(out, &layout);
            out.extend_from_slice(self.key);
            out.extend_from_slice(entry);
        });
    }

    pub(crate) fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let layout: ReplyLayout = reader.layout("repair reply")?;
        reserved_bytes("reserved", &layout.reserved)?;
        let key = read_key(&mut reader, layout.key_length)?;
        let entry = reader.rest();
        let state = match layout.state {
            STORED => {
                Entry::decode(entry)?;
                KeyState::Stored(entry)
            }
            ABSENT => KeyState::Absent,
            CORRUPT => KeyState::Corrupt,
            other => return Err(DecodeError::UnknownValue { field: "key state", value: other.into() }),
        };
        if layout.state != STORED {
            reserved("entry", entry.len() as u64)?;
        }
        Ok(Self {
            sender: NodeId(layout.sender.get()),
            partition: PartitionId(layout.partition.get()),
            epoch: Epoch(layout.epoch.get()),
            asked: (layout.logged.get(), layout.released.get()),
            through: layout.through.get(),
            key,
            state,
        })
    }
}

fn read_key<'a>(reader: &mut Reader<'a>, length: U16) -> Result<&'a [u8], DecodeError> {
    let length = in_range("key_length", length.get().into(), 1, KEY_BYTES_MAX)?;
    reader.bytes(length, "key_length")
}
