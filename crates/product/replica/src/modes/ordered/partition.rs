//! One partition at one node whose members agree on a sequence of decisions: the parts of its
//! state, and what its mode has to define.

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

/// One partition at one node. `mode` is the state that only its mode has:
/// [`TwoPhase`](crate::modes::two_phase::TwoPhase) or [`Chain`](crate::modes::chain::Chain).
#[derive(Clone)]
pub(crate) struct OrderedPartition<A> {
    /// The current epoch and its members.
    pub(crate) membership: Membership,
    /// Open ops, and the keys that they lock.
    pub(crate) locks: Locks,
    /// The sequence of decisions.
    pub(crate) sequence: Sequence,
    /// Results of clients' ops (R10).
    pub(crate) clients: Clients,
    /// The partition's content in the engine.
    pub(crate) contents: Contents,
    /// The replica's content before it joined; `None` once its content is complete.
    pub(crate) former: Option<Former>,
    /// State that only the primary of the epoch has.
    pub(crate) lead: Option<Lead>,
    /// State that only a joiner has: the progress of its copy.
    pub(crate) join: Option<Join>,
    /// When this replica next reports its progress.
    pub(crate) reporting: Reporting,
    /// Keys that cannot be read, or whose entries differ between members.
    pub(crate) repairs: Repairs,
    /// Pending requests to the disk.
    pub(crate) waits: Waits,
    /// Whether this process is known to hold everything that was confirmed before it started (R18).
    pub(crate) is_proven: bool,
    /// State of the mode.
    pub(crate) mode: A,
}

/// What the shared code needs of a mode: the ways in which multicast two-phase commit and chains
/// differ.
pub(crate) trait Agreement {
    /// True for chains: the primary decides an op as soon as it receives it (C1, C4), and a
    /// decision is shown only when all members have synced it. False for two-phase commit: the
    /// primary waits until every member has acknowledged the op (R1), and only contended decisions
    /// are shown late (R2).
    const DECIDES_AT_ONCE: bool;
    /// Whether a secondary passes a get that it cannot answer on to the primary.
    const PASSES_GETS_TO_PRIMARY: bool;

    /// Called when a new epoch begins, just before `next` replaces `self.membership`.
    fn begin_epoch(&mut self, host: &mut Host, now: Now, next: &Membership);

    /// This primary has adopted all decisions, and may decide from now on.
    fn on_recovered(&mut self, host: &mut Host, now: Now);

    /// Something has changed so that decisions may be made or released that were held up before.
    fn resume(&mut self, host: &mut Host, now: Now);

    /// Determines the effect of an op of one key on the key's known state. `None`: not possible
    /// yet; the op is judged again later.
    fn judge_known(&mut self, host: &mut Host, now: Now, key: &[u8], op: OpId) -> Option<Verdict>;

    /// Logs the next decision, and sends it to other members.
    fn commit(&mut self, host: &mut Host, now: Now, decided: Decided);

    /// Handles an op of this node's own client in the same way as a client's op.
    fn propose(&mut self, host: &mut Host, now: Now, update: &Update<'_>, datagram: &[u8]);

    /// Whether this member sends clients the replies when their ops take effect.
    fn answers_clients(&self, host: &Host) -> bool;

    /// The entry for a get has been read, while this member serves in the epoch.
    fn answer_get_from(
        &mut self,
        host: &mut Host,
        now: Now,
        get: WaitingGet,
        key: (&[u8], Changes),
        entry: Option<Entry<'_>>,
    );

    /// Sends a progress report: what is logged and synced here. `gap`: decisions are missing here,
    /// and have to be sent.
    fn tell_progress(&mut self, host: &mut Host, gap: bool);

    /// Hashes the state of the mode into `state` (`Partition::fingerprint`).
    fn fingerprint_mode(&self, state: &mut impl Hasher);
}

impl<A> OrderedPartition<A> {
    /// A partition that is in no epoch yet.
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

    /// The same partition in another mode. Its log does not tell the mode of its keyspace; the
    /// first epoch does.
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

    /// Whether another member has logged more than this one, or knows more to be released.
    pub(crate) fn is_behind(&self, logged: u64, released: u64) -> bool {
        self.sequence.logged() < logged || self.sequence.released() < released
    }
}
