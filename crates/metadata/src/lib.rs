//! The metadata service of NICEKV, as a pure core (NICE §4.1, §4.4, §4.5; rules R6, R7, R9, R12, R13, R15).
//!
//! ```text
//!   nodes ── heartbeats, probes ──▶ membership ──┐                        ┌──▶ rules ──▶ switches ── Install ──▶ agents
//!   nodes ── acks, reports ───────▶ watch ───────┼─▶ epochs ─▶ persisted ─┤
//!   agents ── Installed ──────────▶ switches ────┘    state               └──▶ Assign ──▶ nodes
//! ```
//!
//! The core compares the persisted state with what it observes and derives the next state; it remembers no events. Everything
//! that leaves, except answers to heartbeats and probes, is a function of the persisted state, so no message can
//! outrun its step (R13), and a new leader resumes an unfinished step by looking.
//!
//! Reading order: `config`, `state`, `epochs` (what happens to a partition), `handoffs` (who stands in), `membership` (who is live, who
//! has a lease), `watch`, `view` (what a partition sees), `rules`, `switches`, `leader` (ties them together), `status`.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod config;
mod epochs;
mod handoffs;
mod leader;
mod membership;
mod plant;
mod rules;
mod state;
mod status;
mod store;
mod switches;
mod view;
mod watch;

#[cfg(test)]
mod tests;

pub use config::{
    Balancing, Config, ConfigError, NODES_MAX, NodeConfig, PARTITIONS_MAX, SWITCHES_MAX, SwitchId, Timing,
};
pub use leader::{Counters, Metadata, Persisted, StorageRequest};
pub use plant::Plant;
pub use state::{StateError, persisted_version};
pub use status::{
    ClusterInfo, Health, HealthCounts, MemberStanding, MemberStatus, MemberStatusState, NodeState,
    NodeStatus, PartitionState, PartitionStatus, Status, SwitchStatus,
};
pub use store::StateStore;

/// Whether this build has bugs that tests can plant. Cargo unites the features of what is built together, so a binary asks.
pub const HAS_PLANTS: bool = cfg!(feature = "exploration");
