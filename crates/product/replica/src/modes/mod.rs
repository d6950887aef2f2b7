//! A partition at one node, in the mode of its keyspace.
//!
//! * `two_phase`: multicast two-phase commit with a primary. `chain`: chain replication. Both agree
//!   on one sequence of decisions, and share `ordered`.
//! * `quorum`: registers without a primary (R14).
//! * `messages`: what the node passes to a partition. `bounds`: the limits of queues and tables.
//!
//! A new mode is a module beside these, and a variant of [`Partition`] and of
//! `nicekv_proto::Replication`.

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

/// A partition at one node. The disk completes a partition's requests in the order in which they
/// were made; each completion carries the number that the request was given.
#[derive(Clone)]
pub(crate) enum Partition {
    TwoPhase(Box<OrderedPartition<TwoPhase>>),
    Chain(Box<OrderedPartition<Chain>>),
    Quorum(Box<QuorumPartition>),
    /// Records all calls, for tests of the node.
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

/// Calls a method that only ordered partitions have; `else` is the result for quorum partitions,
/// which have no order.
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
    /// State of a partition that is new to this node: the node is outside of all its epochs.
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

    /// The partition whose log begins with this record; `None` if no known mode writes such a
    /// record. A chain is in mode `TwoPhase`, which has the same log, until its first epoch is
    /// assigned.
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

    /// Whether the partition may be assigned an epoch of a keyspace in this mode. Ordered modes
    /// share their log and entries; those of a quorum partition have another meaning.
    pub(crate) fn is(&self, replication: Replication) -> bool {
        match self {
            Self::TwoPhase(_) | Self::Chain(_) => is_ordered(replication),
            Self::Quorum(partition) => partition.is(replication),
            #[cfg(test)]
            Self::Recorder(partition) => partition.is(replication),
        }
    }

    /// The partition's mode, or another one for which [`Self::is`] is true.
    pub(crate) fn replication(&self) -> Replication {
        match self {
            Self::TwoPhase(_) => Replication::Multicast,
            Self::Chain(_) => Replication::Chain,
            Self::Quorum(partition) => partition.replication(),
            #[cfg(test)]
            Self::Recorder(partition) => partition.replication(),
        }
    }

    /// The current epoch and its members.
    #[inline]
    pub(crate) fn membership(&self) -> &Membership {
        each!(self, partition => &partition.membership)
    }

    /// The oldest epoch in which this process may be. It is the current epoch or, before the
    /// process is in one, the epoch after the newest one of which its log holds decisions (R9). If
    /// an older epoch is assigned, the message is late, or the metadata service has lost state.
    pub(crate) fn epoch_min(&self) -> Epoch {
        ordered!(self, partition => partition.epoch_min(), else self.membership().epoch)
    }

    /// The metadata service assigns an epoch. Returns whether this replica is now in that epoch and
    /// acknowledges it.
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

    /// Changes to the mode of the keyspace, which the first assigned epoch names.
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

    /// Replays a record of the log. Called for all records in log order, before anything else is
    /// handled.
    ///
    /// # Errors
    /// The record is not in the format of this release.
    pub(crate) fn replay(
        &mut self,
        host: &mut Host,
        now: Now,
        number: u64,
        record: &[u8],
    ) -> Result<(), DecodeError> {
        each!(self, partition => partition.replay(host, now, number, record))
    }

    /// A client's request. `from` is the client's address, or the address of a switch that hides
    /// it.
    #[inline]
    pub(crate) fn on_request(&mut self, host: &mut Host, now: Now, from: SocketAddrV4, request: Request<'_>) {
        each!(self, partition => partition.on_request(host, now, from, request));
    }

    /// A message from another member.
    #[inline]
    pub(crate) fn on_message(&mut self, host: &mut Host, now: Now, sender: NodeId, message: Message<'_>) {
        each!(self, partition => partition.on_message(host, now, sender, message));
    }

    /// A joiner of this epoch requests a part of its copy.
    pub(crate) fn on_copy_request(&mut self, host: &mut Host, now: Now, request: CopyRequest<'_>) {
        each!(self, partition => partition.on_copy_request(host, now, request));
    }

    /// A part of the copy that this node requested has arrived.
    pub(crate) fn on_copy_chunk(&mut self, host: &mut Host, now: Now, chunk: CopyChunk<'_>) {
        each!(self, partition => partition.on_copy_chunk(host, now, chunk));
    }

    /// A record that the partition waits for is durable.
    #[inline]
    pub(crate) fn on_synced(&mut self, host: &mut Host, now: Now, record: u64) {
        each!(self, partition => partition.on_synced(host, now, record));
    }

    /// The engine has read an entry; `None` if the key has none.
    #[inline]
    pub(crate) fn on_read(&mut self, host: &mut Host, now: Now, token: u64, entry: Option<&[u8]>) {
        each!(self, partition => partition.on_read(host, now, token, entry));
    }

    /// The engine has found that an entry is damaged.
    pub(crate) fn on_read_corrupt(&mut self, host: &mut Host, now: Now, token: u64) {
        each!(self, partition => partition.on_read_corrupt(host, now, token));
    }

    /// The engine has read a page of entries.
    pub(crate) fn on_scanned(&mut self, host: &mut Host, now: Now, token: u64, page: Page<'_>) {
        each!(self, partition => partition.on_scanned(host, now, token, page));
    }

    /// The large value `name`, built for an op of this key, is on disk or could not be built
    /// ([`Host::make_value`]).
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

    /// The next op of this key has waited for a script, which may have ended
    /// ([`Scripts`](crate::Scripts)).
    pub(crate) fn on_script_turn(&mut self, host: &mut Host, now: Now, key: &[u8]) {
        ordered!(self, partition => partition.decide_key(host, now, key), else ());
    }

    /// Whether this replica, while its lease runs, would answer a get of any key that no op locks
    /// from the entry shown last.
    pub(crate) fn answers_gets(&self, host: &Host) -> bool {
        ordered!(self, partition => partition.answers_gets(host), else false)
    }

    /// Whether this replica decides its keys' ops and shows decisions at once. Only then may other
    /// nodes hold copies of its keys ([`crate::Hot`]).
    pub(crate) fn leads(&self) -> bool {
        ordered!(self, partition => partition.leads(), else false)
    }

    /// An op of this key may now be decided that [`Host::may_decide`] had held back.
    pub(crate) fn reconsider(&mut self, host: &mut Host, now: Now, key: &[u8]) {
        ordered!(self, partition => partition.reconsider(host, now, key), else ());
    }

    /// The last decision that has taken effect, if all earlier ones have and no later one has.
    /// `None` if that is not so at the moment, this replica does not lead, or the mode has no
    /// decisions.
    pub(crate) fn settled(&self) -> Option<u64> {
        ordered!(self, partition => partition.settled(), else None)
    }

    /// Whether a pass of the scrub should begin before its scheduled time.
    pub(crate) fn wants_scrub(&self, now: Now) -> bool {
        match self {
            Self::TwoPhase(partition) => partition.wants_scrub(now),
            Self::Chain(partition) => partition.wants_scrub(now),
            Self::Quorum(_) => false,
            #[cfg(test)]
            Self::Recorder(partition) => partition.wants_scrub(),
        }
    }

    /// Whether the scrub may read a page now. `is_first`: the page is the first of a pass through
    /// this partition.
    pub(crate) fn before_scrub(&mut self, now: Now, is_first: bool) -> bool {
        match self {
            Self::TwoPhase(partition) => partition.before_scrub(now, is_first),
            Self::Chain(partition) => partition.before_scrub(now, is_first),
            Self::Quorum(partition) => partition.before_scrub(),
            #[cfg(test)]
            Self::Recorder(partition) => partition.before_scrub(is_first),
        }
    }

    /// The epoch has changed since the scrub requested a page, so [`Self::on_scrubbed`] will not be
    /// called for that page.
    pub(crate) fn on_scrub_lost(&mut self) {
        match self {
            Self::TwoPhase(partition) => partition.on_scrub_lost(),
            Self::Chain(partition) => partition.on_scrub_lost(),
            Self::Quorum(_) => {}
            #[cfg(test)]
            Self::Recorder(partition) => partition.on_scrub_lost(),
        }
    }

    /// Starts deletes of at most `deletes_max` overdue values; returns how many. Called at every
    /// heartbeat.
    pub(crate) fn expire(&mut self, host: &mut Host, now: Now, deletes_max: usize) -> usize {
        match self {
            Self::TwoPhase(partition) => partition.expire_overdue(host, now, deletes_max),
            Self::Chain(partition) => partition.expire_overdue(host, now, deletes_max),
            Self::Quorum(_) => 0,
            #[cfg(test)]
            Self::Recorder(partition) => partition.expire(deletes_max),
        }
    }

    /// The scrub has read, in this epoch, a page of the keys after `after`.
    /// `StorageQueue::is_written_since_scan` tells which keys were written since the page was
    /// requested.
    pub(crate) fn on_scrubbed(&mut self, host: &mut Host, now: Now, after: Option<&[u8]>, page: Page<'_>) {
        each!(self, partition => partition.on_scrubbed(host, now, after, page));
    }

    /// Retries what is overdue. Returns whether another sweep is needed later.
    pub(crate) fn sweep(&mut self, host: &mut Host, now: Now) -> bool {
        each!(self, partition => partition.sweep(host, now))
    }

    /// Appends the state of open ops to the log again, so that earlier records can be trimmed once
    /// the engine is durable.
    pub(crate) fn checkpoint(&self, host: &mut Host) {
        each!(self, partition => partition.checkpoint(host));
    }

    /// The node drops the partition, and with it the partition's open ops. No disk request of it is
    /// pending.
    pub(crate) fn give_up(&mut self, host: &mut Host) {
        ordered!(self, partition => partition.give_up(host), else ());
    }

    /// Whether partitions of this mode can be split and merged (R17).
    pub(crate) fn can_be_reshaped(&self) -> bool {
        ordered!(self, _partition => true, else false)
    }

    /// Fetches these damaged keys from other members.
    pub(crate) fn repair(&mut self, host: &mut Host, now: Now, keys: &[Vec<u8>]) {
        ordered!(self, partition => partition.begin_repairs(host, now, keys), else ());
    }

    /// Primary of a sealed epoch: returns the last decision once no op is open and all members hold
    /// everything. From then on the partition decides nothing more (R17).
    pub(crate) fn drain(&mut self, host: &Host) -> Option<u64> {
        ordered!(self, partition => partition.drain(host), else None)
    }

    /// Whether this replica holds all decisions up to `index`.
    pub(crate) fn holds_through(&self, index: u64) -> bool {
        ordered!(self, partition => partition.holds_through(index), else false)
    }

    /// The partition ends with decision `index`, which every member holds. If it is this replica's
    /// last decision, applies everything up to it and returns true (R17).
    pub(crate) fn end_at(&mut self, host: &mut Host, now: Now, index: u64) -> bool {
        ordered!(self, partition => partition.end_at(host, now, index), else false)
    }

    /// Returns client records, in pieces, for [`Self::take_over`]. Logs that everything has taken
    /// effect.
    pub(crate) fn hand_over(&self, host: &mut Host) -> Vec<Vec<u8>> {
        ordered!(self, partition => partition.hand_over(host), else Vec::new())
    }

    /// Takes the place of parent partitions: it already has all their entries, and now gets the
    /// client records that they hand over. Its sequence continues after decision `index` (R17). All
    /// of that is logged.
    pub(crate) fn take_over(&mut self, host: &mut Host, index: u64, client_records: &[Vec<u8>]) {
        ordered!(self, partition => partition.take_over(host, index, client_records), else ());
    }

    /// Status for operators and tests.
    pub(crate) fn status(&self) -> PartitionStatus {
        each!(self, partition => partition.status())
    }
}

/// Support for tests that visit every state.
impl Partition {
    /// Hashes into `state` everything that can influence later behaviour; see
    /// [`Replica::fingerprint`](crate::Replica::fingerprint).
    pub(crate) fn fingerprint(&self, state: &mut impl Hasher) {
        ordered!(self, partition => partition.fingerprint(state),
            else unreachable!("exhaustive tests have no quorum keyspace"));
    }

    /// Hashes into `state` what the partition will do when this record is durable.
    pub(crate) fn fingerprint_wait(&self, record: u64, state: &mut impl Hasher) {
        ordered!(self, partition => partition.fingerprint_wait(record, state),
            else unreachable!("exhaustive tests have no quorum keyspace"));
    }

    /// Checks the invariants of the partition's modules.
    ///
    /// # Errors
    /// The invariant that is violated.
    pub(crate) fn check_invariants(&self) -> Result<(), &'static str> {
        ordered!(self, partition => partition.check_invariants(), else Ok(()))
    }
}
