//! A map from numbers that come and go almost in order, such as the numbers of log records and of a
//! client's ops.
//!
//! Entries are kept in a sorted queue. At its ends insertion and removal take constant time; in
//! between the shorter side has to move. So there is no allocation per entry, and neighbours are
//! adjacent in memory.

use alloc::collections::VecDeque;

#[derive(Clone)]
pub(crate) struct NumberMap<T> {
    /// Ascending by number.
    queue: VecDeque<(u64, T)>,
}

impl<T> Default for NumberMap<T> {
    fn default() -> Self {
        Self { queue: VecDeque::new() }
    }
}

impl<T> NumberMap<T> {
    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// The place of an entry, or the place where it would be inserted.
    fn find(&self, number: u64) -> Result<usize, usize> {
        match (self.queue.front(), self.queue.back()) {
            (Some((first, _)), _) if *first == number => Ok(0),
            (_, Some((last, _))) if *last >= number => {
                self.queue.binary_search_by_key(&number, |(known, _)| *known)
            }
            _ => Err(self.queue.len()),
        }
    }

    pub(crate) fn get(&self, number: u64) -> Option<&T> {
        self.find(number).ok().map(|at| &self.queue[at].1)
    }

    /// Sets an entry; returns the previous one.
    pub(crate) fn insert(&mut self, number: u64, value: T) -> Option<T> {
        match self.find(number) {
            Ok(at) => return Some(core::mem::replace(&mut self.queue[at].1, value)),
            Err(at) if at == self.queue.len() => self.queue.push_back((number, value)),
            Err(at) => self.queue.insert(at, (number, value)),
        }
        None
    }

    pub(crate) fn remove(&mut self, number: u64) -> Option<T> {
        match self.find(number) {
            Ok(0) => self.queue.pop_front(),
            Ok(at) => self.queue.remove(at),
            Err(_) => None,
        }
        .map(|(_, value)| value)
    }

    /// The least number.
    pub(crate) fn first(&self) -> Option<u64> {
        self.queue.front().map(|(number, _)| *number)
    }

    /// The greatest number.
    pub(crate) fn last(&self) -> Option<u64> {
        self.queue.back().map(|(number, _)| *number)
    }

    pub(crate) fn pop_first(&mut self) -> Option<(u64, T)> {
        self.queue.pop_front()
    }

    /// The entries with numbers above `number`, ascending; with `None`, all of them.
    pub(crate) fn after(&self, number: impl Into<Option<u64>>) -> impl ExactSizeIterator<Item = (u64, &T)> {
        let is_before = |number| self.queue.partition_point(|(known, _)| *known <= number);
        let from = number.into().map_or(0, is_before);
        self.queue.range(from..).map(|(number, value)| (*number, value))
    }

    pub(crate) fn clear(&mut self) {
        self.queue.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;

    #[test]
    fn number_map_agrees_with_a_btree_map() {
        let (mut ordered, mut model) = (NumberMap::default(), BTreeMap::new());
        let mut random = 1u64;
        for step in 0..20_000u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Numbers near the step: some are new, some present, some removed.
            let number = step / 4 + (random >> 40) % 30;
            match (random >> 33) % 8 {
                0..4 => assert_eq!(ordered.insert(number, step), model.insert(number, step)),
                4..6 => assert_eq!(ordered.remove(number), model.remove(&number)),
                6 => assert_eq!(ordered.pop_first(), model.pop_first()),
                _ => {
                    let after: Vec<_> =
                        model.range(number + 1..).map(|(number, step)| (*number, step)).collect();
                    assert_eq!(ordered.after(number).collect::<Vec<_>>(), after);
                }
            }
            assert_eq!((ordered.get(number), ordered.len()), (model.get(&number), model.len()));
            let ends = (model.keys().next().copied(), model.keys().next_back().copied());
            assert_eq!((ordered.first(), ordered.last()), ends);
        }
        assert!(ordered.after(None).eq(model.iter().map(|(number, step)| (*number, step))));
        ordered.clear();
        assert_eq!((ordered.len(), ordered.first(), ordered.last()), (0, None, None));
    }
}
