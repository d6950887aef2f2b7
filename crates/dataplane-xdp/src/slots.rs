//! Assignment of numbered kernel slots (groups, hit counters) to keys, over generations.
//!
//! A key that the next generation still has keeps its slot. A new key gets a slot that the generation in force
//! does not use: the two generations exist side by side until the flip. So there are twice as many slots as
//! keys in one generation, and a slot is reused at the earliest by the generation after the one that dropped it.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug)]
pub(crate) struct Slots<K> {
    assigned: BTreeMap<K, u32>,
    capacity: u32,
}

/// The slots of the next generation; [`Slots::commit`] puts it in force.
#[derive(Debug)]
pub(crate) struct Plan<K> {
    assigned: BTreeMap<K, u32>,
    /// Keys whose slot must be filled first.
    pub(crate) fresh: Vec<(K, u32)>,
}

impl<K: Ord + Clone> Slots<K> {
    pub(crate) fn new(capacity: u32) -> Self {
        Self { assigned: BTreeMap::new(), capacity }
    }

    pub(crate) fn get(&self, key: &K) -> Option<u32> {
        self.assigned.get(key).copied()
    }

    /// Panics if `keys` are more than half of the slots; validated tables are not.
    pub(crate) fn plan(&self, keys: impl IntoIterator<Item = K>) -> Plan<K> {
        let taken: BTreeSet<u32> = self.assigned.values().copied().collect();
        let mut free = (0..self.capacity).filter(|slot| !taken.contains(slot));
        let mut plan = Plan { assigned: BTreeMap::new(), fresh: Vec::new() };
        for key in keys {
            if plan.assigned.contains_key(&key) {
                continue;
            }
            let slot = self.get(&key).unwrap_or_else(|| {
                let slot = free.next().expect("twice the slots of a generation");
                plan.fresh.push((key.clone(), slot));
                slot
            });
            plan.assigned.insert(key, slot);
        }
        plan
    }

    pub(crate) fn commit(&mut self, plan: Plan<K>) {
        self.assigned = plan.assigned;
    }
}

impl<K: Ord> Plan<K> {
    /// The slot of a key that was planned.
    pub(crate) fn slot(&self, key: &K) -> u32 {
        self.assigned[key]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survivors_keep_their_slot_and_dropped_ones_rest_for_a_generation() {
        let mut slots = Slots::new(4);
        let first = slots.plan(["a", "b", "a"]);
        assert_eq!(first.fresh, [("a", 0), ("b", 1)]);
        slots.commit(first);
        let second = slots.plan(["b", "c"]);
        assert_eq!(second.fresh, [("c", 2)], "the slot of a is still in use");
        assert_eq!(second.slot(&"b"), 1);
        slots.commit(second);
        let third = slots.plan(["d"]);
        assert_eq!(third.fresh, [("d", 0)]);
        drop(third);
        assert_eq!(slots.get(&"c"), Some(2), "a plan that is not committed changes nothing");
    }
}
