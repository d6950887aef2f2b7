//! The named global counters of a switch. Their numbers are indexes into the counter array of the
//! kernel programs.

use serde::{Deserialize, Serialize};

use crate::{TABLE_COUNT, Table};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Counter {
    /// Dropped: too short to classify, or addressed to a vring with inconsistent lengths.
    Malformed,
    /// Dropped: addressed to a vring, but no entry covers it, or it is ARP or another protocol than
    /// UDP.
    VringMiss,
    /// Dropped: addressed to a vring in a form that the store never sends (VLAN tag, IP fragment).
    VringRefused,
    /// Dropped: addressed to a vring, but not a datagram of the store.
    NotOurs,
    /// Dropped: the source address does not belong to the sender.
    SourceRefused,
    /// Dropped: this sender may not send this opcode to this address.
    OpcodeRefused,
    /// Copies of multicasts, one for each egress port.
    MulticastCopies,
    /// Dropped by the egress stage: a copy of a multicast for a port without a host. Indicates a
    /// bug in a back end.
    EgressDropped,
    /// Other traffic that was sent to the port where its destination address was learned.
    LearnedForwarded,
    /// Other traffic to a group or an unknown destination, which was sent to every other port.
    Flooded,
    /// Dropped: its receiver is at the ingress port or behind the ingress trunk.
    SamePortDropped,
    /// Requests sent along a chain: puts to its head, gets to its tail.
    Chained,
    /// Cuts of scans at the borders of records: n - 1 for n pieces.
    ScanSplits,
    /// Gets of hot keys that were redirected to a holder of a copy.
    HotRedirected,
    /// Confirmations of copies that were accepted.
    HotConfirmed,
    /// Closes of hot keys that were answered.
    HotClosed,
    /// Messages about hot keys that were ignored: the instance or the holder is unknown, or the
    /// entry does not allow the value.
    HotUnheard,
    /// Gets of hot keys that the switch has answered itself.
    HotAnswered,
    /// Values of hot keys that the switch has stored.
    HotKept,
    /// Lease messages for stored values that were answered.
    HotLeased,
    /// Matches in a table.
    Hits(Table),
}

/// All counters except the hits of tables.
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

    /// The counter's index in the array of the kernel programs.
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

    /// The counter's name in status screens and metrics.
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

    /// Adds `count` to a counter.
    pub fn add(&mut self, counter: Counter, count: u64) {
        let value = &mut self.0[counter.index()];
        *value = value.wrapping_add(count);
    }

    /// Every counter with its value.
    pub fn iter(&self) -> impl Iterator<Item = (Counter, u64)> + '_ {
        Counter::ALL.into_iter().zip(self.0)
    }

    /// The difference from an earlier reading.
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
    fn indexes_follow_the_order_of_all_counters() {
        for (index, counter) in Counter::ALL.into_iter().enumerate() {
            assert_eq!(counter.index(), index);
        }
    }
}
