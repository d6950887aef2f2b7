//! One partition at one node that agrees on a sequence of decisions: the parts of its state, and
//! what its mode decides.

use super::clients::Clients;
use super::contents::Contents;
use super::evaluate::Verdict;
use super::joiner::{Former, Join};
use super::lead::Lead;
use super::locks::{Locks, WaitingGet};
use super::repairs::Repairs;
use super::reporting::Reporting;
use super::sequence::{Decided, Sequence};
use super::waits::Waits;
use crate::modes::bounds::CLIENTS_BYTES_MAX;
use crate::{Changes, Host, Membership};
use core::hash::Hasher;
use nicekv_proto::recovery::Entry;
use nicekv_proto::{Now, OpId, PartitionId, Update};

/// One partition at one node. `mode` is the state of its mode alone: [`TwoPhase`](crate::modes::two_phase::TwoPhase) or
/// [`Chain`](crate::modes::chain::Chain).
#[derive(Clone)]
pub(crate) struct OrderedPartition<A> {
    /// The epoch.
    pub(crate) membership: Membership,
    /// Open ops, and the keys that they lock.
    pub(crate) locks: Locks,
    /// Decisions.
    pub(crate) sequence: Sequence,
    /// Results of clients' ops (R10).
    pub(crate) clients: Clients,
    /// What is in the engine.
    pub(crate) contents: Contents,
    /// What it held before it joined; `None` once it holds everything that it should.
    pub(crate) former: Option<Former>,
    /// Primary: its part of the epoch.
    pub(crate) lead: Option<Lead>,
    /// Joiner: its copy.
    pub(crate) join: Option<Join>,
    /// When it next reports its progress.
    pub(crate) reporting: Reporting,
    /// Keys that cannot be read, or differ between members.
    pub(crate) repairs: Repairs,
    /// Pending requests to the disk.
    pub(crate) waits: Waits,
    /// Whether this process knows that it holds everything that was confirmed before it started (R18).
    pub(crate) is_proven: bool,
    /// State of the mode.
    pub(crate) mode: A,
}

/// What differs between multicast two-phase commit and chains, where the code that they share needs it.
pub(crate) trait Agreement {
    /// The primary decides an op as soon as it has it (C1, C4), and a decision is shown only when
    /// all members have synced it. Otherwise the primary waits until every member has acknowledged
    /// the op (R1), and only contended decisions are shown late (R2).
    const DECIDES_AT_ONCE: bool;
    /// A secondary passes a get that it cannot answer to the primary.
    const PASSES_GETS_TO_PRIMARY: bool;

    /// A new epoch begins; `next` replaces `self.membership` right after.
    fn begin_epoch(&mut self, host: &mut Host, now: Now, next: &Membership);

    /// This primary has adopted all decisions, and may decide.
    fn on_recovered(&mut self, host: &mut Host, now: Now);

    /// Decisions may be made, or released, that could not be before.
    fn resume(&mut self, host: &mut Host, now: Now);

    /// What an op of one key does to the known state of its key. `None`: not yet; the op is looked at again later.
    fn judge_known(&mut self, host: &mut Host, now: Now, key: &[u8], op: OpId) -> Option<Verdict>;

    /// Logs the next decision, and sends it to other members.
    fn commit(&mut self, host: &mut Host, now: Now, decided: Decided);

    /// Puts an op of this node's own client on the way that clients' ops take.
    fn propose(&mut self, host: &mut Host, now: Now, update: &Update<'_>, datagram: &[u8]);

    /// Whether this member answers clients when their ops take effect.
    fn answers_clients(&self, host: &Host) -> bool;

    /// The entry for a get has been read, in an epoch in which this member serves.
    fn answer_get_from(
        &mut self,
        host: &mut Host,
        now: Now,
        get: WaitingGet,
        key: (&[u8], Changes),
        entry: Option<Entry<'_>>,
    );

    /// Reports what is logged and synced; with `gap`, asks for what is missing.
    fn tell_progress(&mut self, host: &mut Host, gap: bool);

    /// Feeds `state` with the state of the mode (`Partition::fingerprint`).
    fn fingerprint_mode(&self, state: &mut impl Hasher);
}

impl<A> OrderedPartition<A> {
    /// A partition in no epoch.
    pub(crate) fn outside(id: PartitionId, host: &Host, mode: A) -> Self {
        Self {
            membership: Membership::outside(id),
            locks: Locks::new(id, host.map(), host.map()),
            sequence: Sequence::default(),
            clients: Clients::new(host.clients_bytes_max(CLIENTS_BYTES_MAX)),
            contents: Contents::new(id, host),
            former: None,
            lead: None,
            join: None,
            reporting: Reporting::default(),
            repairs: Repairs::default(),
            waits: Waits::default(),
            is_proven: false,
            mode,
        }
    }

    /// The same partition in another mode: its log does not say in which mode its keyspace is, the first epoch does.
    pub(crate) fn with_mode<B>(self, mode: B) -> OrderedPartition<B> {
        OrderedPartition {
            membership: self.membership,
            locks: self.locks,
            sequence: self.sequence,
            clients: self.clients,
            contents: self.contents,
            former: self.former,
            lead: self.lead,
            join: self.join,
            reporting: self.reporting,
            repairs: self.repairs,
            waits: self.waits,
            is_proven: self.is_proven,
            mode,
        }
    }

    pub(crate) fn id(&self) -> PartitionId {
        self.membership.partition
    }

    pub(crate) fn is_primary(&self) -> bool {
        self.lead.is_some()
    }

    /// Whether another member has logged, or knows to be released, more than this one.
    pub(crate) fn is_behind(&self, logged: u64, released: u64) -> bool {
        self.sequence.logged() < logged || self.sequence.released() < released
    }
}
