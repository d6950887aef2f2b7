//! A storage node as a pure state machine. Its partitions replicate in the mode of their keyspace:
//! multicast, chain or quorum.
//!
//! A [`Replica`] has no socket, clock, thread, file or random source. The time, datagrams and disk
//! completions come in through `handle_*`; datagrams and disk requests go out through `poll_*`.
//!
//! ```text
//!   datagram ─▶ node: digest, route, epoch, sender ─▶ partition, by its mode ─▶ host: disk, network, lease
//! ```
//!
//! * `node`: what a node does in every mode. `node/mod.rs` checks and dispatches datagrams;
//!   `requests` and `routes` find the partition of a request. `host` is the part of the node that
//!   partitions may use: `storage` (the disk), `outbox` (the network), `session` (lease and term),
//!   `visibility` (what may be shown outside of the core, as by the kernel).
//! * `modes`: what a partition does. `ordered` agrees on a sequence of decisions (multicast
//!   two-phase commit, chains); `quorum` keeps registers without a primary (R14).
//! * `large`: large values. `hot`: copies of hot keys at other nodes. `split`: splits and merges of
//!   partitions.

#![cfg_attr(not(test), no_std)]
extern crate alloc;

mod hot;
mod large;
mod modes;
mod node;
mod split;
mod types;

pub use hot::{CopyOf, CopyShift, Lessor};
pub use large::ValueCounters;
pub(crate) use large::{LargePut, Recipe, ValuePart};
pub(crate) use modes::messages::{CopyChunk, CopyRequest, Message, Request};
pub use modes::{CLIENT_BYTES_MAX, CLIENTS_BYTES_MAX, COPY_PAGES_MAX, LentKeys};
pub use nicekv_proto::control::DiskSpace;
pub use node::Replica;
pub use node::config::{NodeConfig, Timing};
pub(crate) use node::host::Host;
pub(crate) use node::membership::Membership;
pub use node::op_marks::{MarkKeeper, OpMarks};
pub use node::pubsub::Registry;
pub use node::scripts::{
    DamagedStates, ScriptCall, ScriptEnd, ScriptEngine, ScriptKeys, ScriptRun, ScriptStates, ScriptTold,
    Scripts,
};
pub use node::status::{
    Counters, HotCounters, Latest, NodeStatus, OtherRelease, PartitionStatus, Place, PutStages, Standing,
};
pub(crate) use node::storage::Page;
pub use node::storage::{StorageCompletion, StorageRequest, ValueEnd, gathered_keys, stored_entries};
pub use node::trace::{Step, TraceEvent};
pub(crate) use node::visibility::Changes;
pub use node::visibility::{Shift, ShiftKind, Visibility, reply_body};
pub(crate) use types::Map;
pub use types::StreamPeer;
