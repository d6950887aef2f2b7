//! Discards partitions that this node has left, or whose keyspace was dropped, once the metadata
//! service reports that no member needs the data (R16).
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
//! discarded, or that no longer exist. The metadata service would not mention them, so the node
//! reports partitions on its disk that were not assigned to it.
//!
//! Invariants:
//! * A node discards a partition only while it is outside, in the epoch that ordered it or a later
//!   one. An epoch that makes the node a member stops the discard; the node then joins with
//!   nothing, and what is left on disk is void.
//! * The node does not accept a discarded partition again in that epoch or an older one, because a
//!   late assignment would make an empty partition a member (R4). The process remembers these
//!   epochs; a restarted process is safe because it has another incarnation.
//! * The record in the log comes after all others of the partition. Replaying it empties the
//!   partition's space, so entries whose removal was not durable do not come back.
//! * A partition is forgotten only when no disk request of it is pending.

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

/// How many pages are read at one heartbeat at most, because partitions may be small.
const PAGES_MAX: usize = 32;
/// Interval between two reports of unassigned partitions. Members are assigned their partitions
/// much sooner.
const STRAY_INTERVAL: Duration = Duration::from_millis(500);

impl Replica {
    /// Handles an assignment for a partition that this process has discarded in `epoch`. Returns
    /// whether the assignment was expected, and so acknowledged.
    pub(crate) fn on_fenced(&mut self, assign: &Assign, epoch: Epoch) -> bool {
        // After a takeover, the old partition may have had epochs that did not arrive here.
        let is_member = Membership::of(assign, self.host.config.node).standing != Standing::Outside;
        let is_known = assign.epoch == epoch || !is_member;
        if is_known {
            let is_durable = self.discards.is_durable(assign.partition) && self.takeovers.are_durable();
            self.acknowledge(assign.partition, assign.epoch, true, is_durable);
        }
        is_known
    }

    /// The partition in this slot has accepted an assignment: starts or stops its discard.
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

    /// Continues discarding. Called at every heartbeat.
    pub(crate) fn discard(&mut self, now: Now) {
        self.report_stray(now);
        let timing = &self.host.config.timing;
        self.discards.bytes_left = timing.per_heartbeat(timing.discard_bytes_per_second) as usize;
        self.discards.pages_left = PAGES_MAX;
        if !self.discards.wanted.keys().all(|id| self.is_idle(*id)) {
            // The partition may be waiting for the sync of a record that is not urgent, and nothing
            // else would sync it.
            self.host.storage.want_sync();
        }
        self.discard_next();
    }

    /// From time to time reports a partition that this process has found on its disk and that was
    /// not assigned to it.
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

    /// Whether no disk request or transfer of a partition is pending.
    pub(crate) fn is_idle(&self, id: PartitionId) -> bool {
        let is_read = self.scrub.is_in(id)
            || self.usage.is_in(id)
            || self.formations.is_in(id)
            || self.host.values.is_in(id);
        self.host.waits.is_idle(id) && !is_read
    }

    /// Reads the next page, if the rate allows it and there is something to discard.
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

    /// A page of a partition to discard was read: removes its entries.
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

    /// All entries of the partition are removed: logs that, and forgets it.
    fn finish_discard(&mut self, id: PartitionId) {
        let Some(slot) = self.partitions.slot(id) else { return };
        let membership = self.partitions[slot].membership();
        if membership.standing != Standing::Outside {
            self.discards.wanted.remove(&id);
            return;
        }
        // If requests are pending, they finish first, and another page is read then.
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

    /// Forgets a partition that has no pending request.
    pub(crate) fn forget_partition(&mut self, id: PartitionId) {
        self.usage.forget(id);
        self.host.storage.note_counted(id);
        if let Some(slot) = self.partitions.slot(id) {
            self.partitions[slot].give_up(&mut self.host);
        }
        let host = &self.host;
        self.partitions.forget(id, || Partition::new(id, Replication::Multicast, host));
    }

    /// The log is synced up to this record: acknowledges the discards that it contains.
    pub(crate) fn tell_discarded(&mut self, through: u64) {
        while let Some((_, id)) = self.discards.logged.pop_front_if(|(record, _)| *record <= through) {
            self.host.counters.discarded += 1;
            // Nothing is acknowledged if the node has become a member again.
            if let Some(epoch) = self.discards.done(id) {
                self.acknowledge(id, epoch, true, true);
            }
        }
    }

    /// Replays that the partition was discarded: earlier writes are void.
    pub(crate) fn replay_discarded(&mut self, id: PartitionId) {
        self.forget_partition(id);
        self.host.storage.discard_writes(id);
        self.host.storage.clear(id);
    }
}
