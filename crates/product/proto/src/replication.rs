//! Node-to-node messages of a put (NICE §4.3 with rules R1 to R5 and R15).
//!
//! One primary orders the decisions of a partition: decision number `index` is the successor of number `index - 1`, also across
//! epochs. Replicas log decisions in that order without gaps, so "what I hold" is a single number, and acknowledging is cumulative.

use crate::bytes::Reader;
use crate::codec::{self, Codec, Entries, ListOf, Outcome};
use crate::declare::{Message, codec_of, layout, message, part};
use crate::disk_space::DiskSpace;
pub use crate::effect::Effect;
use crate::limits::{
    DATAGRAM_BYTES_MAX, KEY_BYTES_MAX, MESSAGE_BYTES_MAX, PAIR_BYTES_MAX, TRANSACTION_BYTES_MAX,
};
#[cfg(test)]
use crate::samples::{Random, Sample};
use crate::{
    DecodeError, Epoch, Form, Header, KeyDigest, KeyspaceId, NodeId, OpId, Opcode, PartitionId, Status,
    Update,
};
use alloc::vec::Vec;
use core::mem::size_of;

part! {
    /// A member has made an op's prepare durable, or refuses it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PrepareAck {
        /// The op's partition.
        partition: PartitionId,
        /// Epoch of the member; an ack of another epoch is void (R1).
        epoch: Epoch,
        /// The op.
        op: OpId,
        /// When it logged the prepare, the member had another undecided op of that key, or was not
        /// yet consistent (R2).
        contended: bool,
        /// The member could not store the prepare (disk full), so the primary must reject the op.
        refused: bool,
        /// Not an ack: the op's large value is still arriving at the member, or being synced there,
        /// so the member is not silent (R15).
        receiving: bool => 1 zeros,
    }
}

part! {
    /// How much of a partition's decision sequence a member has.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Progress {
        /// The partition.
        partition: PartitionId,
        /// Epoch of the member.
        epoch: Epoch,
        /// Last decision in its log.
        logged: u64,
        /// Last decision that is durable.
        synced: u64,
        /// The member has received a decision after `logged + 1` and asks for the missing ones.
        gap: bool,
        /// Free disk space; along a chain, the least of this node and all after it (docs/FAULTS.md,
        /// row 9).
        space: DiskSpace => 2 zeros,
    }
}

message! {
    /// Prepares and decisions that a member has made durable since its last message to this
    /// primary, in any partition that they share.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct Acks<'a>: Acks {
        header {}
        body {
            /// The member.
            sender: NodeId,
            /// Prepares.
            prepares: Entries<'a, PrepareAck> as ListOf<PrepareAck>,
            /// Decisions; prepares and decisions together are at most [`ACKS_MAX`] entries.
            progress: Entries<'a, Progress> as ListOf<Progress> => 2 zeros,
        }
    }
}

const ACK_BYTES: usize = size_of::<<PrepareAck as Codec>::Layout>();
const _: () = assert!(ACK_BYTES == size_of::<<Progress as Codec>::Layout>());
/// Most entries of an [`Acks`] message.
pub const ACKS_MAX: usize = (DATAGRAM_BYTES_MAX - Acks::FIXED_BYTES) / ACK_BYTES;

part! {
    /// The primary's decision of one op: its place in the order, its effect, and its result for the client.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Decision<'a> where is_possible {
        /// The op's partition.
        partition: PartitionId,
        /// The epoch of the message.
        epoch: Epoch,
        /// The epoch whose primary made the decision; stays the same when others adopt it or pass it on. Replicas that hold the same
        /// index with the same origin hold the same decisions up to it.
        origin: Epoch,
        /// Effect on the key.
        effect: Effect,
        /// Status of the result.
        status: Status,
        /// On the slow path (R2): must be durable at every member before its effect is visible.
        contended: bool,
        /// Whether the result has a value, which is `value`.
        value_is_result: bool,
        /// The place in the partition's decision sequence, from 1: the "primary timestamp" of NICE's quadruplet (the others are the
        /// sender and the two halves of the op id).
        index: u64,
        /// The op.
        op: OpId,
        /// Version of the key afterwards, as in the reply.
        version: OpId,
        /// Expiry time of the key afterwards, in milliseconds of the Unix epoch; 0: never.
        expiry_ms: u64,
        /// Integer of the result.
        integer: i64,
        /// The bytes of [`Effect::Store`], or of the result, or (when both have some) of both.
        value: &'a [u8] as Outcome,
        /// Form of the value.
        form: Form => 1 zeros,
    }
}

impl<'a> Decision<'a> {
    fn is_possible(&self) -> Result<(), DecodeError> {
        self.form.check(Some(self.value))
    }

    /// Length within a message or a log record, in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<<Decision<'static> as Codec>::Layout>() + self.value.len()
    }

    /// Appends the decision to a message or a log record.
    pub fn append(&self, out: &mut Vec<u8>) {
        codec::append::<Decision<'static>>(self, out);
    }

    /// Reads one decision from the front of `reader`.
    pub fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        codec::read::<Decision<'static>>("decision", reader)
    }
}

part! {
    /// How far the decisions of a partition are durable.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Watermark {
        /// The partition.
        partition: PartitionId,
        /// The epoch.
        epoch: Epoch,
        /// Last decision before this epoch: a joiner's copy includes at least this one.
        base: u64,
        /// Every member has made the decisions up to this one durable: contended ones become
        /// visible, all may be forgotten. Along a chain: the sender and every node before it have.
        synced: u64,
        /// Whether the primary has finished recovery: every op that was open when the epoch began
        /// is decided and released. A restarted member answers gets only after that (R18).
        /// Meaningless along a chain.
        recovered: bool,
        /// The primary runs a script, or is building or receiving a large value: ops may stay
        /// undecided until that is done, so the primary is not silent (R15).
        working: bool => 6 zeros,
    }
}

/// Length of a [`Watermark`] in a message, in bytes.
pub const WATERMARK_BYTES: usize = size_of::<<Watermark as Codec>::Layout>();

message! {
    /// Decisions of a primary; during recovery also those that a member passes to the new primary.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct Decisions<'a>: Decisions {
        header {
            /// Partition whose table entry multicasts the message to all members; zero if sent to
            /// one member.
            keyspace: KeyspaceId,
            /// First match value of that partition: the only field by which a switch routes a
            /// multicast (see `KeyOrder::Range`).
            digest: KeyDigest,
        }
        body {
            /// The sender.
            sender: NodeId,
            /// How far the decisions may be visible.
            watermarks: Entries<'a, Watermark> as ListOf<Watermark>,
            /// Decisions in order.
            decisions: Entries<'a, Decision<'a>> as ListOf<Decision<'static>> => 2 zeros,
        }
    }
}

/// Length of a [`Decisions`] message without entries, in bytes.
pub const DECISIONS_FIXED_BYTES: usize = Decisions::FIXED_BYTES;

message! {
    /// A prepare that one member passes to another that lacks it: the client's own datagram, within
    /// an epoch (R15).
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct Resend<'a>: Resend {
        header {}
        body {
            /// The op's partition.
            partition: PartitionId,
            /// The epoch.
            epoch: Epoch,
            /// The sender.
            sender: NodeId => 6 zeros,
            /// The sender's last decision: no decision up to it belongs to this op. It
            /// distinguishes a delayed copy of a finished op from an open one when the result has
            /// been forgotten.
            logged: u64,
            /// The client's [`Update`] datagram, with its `reply_to` stamped.
            datagram: &'a [u8] as UpdateDatagram,
        }
    }
}
const _: () = assert!(Resend::FIXED_BYTES + Update::FIXED_BYTES + PAIR_BYTES_MAX <= DATAGRAM_BYTES_MAX);
const _: () = assert!(
    Resend::FIXED_BYTES + Update::FIXED_BYTES + KEY_BYTES_MAX + TRANSACTION_BYTES_MAX <= MESSAGE_BYTES_MAX
);

/// An update as the client sent it, up to the end of the message.
struct UpdateDatagram;

impl Codec for UpdateDatagram {
    type Value<'a> = &'a [u8];
    type Layout = [u8; 0];

    fn layout(_: &&[u8]) -> [u8; 0] {
        []
    }

    fn append_tail(datagram: &&[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(datagram);
    }

    fn read<'a>(_: &'static str, _: &[u8; 0], tail: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
        let datagram = tail.rest();
        let (header, body) = Header::decode(datagram)?;
        match header.opcode {
            Opcode::Update => <Update<'_> as Message<'_>>::decode(&header, body).map(|_| datagram),
            other => Err(DecodeError::UnknownOpcode(other as u8)),
        }
    }

    #[cfg(test)]
    fn sample(random: &mut Random) -> &'static [u8] {
        let mut datagram = Vec::new();
        Update::sample(random).encode(&mut datagram);
        datagram.leak()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::check_part;

    #[test]
    fn decision_codec_is_strict() {
        check_part::<Decision<'static>>();
    }
}
