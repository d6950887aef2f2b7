//! For tests that visit every state: what of a replica distinguishes its future, and what must always hold.

use crate::clients::ExportCursor;
use crate::epoch::{Lead, Phase};
use crate::hosted::Hosted;
use crate::partition::{Latest, Partition};
use crate::waits::UnforcedWhat;
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use nicekv_node::{Explore, Standing};

impl Explore for Hosted {
    fn fingerprint(&self, state: &mut impl Hasher) {
        self.explored().fingerprint(state);
    }

    fn fingerprint_wait(&self, record: u64, state: &mut impl Hasher) {
        self.explored().fingerprint_wait(record, state);
    }

    fn check_invariants(&self) -> Result<(), &'static str> {
        match self {
            Self::Multicast(partition) => partition.check_invariants(),
            Self::Quorum(_) => Ok(()),
        }
    }
}

impl Hosted {
    fn explored(&self) -> &Partition {
        match self {
            Self::Multicast(partition) => partition,
            Self::Quorum(_) => unreachable!("worlds that are visited as a whole have no quorum keyspace"),
        }
    }
}

impl Partition {
    fn fingerprint_wait(&self, record: u64, state: &mut impl Hasher) {
        let unforced = self.waits.unforced.iter().find(|unforced| unforced.record == record);
        match unforced.expect("it waits for this record").what {
            UnforcedWhat::Prepare(op) => (0, op).hash(state),
            UnforcedWhat::Decision(index) => (1, index).hash(state),
            UnforcedWhat::Copy => unreachable!("nobody joins"),
        }
    }

    fn fingerprint(&self, state: &mut impl Hasher) {
        (
            self.membership.epoch,
            self.membership.activated,
            self.membership.standing == Standing::Consistent,
            self.membership.primary,
        )
            .hash(state);
        self.membership.members.iter().for_each(|member| member.node.hash(state));
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
            let open = self.ops.values().filter(|op| op.stored.key() == &**name).count();
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
