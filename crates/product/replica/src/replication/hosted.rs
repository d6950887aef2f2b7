//! The protocols that a storage node hosts. An enum, so that a node is a value that can be cloned.

use crate::replication::multicast::Partition;
use crate::replication::quorum::QuorumPartition;
use crate::{
    CopyChunk, CopyRequest, Host, Membership, Message, NodeCore, Page, PartitionStatus, Protocol, Request,
    ValueEnd,
};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_proto::control::Assign;
use nicekv_proto::large::Reference;
use nicekv_proto::{DecodeError, Epoch, NodeId, Now, OpId, PartitionId, Replication};

/// A storage node with all protocols of this crate.
pub type Replica = NodeCore<Hosted>;

/// A partition by the protocol of its keyspace.
#[derive(Clone)]
pub enum Hosted {
    /// One that orders: multicast two-phase commit, or a chain.
    Multicast(Box<Partition>),
    /// Registers without one (R14).
    Quorum(Box<QuorumPartition>),
}

macro_rules! each {
    ($self:ident, $partition:ident => $what:expr) => {
        match $self {
            Self::Multicast($partition) => $what,
            Self::Quorum($partition) => $what,
        }
    };
}

impl Protocol for Hosted {
    fn new(id: PartitionId, replication: Replication, host: &Host) -> Self {
        match replication {
            Replication::Multicast | Replication::Chain => {
                Self::Multicast(Box::new(Protocol::new(id, replication, host)))
            }
            Replication::Quorum(_) => Self::Quorum(Box::new(Protocol::new(id, replication, host))),
        }
    }

    fn of_record(id: PartitionId, record: &[u8], host: &Host) -> Option<Self> {
        let multicast = Partition::of_record(id, record, host).map(Box::new).map(Self::Multicast);
        multicast.or_else(|| QuorumPartition::of_record(id, record, host).map(Box::new).map(Self::Quorum))
    }

    fn is(&self, replication: Replication) -> bool {
        each!(self, partition => partition.is(replication))
    }

    fn replication(&self) -> Replication {
        each!(self, partition => partition.replication())
    }

    fn membership(&self) -> &Membership {
        each!(self, partition => partition.membership())
    }

    fn epoch_min(&self) -> Epoch {
        each!(self, partition => partition.epoch_min())
    }

    fn on_assign(&mut self, host: &mut Host, now: Now, assign: &Assign) -> bool {
        each!(self, partition => partition.on_assign(host, now, assign))
    }

    fn replay(&mut self, host: &mut Host, now: Now, number: u64, record: &[u8]) -> Result<(), DecodeError> {
        each!(self, partition => partition.replay(host, now, number, record))
    }

    fn on_request(&mut self, host: &mut Host, now: Now, from: SocketAddrV4, request: Request<'_>) {
        each!(self, partition => partition.on_request(host, now, from, request));
    }

    fn on_message(&mut self, host: &mut Host, now: Now, sender: NodeId, message: Message<'_>) {
        each!(self, partition => partition.on_message(host, now, sender, message));
    }

    fn on_copy_request(&mut self, host: &mut Host, now: Now, request: CopyRequest<'_>) {
        each!(self, partition => partition.on_copy_request(host, now, request));
    }

    fn on_copy_chunk(&mut self, host: &mut Host, now: Now, chunk: CopyChunk<'_>) {
        each!(self, partition => partition.on_copy_chunk(host, now, chunk));
    }

    fn on_forced(&mut self, host: &mut Host, now: Now, record: u64) {
        each!(self, partition => partition.on_forced(host, now, record));
    }

    fn on_read(&mut self, host: &mut Host, now: Now, token: u64, entry: Option<&[u8]>) {
        each!(self, partition => partition.on_read(host, now, token, entry));
    }

    fn on_read_corrupt(&mut self, host: &mut Host, now: Now, token: u64) {
        each!(self, partition => partition.on_read_corrupt(host, now, token));
    }

    fn on_scanned(&mut self, host: &mut Host, now: Now, token: u64, page: Page<'_>) {
        each!(self, partition => partition.on_scanned(host, now, token, page));
    }

    fn on_value_made(
        &mut self,
        host: &mut Host,
        now: Now,
        key: &[u8],
        name: OpId,
        made: Result<Reference, ValueEnd>,
    ) {
        each!(self, partition => partition.on_value_made(host, now, key, name, made));
    }

    fn on_script_turn(&mut self, host: &mut Host, now: Now, key: &[u8]) {
        each!(self, partition => partition.on_script_turn(host, now, key));
    }

    fn answers_gets(&self, host: &Host) -> bool {
        each!(self, partition => Protocol::answers_gets(&**partition, host))
    }

    fn leads(&self) -> bool {
        each!(self, partition => partition.leads())
    }

    fn reconsider(&mut self, host: &mut Host, now: Now, key: &[u8]) {
        each!(self, partition => partition.reconsider(host, now, key));
    }

    fn settled(&self) -> Option<u64> {
        each!(self, partition => partition.settled())
    }

    fn wants_scrub(&self, now: Now) -> bool {
        each!(self, partition => partition.wants_scrub(now))
    }

    fn before_scrub(&mut self, now: Now, is_first: bool) -> bool {
        each!(self, partition => partition.before_scrub(now, is_first))
    }

    fn on_scrub_lost(&mut self) {
        each!(self, partition => partition.on_scrub_lost());
    }

    fn expire(&mut self, host: &mut Host, now: Now, deletes_max: usize) -> usize {
        each!(self, partition => partition.expire(host, now, deletes_max))
    }

    fn on_scrubbed(&mut self, host: &mut Host, now: Now, after: Option<&[u8]>, page: Page<'_>) {
        each!(self, partition => partition.on_scrubbed(host, now, after, page));
    }

    fn sweep(&mut self, host: &mut Host, now: Now) -> bool {
        each!(self, partition => partition.sweep(host, now))
    }

    fn checkpoint(&self, host: &mut Host) {
        each!(self, partition => partition.checkpoint(host));
    }

    fn give_up(&mut self, host: &mut Host) {
        each!(self, partition => partition.give_up(host));
    }

    fn can_be_reshaped(&self) -> bool {
        each!(self, partition => partition.can_be_reshaped())
    }

    fn repair(&mut self, host: &mut Host, now: Now, keys: &[Vec<u8>]) {
        each!(self, partition => partition.repair(host, now, keys));
    }

    fn drain(&mut self, host: &Host) -> Option<u64> {
        each!(self, partition => partition.drain(host))
    }

    fn holds_through(&self, index: u64) -> bool {
        each!(self, partition => partition.holds_through(index))
    }

    fn end_at(&mut self, host: &mut Host, now: Now, index: u64) -> bool {
        each!(self, partition => partition.end_at(host, now, index))
    }

    fn bequeath(&self, host: &mut Host) -> Vec<Vec<u8>> {
        each!(self, partition => partition.bequeath(host))
    }

    fn inherit(&mut self, host: &mut Host, index: u64, legacies: &[Vec<u8>]) {
        each!(self, partition => partition.inherit(host, index, legacies));
    }

    fn status(&self) -> PartitionStatus {
        each!(self, partition => partition.status())
    }
}
