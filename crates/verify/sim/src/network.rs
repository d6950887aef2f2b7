//! The network: cuts between hosts, loss, duplication and delay of datagrams.

use crate::faults::Faults;
use nicekv_testkit::Random;
use std::collections::BTreeSet;

/// A host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// A storage node, by its index.
    Node(usize),
    /// A client, by its index.
    Client(usize),
    /// The metadata service.
    Metadata,
    /// A further instance of the metadata service, counted from 1. The first is [`Host::Metadata`].
    Instance(usize),
    /// A switch's agent, by its index.
    Switch(usize),
}

impl Host {
    /// An instance of the metadata service, counted from 0.
    pub fn instance(index: usize) -> Self {
        if index == 0 { Self::Metadata } else { Self::Instance(index) }
    }
}

/// Durations without faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Minimum latency between hosts.
    pub latency_ns: u64,
    /// Maximum jitter.
    pub jitter_ns: u64,
    /// Maximum additional time until a node reads its socket, so that batches form.
    pub drain_max_ns: u64,
    /// Minimum time of a sync.
    pub disk_ns: u64,
    /// Time that a node needs for each datagram; others wait in its socket meanwhile.
    pub service_ns: u64,
    /// Capacity of a node's socket in datagrams; more are lost.
    pub inbox_max: usize,
}

impl Pace {
    /// As on a real network.
    pub const VARYING: Self = Self {
        latency_ns: 10_000,
        jitter_ns: 30_000,
        drain_max_ns: 20_000,
        disk_ns: 20_000,
        service_ns: 0,
        inbox_max: 4096,
    };
    /// Constant: only faults change the order of events.
    pub const FIXED: Self = Self {
        latency_ns: 20_000,
        jitter_ns: 0,
        drain_max_ns: 0,
        disk_ns: 100_000,
        service_ns: 0,
        inbox_max: 4096,
    };
    /// Nodes that handle 100,000 datagrams a second, with small sockets; datagrams overtake each
    /// other.
    pub const BUSY: Self = Self { service_ns: 10_000, inbox_max: 1024, ..Self::VARYING };
}

#[derive(Clone)]
pub struct Network {
    pace: Pace,
    /// Directions in which datagrams are dropped.
    cut: BTreeSet<(Host, Host)>,
}

impl Network {
    /// A network without faults.
    pub fn new(pace: Pace) -> Self {
        Self { pace, cut: BTreeSet::new() }
    }

    /// Whether datagrams in this direction are dropped.
    pub fn is_cut(&self, from: Host, to: Host) -> bool {
        !self.cut.is_empty() && self.cut.contains(&(from, to))
    }

    /// Whether there is a cut anywhere.
    pub fn has_cuts(&self) -> bool {
        !self.cut.is_empty()
    }

    /// Cuts one direction.
    pub fn cut(&mut self, from: Host, to: Host) {
        self.cut.insert((from, to));
    }

    /// Heals all cuts.
    pub fn heal(&mut self) {
        self.cut.clear();
    }

    /// Delays of the copies of a datagram; none if it is lost.
    pub fn delays(&self, from: Host, to: Host, faults: &Faults, random: &mut Random) -> [Option<u64>; 2] {
        if self.is_cut(from, to) || random.chance(faults.loss) {
            return [None, None];
        }
        let first = self.delay(faults, random);
        let second = random.chance(faults.duplication).then(|| self.delay(faults, random));
        [Some(first), second]
    }

    fn delay(&self, faults: &Faults, random: &mut Random) -> u64 {
        let is_held = random.chance(faults.delay);
        let held_ns = if is_held { random.below(faults.delay_max_ns) } else { 0 };
        self.reliable_delay(random) + held_ns
    }

    /// The delay of a message that is not lost.
    pub fn reliable_delay(&self, random: &mut Random) -> u64 {
        self.pace.latency_ns + random.below(self.pace.jitter_ns)
    }
}
