//! Entries of a backup and their values. Large values follow the entries, in parts and in the order
//! of the entries.

use super::format::{Part, Record};
use nicekv_proto::Form;
use nicekv_proto::OpId;
use nicekv_proto::bytes::Reader as Bytes;
use nicekv_proto::large::Reference;
use nicekv_proto::recovery::{Entry, read_keyed_entry};
use nicekv_transport::Checksum;
use std::collections::VecDeque;

type KeyedEntry<'a> = (&'a [u8], Entry<'a>);

/// Decodes a record of entries.
pub(super) fn keyed_entries(bytes: &[u8]) -> Result<Vec<KeyedEntry<'_>>, String> {
    let (mut reader, mut entries) = (Bytes::new(bytes), Vec::new());
    while !reader.is_empty() {
        let (key, entry) = read_keyed_entry(&mut reader).map_err(|error| error.to_string())?;
        let entry = Entry::decode(entry).map_err(|error| error.to_string())?;
        entries.push((key, entry));
    }
    Ok(entries)
}

/// Entries whose large values have not been read yet.
#[derive(Default)]
pub(super) struct LargeEntries {
    expected: VecDeque<Expected>,
    /// Checksum and offset of the first expected value.
    checksum: Checksum,
    offset: u32,
    value: Vec<u8>,
}

struct Expected {
    key: Vec<u8>,
    version: OpId,
    reference: Reference,
    expiry_ms: u64,
}

/// A key with its complete value.
pub(super) struct Whole {
    pub(super) key: Vec<u8>,
    pub(super) version: OpId,
    pub(super) value: Vec<u8>,
    /// [`Form::Plain`] or [`Form::Hash`].
    pub(super) form: Form,
    pub(super) expiry_ms: u64,
}

impl LargeEntries {
    /// Expects the value of an entry if it is large.
    pub(super) fn expect(&mut self, key: &[u8], entry: &Entry<'_>) {
        if let Some(reference) = entry.large() {
            let Entry { version, expiry_ms, .. } = *entry;
            self.expected.push_back(Expected { key: key.to_vec(), version, reference, expiry_ms });
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.expected.is_empty()
    }

    /// Keys whose value is complete with this record; deleted keys are skipped.
    pub(super) fn whole(&mut self, record: &Record) -> Result<Vec<Whole>, String> {
        let bytes = match record {
            Record::Entries(bytes) => bytes,
            Record::Part(part) => return Ok(self.take(part)?.into_iter().collect()),
            _ => return Ok(Vec::new()),
        };
        let mut small = Vec::new();
        for (key, entry) in keyed_entries(bytes)? {
            self.expect(key, &entry);
            let Entry { version, expiry_ms, form, .. } = entry;
            let value = entry.value.filter(|_| form != Form::Large).map(<[u8]>::to_vec);
            small.extend(value.map(|value| Whole { key: key.to_vec(), version, value, form, expiry_ms }));
        }
        Ok(small)
    }

    /// Checks the next part without keeping it.
    pub(super) fn check(&mut self, part: &Part) -> Result<(), String> {
        self.add(part).map(drop)
    }

    /// Adds the next part. If it was the last part of its value, returns the key with the value.
    pub(super) fn take(&mut self, part: &Part) -> Result<Option<Whole>, String> {
        self.value.extend_from_slice(&part.bytes);
        let whole = self.add(part)?.map(|Expected { key, version, expiry_ms, .. }| Whole {
            key,
            version,
            value: std::mem::take(&mut self.value),
            form: Form::Plain,
            expiry_ms,
        });
        Ok(whole)
    }

    fn add(&mut self, part: &Part) -> Result<Option<Expected>, String> {
        let Some(Expected { key, reference, .. }) = self.expected.front() else {
            return Err("a part of a value that no entry refers to".into());
        };
        let left = reference.length - self.offset;
        let is_next = part.name == reference.name && part.offset == self.offset;
        if !is_next || part.bytes.is_empty() || part.bytes.len() as u64 > u64::from(left) {
            return Err(format!("unexpected part of the value of {}", key.escape_ascii()));
        }
        self.checksum.update(&part.bytes);
        self.offset += part.bytes.len() as u32;
        if self.offset < reference.length {
            return Ok(None);
        }
        if self.checksum.finish() != reference.checksum {
            return Err(format!("the value of {} does not match its entry", key.escape_ascii()));
        }
        (self.checksum, self.offset) = (Checksum::new(), 0);
        Ok(self.expected.pop_front())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_proto::ClientId;
    use nicekv_proto::recovery::put_keyed_entry;

    fn name(sequence: u64) -> OpId {
        OpId { client: ClientId(1), sequence }
    }

    fn value(sequence: u64) -> Vec<u8> {
        vec![sequence as u8; 2_000 * sequence as usize]
    }

    /// Entries of large values; the sequence in a value's name is its length.
    fn expecting(sequences: &[u64]) -> LargeEntries {
        let mut large = LargeEntries::default();
        for sequence in sequences {
            let (name, value) = (name(*sequence), value(*sequence));
            let checksum = nicekv_transport::checksum(&value);
            let reference = Reference { name, length: value.len() as u32, checksum }.bytes();
            let value = Some(&reference[..]);
            let entry = Entry { index: 1, version: name, expiry_ms: *sequence, form: Form::Large, value };
            large.expect(&[*sequence as u8], &entry);
        }
        large
    }

    fn part(sequence: u64, offset: u32, bytes: &[u8]) -> Part {
        Part { name: name(sequence), offset, bytes: bytes.to_vec() }
    }

    #[test]
    fn values_follow_in_order() {
        let mut large = expecting(&[2, 1]);
        assert!(large.take(&part(2, 0, &value(2)[..1_500])).unwrap().is_none());
        for (sequence, offset) in [(2, 1_500), (1, 0)] {
            let whole = large.take(&part(sequence, offset, &value(sequence)[offset as usize..])).unwrap();
            let Whole { key, value: found, expiry_ms, .. } = whole.unwrap();
            assert_eq!((key, found, expiry_ms), (vec![sequence as u8], value(sequence), sequence));
        }
        assert!(large.is_empty());
    }

    #[test]
    fn small_values_are_complete_and_deleted_keys_are_skipped() {
        let mut bytes = Vec::new();
        for (key, value) in [(b"a", Some(&b"small"[..])), (b"b", None)] {
            let mut entry = Vec::new();
            Entry { index: 1, version: name(7), expiry_ms: 9, form: Form::Plain, value }.append(&mut entry);
            put_keyed_entry(&mut bytes, key, &entry);
        }
        let whole = LargeEntries::default().whole(&Record::Entries(bytes.clone())).unwrap();
        let [Whole { key, version, value, expiry_ms, .. }] = &whole[..] else {
            panic!("{} keys", whole.len())
        };
        assert_eq!((&key[..], *version, &value[..], *expiry_ms), (&b"a"[..], name(7), &b"small"[..], 9));
        assert!(LargeEntries::default().whole(&Record::Entries(bytes[..bytes.len() - 1].to_vec())).is_err());
    }

    #[test]
    fn unexpected_parts_are_refused() {
        assert!(expecting(&[]).check(&part(1, 0, &value(1))).is_err());
        for wrong in [
            part(1, 0, &value(1)),
            part(2, 1, &value(2)[1..]),
            part(2, 0, &[]),
            part(2, 0, &[2; 4_001]),
            part(2, 0, &[9; 4_000]),
        ] {
            assert!(expecting(&[2, 1]).check(&wrong).is_err(), "{wrong:?}");
        }
        assert!(!expecting(&[1]).is_empty());
    }

    #[test]
    fn hashes_are_complete_and_keep_their_form() {
        let (mut hash, mut entry, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        nicekv_proto::hash::Field { name: b"color", value: b"blue" }.append(&mut hash);
        let (form, value) = (Form::Hash, Some(&hash[..]));
        Entry { index: 1, version: name(7), expiry_ms: 9, form, value }.append(&mut entry);
        put_keyed_entry(&mut bytes, b"key", &entry);
        let whole = LargeEntries::default().whole(&Record::Entries(bytes)).unwrap();
        let [whole] = &whole[..] else { panic!("{} keys", whole.len()) };
        assert_eq!((&whole.value, whole.form, whole.expiry_ms), (&hash, Form::Hash, 9));
    }
}
