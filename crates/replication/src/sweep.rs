//! What a replica does about silence: lost copies are sent again, holders of old ops speak up, the silent are accused (R15).

use crate::clients::Lookup;
use crate::partition::Partition;
use alloc::vec::Vec;
use nicekv_node::{Host, Plant, Standing};
use nicekv_wire::control::ReportKind;
use nicekv_wire::recovery::{Fetch, Wanted};
use nicekv_wire::{NodeId, Now, OpId};

/// Most open ops that one sweep looks at, the oldest first.
const SWEPT_OPS_MAX: usize = 256;
/// A timeout doubles at most this often.
const DOUBLINGS_MAX: u32 = 3;

impl Partition {
    /// Looks for what is overdue; whether there is anything to look at again later.
    pub(crate) fn look_over(&mut self, host: &mut Host, now: Now) -> bool {
        if self.membership.standing == Standing::Outside {
            return false;
        }
        if self.forced < self.logged {
            host.storage.want_force();
        }
        if self.is_primary() {
            self.sweep_lead(host, now);
            let lead = self.lead.as_ref().expect("a primary");
            return !lead.is_ready()
                || !lead.wanted.is_empty()
                || !self.ops.is_empty()
                || !self.decisions.is_empty()
                || self.membership.has_joiners();
        }
        self.sweep_member(host, now);
        if self.membership.standing == Standing::Joining {
            self.sweep_join(host, now);
        }
        !self.ops.is_empty()
            || self.forced < self.logged
            || self.progress_due_ns.is_some()
            || self.membership.standing == Standing::Joining
    }

    fn sweep_lead(&mut self, host: &mut Host, now: Now) {
        if !self.lead.as_ref().expect("a primary").is_ready() {
            self.ask(host);
            return;
        }
        self.fetch_wanted(host);
        self.resend_prepares(host, now);
        self.serve_laggards(host, now);
    }

    fn fetch_wanted(&mut self, host: &mut Host) {
        let (sender, partition, epoch) = (host.config.node, self.id(), self.membership.epoch);
        let lead = self.lead.as_mut().expect("a primary");
        lead.wanted.retain(|op, _| !self.ops.contains_key(op) && self.clients.lookup(*op) == Lookup::New);
        let wanted: Vec<(OpId, NodeId)> =
            lead.wanted.iter().map(|(op, node)| (*op, *node)).take(SWEPT_OPS_MAX).collect();
        for (op, holder) in wanted {
            let Some(address) = self.membership.address(holder) else { continue };
            let fetch = Fetch { sender, partition, epoch, wanted: Wanted::Op(op) };
            host.outbox.send(address, |out| fetch.encode(out));
        }
    }

    /// Undecided ops, oldest first, whose timeout has passed; each is counted as tried.
    fn overdue_ops(&mut self, host: &Host, now: Now) -> Vec<OpId> {
        if host.has(Plant::OrphansIgnored) {
            return Vec::new();
        }
        let timeout_ns = host.config.timing.resend.as_nanos() as u64;
        let ops: Vec<OpId> = self.undecided.values().take(SWEPT_OPS_MAX).copied().collect();
        ops.into_iter()
            .filter(|op| {
                let state = self.ops.get_mut(op).expect("an undecided op is open");
                let overdue = now.boot_ns >= state.sent_ns + (timeout_ns << state.tries.min(DOUBLINGS_MAX));
                if overdue {
                    state.sent_ns = now.boot_ns;
                    state.tries += 1;
                }
                overdue
            })
            .collect()
    }

    fn resend_prepares(&mut self, host: &mut Host, now: Now) {
        for op in self.overdue_ops(host, now) {
            let state = &self.ops[&op];
            for position in 0..self.membership.members.len() {
                let member = self.membership.members[position];
                if state.acks & (1 << position) != 0 || member.node == host.config.node {
                    continue;
                }
                self.resend(host, state.stored.datagram(), member.address);
                if state.tries >= host.config.timing.accuse_after_resends {
                    self.accuse(host, member.node);
                }
            }
        }
    }

    /// Sends members what they have not acknowledged of the decisions.
    fn serve_laggards(&mut self, host: &mut Host, now: Now) {
        let contended_through =
            self.decisions.iter().rev().find(|decided| decided.contended).map_or(0, |decided| decided.index);
        for position in 0..self.membership.members.len() {
            let node = self.membership.members[position].node;
            let lead = self.lead.as_mut().expect("a primary");
            let peer = &mut lead.peers[position];
            let urgent = peer.forced < contended_through.max(self.base.unwrap_or(0));
            if node == host.config.node || (!urgent && peer.logged >= self.logged) {
                continue;
            }
            let timing = &host.config.timing;
            let patience = if urgent { timing.resend } else { timing.progress_delay * 2 };
            let patience_ns = (patience.as_nanos() as u64) << peer.tries.min(DOUBLINGS_MAX);
            if now.boot_ns < peer.heard_ns.max(lead.decided_ns) + patience_ns {
                continue;
            }
            peer.tries += 1;
            let (tries, logged) = (peer.tries, peer.logged);
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
            if self.ops[op].tries >= host.config.timing.accuse_after_resends {
                self.accuse(host, self.membership.primary);
            }
        }
        let holds_unreleased = self.ops.len() > self.undecided.len();
        if !overdue.is_empty() {
            self.tell_progress(host, true);
        } else if holds_unreleased {
            let resend_ns = host.config.timing.resend.as_nanos() as u64;
            if now.boot_ns >= self.gap_ns + resend_ns {
                self.gap_ns = now.boot_ns;
                self.tell_progress(host, true);
            }
        } else if self.progress_due_ns.is_some_and(|due_ns| due_ns <= now.boot_ns) {
            self.tell_progress(host, false);
        }
    }

    fn accuse(&self, host: &mut Host, accused: NodeId) {
        host.report(self.id(), self.membership.epoch, ReportKind::Accuse(accused));
    }
}
