//! Volatile large values.

use super::beyond;
use nicekv_proto::OpId;
use nicekv_proto::large::Reference;
use nicekv_proto::limits::LARGE_BYTES_MAX;
use nicekv_replica::ValueEnd;
use nicekv_transport::Checksum;
use std::collections::HashMap;

/// A buffer grows by this factor, …
const GROWTH: usize = 4;
/// … and has at least this many bytes.
const ROOM_BYTES_MIN: usize = 64 << 10;
/// Most bytes of removed values that are kept for reuse: getting a page from the system takes as
/// long as copying a value into it.
const SPARE_BYTES_MAX: usize = 16 << 20;
/// Bytes that are hashed at once, except at the end of a value. Larger pieces are cheaper to hash.
const HASHED_BYTES: usize = 64 << 10;

/// Large values of a volatile node.
#[derive(Default)]
pub(in crate::node) struct MemoryValues {
    parts: HashMap<OpId, Growing>,
    whole: HashMap<OpId, Vec<u8>>,
    spare: Spare,
}

/// Buffers of removed values, kept for reuse; see [`SPARE_BYTES_MAX`].
#[derive(Default)]
struct Spare {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl Spare {
    fn keep(&mut self, mut buffer: Vec<u8>) {
        if self.bytes + buffer.capacity() <= SPARE_BYTES_MAX {
            self.bytes += buffer.capacity();
            buffer.clear();
            self.buffers.push(buffer);
        }
    }

    /// Returns a kept buffer for a value of this length, if it would leave at most half of it
    /// unused; otherwise an empty one.
    fn take(&mut self, length: usize) -> Vec<u8> {
        let fits = |buffer: &Vec<u8>| (length..=2 * length).contains(&buffer.capacity());
        let Some(place) = self.buffers.iter().rposition(fits) else { return Vec::new() };
        let buffer = self.buffers.remove(place);
        self.bytes -= buffer.capacity();
        buffer
    }
}

/// A value that is being written. Bytes that arrive in order are hashed at once, because hashing
/// the whole value at its end would delay other requests.
#[derive(Default)]
struct Growing {
    bytes: Vec<u8>,
    /// All bytes before this offset have arrived in order.
    through: usize,
    checksum: Checksum,
    hashed: usize,
}

impl MemoryValues {
    pub(super) fn write(&mut self, name: OpId, length: u32, offset: u32, bytes: &[u8]) {
        if self.whole.contains_key(&name) {
            return;
        }
        let (end, length) = (offset as usize + bytes.len(), length as usize);
        if end > length {
            return;
        }
        let begin = || Growing { bytes: self.spare.take(length), ..Growing::default() };
        let Growing { bytes: value, through, checksum, hashed } =
            self.parts.entry(name).or_insert_with(begin);
        let (offset, bytes) = beyond(*through, offset, bytes);
        // The buffer grows with the received bytes, not with the stated length.
        if end > value.capacity() {
            let capacity = (GROWTH * end).clamp(ROOM_BYTES_MIN, LARGE_BYTES_MAX as usize).min(length);
            value.reserve_exact(capacity - value.len());
        }
        if value.len() == offset {
            value.extend_from_slice(bytes);
        } else {
            value.resize(end.max(value.len()), 0);
            value[offset..end].copy_from_slice(bytes);
        }
        if *through == offset {
            *through = end;
        }
        if *through >= *hashed + HASHED_BYTES {
            checksum.update(&value[*hashed..*through]);
            *hashed = *through;
        }
    }

    pub(super) fn end(&mut self, reference: &Reference) -> ValueEnd {
        if self.whole.contains_key(&reference.name) {
            return ValueEnd::Whole;
        }
        let Growing { bytes, mut checksum, hashed, .. } =
            self.parts.remove(&reference.name).unwrap_or_default();
        checksum.update(&bytes[hashed..]);
        if bytes.len() != reference.length as usize || checksum.finish() != reference.checksum {
            return ValueEnd::Wrong;
        }
        self.whole.insert(reference.name, bytes);
        ValueEnd::Whole
    }

    pub(super) fn read(&self, name: OpId, offset: u32, out: &mut [u8]) -> bool {
        let value = self.whole.get(&name).and_then(|value| value.get(offset as usize..));
        let Some(part) = value.and_then(|value| value.get(..out.len())) else { return false };
        out.copy_from_slice(part);
        true
    }

    /// Marks a damaged value that will be written again.
    pub(super) fn condemn(&mut self, name: OpId) {
        self.whole.remove(&name);
    }

    pub(super) fn remove(&mut self, name: OpId) {
        let part = self.parts.remove(&name).map(|part| part.bytes);
        let both = [part, self.whole.remove(&name)];
        both.into_iter().flatten().for_each(|bytes| self.spare.keep(bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_removed_values_is_reused_for_similar_lengths() {
        let mut spare = Spare::default();
        spare.keep(vec![7; 1_000_000]);
        assert_eq!(spare.take(499_999).capacity(), 0, "more than half of it would be unused");
        assert_eq!(spare.take(1_000_001).capacity(), 0, "the kept buffer is too short");
        let room = spare.take(500_000);
        assert_eq!((room.capacity(), room.len(), spare.bytes), (1_000_000, 0, 0));
        assert_eq!(spare.take(500_000).capacity(), 0, "the only kept buffer is in use");
        (0..20).for_each(|_| spare.keep(vec![7; 1_000_000]));
        assert_eq!((spare.buffers.len(), spare.bytes), (16, 16_000_000), "kept memory is bounded");
    }
}
