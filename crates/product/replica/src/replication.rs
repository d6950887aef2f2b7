//! The replication protocols of a storage node, each the state machine of one partition, hosted by `nicekv_replica`.
//!
//! `multicast` is NICE's multicast two-phase commit, with a primary; `quorum` are registers without one (R14). What they share, and the next
//! ones may: `clients` (deduplication), `evaluate` (what an update does to a key), `config` (bounds). `hosted` is the list of protocols.

mod clients;
mod config;
mod entry;
mod evaluate;
mod exploration;
mod hosted;
mod multicast;
mod ordered;
mod pieces;
mod quorum;
mod script;
mod transaction;

pub use config::{
    CATCH_UP_DATAGRAMS_MAX, CLIENT_BYTES_MAX, CLIENTS_BYTES_MAX, COMPARES_MAX, COPY_CHUNK_BYTES,
    COPY_PAGES_MAX, EXPIRING_KEYS_MAX, EXPIRY_DELETES_OPEN_MAX, OPEN_OPS_MAX, REPAIRS_MAX, TOMBSTONES_MAX,
    UNRELEASED_MAX, WAITING_GETS_MAX,
};
pub use hosted::{Hosted, Replica};
pub use multicast::Partition;
pub use quorum::QuorumPartition;
pub use script::{LentKeys, SCRIPT_STATES_BYTES_MAX};
