//! Partitions: aligned power-of-two blocks of vnodes.

use crate::{KeyDigest, MatchRange, PartitionId};
use alloc::vec::Vec;

/// Most leading bits of a vnode that may determine its partition.
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

    /// The match values of a partition's keys: those with its number as leading bits.
    pub fn range(self, partition: PartitionId) -> MatchRange {
        let below = u128::MAX.checked_shr(self.bits.into()).unwrap_or_default();
        let first = u128::from(self.first_vnode(partition)) << 112;
        MatchRange::new(first, first | below).expect("no bit is taken away")
    }
}

/// The vnodes of the smallest and of the largest match value of a range.
pub fn vnodes(range: MatchRange) -> (u16, u16) {
    ((range.first() >> 112) as u16, (range.last() >> 112) as u16)
}

/// An aligned power-of-two block of vnodes: one entry of a switch's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VnodeBlock {
    /// Its first vnode.
    pub first: u16,
    /// Prefix length of the block.
    pub bits: u8,
}

/// The fewest blocks that cover the vnodes of `range`; `None` if it begins or ends within a vnode.
pub fn vnode_blocks(range: MatchRange) -> Option<Vec<VnodeBlock>> {
    const VNODE: u128 = 1 << 112;
    if !range.first().is_multiple_of(VNODE) || range.last() % VNODE != VNODE - 1 {
        return None;
    }
    let (first, last) = vnodes(range);
    let (mut first, end) = (u32::from(first), u32::from(last) + 1);
    let mut blocks = Vec::new();
    while first < end {
        let aligned = if first == 0 { 16 } else { first.trailing_zeros() };
        let below = aligned.min((end - first).ilog2());
        blocks.push(VnodeBlock { first: first as u16, bits: 16 - below as u8 });
        first += 1 << below;
    }
    Some(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partition_is_one_block_and_subranges_are_several() {
        let vnodes =
            |first: u128, end: u128| MatchRange::new(first << 112, (end << 112).wrapping_sub(1)).unwrap();
        let blocks = |range| -> Vec<_> {
            vnode_blocks(range).unwrap().iter().map(|block| (block.first, block.bits)).collect()
        };
        assert_eq!(blocks(MatchRange::ALL), [(0, 0)]);
        assert_eq!(blocks(vnodes(0x4000, 0x8000)), [(0x4000, 2)]);
        assert_eq!(blocks(vnodes(0xffff, 0x1_0000)), [(0xffff, 16)]);
        assert_eq!(blocks(vnodes(1, 8)), [(1, 16), (2, 15), (4, 14)]);
        assert_eq!(blocks(vnodes(0x8000, 0xc001)), [(0x8000, 2), (0xc000, 16)]);
        for bits in 0..=PARTITION_BITS_MAX {
            let partitioning = Partitioning::new(bits).unwrap();
            for partition in partitioning.all() {
                let first = partitioning.first_vnode(partition);
                assert_eq!(blocks(partitioning.range(partition)), [(first, bits)]);
            }
        }
        assert_eq!(vnode_blocks(MatchRange::new(1, u128::MAX).unwrap()), None);
        assert_eq!(vnode_blocks(MatchRange::new(0, 5 << 112).unwrap()), None);
    }

    #[test]
    fn partition_ranges_cover_all_match_values_once() {
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
