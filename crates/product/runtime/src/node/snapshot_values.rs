//! Large values of a snapshot's entries: each is read after its entry, in order. A value that is
//! removed meanwhile stays on disk until it has been read.

use nicekv_proto::OpId;
use nicekv_proto::large::Reference;
use nicekv_proto::recovery::Entry;
use nicekv_replica::stored_entries;
use std::collections::{HashMap, VecDeque};

/// Bytes of a value that are read at once.
const PART_BYTES: u32 = 64 << 10;
/// Most bytes of removed values that are kept for the snapshot.
const KEPT_BYTES_MAX: u64 = 1 << 30;

/// The large values that a snapshot must read; see the module documentation.
#[derive(Default)]
pub(super) struct SnapshotValues {
    /// Values of sent entries. The bytes of the first one before `offset` were sent, too.
    sent: VecDeque<Reference>,
    offset: u32,
    /// For each value that is not completely read: its length, and the number of entries, sent or
    /// not, that refer to it.
    unread: HashMap<OpId, (usize, u32)>,
    /// Values of `unread` that must be removed once they are read.
    kept: HashMap<OpId, u32>,
    kept_bytes: u64,
}

impl SnapshotValues {
    /// An entry will be sent: its value must be read.
    pub(super) fn need(&mut self, entry: &[u8]) {
        if let Some(reference) = Entry::reference_of(entry) {
            self.unread.entry(reference.name).or_insert((0, reference.length)).0 += 1;
        }
    }

    /// A page of entries is sent: their values follow.
    pub(super) fn send(&mut self, page: &[u8]) {
        self.sent.extend(stored_entries(page).filter_map(|(_, entry)| Entry::reference_of(entry)));
    }

    /// The next part to read: value, offset, length.
    pub(super) fn next(&self) -> Option<(OpId, u32, usize)> {
        let Reference { name, length, .. } = *self.sent.front()?;
        Some((name, self.offset, PART_BYTES.min(length - self.offset) as usize))
    }

    /// The next part was read. Returns a value that may be removed now.
    pub(super) fn advance(&mut self, bytes: usize) -> Option<OpId> {
        let Reference { name, length, .. } = *self.sent.front()?;
        self.offset += bytes as u32;
        if self.offset < length {
            return None;
        }
        self.sent.pop_front();
        self.offset = 0;
        let (entries, _) = self.unread.get_mut(&name)?;
        *entries -= 1;
        if *entries > 0 {
            return None;
        }
        self.unread.remove(&name);
        self.forget(name).then_some(name)
    }

    /// A value is about to be removed. Returns whether it must be kept for now.
    pub(super) fn keep(&mut self, name: OpId) -> bool {
        let Some((_, length)) = self.unread.get(&name) else { return false };
        if self.kept.insert(name, *length).is_none() {
            self.kept_bytes += u64::from(*length);
        }
        true
    }

    /// Stops keeping a value, which must be removed now. Returns whether it was kept.
    pub(super) fn forget(&mut self, name: OpId) -> bool {
        let length = self.kept.remove(&name);
        self.kept_bytes -= length.map_or(0, u64::from);
        length.is_some()
    }

    /// Whether more than [`KEPT_BYTES_MAX`] bytes are kept.
    pub(super) fn is_too_much(&self) -> bool {
        self.kept_bytes > KEPT_BYTES_MAX
    }

    /// The values that are still kept when the snapshot ends.
    pub(super) fn into_kept(self) -> impl Iterator<Item = OpId> {
        self.kept.into_keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_proto::limits::LARGE_BYTES_MAX;
    use nicekv_proto::recovery::put_keyed_entry;
    use nicekv_proto::{ClientId, Form};

    fn name(sequence: u64) -> OpId {
        OpId { client: ClientId(1), sequence }
    }

    fn entry(sequence: u64, length: u32) -> Vec<u8> {
        let reference = Reference { name: name(sequence), length, checksum: 7 }.bytes();
        let mut entry = Vec::new();
        let (version, value) = (name(sequence), Some(&reference[..]));
        Entry { index: 1, version, expiry_ms: 0, form: Form::Large, value }.append(&mut entry);
        entry
    }

    #[test]
    fn values_are_read_in_parts_and_in_the_order_of_their_entries() {
        let (mut values, mut page) = (SnapshotValues::default(), Vec::new());
        for (sequence, length) in [(5, 150_000), (2, 2_000)] {
            let entry = entry(sequence, length);
            values.need(&entry);
            put_keyed_entry(&mut page, &[sequence as u8], &entry);
        }
        assert_eq!(values.next(), None, "no entry was sent yet");
        values.send(&page);
        for expected in [(5, 0, 65_536), (5, 65_536, 65_536), (5, 131_072, 18_928), (2, 0, 2_000)] {
            let (of, offset, bytes) = values.next().unwrap();
            assert_eq!((of, offset, bytes), (name(expected.0), expected.1, expected.2));
            assert_eq!(values.advance(bytes), None, "the value was not removed");
        }
        assert_eq!(values.next(), None);
    }

    #[test]
    fn removed_value_stays_until_its_last_entry_is_read() {
        let (mut values, mut page) = (SnapshotValues::default(), Vec::new());
        for key in [b"a", b"b"] {
            values.need(&entry(5, 2_000));
            put_keyed_entry(&mut page, key, &entry(5, 2_000));
        }
        assert!(!values.keep(name(4)) && values.keep(name(5)), "only values still to be read are kept");
        values.send(&page);
        assert_eq!(values.advance(2_000), None);
        assert_eq!(values.advance(2_000), Some(name(5)));
        assert!(!values.keep(name(5)) && !values.forget(name(5)));
        values.need(&entry(6, 2_000));
        assert!(values.keep(name(6)) && !values.is_too_much());
        for sequence in [7, 8] {
            values.need(&entry(sequence, LARGE_BYTES_MAX));
            assert!(!values.is_too_much() && values.keep(name(sequence)));
        }
        assert!(values.is_too_much());
        assert!((7..9).all(|sequence| values.forget(name(sequence))), "kept values can be released");
        assert_eq!(values.into_kept().collect::<Vec<_>>(), [name(6)]);
    }
}
