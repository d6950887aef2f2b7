//! Node-to-node messages of a put (NICE §4.3 with rules R1 to R5 and R15).
//!
//! One primary orders the decisions of a partition: decision number `index` is the successor of number `index - 1`, also across
//! epochs. Replicas log decisions in that order without gaps, so "what I hold" is a single number, and acknowledging is cumulative.

use crate::bytes::{Reader, flag, in_range, put, reserved, reserved_bytes};
use crate::header::{Header, Opcode};
use crate::limits::{DATAGRAM_BYTES_MAX, VALUE_BYTES_MAX};
use crate::{ClientId, DecodeError, Epoch, NodeId, OpId, PartitionId, Status};
use alloc::vec::Vec;
use core::mem::size_of;
use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A member has forced an op's prepare (or refuses it).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrepareAck {
    /// The op's partition.
    pub partition: PartitionId,
    /// The epoch in which the member acknowledges; an ack of another epoch is void (R1).
    pub epoch: Epoch,
    /// The op.
    pub op: OpId,
    /// When it logged the prepare, the member held another undecided op of that key, or was not yet consistent (R2).
    pub contended: bool,
    /// The member could not store it (disk full): the primary decides to reject.
    pub refused: bool,
}

/// How much of a partition's decision sequence a member holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The partition.
    pub partition: PartitionId,
    /// The epoch in which the member says so.
    pub epoch: Epoch,
    /// The last decision that it has logged.
    pub logged: u64,
    /// The last decision that survives its crash.
    pub forced: u64,
    /// It has seen a later decision than `logged + 1`: send the missing ones.
    pub gap: bool,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ListLayout {
    sender: U16,
    first_count: U16,
    second_count: U16,
    reserved: U16,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct EntryLayout {
    partition: U32,
    epoch: U32,
    first: U64,
    second: U64,
    first_flag: u8,
    second_flag: u8,
    reserved: U16,
}
const ENTRY_BYTES: usize = size_of::<EntryLayout>();
const _: () = assert!(ENTRY_BYTES == 28);

impl PrepareAck {
    fn layout(&self) -> EntryLayout {
        EntryLayout {
            partition: self.partition.0.into(),
            first_flag: self.contended.into(),
            second_flag: self.refused.into(),
            epoch: self.epoch.0.into(),
            first: self.op.client.0.into(),
            second: self.op.sequence.into(),
            reserved: 0.into(),
        }
    }

    fn from_layout(layout: &EntryLayout) -> Result<Self, DecodeError> {
        reserved("reserved", layout.reserved.get().into())?;
        Ok(Self {
            partition: PartitionId(layout.partition.get()),
            epoch: Epoch(layout.epoch.get()),
            op: OpId { client: ClientId(layout.first.get()), sequence: layout.second.get() },
            contended: flag("contended", layout.first_flag)?,
            refused: flag("refused", layout.second_flag)?,
        })
    }
}

impl Progress {
    fn layout(&self) -> EntryLayout {
        EntryLayout {
            partition: self.partition.0.into(),
            first_flag: self.gap.into(),
            second_flag: 0,
            epoch: self.epoch.0.into(),
            first: self.logged.into(),
            second: self.forced.into(),
            reserved: 0.into(),
        }
    }

    fn from_layout(layout: &EntryLayout) -> Result<Self, DecodeError> {
        reserved("reserved", layout.second_flag.into())?;
        reserved("reserved", layout.reserved.get().into())?;
        Ok(Self {
            partition: PartitionId(layout.partition.get()),
            epoch: Epoch(layout.epoch.get()),
            logged: layout.first.get(),
            forced: layout.second.get(),
            gap: flag("gap", layout.first_flag)?,
        })
    }
}

/// Most entries of an [`Acks`] message.
pub const ACKS_MAX: usize = (DATAGRAM_BYTES_MAX - Header::BYTES - size_of::<ListLayout>()) / ENTRY_BYTES;

/// What a member has made safe since its last message to this primary, of any of the partitions they share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acks {
    /// The member.
    pub sender: NodeId,
    /// Prepares.
    pub prepares: Vec<PrepareAck>,
    /// Decisions. Together at most [`ACKS_MAX`] entries.
    pub progress: Vec<Progress>,
}

impl Acks {
    /// Writes the datagram to `out`, which is cleared.
    pub fn encode(sender: NodeId, prepares: &[PrepareAck], progress: &[Progress], out: &mut Vec<u8>) {
        assert!(prepares.len() + progress.len() <= ACKS_MAX);
        Header::internal(Opcode::Acks).encode(out, |out| {
            put_list(out, sender, prepares.len(), progress.len());
            prepares.iter().for_each(|ack| put(out, &ack.layout()));
            progress.iter().for_each(|progress| put(out, &progress.layout()));
        });
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let (sender, prepare_count, progress_count) = read_list(&mut reader)?;
        in_range("count", prepare_count + progress_count, 0, ACKS_MAX)?;
        let mut prepares = Vec::with_capacity(prepare_count);
        for _ in 0..prepare_count {
            prepares.push(PrepareAck::from_layout(&reader.layout("prepare ack")?)?);
        }
        let mut progress = Vec::with_capacity(progress_count);
        for _ in 0..progress_count {
            progress.push(Progress::from_layout(&reader.layout("progress")?)?);
        }
        reader.finish("acks")?;
        Ok(Self { sender, prepares, progress })
    }
}

fn put_list(out: &mut Vec<u8>, sender: NodeId, first_count: usize, second_count: usize) {
    let layout = ListLayout {
        sender: sender.0.into(),
        first_count: (first_count as u16).into(),
        second_count: (second_count as u16).into(),
        reserved: 0.into(),
    };
    put(out, &layout);
}

fn read_list(reader: &mut Reader<'_>) -> Result<(NodeId, usize, usize), DecodeError> {
    let layout: ListLayout = reader.layout("list")?;
    reserved("reserved", layout.reserved.get().into())?;
    Ok((NodeId(layout.sender.get()), layout.first_count.get().into(), layout.second_count.get().into()))
}

/// What a decision does to its key. Every effect is a blind write: it does not depend on what the replica holds, so a replica that
/// is still copying the partition may apply it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Effect {
    /// Nothing: the condition did not hold, or the op was refused.
    None = 0,
    /// Stores the value of the op's prepare, with the decision's expiry time.
    StorePrepared = 1,
    /// Stores the decision's value and expiry time.
    Store = 2,
    /// Removes the key.
    Remove = 3,
}

/// The primary's decision of one op: its place in the order, its effect, and its result for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision<'a> {
    /// The op's partition.
    pub partition: PartitionId,
    /// The epoch of the message.
    pub epoch: Epoch,
    /// The place in the partition's decision sequence, from 1: the "primary timestamp" of NICE's quadruplet (the others are the
    /// sender and the two halves of the op id).
    pub index: u64,
    /// The epoch whose primary made the decision; stays the same when others adopt it or pass it on. Replicas that hold the same
    /// index with the same origin hold the same decisions up to it.
    pub origin: Epoch,
    /// The op.
    pub op: OpId,
    /// On the slow path of R2: to be forced, and shown nowhere before every member has done so.
    pub contended: bool,
    /// What it does.
    pub effect: Effect,
    /// The result's status.
    pub status: Status,
    /// The version after it, as in the reply.
    pub version: OpId,
    /// The key's expiry time after it, in milliseconds of the Unix epoch; 0 is never.
    pub expiry_ms: u64,
    /// The result's integer.
    pub integer: i64,
    /// The bytes of [`Effect::Store`], or of the result, or (when both have some) of both.
    pub value: &'a [u8],
    /// Whether the result has a value, namely `value`.
    pub value_is_result: bool,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct DecisionLayout {
    partition: U32,
    epoch: U32,
    origin: U32,
    effect: u8,
    status: u8,
    contended: u8,
    value_is_result: u8,
    index: U64,
    client: U64,
    sequence: U64,
    version_client: U64,
    version_sequence: U64,
    expiry_ms: U64,
    integer: U64,
    value_length: U16,
    reserved: U16,
}
const _: () = assert!(size_of::<DecisionLayout>() == 76);

impl<'a> Decision<'a> {
    /// Bytes of this decision within a message or a log record.
    pub fn bytes(&self) -> usize {
        size_of::<DecisionLayout>() + self.value.len()
    }

    /// Appends the decision to a message or a log record.
    pub fn append(&self, out: &mut Vec<u8>) {
        let layout = DecisionLayout {
            partition: self.partition.0.into(),
            effect: self.effect as u8,
            status: self.status as u8,
            epoch: self.epoch.0.into(),
            index: self.index.into(),
            client: self.op.client.0.into(),
            sequence: self.op.sequence.into(),
            version_client: self.version.client.0.into(),
            version_sequence: self.version.sequence.into(),
            expiry_ms: self.expiry_ms.into(),
            integer: (self.integer as u64).into(),
            value_length: (self.value.len() as u16).into(),
            contended: self.contended.into(),
            value_is_result: self.value_is_result.into(),
            origin: self.origin.0.into(),
            reserved: 0.into(),
        };
        put(out, &layout);
        out.extend_from_slice(self.value);
    }

    /// Reads one decision from the front of `reader`.
    pub fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let layout: DecisionLayout = reader.layout("decision")?;
        reserved("reserved", layout.reserved.get().into())?;
        let length = in_range("value_length", layout.value_length.get().into(), 0, VALUE_BYTES_MAX)?;
        Ok(Self {
            partition: PartitionId(layout.partition.get()),
            epoch: Epoch(layout.epoch.get()),
            index: layout.index.get(),
            origin: Epoch(layout.origin.get()),
            op: OpId { client: ClientId(layout.client.get()), sequence: layout.sequence.get() },
            contended: flag("contended", layout.contended)?,
            effect: match layout.effect {
                0 => Effect::None,
                1 => Effect::StorePrepared,
                2 => Effect::Store,
                3 => Effect::Remove,
                other => return Err(DecodeError::UnknownValue { field: "effect", value: other.into() }),
            },
            status: Status::decode(layout.status)?,
            version: OpId {
                client: ClientId(layout.version_client.get()),
                sequence: layout.version_sequence.get(),
            },
            expiry_ms: layout.expiry_ms.get(),
            integer: layout.integer.get() as i64,
            value: reader.bytes(length, "value_length")?,
            value_is_result: flag("value_is_result", layout.value_is_result)?,
        })
    }
}

/// How far the members of an epoch may show what was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermark {
    /// The partition.
    pub partition: PartitionId,
    /// The epoch.
    pub epoch: Epoch,
    /// The last decision from before this epoch: what a joiner copies reaches at least up to it.
    pub base: u64,
    /// Every member has forced the decisions up to this one: contended ones may be shown, all may be forgotten.
    pub released: u64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct WatermarkLayout {
    partition: U32,
    epoch: U32,
    base: U64,
    released: U64,
}

/// Bytes of one [`Watermark`] in a message.
pub const WATERMARK_BYTES: usize = size_of::<WatermarkLayout>();
/// Bytes of a [`Decisions`] message without entries.
pub const DECISIONS_FIXED_BYTES: usize = Header::BYTES + size_of::<ListLayout>();

/// What a primary has decided; in recovery also what a member passes to the new primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decisions<'a> {
    /// Who sends it.
    pub sender: NodeId,
    watermark_count: usize,
    decision_count: usize,
    entries: &'a [u8],
}

impl<'a> Decisions<'a> {
    /// Writes the datagram to `out`, which is cleared. `decisions` are the concatenated [`Decision::append`]s.
    pub fn encode(
        sender: NodeId,
        watermarks: &[Watermark],
        decision_count: usize,
        decisions: &[u8],
        out: &mut Vec<u8>,
    ) {
        Header::internal(Opcode::Decisions).encode(out, |out| {
            put_list(out, sender, watermarks.len(), decision_count);
            for watermark in watermarks {
                let layout = WatermarkLayout {
                    partition: watermark.partition.0.into(),
                    epoch: watermark.epoch.0.into(),
                    base: watermark.base.into(),
                    released: watermark.released.into(),
                };
                put(out, &layout);
            }
            out.extend_from_slice(decisions);
        });
    }

    pub(crate) fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let (sender, watermark_count, decision_count) = read_list(&mut reader)?;
        let message = Self { sender, watermark_count, decision_count, entries: reader.rest() };
        let mut reader = Reader::new(message.entries);
        for _ in 0..watermark_count {
            read_watermark(&mut reader)?;
        }
        for _ in 0..decision_count {
            Decision::read(&mut reader)?;
        }
        reader.finish("decisions")?;
        Ok(message)
    }

    /// The watermarks.
    pub fn watermarks(&self) -> impl Iterator<Item = Watermark> + 'a {
        let mut reader = Reader::new(self.entries);
        (0..self.watermark_count).map(move |_| read_watermark(&mut reader).expect("checked by decode"))
    }

    /// The decisions, in the order of the message.
    pub fn decisions(&self) -> impl Iterator<Item = Decision<'a>> + 'a {
        let mut reader = Reader::new(&self.entries[self.watermark_count * WATERMARK_BYTES..]);
        (0..self.decision_count).map(move |_| Decision::read(&mut reader).expect("checked by decode"))
    }
}

fn read_watermark(reader: &mut Reader<'_>) -> Result<Watermark, DecodeError> {
    let layout: WatermarkLayout = reader.layout("watermark")?;
    Ok(Watermark {
        partition: PartitionId(layout.partition.get()),
        epoch: Epoch(layout.epoch.get()),
        base: layout.base.get(),
        released: layout.released.get(),
    })
}

/// A prepare that one member passes to another which lacks it: the client's own datagram, inside an epoch (R15).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resend<'a> {
    /// Who passes it on.
    pub sender: NodeId,
    /// The op's partition.
    pub partition: PartitionId,
    /// The epoch.
    pub epoch: Epoch,
    /// The sender's last decision when it sent this: none up to it decides the op. Tells a delayed copy of a finished op from an open
    /// one where the result is not remembered any more.
    pub logged: u64,
    /// The client's [`Update`](crate::Update) datagram, with its `reply_to` stamped.
    pub datagram: &'a [u8],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ResendLayout {
    partition: U32,
    epoch: U32,
    sender: U16,
    reserved: [u8; 6],
    logged: U64,
}

impl<'a> Resend<'a> {
    /// Writes the datagram to `out`, which is cleared.
    pub fn encode(&self, out: &mut Vec<u8>) {
        Header::internal(Opcode::Resend).encode(out, |out| {
            let layout = ResendLayout {
                partition: self.partition.0.into(),
                sender: self.sender.0.into(),
                epoch: self.epoch.0.into(),
                reserved: [0; 6],
                logged: self.logged.into(),
            };
            put(out, &layout);
            out.extend_from_slice(self.datagram);
        });
    }

    pub(crate) fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let layout: ResendLayout = reader.layout("resend")?;
        reserved_bytes("reserved", &layout.reserved)?;
        let datagram = reader.rest();
        let (header, body) = Header::decode(datagram)?;
        if header.opcode != Opcode::Update {
            return Err(DecodeError::UnknownOpcode(header.opcode as u8));
        }
        crate::Update::decode(&header, body)?;
        Ok(Self {
            sender: NodeId(layout.sender.get()),
            partition: PartitionId(layout.partition.get()),
            epoch: Epoch(layout.epoch.get()),
            logged: layout.logged.get(),
            datagram,
        })
    }
}
