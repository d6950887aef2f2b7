//! The scenario of a run: size of the cluster, workload, faults.

use crate::client::Workload;
use crate::faults::{Faults, StoreFaults};
use crate::keyspace::{Shape, specs};
use crate::network::Pace;
use crate::trunks::Trunks;
use nicekv_client::Coordination;
use nicekv_metadata::Timing;
use nicekv_proto::Duration;
use nicekv_proto::limits::PORT_DEFAULT;
use nicekv_proto::placement::{GroupRing, ring_pairs};
use nicekv_switch::{Matching, Prefix, VringConfig, VringSet};
use std::net::Ipv4Addr;

#[derive(Clone, Debug)]
pub struct Scenario {
    /// Storage nodes at the beginning.
    pub nodes: usize,
    /// Further nodes that run, and that the operator may add.
    pub spares: usize,
    /// The keyspaces, numbered from 0.
    pub keyspaces: Vec<Shape>,
    /// Number of switches. Hosts are attached to them in turn, and all have the same tables.
    pub switches: usize,
    /// The trunks between switches, if there are any: then each host is attached to one switch.
    /// Else every server is attached to all.
    pub trunks: Trunks,
    /// Whether it is a violation that a switch would send a client's request back where it came
    /// from, and so drops it. Set where only the order of table updates could cause it.
    pub ways_are_whole: bool,
    /// Whether every host has its own switch, which may fail with it.
    pub edges: bool,
    /// Instances of the metadata service. Several share a store, and one leads by lease.
    pub instances: usize,
    /// Duration of the leader lease.
    pub store_lease: Duration,
    /// Faults of that store.
    pub store_faults: StoreFaults,
    /// Whether gets are divided among the replicas by their source address.
    pub balancing: bool,
    /// Whether the switches replace the source addresses, as the user-space switch does.
    pub hides_sources: bool,
    /// How deep the switches look into packets.
    pub matching: Matching,
    /// Whether nodes' kernels answer gets.
    pub kernel_gets: bool,
    /// Interval of changes to the hot entries in switches; 0: there are none.
    pub hot_interval_ns: u64,
    /// Whether some hot entries give the switch a copy, too (H9).
    pub hot_values: bool,
    /// The router of requests to chains: the switch, nodes or clients.
    pub coordination: Coordination,
    /// How fast nodes copy data from others.
    pub copy_bytes_per_second: u64,
    /// How fast nodes discard unneeded data. A slow node may still discard when it becomes a member
    /// again.
    pub discard_bytes_per_second: u64,
    /// Number of clients.
    pub clients: usize,
    pub workload: Workload,
    /// Durations without faults.
    pub pace: Pace,
    /// Intervals and timeouts of the metadata service.
    pub timing: Timing,
    /// Rates of faults until `faults_end_ns`.
    pub faults: Faults,
    /// When all faults are healed.
    pub faults_end_ns: u64,
    /// Maximum retransmitted datagrams per thousand requests, in a run without other faults.
    pub retries_max: Option<u64>,
}

impl Scenario {
    /// Nodes that run, spares included.
    pub(crate) fn node_count(&self) -> usize {
        self.nodes + self.spares
    }

    /// Interval of nodes' reports on who sends gets: half of the interval at which load is divided,
    /// if a run is long enough to see that.
    pub(crate) fn sources(&self) -> Duration {
        let interval = self.timing.divide_interval;
        let is_seen = self.balancing && interval < Timing::default().divide_interval;
        if is_seen { interval / 2 } else { Duration::ZERO }
    }

    /// The timing of the metadata service. It polls switch counters only if something depends on
    /// them.
    pub(crate) fn timing(&self) -> Timing {
        let count_interval = if self.migrates() { self.timing.balance_period / 5 } else { Duration::ZERO };
        Timing { count_interval, ..self.timing }
    }

    /// Whether load moves partitions of any keyspace.
    pub(crate) fn migrates(&self) -> bool {
        self.keyspaces.iter().any(|shape| shape.migrates)
    }

    /// The ring of groups of targets, if keys are names of objects.
    pub(crate) fn group_ring(&self) -> Option<GroupRing> {
        let has_names = self.keyspaces.iter().any(|shape| shape.has_names);
        has_names.then(|| GroupRing::on_network(PORT_DEFAULT))
    }

    /// All rings that the switches know.
    pub(crate) fn rings(&self) -> VringSet {
        let ring = |base: Ipv4Addr| Prefix::new(base.octets(), 16);
        let pairs = ring_pairs(&specs(&self.keyspaces))
            .into_iter()
            .map(|(unicast, multicast)| VringConfig { unicast: ring(unicast), multicast: ring(multicast) });
        let rings = VringSet::new(pairs).expect("every keyspace has its own");
        match self.group_ring() {
            Some(ring) => rings.with_group(ring).expect("no keyspace has it"),
            None => rings,
        }
    }

    /// Interval of nodes' reports on their load.
    pub(crate) fn heat(&self) -> Duration {
        if self.migrates() { self.timing.balance_period / 3 } else { Duration::ZERO }
    }

    /// Interval at which nodes count what they store: that of load reports, if something depends on
    /// it.
    pub(crate) fn usage(&self) -> Duration {
        let is_bounded = self.keyspaces.iter().any(|shape| shape.keys_max.is_some());
        if is_bounded { self.heat() } else { Duration::ZERO }
    }

    /// Whether switches have trunks between them. Then they have ports, too.
    pub(crate) fn has_trunks(&self) -> bool {
        let are_there = self.trunks != Trunks::None && self.switch_count() > 1;
        are_there && !self.edges && !self.hides_sources
    }

    /// The neighbours of each switch.
    pub(crate) fn neighbours(&self) -> Vec<Vec<usize>> {
        let trunks = if self.has_trunks() { self.trunks } else { Trunks::None };
        trunks.neighbours(self.switch_count())
    }

    /// Number of switches.
    pub(crate) fn switch_count(&self) -> usize {
        if self.edges {
            return self.node_count() + self.clients;
        }
        self.trunks.switches().filter(|_| !self.hides_sources).unwrap_or(self.switches)
    }
}
