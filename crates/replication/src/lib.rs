//! The replication protocols of a storage node, each the state machine of one partition, hosted by `nicekv_node`.
//!
//! NICE's multicast two-phase commit (NICE §4.2 to §4.4 with rules R1 to R5, R7, R8, R10, R11 and R15) is this crate's top level. Read in
//! this order:
//!
//! 1. `multicast`: which event goes where; `partition`: the state that all share;
//! 2. `prepare`: every replica logs and acknowledges an op;
//! 3. `decide`: the primary orders it, on the fast or the slow path; `evaluate` says what it does;
//! 4. `follow`: the others apply what was decided;
//! 5. `get`: who may answer a get, and with what; `expiry`: values whose time has come;
//! 6. `epoch`: recovery when the replica set changes; `history`, `join` and `copy`: what a returning node has missed; `restore`: the log;
//! 7. `sweep`: what is done about silence; `full` and `repair`: about disks that are full, or return damaged values;
//!    `compare`: about replicas that differ.
//!
//! `quorum` is another protocol (R14): registers without a primary.

#![cfg_attr(not(test), no_std)]
extern crate alloc;

mod clients;
mod compare;
mod config;
mod copy;
mod decide;
mod entries;
mod epoch;
mod evaluate;
mod expiry;
#[cfg(feature = "exploration")]
mod exploration;
mod follow;
mod full;
mod get;
mod history;
mod hosted;
mod join;
mod multicast;
mod partition;
mod prepare;
mod quorum;
mod record;
mod repair;
mod restore;
mod sweep;
mod waits;

pub use config::{
    CATCH_UP_DATAGRAMS_MAX, CLIENT_BYTES_MAX, CLIENTS_BYTES_MAX, COMPARES_MAX, COPY_CHUNK_BYTES,
    COPY_PAGES_MAX, EXPIRING_KEYS_MAX, EXPIRY_DELETES_OPEN_MAX, OPEN_OPS_MAX, REPAIRS_MAX, TOMBSTONES_MAX,
    UNRELEASED_MAX, WAITING_GETS_MAX,
};
pub use hosted::{Hosted, Replica};
pub use partition::Partition;
pub use quorum::QuorumPartition;

/// Whether this build has bugs that tests can plant. Cargo unites the features of what is built together, so a binary asks.
pub const HAS_PLANTS: bool = cfg!(feature = "exploration");
