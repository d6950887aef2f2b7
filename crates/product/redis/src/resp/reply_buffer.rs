//! Replies to be sent: bytes, and between them references to large values, which are not copied.
//!
//! ```text
//!   bytes   $67108864\r\n │ \r\n+OK\r\n$9000\r\n │ \r\n
//!   parts                 ▲ 64 MiB               ▲ 9,000
//! ```

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;
use nicekv_client::SharedBytes;

/// Shorter values are copied: that costs less than a reference (see ARCHITECTURE.md).
const COPIED_BYTES_MAX: usize = 4 << 10;
/// Maximum number of different error codes that a buffer counts.
const ERROR_CODES_MAX: usize = 128;

/// A part of a large value, to be inserted at an offset of the bytes.
#[derive(Debug)]
struct Part {
    offset: usize,
    value: SharedBytes,
    range: Range<usize>,
}

/// Number of error replies by code, which is the first word of an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorCounts {
    by_code: Vec<(Box<str>, u64)>,
    total: u64,
}

impl ErrorCounts {
    pub fn total(&self) -> u64 {
        self.total
    }

    pub fn by_code(&self) -> impl Iterator<Item = (&str, u64)> {
        self.by_code.iter().map(|(code, count)| (&**code, *count))
    }

    fn add(&mut self, code: &str, count: u64) {
        self.total += count;
        if let Some((_, known)) = self.by_code.iter_mut().find(|(known, _)| **known == *code) {
            *known += count;
        } else if self.by_code.len() < ERROR_CODES_MAX {
            self.by_code.push((code.into(), count));
        }
    }

    pub fn merge(&mut self, other: &Self) {
        other.by_code().for_each(|(code, count)| self.add(code, count));
    }
}

#[derive(Debug, Default)]
pub struct ReplyBuffer {
    bytes: Vec<u8>,
    parts: VecDeque<Part>,
    /// Total length of the parts.
    part_bytes: usize,
    /// Errors that were written and not taken yet; usually none.
    errors: Option<Box<ErrorCounts>>,
}

impl ReplyBuffer {
    pub fn len(&self) -> usize {
        self.bytes.len() + self.part_bytes
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it contains references to large values.
    pub fn has_parts(&self) -> bool {
        !self.parts.is_empty()
    }

    /// Bytes of memory in use, not counting large values.
    pub fn memory(&self) -> usize {
        self.bytes.capacity() + self.parts.capacity() * size_of::<Part>()
    }

    /// Bytes of content, not counting large values.
    pub fn own_bytes(&self) -> usize {
        self.bytes.len() + self.parts.len() * size_of::<Part>()
    }

    pub fn shrink_to(&mut self, spare: usize) {
        self.bytes.shrink_to(spare);
        self.parts.shrink_to(0);
    }

    pub fn reserve_exact(&mut self, additional: usize) {
        self.bytes.reserve_exact(additional);
    }

    pub fn push(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends `bytes`; by reference if they are a long part of `shared`.
    pub fn extend_shared(&mut self, bytes: &[u8], shared: Option<&SharedBytes>) {
        let long = shared.filter(|_| bytes.len() > COPIED_BYTES_MAX);
        match long.and_then(|value| Some((value.clone(), range_within(value, bytes)?))) {
            Some((value, range)) => {
                self.part_bytes += range.len();
                self.parts.push_back(Part { offset: self.bytes.len(), value, range });
            }
            None => self.bytes.extend_from_slice(bytes),
        }
    }

    /// Appends another buffer with its error counts.
    pub fn append(&mut self, other: Self) {
        let offset = self.bytes.len();
        self.parts.extend(other.parts.into_iter().map(|part| Part { offset: offset + part.offset, ..part }));
        self.part_bytes += other.part_bytes;
        self.bytes.extend_from_slice(&other.bytes);
        if let Some(errors) = other.errors {
            self.errors.get_or_insert_default().merge(&errors);
        }
    }

    pub(super) fn count_error(&mut self, text: &[u8]) {
        let code = text.split(|byte| *byte == b' ').next().unwrap_or_default();
        self.errors.get_or_insert_default().add(&String::from_utf8_lossy(code), 1);
    }

    /// Errors that were written since the last call.
    pub fn take_errors(&mut self) -> Option<Box<ErrorCounts>> {
        self.errors.take()
    }

    /// Passes bytes to `write`, which returns how many it took, until it returns `None`. Removes
    /// the bytes that were taken, and returns their number.
    pub fn drain(&mut self, mut write: impl FnMut(&[u8]) -> Option<usize>) -> usize {
        let (mut total, mut used) = (0, 0);
        loop {
            let next = self.parts.front();
            let until = next.map_or(self.bytes.len(), |part| part.offset);
            let piece = match next {
                Some(part) if used == until => &part.value[part.range.clone()],
                _ => &self.bytes[used..until],
            };
            if piece.is_empty() && next.is_none() {
                break;
            }
            let Some(count) = write(piece) else { break };
            total += count;
            if used < until {
                used += count;
            } else {
                self.advance_part(count);
            }
        }
        self.bytes.drain(..used);
        self.parts.iter_mut().for_each(|part| part.offset -= used);
        total
    }

    fn advance_part(&mut self, count: usize) {
        let Some(part) = self.parts.front_mut() else { return };
        part.range.start += count;
        self.part_bytes -= count;
        if part.range.is_empty() {
            self.parts.pop_front();
        }
    }
}

/// The position of `part` in `whole`; `None` if it is not a part of it.
fn range_within(whole: &[u8], part: &[u8]) -> Option<Range<usize>> {
    let start = part.as_ptr().addr().checked_sub(whole.as_ptr().addr())?;
    let end = start.checked_add(part.len()).filter(|end| *end <= whole.len())?;
    Some(start..end)
}

impl From<&[u8]> for ReplyBuffer {
    fn from(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::sync::Arc;

    #[test]
    fn large_parts_are_shared_and_leave_in_order() {
        let value: Vec<u8> = (0..50_000_u32).map(|at| (at % 251) as u8).collect();
        for width in [1, 7, 4_097, 1 << 20] {
            let owner = Arc::new(value.clone());
            let shared = SharedBytes::new(owner.clone());
            let (mut first, mut second) = (ReplyBuffer::default(), ReplyBuffer::default());
            first.extend_from_slice(b"one");
            first.extend_shared(&shared[..COPIED_BYTES_MAX], Some(&shared));
            first.extend_shared(&shared[10..20_000], Some(&shared));
            second.push(b'2');
            second.extend_shared(&shared, Some(&shared));
            second.extend_shared(&shared[1..], Some(&shared));
            second.extend_from_slice(b"end");
            first.append(second);
            drop(shared);
            assert_eq!(first.parts.len(), 3, "short parts are copied");
            assert!(first.memory() < 3 * COPIED_BYTES_MAX && first.own_bytes() < first.memory());
            let expected =
                [b"one", &value[..COPIED_BYTES_MAX], &value[10..20_000], b"2", &value, &value[1..], b"end"]
                    .concat();
            assert_eq!(first.len(), expected.len());
            let (mut written, mut takes) = (Vec::new(), false);
            while !first.is_empty() {
                assert_eq!(first.has_parts(), Arc::strong_count(&owner) > 1);
                // Takes `width` bytes at a time, and nothing every other time.
                first.drain(|bytes| {
                    takes = !takes;
                    let count = bytes.len().min(width);
                    takes.then(|| written.extend_from_slice(&bytes[..count]))?;
                    Some(count)
                });
                assert_eq!(first.len(), expected.len() - written.len());
            }
            assert!(written == expected && Arc::strong_count(&owner) == 1, "{width}");
        }
    }

    #[test]
    fn errors_are_counted_by_code() {
        let (mut first, mut second) = (ReplyBuffer::default(), ReplyBuffer::default());
        first.count_error(b"ERR syntax error");
        second.count_error(b"ERR unknown command");
        second.count_error(b"WRONGTYPE Operation");
        first.append(second);
        let errors = first.take_errors().unwrap();
        assert_eq!(errors.by_code().collect::<Vec<_>>(), [("ERR", 2), ("WRONGTYPE", 1)]);
        assert!(errors.total() == 3 && first.take_errors().is_none());
    }

    #[test]
    fn a_part_is_found_within_its_value() {
        let whole = b"0123456789".to_vec();
        assert_eq!(range_within(&whole, &whole[3..7]), Some(3..7));
        assert_eq!(range_within(&whole, &whole), Some(0..10));
        assert_eq!(range_within(&whole, &[1; 3]), None);
    }
}
