//! Reassembly of messages that arrive in a few parts.
//!
//! Lost parts are not requested. A sender that repeats a message sends equal parts, which complete
//! those received before. Memory is bounded: all senders together share `bytes_max`, and one sender
//! gets at most a quarter of it, so that it cannot crowd out the others. When the limit is reached,
//! the message that has been idle longest is dropped.

use crate::checksum;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// An incomplete message is dropped after this time without a part.
const ABANDONED_NS: u64 = 5_000_000_000;

/// A part of a message.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// [`name_of`] the message.
    pub name: u64,
    /// Number of parts of the message, 1 to 64.
    pub count: u8,
    /// Index of this part, from 0.
    pub index: u8,
    /// Its bytes. All parts but the last have the same length.
    pub bytes: &'a [u8],
}

/// A part is invalid, or contradicts earlier parts or the name of its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// The name that all parts of a message carry: a hash of the message, so that equal messages have
/// equal names.
pub fn name_of(message: &[u8]) -> u64 {
    checksum(message) as u64
}

#[derive(Clone, Debug)]
struct Message {
    bytes: Vec<u8>,
    /// Bit `i` is set once part `i` has arrived.
    have: u64,
    count: u8,
    /// Length of the last part, once it has arrived.
    last_bytes: usize,
    active_ns: u64,
}

/// Incomplete messages, by sender (`S`) and name.
#[derive(Clone, Debug)]
pub struct Assembler<S> {
    part_bytes: usize,
    bytes_max: usize,
    messages: BTreeMap<(S, u64), Message>,
}

impl<S: Copy + Ord> Assembler<S> {
    /// `part_bytes` is the length of each part but the last; `bytes_max` bounds the memory of all
    /// incomplete messages.
    pub fn new(part_bytes: usize, bytes_max: usize) -> Self {
        Self { part_bytes, bytes_max, messages: BTreeMap::new() }
    }

    /// Adds a part. Returns the message if it is complete now.
    ///
    /// # Errors
    /// The part contradicts earlier parts of its message, or the message does not match its name.
    pub fn take(&mut self, now_ns: u64, sender: S, part: &Part<'_>) -> Result<Option<Vec<u8>>, Malformed> {
        let Part { name, count, index, bytes } = *part;
        let is_last = index + 1 == count;
        let is_long_enough = if is_last { !bytes.is_empty() } else { bytes.len() == self.part_bytes };
        if index >= count || count > 64 || !is_long_enough || bytes.len() > self.part_bytes {
            return Err(Malformed);
        }
        if !self.messages.contains_key(&(sender, name)) {
            self.make_room(now_ns, sender, usize::from(count) * self.part_bytes);
        }
        let message = self.messages.entry((sender, name)).or_insert_with(|| Message {
            bytes: vec![0; usize::from(count) * self.part_bytes],
            have: 0,
            count,
            last_bytes: 0,
            active_ns: now_ns,
        });
        if message.count != count {
            return Err(Malformed);
        }
        message.active_ns = now_ns;
        message.have |= 1 << index;
        message.bytes[usize::from(index) * self.part_bytes..][..bytes.len()].copy_from_slice(bytes);
        if is_last {
            message.last_bytes = bytes.len();
        }
        if message.have.count_ones() < count.into() {
            return Ok(None);
        }
        let whole = self.messages.remove(&(sender, name)).expect("just inserted");
        let mut bytes = whole.bytes;
        bytes.truncate((usize::from(count) - 1) * self.part_bytes + whole.last_bytes);
        if name_of(&bytes) == name { Ok(Some(bytes)) } else { Err(Malformed) }
    }

    /// Bytes of incomplete messages.
    pub fn bytes(&self) -> usize {
        self.messages.values().map(|message| message.bytes.len()).sum()
    }

    fn make_room(&mut self, now_ns: u64, sender: S, bytes: usize) {
        self.messages.retain(|_, message| now_ns.saturating_sub(message.active_ns) < ABANDONED_NS);
        self.drop_oldest(|of| *of == sender, (self.bytes_max / 4).saturating_sub(bytes));
        self.drop_oldest(|_| true, self.bytes_max.saturating_sub(bytes));
    }

    /// Drops messages of the senders selected by `is_of`, longest idle first, until they use at
    /// most `bytes_max`.
    fn drop_oldest(&mut self, is_of: impl Fn(&S) -> bool, bytes_max: usize) {
        loop {
            let some = || self.messages.iter().filter(|((sender, _), _)| is_of(sender));
            let bytes: usize = some().map(|(_, message)| message.bytes.len()).sum();
            let oldest = some().min_by_key(|(_, message)| message.active_ns).map(|(key, _)| *key);
            match oldest.filter(|_| bytes > bytes_max) {
                Some(key) => self.messages.remove(&key),
                None => return,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: usize = 10;

    fn parts(message: &[u8]) -> Vec<Part<'_>> {
        let count = message.len().div_ceil(PART) as u8;
        let name = name_of(message);
        (0..count)
            .zip(message.chunks(PART))
            .map(|(index, bytes)| Part { name, count, index, bytes })
            .collect()
    }

    fn message(of: u8) -> Vec<u8> {
        (0..35).map(|at| at ^ of).collect()
    }

    #[test]
    fn message_completes_despite_reordered_and_duplicate_parts() {
        let (mut assembler, message) = (Assembler::new(PART, 1_000), message(0));
        let parts = parts(&message);
        for index in [3, 1, 1, 0] {
            assert_eq!(assembler.take(1, 'a', &parts[index]), Ok(None));
        }
        assert_eq!(assembler.take(1, 'b', &parts[2]), Ok(None), "parts of another sender do not count");
        assert_eq!(assembler.take(1, 'a', &parts[2]), Ok(Some(message.clone())));
        assert_eq!(assembler.bytes(), 40, "the other sender's message is incomplete");
        assert_eq!(assembler.take(2 + ABANDONED_NS, 'a', &parts[2]), Ok(None));
        assert_eq!(assembler.bytes(), 40, "the other sender's message has timed out");
    }

    #[test]
    fn malformed_parts_are_refused() {
        let (mut assembler, message) = (Assembler::new(PART, 1_000), message(0));
        let parts = parts(&message);
        let bad = [
            Part { index: 4, ..parts[0] },
            Part { count: 65, ..parts[0] },
            Part { bytes: &message[..9], ..parts[0] },
            Part { bytes: &message[..11], ..parts[0] },
            Part { bytes: b"", ..parts[3] },
        ];
        for part in bad {
            assert_eq!(assembler.take(1, 'a', &part), Err(Malformed), "{part:?}");
        }
        assert_eq!(assembler.bytes(), 0);
        assert_eq!(assembler.take(1, 'a', &parts[0]), Ok(None));
        assert_eq!(assembler.take(1, 'a', &Part { count: 5, ..parts[1] }), Err(Malformed));
        for part in &parts[1..3] {
            assert_eq!(assembler.take(1, 'a', part), Ok(None));
        }
        let other = Part { bytes: &message[..5], ..parts[3] };
        assert_eq!(assembler.take(1, 'a', &other), Err(Malformed), "the message does not match its name");
        assert_eq!(assembler.bytes(), 0);
    }

    #[test]
    fn one_sender_uses_at_most_a_quarter_of_the_memory() {
        let mut assembler = Assembler::new(PART, 400);
        assert_eq!(assembler.take(1, 'a', &parts(&message(1))[0]), Ok(None));
        for of in 2..20 {
            assert_eq!(assembler.take(of.into(), 'b', &parts(&message(of))[0]), Ok(None));
            assert!(assembler.bytes() <= 40 + 100);
        }
        let of_a = message(1);
        for (index, part) in parts(&of_a).iter().enumerate().skip(1) {
            let whole = (index == 3).then(|| of_a.clone());
            assert_eq!(assembler.take(30, 'a', part), Ok(whole));
        }
        for (sender, of) in ('c'..='z').zip(0..) {
            assert_eq!(assembler.take(40, sender, &parts(&message(of))[0]), Ok(None));
            assert!(assembler.bytes() <= 400);
        }
    }
}
