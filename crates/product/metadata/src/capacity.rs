//! Capacity planning (NICE §4.6): how many partitions and nodes the tables of a switch carry.
//!
//! ```text
//!   a partition takes   1 entry of the unicast ring, 1 of the multicast ring, R - 1 divisions if gets are balanced     2, or R + 1
//!                       1 group, if no other partition has the same replicas
//! ```
//!
//! A partition that was split or merged off the powers of two takes one entry in both rings for each aligned block that it consists of.
//! Planning does not account for that.

use nicekv_proto::placement::{KEYSPACES_MAX, PARTITIONS_MAX};
use nicekv_switch::{GROUP_CAPACITY, HOST_CAPACITY, Table};
use serde::Serialize;

/// Vnodes of a ring.
const VNODES: usize = 1 << 16;

/// The capacity of a switch. `None`: unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchCapacity {
    /// Entries of all match tables together, if they share memory.
    pub shared: Option<usize>,
    /// Entries of the unicast ring.
    pub unicast: Option<usize>,
    /// Divisions.
    pub division: Option<usize>,
    /// Entries of the multicast ring.
    pub multicast: Option<usize>,
    /// Multicast groups.
    pub groups: Option<usize>,
    /// Servers.
    pub hosts: Option<usize>,
}

impl SwitchCapacity {
    /// Of the switch that is part of this release.
    pub const OURS: Self = Self {
        shared: None,
        unicast: Some(Table::Unicast.capacity()),
        division: Some(Table::Division.capacity()),
        multicast: Some(Table::Multicast.capacity()),
        groups: Some(GROUP_CAPACITY),
        hosts: Some(HOST_CAPACITY),
    };
}

/// The demand of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Replicas of a partition, R.
    pub replicas: usize,
    /// Partitions for each node.
    pub partitions_per_node: usize,
    /// Whether gets are divided among replicas.
    pub is_balanced: bool,
}

/// What a switch carries of a demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Carried {
    /// Entries that each partition takes.
    pub entries_per_partition: usize,
    /// Most partitions.
    pub partitions: usize,
    /// Most nodes.
    pub nodes: usize,
    /// The capacity that is exhausted first.
    pub limit: &'static str,
}

impl Demand {
    /// Entries of a partition in both rings and in `division`.
    pub fn entries_per_partition(&self) -> usize {
        2 + self.divisions()
    }

    fn divisions(&self) -> usize {
        if self.is_balanced { self.replicas.saturating_sub(1) } else { 0 }
    }

    /// How much of this demand a switch carries.
    pub fn carried(&self, capacity: &SwitchCapacity) -> Carried {
        let Self { partitions_per_node, .. } = *self;
        let (each, divisions) = (self.entries_per_partition(), self.divisions());
        let partitions = [
            ("entries of all tables", capacity.shared.map(|entries| entries / each)),
            ("unicast_vring", capacity.unicast),
            ("division", capacity.division.filter(|_| divisions > 0).map(|entries| entries / divisions)),
            ("multicast_vring", capacity.multicast),
            ("groups", capacity.groups),
            ("vnodes of all keyspaces", Some(VNODES * KEYSPACES_MAX)),
        ];
        let partitions = partitions.into_iter().filter_map(|(limit, most)| Some((most?, limit)));
        let (partitions, limit) = partitions.min_by_key(|(most, _)| *most).expect("vnodes are a limit");
        let (nodes, limit) = match capacity.hosts {
            Some(hosts) if hosts < partitions / partitions_per_node => (hosts, "hosts"),
            _ => (partitions / partitions_per_node, limit),
        };
        Carried { entries_per_partition: each, partitions: nodes * partitions_per_node, nodes, limit }
    }
}

/// Most partitions that the metadata service manages.
pub const MANAGED_PARTITIONS_MAX: usize = PARTITIONS_MAX as usize;
