//! NICE multicast two-phase commit (NICE §4.2 to §4.4 with rules R1 to R5, R9 to R12 and R15): the replica as a pure state machine.
//!
//! A [`Replica`] is one node. It has no socket, clock, thread, file or randomness: time, datagrams and disk completions come in
//! through `handle_*`, datagrams and disk requests go out through `poll_*`. Read in this order:
//!
//! 1. `prepare`: every replica logs and acknowledges an op;
//! 2. `decide`: the primary orders it, on the fast or the slow path; `evaluate` says what it does;
//! 3. `follow`: the others apply what was decided; `partition` holds the state that both share;
//! 4. `get`: who may answer a get, and with what;
//! 5. `epoch`: recovery when the replica set changes; `history`, `join` and `copy`: what a returning node has missed; `restore`: the log;
//! 6. `sweep`: what is done about silence; `full`, `repair` and `scrub`: about disks that are full, or return damaged values.
//!
//! A [`QuorumReplica`] is a node of a quorum keyspace, another protocol (R14): `quorum`.

#![cfg_attr(not(test), no_std)]
extern crate alloc;

mod clients;
mod config;
mod copy;
mod decide;
mod entries;
mod epoch;
mod evaluate;
#[cfg(feature = "exploration")]
mod exploration;
mod follow;
mod full;
mod get;
mod history;
mod join;
mod node_core;
mod outbox;
mod partition;
mod plant;
mod prepare;
mod quorum;
mod record;
mod repair;
mod replica;
mod restore;
mod scrub;
mod shared;
mod storage;
mod sweep;

pub use config::{
    CATCH_UP_DATAGRAMS_MAX, CLIENT_BYTES_MAX, CLIENTS_BYTES_MAX, COPY_CHUNK_BYTES, COPY_PAGES_MAX,
    OPEN_OPS_MAX, REPAIRS_MAX, ReplicaConfig, TOMBSTONES_MAX, Timing, UNRELEASED_MAX, WAITING_GETS_MAX,
};
pub use full::DiskSpace;
pub use join::StreamPeer;
pub use node_core::{NodeCore, new_core};
pub use partition::Standing;
#[cfg(feature = "exploration")]
pub use plant::Plant;
#[cfg(feature = "exploration")]
pub use quorum::QuorumPlant;
pub use quorum::QuorumReplica;
pub use replica::{PartitionStatus, Replica, ReplicaStatus};
pub use shared::Counters;
pub use storage::{StorageCompletion, StorageRequest};

/// Whether this build has bugs that tests can plant. Cargo unites the features of what is built together, so a binary asks.
pub const HAS_PLANTS: bool = cfg!(feature = "exploration");
