//! The command LCS: the longest common subsequence of two strings.

use crate::error::CommandError;
use crate::resp::ReplyWriter;
use alloc::vec::Vec;
use alloc::{format, vec};

/// Maximum pairs of bytes to compare: it takes about 10 ms, while other connections of the thread
/// wait.
const PAIRS_MAX: usize = 4 << 20;

/// The options of LCS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LcsQuery {
    /// LEN: reply with the length only.
    pub length: bool,
    /// IDX: reply with the positions of the common parts.
    pub places: bool,
    /// WITHMATCHLEN: include the length of each part.
    pub with_lengths: bool,
    /// MINMATCHLEN: list only parts of at least this length.
    pub least: i64,
}

/// A run of common bytes: its position in both strings, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    first: usize,
    second: usize,
    length: usize,
}

/// For each pair of prefixes, the length of their longest common subsequence.
struct Table<'a> {
    first: &'a [u8],
    second: &'a [u8],
    lengths: Vec<u32>,
}

impl<'a> Table<'a> {
    fn new(first: &'a [u8], second: &'a [u8]) -> Self {
        let width = second.len() + 1;
        let mut table = Self { first, second, lengths: vec![0; (first.len() + 1) * width] };
        for (i, one) in first.iter().enumerate() {
            for (j, other) in second.iter().enumerate() {
                let length = if one == other {
                    table.at(i, j) + 1
                } else {
                    table.at(i, j + 1).max(table.at(i + 1, j))
                };
                table.lengths[(i + 1) * width + j + 1] = length;
            }
        }
        table
    }

    fn at(&self, i: usize, j: usize) -> u32 {
        self.lengths[i * (self.second.len() + 1) + j]
    }

    fn length(&self) -> u32 {
        self.at(self.first.len(), self.second.len())
    }

    /// The common parts, from the last to the first. If there are several solutions, it finds the
    /// same one as Redis.
    fn parts(&self) -> Vec<Part> {
        let (mut parts, mut is_open) = (Vec::<Part>::new(), false);
        let (mut i, mut j) = (self.first.len(), self.second.len());
        while i > 0 && j > 0 {
            if self.first[i - 1] == self.second[j - 1] {
                (i, j) = (i - 1, j - 1);
                match parts.last_mut().filter(|_| is_open) {
                    Some(part) => *part = Part { first: i, second: j, length: part.length + 1 },
                    None => parts.push(Part { first: i, second: j, length: 1 }),
                }
                is_open = true;
            } else {
                match self.at(i - 1, j) > self.at(i, j - 1) {
                    true => i -= 1,
                    false => j -= 1,
                }
                is_open = false;
            }
        }
        parts
    }
}

impl LcsQuery {
    /// Compares the strings and writes the reply.
    pub fn write(self, first: &[u8], second: &[u8], reply: &mut ReplyWriter<'_>) {
        let pairs = (first.len() + 1).saturating_mul(second.len() + 1);
        if pairs > PAIRS_MAX {
            let (one, other) = (first.len(), second.len());
            let text = format!(
                "ERR LCS of values of {one} and {other} bytes exceeds the limit of {PAIRS_MAX} comparisons"
            );
            return reply.error(CommandError::text(text).as_bytes());
        }
        let table = Table::new(first, second);
        let length = table.length().into();
        if self.length {
            return reply.integer(length);
        }
        let parts = table.parts();
        if !self.places {
            let common: Vec<u8> =
                parts.iter().rev().flat_map(|part| &first[part.first..][..part.length]).copied().collect();
            return reply.bulk(&common);
        }
        let is_long = |part: &&Part| part.length as i64 >= self.least;
        reply.map(2);
        reply.bulk(b"matches");
        reply.array(parts.iter().filter(is_long).count());
        parts.iter().filter(is_long).for_each(|part| self.write_part(part, reply));
        reply.bulk(b"len");
        reply.integer(length);
    }

    fn write_part(self, part: &Part, reply: &mut ReplyWriter<'_>) {
        reply.array(if self.with_lengths { 3 } else { 2 });
        for start in [part.first, part.second] {
            reply.array(2);
            reply.integer(start as i64);
            reply.integer((start + part.length - 1) as i64);
        }
        if self.with_lengths {
            reply.integer(part.length as i64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_common_in_order_and_of_maximal_length() {
        for (first, second, length) in [
            (&b"ohmytext"[..], &b"mynewtext"[..], 6),
            (b"", b"abc", 0),
            (b"abc", b"abc", 3),
            (b"abcbdab", b"bdcaba", 4),
            (b"xaxbxc", b"abc", 3),
        ] {
            let table = Table::new(first, second);
            let parts = table.parts();
            let sum: usize = parts.iter().map(|part| part.length).sum();
            assert_eq!((sum, table.length() as usize), (length, length));
            for part in &parts {
                assert_eq!(first[part.first..][..part.length], second[part.second..][..part.length]);
            }
            assert!(parts.windows(2).all(|two| two[1].first + two[1].length <= two[0].first));
            assert!(parts.windows(2).all(|two| two[1].second + two[1].length <= two[0].second));
        }
    }
}
