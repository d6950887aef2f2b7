//! Replies on their way out: bytes, and between them large values where they are, which are not copied.
//!
//! ```text
//!   bytes   $67108864\r\n │ \r\n+OK\r\n$9000\r\n │ \r\n
//!   parts                 ▲ 64 MiB               ▲ 9,000
//! ```

use crate::permits::Kept;
use std::collections::VecDeque;
use std::io::{Error, ErrorKind, Write};
use std::ops::Range;
use std::sync::Arc;

/// What is short is copied: that costs less than a reference (see ARCHITECTURE.md).
const COPIED_BYTES_MAX: usize = 4 << 10;

/// A part of a value behind so many of the bytes.
#[derive(Debug)]
struct Part {
    behind: usize,
    kept: Arc<Kept>,
    range: Range<usize>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Rope {
    bytes: Vec<u8>,
    parts: VecDeque<Part>,
    /// Of all parts.
    part_bytes: usize,
}

impl Rope {
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() + self.part_bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it holds a large value.
    pub(crate) fn has_parts(&self) -> bool {
        !self.parts.is_empty()
    }

    /// Bytes that it occupies beside large values, which are held by claims.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.capacity() + self.parts.capacity() * size_of::<Part>()
    }

    /// So many of its bytes are in use.
    pub(crate) fn own_bytes(&self) -> usize {
        self.bytes.len() + self.parts.len() * size_of::<Part>()
    }

    pub(crate) fn shrink_to(&mut self, spare: usize) {
        self.bytes.shrink_to(spare);
        self.parts.shrink_to(0);
    }

    pub(crate) fn reserve_exact(&mut self, additional: usize) {
        self.bytes.reserve_exact(additional);
    }

    pub(crate) fn push(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    pub(crate) fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Adds `bytes`; where they are long and a part of `kept` they stay there.
    pub(crate) fn extend_kept(&mut self, bytes: &[u8], kept: Option<&Arc<Kept>>) {
        let place = kept.filter(|_| bytes.len() > COPIED_BYTES_MAX);
        match place.and_then(|kept| Some((kept.clone(), kept.place_of(bytes)?))) {
            Some((kept, range)) => {
                self.part_bytes += range.len();
                self.parts.push_back(Part { behind: self.bytes.len(), kept, range });
            }
            None => self.bytes.extend_from_slice(bytes),
        }
    }

    /// Adds another one.
    pub(crate) fn append(&mut self, other: Self) {
        let behind = self.bytes.len();
        self.parts.extend(other.parts.into_iter().map(|part| Part { behind: behind + part.behind, ..part }));
        self.part_bytes += other.part_bytes;
        self.bytes.extend_from_slice(&other.bytes);
    }

    /// Writes what `stream` takes, and forgets it; how many bytes. What was written before an error is forgotten, too.
    pub(crate) fn write_to(&mut self, mut stream: impl Write) -> (usize, Result<(), Error>) {
        let (mut total, mut used) = (0, 0);
        let result = loop {
            let next = self.parts.front();
            let until = next.map_or(self.bytes.len(), |part| part.behind);
            let piece = match next {
                Some(part) if used == until => &part.kept.bytes[part.range.clone()],
                _ => &self.bytes[used..until],
            };
            if piece.is_empty() && next.is_none() {
                break Ok(());
            }
            match stream.write(piece) {
                Ok(count) if used < until => (used, total) = (used + count, total + count),
                Ok(count) => {
                    total += count;
                    self.advance_part(count);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                Err(error) => break Err(error),
            }
        };
        self.bytes.drain(..used);
        self.parts.iter_mut().for_each(|part| part.behind -= used);
        (total, result)
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

impl From<&[u8]> for Rope {
    fn from(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), ..Self::default() }
    }
}

#[cfg(test)]
impl<const N: usize> PartialEq<&[u8; N]> for Rope {
    fn eq(&self, other: &&[u8; N]) -> bool {
        assert!(self.parts.is_empty(), "only bytes are compared");
        self.bytes == *other
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permits::Permits;

    /// Takes so many bytes at a time, and every other time none.
    struct Narrow(usize, Vec<u8>, bool);

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.2 = !self.2;
            if !self.2 {
                return Err(ErrorKind::WouldBlock.into());
            }
            let count = bytes.len().min(self.0);
            self.1.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_goes_in_comes_out_in_its_order_and_lets_go_of_values() {
        let permits = Arc::new(Permits::new(1 << 20, Vec::new()));
        let value: Vec<u8> = (0..50_000_u32).map(|at| (at % 251) as u8).collect();
        for width in [1, 7, 4_097, 1 << 20] {
            let kept = Kept::new(value.clone(), permits.ask_now(50_000).unwrap());
            let kept = Arc::new(kept);
            let (mut first, mut second) = (Rope::default(), Rope::default());
            first.extend_from_slice(b"one");
            first.extend_kept(&kept.bytes[..COPIED_BYTES_MAX], Some(&kept));
            first.extend_kept(&kept.bytes[10..20_000], Some(&kept));
            second.push(b'2');
            second.extend_kept(&kept.bytes, Some(&kept));
            second.extend_kept(&kept.bytes[1..], Some(&kept));
            second.extend_from_slice(b"end");
            first.append(second);
            drop(kept);
            assert_eq!(first.parts.len(), 3, "what is short is copied");
            assert!(first.memory() < 3 * COPIED_BYTES_MAX && first.own_bytes() < first.memory());
            let expected =
                [b"one", &value[..COPIED_BYTES_MAX], &value[10..20_000], b"2", &value, &value[1..], b"end"]
                    .concat();
            assert_eq!(first.len(), expected.len());
            let mut stream = Narrow(width, Vec::new(), false);
            let mut total = 0;
            while !first.is_empty() {
                assert!(first.has_parts() == (permits.held() > 0));
                let (count, result) = first.write_to(&mut stream);
                total += count;
                assert!(result.is_ok() && first.len() == expected.len() - total);
            }
            assert!(stream.1 == expected && permits.held() == 0, "{width}");
        }
    }
}
