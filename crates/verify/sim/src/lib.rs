//! The whole system in one thread, from one seed: the very cores that production runs, with a network, disks and clocks that fail.
//!
//! ```text
//!   faults ──▶ cluster: events ─┬─▶ nodes (replica + disk) ─┐
//!                               ├─▶ metadata, switch ───────┼─▶ network ─▶ events
//!                               └─▶ clients ────────────────┘
//!                                      └─▶ history ─▶ checker        nodes ─▶ judge
//! ```
//!
//! Two ways through the same protocol:
//! * [`cluster`] draws one long, random run of a realistic cluster per seed; [`judge`] looks at it after all faults are healed;
//! * [`explore`] visits *every* state of a tiny cluster within small bounds.
//!
//! All are judged by [`checker`]: the history of each key must be linearizable, and of keys that transactions have together that of all of them.

mod answers;
mod by_chain;
pub mod by_empty_keys;
mod by_fill;
mod by_hashes;
pub mod by_hot;
mod by_kernel;
pub mod by_large;
mod by_leaving;
pub mod by_long_keys;
mod by_messages;
mod by_metadata;
mod by_migration;
mod by_names;
mod by_quorum;
mod by_reshaping;
mod by_transactions;
mod by_tree;
pub mod client;
pub mod cluster;
mod coordination;
pub mod created;
pub mod disk;
pub mod enumerate;
pub mod explore;
pub mod faults;
mod hot_entries;
pub mod judge;
pub mod kernel;
pub mod keyspace;
mod large_values;
mod leftovers;
mod listening;
mod listing;
mod long_keys;
mod migrations;
pub mod network;
pub mod node;
pub mod objects;
mod op_marks;
mod places;
pub mod plants;
mod programs;
pub mod queue;
mod repairs;
mod reshapings;
mod rooms;
mod scanning;
pub mod scenarios;
mod sharing;
pub mod shown;
pub mod switch;
mod transacting;
pub mod transcript;
pub mod trunks;
pub mod watch;
mod workload;

pub use nicekv_history as checker;
pub use nicekv_history::random;
