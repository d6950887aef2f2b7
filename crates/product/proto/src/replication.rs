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
    /// A member has forced an op's prepare (or refuses it).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PrepareAck {
        /// The op's partition.
        partition: PartitionId,
        /// The epoch in which the member acknowledges; an ack of another epoch is void (R1).
        epoch: Epoch,
        /// The op.
        op: OpId,
        /// When it logged the prepare, the member held another undecided op of that key, or was not yet consistent (R2).
        contended: bool,
        /// The member could not store it (disk full): the primary decides to reject.
        refused: bool => 2 zeros,
    }
}

part! {
    /// How much of a partition's decision sequence a member holds.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Progress {
        /// The partition.
        partition: PartitionId,
        /// The epoch in which the member says so.
        epoch: Epoch,
        /// The last decision that it has logged.
        logged: u64,
        /// The last decision that survives its crash.
        forced: u64,
        /// It has seen a later decision than `logged + 1`: send the missing ones.
        gap: bool,
        /// What its disk has room for; along a chain, and the disks of all behind it (docs/FAULTS.md, row 9).
        space: DiskSpace => 2 zeros,
    }
}

message! {
    /// What a member has made safe since its last message to this primary, of any of the partitions they share.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct Acks<'a>: Acks {
        header {}
        body {
            /// The member.
            sender: NodeId,
            /// Prepares.
            prepares: Entries<'a, PrepareAck> as ListOf<PrepareAck>,
            /// Decisions. Together at most [`ACKS_MAX`] entries.
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
        /// What it does.
        effect: Effect,
        /// The result's status.
        status: Status,
        /// On the slow path of R2: to be forced, and shown nowhere before every member has done so.
        contended: bool,
        /// Whether the result has a value, namely `value`.
        value_is_result: bool,
        /// The place in the partition's decision sequence, from 1: the "primary timestamp" of NICE's quadruplet (the others are the
        /// sender and the two halves of the op id).
        index: u64,
        /// The op.
        op: OpId,
        /// The version after it, as in the reply.
        version: OpId,
        /// The key's expiry time after it, in milliseconds of the Unix epoch; 0 is never.
        expiry_ms: u64,
        /// The result's integer.
        integer: i64,
        /// The bytes of [`Effect::Store`], or of the result, or (when both have some) of both.
        value: &'a [u8] as Outcome,
        /// What that is.
        form: Form => 1 zeros,
    }
}

impl<'a> Decision<'a> {
    fn is_possible(&self) -> Result<(), DecodeError> {
        self.form.check(Some(self.value))
    }

    /// Bytes of this decision within a message or a log record.
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
    /// How far what was decided is durable.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Watermark {
        /// The partition.
        partition: PartitionId,
        /// The epoch.
        epoch: Epoch,
        /// The last decision from before this epoch: what a joiner copies reaches at least up to it.
        base: u64,
        /// Every member has forced the decisions up to this one: contended ones may be shown, all may be forgotten. Along a chain: the sender has, and every one before it.
        forced: u64,
        /// Whether the primary's recovery is complete: every op that was open when the epoch began is decided, and released. A member that has restarted answers gets from
        /// then on (R18). Along a chain it means nothing.
        recovered: bool => 7 zeros,
    }
}

/// Bytes of one [`Watermark`] in a message.
pub const WATERMARK_BYTES: usize = size_of::<<Watermark as Codec>::Layout>();

message! {
    /// What a primary has decided; in recovery also what a member passes to the new primary.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct Decisions<'a>: Decisions {
        header {
            /// Of the partition by whose entry switches are to send it to all members; zero in what goes to one member.
            keyspace: KeyspaceId,
            /// The first match value of that partition: of what goes to a ring, a switch may believe nothing but this (see `KeyOrder::Range`).
            digest: KeyDigest,
        }
        body {
            /// Who sends it.
            sender: NodeId,
            /// How far what was decided may be shown.
            watermarks: Entries<'a, Watermark> as ListOf<Watermark>,
            /// The decisions, in their order.
            decisions: Entries<'a, Decision<'a>> as ListOf<Decision<'static>> => 2 zeros,
        }
    }
}

/// Bytes of a [`Decisions`] message without entries.
pub const DECISIONS_FIXED_BYTES: usize = Decisions::FIXED_BYTES;

message! {
    /// A prepare that one member passes to another which lacks it: the client's own datagram, inside an epoch (R15).
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct Resend<'a>: Resend {
        header {}
        body {
            /// The op's partition.
            partition: PartitionId,
            /// The epoch.
            epoch: Epoch,
            /// Who passes it on.
            sender: NodeId => 6 zeros,
            /// The sender's last decision when it sent this: none up to it decides the op. Tells a delayed copy of a finished op from an
            /// open one where the result is not remembered any more.
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

/// An update as the client sent it, to the end of the message.
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
    fn every_bit_of_a_decision_counts() {
        check_part::<Decision<'static>>();
    }
}
