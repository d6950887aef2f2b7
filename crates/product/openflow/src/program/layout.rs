//! Numbers of tables, priorities and bits of the metadata, in one place.

use alloc::collections::BTreeSet;

use super::{FlowKey, Program};
use crate::wire::{Field, Instruction, Match};

pub(super) const GENERATION: u8 = 0;
pub(super) const SOURCE_MAC: u8 = 1;
pub(super) const SOURCE_IP: u8 = 2;
pub(super) const DESTINATION: u8 = 3;
pub(super) const METER: u8 = 4;
pub(super) const VRING: u8 = 5;
pub(super) const DIVISION: u8 = 6;
pub(super) const HOST: u8 = 7;
pub(super) const STATION: u8 = 8;

/// Priority of flows that match prefixes, plus the length of the prefix.
pub(super) const PREFIX_PRIORITY: u16 = 100;

/// Bits of the metadata.
const HOST_BITS: u64 = 0xffff;
const PARTITION_SHIFT: u32 = 16;
const PARTITION_BITS: u64 = 0xffff_ffff << PARTITION_SHIFT;
const NODE_BIT: u64 = 1 << 48;
const STRANGER_BIT: u64 = 1 << 49;
const GENERATION_SHIFT: u32 = 56;
const GENERATION_BITS: u64 = 0xff << GENERATION_SHIFT;

/// A value under a mask of the metadata: as a condition, or as an instruction to write it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Metadata {
    value: u64,
    mask: u64,
}

impl Metadata {
    pub(super) const fn host(host: u16) -> Self {
        Self { value: host as u64, mask: HOST_BITS }
    }

    pub(super) const fn partition(partition: u32) -> Self {
        Self { value: (partition as u64) << PARTITION_SHIFT, mask: PARTITION_BITS }
    }

    /// The sender is a node, and uses its own UDP port.
    pub(super) const fn node(is_node: bool) -> Self {
        Self { value: if is_node { NODE_BIT } else { 0 }, mask: NODE_BIT }
    }

    /// The sender is at a server's port, but does not have its addresses.
    pub(super) const STRANGER: Self = Self { value: STRANGER_BIT, mask: STRANGER_BIT };

    pub(super) const fn and(self, other: Self) -> Self {
        Self { value: self.value | other.value, mask: self.mask | other.mask }
    }

    pub(super) const fn write(self) -> Instruction {
        Instruction::WriteMetadata { value: self.value, mask: self.mask }
    }
}

/// How packets are kept to the flows of one program while another one is being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// The switch changes all flows at once, by a bundle.
    Bundled,
    /// Every flow matches this number, which table `generation` writes into the metadata.
    Numbered(u8),
}

impl Generation {
    /// A number that no flow of the program matches.
    pub(crate) fn unused(program: &Program) -> Self {
        let of_flow = |key: &FlowKey| {
            let metadata = key.matches.get(Field::Metadata)?;
            (metadata.mask & GENERATION_BITS == GENERATION_BITS).then_some(metadata.value >> GENERATION_SHIFT)
        };
        let used: BTreeSet<u64> = program.flows.keys().filter_map(of_flow).collect();
        let free = (1..=u8::MAX).find(|number| !used.contains(&u64::from(*number)));
        Self::Numbered(free.unwrap_or(u8::MAX))
    }

    pub(super) const fn metadata(self) -> Metadata {
        match self {
            Self::Bundled => Metadata { value: 0, mask: 0 },
            Self::Numbered(number) => {
                Metadata { value: (number as u64) << GENERATION_SHIFT, mask: GENERATION_BITS }
            }
        }
    }

    /// The match of a flow in a later table than `generation`, with this condition on the metadata.
    pub(super) fn matching(self, matches: Match, metadata: Metadata) -> Match {
        let Metadata { value, mask } = self.metadata().and(metadata);
        matches.masked(Field::Metadata, value, mask)
    }
}
