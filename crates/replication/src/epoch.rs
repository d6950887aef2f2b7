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

use crate::partition::{Latest, Partition};
use crate::record::Record;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use nicekv_node::{Host, Membership, Plant, Standing};
use nicekv_wire::control::Assign;
use nicekv_wire::recovery::{Fetch, RecoverReply, RecoverRequest, UNDECIDED_MAX, UndecidedOp, Wanted};
use nicekv_wire::replication::Decision;
use nicekv_wire::{NodeId, Now, OpId};

use crate::clients::Lookup;
use crate::partition::Decided;

/// The primary's own state of an epoch.
#[derive(Clone)]
pub(crate) struct Lead {
    pub(crate) phase: Phase,
    /// By position in the member list; its own entry is unused.
    pub(crate) peers: Vec<Peer>,
    /// Ops whose log order is not above this were undecided when the epoch began: their decisions are contended.
    pub(crate) recovered_through: u64,
    /// The last decision of such an op, or of an epoch before: an earlier primary may have shown it.
    pub(crate) recovery_end: u64,
    /// Ops that only this member is known to hold.
    pub(crate) wanted: BTreeMap<OpId, NodeId>,
    /// When the last decision was sent.
    pub(crate) decided_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Asks every member what it holds.
    Collecting,
    /// Fetches decisions up to `target` from the member that has them.
    Adopting { from: usize, target: u64 },
    /// Decides.
    Ready,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct Peer {
    /// It has told everything it held when the epoch began.
    pub(crate) recovered: bool,
    cursor: u64,
    pub(crate) logged: u64,
    pub(crate) forced: u64,
    /// When it last made progress or was sent what it lacks.
    pub(crate) heard_ns: u64,
    /// How often it was sent what it lacks, in vain.
    pub(crate) tries: u32,
}

impl Lead {
    pub(crate) fn is_ready(&self) -> bool {
        self.phase == Phase::Ready
    }
}

impl Partition {
    /// The metadata service assigns an epoch. Whether this replica is in it now.
    pub(crate) fn take_assign(&mut self, host: &mut Host, now: Now, assign: &Assign) -> bool {
        if assign.epoch < self.membership.epoch {
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
        if self.membership.is_whole() && self.held_by_originals > 0 {
            let record = Record::Held { through: self.held_by_originals };
            host.append(self.id(), |out| record.append(out));
        }
        self.membership = membership;
        self.base = None;
        self.join = None;
        self.lead = None;
        self.progress_due_ns = None;
        self.gap_ns = 0;
        self.repairs.clear();
        self.refused.clear();
        for key in self.keys.values_mut() {
            key.waiting.clear();
            key.latest = Latest::Unknown;
        }
        for op in self.ops.values_mut() {
            if !host.has(Plant::CountOlderAcks) {
                op.acks = 0;
            }
            (op.any_contended, op.any_refused, op.tries) = (false, false, 0);
            op.sent_ns = now.boot_ns;
        }
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
        let mut peers =
            vec![Peer { heard_ns: now.boot_ns, ..Peer::default() }; self.membership.members.len()];
        peers[me].recovered = true;
        self.lead = Some(Lead {
            phase: Phase::Collecting,
            peers,
            recovered_through: 0,
            recovery_end: 0,
            wanted: BTreeMap::new(),
            decided_ns: now.boot_ns,
        });
        let forced: Vec<OpId> = self.undecided.values().copied().filter(|op| self.ops[op].forced).collect();
        for op in forced {
            let state = self.ops.get_mut(&op).expect("an undecided op is open");
            state.acks |= 1 << me;
            state.any_contended |= state.contended;
        }
        self.ask(host);
        self.finish_collecting(host, now);
    }

    /// Asks again whoever has not answered.
    pub(crate) fn ask(&mut self, host: &mut Host) {
        let lead = self.lead.as_ref().expect("a primary");
        let (sender, partition, epoch) = (host.config.node, self.id(), self.membership.epoch);
        match lead.phase {
            Phase::Collecting => {
                for (peer, member) in
                    lead.peers.iter().zip(&self.membership.members).filter(|(peer, _)| !peer.recovered)
                {
                    let request = RecoverRequest { sender, partition, epoch, cursor: peer.cursor };
                    host.outbox.send(member.address, |out| request.encode(out));
                }
            }
            Phase::Adopting { from, .. } => {
                let wanted = Wanted::DecisionsAfter(self.logged);
                let fetch = Fetch { sender, partition, epoch, wanted };
                host.outbox.send(self.membership.members[from].address, |out| fetch.encode(out));
            }
            Phase::Ready => {}
        }
    }

    /// A member tells the primary of its epoch what it holds.
    pub(crate) fn on_recover_request(&mut self, host: &mut Host, request: &RecoverRequest) {
        if !self.membership.accepts(request.epoch, request.sender)
            || request.sender != self.membership.primary
        {
            return;
        }
        let mut undecided = Vec::new();
        let mut next = 0;
        for (order, op) in self.undecided.range(request.cursor + 1..) {
            if undecided.len() == UNDECIDED_MAX {
                break;
            }
            let state = &self.ops[op];
            if state.forced {
                let contended = state.contended;
                undecided.push(UndecidedOp { op: *op, contended });
                next = *order;
            }
        }
        let reply = RecoverReply {
            sender: host.config.node,
            partition: self.id(),
            epoch: self.membership.epoch,
            cursor: request.cursor,
            next: if undecided.len() == UNDECIDED_MAX { next } else { 0 },
            logged: self.logged,
            forced: self.forced,
            undecided,
        };
        host.outbox.send(self.membership.primary_address(), |out| reply.encode(out));
    }

    /// The primary hears what a member holds.
    pub(crate) fn on_recover_reply(&mut self, host: &mut Host, now: Now, reply: &RecoverReply) {
        if !self.membership.accepts(reply.epoch, reply.sender) {
            return;
        }
        let position = self.membership.position(reply.sender).expect("accepted");
        let Some(lead) = &mut self.lead else { return };
        let peer = &mut lead.peers[position];
        if lead.phase != Phase::Collecting || peer.recovered || peer.cursor != reply.cursor {
            return;
        }
        (peer.logged, peer.forced, peer.cursor) = (reply.logged, reply.forced, reply.next);
        peer.recovered = reply.next == 0;
        for undecided in &reply.undecided {
            if let Some(state) = self.ops.get_mut(&undecided.op) {
                state.acks |= 1 << position;
                state.any_contended |= undecided.contended;
            } else if self.clients.lookup(undecided.op) == Lookup::New {
                lead.wanted.insert(undecided.op, reply.sender);
            }
        }
        if reply.next != 0 {
            self.ask(host);
        } else {
            self.finish_collecting(host, now);
        }
    }

    fn finish_collecting(&mut self, host: &mut Host, now: Now) {
        let logged = self.logged;
        let lead = self.lead.as_mut().expect("a primary");
        if !lead.peers.iter().all(|peer| peer.recovered) {
            return;
        }
        let (from, target) = (lead.peers.iter().enumerate())
            .map(|(position, peer)| (position, peer.logged))
            .max_by_key(|(_, logged)| *logged)
            .expect("a primary is a member");
        if target > logged && !host.has(Plant::AdoptNothing) {
            lead.phase = Phase::Adopting { from, target };
            self.ask(host);
        } else {
            self.become_ready(host, now);
        }
    }

    /// In recovery the primary adopts what a member has decided of.
    pub(crate) fn on_adopted(&mut self, host: &mut Host, now: Now, sender: NodeId, decision: &Decision<'_>) {
        let Some(Lead { phase: Phase::Adopting { from, target }, .. }) = self.lead else { return };
        if self.membership.members[from].node != sender || decision.index != self.logged + 1 {
            return;
        }
        self.log_decision(host, now, Decided::from_wire(decision));
        if self.logged >= target {
            self.become_ready(host, now);
        }
    }

    /// A member sends the primary the decisions that it lacks.
    pub(crate) fn on_fetch_decisions(&mut self, host: &mut Host, to: NodeId, after: u64) {
        let Some(address) = self.membership.address(to) else { return };
        let skip = after.saturating_sub(self.released) as usize;
        let watermark = self.watermark();
        for decided in self.decisions.iter().skip(skip).take(crate::config::CATCH_UP_DATAGRAMS_MAX) {
            let decision = decided.wire(self.id(), self.membership.epoch);
            host.outbox.unicast_decision(address, Some(&decision), watermark);
        }
    }

    fn become_ready(&mut self, host: &mut Host, now: Now) {
        self.base = Some(self.logged);
        let lead = self.lead.as_mut().expect("a primary");
        lead.phase = Phase::Ready;
        lead.recovered_through = host.storage.appended();
        lead.recovery_end = self.logged;
        lead.decided_ns = now.boot_ns;
        // What only others held when they answered may have arrived here since.
        lead.wanted.retain(|op, _| !self.ops.contains_key(op));
        host.storage.want_force();
        for position in 0..self.membership.members.len() {
            if self.membership.members[position].node != host.config.node {
                let logged = self.lead.as_ref().expect("a primary").peers[position].logged;
                self.catch_up(host, now, position, logged);
            }
        }
        self.resume(host, now);
    }

    /// Decisions may be made, or released, that could not before.
    fn resume(&mut self, host: &mut Host, now: Now) {
        if !self.is_primary() {
            return;
        }
        self.advance_release(host, now);
        let keys: Vec<Box<[u8]>> =
            self.undecided.values().map(|op| self.ops[op].stored.key().into()).collect();
        for key in keys {
            self.decide_key(host, now, &key);
        }
        host.arm_sweep(now);
    }
}
