//! Counts of events and faults.

use nicekv_replica::NodeStatus;
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of events: a datagram or frame delivered, a timer, a disk completion.
    pub events: u64,
    /// Counts of faults and other occurrences, by name.
    pub faults: BTreeMap<&'static str, u64>,
    /// Answers to gets that were compared with what the node's core said may be shown.
    pub compared: u64,
    /// Clients' gets that switches sent to a single node, by the node's index.
    pub asked: BTreeMap<usize, u64>,
}

impl Tally {
    pub(super) fn count(&mut self, fault: &'static str) {
        *self.faults.entry(fault).or_default() += 1;
    }

    pub(super) fn count_many(&mut self, fault: &'static str, count: u64) {
        if count > 0 {
            *self.faults.entry(fault).or_default() += count;
        }
    }

    /// Adds the counters of a process.
    pub(super) fn add_counters(&mut self, NodeStatus { counters, values, .. }: &NodeStatus) {
        let counted = [
            ("values made by primaries", values.made),
            ("prepares refused for space", counters.refused_for_space),
            ("ops barred", counters.barred),
            ("values repaired", counters.repaired),
            ("deletions forgotten", counters.forgotten),
            ("differing entries put right", counters.differing),
            ("requests passed on by a node's directory", counters.coordinated),
            ("requests misdirected", counters.misdirected),
            ("partitions born at a node that still runs", counters.born),
            ("messages published", counters.published),
            ("messages told", counters.messages_sent),
        ];
        counted.into_iter().for_each(|(what, count)| self.count_many(what, count));
    }

    /// How often this fault, or other occurrence, was counted.
    pub fn of(&self, fault: &str) -> u64 {
        self.faults.get(fault).copied().unwrap_or(0)
    }

    /// Adds another run's counts.
    pub fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.compared += other.compared;
        for (node, count) in &other.asked {
            *self.asked.entry(*node).or_default() += count;
        }
        for (fault, count) in &other.faults {
            *self.faults.entry(fault).or_default() += count;
        }
    }
}
