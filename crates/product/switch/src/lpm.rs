//! Longest-prefix match, compiled for lookup without allocation.
//!
//! Prefixes nest or are disjoint. They cut the key space into intervals, each owned by the longest
//! prefix that covers it; a lookup is one binary search for the interval of the key.
//!
//! ```text
//!   /16  |-----------------------------|        intervals: [/16)[/24)[/16)[none)
//!   /24            |-----|
//! ```

use alloc::vec::Vec;

#[derive(Clone, Debug, Default)]
pub(crate) struct LongestPrefixMatch {
    /// (first key, owner), ascending; an interval ends where the next begins. Keys below the first
    /// have no owner.
    intervals: Vec<(u64, Option<u32>)>,
}

impl LongestPrefixMatch {
    /// Compiles inclusive key ranges. A range's index in the list identifies it.
    pub(crate) fn new(ranges: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let mut ranges: Vec<(u64, u64, u32)> =
            ranges.into_iter().zip(0..).map(|((first, last), index)| (first, last, index)).collect();
        // If two ranges have the same start, the longer one is the outer one.
        ranges.sort_unstable_by_key(|&(first, last, _)| (first, core::cmp::Reverse(last)));
        let mut result = Self { intervals: Vec::with_capacity(ranges.len() * 2) };
        let mut open: Vec<(u64, u32)> = Vec::new();
        for (first, last, index) in ranges {
            result.close_before(&mut open, first);
            result.begin(first, Some(index));
            open.push((last, index));
        }
        result.close_before(&mut open, u64::MAX);
        result
    }

    /// The index of the longest prefix that covers `key`.
    pub(crate) fn lookup(&self, key: u64) -> Option<u32> {
        let after = self.intervals.partition_point(|&(first, _)| first <= key);
        self.intervals[..after].last()?.1
    }

    fn close_before(&mut self, open: &mut Vec<(u64, u32)>, key: u64) {
        while let Some((last, _)) = open.pop_if(|(last, _)| *last < key) {
            self.begin(last + 1, open.last().map(|&(_, outer)| outer));
        }
    }

    fn begin(&mut self, first: u64, owner: Option<u32>) {
        if self.intervals.last().is_some_and(|&(previous, _)| previous == first) {
            self.intervals.pop();
        }
        self.intervals.push((first, owner));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Prefix;

    proptest! {
        #[test]
        fn lookup_equals_trying_every_prefix(
            prefixes in proptest::collection::btree_set((0u32..64, 24u8..=32), 0..20),
            keys in proptest::collection::vec(0u32..70, 20),
        ) {
            let prefixes: Vec<Prefix> = prefixes
                .into_iter()
                .map(|(address, length)| {
                    let mask = Prefix::new([0; 4], length).mask();
                    Prefix::new((address & mask).to_be_bytes(), length)
                })
                .collect::<alloc::collections::BTreeSet<_>>()
                .into_iter()
                .collect();
            let compiled = LongestPrefixMatch::new(
                prefixes.iter().map(|prefix| (u64::from(prefix.first()), u64::from(prefix.last()))),
            );
            for key in keys {
                let expected = (0..prefixes.len() as u32)
                    .filter(|&index| prefixes[index as usize].contains(key.to_be_bytes()))
                    .max_by_key(|&index| prefixes[index as usize].length);
                prop_assert_eq!(compiled.lookup(u64::from(key)), expected, "key {}", key);
            }
        }
    }

    #[test]
    fn whole_key_space_and_empty_table() {
        assert_eq!(LongestPrefixMatch::new([]).lookup(5), None);
        assert_eq!(LongestPrefixMatch::new([(0, u64::from(u32::MAX))]).lookup(u64::from(u32::MAX)), Some(0));
    }
}
