//! The status of a node, for operators and tests.

use crate::large::ValueCounters;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_proto::{Durations, Epoch, NodeId, OpId, PartitionId, Term};

/// The status of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    pub node: NodeId,
    /// The highest term of a metadata leader that it has seen.
    pub term: Term,
    pub counters: Counters,
    /// Durations of puts.
    pub puts: PutStages,
    /// Where the counted events last happened.
    pub latest: Latest,
    /// About hot keys.
    pub hot: HotCounters,
    /// About large values.
    pub values: ValueCounters,
    /// The partitions that it knows, by number.
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
    /// Ops that waited for evidence that a switch counts on.
    pub waits: u64,
    /// Times that all copies of a key were revoked.
    pub revocations: u64,
    /// Gets of other nodes' keys that were answered here.
    pub answered: u64,
    /// Of these, by the kernel (G7).
    pub answered_elsewhere: u64,
    /// Gets of other nodes' keys that were passed on to their owners.
    pub passed: u64,
    /// Gets of other nodes' keys without a copy here.
    pub unknown: u64,
}

/// A replica's standing in a partition's replica set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// No member, or not admitted since its start (R9): answers nothing.
    Outside,
    /// Takes part in puts, and is still copying.
    Joining,
    /// Stands in for an absent original member, and holds what was decided since (R8).
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

/// A partition, as one node sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionStatus {
    pub partition: PartitionId,
    pub epoch: Epoch,
    pub standing: Standing,
    pub primary: NodeId,
    /// Whether it is the primary and has recovered.
    pub leads: bool,
    /// Ops that are prepared and have not taken effect.
    pub open_ops: usize,
    /// The last decision logged.
    pub logged: u64,
    /// The last decision that every member holds.
    pub released: u64,
    /// Whether its process is known to hold everything that was confirmed before it started (R18).
    pub proven: bool,
}

/// Durations of the stages of a put, each from when the node took it in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PutStages {
    /// Until it was synced here.
    pub forced: Durations,
    /// Until this node, the primary, had decided it: every member has synced it.
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

/// A sender of another wire version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherRelease {
    /// The source of its datagram.
    pub from: SocketAddrV4,
    /// Its wire version.
    pub version: u8,
}

/// Where events that some [`Counters`] count last happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latest {
    /// Of [`Counters::corrupt`].
    pub corrupt: Option<Place>,
    /// Of [`Counters::repaired`].
    pub repaired: Option<Place>,
    /// Of [`Counters::differing`].
    pub differing: Option<Place>,
    /// Of [`Counters::refused_for_space`].
    pub refused_for_space: Option<Place>,
    /// Of [`Counters::barred`].
    pub barred: Option<Place>,
    /// Of [`Counters::other_version`].
    pub other_release: Option<OtherRelease>,
}

/// Numbers for operators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Gets answered here.
    pub gets: u64,
    /// Of these, by the kernel (G7).
    pub gets_elsewhere: u64,
    /// Gets passed to the primary.
    pub gets_forwarded: u64,
    /// Requests forwarded to the right node, by the directory.
    pub coordinated: u64,
    /// Requests that another node's directory had sent here, and that were refused because of
    /// another epoch.
    pub misdirected: u64,
    /// Ops decided here as primary.
    pub decided: u64,
    /// Of these, contended ones (R2).
    pub decided_contended: u64,
    /// Messages published here as primary.
    pub published: u64,
    /// Datagrams sent to their listeners.
    pub messages_sent: u64,
    /// Clients that could not listen, because there are too many.
    pub listeners_refused: u64,
    /// Datagrams that are not valid messages.
    pub malformed: u64,
    /// Of these, messages of another wire version.
    pub other_version: u64,
    /// Messages of another epoch or term, or not from a member.
    pub refused: u64,
    /// Requests dropped because this node may not serve them now, or a bound was reached.
    pub dropped: u64,
    /// Prepares sent again to a member that had not acknowledged them.
    pub resent: u64,
    /// Messages that came in fragments.
    pub assembled: u64,
    /// Prepares refused here because the disk is full.
    pub refused_for_space: u64,
    /// Ops that have ended this node twice, and were decided as errors.
    pub barred: u64,
    /// Values found damaged here.
    pub corrupt: u64,
    /// Of these, fetched from another member or written anew.
    pub repaired: u64,
    /// Tombstones of quorum keyspaces that were dropped.
    pub forgotten: u64,
    /// Entries here that differed from the majority's, and were replaced.
    pub differing: u64,
    /// Entries verified by the scrub.
    pub scrubbed: u64,
    /// Its finished passes.
    pub scrubs: u64,
    /// Partitions discarded here.
    pub discarded: u64,
    /// Partitions that have taken over from others here.
    pub born: u64,
}
