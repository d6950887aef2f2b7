//! Range match, compiled for lookup: records sorted by first value. A binary search finds the last
//! record that begins at or before the value. It matches if it ends at or after the value.
//!
//! ```text
//!   ring r   |---a---|  gap  |--b--||----c----|
//!                     v: found a, which ends before v: no match
//! ```

use alloc::vec::Vec;

use crate::{Prefix, RecordEntry, TableSet};

#[derive(Clone, Copy, Debug)]
struct Record {
    ring: Prefix,
    keyspace: u16,
    first: u128,
    last: u128,
    index: u32,
}

/// The records of one generation.
#[derive(Clone, Debug, Default)]
pub(crate) struct RangeMatch {
    sorted: Vec<Record>,
}

impl RangeMatch {
    /// Compiles validated tables, in which no two records of a ring overlap.
    pub(crate) fn new(tables: &TableSet) -> Self {
        let record = |(entry, index): (&RecordEntry, u32)| {
            let &RecordEntry { ring, keyspace, first, last, .. } = entry;
            Record { ring, keyspace, first, last, index }
        };
        let mut sorted: Vec<_> = tables.record.iter().zip(0..).map(record).collect();
        sorted.sort_unstable_by_key(|record| (record.ring, record.first));
        Self { sorted }
    }

    /// Whether the keyspace with this unicast ring has records.
    pub(crate) fn has(&self, ring: Prefix) -> bool {
        let at = self.sorted.partition_point(|record| record.ring < ring);
        self.sorted.get(at).is_some_and(|record| record.ring == ring)
    }

    /// The index of the record that covers a value.
    pub(crate) fn find(&self, ring: Prefix, keyspace: u16, value: u128) -> Option<usize> {
        let after = self.sorted.partition_point(|record| (record.ring, record.first) <= (ring, value));
        let record = self.sorted[..after].last()?;
        let is_same_keyspace = record.ring == ring && record.keyspace == keyspace;
        (is_same_keyspace && value <= record.last).then_some(record.index as usize)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::{HostId, MemberSet};

    const LOW: Prefix = Prefix::new([10, 10, 0, 0], 16);
    const HIGH: Prefix = Prefix::new([10, 12, 0, 0], 16);

    fn records(all: &[(Prefix, u128, u128)]) -> RangeMatch {
        let entry = |&(ring, first, last): &(Prefix, u128, u128)| {
            let members = MemberSet::new([HostId(1)]);
            RecordEntry {
                ring,
                keyspace: 3,
                first,
                last,
                partition: 0,
                host: HostId(1),
                members,
                chain: None,
            }
        };
        RangeMatch::new(&TableSet { record: all.iter().map(entry).collect(), ..TableSet::default() })
    }

    #[test]
    fn ranges_include_both_ends_and_gaps_do_not_match() {
        let all = vec![(HIGH, 0, u128::MAX), (LOW, 20, 20), (LOW, 5, 9), (LOW, 10, 12), (LOW, 30, u128::MAX)];
        let records = records(&all);
        let find = |ring, value| records.find(ring, 3, value);
        for (value, found) in [
            (0, None),
            (4, None),
            (5, Some(2)),
            (9, Some(2)),
            (10, Some(3)),
            (12, Some(3)),
            (13, None),
            (19, None),
            (20, Some(1)),
            (21, None),
            (29, None),
            (30, Some(4)),
            (u128::MAX, Some(4)),
        ] {
            assert_eq!(find(LOW, value), found, "{value}");
        }
        assert_eq!((find(HIGH, 0), find(HIGH, u128::MAX)), (Some(0), Some(0)));
        assert_eq!(records.find(LOW, 4, 5), None, "another keyspace");
    }

    #[test]
    fn ring_without_records_has_none() {
        let other = Prefix::new([10, 11, 0, 0], 16);
        let both = records(&[(LOW, 0, u128::MAX), (HIGH, 0, 7)]);
        assert_eq!([LOW, other, HIGH].map(|ring| both.has(ring)), [true, false, true]);
        assert_eq!((both.find(other, 3, 0), both.find(other, 3, u128::MAX)), (None, None));
        assert!(!records(&[]).has(LOW) && records(&[]).find(LOW, 3, 0).is_none());
    }
}
