//! Partitions: aligned power-of-two blocks of vnodes.

use nicekv_wire::{KeyDigest, MatchRange, PartitionId};

/// Most bits of a vnode that may name its partition.
pub const PARTITION_BITS_MAX: u8 = 10;

/// How vnodes are grouped into partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partitioning {
    bits: u8,
}

impl Partitioning {
    /// `2^bits` partitions; `None` above [`PARTITION_BITS_MAX`].
    pub fn new(bits: u8) -> Option<Self> {
        (bits <= PARTITION_BITS_MAX).then_some(Self { bits })
    }

    /// Leading bits of a vnode that name its partition.
    pub fn bits(self) -> u8 {
        self.bits
    }

    /// Number of partitions.
    pub fn count(self) -> u16 {
        1 << self.bits
    }

    /// Every partition.
    pub fn all(self) -> impl Iterator<Item = PartitionId> {
        (0..u32::from(self.count())).map(PartitionId)
    }

    /// The partition of a key.
    pub fn partition(self, digest: &KeyDigest) -> PartitionId {
        PartitionId(u32::from(digest.vnode()) >> (16 - self.bits))
    }

    /// The first vnode of a partition.
    pub fn first_vnode(self, partition: PartitionId) -> u16 {
        (partition.0 << (16 - self.bits)) as u16
    }

    /// The match values of a partition's keys: those whose leading bits are its number.
    pub fn range(self, partition: PartitionId) -> MatchRange {
        let below = u128::MAX.checked_shr(self.bits.into()).unwrap_or_default();
        let first = u128::from(self.first_vnode(partition)) << 112;
        MatchRange::new(first, first | below).expect("no bit is taken away")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ranges_of_all_partitions_are_all_match_values_once() {
        for bits in 0..=PARTITION_BITS_MAX {
            let partitioning = Partitioning::new(bits).unwrap();
            let mut next = Some(0);
            for partition in partitioning.all() {
                let range = partitioning.range(partition);
                assert_eq!(Some(range.first()), next);
                for value in [range.first(), range.last()] {
                    let digest = KeyDigest(value.to_be_bytes());
                    assert_eq!(digest.match_value(), value);
                    assert_eq!(partitioning.partition(&digest), partition);
                }
                next = range.last().checked_add(1);
            }
            assert_eq!(next, None);
        }
    }
}
