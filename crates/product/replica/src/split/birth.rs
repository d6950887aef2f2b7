//! A partition takes the place of others, of which this node has formed it (R17).
//!
//! ```text
//!   metadata                                   member of p, which has formed c
//!      │──Assign c: consistent, parents (p, D)───▶│ p's log ends with D?
//!      │                                          │ log: c's first records, then Born: p ends if nothing else is formed of it; force
//!      │◀─AssignAck c─────────────────────────────│
//!      │──Assign c: activated────────────────────▶│ c decides
//! ```
//!
//! Invariants:
//! * D was decided by p's last primary and forced by all, and nothing is decided after it. So all that are born of p at D hold the same, and so
//!   does who is born when the power has been lost meanwhile: what it takes is in its log.
//! * c decides nothing before all its members have said that they are born, durably: then nobody answers for p any more what is not so.
//! * One record makes c a partition, and ends p: a crash leaves one or the other.
//! * An epoch of p that was held up makes nobody a member of an empty partition: its end is remembered as that of what is discarded is (R16).
//! * Who is a member of c, and can neither be born nor was, does not say that it is one.

use crate::modes::Partition;
use crate::node::Replica;
use crate::node::membership::Membership;
use crate::node::records::NodeRecord;
use crate::node::status::Standing;
use crate::split::formations::{Formation, Stage};
use alloc::vec::Vec;
use nicekv_proto::control::{Assign, Parent};
use nicekv_proto::{Epoch, Now, PartitionId};

/// The decision that is the last one of all parents, and one more: the first of what takes their place, which nobody made.
fn beginning(parents: &[Parent]) -> u64 {
    parents.iter().map(|parent| parent.index).max().unwrap_or(0) + 1
}

impl Replica {
    /// An epoch of a partition is assigned: if it takes the place of others it is born, and if it does not, what was formed of it is void.
    /// Whether the epoch may be taken up.
    pub(crate) fn admit_child(&mut self, now: Now, assign: &Assign) -> bool {
        let id = assign.partition;
        let known = self.partitions.slot(id).map(|slot| &self.partitions[slot]);
        let is_formed = self.formations.forms(id);
        let is_older = |known: Epoch| known > assign.epoch;
        let waits_for_newer = self.births.waiting.get(&id).is_some_and(|waiting| is_older(waiting.epoch));
        if waits_for_newer || known.is_some_and(|known| is_older(known.membership().epoch)) {
            return true;
        }
        self.births.waiting.remove(&id);
        let serves = Membership::of(assign, self.host.config.node).standing.serves();
        let was_born = known.is_some_and(|known| known.holds_through(beginning(&assign.parents)));
        let may_enter = match serves {
            false => {
                self.give_up_child(id);
                true
            }
            true if assign.parents.is_empty() => !is_formed,
            true if !is_formed => was_born,
            true => self.try_birth(now, assign),
        };
        let waits = self.births.waiting.contains_key(&id);
        self.host.counters.refused += u64::from(!may_enter && !waits);
        may_enter
    }

    /// Lets a partition be born, if all that it takes is here; whether it was. If something is pending at its parents, that comes first.
    fn try_birth(&mut self, now: Now, assign: &Assign) -> bool {
        let is_here = |parent: &Parent| {
            let formation = self.formations.by_parent.get(&parent.partition);
            formation.is_some_and(|formation| formation.may_bear(assign))
        };
        if !assign.parents.iter().all(is_here) {
            return false;
        }
        for parent in &assign.parents {
            // One that was never written to has left nothing of its own in the log.
            let host = &self.host;
            let made = || Some(Partition::new(parent.partition, assign.replication, host));
            let slot = self.partitions.get_or_insert(parent.partition, made).expect("made if need be");
            if !self.partitions[slot].end_at(&mut self.host, now, parent.index) {
                return false;
            }
        }
        if !assign.parents.iter().all(|parent| self.is_idle(parent.partition)) {
            self.host.storage.want_force();
            self.births.waiting.insert(assign.partition, assign.clone());
            return false;
        }
        self.give_birth(assign);
        true
    }

    fn give_birth(&mut self, assign: &Assign) {
        let (id, mut legacies) = (assign.partition, Vec::new());
        for parent in &assign.parents {
            legacies.append(&mut self.partitions.by_id(parent.partition).bequeath(&mut self.host));
        }
        // What a crash has left of a birth is void.
        self.forget_partition(id);
        let host = &self.host;
        let made = || Some(Partition::new(id, assign.replication, host));
        let slot = self.partitions.get_or_insert(id, made).expect("just made");
        self.partitions[slot].inherit(&mut self.host, beginning(&assign.parents), &legacies);
        let parents: Vec<PartitionId> = assign.parents.iter().map(|parent| parent.partition).collect();
        let record = self.host.append(id, |out| NodeRecord::Born(parents.clone()).append(out));
        self.host.storage.want_force();
        self.births.logged.push_back((record, id));
        self.take_born(id, &parents, Some(Epoch(assign.epoch.0.saturating_sub(1))));
        self.host.counters.born += 1;
    }

    /// A partition is one of its own now; what nothing else is formed of ends. `ended`: no epoch of these is later; `None`: the log is read back.
    pub(crate) fn take_born(&mut self, id: PartitionId, parents: &[PartitionId], ended: Option<Epoch>) {
        for parent in self.formations.remove(id) {
            self.host.storage.end_mirror(parent, id);
        }
        for parent in parents {
            if !self.formations.by_parent.contains_key(parent) {
                self.end_partition(*parent, ended);
            }
        }
    }

    /// Others have taken the place of a partition.
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

    /// What was pending may be done.
    pub(crate) fn retry_births(&mut self, now: Now) {
        if self.births.waiting.is_empty() {
            return;
        }
        let is_ready = |assign: &Assign| assign.parents.iter().all(|parent| self.is_idle(parent.partition));
        let ready: Vec<Assign> =
            self.births.waiting.values().filter(|assign| is_ready(assign)).cloned().collect();
        for assign in ready {
            self.on_assign(now, &assign);
        }
    }

    /// The log is durable through this record.
    pub(crate) fn tell_born(&mut self, through: u64) {
        while let Some((_, id)) = self.births.logged.pop_front_if(|(record, _)| *record <= through) {
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
    /// Whether this partition can be born of what is formed here.
    fn may_bear(&self, assign: &Assign) -> bool {
        let is_it = |child: &nicekv_proto::control::Child| {
            child.partition == assign.partition && child.range == assign.range
        };
        self.stage == Stage::Formed && self.children.iter().any(is_it)
    }
}
