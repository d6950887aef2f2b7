//! The primary sends its decisions, and releases those that every member has synced (R2).

use super::TwoPhase;
use super::makings::{Making, Stage};
use crate::Host;
use crate::modes::bounds::CATCH_UP_DATAGRAMS_MAX;
use crate::modes::ordered::OrderedPartition;
use crate::modes::ordered::clients::Lookup;
use crate::modes::ordered::contents::is_large;
use crate::modes::ordered::evaluate::Verdict;
use crate::modes::ordered::locks::Op;
use alloc::vec::Vec;
use nicekv_proto::limits::DATAGRAM_BYTES_MAX;
use nicekv_proto::replication::{Decision, PrepareAck, Progress, Watermark};
use nicekv_proto::{Entries, NodeId, Now, OpId, Status, StoredKey};

impl OrderedPartition<TwoPhase> {
    /// Multicasts the watermark, with a decision if there is one.
    pub(crate) fn tell_members(&self, host: &mut Host, decision: Option<&Decision<'_>>) {
        if self.membership.members.len() > 1 {
            host.outbox.multicast_decision(&self.membership, decision, self.watermark());
        }
    }

    /// Primary: a member reports its progress.
    pub(crate) fn on_progress(&mut self, host: &mut Host, now: Now, sender: NodeId, progress: &Progress) {
        let Some(position) = self.membership.position(sender) else { return };
        let lead = self.lead.as_mut();
        let Some(logged) = lead.and_then(|lead| lead.take_progress(now, position, progress)) else { return };
        self.advance_release(host, now);
        if progress.gap {
            self.catch_up(host, now, position, logged);
        }
    }

    /// Primary: releases what every member of the epoch has synced, and notifies the members that
    /// wait for it.
    pub(crate) fn advance_release(&mut self, host: &mut Host, now: Now) {
        let Some(lead) = &self.lead else { return };
        if !lead.is_ready() || !self.membership.activated {
            return;
        }
        let through = self.sequence.synced().min(lead.synced_by_peers()).min(self.sequence.logged());
        let newly = through.saturating_sub(self.sequence.released()) as usize;
        if newly == 0 {
            return;
        }
        let contended = self.sequence.unreleased().take(newly).filter(|decided| decided.contended);
        let ops: Vec<OpId> = contended.map(|decided| decided.op).collect();
        let of_open = ops.iter().filter_map(|op| self.locks.op(*op));
        let keys: Vec<StoredKey> = of_open.flat_map(|op| op.stored.stored_keys()).collect();
        self.release(host, now, through);
        if !ops.is_empty() {
            self.tell_members(host, None);
        }
        for key in keys {
            self.decide_key(host, now, &key);
        }
        self.look_for_proof(host, now);
    }

    /// A decision is synced here.
    pub(crate) fn on_decision_synced(&mut self, host: &mut Host, now: Now, index: u64) {
        self.sequence.sync(index);
        if self.is_primary() {
            self.advance_release(host, now);
        } else if index > self.sequence.released() {
            // Recovery is complete only when all members have synced the decisions from before the
            // epoch, so report those at once.
            let is_of_recovery = self.sequence.base().is_none_or(|base| index <= base);
            let is_waited_for = self.sequence.is_contended(index) || self.membership.sealed || is_of_recovery;
            let delay = if is_waited_for { 0 } else { host.config.timing.progress_delay.as_nanos() as u64 };
            self.tell_progress_within(host, now, delay);
        }
    }

    /// Primary: sends a member the decisions after `logged`. The watermark is sent even if there
    /// are none.
    pub(crate) fn catch_up(&mut self, host: &mut Host, now: Now, position: usize, logged: u64) {
        let Some(lead) = self.lead.as_mut().filter(|lead| lead.is_ready()) else { return };
        lead.note_served(now, position);
        let address = self.membership.members[position].address;
        let watermark = Watermark { working: self.is_working(host, now), ..self.watermark() };
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

    /// Primary: whether ops of this partition may wait for a script, or for a large value that
    /// arrives or is built here or that the other members then fetch. A value counts only while it
    /// advances: a primary whose disk has stopped must be replaced.
    fn is_working(&self, host: &Host, now: Now) -> bool {
        let is_fetched = |making: &Making| match making.stage {
            Stage::Held(reference) => self.locks.op(reference.name).is_some_and(|hold| hold.is_synced),
            Stage::Waiting | Stage::UnderWay | Stage::NoRoom { .. } => false,
        };
        let makings = &self.mode.makings.by_op;
        let has_value = || {
            let is_syncing = |op: &Op| is_large(&op.stored) && !op.is_synced;
            !makings.is_empty()
                || host.values.arrive_in(self.id())
                || self.locks.undecided_after(0).any(|(_, op)| is_syncing(op))
        };
        host.scripts.has_waiting(self.id())
            || (host.values_advance(now) && has_value())
            || makings.values().any(is_fetched)
    }

    /// The primary asks this member for decisions that it lacks.
    pub(crate) fn on_fetch_decisions(&mut self, host: &mut Host, to: NodeId, after: u64) {
        let Some(address) = self.membership.address(to) else { return };
        let watermark = self.watermark();
        for decided in self.sequence.after(after).take(CATCH_UP_DATAGRAMS_MAX) {
            let decision = decided.wire(self.id(), self.membership.epoch);
            host.outbox.unicast_decision(address, Some(&decision), watermark);
        }
    }

    /// A member reports ops that it still holds although it has every decision: the outcomes of
    /// these ops are forgotten. Decides them as expired.
    pub(crate) fn release_expired(
        &mut self,
        host: &mut Host,
        now: Now,
        progress: &Progress,
        prepares: Entries<'_, PrepareAck>,
    ) {
        if progress.gap && progress.logged == self.sequence.logged() && self.is_primary() {
            for ack in prepares.iter().filter(|ack| ack.partition == progress.partition) {
                self.decide_expired(host, now, ack.op);
            }
        }
    }

    /// Decides as expired an op that a member holds although it has every decision, so that the
    /// member drops it (R10, R15). The op's outcome is forgotten.
    pub(crate) fn decide_expired(&mut self, host: &mut Host, now: Now, op: OpId) {
        if !self.may_decide() || self.locks.holds(op) || self.clients.lookup(op) == Lookup::New {
            return;
        }
        self.publish(host, now, op, true, Verdict::unchanged(Status::Expired, None));
    }
}
