//! The named global counters of a switch. The numbers are the indexes of the counter array in the kernel.

use serde::{Deserialize, Serialize};

use crate::{TABLE_COUNT, Table};

/// What a switch counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Counter {
    /// Too short to classify, or for a vring with lengths that contradict each other: dropped.
    Malformed,
    /// For a vring, but without an entry, not UDP, or ARP: dropped.
    VringMiss,
    /// For a vring in a form that the store never sends (VLAN tag, IP fragment): dropped.
    VringRefused,
    /// For a vring, but no datagram of the store: dropped.
    NotOurs,
    /// From an address that is not the sender's: dropped.
    SourceRefused,
    /// What a sender of this kind may not send there: dropped.
    OpcodeRefused,
    /// Copies of multicasts, one for each port that they leave by.
    MulticastCopies,
    /// A copy for a port that has no host: dropped by the egress stage. Means a bug in a back end.
    EgressDropped,
    /// Others' traffic, sent to the port where its destination was learned.
    LearnedForwarded,
    /// Others' traffic, to a group or an unknown destination: sent to every other port.
    Flooded,
    /// Whose receiver is on the port, or behind the trunk, that it came from: dropped.
    SamePortDropped,
    /// Requests sent along a chain: puts to its head, gets to its tail.
    Chained,
    /// Pieces cut off scans at the borders of records: of n pieces n - 1.
    ScanSplits,
    /// Gets of hot keys that a holder of a copy got.
    HotRedirected,
    /// Confirmations of copies that were taken in.
    HotConfirmed,
    /// Closes of hot keys that were answered.
    HotClosed,
    /// What else was said to the switch of hot keys: it had no such instance, or no such holder, or wants no such value.
    HotUnheard,
    /// Gets of hot keys that the switch has answered itself.
    HotAnswered,
    /// Values of hot keys that the switch has taken in.
    HotKept,
    /// Leases of such values that were given, or asked for.
    HotLeased,
    /// Matches in a table.
    Hits(Table),
}

/// Those that no table brings along.
const FIXED: [Counter; 20] = [
    Counter::Malformed,
    Counter::VringMiss,
    Counter::VringRefused,
    Counter::NotOurs,
    Counter::SourceRefused,
    Counter::OpcodeRefused,
    Counter::MulticastCopies,
    Counter::EgressDropped,
    Counter::LearnedForwarded,
    Counter::Flooded,
    Counter::SamePortDropped,
    Counter::Chained,
    Counter::ScanSplits,
    Counter::HotRedirected,
    Counter::HotConfirmed,
    Counter::HotClosed,
    Counter::HotUnheard,
    Counter::HotAnswered,
    Counter::HotKept,
    Counter::HotLeased,
];

/// Number of counters.
pub const COUNTER_COUNT: usize = FIXED.len() + TABLE_COUNT;

impl Counter {
    /// Every counter, in the order of their numbers.
    pub const ALL: [Self; COUNTER_COUNT] = {
        let mut all = [Self::Malformed; COUNTER_COUNT];
        let mut index = 0;
        while index < COUNTER_COUNT {
            all[index] =
                if index < FIXED.len() { FIXED[index] } else { Self::Hits(Table::ALL[index - FIXED.len()]) };
            index += 1;
        }
        all
    };

    /// Its number.
    pub const fn index(self) -> usize {
        match self {
            Self::Malformed => 0,
            Self::VringMiss => 1,
            Self::VringRefused => 2,
            Self::NotOurs => 3,
            Self::SourceRefused => 4,
            Self::OpcodeRefused => 5,
            Self::MulticastCopies => 6,
            Self::EgressDropped => 7,
            Self::LearnedForwarded => 8,
            Self::Flooded => 9,
            Self::SamePortDropped => 10,
            Self::Chained => 11,
            Self::ScanSplits => 12,
            Self::HotRedirected => 13,
            Self::HotConfirmed => 14,
            Self::HotClosed => 15,
            Self::HotUnheard => 16,
            Self::HotAnswered => 17,
            Self::HotKept => 18,
            Self::HotLeased => 19,
            Self::Hits(table) => FIXED.len() + table as usize,
        }
    }

    /// The name that operators see.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::VringMiss => "vring_miss",
            Self::VringRefused => "vring_refused",
            Self::NotOurs => "not_ours",
            Self::SourceRefused => "source_refused",
            Self::OpcodeRefused => "opcode_refused",
            Self::MulticastCopies => "multicast_copies",
            Self::EgressDropped => "egress_dropped",
            Self::LearnedForwarded => "learned_forwarded",
            Self::Flooded => "flooded",
            Self::SamePortDropped => "same_port_dropped",
            Self::Chained => "chained",
            Self::ScanSplits => "scan_splits",
            Self::HotRedirected => "hot_redirected",
            Self::HotConfirmed => "hot_confirmed",
            Self::HotClosed => "hot_closed",
            Self::HotUnheard => "hot_unheard",
            Self::HotAnswered => "hot_answered",
            Self::HotKept => "hot_kept",
            Self::HotLeased => "hot_leased",
            Self::Hits(table) => table.hits_name(),
        }
    }
}

/// A reading of all counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters([u64; COUNTER_COUNT]);

impl Counters {
    /// The value of one counter.
    pub fn get(&self, counter: Counter) -> u64 {
        self.0[counter.index()]
    }

    /// Counts `count` more.
    pub fn add(&mut self, counter: Counter, count: u64) {
        let value = &mut self.0[counter.index()];
        *value = value.wrapping_add(count);
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
            assert_eq!(counter.index(), index);
        }
    }
}
