//! Samples of the match values that clients request, and what is computed from them: the value at
//! which a partition's load, or its set of keys, splits in half.
//!
//! A reservoir keeps each request of an interval with the same probability. Memory is bounded: at
//! most [`PARTITIONS_MAX`] partitions are sampled.

use crate::types::Map;
use alloc::vec::Vec;
use nicekv_proto::{KeyOrder, MatchRange, PartitionId};

/// How many values are kept of a partition. A share is then known to within about 4 %.
const SAMPLES: usize = 256;
/// The first this many requests of an interval are all sampled; after that, one in [`ONE_OF`].
const EACH_MAX: u32 = 4096;
const ONE_OF: u32 = 8;
/// How many partitions are sampled.
pub(crate) const PARTITIONS_MAX: usize = 1024;

#[derive(Clone, Default)]
pub(crate) struct HeatWatch {
    pub(crate) reservoirs: Map<PartitionId, Reservoir>,
    /// Samples of the last interval whose reports are not sent yet, the least requested partition
    /// first.
    pub(crate) untold: Vec<(PartitionId, Reservoir)>,
    pub(crate) report_at_ns: u64,
    /// Number of requests in this interval.
    asked: u32,
}

impl HeatWatch {
    /// A client requests this value. Returns how many requests the sample stands for; `None`: it is
    /// not sampled. Under load only some requests are sampled, to keep the cost low.
    pub(crate) fn weight(&mut self, value: u128) -> Option<u32> {
        self.asked = self.asked.saturating_add(1);
        if self.asked <= EACH_MAX {
            return Some(1);
        }
        let is_looked_at = mixed(u64::from(self.asked) ^ value as u64).is_multiple_of(u64::from(ONE_OF));
        is_looked_at.then_some(ONE_OF)
    }

    /// Ends the interval, and returns its samples.
    pub(crate) fn turn(&mut self) -> Map<PartitionId, Reservoir> {
        self.asked = 0;
        self.untold.clear();
        core::mem::take(&mut self.reservoirs)
    }
}

#[derive(Clone, Default)]
pub(crate) struct Reservoir {
    pub(crate) seen: u32,
    pub(crate) values: Vec<u128>,
}

impl Reservoir {
    /// Adds a value that stands for `weight` requests. When the reservoir is full, the value
    /// replaces a random one or is dropped.
    pub(crate) fn note(&mut self, value: u128, weight: u32) {
        self.seen = self.seen.saturating_add(weight);
        if self.values.len() < SAMPLES {
            return self.values.push(value);
        }
        let place = (mixed(u64::from(self.seen) ^ value as u64) % u64::from(self.seen)) as usize;
        if let Some(kept) = self.values.get_mut(place / weight.max(1) as usize) {
            *kept = value;
        }
    }
}

/// A pseudo-random number that depends only on `number` (splitmix64).
fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The value that splits the requests in half, and the share below it (per thousand). `values` are
/// sorted. `None` if all of them lie at the start of the range.
pub(crate) fn cut(values: &[u128], range: MatchRange, order: KeyOrder) -> Option<(u128, u16)> {
    let borders = values.iter().map(|value| border(*value, order)).filter(|value| *value > range.first());
    let below = |value: u128| values.partition_point(|sample| *sample < value);
    let smaller_half = |value: &u128| below(*value).min(values.len() - below(*value));
    let best = borders.max_by_key(|value| (smaller_half(value), u128::MAX - value))?;
    Some((best, per_thousand(below(best), values.len())))
}

/// The greatest value up to this one at which a partition may begin. For hashed keys that is the
/// start of a vnode.
fn border(value: u128, order: KeyOrder) -> u128 {
    match order {
        KeyOrder::Range => value,
        KeyOrder::Hash => value >> 112 << 112,
    }
}

/// The most frequent value, and its share (per thousand). `values` are sorted.
pub(crate) fn top(values: &[u128]) -> Option<(u128, u16)> {
    let most = values.chunk_by(|one, other| one == other).max_by_key(|chunk| chunk.len())?;
    Some((most[0], per_thousand(most.len(), values.len())))
}

fn per_thousand(part: usize, of: usize) -> u16 {
    (part * 1000 / of.max(1)) as u16
}

/// The median of the keys' match values, moved to a value at which a partition may begin.
pub(crate) fn middle(values: &[u128], range: MatchRange, order: KeyOrder) -> u128 {
    let mut values = values.to_vec();
    values.sort_unstable();
    let middle = values.get(values.len() / 2).map_or(0, |value| border(*value, order));
    if middle > range.first() { middle } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(values: impl IntoIterator<Item = u128>) -> Vec<u128> {
        let mut values: Vec<u128> = values.into_iter().collect();
        values.sort_unstable();
        values
    }

    #[test]
    fn cut_halves_the_requests_instead_of_the_range() {
        let all = MatchRange::ALL;
        let even = sorted(1000..1100);
        assert_eq!(cut(&even, all, KeyOrder::Range), Some((1050, 500)));
        // One value is requested as often as all others together. The cut is next to it, and the
        // busier part contains it.
        let hot = sorted((1..=50).chain([51; 100]).chain(52..=60));
        assert_eq!(cut(&hot, all, KeyOrder::Range), Some((51, 314)));
        // A partition cannot be cut at the first value of its range, so another value is needed.
        let range = MatchRange::new(7, 100).unwrap();
        assert_eq!(cut(&[7; 9], range, KeyOrder::Range), None);
        assert_eq!(cut(&sorted([7, 7, 7, 8]), range, KeyOrder::Range), Some((8, 750)));
        assert_eq!(cut(&[], all, KeyOrder::Range), None);
        // Hashed keys are cut where a vnode begins.
        let vnodes = sorted((0..10u128).map(|vnode| (vnode << 112) + 5));
        assert_eq!(cut(&vnodes, all, KeyOrder::Hash), Some((5 << 112, 500)));
    }

    #[test]
    fn most_requested_value_is_known_with_its_share() {
        assert_eq!(top(&sorted([3, 9, 9, 9])), Some((9, 750)));
        assert_eq!(top(&[]), None);
        assert_eq!(middle(&[9, 1, 5], MatchRange::ALL, KeyOrder::Range), 5);
        assert_eq!(middle(&[], MatchRange::ALL, KeyOrder::Range), 0);
    }

    #[test]
    fn reservoir_keeps_the_shares_of_many_requests() {
        let mut reservoir = Reservoir::default();
        // The first half of the requests asks for small values.
        for request in 0..100_000u128 {
            let weight = if request < 20_000 { 1 } else { ONE_OF };
            if weight > 1 && !request.is_multiple_of(u128::from(ONE_OF)) {
                continue;
            }
            let value = if request < 50_000 { request % 100 } else { 1_000 + request % 100 };
            reservoir.note(value, weight);
        }
        assert_eq!((reservoir.values.len(), reservoir.seen), (SAMPLES, 100_000));
        let small = reservoir.values.iter().filter(|value| **value < 1_000).count();
        assert!((SAMPLES * 4 / 10..=SAMPLES * 6 / 10).contains(&small), "{small}");
    }
}
