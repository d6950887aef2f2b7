//! Deterministic simulation of a whole cluster in one thread, from one seed: the cores of production, with a network, disks and clocks
//! that fail.
//!
//! ```text
//!   faults ──▶ cluster: events ─┬─▶ nodes (replica + disk) ─┐
//!                               ├─▶ metadata, switch ───────┼─▶ network ─▶ events
//!                               └─▶ clients ────────────────┘
//!                                      └─▶ history ─▶ checker        nodes ─▶ judge
//! ```
//!
//! Three ways through the same protocol:
//! * [`cluster`] executes one long, random run of a realistic cluster per seed; [`judge`] checks it after all faults are healed;
//! * [`enumerate`] injects every fault at every point of short runs;
//! * [`explore`] visits *every* state of a tiny cluster within small bounds.
//!
//! All use the same [`checker`]: the history of each key must be linearizable, and that of keys which share transactions as a whole.
//! [`plants`] says which runs find which planted bug, and [`features`] which features a seed uses.

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
