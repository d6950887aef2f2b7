//! What a partition is a part of: a range of match values of one keyspace, replicated in the keyspace's way.

use crate::DecodeError;
use crate::codec::plain;
use crate::declare::{code, codec_of, for_each, part, tagged};
use crate::quorum::Quorum;
use thiserror::Error;

/// The match values that a partition owns, both ends included. A key's match value is its digest where keys are partitioned by hash, the
/// first 16 bytes of the key, padded with zeros, where they are partitioned by range; big-endian either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatchRange {
    first: u128,
    last: u128,
}

/// A range that ends before it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a range of match values ends at {last:032x}, before it begins at {first:032x}")]
pub struct EmptyRange {
    /// Where it would begin.
    pub first: u128,
    /// Where it would end.
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

    /// Whether the value is in it.
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
    /// How keys become match values.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
    pub enum KeyOrder {
        /// By their digests: evenly, in no order.
        #[default]
        Hash = 0,
        /// By their first 16 bytes: in order. Keys that share these are in one partition.
        Range = 1,
    }
}

tagged! {
    /// How the members of a partition keep what they hold the same.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Replication {
        /// A primary orders the puts, all members hold them (multicast two-phase commit).
        0 => Multicast,
        /// Any k of R members hold a put (R14).
        1 => Quorum(Quorum),
        /// The first member orders the puts, each passes them to the next one, the last answers (chain replication).
        2 => Chain,
    }
}

impl Replication {
    /// R and k, if it is by quorum.
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
    fn a_range_has_both_its_ends() {
        let range = MatchRange::new(3, 5).unwrap();
        let inside = |value| range.contains(value);
        assert_eq!([2, 3, 4, 5, 6].map(inside), [false, true, true, true, false]);
        assert!(MatchRange::new(7, 7).unwrap().contains(7));
        assert!(MatchRange::ALL.contains(0) && MatchRange::ALL.contains(u128::MAX));
        assert_eq!(MatchRange::new(6, 5), Err(EmptyRange { first: 6, last: 5 }));
    }
}
