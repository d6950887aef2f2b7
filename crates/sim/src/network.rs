//! Links and their faults: who is cut off from whom, and when a datagram arrives, if it does.

use crate::faults::Faults;
use crate::random::Random;
use std::collections::BTreeSet;

/// Something with an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Host {
    /// A storage node, by its index.
    Node(usize),
    /// A client, by its index.
    Client(usize),
    /// The metadata service.
    Metadata,
    /// The switch's agent.
    Switch,
}

/// Least time from host to host.
const LATENCY_NS: u64 = 10_000;
/// Ordinary variation of it.
const JITTER_NS: u64 = 30_000;

/// See the module.
#[derive(Default)]
pub struct Network {
    /// Directions that carry nothing.
    cut: BTreeSet<(Host, Host)>,
}

impl Network {
    /// Whether nothing gets from one to the other.
    pub fn is_cut(&self, from: Host, to: Host) -> bool {
        self.cut.contains(&(from, to))
    }

    /// Cuts one direction.
    pub fn cut(&mut self, from: Host, to: Host) {
        self.cut.insert((from, to));
    }

    /// Mends everything.
    pub fn heal(&mut self) {
        self.cut.clear();
    }

    /// After how long each copy of a datagram arrives; none if it is lost.
    pub fn delays(&self, from: Host, to: Host, faults: &Faults, random: &mut Random) -> Vec<u64> {
        if self.is_cut(from, to) || random.chance(faults.loss_per_million) {
            return Vec::new();
        }
        let copies = if random.chance(faults.duplication_per_million) { 2 } else { 1 };
        let delay = |random: &mut Random| {
            let held_ns = match random.chance(faults.delay_per_million) {
                true => random.below(faults.delay_ns_max),
                false => 0,
            };
            LATENCY_NS + random.below(JITTER_NS) + held_ns
        };
        (0..copies).map(|_| delay(random)).collect()
    }

    /// The delay of something that does not get lost.
    pub fn reliable_delay(&self, random: &mut Random) -> u64 {
        LATENCY_NS + random.below(JITTER_NS)
    }
}
