//! One generation of a switch's match tables, which the metadata controller compiles and switch
//! agents install.
//!
//! ```text
//!   hosts            the servers: targets of all other tables, and who may send from which port
//!   unicast_vring    destination prefix           ─▶ host, partition
//!   division         (partition, source prefix)   ─▶ host
//!   multicast_vring  destination prefix           ─▶ multicast group; of storage targets, the members in the address's mask
//!   record           range of match values        ─▶ host, partition, multicast group
//! ```
//!
//! Each table has a file that defines its entry: match key, action and rules. [`Table`] has the
//! tables' names and capacities, [`TableSet`] is a generation.
//!
//! Invariants that [`TableSet::validate`] establishes, and every back end relies on:
//! - Each table is within its capacity, and no two entries have the same match.
//! - Every prefix is canonical and inside its ring; every host that an entry names is a known
//!   storage node.
//! - Except for trunks, a port has at most one host: the egress stage of multicast rewrites by
//!   port.
//! - Member sets are sorted, not empty, and bounded; a partition has at most
//!   [`DIVISIONS_MAX`](crate::DIVISIONS_MAX) divisions.
//! - No two records of a keyspace overlap, and no keyspace has both records and vnodes.

mod chain;
mod diff;
mod division;
mod entry;
mod error;
mod host;
mod members;
mod multicast_vring;
mod record;
mod rule;
mod set;
mod table;
mod target_group;
mod unicast_vring;
mod update;
mod validate;

pub use chain::Chain;
pub use diff::{Changes, EntryChanges};
pub use division::DivisionEntry;
pub use entry::Entry;
pub use error::TableError;
pub use host::{Host, HostId, HostIndex, HostRole};
pub use members::{GROUP_LENGTH, MemberSet, Places};
pub use multicast_vring::MulticastEntry;
pub use record::RecordEntry;
pub use rule::{Action, Match};
pub use set::{TableChange, TableDiff, TableSet};
pub use table::{TABLE_COUNT, Table};
pub use target_group::{masked_entry, subset_entries};
pub use unicast_vring::UnicastEntry;
pub use update::TableUpdate;

#[cfg(test)]
mod tests;
