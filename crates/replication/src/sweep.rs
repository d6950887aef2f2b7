//! What a replica does about silence: lost copies are sent again, holders of old ops speak up, the silent are accused (R15).

use crate::clients::Lookup;
use crate::partition::Partition;
use alloc::vec::Vec;
use nicekv_node::{Host as Shared, Plant, Standing};
use nicekv_wire::control::ReportKind;
use nicekv_wire::recovery::{Fetch, Wanted};
use nicekv_wire::{NodeId, Now, OpId};

/// Most open ops that one sweep looks at, the oldest first.
const SWEPT_OPS_MAX: usize = 256;
/// A timeout doubles at most this often.
const DOUBLINGS_MAX: u32 = 3;

impl Partition {
    /// Looks for what is overdue; whether there is anything to look at again later.
    pub(crate) fn look_over(&mut self, shared: &mut Shared, now: Now) -> bool {
        if self.membership.standing == Standing::Outside {
            return false;
        }
        if self.forced < self.logged {
            shared.storage.want_force();
        }
        if self.is_primary() {
            self.sweep_lead(shared, now);
            let lead = self.lead.as_ref().expect("a primary");
            return !lead.is_ready()
                || !lead.wanted.is_empty()
                || !self.ops.is_empty()
                || !self.decisions.is_empty()
                || self.membership.has_joiners();
        }
        self.sweep_member(shared, now);
        if self.membership.standing == Standing::Joining {
            self.sweep_join(shared, now);
        }
        !self.ops.is_empty()
            || self.forced < self.logged
            || self.progress_due_ns.is_some()
            || self.membership.standing == Standing::Joining
    }

    fn sweep_lead(&mut self, shared: &mut Shared, now: Now) {
        if !self.lead.as_ref().expect("a primary").is_ready() {
            self.ask(shared);
            return;
        }
        self.fetch_wanted(shared);
        self.resend_prepares(shared, now);
        self.serve_laggards(shared, now);
    }

    fn fetch_wanted(&mut self, shared: &mut Shared) {
        let (sender, partition, epoch) = (shared.config.node, self.id(), self.membership.epoch);
        let lead = self.lead.as_mut().expect("a primary");
        lead.wanted.retain(|op, _| !self.ops.contains_key(op) && self.clients.lookup(*op) == Lookup::New);
        let wanted: Vec<(OpId, NodeId)> =
            lead.wanted.iter().map(|(op, node)| (*op, *node)).take(SWEPT_OPS_MAX).collect();
        for (op, holder) in wanted {
            let Some(address) = self.membership.address(holder) else { continue };
            let fetch = Fetch { sender, partition, epoch, wanted: Wanted::Op(op) };
            shared.outbox.send(address, |out| fetch.encode(out));
        }
    }

    /// Undecided ops, oldest first, whose timeout has passed; each is counted as tried.
    fn overdue_ops(&mut self, shared: &Shared, now: Now) -> Vec<OpId> {
        if shared.has(Plant::OrphansIgnored) {
            return Vec::new();
        }
        let timeout_ns = shared.config.timing.resend.as_nanos() as u64;
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

    fn resend_prepares(&mut self, shared: &mut Shared, now: Now) {
        for op in self.overdue_ops(shared, now) {
            let state = &self.ops[&op];
            for position in 0..self.membership.members.len() {
                let member = self.membership.members[position];
                if state.acks & (1 << position) != 0 || member.node == shared.config.node {
                    continue;
                }
                self.resend(shared, state.stored.datagram(), member.address);
                if state.tries >= shared.config.timing.accuse_after_resends {
                    self.accuse(shared, member.node);
                }
            }
        }
    }

    /// Sends members what they have not acknowledged of the decisions.
    fn serve_laggards(&mut self, shared: &mut Shared, now: Now) {
        let contended_through =
            self.decisions.iter().rev().find(|decided| decided.contended).map_or(0, |decided| decided.index);
        for position in 0..self.membership.members.len() {
            let node = self.membership.members[position].node;
            let lead = self.lead.as_mut().expect("a primary");
            let peer = &mut lead.peers[position];
            let urgent = peer.forced < contended_through.max(self.base.unwrap_or(0));
            if node == shared.config.node || (!urgent && peer.logged >= self.logged) {
                continue;
            }
            let timing = &shared.config.timing;
            let patience = if urgent { timing.resend } else { timing.progress_delay * 2 };
            let patience_ns = (patience.as_nanos() as u64) << peer.tries.min(DOUBLINGS_MAX);
            if now.boot_ns < peer.heard_ns.max(lead.decided_ns) + patience_ns {
                continue;
            }
            peer.tries += 1;
            let (tries, logged) = (peer.tries, peer.logged);
            self.catch_up(shared, now, position, logged);
            if tries >= shared.config.timing.accuse_after_resends {
                self.accuse(shared, node);
            }
        }
    }

    fn sweep_member(&mut self, shared: &mut Shared, now: Now) {
        let overdue = self.overdue_ops(shared, now);
        for op in &overdue {
            self.acknowledge(shared, *op);
            if self.ops[op].tries >= shared.config.timing.accuse_after_resends {
                self.accuse(shared, self.membership.primary);
            }
        }
        let holds_unreleased = self.ops.len() > self.undecided.len();
        if !overdue.is_empty() {
            self.tell_progress(shared, true);
        } else if holds_unreleased {
            let resend_ns = shared.config.timing.resend.as_nanos() as u64;
            if now.boot_ns >= self.gap_ns + resend_ns {
                self.gap_ns = now.boot_ns;
                self.tell_progress(shared, true);
            }
        } else if self.progress_due_ns.is_some_and(|due_ns| due_ns <= now.boot_ns) {
            self.tell_progress(shared, false);
        }
    }

    fn accuse(&self, shared: &mut Shared, accused: NodeId) {
        shared.report(self.id(), self.membership.epoch, ReportKind::Accuse(accused));
    }
}
