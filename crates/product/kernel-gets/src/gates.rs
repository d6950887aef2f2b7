//! Gates. A gate has the lease under which its entries may answer. It belongs to a partition, or to
//! a *lessor*: an owner of hot keys together with the serial under which it has made copies. A
//! lease under another serial does not count for these copies (H7). Partitions and lessors have
//! separate pools of gates.

use crate::layout::{CHAIN, HITS, LEASE, Memory, Size, Word, words};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use foldhash::fast::FixedState;
use nicekv_proto::PartitionId;
use nicekv_proto::route::ChainHeader;
use nicekv_replica::Lessor;

pub(crate) type Map<K, V> = hashbrown::HashMap<K, V, FixedState>;

/// Permission to answer gets of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    pub partition: PartitionId,
    /// The end of the permission, on the boot-time clock.
    pub until_ns: u64,
    /// The chain header that a get must carry if it has room for one (C5).
    pub chain: ChainHeader,
}

/// The owner of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GateOwner {
    /// A partition that the node is a member of.
    Partition(PartitionId),
    /// A lessor: an owner of hot keys, under one serial, of which this node holds copies.
    Lessor(Lessor),
}

/// A gate in use.
#[derive(Clone, Default)]
pub(crate) struct Gate {
    pub(crate) number: u32,
    /// Indexes of the entries that belong to this gate.
    pub(crate) entries: BTreeSet<u32>,
    chain: Option<ChainHeader>,
    until_ns: u64,
}

impl Gate {
    fn new(number: Option<u32>, memory: &mut impl Memory) -> Option<Self> {
        let number = number?;
        memory.store(Word::Gate(number, LEASE), 0);
        Some(Self { number, ..Self::default() })
    }

    /// Sets the lease: entries of this gate answer gets before this time.
    pub(crate) fn set_lease(&mut self, memory: &mut impl Memory, until_ns: u64) {
        if self.until_ns != until_ns {
            self.until_ns = until_ns;
            memory.store(Word::Gate(self.number, LEASE), until_ns);
        }
    }

    /// Applies a grant. Gets with a chain header are answered only if it equals the grant's.
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

/// The gates of partitions and lessors.
#[derive(Clone)]
pub(crate) struct Gates {
    partitions: Map<PartitionId, Gate>,
    lessors: BTreeMap<Lessor, Gate>,
    free_of_partitions: Vec<u32>,
    free_of_lessors: Vec<u32>,
    /// One more than the highest gate number that a lessor has ever had.
    end: u32,
    /// For each gate, the hits that callers have already received.
    reported: Vec<u64>,
}

impl Gates {
    pub(crate) fn new(size: Size) -> Self {
        Self {
            partitions: Map::with_hasher(FixedState::with_seed(0)),
            lessors: BTreeMap::new(),
            free_of_partitions: (0..size.gates).rev().collect(),
            free_of_lessors: (size.gates..size.gate_count()).rev().collect(),
            end: size.gates,
            reported: (0..size.gate_count()).map(|_| 0).collect(),
        }
    }

    pub(crate) fn get_mut(&mut self, owner: GateOwner) -> Option<&mut Gate> {
        match owner {
            GateOwner::Partition(partition) => self.partitions.get_mut(&partition),
            GateOwner::Lessor(lessor) => self.lessors.get_mut(&lessor),
        }
    }

    /// Whether the owner has a gate or can get one.
    pub(crate) fn has_room_for(&self, owner: GateOwner) -> bool {
        match owner {
            GateOwner::Partition(partition) => {
                self.partitions.contains_key(&partition) || !self.free_of_partitions.is_empty()
            }
            GateOwner::Lessor(lessor) => {
                self.lessors.contains_key(&lessor) || !self.free_of_lessors.is_empty()
            }
        }
    }

    /// The gate of an owner; a new one has no lease. `None`: no gate is free.
    pub(crate) fn claim(&mut self, memory: &mut impl Memory, owner: GateOwner) -> Option<&mut Gate> {
        if self.get_mut(owner).is_none() {
            match owner {
                GateOwner::Partition(partition) => {
                    let gate = Gate::new(self.free_of_partitions.pop(), memory)?;
                    self.partitions.insert(partition, gate);
                }
                GateOwner::Lessor(lessor) => {
                    let gate = Gate::new(self.free_of_lessors.pop(), memory)?;
                    self.end = self.end.max(gate.number + 1);
                    self.lessors.insert(lessor, gate);
                }
            }
        }
        self.get_mut(owner)
    }

    /// Frees the gate of a partition. The caller has closed its entries.
    pub(crate) fn free(&mut self, partition: PartitionId) {
        if let Some(gate) = self.partitions.remove(&partition) {
            self.free_of_partitions.push(gate.number);
        }
    }

    /// Removes an entry from a gate. A lessor's gate is freed once it has neither entries nor a
    /// lease.
    pub(crate) fn leave(&mut self, owner: GateOwner, at: u32) {
        if let Some(gate) = self.get_mut(owner) {
            gate.entries.remove(&at);
        }
        if let GateOwner::Lessor(lessor) = owner {
            self.free_if_idle(lessor);
        }
    }

    /// Sets the lease of a lessor, and ends the leases of the same owner under other serials.
    pub(crate) fn lease(&mut self, memory: &mut impl Memory, lessor: Lessor, until_ns: u64) {
        for other in self.serials(lessor.owner) {
            if let Some(gate) = self.lessors.get_mut(&other).filter(|_| other != lessor) {
                gate.set_lease(memory, 0);
                self.free_if_idle(other);
            }
        }
        if let Some(gate) = self.claim(memory, GateOwner::Lessor(lessor)) {
            gate.set_lease(memory, until_ns);
        }
        self.free_if_idle(lessor);
    }

    /// The lessors of an owner that have a gate.
    fn serials(&self, owner: SocketAddrV4) -> Vec<Lessor> {
        let first = Lessor { owner, serial: 0 };
        self.lessors.range(first..=Lessor { serial: u64::MAX, ..first }).map(|(lessor, _)| *lessor).collect()
    }

    fn free_if_idle(&mut self, lessor: Lessor) {
        let is_idle = |gate: &Gate| gate.entries.is_empty() && gate.until_ns == 0;
        if self.lessors.get(&lessor).is_some_and(is_idle) {
            let gate = self.lessors.remove(&lessor).expect("just found");
            self.free_of_lessors.push(gate.number);
        }
    }

    pub(crate) fn partitions(&self) -> impl Iterator<Item = (PartitionId, u32)> {
        self.partitions.iter().map(|(partition, gate)| (*partition, gate.number))
    }

    /// Gets answered at the gates of partitions since the last call.
    pub(crate) fn hits(&mut self, memory: &impl Memory) -> impl Iterator<Item = (PartitionId, u64)> {
        let Self { partitions, reported, .. } = self;
        partitions.iter().filter_map(|(partition, gate)| {
            let hits = unreported(memory, reported, gate.number);
            (hits > 0).then_some((*partition, hits))
        })
    }

    /// Gets answered at the gates of lessors since the last call.
    pub(crate) fn hits_of_copies(&mut self, memory: &impl Memory, first: u32) -> u64 {
        (first..self.end).map(|number| unreported(memory, &mut self.reported, number)).sum()
    }
}

fn unreported(memory: &impl Memory, reported: &mut [u64], number: u32) -> u64 {
    let counted = memory.load(Word::Gate(number, HITS));
    counted.wrapping_sub(core::mem::replace(&mut reported[number as usize], counted))
}
