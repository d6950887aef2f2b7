//! Takeover: a child that this node has formed starts, and its parents end (R17).
//!
//! ```text
//!   metadata                                   member of p, which has formed c
//!      │──Assign c: consistent, parents (p, D)───▶│ p's log ends with D?
//!      │                                          │ log c's first records, then the takeover; sync
//!      │                                          │ p ends if nothing else is formed of it
//!      │◀─AssignAck c─────────────────────────────│
//!      │──Assign c: activated────────────────────▶│ c decides
//! ```
//!
//! Invariants:
//! * D was decided by p's last primary and synced by all members, and nothing is decided after it.
//!   So all members that take over from p at D hold the same state, even after a power failure:
//!   what they take over is in their logs.
//! * c decides nothing before all its members have acknowledged that their takeover is durable.
//!   From then on no node answers for p.
//! * One record starts c and ends p, so after a crash exactly one of them exists.
//! * A late epoch of p cannot make a node a member of an empty partition: the end of p is
//!   remembered like a discard (R16).
//! * A member of c that has not taken over, and cannot, does not acknowledge the epoch.

use crate::modes::Partition;
use crate::node::Replica;
use crate::node::membership::Membership;
use crate::node::records::NodeRecord;
use crate::node::status::Standing;
use crate::split::formations::{Formation, Stage};
use alloc::vec::Vec;
use nicekv_proto::control::{Assign, Parent};
use nicekv_proto::{Epoch, Now, PartitionId};

/// The index at which a child's sequence begins: one after the last decisions of all parents. No
/// parent has made this decision.
fn beginning(parents: &[Parent]) -> u64 {
    parents.iter().map(|parent| parent.index).max().unwrap_or(0) + 1
}

impl Replica {
    /// Called when an epoch of a partition is assigned. A child takes over from its parents; the
    /// epoch of any other partition voids what was formed under its id. Returns whether the epoch
    /// may be entered.
    pub(crate) fn admit_child(&mut self, now: Now, assign: &Assign) -> bool {
        let id = assign.partition;
        let known = self.partitions.slot(id).map(|slot| &self.partitions[slot]);
        let is_formed = self.formations.forms(id);
        let is_older = |known: Epoch| known > assign.epoch;
        let waits_for_newer = self.takeovers.waiting.get(&id).is_some_and(|waiting| is_older(waiting.epoch));
        if waits_for_newer || known.is_some_and(|known| is_older(known.membership().epoch)) {
            return true;
        }
        self.takeovers.waiting.remove(&id);
        let serves = Membership::of(assign, self.host.config.node).standing.serves();
        let was_born = known.is_some_and(|known| known.holds_through(beginning(&assign.parents)));
        let may_enter = match serves {
            false => {
                self.give_up_child(id);
                true
            }
            true if assign.parents.is_empty() => !is_formed,
            true if !is_formed => was_born,
            true => self.try_takeover(now, assign),
        };
        let waits = self.takeovers.waiting.contains_key(&id);
        self.host.counters.refused += u64::from(!may_enter && !waits);
        may_enter
    }

    /// Takes over if everything is here; returns whether it did. If requests of a parent are
    /// pending, these have to complete first.
    fn try_takeover(&mut self, now: Now, assign: &Assign) -> bool {
        let is_here = |parent: &Parent| {
            let formation = self.formations.by_parent.get(&parent.partition);
            formation.is_some_and(|formation| formation.is_ready_for(assign))
        };
        if !assign.parents.iter().all(is_here) {
            return false;
        }
        for parent in &assign.parents {
            // A parent that was never written to has no log records, so it may be unknown here.
            let host = &self.host;
            let made = || Some(Partition::new(parent.partition, assign.replication, host));
            let slot =
                self.partitions.get_or_insert(parent.partition, made).expect("`made` returns a partition");
            if !self.partitions[slot].end_at(&mut self.host, now, parent.index) {
                return false;
            }
        }
        if !assign.parents.iter().all(|parent| self.is_idle(parent.partition)) {
            self.host.storage.want_sync();
            self.takeovers.waiting.insert(assign.partition, assign.clone());
            return false;
        }
        self.give_birth(assign);
        true
    }

    fn give_birth(&mut self, assign: &Assign) {
        let (id, mut client_records) = (assign.partition, Vec::new());
        for parent in &assign.parents {
            client_records.append(&mut self.partitions.by_id(parent.partition).hand_over(&mut self.host));
        }
        // If a crash interrupted an earlier takeover, its remains are void.
        self.forget_partition(id);
        let host = &self.host;
        let made = || Some(Partition::new(id, assign.replication, host));
        let slot = self.partitions.get_or_insert(id, made).expect("just made");
        self.partitions[slot].take_over(&mut self.host, beginning(&assign.parents), &client_records);
        let parents: Vec<PartitionId> = assign.parents.iter().map(|parent| parent.partition).collect();
        let record = self.host.append(id, |out| NodeRecord::TookOver(parents.clone()).append(out));
        self.host.storage.want_sync();
        self.takeovers.logged.push_back((record, id));
        self.apply_takeover(id, &parents, Some(Epoch(assign.epoch.0.saturating_sub(1))));
        self.host.counters.born += 1;
    }

    /// Starts a child, and ends the parents of which no other child is being formed. `ended`: an
    /// epoch that no epoch of the parents exceeds; `None` when the log is replayed.
    pub(crate) fn apply_takeover(&mut self, id: PartitionId, parents: &[PartitionId], ended: Option<Epoch>) {
        for parent in self.formations.remove(id) {
            self.host.storage.end_mirror(parent, id);
        }
        for parent in parents {
            if !self.formations.by_parent.contains_key(parent) {
                self.end_partition(*parent, ended);
            }
        }
    }

    /// Ends a partition whose children have taken over.
    fn end_partition(&mut self, id: PartitionId, ended: Option<Epoch>) {
        let epoch = self.partitions.get(id).map(|partition| partition.membership().epoch);
        self.forget_partition(id);
        self.host.storage.empty(id);
        self.formations.sealed.remove(&id);
        self.discards.wanted.remove(&id);
        if let Some(ended) = ended {
            self.discards.note_done(id, epoch.unwrap_or_default().max(ended));
        }
    }

    /// Pending requests have completed: tries again the takeovers that waited for them.
    pub(crate) fn retry_takeovers(&mut self, now: Now) {
        if self.takeovers.waiting.is_empty() {
            return;
        }
        let is_ready = |assign: &Assign| assign.parents.iter().all(|parent| self.is_idle(parent.partition));
        let ready: Vec<Assign> =
            self.takeovers.waiting.values().filter(|assign| is_ready(assign)).cloned().collect();
        for assign in ready {
            self.on_assign(now, &assign);
        }
    }

    /// The log is synced up to this record: acknowledges the takeovers that it contains.
    pub(crate) fn tell_takeovers(&mut self, through: u64) {
        while let Some((_, id)) = self.takeovers.logged.pop_front_if(|(record, _)| *record <= through) {
            let Some(slot) = self.partitions.slot(id) else { continue };
            let membership = self.partitions[slot].membership();
            if membership.standing != Standing::Outside {
                let (epoch, activated) = (membership.epoch, membership.activated);
                self.acknowledge(id, epoch, activated, false);
            }
        }
    }
}

impl Formation {
    /// Whether the child of this assignment is completely formed here.
    fn is_ready_for(&self, assign: &Assign) -> bool {
        let is_it = |child: &nicekv_proto::control::Child| {
            child.partition == assign.partition && child.range == assign.range
        };
        self.stage == Stage::Formed && self.children.iter().any(is_it)
    }
}
