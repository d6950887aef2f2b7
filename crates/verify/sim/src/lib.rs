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

mod chain_room;
pub mod client;
pub mod cluster;
pub mod created_keyspaces;
pub mod disk;
pub mod enumerate;
pub mod explore;
pub mod faults;
pub mod features;
pub mod invariants;
pub mod judge;
pub mod kernel;
pub mod keyspace;
pub mod network;
pub mod node;
pub mod objects;
mod op_marks;
pub mod plants;
pub mod scenarios;
mod script_engine;
pub mod switch;
pub mod transcript;
pub mod trunks;
mod value_store;
pub mod visibility;
mod workload;

pub use nicekv_history as checker;
