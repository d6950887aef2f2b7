//! The status of a node, for operators and tests.

use crate::large::ValueCounters;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_proto::{Durations, Epoch, NodeId, OpId, PartitionId, Term};

/// The status of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    pub node: NodeId,
    /// The highest term of a metadata leader that the node has seen.
    pub term: Term,
    pub counters: Counters,
    /// Durations of the stages of puts.
    pub puts: PutStages,
    /// Where the counted events last happened.
    pub latest: Latest,
    /// Counters about hot keys.
    pub hot: HotCounters,
    /// Counters about large values.
    pub values: ValueCounters,
    /// The partitions that the node knows, in the order of ids.
    pub partitions: Vec<PartitionStatus>,
}

impl NodeStatus {
    /// The status of a partition that the node knows.
    pub fn partition(&self, id: PartitionId) -> Option<&PartitionStatus> {
        self.partitions.iter().find(|status| status.partition == id)
    }
}

/// Counters about hot keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HotCounters {
    /// Copies sent to holders.
    pub copies: u64,
    /// Copies sent to a switch (H9).
    pub values: u64,
    /// Ops that had to wait for evidence that the switch counts above the copies' label (H4).
    pub waits: u64,
    /// How often the copies of this node's keys were revoked.
    pub revocations: u64,
    /// Gets of other nodes' keys that were answered here, from copies.
    pub answered: u64,
    /// Of these, gets answered by the kernel (G7).
    pub answered_elsewhere: u64,
    /// Gets of other nodes' keys that were passed on to their owners.
    pub passed: u64,
    /// Gets of other nodes' keys that were dropped, because this node has no copy and knows no
    /// owner.
    pub unknown: u64,
}

/// Whether a replica is a member of its partition, and how complete it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Not a member, or not admitted since its start (R9): answers nothing.
    Outside,
    /// Takes part in puts, and is still copying.
    Joining,
    /// Stands in for an absent original member, and holds what was decided since that one left
    /// (R8).
    Handoff,
    /// Holds everything.
    Consistent,
}

impl Standing {
    /// Whether such a replica may answer gets.
    pub fn serves(self) -> bool {
        matches!(self, Self::Handoff | Self::Consistent)
    }
}

/// The status of a partition at one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionStatus {
    pub partition: PartitionId,
    pub epoch: Epoch,
    pub standing: Standing,
    pub primary: NodeId,
    /// Whether this node is the primary and has recovered.
    pub leads: bool,
    /// Ops that are prepared and have not taken effect.
    pub open_ops: usize,
    /// The last decision that is logged here.
    pub logged: u64,
    /// The last decision that every member holds.
    pub released: u64,
    /// Whether the node's process is known to hold everything that was confirmed before it started
    /// (R18).
    pub proven: bool,
}

/// Durations of the stages of puts, each counted from when the node accepted the put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PutStages {
    /// Until the put's prepare was synced at this node.
    pub synced: Durations,
    /// Until this node, as the primary, decided the put, because every member had synced it.
    pub decided: Durations,
}

/// Where an event happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub partition: PartitionId,
    pub epoch: Epoch,
    /// The op, or [`OpId::NONE`].
    pub op: OpId,
}

/// A sender that uses another wire version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherRelease {
    /// The source address of its datagram.
    pub from: SocketAddrV4,
    /// Its wire version.
    pub version: u8,
}

/// Where the events of some [`Counters`] last happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latest {
    /// The last event of [`Counters::corrupt`].
    pub corrupt: Option<Place>,
    /// The last event of [`Counters::repaired`].
    pub repaired: Option<Place>,
    /// The last event of [`Counters::differing`].
    pub differing: Option<Place>,
    /// The last event of [`Counters::refused_for_space`].
    pub refused_for_space: Option<Place>,
    /// The last event of [`Counters::barred`].
    pub barred: Option<Place>,
    /// The last event of [`Counters::other_version`].
    pub other_release: Option<OtherRelease>,
}

/// Counters for operators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Gets answered here.
    pub gets: u64,
    /// Of these, gets answered by the kernel (G7).
    pub gets_elsewhere: u64,
    /// Gets passed to the primary.
    pub gets_forwarded: u64,
    /// Requests that this node forwarded to another node by its directory.
    pub coordinated: u64,
    /// Requests sent here by another node's or a client's directory, and refused because that names
    /// another epoch.
    pub misdirected: u64,
    /// Ops decided here as primary.
    pub decided: u64,
    /// Of these, contended ones (R2).
    pub decided_contended: u64,
    /// Messages published here as primary.
    pub published: u64,
    /// Datagrams sent to listeners of published messages.
    pub messages_sent: u64,
    /// Registrations of listeners that were refused because there are too many.
    pub listeners_refused: u64,
    /// Datagrams that are not valid messages.
    pub malformed: u64,
    /// Of these, messages of another wire version.
    pub other_version: u64,
    /// Messages that were refused: of another epoch or term, or not from a member.
    pub refused: u64,
    /// Requests that were dropped because this node may not serve them now, or a bound was reached.
    pub dropped: u64,
    /// Prepares sent again to a member that had not acknowledged them.
    pub resent: u64,
    /// Messages that arrived in fragments and were reassembled.
    pub assembled: u64,
    /// Prepares refused here because the disk is full.
    pub refused_for_space: u64,
    /// Ops that have ended this node's process twice, and were decided as errors.
    pub barred: u64,
    /// Values found damaged here.
    pub corrupt: u64,
    /// Damaged values that were fetched from another member or written anew.
    pub repaired: u64,
    /// Tombstones of quorum keyspaces that were forgotten.
    pub forgotten: u64,
    /// Entries here that differed from the majority's, and were replaced.
    pub differing: u64,
    /// Entries verified by the scrub.
    pub scrubbed: u64,
    /// Finished passes of the scrub.
    pub scrubs: u64,
    /// Partitions discarded here.
    pub discarded: u64,
    /// Partitions that have taken over from their parents here (R17).
    pub born: u64,
}
