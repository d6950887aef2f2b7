//! A partition at one node, by the mode of its keyspace.
//!
//! * `two_phase`: multicast two-phase commit with a primary; `chain`: chain replication. Both agree on one sequence of decisions, and
//!   share `ordered`.
//! * `quorum`: registers without a primary (R14).
//! * `messages`: what the node hands to a partition; `bounds`: the limits of queues and tables.
//!
//! A new mode is a module beside these, a variant of [`Partition`] and of `nicekv_proto::Replication`.

mod bounds;
mod chain;
mod entry;
pub(crate) mod messages;
mod ordered;
mod quorum;
mod two_phase;

pub use bounds::{CLIENT_BYTES_MAX, CLIENTS_BYTES_MAX, COPY_PAGES_MAX};
pub use ordered::script::LentKeys;

use crate::modes::chain::Chain;
use crate::modes::messages::{CopyChunk, CopyRequest, Message, Request};
use crate::modes::ordered::{OrderedPartition, is_ordered, is_record};
use crate::modes::quorum::QuorumPartition;
use crate::modes::two_phase::TwoPhase;
use crate::node::host::Host;
use crate::node::membership::Membership;
use crate::node::status::PartitionStatus;
use crate::node::storage::{Page, ValueEnd};
#[cfg(test)]
use crate::node::tests::recorder::{Recorder, is_recording};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::hash::Hasher;
use core::net::SocketAddrV4;
use nicekv_proto::control::Assign;
use nicekv_proto::large::Reference;
use nicekv_proto::{DecodeError, Epoch, NodeId, Now, OpId, PartitionId, Replication};

/// A partition at one node. Completions of the disk come back to it in the order in which it asked, under the number that it got.
#[derive(Clone)]
pub(crate) enum Partition {
    TwoPhase(Box<OrderedPartition<TwoPhase>>),
    Chain(Box<OrderedPartition<Chain>>),
    Quorum(Box<QuorumPartition>),
    /// Records its calls, for tests of the node.
    #[cfg(test)]
    Recorder(Box<Recorder>),
}

macro_rules! each {
    ($self:ident, $partition:ident => $what:expr) => {
        match $self {
            Self::TwoPhase($partition) => $what,
            Self::Chain($partition) => $what,
            Self::Quorum($partition) => $what,
            #[cfg(test)]
            Self::Recorder($partition) => $what,
        }
    };
}

/// Of a partition that orders its ops; registers have no such thing.
macro_rules! ordered {
    ($self:ident, $partition:ident => $what:expr, else $other:expr) => {
        match $self {
            Self::TwoPhase($partition) => $what,
            Self::Chain($partition) => $what,
            Self::Quorum(_) => $other,
            #[cfg(test)]
            Self::Recorder(_) => $other,
        }
    };
}

impl Partition {
    /// A partition that this node did not know: it is outside of every epoch.
    pub(crate) fn new(id: PartitionId, replication: Replication, host: &Host) -> Self {
        #[cfg(test)]
        if is_recording() {
            return Self::Recorder(Box::new(Recorder::new(id, replication)));
        }
        match replication {
            Replication::Multicast => Self::two_phase(id, host),
            Replication::Chain => {
                Self::Chain(Box::new(OrderedPartition::outside(id, host, Chain::default())))
            }
            Replication::Quorum(_) => Self::Quorum(Box::new(QuorumPartition::new(id, replication, host))),
        }
    }

    fn two_phase(id: PartitionId, host: &Host) -> Self {
        Self::TwoPhase(Box::new(OrderedPartition::outside(id, host, TwoPhase::default())))
    }

    /// The partition whose log begins with this record; `None`: the record is of no known mode. That of a chain is in the mode
    /// `TwoPhase`, whose log is the same, until it is assigned an epoch.
    pub(crate) fn of_record(id: PartitionId, record: &[u8], host: &Host) -> Option<Self> {
        #[cfg(test)]
        if is_recording() {
            return Recorder::of_record(id, record).map(Box::new).map(Self::Recorder);
        }
        if is_record(record) {
            return Some(Self::two_phase(id, host));
        }
        QuorumPartition::of_record(id, record, host).map(Box::new).map(Self::Quorum)
    }

    /// Whether it may be assigned an epoch of such a keyspace. What it holds would mean something else in another mode.
    pub(crate) fn is(&self, replication: Replication) -> bool {
        match self {
            Self::TwoPhase(_) | Self::Chain(_) => is_ordered(replication),
            Self::Quorum(partition) => partition.is(replication),
            #[cfg(test)]
            Self::Recorder(partition) => partition.is(replication),
        }
    }

    /// A mode for which [`Self::is`] is true.
    pub(crate) fn replication(&self) -> Replication {
        match self {
            Self::TwoPhase(_) => Replication::Multicast,
            Self::Chain(_) => Replication::Chain,
            Self::Quorum(partition) => partition.replication(),
            #[cfg(test)]
            Self::Recorder(partition) => partition.replication(),
        }
    }

    /// The epoch that it is in.
    #[inline]
    pub(crate) fn membership(&self) -> &Membership {
        each!(self, partition => &partition.membership)
    }

    /// The oldest epoch in which this process can be: the current one, or, before it is in any, one after every epoch of which its log
    /// holds decisions (R9). An assignment of an older epoch is late, or the metadata service has lost newer state.
    pub(crate) fn epoch_min(&self) -> Epoch {
        ordered!(self, partition => partition.epoch_min(), else self.membership().epoch)
    }

    /// The metadata service assigns an epoch. Whether this replica is in it now and acknowledges it.
    pub(crate) fn on_assign(&mut self, host: &mut Host, now: Now, assign: &Assign) -> bool {
        match self {
            Self::Quorum(partition) => return partition.on_assign(host, now, assign),
            #[cfg(test)]
            Self::Recorder(partition) => return partition.on_assign(host, now, assign),
            Self::TwoPhase(_) | Self::Chain(_) => {}
        }
        if !ordered!(self, partition => partition.may_take_up(host, assign), else true) {
            return false;
        }
        if assign.epoch > self.membership().epoch && assign.replication != self.replication() {
            self.change_mode(host, assign.replication);
        }
        ordered!(self, partition => partition.take_up(host, now, assign), else ());
        true
    }

    /// The first epoch says in which mode the keyspace is.
    fn change_mode(&mut self, host: &Host, replication: Replication) {
        let blank = Self::two_phase(self.membership().partition, host);
        *self = match (core::mem::replace(self, blank), replication) {
            (Self::TwoPhase(partition), Replication::Chain) => {
                Self::Chain(Box::new(partition.with_mode(Chain::default())))
            }
            (Self::Chain(partition), Replication::Multicast) => {
                Self::TwoPhase(Box::new(partition.with_mode(TwoPhase::default())))
            }
            (same, _) => same,
        };
    }

    /// Replays a record of the log. Called in log order, before anything else is handled.
    ///
    /// # Errors
    /// The record is not one of this release.
    pub(crate) fn replay(
        &mut self,
        host: &mut Host,
        now: Now,
        number: u64,
        record: &[u8],
    ) -> Result<(), DecodeError> {
        each!(self, partition => partition.replay(host, now, number, record))
    }

    /// A client's request; `from` is the client's address, or that of a switch that hides it.
    #[inline]
    pub(crate) fn on_request(&mut self, host: &mut Host, now: Now, from: SocketAddrV4, request: Request<'_>) {
        each!(self, partition => partition.on_request(host, now, from, request));
    }

    /// A message of another member.
    #[inline]
    pub(crate) fn on_message(&mut self, host: &mut Host, now: Now, sender: NodeId, message: Message<'_>) {
        each!(self, partition => partition.on_message(host, now, sender, message));
    }

    /// A joiner of this epoch asks for a part of its copy.
    pub(crate) fn on_copy_request(&mut self, host: &mut Host, now: Now, request: CopyRequest<'_>) {
        each!(self, partition => partition.on_copy_request(host, now, request));
    }

    /// A part of this node's copy has arrived.
    pub(crate) fn on_copy_chunk(&mut self, host: &mut Host, now: Now, chunk: CopyChunk<'_>) {
        each!(self, partition => partition.on_copy_chunk(host, now, chunk));
    }

    /// An awaited record is durable.
    #[inline]
    pub(crate) fn on_synced(&mut self, host: &mut Host, now: Now, record: u64) {
        each!(self, partition => partition.on_synced(host, now, record));
    }

    /// An entry has been read.
    #[inline]
    pub(crate) fn on_read(&mut self, host: &mut Host, now: Now, token: u64, entry: Option<&[u8]>) {
        each!(self, partition => partition.on_read(host, now, token, entry));
    }

    /// An entry exists and is damaged.
    pub(crate) fn on_read_corrupt(&mut self, host: &mut Host, now: Now, token: u64) {
        each!(self, partition => partition.on_read_corrupt(host, now, token));
    }

    /// A page has been read.
    pub(crate) fn on_scanned(&mut self, host: &mut Host, now: Now, token: u64, page: Page<'_>) {
        each!(self, partition => partition.on_scanned(host, now, token, page));
    }

    /// The large value `name`, made for an op of this key, is on disk or cannot be made ([`Host::make_value`]).
    pub(crate) fn on_value_made(
        &mut self,
        host: &mut Host,
        now: Now,
        key: &[u8],
        name: OpId,
        made: Result<Reference, ValueEnd>,
    ) {
        ordered!(self, partition => partition.on_value_made(host, now, key, name, made),
            else host.finish_internal(name));
    }

    /// The next op of this key waited for a script, which may have ended ([`Scripts`](crate::Scripts)).
    pub(crate) fn on_script_turn(&mut self, host: &mut Host, now: Now, key: &[u8]) {
        ordered!(self, partition => partition.decide_key(host, now, key), else ());
    }

    /// Whether this replica would answer a get of any key that is not locked, within the lease, from the entry that was last shown.
    pub(crate) fn answers_gets(&self, host: &Host) -> bool {
        ordered!(self, partition => partition.answers_gets(host), else false)
    }

    /// Whether this replica decides its keys' ops and shows the decisions at once: then other nodes may hold copies ([`crate::Hot`]).
    pub(crate) fn leads(&self) -> bool {
        ordered!(self, partition => partition.leads(), else false)
    }

    /// An op of this key may be decided that could not be before ([`Host::may_decide`]).
    pub(crate) fn reconsider(&mut self, host: &mut Host, now: Now, key: &[u8]) {
        ordered!(self, partition => partition.reconsider(host, now, key), else ());
    }

    /// The decision through which everything has taken effect here, and nothing after it. `None`: not at this moment, this replica does
    /// not lead, or the mode has no decisions.
    pub(crate) fn settled(&self) -> Option<u64> {
        ordered!(self, partition => partition.settled(), else None)
    }

    /// Whether a pass of the scrub is to begin before its time.
    pub(crate) fn wants_scrub(&self, now: Now) -> bool {
        match self {
            Self::TwoPhase(partition) => partition.wants_scrub(now),
            Self::Chain(partition) => partition.wants_scrub(now),
            Self::Quorum(_) => false,
            #[cfg(test)]
            Self::Recorder(partition) => partition.wants_scrub(),
        }
    }

    /// Whether the scrub may read a page now; `is_first`: the first one of its pass through this partition.
    pub(crate) fn before_scrub(&mut self, now: Now, is_first: bool) -> bool {
        match self {
            Self::TwoPhase(partition) => partition.before_scrub(now, is_first),
            Self::Chain(partition) => partition.before_scrub(now, is_first),
            Self::Quorum(partition) => partition.before_scrub(),
            #[cfg(test)]
            Self::Recorder(partition) => partition.before_scrub(is_first),
        }
    }

    /// The epoch has changed since the scrub asked for a page, so [`Self::on_scrubbed`] is not called for it.
    pub(crate) fn on_scrub_lost(&mut self) {
        match self {
            Self::TwoPhase(partition) => partition.on_scrub_lost(),
            Self::Chain(partition) => partition.on_scrub_lost(),
            Self::Quorum(_) => {}
            #[cfg(test)]
            Self::Recorder(partition) => partition.on_scrub_lost(),
        }
    }

    /// Orders deletes of at most `deletes_max` overdue values; returns how many. Called at every heartbeat.
    pub(crate) fn expire(&mut self, host: &mut Host, now: Now, deletes_max: usize) -> usize {
        match self {
            Self::TwoPhase(partition) => partition.expire_overdue(host, now, deletes_max),
            Self::Chain(partition) => partition.expire_overdue(host, now, deletes_max),
            Self::Quorum(_) => 0,
            #[cfg(test)]
            Self::Recorder(partition) => partition.expire(deletes_max),
        }
    }

    /// The scrub has read a page of the keys after `after`, in this epoch. `StorageQueue::is_written_since_scan` tells which keys were
    /// written since the page was asked for.
    pub(crate) fn on_scrubbed(&mut self, host: &mut Host, now: Now, after: Option<&[u8]>, page: Page<'_>) {
        each!(self, partition => partition.on_scrubbed(host, now, after, page));
    }

    /// Retries what is overdue. Whether there is anything to look at again later.
    pub(crate) fn sweep(&mut self, host: &mut Host, now: Now) -> bool {
        each!(self, partition => partition.sweep(host, now))
    }

    /// Appends the open state to the log again, so that earlier records can go once the engine is durable.
    pub(crate) fn checkpoint(&self, host: &mut Host) {
        each!(self, partition => partition.checkpoint(host));
    }

    /// The node forgets the partition: its open ops are void. Nothing is pending for it.
    pub(crate) fn give_up(&mut self, host: &mut Host) {
        ordered!(self, partition => partition.give_up(host), else ());
    }

    /// Whether it can be split and merged (R17).
    pub(crate) fn can_be_reshaped(&self) -> bool {
        ordered!(self, _partition => true, else false)
    }

    /// These keys are damaged: fetches them from other members.
    pub(crate) fn repair(&mut self, host: &mut Host, now: Now, keys: &[Vec<u8>]) {
        ordered!(self, partition => partition.begin_repairs(host, now, keys), else ());
    }

    /// At the primary of a sealed epoch: the last decision, once nothing is open and all members hold everything. After that nothing is
    /// decided any more (R17).
    pub(crate) fn drain(&mut self, host: &Host) -> Option<u64> {
        ordered!(self, partition => partition.drain(host), else None)
    }

    /// Whether this replica holds every decision through `index`.
    pub(crate) fn holds_through(&self, index: u64) -> bool {
        ordered!(self, partition => partition.holds_through(index), else false)
    }

    /// Decision `index` is the last one there will ever be, and every member holds it. If this replica holds it and nothing after it,
    /// everything takes effect, and this returns true (R17).
    pub(crate) fn end_at(&mut self, host: &mut Host, now: Now, index: u64) -> bool {
        ordered!(self, partition => partition.end_at(host, now, index), else false)
    }

    /// Client records, in pieces, for [`Self::take_over`]. Logs that everything has taken effect.
    pub(crate) fn hand_over(&self, host: &mut Host) -> Vec<Vec<u8>> {
        ordered!(self, partition => partition.hand_over(host), else Vec::new())
    }

    /// Takes the place of other partitions, of which it has all entries, with what they hand over, and goes on after decision `index`
    /// (R17). All of that is logged.
    pub(crate) fn take_over(&mut self, host: &mut Host, index: u64, client_records: &[Vec<u8>]) {
        ordered!(self, partition => partition.take_over(host, index, client_records), else ());
    }

    /// For operators and tests.
    pub(crate) fn status(&self) -> PartitionStatus {
        each!(self, partition => partition.status())
    }
}

/// For tests that visit every state.
impl Partition {
    /// Feeds `state` with everything that can make a difference later; see [`Replica::fingerprint`](crate::Replica::fingerprint).
    pub(crate) fn fingerprint(&self, state: &mut impl Hasher) {
        ordered!(self, partition => partition.fingerprint(state),
            else unreachable!("worlds that are visited as a whole have no quorum keyspace"));
    }

    /// Feeds `state` with what the partition awaits this record for.
    pub(crate) fn fingerprint_wait(&self, record: u64, state: &mut impl Hasher) {
        ordered!(self, partition => partition.fingerprint_wait(record, state),
            else unreachable!("worlds that are visited as a whole have no quorum keyspace"));
    }

    /// Checks the invariants of the modules.
    ///
    /// # Errors
    /// The invariant that does not hold.
    pub(crate) fn check_invariants(&self) -> Result<(), &'static str> {
        ordered!(self, partition => partition.check_invariants(), else Ok(()))
    }
}
