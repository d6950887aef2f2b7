//! What the node passes to a partition: requests of clients, messages of other members, and parts
//! of copies.
//!
//! The node has already made the checks that every mode needs. A request's digest matches its key,
//! and the key belongs to the partition. A message is of the partition's epoch and from another
//! member, by name and address (R4).

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
    /// Reads a key; possibly passed on by another member.
    Get(&'a Get<'a>),
    /// Lists keys; possibly passed on by another member.
    Scan(&'a Scan<'a>),
    /// Changes a key; with the datagram as it arrived.
    Update(&'a Update<'a>, &'a [u8]),
    /// Asks for the newest version (R14).
    Query(&'a QuorumQuery<'a>),
    /// Stores a version (R14); with the datagram as it arrived.
    Store(&'a QuorumStore<'a>, &'a [u8]),
}

impl Request<'_> {
    /// Whether a chain's head handles this request. The tail handles all others.
    pub(crate) fn is_put(&self) -> bool {
        matches!(self, Self::Update(..))
    }
}

/// A message from another member, in the partition's current epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Message<'a> {
    PrepareAck(&'a PrepareAck),
    /// A progress report, with all acknowledgements of prepares in the same datagram (of any
    /// partition).
    Progress(&'a Progress, Entries<'a, PrepareAck>),
    Watermark(&'a Watermark),
    Decision(&'a Decision<'a>),
    /// A decision sent along a chain, with its op unless the op was sent ahead.
    Forwarded(&'a Decision<'a>, Option<(&'a Update<'a>, &'a [u8])>),
    /// A prepare passed on by a member; `logged` is the last decision which that member has logged.
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
    /// The member holds all tombstones of this round.
    TombstonesAck(u64),
    Entrust(&'a Entrust<'a>),
    /// The successor holds the version with this serial.
    Entrusted(u64),
}

/// A joiner's request for a part of its copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyRequest<'a> {
    pub peer: StreamPeer,
    pub joiner: NodeId,
    pub section: CopySection,
    pub since: u64,
    pub after: &'a [u8],
}

/// A part of a copy, in answer to a [`CopyRequest`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyChunk<'a> {
    pub peer: StreamPeer,
    pub epoch: Epoch,
    pub section: CopySection,
    pub more: bool,
    pub payload: &'a [u8],
}
