//! What the process writes: entries, by what the core tells ([`nicekv_replica::Visibility`]), and leases.
//!
//! Everything that the core tells is taken before its next datagram leaves (G1, G3). What has no room makes room for itself among the entries of the same
//! hash, so the memory is bounded, and what is evicted is answered by the process, as it was before.

use crate::gates::{Gates, Keeper};
use crate::layout::{
    BODY, DIGEST, GATE, INSTANCE, KEY, Memory, SEEN, SHAPE, USED, VERSION, WAYS, Word, digest_words,
    first_way, shape, words,
};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use foldhash::fast::FixedState;
use nicekv_proto::hot::Stamp;
use nicekv_proto::limits::KERNEL_KEY_BYTES_MAX;
use nicekv_proto::recovery::Entry;
use nicekv_proto::route::ChainHeader;
use nicekv_proto::{Form, KeyDigest, KeyspaceId, PartitionId};
use nicekv_replica::{Shift, ShiftKind, reply_body};

pub(crate) type Map<K, V> = hashbrown::HashMap<K, V, FixedState>;
pub(crate) type Key = (Of, Box<[u8]>);

/// How much there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Entries: a power of two, at least [`WAYS`].
    pub entries: u32,
    /// Partitions; those beyond have no entries.
    pub gates: u32,
    /// Serials of owners of hot keys; copies of those beyond have none.
    pub lessors: u32,
}

impl Size {
    /// Gates of both.
    pub fn gate_count(&self) -> u32 {
        self.gates + self.lessors
    }
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

/// Whose entries there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Of {
    /// A member's.
    Partition(PartitionId),
    /// A holder's.
    Copy(KeyspaceId, KeyDigest),
}

/// What an entry is to say.
pub(crate) struct Text<'a> {
    pub(crate) name: (KeyspaceId, KeyDigest),
    /// At this one's gate.
    pub(crate) keeper: Keeper,
    /// Of a copy.
    pub(crate) stamp: Stamp,
    pub(crate) entry: Entry<'a>,
}

/// An entry, as the process knows it.
#[derive(Clone)]
struct Slot {
    /// Whose it is, and at whose gate.
    owner: Option<(Key, Keeper)>,
    version: u64,
}

/// See the module.
#[derive(Clone)]
pub struct Table {
    pub(crate) size: Size,
    pub(crate) gates: Gates,
    entries: Vec<Slot>,
    of_key: Map<Key, u32>,
    locked: Map<Key, ()>,
    /// How often an entry was closed that was open.
    pub closes: u64,
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
            gates: Gates::new(size),
            entries: (0..size.entries).map(|_| Slot { owner: None, version: 0 }).collect(),
            of_key: Map::with_hasher(state()),
            locked: Map::with_hasher(state()),
            closes: 0,
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
                // What nobody asks for takes no room.
                let key = (of, key);
                if self.of_key.contains_key(&key) {
                    self.renew(memory, partition, key, entry.as_deref(), named);
                }
            }
            ShiftKind::Read(key, entry) => self.renew(memory, partition, (of, key), Some(&entry), named),
            ShiftKind::Unknown => self.void(memory, partition),
        }
    }

    /// The entry of a member's key is another one, or there is none.
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
                let keeper = Keeper::Partition(partition);
                self.write(memory, key, &Text { name, keeper, stamp: Stamp::NONE, entry });
            }
            _ => self.forget(memory, &key),
        }
    }

    /// What the node may answer from now on: nothing of any other partition.
    pub fn grant(&mut self, memory: &mut impl Memory, grants: &[Grant]) {
        let is_named = |partition: &PartitionId| grants.iter().any(|grant| grant.partition == *partition);
        let gates = self.gates.partitions().map(|(partition, _)| partition);
        let ended: Vec<_> = gates.filter(|partition| !is_named(partition)).collect();
        for partition in ended {
            self.void(memory, partition);
            self.gates.free(partition);
        }
        for grant in grants {
            if let Some(gate) = self.gates.claim(memory, Keeper::Partition(grant.partition)) {
                gate.admit(memory, grant);
            }
        }
    }

    /// How many gets the program has answered of each partition, since it was asked last (G7). What it answers while a gate changes hands counts for the next
    /// partition there.
    pub fn hits(&mut self, memory: &impl Memory) -> impl Iterator<Item = (PartitionId, u64)> {
        self.gates.hits(memory)
    }

    /// The partitions that have gates, by their numbers.
    pub fn gates(&self) -> BTreeMap<u32, PartitionId> {
        self.gates.partitions().map(|(partition, number)| (number, partition)).collect()
    }

    /// What was told of a partition is void, and its lease over.
    fn void(&mut self, memory: &mut impl Memory, partition: PartitionId) {
        let Some(gate) = self.gates.get_mut(Keeper::Partition(partition)) else { return };
        gate.set_lease(memory, 0);
        for at in core::mem::take(&mut gate.entries) {
            self.close(memory, at);
            let (key, _) = self.entries[at as usize].owner.take().expect("an entry of the partition");
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

    /// The key has no entry.
    pub(crate) fn forget(&mut self, memory: &mut impl Memory, key: &Key) {
        let Some(at) = self.of_key.remove(key) else { return };
        self.close(memory, at);
        if let Some((_, keeper)) = self.entries[at as usize].owner.take() {
            self.gates.leave(keeper, at);
        }
    }

    /// The entry of a key says this; it is open unless an op locks the key. Long keys have none, nor has the empty one.
    pub(crate) fn write(&mut self, memory: &mut impl Memory, key: Key, text: &Text<'_>) {
        if !(1..=KERNEL_KEY_BYTES_MAX).contains(&key.1.len()) || !self.gates.has_room_for(text.keeper) {
            return self.forget(memory, &key);
        }
        let at = match self.of_key.get(&key) {
            Some(at) => *at,
            None => self.make_room(memory, &key, text),
        };
        self.close(memory, at);
        let gate = self.move_to(memory, at, text.keeper);
        let Text { name: (keyspace, digest), stamp, entry, .. } = text;
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

    /// The entry, which is closed, is at this one's gate from now on, of which there is one. The gate's number.
    fn move_to(&mut self, memory: &mut impl Memory, at: u32, keeper: Keeper) -> u32 {
        let (_, before) = self.entries[at as usize].owner.as_mut().expect("somebody's");
        let before = core::mem::replace(before, keeper);
        if before != keeper {
            self.gates.leave(before, at);
        }
        let gate = self.gates.claim(memory, keeper).expect("there is room");
        gate.entries.insert(at);
        gate.number
    }

    /// An entry for a key that has none: a free one, or the one of its hash that was not used for the longest time.
    fn make_room(&mut self, memory: &mut impl Memory, key: &Key, text: &Text<'_>) -> u32 {
        let (keyspace, digest) = text.name;
        let first = first_way(keyspace, &digest, self.size.entries);
        let used_ns = |at: &u32| match &self.entries[*at as usize].owner {
            Some(_) => memory.load(Word::Entry(*at, USED)) + 1,
            None => 0,
        };
        let at = (first..first + WAYS).min_by_key(used_ns).expect("there are some");
        if let Some((former, _)) = self.entries[at as usize].owner.clone() {
            self.forget(memory, &former);
        }
        // As new as the newest there, so that the next one does not replace it at once.
        let newest = (first..first + WAYS).map(|at| memory.load(Word::Entry(at, USED))).max();
        memory.store(Word::Entry(at, USED), newest.unwrap_or_default());
        self.entries[at as usize].owner = Some((key.clone(), text.keeper));
        self.of_key.insert(key.clone(), at);
        at
    }
}

/// What may be shown of what was told: what expires, and what is long, the process answers (G5).
pub(crate) fn shown(entry: Option<&[u8]>) -> Option<Entry<'_>> {
    let entry = Entry::decode(entry?).ok()?;
    let stays = entry.expiry_ms == 0;
    (stays && entry.form == Form::Plain).then_some(entry)
}
