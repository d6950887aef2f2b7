//! Write buffer of the LSM tree: the newest write of each key that the tree does not hold yet.
//!
//! ```text
//!   partition ─▶ hash of the key ─▶ table: (hash, where, how long) ─▶ key │ value      one after the other in large pieces of memory
//!             └▶ keys as they came: [sorted run][sorted run][not yet sorted]            for scans and for the tree
//! ```
//!
//! A write is on the hot path: it looks into one table and copies its bytes, and allocates only
//! when a memory piece is full; a new value overwrites the last one of its key in place if it fits.
//! Only scans, which come in pages at a bounded rate, and the engine's thread, which sorts by
//! itself, need order. So keys are appended as they arrive, and every [`RUN_KEYS`] new keys are
//! sorted while they are in the processor's caches: a page then costs a search in every run, and
//! sorting less than one run.
//!
//! A value that was replaced by a longer one stays in memory until the buffer is released: the
//! memory of a buffer is that of all its writes, which is how buffers are bounded.

use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashTable};

/// New keys of a partition that are sorted together.
const RUN_KEYS: usize = 1_024;
/// Size of a memory piece; a longer entry gets a separate piece.
const PIECE_BYTES: usize = 256 << 10;
/// Stands for the length of a removed value.
const REMOVED: u32 = u32::MAX;

/// A key and its write; `None` is a removal.
pub(super) type Write<'a> = (&'a [u8], Option<&'a [u8]>);

/// Writes in key order.
pub(super) type Sequence<'a> = Box<dyn Iterator<Item = Write<'a>> + 'a>;

/// The write buffer. Callers compute the hashes of keys.
#[derive(Default)]
pub(super) struct Buffer {
    partitions: HashMap<u32, Partition, RandomState>,
    pieces: Pieces,
    keys: usize,
}

#[derive(Default)]
struct Partition {
    table: HashTable<Slot>,
    /// Sorted runs of [`RUN_KEYS`] keys, then fewer unsorted ones.
    keys: Vec<Key>,
}

/// The newest write of a key.
#[derive(Clone, Copy)]
struct Slot {
    key: Key,
    /// [`REMOVED`], or length of the value behind the key.
    value_bytes: u32,
    /// Longest value that fits here.
    room: u32,
}

/// Place of a key: in the table with its newest value, in the runs as it arrived.
#[derive(Clone, Copy)]
struct Key {
    /// Distinguishes most keys, and lets the table grow without reading the keys.
    hash: u32,
    bytes: u32,
    piece: u32,
    offset: u32,
}

#[derive(Default)]
struct Pieces(Vec<Vec<u8>>);

impl Pieces {
    /// Stores a key and its value next to each other.
    fn append(&mut self, hash: u32, key: &[u8], value: &[u8]) -> Key {
        let bytes = key.len() + value.len();
        let has_room = |piece: &Vec<u8>| piece.capacity() - piece.len() >= bytes;
        if !self.0.last().is_some_and(has_room) {
            self.0.push(Vec::with_capacity(bytes.max(PIECE_BYTES)));
        }
        let number = self.0.len() - 1;
        let piece = &mut self.0[number];
        let offset = piece.len() as u32;
        piece.extend_from_slice(key);
        piece.extend_from_slice(value);
        Key { hash, bytes: key.len() as u32, piece: number as u32, offset }
    }

    fn key(&self, key: Key) -> &[u8] {
        &self.0[key.piece as usize][key.offset as usize..][..key.bytes as usize]
    }

    fn value(&self, slot: &Slot) -> Option<&[u8]> {
        let Slot { key, value_bytes, .. } = *slot;
        let behind = |bytes| &self.0[key.piece as usize][(key.offset + key.bytes) as usize..][..bytes];
        (value_bytes != REMOVED).then(|| behind(value_bytes as usize))
    }

    /// Overwrites the last value, if the new one fits.
    fn replace(&mut self, slot: &mut Slot, value: Option<&[u8]>) -> bool {
        let Some(value) = value else {
            slot.value_bytes = REMOVED;
            return true;
        };
        if value.len() > slot.room as usize {
            return false;
        }
        let from = (slot.key.offset + slot.key.bytes) as usize;
        self.0[slot.key.piece as usize][from..from + value.len()].copy_from_slice(value);
        slot.value_bytes = value.len() as u32;
        true
    }
}

/// The table compares the upper bits of a hash and places by the lower ones.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Partition {
    fn find(&self, pieces: &Pieces, hash: u32, key: &[u8]) -> Option<&Slot> {
        self.table.find(spread(hash), |slot| slot.key.hash == hash && pieces.key(slot.key) == key)
    }

    fn note(&mut self, pieces: &Pieces, key: Key) {
        self.keys.push(key);
        if self.keys.len().is_multiple_of(RUN_KEYS) {
            let run = self.keys.len() - RUN_KEYS;
            sort(pieces, &mut self.keys[run..]);
        }
    }
}

fn sort(pieces: &Pieces, keys: &mut [Key]) {
    keys.sort_unstable_by(|one, other| pieces.key(*one).cmp(pieces.key(*other)));
}

impl Buffer {
    /// Number of keys with writes.
    pub(super) fn len(&self) -> usize {
        self.keys
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys == 0
    }

    /// Takes a write, replacing the last one of this key.
    pub(super) fn write(&mut self, partition: u32, hash: u32, key: &[u8], value: Option<&[u8]>) {
        let Self { partitions, pieces, keys } = self;
        let partition = partitions.entry(partition).or_default();
        let known = |slot: &Slot| slot.key.hash == hash && pieces.key(slot.key) == key;
        let known = partition.table.find_mut(spread(hash), known);
        let bytes = value.unwrap_or_default();
        let value_bytes = value.map_or(REMOVED, |value| value.len() as u32);
        let appended = |pieces: &mut Pieces| {
            let key = pieces.append(hash, key, bytes);
            Slot { key, value_bytes, room: bytes.len() as u32 }
        };
        if let Some(slot) = known {
            if !pieces.replace(slot, value) {
                *slot = appended(pieces);
            }
            return;
        }
        let slot = appended(pieces);
        partition.table.insert_unique(spread(hash), slot, |slot| spread(slot.key.hash));
        partition.note(pieces, slot.key);
        *keys += 1;
    }

    /// The last write of a key, if any.
    pub(super) fn get(&self, partition: u32, hash: u32, key: &[u8]) -> Option<Option<&[u8]>> {
        let slot = self.partitions.get(&partition)?.find(&self.pieces, hash, key)?;
        Some(self.pieces.value(slot))
    }

    /// Writes of a partition after the key `after`, as several sequences in key order. No key is in
    /// two of them.
    pub(super) fn sequences<'a>(&'a self, partition: u32, after: Option<&[u8]>) -> Vec<Sequence<'a>> {
        let Some(partition) = self.partitions.get(&partition) else { return Vec::new() };
        let is_before = |key: &Key| after.is_some_and(|after| self.pieces.key(*key) <= after);
        let with_value = |key: Key| self.written(partition, key);
        let (runs, rest) = partition.keys.as_chunks::<RUN_KEYS>();
        let from_run = |run: &'a [Key; RUN_KEYS]| -> Sequence<'a> {
            Box::new(run[run.partition_point(is_before)..].iter().copied().map(with_value))
        };
        let mut sequences: Vec<Sequence<'a>> = runs.iter().map(from_run).collect();
        let mut rest: Vec<Key> = rest.iter().copied().filter(|key| !is_before(key)).collect();
        sort(&self.pieces, &mut rest);
        sequences.push(Box::new(rest.into_iter().map(with_value)));
        sequences
    }

    fn written<'a>(&'a self, partition: &'a Partition, key: Key) -> Write<'a> {
        let name = self.pieces.key(key);
        let slot = partition.find(&self.pieces, key.hash, name).expect("what was noted is in the table");
        (name, self.pieces.value(slot))
    }

    /// Visits all writes, ordered by partition and key.
    pub(super) fn for_each(&self, mut visit: impl FnMut(u32, Write<'_>)) {
        let mut partitions: Vec<_> = self.partitions.iter().collect();
        partitions.sort_unstable_by_key(|(number, _)| **number);
        let mut writes: Vec<Write<'_>> = Vec::new();
        for (number, partition) in partitions {
            writes.clear();
            writes.extend(
                partition.table.iter().map(|slot| (self.pieces.key(slot.key), self.pieces.value(slot))),
            );
            writes.sort_unstable_by_key(|(key, _)| *key);
            writes.iter().for_each(|write| visit(*number, *write));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    type Model = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

    fn borrowed<'a>((key, value): (&'a Vec<u8>, &'a Option<Vec<u8>>)) -> Write<'a> {
        (key, value.as_deref())
    }

    /// The writes that scans see.
    fn scanned<'a>(buffer: &'a Buffer, partition: u32, after: Option<&[u8]>) -> Vec<Write<'a>> {
        let mut found = Vec::new();
        for sequence in buffer.sequences(partition, after) {
            let sequence: Vec<_> = sequence.collect();
            assert!(sequence.is_sorted_by_key(|(key, _)| *key));
            found.extend(sequence);
        }
        found.sort_unstable();
        found
    }

    fn check(buffer: &Buffer, model: &Model, hash: impl Fn(&[u8]) -> u32) {
        let all: Vec<_> = model.iter().map(borrowed).collect();
        for after in [None, Some(&b""[..]), Some(b"k"), Some(b"key 5"), Some(b"key 999"), Some(b"z")] {
            let expected = all.iter().filter(|(key, _)| after.is_none_or(|after| *key > after));
            assert_eq!(scanned(buffer, 7, after), expected.copied().collect::<Vec<_>>());
        }
        for (key, value) in all {
            assert_eq!(buffer.get(7, hash(key), key), Some(value));
        }
        assert_eq!(buffer.get(7, hash(b"none"), b"none"), None);
    }

    #[test]
    fn the_newest_write_of_each_key_is_found_in_order() {
        // Few distinct hashes: keys with equal hashes stay distinct.
        let hash = |key: &[u8]| key.iter().map(|byte| u32::from(*byte)).sum();
        let (mut buffer, mut model) = (Buffer::default(), Model::new());
        for step in 0..5 * RUN_KEYS as u32 {
            let number = step.wrapping_mul(2_654_435_761) >> 20;
            let (key, length) = (format!("key {number}").into_bytes(), step % 97);
            let value = (step % 7 != 0).then(|| vec![step as u8; length as usize]);
            buffer.write(7, hash(&key), &key, value.as_deref());
            model.insert(key, value);
            if step % 900 == 0 {
                check(&buffer, &model, hash);
            }
        }
        assert!(model.len() > 2 * RUN_KEYS && buffer.len() == model.len());
        check(&buffer, &model, hash);
    }

    #[test]
    fn partitions_are_separate_and_ordered() {
        let mut buffer = Buffer::default();
        assert!(buffer.is_empty() && buffer.sequences(3, None).is_empty());
        for partition in [9, 2, u32::MAX, 3] {
            for key in [&b"b"[..], b"", b"a"] {
                buffer.write(partition, 1, key, Some(&partition.to_be_bytes()));
            }
        }
        buffer.write(3, 1, b"a", None);
        assert_eq!((buffer.get(3, 1, b"a"), buffer.get(4, 1, b"a")), (Some(None), None));
        let mut visited = Vec::new();
        buffer.for_each(|partition, (key, value)| {
            visited.push((partition, key.to_vec(), value.map(<[u8]>::to_vec)));
        });
        let value = |partition: u32, key: &[u8]| {
            ((partition, key) != (3, b"a")).then(|| partition.to_be_bytes().to_vec())
        };
        let expected = [2, 3, 9, u32::MAX].into_iter().flat_map(|partition| {
            [&b""[..], b"a", b"b"].map(|key| (partition, key.to_vec(), value(partition, key)))
        });
        assert_eq!(visited, expected.collect::<Vec<_>>());
    }

    #[test]
    fn value_is_overwritten_in_place_if_it_fits() {
        let mut buffer = Buffer::default();
        let used = |buffer: &Buffer| buffer.pieces.0.iter().map(Vec::len).sum::<usize>();
        for length in [100, 40, 100, 0] {
            buffer.write(1, 5, b"key", Some(&vec![length; length.into()]));
            assert_eq!(buffer.get(1, 5, b"key"), Some(Some(&vec![length; length.into()][..])));
            assert_eq!(used(&buffer), 103);
        }
        buffer.write(1, 5, b"key", None);
        buffer.write(1, 5, b"key", Some(&[1; 101]));
        assert_eq!((used(&buffer), buffer.len()), (103 + 104, 1));
        // An entry larger than a piece gets its own.
        let long = vec![2; PIECE_BYTES + 1];
        buffer.write(1, 5, b"key", Some(&long));
        buffer.write(1, 6, b"next", Some(b"value"));
        assert_eq!(buffer.get(1, 5, b"key"), Some(Some(&long[..])));
        assert_eq!((buffer.get(1, 6, b"next"), buffer.pieces.0.len()), (Some(Some(&b"value"[..])), 3));
    }
}
