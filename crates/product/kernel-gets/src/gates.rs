//! Who has a gate: a partition, or an owner of hot keys for the copies that it has made under one serial, so that its leases under another one are no leases of these (H7).
//!
//! There are so many of both that neither leaves the other without.

use crate::layout::{CHAIN, HITS, LEASE, Memory, Word, words};
use crate::table::{Grant, Map, Size};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use foldhash::fast::FixedState;
use nicekv_proto::PartitionId;
use nicekv_proto::route::ChainHeader;
use nicekv_replica::Lessor;

/// Whose a gate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeper {
    /// Of a partition that the node is a member of.
    Partition(PartitionId),
    /// Of copies.
    Lessor(Lessor),
}

/// A gate that is somebody's.
#[derive(Clone, Default)]
pub(crate) struct Gate {
    pub(crate) number: u32,
    /// Those that it is the gate of.
    pub(crate) entries: BTreeSet<u32>,
    chain: Option<ChainHeader>,
    until_ns: u64,
}

impl Gate {
    fn shut_if_new(number: Option<u32>, memory: &mut impl Memory) -> Option<Self> {
        let number = number?;
        memory.store(Word::Gate(number, LEASE), 0);
        Some(Self { number, ..Self::default() })
    }

    /// Gets are answered before this.
    pub(crate) fn set_lease(&mut self, memory: &mut impl Memory, until_ns: u64) {
        if self.until_ns != until_ns {
            self.until_ns = until_ns;
            memory.store(Word::Gate(self.number, LEASE), until_ns);
        }
    }

    /// And if they have come by this chain, as far as they say so.
    pub(crate) fn admit(&mut self, memory: &mut impl Memory, grant: &Grant) {
        if self.chain != Some(grant.chain) {
            self.chain = Some(grant.chain);
            self.until_ns = 0;
            memory.store(Word::Gate(self.number, LEASE), 0);
            for (at, word) in words(&grant.chain.to_bytes()).enumerate() {
                memory.store(Word::Gate(self.number, CHAIN + at), word);
            }
        }
        self.set_lease(memory, grant.until_ns);
    }
}

/// See the module.
#[derive(Clone)]
pub(crate) struct Gates {
    partitions: Map<PartitionId, Gate>,
    lessors: BTreeMap<Lessor, Gate>,
    free_of_partitions: Vec<u32>,
    free_of_lessors: Vec<u32>,
    /// Behind the last one that a lessor has ever had.
    end: u32,
    /// Of what the program has counted at each, so much is told.
    told: Vec<u64>,
}

impl Gates {
    pub(crate) fn new(size: Size) -> Self {
        Self {
            partitions: Map::with_hasher(FixedState::with_seed(0)),
            lessors: BTreeMap::new(),
            free_of_partitions: (0..size.gates).rev().collect(),
            free_of_lessors: (size.gates..size.gate_count()).rev().collect(),
            end: size.gates,
            told: (0..size.gate_count()).map(|_| 0).collect(),
        }
    }

    pub(crate) fn get_mut(&mut self, keeper: Keeper) -> Option<&mut Gate> {
        match keeper {
            Keeper::Partition(partition) => self.partitions.get_mut(&partition),
            Keeper::Lessor(lessor) => self.lessors.get_mut(&lessor),
        }
    }

    /// Whether a keeper has a gate, or may have one.
    pub(crate) fn has_room_for(&self, keeper: Keeper) -> bool {
        match keeper {
            Keeper::Partition(partition) => {
                self.partitions.contains_key(&partition) || !self.free_of_partitions.is_empty()
            }
            Keeper::Lessor(lessor) => self.lessors.contains_key(&lessor) || !self.free_of_lessors.is_empty(),
        }
    }

    /// The gate of a keeper, if there are enough; a new one is shut.
    pub(crate) fn claim(&mut self, memory: &mut impl Memory, keeper: Keeper) -> Option<&mut Gate> {
        if self.get_mut(keeper).is_none() {
            match keeper {
                Keeper::Partition(partition) => {
                    let gate = Gate::shut_if_new(self.free_of_partitions.pop(), memory)?;
                    self.partitions.insert(partition, gate);
                }
                Keeper::Lessor(lessor) => {
                    let gate = Gate::shut_if_new(self.free_of_lessors.pop(), memory)?;
                    self.end = self.end.max(gate.number + 1);
                    self.lessors.insert(lessor, gate);
                }
            }
        }
        self.get_mut(keeper)
    }

    /// A partition has none any more; its entries are closed.
    pub(crate) fn free(&mut self, partition: PartitionId) {
        if let Some(gate) = self.partitions.remove(&partition) {
            self.free_of_partitions.push(gate.number);
        }
    }

    /// The entry is at this gate no more. That of a lessor who has no other, and no lease, is free.
    pub(crate) fn leave(&mut self, keeper: Keeper, at: u32) {
        if let Some(gate) = self.get_mut(keeper) {
            gate.entries.remove(&at);
        }
        if let Keeper::Lessor(lessor) = keeper {
            self.free_if_idle(lessor);
        }
    }

    /// Copies of a lessor may be shown until then, and those of other serials of the owner no more.
    pub(crate) fn lease(&mut self, memory: &mut impl Memory, lessor: Lessor, until_ns: u64) {
        for other in self.serials(lessor.owner) {
            if let Some(gate) = self.lessors.get_mut(&other).filter(|_| other != lessor) {
                gate.set_lease(memory, 0);
                self.free_if_idle(other);
            }
        }
        if let Some(gate) = self.claim(memory, Keeper::Lessor(lessor)) {
            gate.set_lease(memory, until_ns);
        }
        self.free_if_idle(lessor);
    }

    /// Of an owner, those that have a gate.
    fn serials(&self, owner: SocketAddrV4) -> Vec<Lessor> {
        let first = Lessor { owner, serial: 0 };
        self.lessors.range(first..=Lessor { serial: u64::MAX, ..first }).map(|(lessor, _)| *lessor).collect()
    }

    fn free_if_idle(&mut self, lessor: Lessor) {
        let is_idle = |gate: &Gate| gate.entries.is_empty() && gate.until_ns == 0;
        if self.lessors.get(&lessor).is_some_and(is_idle) {
            let gate = self.lessors.remove(&lessor).expect("it is idle");
            self.free_of_lessors.push(gate.number);
        }
    }

    pub(crate) fn partitions(&self) -> impl Iterator<Item = (PartitionId, u32)> {
        self.partitions.iter().map(|(partition, gate)| (*partition, gate.number))
    }

    /// What the program has answered at the gates of partitions since this was asked last.
    pub(crate) fn hits(&mut self, memory: &impl Memory) -> impl Iterator<Item = (PartitionId, u64)> {
        let Self { partitions, told, .. } = self;
        partitions.iter().filter_map(|(partition, gate)| {
            let hits = untold(memory, told, gate.number);
            (hits > 0).then_some((*partition, hits))
        })
    }

    /// At those of lessors, whoever they are.
    pub(crate) fn hits_of_copies(&mut self, memory: &impl Memory, first: u32) -> u64 {
        (first..self.end).map(|number| untold(memory, &mut self.told, number)).sum()
    }
}

fn untold(memory: &impl Memory, told: &mut [u64], number: u32) -> u64 {
    let counted = memory.load(Word::Gate(number, HITS));
    counted.wrapping_sub(core::mem::replace(&mut told[number as usize], counted))
}
