//! For tests that visit every state: what of a replica distinguishes its future, and what must always hold.

use crate::clients::ExportCursor;
use crate::epoch::{Lead, Phase};
use crate::partition::{Latest, Partition, Standing};
use crate::plant::Plant;
use crate::replica::Replica;
use crate::shared::{Shared, UnforcedWhat};
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};

impl Replica {
    /// Breaks a rule from now on.
    pub fn plant(&mut self, plant: Plant) {
        self.shared.plant = Some(plant);
    }

    /// Feeds `state` with everything that can make a difference later, provided that time stands still, every timeout is zero, no copy
    /// is under way and all that could be polled has been polled. Record numbers count from the end of the log.
    pub fn fingerprint(&self, state: &mut impl Hasher) {
        self.shared.fingerprint(state);
        for partition in &self.partitions {
            partition.fingerprint(state);
        }
    }

    /// Whether the invariants of the modules hold; else which does not.
    pub fn check_invariants(&self) -> Result<(), &'static str> {
        self.partitions.iter().try_for_each(Partition::check_invariants)
    }
}

impl Shared {
    fn fingerprint(&self, state: &mut impl Hasher) {
        (self.term.0, self.lease_until_ns, self.sweep_at_ns.is_some()).hash(state);
        assert!(self.reads.is_empty() && self.scans.is_empty() && self.streams.is_empty());
        for unforced in &self.unforced {
            (self.storage.appended() - unforced.record).hash(state);
            match unforced.what {
                UnforcedWhat::Prepare(op) => (0, op).hash(state),
                UnforcedWhat::Decision(index) => (1, index).hash(state),
                UnforcedWhat::Copy => unreachable!("nobody joins"),
            }
        }
    }
}

impl Partition {
    fn fingerprint(&self, state: &mut impl Hasher) {
        (self.epoch, self.activated, self.standing == Standing::Consistent, self.primary).hash(state);
        self.members.iter().for_each(|member| member.node.hash(state));
        let mut ops: Vec<_> = self.ops.iter().collect();
        ops.sort_unstable_by_key(|(_, op)| op.order);
        let recovered_through = self.lead.as_ref().map_or(0, |lead| lead.recovered_through);
        for (id, op) in ops {
            (id, op.forced, op.contended, op.decided, op.acks, op.any_contended).hash(state);
            (op.order <= recovered_through).hash(state);
        }
        let mut keys: Vec<_> = self.keys.iter().collect();
        keys.sort_unstable_by_key(|(name, _)| *name);
        for (name, key) in keys {
            (name, &key.queue, key.unreleased).hash(state);
            match &key.latest {
                Latest::Unknown => 0.hash(state),
                Latest::Reading { .. } => 1.hash(state),
                Latest::Known(value) => {
                    value.as_ref().map(|value| (value.version, value.expiry_ms, &value.value)).hash(state);
                }
            }
            key.waiting.iter().for_each(|get| get.op.hash(state));
        }
        for decided in &self.decisions {
            (decided.index, decided.origin, decided.op, decided.contended, decided.effect as u8).hash(state);
            (decided.status, decided.version, decided.integer, &decided.value).hash(state);
        }
        (self.logged, self.forced, self.released, self.base).hash(state);
        self.clients.export(ExportCursor::START, usize::MAX).0.hash(state);
        self.tombstones.iter().for_each(|tombstone| tombstone.hash(state));
        self.held_by_originals.hash(state);
        self.progress_due_ns.is_some().hash(state);
        self.lead.as_ref().inspect(|lead| lead.fingerprint(state));
    }

    fn check_invariants(&self) -> Result<(), &'static str> {
        let holds = |condition: bool, what| if condition { Ok(()) } else { Err(what) };
        holds(self.released <= self.forced, "released <= forced")?;
        holds(self.forced <= self.logged, "forced <= logged")?;
        holds(self.decisions.len() as u64 == self.logged - self.released, "no decision is missing")?;
        let undecided = self.ops.values().filter(|op| !op.decided).count();
        holds(self.undecided.len() == undecided, "the list of undecided ops is right")?;
        for (name, key) in &self.keys {
            let open = self.ops.values().filter(|op| op.update().key == &**name).count();
            holds(open == key.queue.len() + key.unreleased as usize, "an open op locks its key")?;
            holds(open > 0, "a key without open ops is not locked")?;
        }
        Ok(())
    }
}

impl Lead {
    fn fingerprint(&self, state: &mut impl Hasher) {
        match self.phase {
            Phase::Collecting => 0.hash(state),
            Phase::Adopting { from, target } => (from, target).hash(state),
            Phase::Ready => 2.hash(state),
        }
        for peer in &self.peers {
            (peer.recovered, peer.logged, peer.forced).hash(state);
        }
        (self.recovery_end, &self.wanted).hash(state);
    }
}
