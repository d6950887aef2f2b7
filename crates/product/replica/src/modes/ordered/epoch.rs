//! Entering an epoch: roles change, earlier acks are void, and the primary recovers before it
//! decides (R1, R3, R4).
//!
//! ```text
//! metadata      primary                       member
//!    │──Assign────▶│                             │◀──Assign── (metadata)
//!    │             │──RecoverRequest────────────▶│
//!    │             │◀─RecoverReply (undecided, logged)
//!    │             │──Fetch (decisions after)───▶│   only if some member has more decisions
//!    │             │◀─Decisions──────────────────│
//!    │──activated─▶│   adopt, then decide         │
//!    │             │──Decisions, watermark──────▶│
//! ```
//!
//! Why it is safe to adopt the longest log: members of one epoch hold prefixes of one sequence, and
//! a primary extends the sequence only after it has adopted the longest prefix among all members of
//! its epoch. A decision of a dead primary that no other member holds was either shown to no client
//! (contended), or comes out the same when it is decided again (uncontended).

use super::lead::{Lead, Phase};
use super::partition::{Agreement, OrderedPartition};
use super::record::Record;
use super::reporting::Reporting;
use super::sequence::Decided;
use crate::modes::ordered::clients::Lookup;
use crate::{Host, Membership, Standing};
use alloc::vec::Vec;
use nicekv_proto::control::{Assign, ReportKind};
use nicekv_proto::recovery::{Fetch, RecoverReply, RecoverRequest, UNDECIDED_MAX, UndecidedOp, Wanted};
use nicekv_proto::replication::Decision;
use nicekv_proto::{Epoch, NodeId, Now, OpId, StoredKey};

/// How many open ops one sweep examines, oldest first.
pub(crate) const SWEPT_OPS_MAX: usize = 256;

impl<A> OrderedPartition<A>
where
    Self: Agreement,
{
    /// Whether this replica may enter an epoch that the metadata service assigns, in the role that
    /// the assignment names.
    pub(crate) fn may_take_up(&self, host: &mut Host, assign: &Assign) -> bool {
        if assign.epoch < self.epoch_min() {
            // This number may have been used for another epoch. Two epochs with one number must not
            // be mistaken for each other (R7).
            return false;
        }
        let standing = Membership::of(assign, host.config.node).standing;
        if assign.epoch > self.membership.epoch && standing.serves() && self.former.is_some() {
            // The assignment makes this replica a full member, but it lacks data. It reported its
            // copy as complete only when the copy was durable, so its storage has forgotten
            // something (R18).
            host.counters.refused += 1;
            host.report(self.id(), assign.epoch, ReportKind::Forgot(host.config.node));
            return false;
        }
        true
    }

    /// Enters an epoch; or, if it is in that epoch already, notes that the epoch is activated.
    pub(crate) fn take_up(&mut self, host: &mut Host, now: Now, assign: &Assign) {
        if assign.epoch > self.membership.epoch {
            self.enter(host, now, Membership::of(assign, host.config.node));
        } else if assign.activated && !self.membership.activated {
            self.membership.activated = true;
            self.resume(host, now);
        }
    }

    fn enter(&mut self, host: &mut Host, now: Now, membership: Membership) {
        if self.membership.is_whole() && self.contents.held_by_originals() > 0 {
            let record = Record::Held { through: self.contents.held_by_originals() };
            host.append(self.id(), |out| record.append(out));
        }
        self.begin_epoch(host, now, &membership);
        if self.membership.epoch == Epoch::default() {
            self.drop_torn(host);
            let is_empty = self.sequence.logged() == 0 && self.locks.count() == 0 && self.former.is_none();
            // In the first epoch of a partition, or at a node that is new to it, nothing can have
            // been confirmed before.
            self.is_proven |=
                membership.epoch == Epoch(1) || (is_empty && membership.standing == Standing::Handoff);
        }
        self.membership = membership;
        if self.membership.sealed {
            // The primary of a sealed epoch waits until members have synced, and clients wait for
            // the child.
            host.storage.want_sync();
        }
        if !self.membership.standing.serves() {
            host.visibility.unknown(self.id());
        }
        self.sequence.enter_epoch();
        (self.join, self.lead, self.reporting) = (None, None, Reporting::default());
        self.repairs.clear();
        self.locks.enter_epoch(now);
        match self.membership.standing {
            Standing::Outside | Standing::Handoff => {}
            Standing::Joining => self.start_join(host),
            Standing::Consistent if self.membership.primary == host.config.node => {
                self.start_lead(host, now);
            }
            Standing::Consistent => {}
        }
        host.arm_sweep(now);
    }

    fn start_lead(&mut self, host: &mut Host, now: Now) {
        let me = self.membership.position(host.config.node).expect("the primary is a member");
        self.lead = Some(Lead::new(me, self.membership.members.len(), now));
        let synced = self.locks.undecided_after(0).filter(|(_, op)| op.is_synced);
        let synced: Vec<OpId> = synced.map(|(op, _)| op).collect();
        for op in synced {
            self.locks.count_acks(op, 1 << me, false, false);
        }
        self.ask(host);
        self.finish_collecting(host, now);
    }

    /// Asks the members that have not answered yet.
    pub(crate) fn ask(&mut self, host: &mut Host) {
        let lead = self.lead.as_ref().expect("a primary");
        let (sender, partition, epoch) = (host.config.node, self.id(), self.membership.epoch);
        match lead.phase() {
            Phase::Collecting => {
                for (position, cursor) in lead.unheard() {
                    let request = RecoverRequest { sender, partition, epoch, cursor };
                    host.outbox.send(self.membership.members[position].address, |out| request.encode(out));
                }
            }
            Phase::Adopting { from, .. } => {
                let wanted = Wanted::DecisionsAfter(self.sequence.logged());
                let fetch = Fetch { sender, partition, epoch, wanted };
                host.outbox.send(self.membership.members[from].address, |out| fetch.encode(out));
            }
            Phase::Fetching => {
                for (op, holder) in lead.fetched_first().take(SWEPT_OPS_MAX) {
                    let Some(address) = self.membership.address(holder) else { continue };
                    let fetch = Fetch { sender, partition, epoch, wanted: Wanted::Op(op) };
                    host.outbox.send(address, |out| fetch.encode(out));
                }
            }
            Phase::Ready => {}
        }
    }

    /// The epoch's primary asks what this member holds.
    pub(crate) fn on_recover_request(&mut self, host: &mut Host, request: &RecoverRequest) {
        if !self.membership.accepts(request.epoch, request.sender)
            || request.sender != self.membership.primary
        {
            return;
        }
        let has_stamps = self.membership.has_stamps();
        if has_stamps && self.locks.undecided_after(0).any(|(_, op)| !op.is_synced) {
            // The primary must know of all open ops before it lists names (P8).
            return host.storage.want_sync();
        }
        let synced = self.locks.undecided_after(request.cursor).filter(|(_, op)| op.is_synced);
        let told: Vec<_> = synced.take(UNDECIDED_MAX).collect();
        let last = told.last().map_or(0, |(_, op)| op.order);
        let undecided = told.iter().map(|(op, state)| UndecidedOp { op: *op, contended: state.is_contended });
        let reply = RecoverReply {
            sender: host.config.node,
            partition: self.id(),
            epoch: self.membership.epoch,
            cursor: request.cursor,
            next: if told.len() == UNDECIDED_MAX { last } else { 0 },
            logged: self.sequence.logged(),
            synced: self.sequence.synced(),
            released: self.sequence.released(),
            undecided: undecided.collect(),
        };
        host.outbox.send(self.membership.primary_address(), |out| reply.encode(out));
    }

    /// Primary: a member reports what it holds.
    pub(crate) fn on_recover_reply(&mut self, host: &mut Host, now: Now, reply: &RecoverReply) {
        if !self.membership.accepts(reply.epoch, reply.sender) {
            return;
        }
        let position = self.membership.position(reply.sender).expect("accepted");
        let Some(lead) = &mut self.lead else { return };
        if !lead.hear(position, reply) {
            return;
        }
        for undecided in &reply.undecided {
            if self.locks.holds(undecided.op) {
                self.locks.count_acks(undecided.op, 1 << position, undecided.contended, false);
            } else if self.clients.lookup(undecided.op) == Lookup::New {
                lead.want(undecided.op, reply.sender);
                if undecided.contended {
                    lead.note_contended(undecided.op);
                }
            }
        }
        if reply.next != 0 {
            self.ask(host);
        } else {
            self.finish_collecting(host, now);
        }
    }

    /// Primary: once all members have answered, adopts the longest log. If a member has forgotten
    /// something, reports that instead, and waits for an epoch in which that member joins (R18).
    pub(crate) fn finish_collecting(&mut self, host: &mut Host, now: Now) {
        let lead = self.lead.as_ref().expect("a primary");
        let Some((from, target)) = lead.farthest().filter(|_| lead.phase() == Phase::Collecting) else {
            return;
        };
        if let Some(forgetful) = self.forgetful_member() {
            return host.report(self.id(), self.membership.epoch, ReportKind::Forgot(forgetful));
        }
        let lead = self.lead.as_mut().expect("a primary");
        if target > self.sequence.logged() {
            lead.adopt(from, target);
            self.ask(host);
        } else {
            self.fetch_open_ops(host, now);
        }
    }

    /// Primary: all decisions are here. If this process may have forgotten ops that it had
    /// acknowledged, it fetches all open ops that others hold before it decides, because each of
    /// them may have been answered (R18).
    fn fetch_open_ops(&mut self, host: &mut Host, now: Now) {
        if self.is_proven || Self::DECIDES_AT_ONCE {
            return self.become_ready(host, now);
        }
        self.lead.as_mut().expect("a primary").begin_fetching();
        self.finish_fetching(host, now);
    }

    /// Primary: continues once it holds all open ops that others hold.
    pub(crate) fn finish_fetching(&mut self, host: &mut Host, now: Now) {
        let Some(lead) = self.lead.as_mut().filter(|lead| lead.phase() == Phase::Fetching) else { return };
        lead.keep_wanting(|op| {
            !self.locks.holds(op) && !self.sequence.has(op) && self.clients.lookup(op) == Lookup::New
        });
        if lead.wanted().is_empty() {
            self.become_ready(host, now);
        } else {
            self.ask(host);
        }
    }

    /// Primary: finds a member that lacks decisions which another member knows to be synced by all.
    /// Only full members are compared, because a joiner counts what it has copied as released.
    fn forgetful_member(&self) -> Option<NodeId> {
        let lead = self.lead.as_ref()?;
        let position = |at: usize| match at == lead.me() {
            true => (self.sequence.logged(), self.sequence.released()),
            false => lead.told_by(at),
        };
        let members = self.membership.members.iter().enumerate();
        let holders: Vec<_> = members.filter(|(_, member)| member.holds_all()).collect();
        let released = holders.iter().map(|(at, _)| position(*at).1).max()?;
        let forgetful = holders.into_iter().find(|(at, _)| position(*at).0 < released)?;
        Some(forgetful.1.node)
    }

    /// Whether this is the next decision to adopt, and `sender` the member from which they are
    /// adopted.
    pub(crate) fn adopts(&self, sender: NodeId, decision: &Decision<'_>) -> bool {
        self.adopts_from(sender) && decision.index == self.sequence.logged() + 1
    }

    /// Whether the primary is adopting decisions from this member.
    pub(crate) fn adopts_from(&self, sender: NodeId) -> bool {
        let phase = self.lead.as_ref().map(Lead::phase);
        matches!(phase, Some(Phase::Adopting { from, .. }) if self.membership.members[from].node == sender)
    }

    pub(crate) fn adopt(&mut self, host: &mut Host, now: Now, decided: Decided) {
        self.log_decision(host, now, decided);
        let phase = self.lead.as_ref().map(Lead::phase);
        if let Some(Phase::Adopting { target, .. }) = phase
            && self.sequence.logged() >= target
        {
            self.fetch_open_ops(host, now);
        }
    }

    fn become_ready(&mut self, host: &mut Host, now: Now) {
        self.sequence.begin_at(self.sequence.logged());
        let lead = self.lead.as_mut().expect("a primary");
        lead.become_ready(now, host.storage.appended(), self.sequence.logged());
        // Ops that only others held when they answered may have arrived here since then.
        lead.keep_wanting(|op| !self.locks.holds(op));
        host.storage.want_sync();
        self.on_recovered(host, now);
        self.resume(host, now);
    }

    /// Decides as many of the open ops as possible.
    pub(crate) fn decide_all(&mut self, host: &mut Host, now: Now) {
        let keys: Vec<StoredKey> =
            self.locks.undecided_after(0).flat_map(|(_, op)| op.stored.stored_keys()).collect();
        for key in keys {
            self.decide_key(host, now, &key);
        }
    }
}
