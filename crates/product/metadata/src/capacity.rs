//! Capacity planning (NICE §4.6): how many partitions and nodes fit into the tables of a switch.
//!
//! ```text
//!   a partition takes   1 entry of the unicast ring, 1 of the multicast ring, R - 1 divisions if gets are balanced     2, or R + 1
//!                       1 group, if no other partition has the same replicas
//! ```
//!
//! After splits or merges, a partition may consist of several aligned blocks of vnodes. It then
//! takes one entry in both rings for each block. Planning does not account for that.

use nicekv_proto::placement::{KEYSPACES_MAX, PARTITIONS_MAX};
use nicekv_switch::{GROUP_CAPACITY, HOST_CAPACITY, Table};
use serde::Serialize;

/// Number of vnodes of a ring.
const VNODES: usize = 1 << 16;

/// The capacity of a switch. `None`: unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchCapacity {
    /// Number of entries of all match tables together, if the tables share memory.
    pub shared: Option<usize>,
    /// Number of entries of the unicast ring.
    pub unicast: Option<usize>,
    pub division: Option<usize>,
    /// Number of entries of the multicast ring.
    pub multicast: Option<usize>,
    pub groups: Option<usize>,
    /// Number of servers.
    pub hosts: Option<usize>,
}

impl SwitchCapacity {
    /// The capacity of the switch in this release.
    pub const OURS: Self = Self {
        shared: None,
        unicast: Some(Table::Unicast.capacity()),
        division: Some(Table::Division.capacity()),
        multicast: Some(Table::Multicast.capacity()),
        groups: Some(GROUP_CAPACITY),
        hosts: Some(HOST_CAPACITY),
    };
}

/// The shape of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Number of replicas of a partition, R.
    pub replicas: usize,
    /// Number of partitions for each node.
    pub partitions_per_node: usize,
    /// Whether gets are divided among replicas.
    pub is_balanced: bool,
}

/// The largest cluster of a given shape that fits into a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Carried {
    /// Number of table entries for each partition.
    pub entries_per_partition: usize,
    /// Largest number of partitions.
    pub partitions: usize,
    /// Largest number of nodes.
    pub nodes: usize,
    /// Name of the capacity that is exhausted first.
    pub limit: &'static str,
}

impl Demand {
    /// Number of entries of a partition in both rings and in `division`.
    pub fn entries_per_partition(&self) -> usize {
        2 + self.divisions()
    }

    fn divisions(&self) -> usize {
        if self.is_balanced { self.replicas.saturating_sub(1) } else { 0 }
    }

    /// The largest cluster of this shape that fits into a switch.
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

/// Largest number of partitions that the metadata service manages.
pub const MANAGED_PARTITIONS_MAX: usize = PARTITIONS_MAX as usize;
