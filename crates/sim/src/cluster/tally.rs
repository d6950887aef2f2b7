//! What happened, counted.

use nicekv_node::Counters;
use std::collections::BTreeMap;

/// How often what happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Events: a datagram or frame delivered, a timer, a disk completion.
    pub events: u64,
    /// Faults, by what happened.
    pub faults: BTreeMap<&'static str, u64>,
    /// Answers to gets that were compared with what a node's core said may be shown.
    pub compared: u64,
}

impl Tally {
    pub(super) fn count(&mut self, fault: &'static str) {
        *self.faults.entry(fault).or_default() += 1;
    }

    /// Adds what a process has counted.
    pub(super) fn add_counters(&mut self, counters: &Counters) {
        let counted = [
            ("prepares refused for space", counters.refused_for_space),
            ("values repaired", counters.repaired),
            ("deletions forgotten", counters.forgotten),
            ("differing entries put right", counters.differing),
        ];
        for (what, count) in counted.into_iter().filter(|(_, count)| *count > 0) {
            *self.faults.entry(what).or_default() += count;
        }
    }

    /// How often this fault happened.
    pub fn of(&self, fault: &str) -> u64 {
        self.faults.get(fault).copied().unwrap_or(0)
    }

    /// Adds what happened elsewhere.
    pub fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.compared += other.compared;
        for (fault, count) in &other.faults {
            *self.faults.entry(fault).or_default() += count;
        }
    }
}
