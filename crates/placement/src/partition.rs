//! Partitions: aligned power-of-two blocks of vnodes.

use nicekv_wire::{KeyDigest, PartitionId};

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
        (0..self.count()).map(PartitionId)
    }

    /// The partition of a key.
    pub fn partition(self, digest: &KeyDigest) -> PartitionId {
        PartitionId((u32::from(digest.vnode()) >> (16 - self.bits)) as u16)
    }

    /// The first vnode of a partition.
    pub fn first_vnode(self, partition: PartitionId) -> u16 {
        (u32::from(partition.0) << (16 - self.bits)) as u16
    }
}
