//! The workload of TurboKV §8: 100,000 keys of 16 bytes, spread evenly over the range, with values
//! of 128 bytes.
//!
//! As with YCSB, the popularity of a key does not depend on its place in the range: ranks are
//! shuffled over the keys.

use crate::splitmix::Random;
use crate::zipf::Zipf;

pub(crate) const KEYS: u32 = 100_000;
pub(crate) const KEY_BYTES: usize = 16;
pub(crate) const VALUE_BYTES: usize = 128;
/// Bytes of a big value: about the most that a value with copies may have.
pub(crate) const BIG_BYTES: usize = 1_000;
/// Keys of the longest scan.
pub(crate) const SCAN_KEYS_MAX: u32 = 100;
/// Distance between two keys.
const DISTANCE: u128 = u128::MAX / KEYS as u128;

/// The distribution of requests over keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Skew {
    Uniform,
    Zipf(f64),
}

impl Skew {
    pub(crate) fn exponent(self) -> f64 {
        match self {
            Self::Uniform => 0.0,
            Self::Zipf(exponent) => exponent,
        }
    }

    pub(crate) fn name(self) -> String {
        match self {
            Self::Uniform => "uniform".into(),
            Self::Zipf(exponent) => format!("zipf-{exponent}"),
        }
    }
}

/// The kinds of ops.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mix {
    /// This share of puts; the rest are gets.
    Writes(f64),
    /// Scans of 1 to 100 keys.
    Scans,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Get(u32),
    Put(u32),
    /// From the first key to the last one.
    Scan(u32, u32),
}

/// The key with this number. Keys are ordered by their numbers.
pub(crate) fn key(number: u32) -> [u8; KEY_BYTES] {
    (u128::from(number) * DISTANCE).to_be_bytes()
}

/// A value that begins with its key, so that readers can check it.
pub(crate) fn value(number: u32, version: u64, bytes: usize) -> Vec<u8> {
    let mut value = vec![0; bytes];
    let (name, rest) = value.split_at_mut(KEY_BYTES);
    name.copy_from_slice(&key(number));
    fastrand::Rng::with_seed(version).fill(rest);
    value
}

/// Whether it is a value of this key and length.
pub(crate) fn is_value_of(value: &[u8], key: &[u8], bytes: usize) -> bool {
    value.len() == bytes && value.starts_with(key)
}

/// The popularity of keys, computed once for all runs.
#[derive(Clone, Debug)]
pub(crate) struct Popularity {
    zipf: Zipf,
    /// The key of each rank.
    keys: Vec<u32>,
}

impl Popularity {
    /// Keys in descending order of popularity.
    pub(crate) fn in_order(skew: Skew) -> Self {
        Self { zipf: Zipf::new(KEYS, skew.exponent()), keys: (0..KEYS).collect() }
    }

    pub(crate) fn new(skew: Skew) -> Self {
        let Self { zipf, mut keys } = Self::in_order(skew);
        fastrand::Rng::with_seed(0x74_7572_626f_6b76).shuffle(&mut keys);
        Self { zipf, keys }
    }

    /// Whether each key's value is big: `percent` of all, in the same share among popular keys as
    /// among others.
    pub(crate) fn big(&self, percent: u32) -> Vec<bool> {
        let mut big = vec![false; KEYS as usize];
        let until = |rank: u32| rank * percent / 100;
        for (rank, number) in (0..).zip(&self.keys) {
            big[*number as usize] = until(rank + 1) > until(rank);
        }
        big
    }
}

/// The ops of a run, the same for the same seed.
#[derive(Clone, Debug)]
pub(crate) struct Ops<'a> {
    popularity: &'a Popularity,
    mix: Mix,
    random: Random,
}

impl<'a> Ops<'a> {
    pub(crate) fn new(popularity: &'a Popularity, mix: Mix, seed: u64) -> Self {
        Self { popularity, mix, random: Random(seed) }
    }

    pub(crate) fn next(&mut self) -> Op {
        let rank = self.popularity.zipf.sample(&mut self.random);
        let number = self.popularity.keys[rank as usize];
        match self.mix {
            Mix::Writes(share) if self.random.fraction() < share => Op::Put(number),
            Mix::Writes(_) => Op::Get(number),
            Mix::Scans => {
                let count = 1 + self.random.below(SCAN_KEYS_MAX);
                Op::Scan(number, (number + count - 1).min(KEYS - 1))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_ordered_and_in_all_of_128_records() {
        assert!((1..KEYS).all(|number| key(number - 1) < key(number)));
        let record = |number| u128::from_be_bytes(key(number)) >> 121;
        let counts = (0..128).map(|wanted| (0..KEYS).filter(|number| record(*number) == wanted).count());
        assert!(counts.into_iter().all(|count| (781..=782).contains(&count)));
    }

    #[test]
    fn ops_follow_the_mix() {
        let popularity = Popularity::new(Skew::Zipf(1.2));
        let mut ops = Ops::new(&popularity, Mix::Writes(0.25), 1);
        let puts = (0..40_000).filter(|_| matches!(ops.next(), Op::Put(_))).count();
        assert!((9_600..10_400).contains(&puts), "{puts}");
        let mut ops = Ops::new(&popularity, Mix::Scans, 1);
        let lengths: Vec<u32> = (0..40_000)
            .map(|_| match ops.next() {
                Op::Scan(first, last) => last - first + 1,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!((lengths.iter().min(), lengths.iter().max()), (Some(&1), Some(&SCAN_KEYS_MAX)));
    }

    #[test]
    fn a_value_belongs_to_one_key() {
        let value = value(7, 1, VALUE_BYTES);
        assert!(is_value_of(&value, &key(7), VALUE_BYTES) && !is_value_of(&value, &key(8), VALUE_BYTES));
        assert!(!is_value_of(&value, &key(7), BIG_BYTES));
    }

    #[test]
    fn popular_keys_have_big_values_as_often_as_others() {
        let popularity = Popularity::new(Skew::Zipf(0.99));
        for (percent, of_ten) in [(0, 0), (10, 1), (50, 5), (100, 10)] {
            let big = popularity.big(percent);
            let count = |ranks: &[u32]| ranks.iter().filter(|number| big[**number as usize]).count();
            assert_eq!(popularity.keys.chunks(10).map(count).max(), Some(of_ten));
            assert_eq!(popularity.keys.chunks(10).map(count).min(), Some(of_ten));
        }
    }
}
