//! Tests: which keys a HashPipe keeps, and that no count is lost.

use super::*;
use crate::key::tests::key;
use crate::recall::recall;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn pipe(keys_max: u32, stages: u32, seed: u64) -> HashPipe {
    HashPipe::new(&Config { keys_max, stages, ..Config::default() }, seed).unwrap()
}

/// Random key numbers with a Zipf distribution of exponent 1, by inversion of its cumulative sums.
fn zipf(ranks: usize, samples: usize, mut state: u64) -> impl Iterator<Item = u64> {
    let mut sums: Vec<f64> = Vec::new();
    for rank in 1..=ranks {
        sums.push(sums.last().unwrap_or(&0.0) + 1.0 / rank as f64);
    }
    let total = sums[ranks - 1];
    (0..samples).map(move |_| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let drawn = (mix(state) >> 11) as f64 / (1_u64 << 53) as f64 * total;
        sums.partition_point(|sum| *sum <= drawn) as u64
    })
}

#[test]
fn zero_stages_and_zero_keys_are_refused() {
    for (keys_max, stages, field) in [(0, 1, "keys_max"), (1, 0, "stages"), (4, 5, "stages")] {
        let config = Config { keys_max, stages, ..Config::default() };
        assert_eq!(HashPipe::new(&config, 1).unwrap_err().field, field);
    }
}

/// KVSwitch's Fig. 6: K takes a slot of the first stage, B displaces the smaller E, and E is
/// dropped because L is larger.
#[test]
fn the_papers_figure() {
    let mut pipe = pipe(3, 3, 1);
    // One slot per stage, so that all keys collide.
    let [b, e, l, k] = [1, 2, 3, 4].map(key);
    for (slot, (key, count)) in [(b, 5), (e, 3), (l, 7)].into_iter().enumerate() {
        pipe.slots[slot] = Slot { key, count };
    }
    pipe.count(k);
    let counts: Vec<_> = pipe.slots[..3].iter().map(|slot| (slot.key, slot.count)).collect();
    assert_eq!(counts, [(k, 1), (b, 5), (l, 7)]);
    assert_eq!(pipe.read(), Reading { counts: vec![(l, 7), (b, 5), (k, 1)], dropped: 3 });
}

#[test]
fn counts_of_a_key_in_several_stages_are_added_up() {
    let mut pipe = pipe(2, 2, 1);
    let [a, b] = [1, 2].map(key);
    // b evicts a to the next stage, then a is requested again.
    for key in [a, a, b, a] {
        pipe.count(key);
    }
    assert_eq!(pipe.slots[..2].iter().filter(|slot| slot.key == a).count(), 2, "a has slots in both stages");
    assert_eq!(pipe.read(), Reading { counts: vec![(a, 3)], dropped: 1 });
}

#[test]
fn counts_are_exact_while_there_is_room() {
    let mut pipe = pipe(4_000, 4, 9);
    for round in 1..=20 {
        (0..20).filter(|number| number % round == 0).for_each(|number| pipe.count(key(number)));
    }
    let reading = pipe.read();
    assert_eq!((reading.counts.len(), reading.dropped), (20, 0));
    assert_eq!(reading.counts[0], (key(0), 20));
}

#[test]
fn most_top_keys_of_a_skewed_trace_are_found() {
    const TOP: usize = 100;
    let mut counts: BTreeMap<HotKey, u64> = BTreeMap::new();
    let mut pipes = [pipe(1_000, 4, 3), pipe(1_000, 1, 3)];
    for number in zipf(100_000, 200_000, 5) {
        *counts.entry(key(number)).or_default() += 1;
        pipes.iter_mut().for_each(|pipe| pipe.count(key(number)));
    }
    let exact: Vec<_> = counts.into_iter().collect();
    let [four, one] = pipes.map(|mut pipe| {
        let reading = pipe.read();
        let top: BTreeSet<HotKey> = reading.counts.iter().take(TOP).map(|(key, _)| *key).collect();
        recall(&exact, TOP, |key| top.contains(key))
    });
    assert!(four >= 90, "four stages found {four} of {TOP}");
    assert!(one < four - 20, "one stage keeps only what came last: {one}, four found {four}");
}

proptest! {
    /// Whatever keys are requested, and whenever the counts are read: each request is in exactly
    /// one reading, either under its key or as dropped.
    #[test]
    fn no_count_is_lost_or_made_up(
        keys_max in 1_u32..40,
        stages in 1_u32..=8,
        seed: u64,
        trace in prop::collection::vec((0_u64..60, prop::bool::weighted(0.02)), 0..2_000),
    ) {
        let mut pipe = pipe(keys_max.max(stages), stages, seed);
        let (mut came, mut read): (BTreeMap<HotKey, u64>, BTreeMap<HotKey, u64>) = Default::default();
        let mut dropped = 0;
        for (number, is_read) in &trace {
            pipe.count(key(*number));
            *came.entry(key(*number)).or_default() += 1;
            if *is_read {
                let reading = pipe.read();
                prop_assert!(reading.counts.windows(2).all(|pair| pair[0].1 >= pair[1].1));
                dropped += reading.dropped;
                reading.counts.into_iter().for_each(|(key, count)| *read.entry(key).or_default() += count);
            }
        }
        for _ in 0..BANKS {
            let reading = pipe.read();
            dropped += reading.dropped;
            reading.counts.into_iter().for_each(|(key, count)| *read.entry(key).or_default() += count);
        }
        prop_assert_eq!(read.values().sum::<u64>() + dropped, trace.len() as u64);
        prop_assert!(read.iter().all(|(key, count)| count <= &came[key]));
        prop_assert_eq!(pipe.read(), Reading::default(), "each count is read once");
    }
}
