//! What the process writes: entries, by what the core tells ([`nicekv_node::Visibility`]), and leases.
//!
//! Everything that the core tells is taken before its next datagram leaves (G1, G3). What has no room makes room for itself among the entries of the same
//! hash, so the memory is bounded, and what is evicted is answered by the process, as it was before.

use crate::layout::{
    BODY, CHAIN, DIGEST, GATE, HITS, KEY, LEASE, Memory, SHAPE, USED, VERSION, WAYS, Word, digest_words,
    first_way, shape, words,
};
use crate::plant::Plant;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use foldhash::fast::FixedState;
use nicekv_node::{Shift, ShiftKind, reply_body};
use nicekv_wire::recovery::Entry;
use nicekv_wire::route::ChainHeader;
use nicekv_wire::{KeyDigest, KeyspaceId, PartitionId};

type Map<K, V> = hashbrown::HashMap<K, V, FixedState>;
type Key = (PartitionId, Box<[u8]>);

/// How much there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Entries: a power of two, at least [`WAYS`].
    pub entries: u32,
    /// Partitions; those beyond have no entries.
    pub gates: u32,
}

/// What a node may answer of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The partition.
    pub partition: PartitionId,
    /// Gets are answered before this, on the boot-time clock.
    pub until_ns: u64,
    /// What switches write into gets that have room for that.
    pub chain: ChainHeader,
}

/// A partition that has a gate.
#[derive(Clone, Default)]
struct Gate {
    number: u32,
    entries: BTreeSet<u32>,
    chain: Option<ChainHeader>,
    until_ns: u64,
}

/// See the module.
#[derive(Clone)]
pub struct Table {
    size: Size,
    gates: Map<PartitionId, Gate>,
    free_gates: Vec<u32>,
    /// Of what the program has counted at each gate, so much is told.
    told: Vec<u64>,
    /// Whose each entry is, and its version.
    entries: Vec<(Option<Key>, u64)>,
    of_key: Map<Key, u32>,
    locked: Map<Key, ()>,
    /// How often an entry was closed that was open.
    pub closes: u64,
    /// A bug.
    pub plant: Option<Plant>,
}

impl Table {
    /// An empty one, over memory that is all zeros.
    ///
    /// # Panics
    /// If the number of entries is not as said.
    pub fn new(size: Size) -> Self {
        assert!(size.entries.is_power_of_two() && size.entries >= WAYS);
        let state = || FixedState::with_seed(0);
        Self {
            size,
            gates: Map::with_hasher(state()),
            free_gates: (0..size.gates).rev().collect(),
            told: (0..size.gates).map(|_| 0).collect(),
            entries: (0..size.entries).map(|_| (None, 0)).collect(),
            of_key: Map::with_hasher(state()),
            locked: Map::with_hasher(state()),
            closes: 0,
            plant: None,
        }
    }

    /// How many keys have an entry.
    pub fn len(&self) -> usize {
        self.of_key.len()
    }

    /// Whether no key has one.
    pub fn is_empty(&self) -> bool {
        self.of_key.is_empty()
    }

    /// Takes what the core tells. `named`: the keyspace and the digest of the key, if the node is a member of its partition.
    pub fn take(
        &mut self,
        memory: &mut impl Memory,
        shift: Shift,
        named: impl FnOnce(PartitionId, &[u8]) -> Option<(KeyspaceId, KeyDigest)>,
    ) {
        let Shift { partition, kind } = shift;
        match kind {
            ShiftKind::Locked(key) => {
                let key = (partition, key);
                if let Some(&at) = self.of_key.get(&key)
                    && self.plant != Some(Plant::LockIgnored)
                {
                    self.close(memory, at);
                }
                self.locked.insert(key, ());
            }
            ShiftKind::Unlocked(key) => {
                let key = (partition, key);
                self.locked.remove(&key);
                if let Some(&at) = self.of_key.get(&key) {
                    self.open(memory, at);
                }
            }
            ShiftKind::Changed(key, entry) => {
                // What nobody asks for takes no room.
                let key = (partition, key);
                if self.of_key.contains_key(&key) {
                    self.renew(memory, key, entry.as_deref(), named);
                }
            }
            ShiftKind::Read(key, entry) => self.renew(memory, (partition, key), Some(&entry), named),
            ShiftKind::Unknown if self.plant == Some(Plant::VoidKept) => {}
            ShiftKind::Unknown => self.void(memory, partition),
        }
    }

    /// The entry of a key is another one, or there is none.
    fn renew(
        &mut self,
        memory: &mut impl Memory,
        key: Key,
        entry: Option<&[u8]>,
        named: impl FnOnce(PartitionId, &[u8]) -> Option<(KeyspaceId, KeyDigest)>,
    ) {
        let entry = entry.and_then(|bytes| Entry::decode(bytes).ok());
        let may_expire = self.plant == Some(Plant::ExpiringShown);
        // What expires the process answers (G5).
        let entry = entry.filter(|entry| entry.expiry_ms == 0 || may_expire);
        let name = entry.and_then(|_| named(key.0, &key.1));
        match (entry, name) {
            (Some(entry), Some(name)) => self.write(memory, key, name, &entry),
            _ => self.forget(memory, &key),
        }
    }

    /// What the node may answer from now on: nothing of any other partition.
    pub fn grant(&mut self, memory: &mut impl Memory, grants: &[Grant]) {
        let is_named = |partition: &PartitionId| grants.iter().any(|grant| grant.partition == *partition);
        let ended: Vec<_> = self.gates.keys().filter(|id| !is_named(id)).copied().collect();
        if self.plant != Some(Plant::VoidKept) {
            for partition in ended {
                self.void(memory, partition);
                let gate = self.gates.remove(&partition).expect("one of them");
                self.free_gates.push(gate.number);
            }
        }
        for grant in grants {
            let Some(gate) = self.gate(memory, grant.partition) else { continue };
            let number = gate.number;
            if gate.chain != Some(grant.chain) {
                gate.chain = Some(grant.chain);
                memory.store(Word::Gate(number, LEASE), 0);
                for (at, word) in words(&grant.chain.to_bytes()).enumerate() {
                    memory.store(Word::Gate(number, CHAIN + at), word);
                }
            } else if gate.until_ns == grant.until_ns {
                continue;
            }
            gate.until_ns = grant.until_ns;
            memory.store(Word::Gate(number, LEASE), grant.until_ns);
        }
    }

    /// How many gets the program has answered of each partition, since it was asked last (G7). What it answers while a gate changes hands counts for the next
    /// partition there.
    pub fn hits(&mut self, memory: &impl Memory) -> impl Iterator<Item = (PartitionId, u64)> {
        let Self { gates, told, .. } = self;
        gates.iter().filter_map(|(partition, gate)| {
            let (told, counted) =
                (&mut told[gate.number as usize], memory.load(Word::Gate(gate.number, HITS)));
            let hits = counted.wrapping_sub(core::mem::replace(told, counted));
            (hits > 0).then_some((*partition, hits))
        })
    }

    /// The partitions that have gates, by their numbers.
    pub fn gates(&self) -> BTreeMap<u32, PartitionId> {
        self.gates.iter().map(|(partition, gate)| (gate.number, *partition)).collect()
    }

    /// The gate of a partition, if there are enough; a new one is shut.
    fn gate(&mut self, memory: &mut impl Memory, partition: PartitionId) -> Option<&mut Gate> {
        if !self.gates.contains_key(&partition) {
            let number = self.free_gates.pop()?;
            memory.store(Word::Gate(number, LEASE), 0);
            self.gates.insert(partition, Gate { number, ..Gate::default() });
        }
        self.gates.get_mut(&partition)
    }

    /// What was told of a partition is void, and its lease over.
    fn void(&mut self, memory: &mut impl Memory, partition: PartitionId) {
        let Some(gate) = self.gates.get_mut(&partition) else { return };
        gate.until_ns = 0;
        memory.store(Word::Gate(gate.number, LEASE), 0);
        for at in core::mem::take(&mut gate.entries) {
            self.close(memory, at);
            let key = self.entries[at as usize].0.take().expect("an entry of the partition");
            self.of_key.remove(&key);
        }
    }

    fn close(&mut self, memory: &mut impl Memory, at: u32) {
        let version = &mut self.entries[at as usize].1;
        if *version & 1 == 1 {
            *version += 1;
            self.closes += 1;
            memory.store(Word::Entry(at, VERSION), *version);
        }
    }

    fn open(&mut self, memory: &mut impl Memory, at: u32) {
        let version = &mut self.entries[at as usize].1;
        if *version & 1 == 0 {
            *version += 1;
            memory.store(Word::Entry(at, VERSION), *version);
        }
    }

    /// The key has no entry.
    fn forget(&mut self, memory: &mut impl Memory, key: &Key) {
        let Some(at) = self.of_key.remove(key) else { return };
        if self.plant != Some(Plant::EvictedOpen) {
            self.close(memory, at);
        }
        self.entries[at as usize].0 = None;
        if let Some(gate) = self.gates.get_mut(&key.0) {
            gate.entries.remove(&at);
        }
    }

    /// The entry of a key is this; it is open unless an op locks it.
    fn write(
        &mut self,
        memory: &mut impl Memory,
        key: Key,
        (keyspace, digest): (KeyspaceId, KeyDigest),
        entry: &Entry<'_>,
    ) {
        let Some(gate) = self.gate(memory, key.0).map(|gate| gate.number) else { return };
        let at = match self.of_key.get(&key) {
            Some(at) => *at,
            None => self.make_room(memory, &key, keyspace, &digest),
        };
        if self.plant != Some(Plant::EvictedOpen) {
            self.close(memory, at);
        }
        let body = reply_body(entry);
        let mut store = |word, value| memory.store(Word::Entry(at, word), value);
        store(GATE, gate.into());
        store(SHAPE, shape(keyspace, key.1.len(), body.len()));
        digest_words(&digest).into_iter().zip(DIGEST..).for_each(|(value, word)| store(word, value));
        words(&key.1).zip(KEY..).for_each(|(value, word)| store(word, value));
        words(&body).zip(BODY..).for_each(|(value, word)| store(word, value));
        if !self.locked.contains_key(&key) {
            self.open(memory, at);
        }
    }

    /// An entry for a key that has none: a free one, or the one of its hash that was not used for the longest time.
    fn make_room(
        &mut self,
        memory: &mut impl Memory,
        key: &Key,
        keyspace: KeyspaceId,
        digest: &KeyDigest,
    ) -> u32 {
        let first = first_way(keyspace, digest, self.size.entries);
        let used_ns = |at: &u32| match &self.entries[*at as usize].0 {
            Some(_) => memory.load(Word::Entry(*at, USED)) + 1,
            None => 0,
        };
        let at = (first..first + WAYS).min_by_key(used_ns).expect("there are some");
        if let Some(former) = self.entries[at as usize].0.take() {
            self.entries[at as usize].0 = Some(former.clone());
            self.forget(memory, &former);
        }
        // As new as the newest there, so that the next one does not replace it at once.
        let newest = (first..first + WAYS).map(|at| memory.load(Word::Entry(at, USED))).max();
        memory.store(Word::Entry(at, USED), newest.unwrap_or_default());
        self.entries[at as usize].0 = Some(key.clone());
        self.of_key.insert(key.clone(), at);
        if let Some(gate) = self.gates.get_mut(&key.0) {
            gate.entries.insert(at);
        }
        at
    }
}
