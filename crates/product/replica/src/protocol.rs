//! What a replication protocol is to the node that hosts it: the state machine of one partition.
//!
//! The node has checked what all protocols want checked: a request's digest is its key's and its partition the one that holds it; a message
//! is of the partition's epoch and from another member, by its name and its address (R4); an assignment is of the newest term and for this
//! process (R9, R13). What a protocol has asked the disk for comes back to it in the order in which it asked, under the number that it got.

use crate::host::Host;
use crate::kinds::StreamPeer;
use crate::membership::Membership;
use crate::status::PartitionStatus;
use crate::storage::ValueEnd;
use core::net::SocketAddrV4;
use nicekv_proto::bytes::Reader;
use nicekv_proto::control::Assign;
use nicekv_proto::large::Reference;
use nicekv_proto::quorum::{Entrust, QuorumQuery, QuorumStore, Tombstones};
use nicekv_proto::recovery::{CopySection, RecoverReply, RecoverRequest, Wanted, read_keyed_entry};
use nicekv_proto::repair::{RepairReply, RepairRequest};
use nicekv_proto::replication::{Decision, PrepareAck, Progress, Watermark};
use nicekv_proto::scan::Scan;
use nicekv_proto::scrub::ScrubPage;
use nicekv_proto::{DecodeError, Entries, Epoch, Get, NodeId, Now, OpId, PartitionId, Replication, Update};

/// A request of a client.
#[derive(Clone, Copy, Debug)]
pub enum Request<'a> {
    /// Read a key; maybe passed on by another member.
    Get(&'a Get<'a>),
    /// List what is held; maybe passed on by another member.
    Scan(&'a Scan<'a>),
    /// Change a key; the datagram as it arrived.
    Update(&'a Update<'a>, &'a [u8]),
    /// What do you hold? (R14)
    Query(&'a QuorumQuery<'a>),
    /// Hold this (R14); the datagram as it arrived.
    Store(&'a QuorumStore<'a>, &'a [u8]),
}

impl Request<'_> {
    /// Whether it is for the head of a chain, and goes on to the tail.
    pub(crate) fn is_put(&self) -> bool {
        matches!(self, Self::Update(..))
    }
}

/// A message from another member in the partition's epoch.
#[derive(Clone, Copy, Debug)]
pub enum Message<'a> {
    PrepareAck(&'a PrepareAck),
    /// With the prepares that the same datagram acknowledges, of this and other partitions.
    Progress(&'a Progress, Entries<'a, PrepareAck>),
    Watermark(&'a Watermark),
    Decision(&'a Decision<'a>),
    /// A decision, and the op that it decides unless that went before, along a chain.
    Forwarded(&'a Decision<'a>, Option<(&'a Update<'a>, &'a [u8])>),
    /// A prepare passed on by a member whose last decision was this one.
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
    /// The round that is done.
    TombstonesAck(u64),
    Entrust(&'a Entrust<'a>),
    /// The serial of what is held.
    Entrusted(u64),
}

/// A part of a copy that a joiner asks for.
#[derive(Clone, Copy, Debug)]
pub struct CopyRequest<'a> {
    pub peer: StreamPeer,
    pub joiner: NodeId,
    pub section: CopySection,
    pub since: u64,
    pub after: &'a [u8],
}

/// A part of a copy.
#[derive(Clone, Copy, Debug)]
pub struct CopyChunk<'a> {
    pub peer: StreamPeer,
    pub epoch: Epoch,
    pub section: CopySection,
    pub more: bool,
    pub payload: &'a [u8],
}

/// A page of the engine.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// A sequence of [`put_keyed_entry`](nicekv_proto::recovery::put_keyed_entry).
    pub entries: &'a [u8],
    /// Keys, in order, whose entries are damaged and not among `entries`.
    pub corrupt: &'a [alloc::vec::Vec<u8>],
    /// Whether later keys exist.
    pub more: bool,
}

/// The keys and encoded entries of a page, in order.
///
/// # Panics
/// If the bytes are not what an engine was given to store.
pub fn stored_entries(entries: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut reader = Reader::new(entries);
    core::iter::from_fn(move || {
        let more = !reader.is_empty();
        more.then(|| read_keyed_entry(&mut reader).expect("the engine returns what was stored"))
    })
}

/// A partition at one node, by one protocol.
pub trait Protocol: Sized {
    /// A partition that this node hears of for the first time: it is outside of every epoch.
    fn new(partition: PartitionId, replication: Replication, host: &Host) -> Self;

    /// The partition whose log begins with this record; `None`: it is of no protocol that is known.
    fn of_record(partition: PartitionId, record: &[u8], host: &Host) -> Option<Self>;

    /// Whether this is a partition of such a keyspace: what it holds means something else under another protocol.
    fn is(&self, replication: Replication) -> bool;

    /// A protocol of which [`Self::is`] is true.
    fn replication(&self) -> Replication;

    /// The epoch that it is in.
    fn membership(&self) -> &Membership;

    /// The oldest epoch in which this process can be: the one that it is in, or, before it is in any, one after all epochs of which its log holds decisions (R9). An
    /// assignment of an older one comes late, or the metadata service goes on from a state that is older than what this replica has seen.
    fn epoch_min(&self) -> Epoch {
        self.membership().epoch
    }

    /// The metadata service assigns an epoch. Whether this replica is in it now, and says so.
    fn on_assign(&mut self, host: &mut Host, now: Now, assign: &Assign) -> bool;

    /// Takes up its record of this number, read back from the log, in the log's order, before anything else is handled.
    ///
    /// # Errors
    /// The record is not one of this release's.
    fn replay(&mut self, host: &mut Host, now: Now, number: u64, record: &[u8]) -> Result<(), DecodeError>;

    /// A client asks something; `from`: its address, or that of a switch that hides it.
    fn on_request(&mut self, host: &mut Host, now: Now, from: SocketAddrV4, request: Request<'_>);

    /// Another member says something.
    fn on_message(&mut self, host: &mut Host, now: Now, sender: NodeId, message: Message<'_>);

    /// A joiner of this epoch asks for a part of its copy.
    fn on_copy_request(&mut self, host: &mut Host, now: Now, request: CopyRequest<'_>);

    /// A part of this node's copy has arrived.
    fn on_copy_chunk(&mut self, host: &mut Host, now: Now, chunk: CopyChunk<'_>);

    /// An awaited record is durable.
    fn on_forced(&mut self, host: &mut Host, now: Now, record: u64);

    /// An entry has been read.
    fn on_read(&mut self, host: &mut Host, now: Now, token: u64, entry: Option<&[u8]>);

    /// An entry is there and damaged.
    fn on_read_corrupt(&mut self, host: &mut Host, now: Now, token: u64);

    /// A page has been read.
    fn on_scanned(&mut self, host: &mut Host, now: Now, token: u64, page: Page<'_>);

    /// The large value of this name that was to be made for an op of this key is here ([`Host::make_value`]), or cannot be made.
    fn on_value_made(
        &mut self,
        host: &mut Host,
        _now: Now,
        _key: &[u8],
        name: OpId,
        _made: Result<Reference, ValueEnd>,
    ) {
        host.finish_internal(name);
    }

    /// A script of the next op of this key was still running, or waited for another one: the op may be decided now ([`Scripts`](crate::Scripts)).
    fn on_script_turn(&mut self, _host: &mut Host, _now: Now, _key: &[u8]) {}

    /// Whether a get of a key that is not locked, for any of its keys, would be answered here (within the lease), by whichever entry was last told of it.
    fn answers_gets(&self, _host: &Host) -> bool {
        false
    }

    /// Whether this replica decides what becomes of its keys, and shows what it has decided: then there may be copies of them elsewhere ([`crate::Hot`]).
    fn leads(&self) -> bool {
        false
    }

    /// An op of this key may be decided that could not ([`Host::may_decide`]).
    fn reconsider(&mut self, _host: &mut Host, _now: Now, _key: &[u8]) {}

    /// The decision up to which everything that was decided has taken effect here, and nothing after it; `None`: not at this moment, or this replica
    /// does not lead, or the protocol has no decisions.
    fn settled(&self) -> Option<u64> {
        None
    }

    /// Whether a pass of the scrub is to begin before its time.
    fn wants_scrub(&self, _now: Now) -> bool {
        false
    }

    /// The scrub is about to read a page; `is_first`: of its pass through this partition. False: not now.
    fn before_scrub(&mut self, _now: Now, _is_first: bool) -> bool {
        true
    }

    /// A page of the scrub is not told, since the epoch has changed.
    fn on_scrub_lost(&mut self) {}

    /// Has at most so many overdue values deleted; how many it was. Called at every heartbeat.
    fn expire(&mut self, _host: &mut Host, _now: Now, _deletes_max: usize) -> usize {
        0
    }

    /// The scrub has read a page in this epoch, of the keys after this one. Keys written since the page was asked for: `StorageQueue::is_written_since_scan`.
    fn on_scrubbed(&mut self, host: &mut Host, now: Now, after: Option<&[u8]>, page: Page<'_>);

    /// Looks for what is overdue; whether there is anything to look at again later.
    fn sweep(&mut self, host: &mut Host, now: Now) -> bool;

    /// Appends what is open, so that earlier records are no longer needed once the engine is durable.
    fn checkpoint(&self, host: &mut Host);

    /// The node forgets the partition: what is open here is void. Nothing is pending for it.
    fn give_up(&mut self, _host: &mut Host) {}

    /// Whether its partitions can be divided and united (R17).
    fn can_be_reshaped(&self) -> bool {
        false
    }

    /// These keys are damaged: to be got back from other members.
    fn repair(&mut self, _host: &mut Host, _now: Now, _keys: &[alloc::vec::Vec<u8>]) {}

    /// The primary of a sealed epoch: the last decision, once nothing is open and all hold everything; from then on nothing is decided any more (R17).
    fn drain(&mut self, _host: &Host) -> Option<u64> {
        None
    }

    /// Whether this replica holds everything up to this decision.
    fn holds_through(&self, _index: u64) -> bool {
        false
    }

    /// This decision is the last one that there will ever be, and every member holds it. Whether this replica does, and nothing else; then all has
    /// taken effect here (R17).
    fn end_at(&mut self, _host: &mut Host, _now: Now, _index: u64) -> bool {
        false
    }

    /// What is remembered of clients, in pieces, for [`Self::inherit`]. That everything has taken effect is logged.
    fn bequeath(&self, _host: &mut Host) -> alloc::vec::Vec<alloc::vec::Vec<u8>> {
        alloc::vec::Vec::new()
    }

    /// It takes the place of others, of which it has all entries, with what they bequeath; it goes on after this decision (R17). All of that is logged.
    fn inherit(&mut self, _host: &mut Host, _index: u64, _legacies: &[alloc::vec::Vec<u8>]) {}

    /// For operators and tests.
    fn status(&self) -> PartitionStatus;
}
