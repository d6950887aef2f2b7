//! Capacities of a switch: what its tables, groups and registers hold at most.

use nicekv_proto::limits::MEMBERS_MAX;

/// Keyspaces of one switch, each with a pair of vrings.
pub const VRINGS_MAX: usize = 16;
/// Ports of one switch.
pub const PORTS_MAX: usize = 256;
/// Servers of one switch.
pub const HOST_CAPACITY: usize = 256;
/// Distinct multicast groups.
pub const GROUP_CAPACITY: usize = 1024;
/// Members of one multicast group.
pub const GROUP_MEMBERS_MAX: usize = 16;
/// Divisions of a partition: one for each replica but the primary, which serves the sources that no division claims.
pub const DIVISIONS_MAX: usize = 8;
/// Nodes of a chain.
pub const CHAIN_NODES_MAX: usize = MEMBERS_MAX;
