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
use nicekv_switch::{Prefix, VringConfig, VringSet};
use std::net::Ipv4Addr;

/// Shape of a cluster and of what it goes through.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Storage nodes that the cluster begins with.
    pub nodes: usize,
    /// Nodes that run and may be added.
    pub spares: usize,
    /// Numbered from 0.
    pub keyspaces: Vec<Shape>,
    /// Switches; hosts are attached to them in turn, and all of them have the same tables.
    pub switches: usize,
    /// How they hang together, if they do: then each host hangs at one of them. Else every server hangs at each.
    pub trunks: Trunks,
    /// Whether no switch may ever send back, and so lose, what a client asks for: where nothing but the order of updates could make it.
    pub ways_are_whole: bool,
    /// Whether every host has a switch of its own instead, which may die with it.
    pub edges: bool,
    /// Instances of the metadata service; several share a store, and one leads by lease.
    pub instances: usize,
    /// For how long it leads after the store has heard it.
    pub store_lease: Duration,
    /// What goes wrong with that store.
    pub store_faults: StoreFaults,
    /// Whether gets are spread over the replicas by their source.
    pub balancing: bool,
    /// Whether the switches hide the source addresses, as the one in user space does.
    pub hides_sources: bool,
    /// Whether nodes' kernels answer gets.
    pub kernel_gets: bool,
    /// Between two changes of the hot entries in switches; 0: there are none.
    pub hot_interval_ns: u64,
    /// Whether some of these say that the switch has a copy, too (H9).
    pub hot_values: bool,
    /// Who finds the node for a request to a chain.
    pub coordination: Coordination,
    /// How fast nodes discard what nobody needs: a slow one may be at it when it becomes a member again.
    pub discard_bytes_per_second: u64,
    /// Clients.
    pub clients: usize,
    /// What they do.
    pub workload: Workload,
    /// How long things take.
    pub pace: Pace,
    /// Periods of the metadata service.
    pub timing: Timing,
    /// What goes wrong, for `faults_end_ns`.
    pub faults: Faults,
    /// When everything is healed.
    pub faults_end_ns: u64,
    /// Of a thousand requests no more datagrams are sent again, if there is no other fault.
    pub retries_max: Option<u64>,
}

impl Scenario {
    /// Nodes that run.
    pub(crate) fn node_count(&self) -> usize {
        self.nodes + self.spares
    }

    /// How often nodes tell who asks for what: twice as often as it is looked at, where that is so often that a run sees it.
    pub(crate) fn sources(&self) -> Duration {
        let interval = self.timing.divide_interval;
        let is_seen = self.balancing && interval < Timing::default().divide_interval;
        if is_seen { interval / 2 } else { Duration::ZERO }
    }

    /// The same as the metadata service has them: switches are asked for what they count only where something follows from it.
    pub(crate) fn timing(&self) -> Timing {
        let count_interval = if self.migrates() { self.timing.balance_period / 5 } else { Duration::ZERO };
        Timing { count_interval, ..self.timing }
    }

    /// Whether partitions of any keyspace go where load is little.
    pub(crate) fn migrates(&self) -> bool {
        self.keyspaces.iter().any(|shape| shape.migrates)
    }

    /// The ring of groups of targets, where there are names of objects.
    pub(crate) fn group_ring(&self) -> Option<GroupRing> {
        let has_names = self.keyspaces.iter().any(|shape| shape.has_names);
        has_names.then(|| GroupRing::on_network(PORT_DEFAULT))
    }

    /// All rings, as switches have them.
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

    /// How often nodes tell where load lies.
    pub(crate) fn heat(&self) -> Duration {
        if self.migrates() { self.timing.balance_period / 3 } else { Duration::ZERO }
    }

    /// How often nodes count what they store: where something follows from it, as often as they tell where load lies.
    pub(crate) fn usage(&self) -> Duration {
        let is_bounded = self.keyspaces.iter().any(|shape| shape.keys_max.is_some());
        if is_bounded { self.heat() } else { Duration::ZERO }
    }

    /// Trunks are between switches with ports.
    pub(crate) fn has_trunks(&self) -> bool {
        let are_there = self.trunks != Trunks::None && self.switch_count() > 1;
        are_there && !self.edges && !self.hides_sources
    }

    /// Of each switch those to which trunks lead.
    pub(crate) fn neighbours(&self) -> Vec<Vec<usize>> {
        let trunks = if self.has_trunks() { self.trunks } else { Trunks::None };
        trunks.neighbours(self.switch_count())
    }

    /// Switches that there are.
    pub(crate) fn switch_count(&self) -> usize {
        if self.edges {
            return self.node_count() + self.clients;
        }
        self.trunks.switches().filter(|_| !self.hides_sources).unwrap_or(self.switches)
    }
}
