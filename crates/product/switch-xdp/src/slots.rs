//! Assignment of numbered kernel slots (groups, entries, hit counters) to keys, across generations.
//!
//! A key that is also in the next generation keeps its slot. A new key gets a slot that the current
//! generation does not use, as both generations exist side by side until the switchover. So there
//! are twice as many slots as keys in one generation, and a slot is reused at the earliest by the
//! generation after the one that dropped it.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Range;

#[derive(Debug)]
pub(crate) struct Slots<K> {
    assigned: HashMap<K, u32>,
    all: Range<u32>,
}

/// The slots of the next generation; [`Slots::commit`] makes it the current one.
#[derive(Debug)]
pub(crate) struct Plan<K> {
    assigned: HashMap<K, u32>,
    /// The slot of each key, in the order of the keys.
    pub(crate) slots: Vec<u32>,
    /// Keys with a new slot, which must be filled before the switchover.
    pub(crate) fresh: Vec<(K, u32)>,
}

impl<K: Eq + Hash + Clone> Slots<K> {
    pub(crate) fn new(all: Range<u32>) -> Self {
        Self { assigned: HashMap::new(), all }
    }

    pub(crate) fn get(&self, key: &K) -> Option<u32> {
        self.assigned.get(key).copied()
    }

    /// Assigns slots to the keys of the next generation.
    ///
    /// # Panics
    /// If there are more keys than half of the slots, which does not happen with validated tables.
    pub(crate) fn plan(&self, keys: impl IntoIterator<Item = K>) -> Plan<K> {
        let mut taken = vec![false; self.all.len()];
        let position = |slot: u32| (slot - self.all.start) as usize;
        self.assigned.values().for_each(|slot| taken[position(*slot)] = true);
        let mut free = self.all.clone().filter(|slot| !taken[position(*slot)]);
        let mut plan = Plan { assigned: HashMap::new(), slots: Vec::new(), fresh: Vec::new() };
        for key in keys {
            let slot = plan.assigned.get(&key).copied().unwrap_or_else(|| {
                let slot = self.get(&key).unwrap_or_else(|| {
                    let slot = free.next().expect("twice the slots of a generation");
                    plan.fresh.push((key.clone(), slot));
                    slot
                });
                plan.assigned.insert(key, slot);
                slot
            });
            plan.slots.push(slot);
        }
        plan
    }

    pub(crate) fn commit(&mut self, plan: Plan<K>) {
        self.assigned = plan.assigned;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surviving_keys_keep_their_slots_and_freed_slots_rest() {
        let mut slots = Slots::new(0..4);
        let first = slots.plan(["a", "b", "a"]);
        assert_eq!(first.fresh, [("a", 0), ("b", 1)]);
        assert_eq!(first.slots, [0, 1, 0], "in the order of the keys");
        slots.commit(first);
        let second = slots.plan(["b", "c"]);
        assert_eq!(second.fresh, [("c", 2)], "the slot of a is still in use");
        assert_eq!(second.slots, [1, 2]);
        slots.commit(second);
        let third = slots.plan(["d"]);
        assert_eq!(third.fresh, [("d", 0)]);
        drop(third);
        assert_eq!(slots.get(&"c"), Some(2), "a plan that is not committed changes nothing");
    }
}
