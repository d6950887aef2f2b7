//! The partitions that a node has heard of, by number and by range.

use crate::kinds::Map;
use crate::modes::Partition;
use crate::node::routes::Routes;
use crate::node::status::Standing;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};
use nicekv_proto::{KeyspaceId, PartitionId};

/// See the module. A slot is a partition's place until it is [forgotten](Partitions::forget).
#[derive(Clone)]
pub(crate) struct Partitions {
    slots: Vec<Partition>,
    /// Slots of nobody.
    free: Vec<usize>,
    /// To find one.
    by_id: Map<PartitionId, usize>,
    /// To visit all in the order of their numbers.
    in_order: BTreeMap<PartitionId, usize>,
    routes: Routes,
}

impl Default for Partitions {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            by_id: Map::default(),
            in_order: BTreeMap::new(),
            routes: Routes::default(),
        }
    }
}

impl Partitions {
    /// Their slots are among the numbers below; in those of nobody are partitions that nobody has heard of.
    pub(crate) fn count(&self) -> usize {
        self.slots.len()
    }

    /// The slot of a partition.
    pub(crate) fn slot(&self, id: PartitionId) -> Option<usize> {
        self.by_id.get(&id).copied()
    }

    /// A partition, if anything was heard of it.
    pub(crate) fn get(&self, id: PartitionId) -> Option<&Partition> {
        self.slot(id).map(|slot| &self.slots[slot])
    }

    /// The slot of a partition, which is made if this is the first that is heard of it.
    pub(crate) fn get_or_insert(
        &mut self,
        id: PartitionId,
        make: impl FnOnce() -> Option<Partition>,
    ) -> Option<usize> {
        if let Some(slot) = self.slot(id) {
            return Some(slot);
        }
        let made = make()?;
        let slot = self.free.pop().unwrap_or(self.slots.len());
        match self.slots.get_mut(slot) {
            Some(free) => *free = made,
            None => self.slots.push(made),
        }
        self.by_id.insert(id, slot);
        self.in_order.insert(id, slot);
        Some(slot)
    }

    /// Nothing is known of a partition any more: `blank` takes its place. Nothing may be pending for it.
    pub(crate) fn forget(&mut self, id: PartitionId, blank: impl FnOnce() -> Partition) {
        let Some(slot) = self.by_id.remove(&id) else { return };
        self.in_order.remove(&id);
        self.routes.remove(slot);
        self.slots[slot] = blank();
        self.free.push(slot);
    }

    /// A partition that something is pending for, so that it exists.
    pub(crate) fn by_id(&mut self, id: PartitionId) -> &mut Partition {
        let slot = self.slot(id).expect("a partition that waits for the disk is known");
        &mut self[slot]
    }

    /// Requests go to a partition by its newest epoch's range.
    pub(crate) fn set_route(&mut self, slot: usize) {
        let membership = self.slots[slot].membership();
        match membership.standing {
            // Another partition may have taken its place.
            Standing::Outside => self.routes.remove(slot),
            _ => self.routes.set(membership.keyspace, membership.range, slot),
        }
    }

    /// The partition that holds a match value.
    pub(crate) fn find(&self, keyspace: KeyspaceId, value: u128) -> Option<usize> {
        self.routes.find(keyspace, value)
    }

    /// Up to which match value from `first` on everything is this partition's; `None`: `first` is not.
    pub(crate) fn reach(&self, slot: usize, first: u128) -> Option<u128> {
        self.routes.reach(slot, first)
    }

    /// All of them, by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Partition> {
        self.in_order.values().map(|slot| &self.slots[*slot])
    }

    /// Visits all of them, by number.
    pub(crate) fn for_each(&mut self, mut visit: impl FnMut(&mut Partition)) {
        for slot in self.in_order.values() {
            visit(&mut self.slots[*slot]);
        }
    }

    /// The first one after `id`, or the first of all, that is as wanted.
    pub(crate) fn next(
        &self,
        after: Option<PartitionId>,
        is_wanted: impl Fn(&Partition) -> bool,
    ) -> Option<PartitionId> {
        let after = after.map_or(core::ops::Bound::Unbounded, core::ops::Bound::Excluded);
        let mut rest = self.in_order.range((after, core::ops::Bound::Unbounded));
        rest.find(|(_, slot)| is_wanted(&self.slots[**slot])).map(|(id, _)| *id)
    }
}

impl Index<usize> for Partitions {
    type Output = Partition;

    fn index(&self, slot: usize) -> &Partition {
        &self.slots[slot]
    }
}

impl IndexMut<usize> for Partitions {
    fn index_mut(&mut self, slot: usize) -> &mut Partition {
        &mut self.slots[slot]
    }
}
