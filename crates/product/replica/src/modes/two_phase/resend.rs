//! Handles silence: lost messages are sent again, members report old ops that they hold, and silent
//! members are accused (R15).

use super::TwoPhase;
use crate::modes::ordered::OrderedPartition;
use crate::modes::ordered::clients::Lookup;
use crate::modes::ordered::epoch::SWEPT_OPS_MAX;
use crate::{Host, Standing};
use alloc::vec::Vec;
use nicekv_proto::control::ReportKind;
use nicekv_proto::recovery::{Fetch, Wanted};
use nicekv_proto::{NodeId, Now, OpId};

impl OrderedPartition<TwoPhase> {
    /// Retries what is overdue. Returns whether another sweep is needed later.
    pub(crate) fn sweep(&mut self, host: &mut Host, now: Now) -> bool {
        let is_work_left = self.look_over(host, now);
        self.sweep_repairs(host, now) || is_work_left
    }

    fn look_over(&mut self, host: &mut Host, now: Now) -> bool {
        if self.membership.standing == Standing::Outside {
            return false;
        }
        if self.sequence.synced() < self.sequence.logged() {
            host.storage.want_sync();
        }
        if self.is_primary() {
            self.sweep_lead(host, now);
            self.look_for_proof(host, now);
            let lead = self.lead.as_ref().expect("a primary");
            return !lead.is_ready()
                || !lead.wanted().is_empty()
                || self.locks.count() > 0
                || self.sequence.unreleased().len() > 0
                || self.membership.has_joiners();
        }
        self.sweep_member(host, now);
        let awaits_proof = self.membership.standing.serves() && !self.is_proven;
        if self.membership.standing == Standing::Joining {
            self.sweep_join(host, now);
        }
        self.locks.count() > 0
            || self.awaits_release()
            || self.sequence.synced() < self.sequence.logged()
            || self.reporting.is_pending()
            || awaits_proof
            || self.membership.standing == Standing::Joining
    }

    fn sweep_lead(&mut self, host: &mut Host, now: Now) {
        if !self.lead.as_ref().expect("a primary").is_ready() {
            self.ask(host);
            return self.finish_collecting(host, now);
        }
        self.fetch_wanted(host);
        self.retry_makings(host, now);
        self.resend_prepares(host, now);
        self.serve_laggards(host, now);
    }

    fn fetch_wanted(&mut self, host: &mut Host) {
        let (sender, partition, epoch) = (host.config.node, self.id(), self.membership.epoch);
        let lead = self.lead.as_mut().expect("a primary");
        lead.keep_wanting(|op| !self.locks.holds(op) && self.clients.lookup(op) == Lookup::New);
        let wanted: Vec<(OpId, NodeId)> =
            lead.wanted().iter().map(|(op, wanted)| (*op, wanted.holder)).take(SWEPT_OPS_MAX).collect();
        for (op, holder) in wanted {
            let Some(address) = self.membership.address(holder) else { continue };
            let fetch = Fetch { sender, partition, epoch, wanted: Wanted::Op(op) };
            host.outbox.send(address, |out| fetch.encode(out));
        }
    }

    /// Undecided ops whose timeout has passed, oldest first. Counts one more try for each.
    fn overdue_ops(&mut self, host: &Host, now: Now) -> Vec<OpId> {
        let timeout_ns = host.config.timing.resend.as_nanos() as u64;
        self.locks.take_overdue(now, timeout_ns, SWEPT_OPS_MAX)
    }

    fn resend_prepares(&mut self, host: &mut Host, now: Now) {
        for op in self.overdue_ops(host, now) {
            let Some(state) = self.locks.op(op) else { continue };
            for position in 0..self.membership.members.len() {
                let member = self.membership.members[position];
                if state.votes.acks & (1 << position) != 0 || member.node == host.config.node {
                    continue;
                }
                self.resend(host, state.stored.datagram(), member.address);
                if state.tries >= host.config.timing.accuse_after_resends {
                    self.accuse(host, member.node);
                }
            }
        }
    }

    /// Resends decisions to members that have not acknowledged them.
    fn serve_laggards(&mut self, host: &mut Host, now: Now) {
        let contended = self.sequence.unreleased().rev().find(|decided| decided.contended);
        let contended_through = contended.map_or(0, |decided| decided.index);
        let urgent_through = contended_through.max(self.sequence.base().unwrap_or(0));
        for position in 0..self.membership.members.len() {
            let node = self.membership.members[position].node;
            let lead = self.lead.as_mut().expect("a primary");
            let logged = lead.logged_by(position);
            let is_urgent = lead.synced_by(position) < urgent_through;
            if position == lead.me() || (!is_urgent && logged >= self.sequence.logged()) {
                continue;
            }
            let timing = &host.config.timing;
            let timeout = if is_urgent { timing.resend } else { timing.progress_delay * 2 };
            let silent = lead.take_silent(now, position, timeout.as_nanos() as u64);
            let Some(tries) = silent else { continue };
            self.catch_up(host, now, position, logged);
            if tries >= host.config.timing.accuse_after_resends {
                self.accuse(host, node);
            }
        }
    }

    fn sweep_member(&mut self, host: &mut Host, now: Now) {
        let overdue = self.overdue_ops(host, now);
        for op in &overdue {
            self.acknowledge(host, *op);
            let tries = self.locks.op(*op).map_or(0, |op| op.tries);
            if tries >= host.config.timing.accuse_after_resends {
                self.accuse(host, self.membership.primary);
            }
        }
        let resend_ns = host.config.timing.resend.as_nanos() as u64;
        if !overdue.is_empty() {
            self.tell_primary(host, true);
        } else if self.awaits_release() || (self.membership.standing.serves() && !self.is_proven) {
            if self.reporting.take_gap(now, resend_ns) {
                self.tell_primary(host, true);
            }
        } else if self.reporting.is_due(now) {
            self.tell_primary(host, false);
        }
    }

    /// Whether this member waits for the primary to release something, so that the primary needs
    /// its progress report: to release an op, or to find a sealed partition drained (R17).
    fn awaits_release(&self) -> bool {
        self.locks.has_unreleased() || (self.membership.sealed && self.sequence.unreleased().len() > 0)
    }

    fn accuse(&self, host: &mut Host, accused: NodeId) {
        host.report(self.id(), self.membership.epoch, ReportKind::Accuse(accused));
    }
}
