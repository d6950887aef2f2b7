//! Large values of a backup: their entries come first, then the values in parts, in the order of the entries.

use super::format::Part;
use nicekv_transport::Checksum;
use nicekv_wire::large::Reference;
use nicekv_wire::recovery::Entry;
use std::collections::VecDeque;

/// Entries whose values are still to come.
#[derive(Default)]
pub(super) struct LargeEntries {
    expected: VecDeque<Expected>,
    /// Of the first one, as far as it has come.
    checksum: Checksum,
    offset: u32,
    value: Vec<u8>,
}

struct Expected {
    key: Vec<u8>,
    reference: Reference,
    expiry_ms: u64,
}

/// A value that has come to its end.
pub(super) struct Whole {
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
    pub(super) expiry_ms: u64,
}

impl LargeEntries {
    /// If this entry speaks of a large value, that is to come.
    pub(super) fn expect(&mut self, key: &[u8], entry: &Entry<'_>) {
        if let Some(reference) = entry.large() {
            self.expected.push_back(Expected { key: key.to_vec(), reference, expiry_ms: entry.expiry_ms });
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.expected.is_empty()
    }

    /// A part has come, and is not kept.
    pub(super) fn check(&mut self, part: &Part) -> Result<(), String> {
        self.add(part).map(drop)
    }

    /// A part has come; the value, if that was its end.
    pub(super) fn take(&mut self, part: &Part) -> Result<Option<Whole>, String> {
        self.value.extend_from_slice(&part.bytes);
        let whole = self.add(part)?.map(|Expected { key, expiry_ms, .. }| Whole {
            key,
            value: std::mem::take(&mut self.value),
            expiry_ms,
        });
        Ok(whole)
    }

    fn add(&mut self, part: &Part) -> Result<Option<Expected>, String> {
        let Some(Expected { key, reference, .. }) = self.expected.front() else {
            return Err("a part of a value of which no entry speaks".into());
        };
        let left = reference.length - self.offset;
        let is_next = part.name == reference.name && part.offset == self.offset;
        if !is_next || part.bytes.is_empty() || part.bytes.len() as u64 > u64::from(left) {
            return Err(format!("not the next part of the value of {}", key.escape_ascii()));
        }
        self.checksum.update(&part.bytes);
        self.offset += part.bytes.len() as u32;
        if self.offset < reference.length {
            return Ok(None);
        }
        if self.checksum.finish() != reference.checksum {
            return Err(format!("the value of {} is not what its entry says", key.escape_ascii()));
        }
        (self.checksum, self.offset) = (Checksum::new(), 0);
        Ok(self.expected.pop_front())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_wire::{ClientId, OpId};

    fn name(sequence: u64) -> OpId {
        OpId { client: ClientId(1), sequence }
    }

    fn value(sequence: u64) -> Vec<u8> {
        vec![sequence as u8; 2_000 * sequence as usize]
    }

    /// Entries of these values, whose names say how long they are.
    fn expecting(sequences: &[u64]) -> LargeEntries {
        let mut large = LargeEntries::default();
        for sequence in sequences {
            let (name, value) = (name(*sequence), value(*sequence));
            let checksum = nicekv_transport::checksum(&value);
            let reference = Reference { name, length: value.len() as u32, checksum }.bytes();
            let value = Some(&reference[..]);
            let entry = Entry { index: 1, version: name, expiry_ms: *sequence, is_large: true, value };
            large.expect(&[*sequence as u8], &entry);
        }
        large
    }

    fn part(sequence: u64, offset: u32, bytes: &[u8]) -> Part {
        Part { name: name(sequence), offset, bytes: bytes.to_vec() }
    }

    #[test]
    fn values_come_one_after_the_other() {
        let mut large = expecting(&[2, 1]);
        assert!(large.take(&part(2, 0, &value(2)[..1_500])).unwrap().is_none());
        for (sequence, offset) in [(2, 1_500), (1, 0)] {
            let whole = large.take(&part(sequence, offset, &value(sequence)[offset as usize..])).unwrap();
            let Whole { key, value: found, expiry_ms } = whole.unwrap();
            assert_eq!((key, found, expiry_ms), (vec![sequence as u8], value(sequence), sequence));
        }
        assert!(large.is_empty());
    }

    #[test]
    fn what_is_not_the_next_part_of_the_right_value_is_refused() {
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
}
