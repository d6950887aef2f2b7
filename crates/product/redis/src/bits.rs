//! Values as sequences of bits: bit 0 is the highest bit of the first byte, and bits beyond the
//! value are 0.

use crate::range::indexes;

/// The unit in which a range counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Bytes,
    Bits,
}

/// A query about the bits of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BitQuery {
    /// The bit at this offset.
    At(u64),
    /// Number of bits that are 1, in the whole value or in a range.
    Count(Option<(i64, i64, Unit)>),
    /// Offset of the first bit with this value.
    First {
        /// 1 or 0.
        bit: bool,
        start: i64,
        /// `None`: the range has no end; beyond the end of the value, all bits are 0.
        end: Option<i64>,
        unit: Unit,
    },
}

impl BitQuery {
    /// The answer, as Redis gives it; -1 if no bit matches.
    pub fn of(&self, value: Option<&[u8]>) -> i64 {
        let bytes = value.unwrap_or_default();
        match *self {
            Self::At(place) => {
                let byte = usize::try_from(place / 8).ok().and_then(|index| bytes.get(index));
                byte.map_or(0, |byte| i64::from(byte >> (7 - place % 8) & 1))
            }
            Self::Count(None) => ones(bytes),
            // Such a range is empty, as in GETRANGE.
            Self::Count(Some((start, end, _))) if start < 0 && end < 0 && start > end => 0,
            Self::Count(Some((start, end, unit))) => range(bytes, start, end, unit).map_or(0, |range| {
                let (first, last) = (range.0 / 8, range.1 / 8);
                let outside = |byte: u8, mask: u8| i64::from((byte & !mask).count_ones());
                ones(&bytes[first..=last])
                    - outside(bytes[first], from_place(range.0))
                    - outside(bytes[last], through_place(range.1))
            }),
            // Every bit of an absent value is 0.
            Self::First { bit, .. } if value.is_none() => -i64::from(bit),
            Self::First { bit, start, end, unit } => {
                let Some(range) = range(bytes, start, end.unwrap_or(-1), unit) else { return -1 };
                first(bytes, range, bit).map_or_else(
                    || if bit || end.is_some() { -1 } else { bytes.len() as i64 * 8 },
                    |place| place as i64,
                )
            }
        }
    }
}

fn ones(bytes: &[u8]) -> i64 {
    let (words, rest) = bytes.as_chunks();
    let of_words: i64 = words.iter().map(|word| i64::from(u64::from_ne_bytes(*word).count_ones())).sum();
    of_words + rest.iter().map(|byte| i64::from(byte.count_ones())).sum::<i64>()
}

/// Mask of the bits from this offset to the end of its byte.
fn from_place(place: usize) -> u8 {
    0xff >> (place % 8)
}

/// Mask of the bits from the beginning of the byte up to and including this offset.
fn through_place(place: usize) -> u8 {
    0xff << (7 - place % 8)
}

/// Offsets of the first and the last bit of a range; `None` if it is empty.
fn range(bytes: &[u8], start: i64, end: i64, unit: Unit) -> Option<(usize, usize)> {
    match unit {
        Unit::Bits => indexes(bytes.len() * 8, start, end),
        Unit::Bytes => indexes(bytes.len(), start, end).map(|(start, end)| (start * 8, end * 8 + 7)),
    }
}

fn first(bytes: &[u8], (start, end): (usize, usize), bit: bool) -> Option<usize> {
    let wanted = |byte: u8| if bit { byte } else { !byte };
    for (index, byte) in bytes.iter().enumerate().take(end / 8 + 1).skip(start / 8) {
        let mut found = wanted(*byte);
        if index == start / 8 {
            found &= from_place(start);
        }
        if index == end / 8 {
            found &= through_place(end);
        }
        if found != 0 {
            return Some(index * 8 + found.leading_zeros() as usize);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    /// A reference implementation that looks at each bit.
    fn slowly(value: &[u8], query: &BitQuery) -> i64 {
        let bits: Vec<bool> =
            value.iter().flat_map(|byte| (0..8).map(move |place| byte >> (7 - place) & 1 == 1)).collect();
        let places = |start: i64, end: i64, unit| {
            let total = if unit == Unit::Bits { bits.len() } else { value.len() } as i64;
            let front = |place: i64| if place < 0 { (total + place).max(0) } else { place };
            let length = if unit == Unit::Bits { 1 } else { 8 };
            (front(start)..=front(end).min(total - 1))
                .flat_map(move |place| (0..length).map(move |bit| place * length + bit))
        };
        match *query {
            BitQuery::At(place) => bits.get(place as usize).copied().unwrap_or(false).into(),
            BitQuery::Count(None) => bits.iter().filter(|bit| **bit).count() as i64,
            BitQuery::Count(Some((start, end, _))) if start < 0 && end < 0 && start > end => 0,
            BitQuery::Count(Some((start, end, unit))) => {
                places(start, end, unit).filter(|place| bits[*place as usize]).count() as i64
            }
            BitQuery::First { bit, start, end, unit } => {
                let mut any = false;
                for place in places(start, end.unwrap_or(-1), unit) {
                    any = true;
                    if bits[place as usize] == bit {
                        return place;
                    }
                }
                if any && !bit && end.is_none() { bits.len() as i64 } else { -1 }
            }
        }
    }

    fn unit() -> impl Strategy<Value = Unit> {
        prop_oneof![Just(Unit::Bytes), Just(Unit::Bits)]
    }

    fn query() -> impl Strategy<Value = BitQuery> {
        let place = -50i64..50;
        prop_oneof![
            (0u64..80).prop_map(BitQuery::At),
            prop::option::of((place.clone(), place.clone(), unit())).prop_map(BitQuery::Count),
            (any::<bool>(), place.clone(), prop::option::of(place), unit())
                .prop_map(|(bit, start, end, unit)| BitQuery::First { bit, start, end, unit }),
        ]
    }

    proptest! {
        #[test]
        fn answers_equal_those_found_bit_by_bit(
            value in prop::collection::vec(prop_oneof![Just(0u8), Just(255), any::<u8>()], 0..20),
            query in query(),
        ) {
            prop_assert_eq!(query.of(Some(&value)), slowly(&value, &query));
        }
    }

    #[test]
    fn extreme_offsets_do_not_overflow() {
        for place in [i64::MIN, i64::MIN + 1, -1, 0, i64::MAX] {
            for unit in [Unit::Bytes, Unit::Bits] {
                for query in [
                    BitQuery::Count(Some((place, i64::MAX, unit))),
                    BitQuery::Count(Some((i64::MIN, place, unit))),
                    BitQuery::First { bit: true, start: place, end: Some(i64::MAX), unit },
                    BitQuery::First { bit: false, start: i64::MIN, end: Some(place), unit },
                ] {
                    let answer = query.of(Some(b"\x0f"));
                    assert!((-1..=8).contains(&answer), "{query:?}: {answer}");
                }
            }
        }
        assert_eq!(BitQuery::At(u64::MAX).of(Some(b"\xff")), 0);
    }
}
