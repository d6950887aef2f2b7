//! A set of chunk numbers.

use alloc::collections::BTreeMap;
use core::ops::Range;

/// The chunks of a value that have arrived: all chunks below a prefix, and ranges beyond it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChunkSet {
    prefix: u32,
    /// Start and end of each range. Ranges do not touch each other or the prefix.
    beyond: BTreeMap<u32, u32>,
}

impl ChunkSet {
    /// All chunks below this number are in the set.
    pub fn prefix(&self) -> u32 {
        self.prefix
    }

    /// No chunk from this number on is in the set.
    pub fn end(&self) -> u32 {
        self.beyond.last_key_value().map_or(self.prefix, |(_, end)| *end)
    }

    /// Whether a chunk is in the set.
    pub fn has(&self, number: u32) -> bool {
        let range = self.beyond.range(..=number).next_back();
        number < self.prefix || range.is_some_and(|(_, end)| number < *end)
    }

    /// Adds a chunk. Returns whether it is new.
    pub fn insert(&mut self, number: u32) -> bool {
        if self.has(number) {
            return false;
        }
        let before = self.beyond.range(..number).next_back().filter(|(_, end)| **end == number);
        let start = before.map_or(number, |(start, _)| *start);
        let end = self.beyond.remove(&(number + 1)).unwrap_or(number + 1);
        if number == self.prefix {
            self.prefix = end;
        } else {
            self.beyond.insert(start, end);
        }
        true
    }

    /// The missing ranges below the end, ascending.
    pub fn holes(&self) -> impl Iterator<Item = Range<u32>> {
        let mut from = self.prefix;
        self.beyond.iter().map(move |(start, end)| core::mem::replace(&mut from, *end)..*start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn chunk_set_is_a_set_of_numbers(numbers in prop::collection::vec(0_u32..40, 0..80)) {
            let (mut chunks, mut model) = (ChunkSet::default(), BTreeSet::new());
            for number in numbers {
                prop_assert_eq!(chunks.insert(number), model.insert(number));
                let first_hole = (0..).find(|number| !model.contains(number)).unwrap();
                let end = model.last().map_or(0, |last| last + 1);
                prop_assert_eq!((chunks.prefix(), chunks.end()), (first_hole, end));
                prop_assert!((0..45).all(|number| chunks.has(number) == model.contains(&number)));
                let holes: Vec<u32> = chunks.holes().flatten().collect();
                let missing: Vec<u32> = (0..end).filter(|number| !model.contains(number)).collect();
                prop_assert_eq!(holes, missing);
                prop_assert!(chunks.holes().all(|hole| !hole.is_empty()));
            }
        }
    }
}
