//! Node-to-node messages of a new epoch (R3, R4) and of copying a partition to a joiner (R7).

use crate::bytes::{Reader, flag, in_range, put, reserved, reserved_bytes};
use crate::header::{Header, Opcode};
use crate::limits::{DATAGRAM_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::{ClientId, DecodeError, Epoch, NodeId, OpId, PartitionId};
use alloc::vec::Vec;
use core::mem::size_of;
use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// From the primary of a new epoch: list what you hold, from `cursor` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoverRequest {
    /// The primary.
    pub sender: NodeId,
    /// The partition.
    pub partition: PartitionId,
    /// The new epoch.
    pub epoch: Epoch,
    /// 0 at first, then `next` of the reply before.
    pub cursor: u64,
}

/// An undecided op of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UndecidedOp {
    /// The op.
    pub op: OpId,
    /// As in [`PrepareAck::contended`](crate::replication::PrepareAck::contended).
    pub contended: bool,
}

/// A member's ack of an epoch: what it holds (R4). Its undecided ops are thereby acknowledged in the new epoch (R1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoverReply {
    /// The member.
    pub sender: NodeId,
    /// The partition.
    pub partition: PartitionId,
    /// The new epoch.
    pub epoch: Epoch,
    /// Of the request.
    pub cursor: u64,
    /// Where to go on; 0 when all is told.
    pub next: u64,
    /// The last decision that it has logged.
    pub logged: u64,
    /// The last decision that survives its crash.
    pub forced: u64,
    /// Its undecided ops, forced, in the order of its log. At most [`UNDECIDED_MAX`].
    pub undecided: Vec<UndecidedOp>,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RequestLayout {
    partition: U32,
    epoch: U32,
    sender: U16,
    reserved: [u8; 6],
    cursor: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ReplyLayout {
    partition: U32,
    epoch: U32,
    sender: U16,
    count: U16,
    reserved: [u8; 4],
    cursor: U64,
    next: U64,
    logged: U64,
    forced: U64,
}
const _: () = assert!(size_of::<ReplyLayout>() == 48);

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct UndecidedLayout {
    client: U64,
    sequence: U64,
    contended: u8,
    reserved: [u8; 7],
}

/// Most ops of one [`RecoverReply`].
pub const UNDECIDED_MAX: usize =
    (DATAGRAM_BYTES_MAX - Header::BYTES - size_of::<ReplyLayout>()) / size_of::<UndecidedLayout>();

impl RecoverRequest {
    /// Writes the datagram to `out`, which is cleared.
    pub fn encode(&self, out: &mut Vec<u8>) {
        Header::internal(Opcode::RecoverRequest).encode(out, |out| {
            let layout = RequestLayout {
                partition: self.partition.0.into(),
                epoch: self.epoch.0.into(),
                sender: self.sender.0.into(),
                reserved: [0; 6],
                cursor: self.cursor.into(),
            };
            put(out, &layout);
        });
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let layout: RequestLayout = reader.layout("recover request")?;
        reserved_bytes("reserved", &layout.reserved)?;
        reader.finish("recover request")?;
        Ok(Self {
            sender: NodeId(layout.sender.get()),
            partition: PartitionId(layout.partition.get()),
            epoch: Epoch(layout.epoch.get()),
            cursor: layout.cursor.get(),
        })
    }
}

impl RecoverReply {
    /// Writes the datagram to `out`, which is cleared.
    pub fn encode(&self, out: &mut Vec<u8>) {
        assert!(self.undecided.len() <= UNDECIDED_MAX);
        Header::internal(Opcode::RecoverReply).encode(out, |out| {
            let layout = ReplyLayout {
                partition: self.partition.0.into(),
                sender: self.sender.0.into(),
                epoch: self.epoch.0.into(),
                cursor: self.cursor.into(),
                next: self.next.into(),
                logged: self.logged.into(),
                forced: self.forced.into(),
                count: (self.undecided.len() as u16).into(),
                reserved: [0; 4],
            };
            put(out, &layout);
            for undecided in &self.undecided {
                let layout = UndecidedLayout {
                    client: undecided.op.client.0.into(),
                    sequence: undecided.op.sequence.into(),
                    contended: undecided.contended.into(),
                    reserved: [0; 7],
                };
                put(out, &layout);
            }
        });
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let layout: ReplyLayout = reader.layout("recover reply")?;
        reserved_bytes("reserved", &layout.reserved)?;
        let count = in_range("count", layout.count.get().into(), 0, UNDECIDED_MAX)?;
        let mut undecided = Vec::with_capacity(count);
        for _ in 0..count {
            let entry: UndecidedLayout = reader.layout("undecided op")?;
            reserved_bytes("reserved", &entry.reserved)?;
            undecided.push(UndecidedOp {
                op: OpId { client: ClientId(entry.client.get()), sequence: entry.sequence.get() },
                contended: flag("contended", entry.contended)?,
            });
        }
        reader.finish("recover reply")?;
        Ok(Self {
            sender: NodeId(layout.sender.get()),
            partition: PartitionId(layout.partition.get()),
            epoch: Epoch(layout.epoch.get()),
            cursor: layout.cursor.get(),
            next: layout.next.get(),
            logged: layout.logged.get(),
            forced: layout.forced.get(),
            undecided,
        })
    }
}

/// What a primary lacks and a member has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The prepare of this op; answered by a [`Resend`](crate::replication::Resend).
    Op(OpId),
    /// Decisions after this one; answered by [`Decisions`](crate::replication::Decisions).
    DecisionsAfter(u64),
}

/// From a primary to a member of its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// The primary.
    pub sender: NodeId,
    /// The partition.
    pub partition: PartitionId,
    /// The epoch.
    pub epoch: Epoch,
    /// What.
    pub wanted: Wanted,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FetchLayout {
    partition: U32,
    epoch: U32,
    sender: U16,
    kind: u8,
    reserved: [u8; 5],
    first: U64,
    second: U64,
}

impl Fetch {
    /// Writes the datagram to `out`, which is cleared.
    pub fn encode(&self, out: &mut Vec<u8>) {
        Header::internal(Opcode::Fetch).encode(out, |out| {
            let (kind, first, second) = match self.wanted {
                Wanted::Op(op) => (1, op.client.0, op.sequence),
                Wanted::DecisionsAfter(index) => (2, index, 0),
            };
            let layout = FetchLayout {
                partition: self.partition.0.into(),
                sender: self.sender.0.into(),
                epoch: self.epoch.0.into(),
                kind,
                reserved: [0; 5],
                first: first.into(),
                second: second.into(),
            };
            put(out, &layout);
        });
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let layout: FetchLayout = reader.layout("fetch")?;
        reader.finish("fetch")?;
        reserved_bytes("reserved", &layout.reserved)?;
        let (first, second) = (layout.first.get(), layout.second.get());
        Ok(Self {
            sender: NodeId(layout.sender.get()),
            partition: PartitionId(layout.partition.get()),
            epoch: Epoch(layout.epoch.get()),
            wanted: match layout.kind {
                1 => Wanted::Op(OpId { client: ClientId(first), sequence: second }),
                2 => {
                    reserved("second", second)?;
                    Wanted::DecisionsAfter(first)
                }
                other => return Err(DecodeError::UnknownValue { field: "kind", value: other.into() }),
            },
        })
    }
}

/// A key's state as the engine stores it and as it is copied to a joiner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The decision that wrote it.
    pub index: u64,
    /// The op id of that decision (R5).
    pub version: OpId,
    /// Milliseconds of the Unix epoch; 0 is never.
    pub expiry_ms: u64,
    /// The value; `None` is a tombstone, kept until every original member holds the deletion.
    pub value: Option<&'a [u8]>,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct StoredLayout {
    index: U64,
    version_client: U64,
    version_sequence: U64,
    expiry_ms: U64,
    present: u8,
}

impl<'a> Entry<'a> {
    /// Bytes of the stored form less the value.
    pub const FIXED_BYTES: usize = size_of::<StoredLayout>();

    /// Appends the stored form.
    pub fn append(&self, out: &mut Vec<u8>) {
        let layout = StoredLayout {
            index: self.index.into(),
            version_client: self.version.client.0.into(),
            version_sequence: self.version.sequence.into(),
            expiry_ms: self.expiry_ms.into(),
            present: self.value.is_some().into(),
        };
        put(out, &layout);
        out.extend_from_slice(self.value.unwrap_or_default());
    }

    /// Reads the stored form, which is all of `bytes`.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let layout: StoredLayout = reader.layout("entry")?;
        let value = reader.rest();
        in_range("value", value.len(), 0, VALUE_BYTES_MAX)?;
        let present = flag("present", layout.present)?;
        if !present {
            reserved("value", value.len() as u64)?;
        }
        Ok(Self {
            index: layout.index.get(),
            version: OpId {
                client: ClientId(layout.version_client.get()),
                sequence: layout.version_sequence.get(),
            },
            expiry_ms: layout.expiry_ms.get(),
            value: present.then_some(value),
        })
    }
}

/// Most bytes of one frame of the copying stream; a frame is a 32-bit big-endian length and that many bytes.
pub const FRAME_BYTES_MAX: usize = 512 << 10;

/// Frames of the framed TCP stream by which a joiner copies a partition (R7). The joiner asks, the primary answers; each side keeps no
/// more than one frame in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyFrame<'a> {
    /// The next entries after key `after` (empty: from the first), or the deduplication records.
    Request {
        /// Who copies.
        joiner: NodeId,
        /// The partition.
        partition: PartitionId,
        /// The epoch in which it joins.
        epoch: Epoch,
        /// What part.
        section: CopySection,
        /// Only entries that were written by decisions after this one.
        since: u64,
        /// Where to go on: the last key that it has, or the last client. Of [`CopySection::Begin`]: what it holds, opaque here.
        after: &'a [u8],
    },
    /// The answer.
    Chunk {
        /// The partition.
        partition: PartitionId,
        /// The epoch of the request.
        epoch: Epoch,
        /// What part.
        section: CopySection,
        /// Whether there is more of this section.
        more: bool,
        /// Entries: [`put_keyed_entry`]s, after 8 bytes. Others: the replica's own records, opaque here.
        payload: &'a [u8],
    },
}

/// The parts of a copy, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CopySection {
    /// What both ends have in common.
    Begin = 0,
    /// Deduplication records.
    Clients = 1,
    /// Keys and values, and deletions.
    Entries = 2,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct CopyLayout {
    kind: u8,
    section: u8,
    more: u8,
    reserved: u8,
    partition: U32,
    epoch: U32,
    joiner: U16,
    reserved2: U16,
    since: U64,
}

impl<'a> CopyFrame<'a> {
    /// Appends the frame's bytes (without the length that precedes it in the stream).
    pub fn append(&self, out: &mut Vec<u8>) {
        let (kind, section, more, partition, joiner, epoch, since, rest) = match *self {
            Self::Request { joiner, partition, epoch, section, since, after } => {
                (1, section, false, partition, joiner, epoch, since, after)
            }
            Self::Chunk { partition, epoch, section, more, payload } => {
                (2, section, more, partition, NodeId(0), epoch, 0, payload)
            }
        };
        let layout = CopyLayout {
            kind,
            section: section as u8,
            more: more.into(),
            reserved: 0,
            partition: partition.0.into(),
            epoch: epoch.0.into(),
            joiner: joiner.0.into(),
            reserved2: 0.into(),
            since: since.into(),
        };
        put(out, &layout);
        out.extend_from_slice(rest);
        assert!(out.len() <= FRAME_BYTES_MAX);
    }

    /// Reads a frame, which is all of `bytes`.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let layout: CopyLayout = reader.layout("copy frame")?;
        reserved("reserved", u64::from(layout.reserved) + u64::from(layout.reserved2.get()))?;
        let rest = reader.rest();
        let (partition, epoch) = (PartitionId(layout.partition.get()), Epoch(layout.epoch.get()));
        let section = match layout.section {
            0 => CopySection::Begin,
            1 => CopySection::Clients,
            2 => CopySection::Entries,
            other => return Err(DecodeError::UnknownValue { field: "section", value: other.into() }),
        };
        match layout.kind {
            1 => {
                let after_max = if section == CopySection::Begin { FRAME_BYTES_MAX } else { KEY_BYTES_MAX };
                in_range("after", rest.len(), 0, after_max)?;
                reserved("more", layout.more.into())?;
                let (joiner, since) = (NodeId(layout.joiner.get()), layout.since.get());
                Ok(Self::Request { joiner, partition, epoch, section, since, after: rest })
            }
            2 => {
                let more = flag("more", layout.more)?;
                reserved("joiner", layout.joiner.get().into())?;
                reserved("since", layout.since.get())?;
                Ok(Self::Chunk { partition, epoch, section, more, payload: rest })
            }
            other => Err(DecodeError::UnknownValue { field: "kind", value: other.into() }),
        }
    }
}

/// Appends one key and its stored entry to the payload of a [`CopyFrame::Chunk`].
pub fn put_keyed_entry(out: &mut Vec<u8>, key: &[u8], entry: &[u8]) {
    put(out, &[U16::from(key.len() as u16), U16::from(entry.len() as u16)]);
    out.extend_from_slice(key);
    out.extend_from_slice(entry);
}

/// Reads what [`put_keyed_entry`] wrote.
pub fn read_keyed_entry<'a>(reader: &mut Reader<'a>) -> Result<(&'a [u8], &'a [u8]), DecodeError> {
    let [key_length, entry_length]: [U16; 2] = reader.layout("keyed entry")?;
    let key_length = in_range("key_length", key_length.get().into(), 1, KEY_BYTES_MAX)?;
    let key = reader.bytes(key_length, "key_length")?;
    Ok((key, reader.bytes(entry_length.get().into(), "entry_length")?))
}
