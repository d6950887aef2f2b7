//! Messages that come in a few parts, as a whole.
//!
//! What is lost is not asked for: who sends the message again sends equal parts, and these complete what is here. Memory is bounded: of all senders together, and of one at a quarter of that, so that nobody
//! takes the places of all others; where there is no more, what was heard of the longest ago goes.

use crate::checksum;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// What is heard of no more is let go of after so long.
const ABANDONED_NS: u64 = 5_000_000_000;

/// A part of a message.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// [`name_of`] the message.
    pub name: u64,
    /// In how many parts it comes, 1 to 64.
    pub count: u8,
    /// Which of them this is, from 0.
    pub index: u8,
    /// All but the last are equally long.
    pub bytes: &'a [u8],
}

/// Why a part was not taken: no honest sender sends such.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// The name under which the parts of a message go: equal messages have equal names.
pub fn name_of(message: &[u8]) -> u64 {
    checksum(message) as u64
}

#[derive(Clone, Debug)]
struct Message {
    bytes: Vec<u8>,
    /// Bit for bit which parts are here.
    have: u64,
    count: u8,
    /// Of the last part, once it is here.
    last_bytes: usize,
    heard_ns: u64,
}

/// Messages of senders `S` that are not whole yet.
#[derive(Clone, Debug)]
pub struct Assembler<S> {
    part_bytes: usize,
    bytes_max: usize,
    messages: BTreeMap<(S, u64), Message>,
}

impl<S: Copy + Ord> Assembler<S> {
    /// For parts of so many bytes, and messages that have so many together.
    pub fn new(part_bytes: usize, bytes_max: usize) -> Self {
        Self { part_bytes, bytes_max, messages: BTreeMap::new() }
    }

    /// A part has come. The message, if that was the last one that it lacked.
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
            heard_ns: now_ns,
        });
        if message.count != count {
            return Err(Malformed);
        }
        message.heard_ns = now_ns;
        message.have |= 1 << index;
        message.bytes[usize::from(index) * self.part_bytes..][..bytes.len()].copy_from_slice(bytes);
        if is_last {
            message.last_bytes = bytes.len();
        }
        if message.have.count_ones() < count.into() {
            return Ok(None);
        }
        let whole = self.messages.remove(&(sender, name)).expect("it was there");
        let mut bytes = whole.bytes;
        bytes.truncate((usize::from(count) - 1) * self.part_bytes + whole.last_bytes);
        if name_of(&bytes) == name { Ok(Some(bytes)) } else { Err(Malformed) }
    }

    /// Bytes of what is not whole.
    pub fn bytes(&self) -> usize {
        self.messages.values().map(|message| message.bytes.len()).sum()
    }

    fn make_room(&mut self, now_ns: u64, sender: S, bytes: usize) {
        self.messages.retain(|_, message| now_ns.saturating_sub(message.heard_ns) < ABANDONED_NS);
        self.drop_oldest(|of| *of == sender, (self.bytes_max / 4).saturating_sub(bytes));
        self.drop_oldest(|_| true, self.bytes_max.saturating_sub(bytes));
    }

    /// Those that were heard of the longest ago, of some senders, until these have no more than so many bytes.
    fn drop_oldest(&mut self, is_of: impl Fn(&S) -> bool, bytes_max: usize) {
        loop {
            let some = || self.messages.iter().filter(|((sender, _), _)| is_of(sender));
            let bytes: usize = some().map(|(_, message)| message.bytes.len()).sum();
            let oldest = some().min_by_key(|(_, message)| message.heard_ns).map(|(key, _)| *key);
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
    fn parts_in_any_order_and_several_times_make_the_message() {
        let (mut assembler, message) = (Assembler::new(PART, 1_000), message(0));
        let parts = parts(&message);
        for index in [3, 1, 1, 0] {
            assert_eq!(assembler.take(1, 'a', &parts[index]), Ok(None));
        }
        assert_eq!(assembler.take(1, 'b', &parts[2]), Ok(None), "another sender's");
        assert_eq!(assembler.take(1, 'a', &parts[2]), Ok(Some(message.clone())));
        assert_eq!(assembler.bytes(), 40, "of the other one");
        assert_eq!(assembler.take(2 + ABANDONED_NS, 'a', &parts[2]), Ok(None));
        assert_eq!(assembler.bytes(), 40, "the other one's is given up");
    }

    #[test]
    fn what_no_honest_sender_sends_is_refused() {
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
        assert_eq!(assembler.take(1, 'a', &other), Err(Malformed), "not what its name says");
        assert_eq!(assembler.bytes(), 0);
    }

    #[test]
    fn nobody_takes_more_than_a_quarter() {
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
