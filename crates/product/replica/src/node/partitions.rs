//! The partitions of a node, by id and by range of match values.

use crate::modes::Partition;
use crate::node::routes::Routes;
use crate::node::status::Standing;
use crate::types::Map;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};
use nicekv_proto::{KeyspaceId, PartitionId};

/// All partitions of a node. A partition keeps its slot until it is
/// [forgotten](Partitions::forget).
#[derive(Clone, Default)]
pub(crate) struct Partitions {
    slots: Vec<Partition>,
    /// Indexes of unused slots.
    free: Vec<usize>,
    by_id: Map<PartitionId, usize>,
    /// The same as `by_id`, for visits in the order of ids.
    in_order: BTreeMap<PartitionId, usize>,
    routes: Routes,
}

impl Partitions {
    /// Number of slots; unused slots contain blank partitions.
    pub(crate) fn count(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn slot(&self, id: PartitionId) -> Option<usize> {
        self.by_id.get(&id).copied()
    }

    /// A partition, if the node knows it.
    pub(crate) fn get(&self, id: PartitionId) -> Option<&Partition> {
        self.slot(id).map(|slot| &self.slots[slot])
    }

    /// The slot of a partition. If the node does not know the partition, `make` creates it.
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

    /// Forgets a partition that has no pending request; `blank` takes its slot.
    pub(crate) fn forget(&mut self, id: PartitionId, blank: impl FnOnce() -> Partition) {
        let Some(slot) = self.by_id.remove(&id) else { return };
        self.in_order.remove(&id);
        self.routes.remove(slot);
        self.slots[slot] = blank();
        self.free.push(slot);
    }

    /// The partition to which a pending request belongs; it must exist.
    pub(crate) fn by_id(&mut self, id: PartitionId) -> &mut Partition {
        let slot = self.slot(id).expect("a partition that waits for the disk is known");
        &mut self[slot]
    }

    /// Routes requests to a partition by the range of its newest epoch.
    pub(crate) fn set_route(&mut self, slot: usize) {
        let membership = self.slots[slot].membership();
        match membership.standing {
            // Another partition may have taken over its range.
            Standing::Outside => self.routes.remove(slot),
            _ => self.routes.set(membership.keyspace, membership.range, slot),
        }
    }

    /// The slot of the partition that holds a match value.
    pub(crate) fn find(&self, keyspace: KeyspaceId, value: u128) -> Option<usize> {
        self.routes.find(keyspace, value)
    }

    /// The last match value up to which all values from `first` on belong to this partition; `None`
    /// if `first` does not.
    pub(crate) fn reach(&self, slot: usize, first: u128) -> Option<u128> {
        self.routes.reach(slot, first)
    }

    /// All partitions in the order of ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Partition> {
        self.in_order.values().map(|slot| &self.slots[*slot])
    }

    /// Visits all partitions in the order of ids.
    pub(crate) fn for_each(&mut self, mut visit: impl FnMut(&mut Partition)) {
        for slot in self.in_order.values() {
            visit(&mut self.slots[*slot]);
        }
    }

    /// The first partition after `after` that `is_wanted` accepts, in the order of ids; with
    /// `None`, the first of all.
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
