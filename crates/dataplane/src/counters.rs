//! The named global counters of a switch. The numbers are the indexes of the counter array in the kernel.

use serde::{Deserialize, Serialize};

/// What a switch counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u32)]
pub enum Counter {
    /// Too short to classify, or for a vring with lengths that contradict each other: dropped.
    Malformed,
    /// For a vring, but without an entry, not UDP, or ARP: dropped.
    VringMiss,
    /// For a vring in a form that the store never sends (VLAN tag, IP fragment): dropped.
    VringRefused,
    /// Matches in `unicast_vring`.
    UnicastHits,
    /// Matches in `division`.
    DivisionHits,
    /// Matches in `multicast_vring`.
    MulticastHits,
    /// Copies rewritten by the egress stage.
    MulticastCopies,
    /// A copy for a port that has no host: dropped by the egress stage. Means a bug in a back end.
    EgressDropped,
    /// Others' traffic, sent to the port where its destination was learned.
    LearnedForwarded,
    /// Others' traffic, to a group or an unknown destination: sent to every other port.
    Flooded,
    /// Others' traffic whose destination is on the port that it came from: dropped.
    SamePortDropped,
}

/// Number of counters.
pub const COUNTER_COUNT: usize = Counter::ALL.len();

impl Counter {
    /// Every counter, in the order of their numbers.
    pub const ALL: [Self; 11] = [
        Self::Malformed,
        Self::VringMiss,
        Self::VringRefused,
        Self::UnicastHits,
        Self::DivisionHits,
        Self::MulticastHits,
        Self::MulticastCopies,
        Self::EgressDropped,
        Self::LearnedForwarded,
        Self::Flooded,
        Self::SamePortDropped,
    ];

    /// The name that operators see.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::VringMiss => "vring_miss",
            Self::VringRefused => "vring_refused",
            Self::UnicastHits => "unicast_hits",
            Self::DivisionHits => "division_hits",
            Self::MulticastHits => "multicast_hits",
            Self::MulticastCopies => "multicast_copies",
            Self::EgressDropped => "egress_dropped",
            Self::LearnedForwarded => "learned_forwarded",
            Self::Flooded => "flooded",
            Self::SamePortDropped => "same_port_dropped",
        }
    }
}

/// A reading of all counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters([u64; COUNTER_COUNT]);

impl Counters {
    /// The value of one counter.
    pub fn get(&self, counter: Counter) -> u64 {
        self.0[counter as usize]
    }

    /// Counts `count` more.
    pub fn add(&mut self, counter: Counter, count: u64) {
        self.0[counter as usize] = self.0[counter as usize].wrapping_add(count);
    }

    /// Every counter with its value.
    pub fn iter(&self) -> impl Iterator<Item = (Counter, u64)> + '_ {
        Counter::ALL.into_iter().zip(self.0)
    }

    /// What was counted since `earlier`.
    pub fn since(&self, earlier: &Counters) -> Counters {
        let mut difference = *self;
        for (value, before) in difference.0.iter_mut().zip(earlier.0) {
            *value = value.wrapping_sub(before);
        }
        difference
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_the_order_of_the_list() {
        for (index, counter) in Counter::ALL.into_iter().enumerate() {
            assert_eq!(counter as usize, index);
        }
    }
}
