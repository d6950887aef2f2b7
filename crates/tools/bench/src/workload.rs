//! The ops of the load generators: the same keys and values on both sides of a comparison.
//!
//! Keys are drawn uniformly from [`KEYS`], so that all partitions are used. Values are computed
//! from key and version, so that a reader can check a value without keeping a copy.

/// Keys of a workload.
pub(crate) const KEYS: u32 = 10_000;
/// Bytes of each value.
pub(crate) const VALUE_BYTES: usize = 64;
/// Bytes of each key. The keys of gets are named as `redis-benchmark -r` names them.
pub(crate) const KEY_BYTES: usize = 16;
/// Maximum ops of a sequence: far more than any store here does in a round.
const OPERATIONS_MAX: u64 = 50_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Puts each key that [`Work::Get`] reads once.
    Preload,
    /// Gets random preloaded keys.
    Get,
    /// Puts random keys, none of which [`Work::Get`] reads.
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
    /// The op that preloaded a key.
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

    /// Identifies its value.
    pub(crate) fn stamp(&self) -> u64 {
        u64::from(self.version) << 32 | u64::from(self.index)
    }

    /// The value that a put stores, or that a get must return.
    pub(crate) fn value(&self) -> [u8; VALUE_BYTES] {
        let mut value = [0; VALUE_BYTES];
        fastrand::Rng::with_seed(self.stamp()).fill(&mut value);
        value
    }
}

/// The ops of one run, the same for the same seed.
#[derive(Debug)]
pub(crate) struct Sequence {
    work: Work,
    random: fastrand::Rng,
    position: u64,
    /// Only this many keys, the first ones.
    keys: u32,
}

impl Sequence {
    pub(crate) fn new(work: Work, seed: u64) -> Self {
        Self { work, random: fastrand::Rng::with_seed(seed), position: 0, keys: KEYS }
    }

    /// Uses the first `keys` keys only.
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
            Work::Get | Work::Put => self.random.u32(..self.keys),
        };
        self.position += 1;
        let version = if self.work == Work::Put { self.position as u32 } else { 0 };
        Some(Step { work: self.work, index, version })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn gets_read_exactly_the_preloaded_keys() {
        let loaded: Vec<Step> = Sequence::new(Work::Preload, 0).collect();
        assert_eq!(loaded.len(), KEYS as usize);
        let contents: HashSet<_> = loaded.iter().map(|step| (step.key(), step.value())).collect();
        assert_eq!(contents.len(), KEYS as usize);
        let read: HashSet<_> =
            Sequence::new(Work::Get, 7).take(200_000).map(|step| (step.key(), step.value())).collect();
        // The chance that a key was never drawn is e^-20.
        assert_eq!(read, contents);
        assert_eq!(&loaded[42].key(), b"key:000000000042");
    }

    #[test]
    fn a_few_keys_are_preloaded_once_and_read_repeatedly() {
        let contents = |work| -> Vec<_> {
            Sequence::of_first(3, work, 7).take(1_000).map(|step| (step.key(), step.value())).collect()
        };
        let (loaded, read) = (contents(Work::Preload), contents(Work::Get));
        assert_eq!((loaded.len(), read.len()), (3, 1_000));
        assert_eq!(loaded.into_iter().collect::<HashSet<_>>(), read.into_iter().collect());
    }

    #[test]
    fn puts_use_other_keys_than_gets_and_new_values() {
        let puts: Vec<Step> = Sequence::new(Work::Put, 7).take(100_000).collect();
        assert!(puts.iter().all(|step| step.key().starts_with(b"put:")));
        let values: HashSet<_> = puts.iter().map(Step::value).collect();
        assert_eq!(values.len(), puts.len());
    }
}
