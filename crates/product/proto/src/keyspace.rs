//! A partition's range of match values, and the replication mode of its keyspace.

use crate::DecodeError;
use crate::codec::plain;
use crate::declare::{code, codec_of, for_each, part, tagged};
use crate::quorum::Quorum;
use thiserror::Error;

/// The match values that a partition owns, both ends included. The match value of a key is its
/// digest in keyspaces partitioned by hash, and its first 16 bytes, padded with zeros, in keyspaces
/// partitioned by range; both are big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatchRange {
    first: u128,
    last: u128,
}

/// A range that ends before it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a range of match values ends at {last:032x}, before it begins at {first:032x}")]
pub struct EmptyRange {
    /// First value.
    pub first: u128,
    /// Last value.
    pub last: u128,
}

impl MatchRange {
    /// Every match value.
    pub const ALL: Self = Self { first: 0, last: u128::MAX };

    /// From `first` to `last`, both included.
    ///
    /// # Errors
    /// If `first` is above `last`.
    pub fn new(first: u128, last: u128) -> Result<Self, EmptyRange> {
        if first <= last { Ok(Self { first, last }) } else { Err(EmptyRange { first, last }) }
    }

    /// The smallest value in it.
    pub fn first(&self) -> u128 {
        self.first
    }

    /// The largest value in it.
    pub fn last(&self) -> u128 {
        self.last
    }

    /// Whether the range contains a match value.
    pub fn contains(&self, match_value: u128) -> bool {
        (self.first..=self.last).contains(&match_value)
    }
}

plain! {
    MatchRange, [[u8; 16]; 2], |value| [value.first().to_be_bytes(), value.last().to_be_bytes()],
        |layout, field| range(field, layout.map(u128::from_be_bytes));
}

fn range(field: &'static str, [first, last]: [u128; 2]) -> Result<MatchRange, DecodeError> {
    let refused = DecodeError::UnknownValue { field, value: (last >> 64) as u64 };
    MatchRange::new(first, last).map_err(|_| refused)
}

code! {
    /// How keys map to match values.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
    pub enum KeyOrder {
        /// By digest: spread evenly, unordered.
        #[default]
        Hash = 0,
        /// By their first 16 bytes: ordered. Keys with the same first 16 bytes share a partition.
        Range = 1,
    }
}

tagged! {
    /// Replication mode.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Replication {
        /// Multicast two-phase commit: a primary orders the puts, all members hold them.
        0 => Multicast,
        /// Quorum: any k of R members hold a put (R14).
        1 => Quorum(Quorum),
        /// Chain replication: the head orders the puts, each member forwards them, the tail
        /// answers.
        2 => Chain,
    }
}

impl Replication {
    /// R and k of a quorum keyspace.
    pub fn quorum(&self) -> Option<Quorum> {
        match *self {
            Self::Multicast | Self::Chain => None,
            Self::Quorum(quorum) => Some(quorum),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_includes_both_ends() {
        let range = MatchRange::new(3, 5).unwrap();
        let inside = |value| range.contains(value);
        assert_eq!([2, 3, 4, 5, 6].map(inside), [false, true, true, true, false]);
        assert!(MatchRange::new(7, 7).unwrap().contains(7));
        assert!(MatchRange::ALL.contains(0) && MatchRange::ALL.contains(u128::MAX));
        assert_eq!(MatchRange::new(6, 5), Err(EmptyRange { first: 6, last: 5 }));
    }
}
