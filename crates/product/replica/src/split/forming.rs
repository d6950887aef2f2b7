//! Forming: the members of a partition that is to be split or merged build up the children that
//! will take its place (R17).
//!
//! ```text
//!   metadata                         member of p
//!      │──Assign p: children c, d──────▶│ log Forming; c and d begin empty; writes to p go there, too (`mirrors`)
//!      │                                │ read p page by page; log and write it for c and d, except keys
//!      │                                │ that were written meanwhile
//!      │                                │ log Formed, sync
//!      │◀─Report: formed────────────────│ repeatedly
//!      │──Assign p: children, sealed───▶│ clients start no more ops
//!      │◀─Report: drained (D)───────────│ the primary, when D is the last decision and all hold it
//!      │──Assign c: parents p, D───────▶│ `takeover`: c takes over
//! ```
//!
//! Invariants:
//! * A child that is being formed takes part in nothing: it has no route, no scrub and no count.
//!   Until it takes over it can be dropped at any time, and p is unaffected.
//! * When all of the parent has been read, a child holds the parent's entries in its range: each
//!   entry was on a page, or was written since that page was requested.
//! * An epoch of p that does not name a child voids that child. So does an epoch of the child's id
//!   that does not name its parents: then another node has formed another partition with that id.
//! * Replaying the log makes the same writes. A process reports "formed" only if it has read
//!   everything itself, or replays the record of an earlier process that had.

use crate::node::Replica;
use crate::node::records::NodeRecord;
use crate::node::status::Standing;
use crate::node::storage::{Page, stored_entries};
use crate::split::formations::Stage;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use nicekv_proto::control::{Assign, Child, DiskSpace, ReportKind};
use nicekv_proto::recovery::{put_keyed_entry, read_keyed_entry};
use nicekv_proto::{DecodeError, Now, PartitionId};

/// Bytes of a page of a parent.
const PAGE_BYTES: usize = 128 << 10;

impl Replica {
    /// The partition in this slot has accepted an assignment, which may name children.
    pub(crate) fn note_children(&mut self, now: Now, slot: usize, assign: &Assign) {
        let (id, partition) = (assign.partition, &self.partitions[slot]);
        let membership = partition.membership();
        let is_member = membership.standing == Standing::Consistent && membership.epoch == assign.epoch;
        let is_asked = is_member && partition.can_be_reshaped();
        let wanted: &[Child] = if is_asked { &assign.children } else { &[] };
        if is_asked && assign.sealed {
            self.formations.sealed.entry(id).or_insert(false);
        } else {
            self.formations.sealed.remove(&id);
        }
        let known = self.formations.by_parent.get(&id);
        if known.is_some_and(|known| known.is_as_asked(wanted)) {
            return;
        }
        self.give_up_children(id);
        if !wanted.is_empty() && wanted.iter().all(|child| self.may_form(child.partition)) {
            self.begin_forming(now, id, wanted);
        }
    }

    /// Voids all children that are being formed of the partition.
    fn give_up_children(&mut self, parent: PartitionId) {
        for child in self.formations.children(parent) {
            self.host.append(child.partition, |out| NodeRecord::Void.append(out));
            self.void(child.partition);
        }
    }

    /// Voids the child with this id that this or an earlier process has been forming: the id now
    /// belongs to another partition.
    pub(crate) fn give_up_child(&mut self, child: PartitionId) {
        if self.formations.forms(child) {
            self.host.append(child, |out| NodeRecord::Void.append(out));
            self.void(child);
        }
    }

    /// The part of [`Self::give_up_child`] that also runs when the log is replayed.
    pub(crate) fn void(&mut self, child: PartitionId) {
        for parent in self.formations.remove(child) {
            self.host.storage.end_mirror(parent, child);
        }
        self.forget_partition(child);
        self.host.storage.empty(child);
    }

    /// Whether the partition may be formed: the node does not know it, except that this process may
    /// be forming it of another parent.
    fn may_form(&self, child: PartitionId) -> bool {
        let mut others = self.formations.by_parent.values().filter(|formation| formation.has(child));
        self.partitions.slot(child).is_none() && others.all(|formation| formation.stage != Stage::Left)
    }

    fn begin_forming(&mut self, now: Now, parent: PartitionId, children: &[Child]) {
        self.host.append(parent, |out| NodeRecord::Forming(children.to_vec()).append(out));
        self.take_forming(parent, children, Stage::Reading);
        self.form_next(now);
    }

    /// The part of [`Self::begin_forming`] that also runs when the log is replayed.
    pub(crate) fn take_forming(&mut self, parent: PartitionId, children: &[Child], stage: Stage) {
        for child in children {
            // In a merge, the forming of the child has begun with the first parent.
            if !self.formations.forms(child.partition) {
                self.host.storage.empty(child.partition);
            }
            self.host.storage.mirror(parent, child);
        }
        self.formations.begin(parent, children, stage);
    }

    /// Replays the state of children that a checkpoint has logged.
    pub(crate) fn take_forms(&mut self, parent: PartitionId, children: &[Child], formed: bool) {
        children.iter().for_each(|child| self.host.storage.mirror(parent, child));
        let stage = if formed { Stage::Formed } else { Stage::Left };
        self.formations.begin(parent, children, stage);
    }

    /// Reports complete children, and continues forming. Called at every heartbeat.
    pub(crate) fn form(&mut self, now: Now) {
        let formed: Vec<PartitionId> = (self.formations.by_parent.iter())
            .filter(|(id, formation)| {
                formation.stage == Stage::Formed && !self.formations.sealed.contains_key(id)
            })
            .map(|(id, _)| *id)
            .collect();
        formed.into_iter().for_each(|parent| self.report_formed(parent));
        self.formations.sealed.values_mut().for_each(|is_told| *is_told = false);
        self.tell_drained();
        self.form_next(now);
    }

    fn report_formed(&mut self, parent: PartitionId) {
        let Some(slot) = self.partitions.slot(parent) else { return };
        let membership = self.partitions[slot].membership();
        if membership.standing == Standing::Consistent {
            self.host.report(parent, membership.epoch, ReportKind::Formed);
        }
    }

    /// Reports sealed partitions that are drained and were not reported yet.
    pub(crate) fn tell_drained(&mut self) {
        for (parent, is_told) in self.formations.sealed.iter_mut().filter(|(_, is_told)| !**is_told) {
            let partition = self.partitions.by_id(*parent);
            if let Some(index) = partition.drain(&self.host) {
                *is_told = true;
                let epoch = partition.membership().epoch;
                self.host.report(*parent, epoch, ReportKind::Drained(index));
            }
        }
    }

    /// Requests the next page of a parent, if the rate limit, which copies share, allows it.
    pub(crate) fn form_next(&mut self, now: Now) {
        // The remaining disk space is reserved for decisions.
        if self.formations.pending.is_some() || self.host.disk_space != DiskSpace::Enough {
            return;
        }
        let mut all = self.formations.by_parent.iter();
        let reading = all.find(|(_, formation)| formation.stage == Stage::Reading);
        let Some((&parent, formation)) = reading else { return };
        if let Some(at_ns) = self.host.copies.pause(now) {
            return self.host.arm_sweep_at(at_ns);
        }
        let token = self.host.storage.scan_page(parent, formation.after.as_deref(), PAGE_BYTES);
        self.formations.read(token, parent);
    }

    /// A page of a parent was read.
    pub(crate) fn on_parent_page(&mut self, now: Now, page: Page<'_>) {
        let asked = self.formations.pending.take().expect("checked by the caller");
        let touched = self.host.storage.end_page();
        let rate = self.host.config.timing.copy_bytes_per_second;
        self.host.copies.take(now, page.entries.len(), rate);
        let formation = self.formations.by_parent.get(&asked.parent);
        let is_asked = formation.is_some_and(|formation| formation.number == asked.number);
        if is_asked && page.corrupt.is_empty() {
            self.fill(asked.parent, &page, &touched);
        } else if is_asked {
            // Damaged entries must not be omitted: repair them; the page is read again later.
            self.partitions.by_id(asked.parent).repair(&mut self.host, now, page.corrupt);
            return;
        }
        self.form_next(now);
    }

    fn fill(&mut self, parent: PartitionId, page: &Page<'_>, touched: &BTreeSet<Box<[u8]>>) {
        let children = self.formations.children(parent);
        let mut rows: BTreeMap<PartitionId, Vec<u8>> = BTreeMap::new();
        let mut last = None;
        for (key, entry) in stored_entries(page.entries) {
            let is_its = |child: &&Child| {
                child.range.contains(nicekv_proto::placement::match_digest(child.order, key).match_value())
            };
            let child = children.iter().find(is_its);
            let is_older = touched.contains(key);
            if let Some(child) = child.filter(|_| !is_older) {
                put_keyed_entry(rows.entry(child.partition).or_default(), key, entry);
            }
            last = Some(key);
        }
        for (child, entries) in rows {
            self.host.append(child, |out| NodeRecord::Filled(&entries).append(out));
            self.take_filled(child, &entries).expect("just read");
        }
        let formation = self.formations.by_parent.get_mut(&parent).expect("checked by the caller");
        formation.after = last.map(<[u8]>::to_vec);
        if !page.more {
            let record = self.host.append(parent, |out| NodeRecord::Formed.append(out));
            formation.stage = Stage::Syncing(record);
            self.host.storage.want_sync();
        }
    }

    /// Writes entries of a parent to its child.
    pub(crate) fn take_filled(&mut self, child: PartitionId, entries: &[u8]) -> Result<(), DecodeError> {
        let mut reader = nicekv_proto::bytes::Reader::new(entries);
        while !reader.is_empty() {
            let (key, entry) = read_keyed_entry(&mut reader)?;
            self.host.storage.write(child, key, |out| out.extend_from_slice(entry));
        }
        Ok(())
    }

    /// The log is synced up to this record: reports children that are complete now.
    pub(crate) fn tell_formed(&mut self, through: u64) {
        let mut formed = Vec::new();
        for (parent, formation) in &mut self.formations.by_parent {
            if matches!(formation.stage, Stage::Syncing(record) if record <= through) {
                formation.stage = Stage::Formed;
                formed.push(*parent);
            }
        }
        formed.into_iter().for_each(|parent| self.report_formed(parent));
    }

    /// Logs the state of children again, so that earlier records can be trimmed.
    pub(crate) fn checkpoint_forming(&mut self) {
        for (parent, formation) in &self.formations.by_parent {
            let is_formed = matches!(formation.stage, Stage::Formed | Stage::Syncing(_));
            let record = NodeRecord::Forms(formation.children.clone(), is_formed);
            self.host.append(*parent, |out| record.append(out));
        }
    }
}
