//! What the load generators ask for: the same keys and values on both sides of a comparison.
//!
//! Keys are drawn evenly from [`KEYS`], so that all partitions are used. Values are computed from key and version: whoever reads
//! one can tell whether it is the right one without keeping a copy.

/// Keys of a workload.
pub(crate) const KEYS: u32 = 10_000;
/// Bytes of each value.
pub(crate) const VALUE_BYTES: usize = 64;
/// Bytes of each key; those that are read are named as `redis-benchmark -r` names them.
pub(crate) const KEY_BYTES: usize = 16;
/// Bounds a sequence together with its time: far more than any store here does in a round.
const OPERATIONS_MAX: u64 = 50_000_000;

/// What is done with the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Puts each key that [`Work::Get`] reads once.
    Preload,
    /// Gets random preloaded keys.
    Get,
    /// Puts random keys, which are none of those that are read.
    Put,
}

/// One op of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    work: Work,
    index: u32,
    version: u32,
}

impl Step {
    /// The op that has stored a key that is read.
    #[cfg(test)]
    pub(crate) fn preloaded(key: &[u8]) -> Self {
        let index = std::str::from_utf8(key).unwrap().strip_prefix("key:").unwrap().parse().unwrap();
        Self { work: Work::Preload, index, version: 0 }
    }

    pub(crate) fn is_get(&self) -> bool {
        self.work == Work::Get
    }

    pub(crate) fn key(&self) -> [u8; KEY_BYTES] {
        let mut key = match self.work {
            Work::Put => *b"put:000000000000",
            Work::Get | Work::Preload => *b"key:000000000000",
        };
        let mut rest = self.index;
        for digit in key[4..].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        key
    }

    /// Tells its value from those of others.
    pub(crate) fn stamp(&self) -> u64 {
        u64::from(self.version) << 32 | u64::from(self.index)
    }

    /// What a put stores, or a get must read.
    pub(crate) fn value(&self) -> [u8; VALUE_BYTES] {
        let mut value = [0; VALUE_BYTES];
        let mut random = Random(self.stamp());
        for word in value.chunks_exact_mut(8) {
            word.copy_from_slice(&random.next().to_le_bytes());
        }
        value
    }
}

/// The ops of one run, the same for the same seed.
#[derive(Debug)]
pub(crate) struct Sequence {
    work: Work,
    random: Random,
    position: u64,
    /// Only the first ones.
    keys: u32,
}

impl Sequence {
    pub(crate) fn new(work: Work, seed: u64) -> Self {
        Self { work, random: Random(seed), position: 0, keys: KEYS }
    }

    /// Of the first keys only.
    pub(crate) fn of_first(keys: u32, work: Work, seed: u64) -> Self {
        Self { keys, ..Self::new(work, seed) }
    }
}

impl Iterator for Sequence {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let end = if self.work == Work::Preload { u64::from(self.keys) } else { OPERATIONS_MAX };
        if self.position == end {
            return None;
        }
        let index = match self.work {
            Work::Preload => self.position as u32,
            Work::Get | Work::Put => self.random.below(self.keys),
        };
        self.position += 1;
        let version = if self.work == Work::Put { self.position as u32 } else { 0 };
        Some(Step { work: self.work, index, version })
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to below 1, all multiples of 2 to the power of -53.
    pub(crate) fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn below(&mut self, limit: u32) -> u32 {
        (((self.next() >> 32) * u64::from(limit)) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn preloading_puts_exactly_what_gets_read() {
        let loaded: Vec<Step> = Sequence::new(Work::Preload, 0).collect();
        assert_eq!(loaded.len(), KEYS as usize);
        let contents: HashSet<_> = loaded.iter().map(|step| (step.key(), step.value())).collect();
        assert_eq!(contents.len(), KEYS as usize);
        let read: HashSet<_> =
            Sequence::new(Work::Get, 7).take(200_000).map(|step| (step.key(), step.value())).collect();
        // All but one in e^20 keys were drawn.
        assert_eq!(read, contents);
        assert_eq!(&loaded[42].key(), b"key:000000000042");
    }

    #[test]
    fn a_few_keys_are_put_once_and_read_again_and_again() {
        let contents = |work| -> Vec<_> {
            Sequence::of_first(3, work, 7).take(1_000).map(|step| (step.key(), step.value())).collect()
        };
        let (loaded, read) = (contents(Work::Preload), contents(Work::Get));
        assert_eq!((loaded.len(), read.len()), (3, 1_000));
        assert_eq!(loaded.into_iter().collect::<HashSet<_>>(), read.into_iter().collect());
    }

    #[test]
    fn puts_leave_the_read_keys_alone_and_change_their_values() {
        let puts: Vec<Step> = Sequence::new(Work::Put, 7).take(100_000).collect();
        assert!(puts.iter().all(|step| step.key().starts_with(b"put:")));
        let values: HashSet<_> = puts.iter().map(Step::value).collect();
        assert_eq!(values.len(), puts.len());
    }
}
