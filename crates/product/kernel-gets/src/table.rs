//! What the process writes: entries, from the notifications of the core
//! ([`nicekv_replica::Visibility`]), and leases.
//!
//! Every notification is applied before the core's next datagram leaves (G1, G3). Memory is
//! bounded: a new entry may evict another one with the same hash, and the process answers gets of
//! evicted keys.

use crate::gates::{GateOwner, Gates, Grant, Map};
use crate::layout::{
    BODY, DIGEST, GATE, INSTANCE, KEY, Memory, SEEN, SHAPE, Size, USED, VERSION, WAYS, Word, digest_words,
    first_way, shape, words,
};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use foldhash::fast::FixedState;
use nicekv_proto::hot::Stamp;
use nicekv_proto::limits::KERNEL_KEY_BYTES_MAX;
use nicekv_proto::recovery::Entry;
use nicekv_proto::{Form, KeyDigest, KeyspaceId, PartitionId};
use nicekv_replica::{Shift, ShiftKind, reply_body};

pub(crate) type Key = (Of, Box<[u8]>);

/// The role in which this node answers gets of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Of {
    /// For a member of this partition.
    Partition(PartitionId),
    /// For a holder of a copy of this key.
    Copy(KeyspaceId, KeyDigest),
}

/// The contents of an entry.
pub(crate) struct Contents<'a> {
    pub(crate) name: (KeyspaceId, KeyDigest),
    /// The owner of the gate to which the entry belongs.
    pub(crate) gate_owner: GateOwner,
    /// The stamp of a copy; [`Stamp::NONE`] in a member's entry.
    pub(crate) stamp: Stamp,
    pub(crate) entry: Entry<'a>,
}

/// The process's record of an entry.
#[derive(Clone)]
struct Slot {
    /// The key of the entry and the owner of its gate; `None`: the entry is free.
    owner: Option<(Key, GateOwner)>,
    version: u64,
}

/// The process's record of what it has written into entries and gates.
#[derive(Clone)]
pub struct Table {
    pub(crate) size: Size,
    pub(crate) gates: Gates,
    entries: Vec<Slot>,
    of_key: Map<Key, u32>,
    locked: Map<Key, ()>,
    /// Number of times an open entry was closed.
    pub closes: u64,
}

impl Table {
    /// An empty table over zeroed memory.
    ///
    /// # Panics
    /// If the number of entries is not a power of two, or less than [`WAYS`].
    pub fn new(size: Size) -> Self {
        assert!(size.entries.is_power_of_two() && size.entries >= WAYS);
        let state = || FixedState::with_seed(0);
        Self {
            size,
            gates: Gates::new(size),
            entries: (0..size.entries).map(|_| Slot { owner: None, version: 0 }).collect(),
            of_key: Map::with_hasher(state()),
            locked: Map::with_hasher(state()),
            closes: 0,
        }
    }

    /// Number of keys with an entry.
    pub fn len(&self) -> usize {
        self.of_key.len()
    }

    /// Whether no key has an entry.
    pub fn is_empty(&self) -> bool {
        self.of_key.is_empty()
    }

    /// Applies a notification of the core. `named` returns the keyspace and digest of a key, or
    /// `None` if the node is not a member of its partition.
    pub fn apply(
        &mut self,
        memory: &mut impl Memory,
        shift: Shift,
        named: impl FnOnce(PartitionId, &[u8]) -> Option<(KeyspaceId, KeyDigest)>,
    ) {
        let Shift { partition, kind } = shift;
        let of = Of::Partition(partition);
        match kind {
            ShiftKind::Locked(key) => {
                let key = (of, key);
                if let Some(&at) = self.of_key.get(&key) {
                    self.close(memory, at);
                }
                self.locked.insert(key, ());
            }
            ShiftKind::Unlocked(key) => {
                let key = (of, key);
                self.locked.remove(&key);
                if let Some(&at) = self.of_key.get(&key) {
                    self.open(memory, at);
                }
            }
            ShiftKind::Changed(key, entry) => {
                // A change does not create an entry, only a read does. So keys that nobody reads
                // have none.
                let key = (of, key);
                if self.of_key.contains_key(&key) {
                    self.renew(memory, partition, key, entry.as_deref(), named);
                }
            }
            ShiftKind::Read(key, entry) => self.renew(memory, partition, (of, key), Some(&entry), named),
            ShiftKind::Unknown => self.revoke(memory, partition),
        }
    }

    /// Writes the entry of a key for a member, or removes it if the program may not show the value.
    fn renew(
        &mut self,
        memory: &mut impl Memory,
        partition: PartitionId,
        key: Key,
        entry: Option<&[u8]>,
        named: impl FnOnce(PartitionId, &[u8]) -> Option<(KeyspaceId, KeyDigest)>,
    ) {
        let entry = shown(entry);
        let name = entry.and_then(|_| named(partition, &key.1));
        match (entry, name) {
            (Some(entry), Some(name)) => {
                let gate_owner = GateOwner::Partition(partition);
                self.write(memory, key, &Contents { name, gate_owner, stamp: Stamp::NONE, entry });
            }
            _ => self.remove(memory, &key),
        }
    }

    /// Sets the partitions that the node may answer for; all others are revoked.
    pub fn grant(&mut self, memory: &mut impl Memory, grants: &[Grant]) {
        let is_named = |partition: &PartitionId| grants.iter().any(|grant| grant.partition == *partition);
        let gates = self.gates.partitions().map(|(partition, _)| partition);
        let ended: Vec<_> = gates.filter(|partition| !is_named(partition)).collect();
        for partition in ended {
            self.revoke(memory, partition);
            self.gates.free(partition);
        }
        for grant in grants {
            if let Some(gate) = self.gates.claim(memory, GateOwner::Partition(grant.partition)) {
                gate.admit(memory, grant);
            }
        }
    }

    /// Gets that the program has answered for each partition since the last call (G7). If a gate
    /// passes to another partition while a get is being answered, the get counts for the new
    /// partition.
    pub fn hits(&mut self, memory: &impl Memory) -> impl Iterator<Item = (PartitionId, u64)> {
        self.gates.hits(memory)
    }

    /// The partitions with a gate, by gate number.
    pub fn gates(&self) -> BTreeMap<u32, PartitionId> {
        self.gates.partitions().map(|(partition, number)| (number, partition)).collect()
    }

    /// Removes all entries of a partition and ends its lease.
    fn revoke(&mut self, memory: &mut impl Memory, partition: PartitionId) {
        let Some(gate) = self.gates.get_mut(GateOwner::Partition(partition)) else { return };
        gate.set_lease(memory, 0);
        for at in core::mem::take(&mut gate.entries) {
            self.close(memory, at);
            let (key, _) = self.entries[at as usize].owner.take().expect("an entry at this gate");
            self.of_key.remove(&key);
        }
    }

    fn close(&mut self, memory: &mut impl Memory, at: u32) {
        let version = &mut self.entries[at as usize].version;
        if *version & 1 == 1 {
            *version += 1;
            self.closes += 1;
            memory.store(Word::Entry(at, VERSION), *version);
        }
    }

    fn open(&mut self, memory: &mut impl Memory, at: u32) {
        let version = &mut self.entries[at as usize].version;
        if *version & 1 == 0 {
            *version += 1;
            memory.store(Word::Entry(at, VERSION), *version);
        }
    }

    /// Removes the entry of a key.
    pub(crate) fn remove(&mut self, memory: &mut impl Memory, key: &Key) {
        let Some(at) = self.of_key.remove(key) else { return };
        self.close(memory, at);
        if let Some((_, gate_owner)) = self.entries[at as usize].owner.take() {
            self.gates.leave(gate_owner, at);
        }
    }

    /// Writes the entry of a key, and opens it unless an op locks the key. Empty keys and keys that
    /// are too long for an entry get none.
    pub(crate) fn write(&mut self, memory: &mut impl Memory, key: Key, contents: &Contents<'_>) {
        if !(1..=KERNEL_KEY_BYTES_MAX).contains(&key.1.len()) || !self.gates.has_room_for(contents.gate_owner)
        {
            return self.remove(memory, &key);
        }
        let at = match self.of_key.get(&key) {
            Some(at) => *at,
            None => self.make_room(memory, &key, contents),
        };
        self.close(memory, at);
        let gate = self.move_to(memory, at, contents.gate_owner);
        let Contents { name: (keyspace, digest), stamp, entry, .. } = contents;
        let body = reply_body(entry);
        let mut store = |word, value| memory.store(Word::Entry(at, word), value);
        store(GATE, gate.into());
        store(SHAPE, shape(*keyspace, key.1.len(), body.len()));
        digest_words(digest).into_iter().zip(DIGEST..).for_each(|(value, word)| store(word, value));
        store(INSTANCE, stamp.instance);
        store(SEEN, stamp.seen);
        words(&key.1).zip(KEY..).for_each(|(value, word)| store(word, value));
        words(&body).zip(BODY..).for_each(|(value, word)| store(word, value));
        if !self.locked.contains_key(&key) {
            self.open(memory, at);
        }
    }

    /// Moves a closed entry to the gate of `gate_owner`, for which there must be room. Returns the
    /// gate's number.
    fn move_to(&mut self, memory: &mut impl Memory, at: u32, gate_owner: GateOwner) -> u32 {
        let (_, before) = self.entries[at as usize].owner.as_mut().expect("an entry in use");
        let before = core::mem::replace(before, gate_owner);
        if before != gate_owner {
            self.gates.leave(before, at);
        }
        let gate = self.gates.claim(memory, gate_owner).expect("has_room_for was checked");
        gate.entries.insert(at);
        gate.number
    }

    /// Finds an entry for a new key: a free one, or the least recently used one with the same hash,
    /// which is evicted.
    fn make_room(&mut self, memory: &mut impl Memory, key: &Key, contents: &Contents<'_>) -> u32 {
        let (keyspace, digest) = contents.name;
        let first = first_way(keyspace, &digest, self.size.entries);
        let used_ns = |at: &u32| match &self.entries[*at as usize].owner {
            Some(_) => memory.load(Word::Entry(*at, USED)) + 1,
            None => 0,
        };
        let at = (first..first + WAYS).min_by_key(used_ns).expect("WAYS is not 0");
        if let Some((former, _)) = self.entries[at as usize].owner.clone() {
            self.remove(memory, &former);
        }
        // Counts as used when the most recent one was, so that the next new key does not evict it
        // at once.
        let newest = (first..first + WAYS).map(|at| memory.load(Word::Entry(at, USED))).max();
        memory.store(Word::Entry(at, USED), newest.unwrap_or_default());
        self.entries[at as usize].owner = Some((key.clone(), contents.gate_owner));
        self.of_key.insert(key.clone(), at);
        at
    }
}

/// The entry, if the program may show it. The process answers gets of values that expire and of
/// long values (G5).
pub(crate) fn shown(entry: Option<&[u8]>) -> Option<Entry<'_>> {
    let entry = Entry::decode(entry?).ok()?;
    let stays = entry.expiry_ms == 0;
    (stays && entry.form == Form::Plain).then_some(entry)
}
