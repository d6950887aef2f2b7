//! HashPipe (KVSwitch §4.2.5): which of the keys that are not hot yet are asked most, in a fixed number of slots.
//!
//! ```text
//!   key ─▶ stage 0: always takes it ─▶ stage 1: keeps the larger ─▶ … ─▶ last stage: what is carried on is dropped
//!                   who was there is carried on with its count ─▶
//! ```
//!
//! A key that was carried on may come again, so that it has slots in several stages: their counts are added up on reading.
//!
//! *Reading* loses nothing. There are two banks; packets count in one, and a reader turns to the other, reads the first at leisure and empties it. What is counted meanwhile is
//! in the other. In the kernel the bank's number is one word that each packet reads once. A packet may still hold the old number at the turn, so the reader waits for as long as
//! programs run (an RCU grace period) before it reads. Processors have banks of their own there, which are added up as stages are. What falls out of the last stage is counted, so that all that came is accounted for.

use crate::config::{Config, ConfigError};
use crate::key::{HotKey, mix};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

const BANKS: usize = 2;

/// A place of a stage; empty while its count is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Whose count it is.
    pub key: HotKey,
    /// Requests since it came in.
    pub count: u64,
}

/// What a period's reading has: keys by their counts, the most asked first, and how many requests fell out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Each key once.
    pub counts: Vec<(HotKey, u64)>,
    /// Requests whose keys have lost their slots.
    pub dropped: u64,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct HashPipe {
    /// Bank by bank, and in each stage by stage.
    slots: Vec<Slot>,
    seeds: Vec<u64>,
    stage_slots: u32,
    /// Packets count in this one.
    bank: usize,
    dropped: [u64; BANKS],
}

impl HashPipe {
    /// An empty one. The seed makes its hash functions, and should be nobody's to guess.
    pub fn new(config: &Config, seed: u64) -> Result<Self, ConfigError> {
        config.check()?;
        let stage_slots = config.stage_slots();
        let slots = BANKS * config.stages as usize * stage_slots as usize;
        let seeds = stage_seeds(config.stages, seed).collect();
        Ok(Self { slots: vec![Slot::default(); slots], seeds, stage_slots, bank: 0, dropped: [0; BANKS] })
    }

    /// Counts a request for a key.
    pub fn count(&mut self, key: HotKey) {
        let mut carried = Slot { key, count: 1 };
        for (stage, seed) in self.seeds.iter().enumerate() {
            let first = (self.bank * self.seeds.len() + stage) * self.stage_slots as usize;
            let slot = &mut self.slots[first + carried.key.place(*seed, self.stage_slots) as usize];
            if slot.count == 0 {
                *slot = carried;
                return;
            }
            if slot.key == carried.key {
                slot.count += carried.count;
                return;
            }
            // The first stage takes everybody, or a key would never get beyond a count of one.
            if stage == 0 || slot.count < carried.count {
                core::mem::swap(slot, &mut carried);
            }
        }
        self.dropped[self.bank] += carried.count;
    }

    /// What was counted since the last reading; counting goes on in the other bank.
    pub fn read(&mut self) -> Reading {
        let read = self.bank;
        self.bank = (read + 1) % BANKS;
        let bank_slots = self.slots.len() / BANKS;
        let slots = &mut self.slots[read * bank_slots..][..bank_slots];
        let counts = add_up(slots.iter().copied());
        slots.fill(Slot::default());
        Reading { counts, dropped: core::mem::take(&mut self.dropped[read]) }
    }
}

/// The seeds of the stages' hash functions, made of one.
pub fn stage_seeds(stages: u32, seed: u64) -> impl Iterator<Item = u64> {
    (1..=u64::from(stages)).map(move |stage| mix(seed ^ mix(stage)))
}

/// Keys with all that slots of stages, and of processors, have of them, the most asked first.
pub fn add_up(slots: impl IntoIterator<Item = Slot>) -> Vec<(HotKey, u64)> {
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
