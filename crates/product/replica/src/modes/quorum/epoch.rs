//! A replica of a quorum keyspace enters an epoch, and reports when it has become a full member.

use super::QuorumPartition;
use super::version::{AwaitedSync, Record, Unsynced};
use crate::{Host, Membership, Standing};
use nicekv_proto::Now;
use nicekv_proto::control::{Assign, ReportKind};

impl QuorumPartition {
    /// The metadata service assigns an epoch. Returns whether this replica acknowledges it.
    pub(crate) fn on_assign(&mut self, node: &mut Host, now: Now, assign: &Assign) -> bool {
        if assign.epoch < self.membership.epoch {
            return false;
        }
        let is_new = assign.epoch > self.membership.epoch;
        let membership = Membership::of(assign, node.config.node);
        if membership.standing == Standing::Consistent && self.newcomer.is_some() && !self.has_merged() {
            // The assignment makes this replica a full member, but it has not merged everything
            // yet.
            node.counters.refused += 1;
            return false;
        }
        let was_activated = self.membership.activated && !is_new;
        self.learn(assign.replication);
        self.membership = membership;
        self.membership.activated |= was_activated;
        if self.membership.standing == Standing::Handoff {
            // Quorum keyspaces have no handoffs, because R is fixed.
            self.membership.standing = Standing::Outside;
        }
        if is_new {
            self.enter_succession(node, now);
        }
        self.admit();
        if self.membership.standing == Standing::Consistent {
            // The metadata service assigns this role only to storage that was counted before, or in
            // a new cluster.
            self.count(node);
        }
        if is_new {
            (self.sweep_ns, self.fence_asked_ns, self.epoch_began_ns) = (0, 0, now.boot_ns);
            self.keep_merged();
            self.look_over(node, now);
            self.on_epoch_while_forgetting(node, now);
            self.restart_repairs();
            if self.sweep_repairs(node, now) {
                node.arm_sweep(now);
            }
        }
        true
    }

    /// Logs that this storage is counted from now on.
    pub(super) fn count(&mut self, node: &mut Host) {
        if self.counted || core::mem::replace(&mut self.counting, true) {
            return;
        }
        let record = node.append_awaited(self.id(), |out| Record::Counted.append(out));
        node.storage.want_sync();
        self.unsynced.push_back(Unsynced { record, what: AwaitedSync::Counted });
    }

    /// Newcomer: continues the merge, or reports that it is complete. Repeated until this node is a
    /// full member.
    pub(super) fn look_over(&mut self, node: &mut Host, now: Now) {
        if self.membership.standing != Standing::Joining {
            self.merge = None;
            return;
        }
        if now.boot_ns >= self.sweep_ns {
            self.sweep_ns = now.after(node.config.timing.copy_retry);
            if self.has_merged() || (self.counted && self.newcomer.is_none()) {
                node.report(self.id(), self.membership.epoch, ReportKind::CopyDone);
            } else {
                self.resume_merge(node, now);
            }
        }
        node.arm_sweep_at(self.sweep_ns);
    }
}
