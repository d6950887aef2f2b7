//! Capacities of a switch: the largest sizes of its tables, groups and registers.

use nicekv_proto::limits::MEMBERS_MAX;

/// Keyspaces of one switch. Each has a pair of vrings.
pub const VRINGS_MAX: usize = 16;
/// Ports of one switch.
pub const PORTS_MAX: usize = 256;
/// Servers of one switch.
pub const HOST_CAPACITY: usize = 256;
/// Distinct multicast groups.
pub const GROUP_CAPACITY: usize = 1024;
/// Members of one multicast group.
pub const GROUP_MEMBERS_MAX: usize = 16;
/// Divisions of a partition: one for each replica except the primary, which serves the sources that
/// no division covers.
pub const DIVISIONS_MAX: usize = 8;
/// Nodes of a chain.
pub const CHAIN_NODES_MAX: usize = MEMBERS_MAX;
