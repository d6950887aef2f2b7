//! The volatile engine.
//!
//! ```text
//!   partition, key ─▶ hash ─▶ table of the partition: (hash, length of the key, where) ─▶ key │ value    one piece of memory
//!                             order of the partition: keys                    only when keys come and go, and for scans
//! ```
//!
//! A read or overwrite touches one table slot and one piece of memory, and allocates nothing while
//! the new value fits in place. The order for scans is a second structure: a B-tree alone would
//! make each read a series of cache misses, a hash table alone would make each page of a scan sort
//! the whole partition.

use super::{Engine, EngineSync, ScanPage};
use crate::Result;
use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashTable};
use std::{collections::BTreeSet, hash::BuildHasher, ops::Bound};

/// A value's memory shrinks when more than this, and more than it uses, is unused.
const UNUSED_BYTES_MAX: usize = 256;

/// Most entries that a scan looks up at a time. Until it has seen an entry, it assumes that each
/// has [`ENTRY_BYTES_GUESS`] bytes.
const TOGETHER_MAX: usize = 16;
const ENTRY_BYTES_GUESS: usize = 128;

/// Keeps everything in memory. Syncs finish at once and mean nothing: after a restart it is empty.
#[derive(Default)]
pub struct MemoryEngine {
    partitions: HashMap<u32, Partition, RandomState>,
    /// Randomly seeded, since clients choose the keys.
    hasher: RandomState,
}

#[derive(Default)]
struct Partition {
    table: HashTable<Entry>,
    order: BTreeSet<Box<[u8]>>,
}

struct Entry {
    /// Hash of the key: distinguishes most keys, and lets the table grow without reading them.
    hash: u32,
    key_bytes: u32,
    /// Key and value.
    bytes: Vec<u8>,
}

impl Entry {
    fn new(hash: u32, key: &[u8], value: &[u8]) -> Self {
        Self { hash, key_bytes: key.len() as u32, bytes: [key, value].concat() }
    }

    fn is_of(&self, hash: u32, key: &[u8]) -> bool {
        self.hash == hash && self.bytes[..self.key_bytes as usize] == *key
    }

    fn value(&self) -> &[u8] {
        &self.bytes[self.key_bytes as usize..]
    }

    fn set_value(&mut self, value: &[u8]) {
        self.bytes.truncate(self.key_bytes as usize);
        self.bytes.extend_from_slice(value);
        if self.bytes.capacity() - self.bytes.len() > UNUSED_BYTES_MAX.max(self.bytes.len()) {
            self.bytes.shrink_to_fit();
        }
    }
}

/// The table compares the upper bits of a hash and places by the lower ones.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Partition {
    fn find(&self, hash: u32, key: &[u8]) -> Option<&Entry> {
        self.table.find(spread(hash), |entry| entry.is_of(hash, key))
    }

    fn put(&mut self, hash: u32, key: &[u8], value: &[u8]) {
        if let Some(entry) = self.table.find_mut(spread(hash), |entry| entry.is_of(hash, key)) {
            return entry.set_value(value);
        }
        self.order.insert(key.into());
        let entry = Entry::new(hash, key, value);
        self.table.insert_unique(spread(hash), entry, |entry| spread(entry.hash));
    }

    /// Passes entries to `each` in order up to `bytes_max`; returns whether there are more. Several
    /// are looked up at a time, so that the processor waits for their cache misses concurrently.
    fn tell(
        &self,
        hash: impl Fn(&[u8]) -> u32,
        after: Option<&[u8]>,
        bytes_max: usize,
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> bool {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut keys = self.order.range::<[u8], _>((from, Bound::Unbounded));
        let (mut bytes, mut count) = (0, 0);
        let mut found: [Option<&Entry>; TOGETHER_MAX] = [None; TOGETHER_MAX];
        loop {
            // About as many entries as there is room for.
            let left = bytes_max.saturating_sub(bytes);
            let likely = left / bytes.checked_div(count).unwrap_or(ENTRY_BYTES_GUESS).max(1) + 1;
            let mut asked: [(u32, &[u8]); TOGETHER_MAX] = [(0, &[]); TOGETHER_MAX];
            let mut together = 0;
            for (key, place) in keys.by_ref().take(likely.min(TOGETHER_MAX)).zip(&mut asked) {
                *place = (hash(key), key);
                together += 1;
            }
            if together == 0 {
                return false;
            }
            for ((hash, key), place) in asked[..together].iter().zip(&mut found) {
                *place = self.find(*hash, key);
            }
            for ((_, key), entry) in asked[..together].iter().zip(found) {
                if bytes >= bytes_max && count > 0 {
                    return true;
                }
                let entry = entry.expect("what is in order is in the table");
                (bytes, count) = (bytes + entry.bytes.len(), count + 1);
                each(key, entry.value());
            }
        }
    }

    fn remove(&mut self, hash: u32, key: &[u8]) {
        if let Ok(entry) = self.table.find_entry(spread(hash), |entry| entry.is_of(hash, key)) {
            entry.remove();
            self.order.remove(key);
        }
    }
}

impl MemoryEngine {
    /// An empty engine.
    pub fn new() -> Self {
        Self::default()
    }

    fn hash(&self, key: &[u8]) -> u32 {
        self.hasher.hash_one(key) as u32
    }
}

impl Engine for MemoryEngine {
    fn get_into(&self, partition: u32, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let partition = self.partitions.get(&partition);
        let entry = partition.and_then(|partition| partition.find(self.hash(key), key));
        value.extend_from_slice(entry.map_or(&[], Entry::value));
        Ok(entry.is_some())
    }

    fn put(&mut self, partition: u32, key: &[u8], value: &[u8]) -> Result<()> {
        let hash = self.hash(key);
        self.partitions.entry(partition).or_default().put(hash, key, value);
        Ok(())
    }

    fn remove(&mut self, partition: u32, key: &[u8]) -> Result<()> {
        let hash = self.hash(key);
        if let Some(partition) = self.partitions.get_mut(&partition) {
            partition.remove(hash, key);
        }
        Ok(())
    }

    fn scan(&self, partition: u32, after: Option<&[u8]>, bytes_max: usize) -> Result<ScanPage> {
        let mut entries = Vec::new();
        let mut push = |key: &[u8], value: &[u8]| entries.push((key.to_vec(), value.to_vec()));
        let page = self.scan_each(partition, after, bytes_max, &mut push)?;
        Ok(ScanPage { entries, ..page })
    }

    fn scan_each(
        &self,
        partition: u32,
        after: Option<&[u8]>,
        bytes_max: usize,
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<ScanPage> {
        let partition = self.partitions.get(&partition);
        let hash = |key: &[u8]| self.hash(key);
        let more = partition.is_some_and(|partition| partition.tell(hash, after, bytes_max, each));
        Ok(ScanPage { more, ..ScanPage::default() })
    }

    fn clear(&mut self, partition: u32) -> Result<()> {
        self.partitions.remove(&partition);
        Ok(())
    }

    fn sync_begin(&mut self) -> Result<EngineSync> {
        self.synced()
    }

    fn synced(&mut self) -> Result<EngineSync> {
        Ok(EngineSync::default())
    }

    fn sync(&mut self) -> Result<()> {
        Ok(())
    }

    fn approximate_keys(&self) -> u64 {
        self.partitions.values().map(|partition| partition.table.len() as u64).sum()
    }

    fn set_space_short(&self, _is_short: bool) {}

    fn merge_lacked_space(&self) -> bool {
        false
    }

    fn disk_bytes(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_with_equal_hashes_stay_distinct() {
        let mut partition = Partition::default();
        for number in 0..50u8 {
            partition.put(7, &[number], &[number; 3]);
        }
        for number in (0..50u8).step_by(2) {
            partition.remove(7, &[number]);
        }
        for number in 0..50u8 {
            let found = partition.find(7, &[number]).map(Entry::value);
            assert_eq!(found, (number % 2 == 1).then_some(&[number; 3][..]), "key {number}");
        }
        assert_eq!((partition.table.len(), partition.order.len()), (25, 25));
    }

    #[test]
    fn key_and_value_bytes_are_not_confused() {
        let mut partition = Partition::default();
        partition.put(7, b"ab", b"cd");
        assert!(partition.find(7, b"abc").is_none() && partition.find(7, b"a").is_none());
        partition.put(7, b"abc", b"d");
        assert_eq!(partition.find(7, b"ab").unwrap().value(), b"cd");
    }

    #[test]
    fn value_is_overwritten_in_place_and_shrinks() {
        let mut entry = Entry::new(0, b"key", &[1; 1_000]);
        let (place, capacity) = (entry.bytes.as_ptr(), entry.bytes.capacity());
        for length in [1_000, 700, 999, 500] {
            entry.set_value(&vec![2; length]);
            assert_eq!((entry.bytes.as_ptr(), entry.bytes.capacity()), (place, capacity), "{length}");
            assert_eq!(entry.value(), vec![2; length]);
        }
        entry.set_value(&[3; 400]);
        assert!(entry.bytes.capacity() < 1_000, "{} bytes for 403", entry.bytes.capacity());
        let mut small = Entry::new(0, b"key", &[1; 200]);
        let capacity = small.bytes.capacity();
        small.set_value(&[]);
        assert_eq!(
            (small.bytes.capacity(), small.value()),
            (capacity, &[][..]),
            "too little memory is unused to shrink"
        );
    }
}
