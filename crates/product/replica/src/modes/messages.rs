//! What the node hands to a partition: requests of clients, messages of other members, parts of copies.
//!
//! The node has already checked what every mode needs: the digest matches the key and the partition holds it; a message is of the
//! partition's epoch and from another member, by name and address (R4).

use crate::types::StreamPeer;
use nicekv_proto::quorum::{Entrust, QuorumQuery, QuorumStore, Tombstones};
use nicekv_proto::recovery::{CopySection, RecoverReply, RecoverRequest, Wanted};
use nicekv_proto::repair::{RepairReply, RepairRequest};
use nicekv_proto::replication::{Decision, PrepareAck, Progress, Watermark};
use nicekv_proto::scan::Scan;
use nicekv_proto::scrub::ScrubPage;
use nicekv_proto::{Entries, Epoch, Get, NodeId, Update};

/// A request of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Request<'a> {
    /// Read a key; possibly passed on by another member.
    Get(&'a Get<'a>),
    /// List keys; possibly passed on by another member.
    Scan(&'a Scan<'a>),
    /// Change a key; with the datagram as it arrived.
    Update(&'a Update<'a>, &'a [u8]),
    /// Ask for the newest version (R14).
    Query(&'a QuorumQuery<'a>),
    /// Store a version (R14); with the datagram as it arrived.
    Store(&'a QuorumStore<'a>, &'a [u8]),
}

impl Request<'_> {
    /// Whether the head of a chain handles it; the tail handles other requests.
    pub(crate) fn is_put(&self) -> bool {
        matches!(self, Self::Update(..))
    }
}

/// A message from another member in the partition's epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Message<'a> {
    PrepareAck(&'a PrepareAck),
    /// With the acknowledged prepares of the same datagram, of all partitions.
    Progress(&'a Progress, Entries<'a, PrepareAck>),
    Watermark(&'a Watermark),
    Decision(&'a Decision<'a>),
    /// A decision along a chain, with its op unless that went ahead.
    Forwarded(&'a Decision<'a>, Option<(&'a Update<'a>, &'a [u8])>),
    /// A prepare passed on by a member whose last decision was `logged`.
    Resent {
        logged: u64,
        update: &'a Update<'a>,
        datagram: &'a [u8],
    },
    RecoverRequest(&'a RecoverRequest),
    RecoverReply(&'a RecoverReply),
    Fetch(Wanted),
    RepairRequest(&'a RepairRequest<'a>),
    RepairReply(&'a RepairReply<'a>),
    ScrubPage(&'a ScrubPage<'a>),
    Tombstones(&'a Tombstones<'a>),
    /// The round that the member has finished.
    TombstonesAck(u64),
    Entrust(&'a Entrust<'a>),
    /// The serial of the version that the successor holds.
    Entrusted(u64),
}

/// A part of a copy that a joiner asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyRequest<'a> {
    pub peer: StreamPeer,
    pub joiner: NodeId,
    pub section: CopySection,
    pub since: u64,
    pub after: &'a [u8],
}

/// A part of a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyChunk<'a> {
    pub peer: StreamPeer,
    pub epoch: Epoch,
    pub section: CopySection,
    pub more: bool,
    pub payload: &'a [u8],
}
