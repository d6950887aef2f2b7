//! HashPipe (KVSwitch §4.2.5): finds the most requested keys among those without an entry, in a
//! fixed number of slots.
//!
//! ```text
//!   key ─▶ stage 0: always takes it ─▶ stage 1: keeps the larger count ─▶ … ─▶ last stage: the smaller count is dropped
//!                   the evicted key moves on with its count ─▶
//! ```
//!
//! A key that was evicted and is requested again can have slots in several stages: a reading adds
//! up their counts.
//!
//! *Reading loses no request.* There are two banks. Packets count in one; a reader switches to the other, then reads and clears the first. In the kernel, the active bank's number is one word that each packet reads once. A packet may still use the old number after the switch, so the reader waits for an RCU grace period before it reads. In the kernel, each CPU has its own banks, which are added up like stages. Counts dropped at the last stage are themselves counted, so that every request is accounted for.

use crate::config::{Config, ConfigError};
use crate::key::{HotKey, mix};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

const BANKS: usize = 2;

/// A slot of a stage; it is empty while its count is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// The key.
    pub key: HotKey,
    /// Requests since the key entered the slot.
    pub count: u64,
}

/// The counts of a period.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Each key once, the highest counts first.
    pub counts: Vec<(HotKey, u64)>,
    /// Requests whose keys were evicted from the last stage.
    pub dropped: u64,
}

#[derive(Clone, Debug)]
pub struct HashPipe {
    /// All slots, first by bank, then by stage.
    slots: Vec<Slot>,
    seeds: Vec<u64>,
    stage_slots: u32,
    /// The bank in which packets are counted.
    bank: usize,
    dropped: [u64; BANKS],
}

impl HashPipe {
    /// An empty HashPipe. The hash functions derive from `seed`, which should be secret.
    ///
    /// # Errors
    /// A parameter is out of bounds.
    pub fn new(config: &Config, seed: u64) -> Result<Self, ConfigError> {
        config.check()?;
        let stage_slots = config.stage_slots();
        let slots = BANKS * config.stages as usize * stage_slots as usize;
        let seeds = stage_seeds(config.stages, seed).collect();
        Ok(Self { slots: vec![Slot::default(); slots], seeds, stage_slots, bank: 0, dropped: [0; BANKS] })
    }

    /// Counts a request for a key.
    pub fn count(&mut self, key: HotKey) {
        let mut evicted = Slot { key, count: 1 };
        for (stage, seed) in self.seeds.iter().enumerate() {
            let first = (self.bank * self.seeds.len() + stage) * self.stage_slots as usize;
            let slot = &mut self.slots[first + evicted.key.place(*seed, self.stage_slots) as usize];
            if slot.count == 0 {
                *slot = evicted;
                return;
            }
            if slot.key == evicted.key {
                slot.count += evicted.count;
                return;
            }
            // The first stage always takes the new key: its count is 1, so it would never win a
            // comparison.
            if stage == 0 || slot.count < evicted.count {
                core::mem::swap(slot, &mut evicted);
            }
        }
        self.dropped[self.bank] += evicted.count;
    }

    /// The counts since the last reading. Counting continues in the other bank.
    pub fn read(&mut self) -> Reading {
        let read = self.bank;
        self.bank = (read + 1) % BANKS;
        let bank_slots = self.slots.len() / BANKS;
        let slots = &mut self.slots[read * bank_slots..][..bank_slots];
        let counts = sum_by_key(slots.iter().copied());
        slots.fill(Slot::default());
        Reading { counts, dropped: core::mem::take(&mut self.dropped[read]) }
    }
}

/// The seeds of the stages' hash functions.
pub fn stage_seeds(stages: u32, seed: u64) -> impl Iterator<Item = u64> {
    (1..=u64::from(stages)).map(move |stage| mix(seed ^ mix(stage)))
}

/// Adds up the slots of each key, over stages and CPUs; the highest counts first.
pub fn sum_by_key(slots: impl IntoIterator<Item = Slot>) -> Vec<(HotKey, u64)> {
    let mut counts: BTreeMap<HotKey, u64> = BTreeMap::new();
    for slot in slots.into_iter().filter(|slot| slot.count > 0) {
        *counts.entry(slot.key).or_default() += slot.count;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_unstable_by_key(|(key, count)| (core::cmp::Reverse(*count), *key));
    counts
}

#[cfg(test)]
#[path = "hashpipe_tests.rs"]
mod tests;
