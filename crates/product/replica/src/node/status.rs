//! What a node says of itself, for operators and tests.

use crate::large::ValueCounters;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_proto::{Durations, Epoch, NodeId, OpId, PartitionId, Term};

/// What a node says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    /// Which node it is.
    pub node: NodeId,
    /// The highest term of a metadata leader that it has seen.
    pub term: Term,
    /// Its counters.
    pub counters: Counters,
    /// How long its puts took.
    pub puts: PutStages,
    /// Where what is counted happened last.
    pub latest: Latest,
    /// What it has done about hot keys.
    pub hot: HotCounters,
    /// What it has done about large values.
    pub values: ValueCounters,
    /// The partitions that it has heard of, by number.
    pub partitions: Vec<PartitionStatus>,
}

impl NodeStatus {
    /// Of a partition that the node has heard of.
    pub fn partition(&self, id: PartitionId) -> Option<&PartitionStatus> {
        self.partitions.iter().find(|status| status.partition == id)
    }
}

/// What was done, for operators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HotCounters {
    /// Copies sent to holders.
    pub copies: u64,
    /// Copies sent to a switch (H9).
    pub values: u64,
    /// Ops that waited for evidence.
    pub waits: u64,
    /// Times that all copies were taken back, as there was none, or none might be shown any more.
    pub revocations: u64,
    /// Gets of others' keys that were answered here.
    pub answered: u64,
    /// Of these, by the kernel (G7).
    pub answered_elsewhere: u64,
    /// Gets of others' keys that were passed on to their owners.
    pub passed: u64,
    /// Gets of others' keys of which nothing was known.
    pub unknown: u64,
}

/// A replica's standing in a partition's replica set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// No member (or not admitted since its start, R9): answers nothing.
    Outside,
    /// Takes part in puts, still copies.
    Joining,
    /// Holds what was decided since some original member is away, and stands in for it (R8).
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
    /// The partition.
    pub partition: PartitionId,
    /// The epoch that it is in.
    pub epoch: Epoch,
    /// Its standing.
    pub standing: Standing,
    /// The primary.
    pub primary: NodeId,
    /// Whether it is the primary and has recovered.
    pub leads: bool,
    /// Ops that are prepared and have not taken effect.
    pub open_ops: usize,
    /// The last decision logged.
    pub logged: u64,
    /// The last decision that every member holds.
    pub released: u64,
    /// Whether what its process found on its disk is known to be all that it had confirmed (R18).
    pub proven: bool,
}

/// How long the stages of a put took here, each counted from when the node took it in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PutStages {
    /// Until it was forced here.
    pub forced: Durations,
    /// Until this node, the primary, had decided it: every member has forced it.
    pub decided: Durations,
}

/// Where something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// In this partition.
    pub partition: PartitionId,
    /// In its epoch of this number.
    pub epoch: Epoch,
    /// To this op; [`OpId::NONE`] if to none.
    pub op: OpId,
}

/// A sender of another release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stranger {
    /// Where its datagram came from.
    pub from: SocketAddrV4,
    /// The wire version that it speaks.
    pub version: u8,
}

/// Of some of the [`Counters`], where the last of what they count happened.
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
    pub stranger: Option<Stranger>,
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
    /// Requests passed on to the node that they are for, by the directory.
    pub coordinated: u64,
    /// Requests that another one's directory had sent here, and were refused, being of another epoch.
    pub misdirected: u64,
    /// Ops decided here as primary.
    pub decided: u64,
    /// Of these, on the slow path of R2.
    pub decided_contended: u64,
    /// Messages published here as primary.
    pub published: u64,
    /// Datagrams sent to those that listen to them.
    pub messages_sent: u64,
    /// Clients that were not noted as listening, being too many.
    pub listeners_refused: u64,
    /// Datagrams that were no message of ours.
    pub malformed: u64,
    /// Of these, messages of another wire version.
    pub other_version: u64,
    /// Messages of another epoch or term, or from no member.
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
    /// Of these, got back from another member or written anew.
    pub repaired: u64,
    /// Deletions of quorum keyspaces that were forgotten.
    pub forgotten: u64,
    /// Entries found here that differ from what most members have, and put right.
    pub differing: u64,
    /// Entries verified by the scrub.
    pub scrubbed: u64,
    /// Its finished passes.
    pub scrubs: u64,
    /// Partitions of which what was held here was discarded.
    pub discarded: u64,
    /// Partitions that have taken the place of others here.
    pub born: u64,
}
