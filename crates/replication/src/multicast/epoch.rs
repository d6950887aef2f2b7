//! A new epoch: roles change, acks are void, and its primary recovers before it decides (R1, R3, R4).
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
//! Why adopting the longest is right: members of one epoch hold prefixes of one decision sequence, and a primary extends it only after
//! it has adopted the longest prefix among all members of its epoch. What a dead primary decided and nobody else holds was either
//! shown to nobody (contended) or comes out the same when it is decided again (uncontended).

use super::lead::{Lead, Phase};
use super::partition::Partition;
use super::record::Record;
use super::reporting::Reporting;
use super::sequence::Decided;
use crate::clients::Lookup;
use crate::config::CATCH_UP_DATAGRAMS_MAX;
use alloc::vec::Vec;
use nicekv_node::{Host, Membership, Plant, Protocol, Standing};
use nicekv_wire::control::Assign;
use nicekv_wire::limits::DATAGRAM_BYTES_MAX;
use nicekv_wire::recovery::{Fetch, RecoverReply, RecoverRequest, UNDECIDED_MAX, UndecidedOp, Wanted};
use nicekv_wire::replication::Decision;
use nicekv_wire::{Epoch, NodeId, Now, OpId, StoredKey};

impl Partition {
    /// The metadata service assigns an epoch. Whether this replica is in it now.
    pub(super) fn take_assign(&mut self, host: &mut Host, now: Now, assign: &Assign) -> bool {
        if assign.epoch < self.epoch_min() {
            // Decisions of two epochs of one number would be taken for the same (R7).
            return false;
        }
        if assign.epoch == self.membership.epoch {
            if assign.activated && !self.membership.activated {
                self.membership.activated = true;
                self.resume(host, now);
            }
            return true;
        }
        let membership = Membership::of(assign, host.config.node);
        if membership.standing.serves() && self.former.is_some() {
            // Never pretend to hold what was not copied.
            host.counters.refused += 1;
            return false;
        }
        self.enter(host, now, membership);
        true
    }

    fn enter(&mut self, host: &mut Host, now: Now, membership: Membership) {
        if self.membership.is_whole() && self.contents.held_by_originals() > 0 {
            let record = Record::Held { through: self.contents.held_by_originals() };
            host.append(self.id(), |out| record.append(out));
        }
        self.enter_chain(host, now, &membership);
        if self.membership.epoch == Epoch::default() {
            self.drop_torn(host);
        }
        self.membership = membership;
        if self.membership.sealed {
            // Its primary waits for that, and the clients for its primary.
            host.storage.want_force();
        }
        if !self.membership.standing.serves() {
            host.visibility.unknown(self.id());
        }
        self.sequence.enter_epoch(host.has(Plant::EarlyDecisionsKept));
        (self.join, self.lead, self.reporting) = (None, None, Reporting::default());
        self.repairs.clear();
        self.locks.enter_epoch(now, host.has(Plant::CountOlderAcks));
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
        if host.has(Plant::DedupeForgottenAtFailover) {
            self.clients.clear();
        }
        self.lead = Some(Lead::new(me, self.membership.members.len(), now));
        let forced = self.locks.undecided_after(0).filter(|(_, op)| op.is_forced);
        let forced: Vec<OpId> = forced.map(|(op, _)| op).collect();
        for op in forced {
            self.locks.count_acks(op, 1 << me, false, false);
        }
        self.ask(host);
        self.finish_collecting(host, now);
    }

    /// Asks again whoever has not answered.
    pub(super) fn ask(&mut self, host: &mut Host) {
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
            Phase::Ready => {}
        }
    }

    /// A member tells the primary of its epoch what it holds.
    pub(super) fn on_recover_request(&mut self, host: &mut Host, request: &RecoverRequest) {
        if !self.membership.accepts(request.epoch, request.sender)
            || request.sender != self.membership.primary
        {
            return;
        }
        let forced = self.locks.undecided_after(request.cursor).filter(|(_, op)| op.is_forced);
        let told: Vec<_> = forced.take(UNDECIDED_MAX).collect();
        let last = told.last().map_or(0, |(_, op)| op.order);
        let undecided = told.iter().map(|(op, state)| UndecidedOp { op: *op, contended: state.is_contended });
        let reply = RecoverReply {
            sender: host.config.node,
            partition: self.id(),
            epoch: self.membership.epoch,
            cursor: request.cursor,
            next: if told.len() == UNDECIDED_MAX { last } else { 0 },
            logged: self.sequence.logged(),
            forced: self.sequence.forced(),
            undecided: undecided.collect(),
        };
        host.outbox.send(self.membership.primary_address(), |out| reply.encode(out));
    }

    /// The primary hears what a member holds.
    pub(super) fn on_recover_reply(&mut self, host: &mut Host, now: Now, reply: &RecoverReply) {
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
            }
        }
        if reply.next != 0 {
            self.ask(host);
        } else {
            self.finish_collecting(host, now);
        }
    }

    fn finish_collecting(&mut self, host: &mut Host, now: Now) {
        let lead = self.lead.as_mut().expect("a primary");
        let Some((from, target)) = lead.farthest() else { return };
        if target > self.sequence.logged() && !host.has(Plant::AdoptNothing) {
            lead.adopt(from, target);
            self.ask(host);
        } else {
            self.become_ready(host, now);
        }
    }

    /// In recovery the primary adopts what a member has decided of.
    pub(super) fn on_adopted(&mut self, host: &mut Host, now: Now, sender: NodeId, decision: &Decision<'_>) {
        if self.adopts(sender, decision) {
            self.adopt(host, now, Decided::from_wire(decision));
        }
    }

    /// Whether this is the decision that is adopted next, from who has it.
    pub(super) fn adopts(&self, sender: NodeId, decision: &Decision<'_>) -> bool {
        self.adopts_from(sender) && decision.index == self.sequence.logged() + 1
    }

    /// Whether this member has more than this primary, which takes it over.
    pub(super) fn adopts_from(&self, sender: NodeId) -> bool {
        let phase = self.lead.as_ref().map(Lead::phase);
        matches!(phase, Some(Phase::Adopting { from, .. }) if self.membership.members[from].node == sender)
    }

    pub(super) fn adopt(&mut self, host: &mut Host, now: Now, decided: Decided) {
        self.log_decision(host, now, decided);
        let phase = self.lead.as_ref().map(Lead::phase);
        if let Some(Phase::Adopting { target, .. }) = phase
            && self.sequence.logged() >= target
        {
            self.become_ready(host, now);
        }
    }

    /// A member sends the primary the decisions that it lacks.
    pub(super) fn on_fetch_decisions(&mut self, host: &mut Host, to: NodeId, after: u64) {
        let Some(address) = self.membership.address(to) else { return };
        if self.is_chain() {
            return self.send_entries_after(host, address, after);
        }
        let watermark = self.watermark();
        for decided in self.sequence.after(after).take(CATCH_UP_DATAGRAMS_MAX) {
            let decision = decided.wire(self.id(), self.membership.epoch);
            host.outbox.unicast_decision(address, Some(&decision), watermark);
        }
    }

    fn become_ready(&mut self, host: &mut Host, now: Now) {
        self.sequence.begin_at(self.sequence.logged());
        let lead = self.lead.as_mut().expect("a primary");
        lead.become_ready(now, host.storage.appended(), self.sequence.logged());
        // What only others held when they answered may have arrived here since.
        lead.keep_wanting(|op| !self.locks.holds(op));
        let me = lead.me();
        let behind: Vec<(usize, u64)> = (0..self.membership.members.len())
            .filter(|position| *position != me)
            .map(|position| (position, lead.logged_by(position)))
            .collect();
        host.storage.want_force();
        if self.is_chain() {
            self.tell_successor(host);
            return self.resume(host, now);
        }
        for (position, logged) in behind {
            self.catch_up(host, now, position, logged);
        }
        self.resume(host, now);
    }

    /// Primary: sends a member the decisions after `logged`, and the watermark in any case.
    pub(super) fn catch_up(&mut self, host: &mut Host, now: Now, position: usize, logged: u64) {
        let Some(lead) = self.lead.as_mut().filter(|lead| lead.is_ready()) else { return };
        lead.note_served(now, position);
        let address = self.membership.members[position].address;
        let watermark = self.watermark();
        host.outbox.unicast_decision(address, None, watermark);
        let mut bytes = 0;
        for decided in self.sequence.after(logged) {
            let decision = decided.wire(self.id(), self.membership.epoch);
            bytes += decision.bytes();
            if bytes > CATCH_UP_DATAGRAMS_MAX * DATAGRAM_BYTES_MAX {
                break;
            }
            host.outbox.unicast_decision(address, Some(&decision), watermark);
        }
    }

    /// Decisions may be made, or released, that could not before.
    fn resume(&mut self, host: &mut Host, now: Now) {
        if !self.is_primary() && !self.is_chain() {
            return;
        }
        self.advance_release(host, now);
        let keys: Vec<StoredKey> =
            self.locks.undecided_after(0).flat_map(|(_, op)| op.stored.stored_keys()).collect();
        for key in keys {
            self.decide_key(host, now, &key);
        }
        host.arm_sweep(now);
    }
}
