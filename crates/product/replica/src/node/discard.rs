//! A partition that this node has left, or whose keyspace is dropped, is discarded when the
//! metadata service says that no member needs it (R16).
//!
//! ```text
//!   metadata                     node
//!      │──Assign: no member, discard──▶│ outside in this epoch
//!      │                               │ read a page, remove it: some at every heartbeat
//!      │                               │ log "discarded", forget the partition, sync
//!      │◀──AssignAck: discarded────────│
//! ```
//!
//! A disk that was restored from a backup may hold partitions that the metadata service believes
//! discarded, or that are long gone. It would not mention them, so the node asks: it reports
//! partitions on its disk that it was not assigned.
//!
//! Invariants:
//! * A node discards only while it is outside, in the epoch in which it was told to or a later one.
//!   An epoch that makes it a member stops the discard, and it joins with nothing: what is left is
//!   void.
//! * A discarded partition is not taken up again in that epoch or an older one: a late assignment
//!   would make an empty partition a member (R4). The process remembers the epochs; a restarted
//!   process has another incarnation.
//! * The record in the log comes after all others of the partition, and replaying it empties the
//!   partition's space, so removals that were not durable do not come back.
//! * Nothing is pending for a partition that is forgotten.

use crate::modes::Partition;
use crate::node::Replica;
use crate::node::discards::Discards;
use crate::node::membership::Membership;
use crate::node::records::NodeRecord;
use crate::node::status::Standing;
use crate::node::storage::{Page, stored_entries};
use alloc::vec::Vec;
use nicekv_proto::control::{Assign, ReportKind};
use nicekv_proto::{Duration, Epoch, Now, PartitionId, Replication};

/// Pages at one heartbeat: partitions may be small.
const PAGES_MAX: usize = 32;
/// Between two reports of unassigned partitions. Members are assigned their partitions in much
/// less.
const STRAY_INTERVAL: Duration = Duration::from_millis(500);

impl Replica {
    /// This process has discarded the partition in `epoch`. Whether the assignment is known and
    /// acknowledged.
    pub(crate) fn on_fenced(&mut self, assign: &Assign, epoch: Epoch) -> bool {
        // A partition that others have taken over may have had epochs that did not arrive here.
        let is_member = Membership::of(assign, self.host.config.node).standing != Standing::Outside;
        let is_known = assign.epoch == epoch || !is_member;
        if is_known {
            let is_durable = self.discards.is_durable(assign.partition) && self.takeovers.are_durable();
            self.acknowledge(assign.partition, assign.epoch, true, is_durable);
        }
        is_known
    }

    /// The partition in this slot has taken up an assignment.
    pub(crate) fn note_assigned(&mut self, slot: usize, assign: &Assign) {
        let (id, membership) = (assign.partition, self.partitions[slot].membership());
        let discards = &mut self.discards;
        if membership.standing != Standing::Outside {
            discards.wanted.remove(&id);
            discards.forget_done(id);
        } else if assign.discard && assign.epoch == membership.epoch {
            discards.wanted.entry(id).or_default();
        }
    }

    /// Called at every heartbeat.
    pub(crate) fn discard(&mut self, now: Now) {
        self.report_stray(now);
        let timing = &self.host.config.timing;
        self.discards.bytes_left = timing.per_heartbeat(timing.discard_bytes_per_second) as usize;
        self.discards.pages_left = PAGES_MAX;
        if !self.discards.wanted.keys().all(|id| self.is_idle(*id)) {
            // A record that is not urgent may be waited for, with nothing else to sync it.
            self.host.storage.want_sync();
        }
        self.discard_next();
    }

    /// From time to time reports a partition that this process found on its disk and was not
    /// assigned.
    fn report_stray(&mut self, now: Now) {
        let (last, at_ns) = self.discards.reported;
        if at_ns == 0 {
            // The process has just started.
            self.discards.reported = (None, now.after(STRAY_INTERVAL));
        }
        if now.boot_ns < self.discards.reported.1 {
            return;
        }
        let is_stray = |partition: &Partition| partition.membership().epoch == Epoch::default();
        let next = self.partitions.next(last, is_stray).or_else(|| self.partitions.next(None, is_stray));
        self.discards.reported = (next, now.after(STRAY_INTERVAL));
        if let Some(partition) = next.and_then(|id| self.partitions.get(id)) {
            let (id, kind) = (partition.membership().partition, ReportKind::Stray(partition.replication()));
            self.host.report(id, Epoch::default(), kind);
        }
    }

    /// Whether nothing is pending for a partition.
    pub(crate) fn is_idle(&self, id: PartitionId) -> bool {
        let is_read = self.scrub.is_in(id)
            || self.usage.is_in(id)
            || self.formations.is_in(id)
            || self.host.values.is_in(id);
        self.host.waits.is_idle(id) && !is_read
    }

    /// Reads a page, if one may be read and there is something to discard.
    fn discard_next(&mut self) {
        let Discards { pending, bytes_left, pages_left, wanted, .. } = &self.discards;
        if pending.is_some() || *bytes_left == 0 || *pages_left == 0 {
            return;
        }
        let Some((&id, after)) = wanted.iter().find(|(id, _)| self.is_idle(**id)) else { return };
        let token = self.host.storage.scan(id, after.as_deref(), *bytes_left);
        self.discards.pending = Some((token, id));
        self.discards.pages_left -= 1;
    }

    /// A page was read.
    pub(crate) fn on_discard_page(&mut self, page: Page<'_>) {
        let (_, id) = self.discards.pending.take().expect("checked by the caller");
        self.discards.bytes_left = self.discards.bytes_left.saturating_sub(page.entries.len());
        if let Some(after) = self.discards.wanted.get_mut(&id) {
            let keys = stored_entries(page.entries).map(|(key, _)| key);
            for key in keys.chain(page.corrupt.iter().map(Vec::as_slice)) {
                self.host.storage.remove(id, key);
                if Some(key) > after.as_deref() {
                    *after = Some(key.to_vec());
                }
            }
            if !page.more {
                self.finish_discard(id);
            }
        }
        self.discard_next();
    }

    /// Nothing is left of the partition.
    fn finish_discard(&mut self, id: PartitionId) {
        let Some(slot) = self.partitions.slot(id) else { return };
        let membership = self.partitions[slot].membership();
        if membership.standing != Standing::Outside {
            self.discards.wanted.remove(&id);
            return;
        }
        // Otherwise the pending request comes first, and then another page.
        if self.is_idle(id) {
            let epoch = membership.epoch;
            let record = self.host.append(id, |out| NodeRecord::Discarded.append(out));
            self.host.storage.want_sync();
            self.forget_partition(id);
            self.discards.wanted.remove(&id);
            self.discards.note_done(id, epoch);
            self.discards.logged.push_back((record, id));
        }
    }

    /// Forgets a partition for which nothing is pending.
    pub(crate) fn forget_partition(&mut self, id: PartitionId) {
        self.usage.forget(id);
        self.host.storage.note_counted(id);
        if let Some(slot) = self.partitions.slot(id) {
            self.partitions[slot].give_up(&mut self.host);
        }
        let host = &self.host;
        self.partitions.forget(id, || Partition::new(id, Replication::Multicast, host));
    }

    /// The log is synced through this record.
    pub(crate) fn tell_discarded(&mut self, through: u64) {
        while let Some((_, id)) = self.discards.logged.pop_front_if(|(record, _)| *record <= through) {
            self.host.counters.discarded += 1;
            // Unless it has become a member again.
            if let Some(epoch) = self.discards.done(id) {
                self.acknowledge(id, epoch, true, true);
            }
        }
    }

    /// The log says that the partition was discarded: earlier writes are void.
    pub(crate) fn replay_discarded(&mut self, id: PartitionId) {
        self.forget_partition(id);
        self.host.storage.discard_writes(id);
        self.host.storage.clear(id);
    }
}
