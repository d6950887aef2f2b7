//! A storage node as a pure state machine, whichever protocols its partitions follow.
//!
//! A [`NodeCore`] has no socket, clock, thread, file or randomness: time, datagrams and disk completions come in through `handle_*`,
//! datagrams and disk requests go out through `poll_*`. It checks, once and for all protocols, what a datagram says of itself; the rest is
//! the business of the partition that it is for, a state machine of its own ([`Protocol`]). Read in this order:
//!
//! 1. `node_core`: dispatch, and what is checked there; `peers`; `routes`, `hosted`: which partition;
//! 2. `protocol`: what a protocol is; `membership`: the epoch that it is in;
//! 3. `host`: what it may use: `storage` (the disk), `outbox` (the network), `session` (lease and term), `waits`,
//!    `visibility` (what may be shown elsewhere);
//! 4. `control` (what the metadata service says) with `discard` (what nobody needs any more), `form` and `birth` (partitions that take the place of
//!    others); `log`;
//! 5. `hot` and `hot_keys`: copies of hot keys at other nodes; `values`: large values;
//! 6. `scripts`: what runs programs of clients; `scrub`, `usage`, `sources`, `heat`, `trace`.

#![cfg_attr(not(test), no_std)]
extern crate alloc;

mod birth;
mod births;
mod completions;
mod config;
mod control;
mod coordination;
mod directory;
mod discard;
mod discards;
mod elsewhere;
mod exploration;
mod form;
mod formations;
mod fragments;
mod heat;
mod host;
mod hosted;
mod hot;
mod hot_keys;
mod kinds;
mod log;
mod membership;
mod mirrors;
mod node_core;
mod op_marks;
mod outbox;
mod pace;
mod peers;
mod protocol;
mod publishing;
mod pubsub;
mod records;
pub mod replication;
mod requests;
mod routes;
mod samples;
mod scripts;
mod scrub;
mod session;
mod sources;
mod status;
mod storage;
mod trace;
mod usage;
mod values;
mod visibility;
mod waits;

pub use config::{NodeConfig, Timing};
pub use exploration::Explore;
pub use host::Host;
pub use hot::{CopyOf, CopyShift, Hot, Lessor};
pub use kinds::{Map, StreamPeer};
pub use membership::Membership;
pub use nicekv_proto::control::DiskSpace;
pub use node_core::NodeCore;
pub use op_marks::{MarkKeeper, OpMarks};
pub use outbox::Outbox;
pub use pace::Pace;
pub use protocol::{CopyChunk, CopyRequest, Message, Page, Protocol, Request, stored_entries};
pub use pubsub::{Full, Registry};
pub use scripts::{
    DamagedStates, ScriptCall, ScriptEnd, ScriptEngine, ScriptKeys, ScriptRun, ScriptStates, ScriptTold,
    Scripts,
};
pub use session::Session;
pub use status::{
    Counters, HotCounters, Latest, NodeStatus, PartitionStatus, Place, PutStages, Standing, Stranger,
};
pub use storage::{StorageCompletion, StorageQueue, StorageRequest, ValueEnd, gathered_keys};
pub use trace::{Step, TRACE_EVENTS_MAX, Trace, TraceEvent};
pub use values::{LargePut, MAKINGS_MAX, Recipe, TRANSFERS_MAX, ValueCounters, ValuePart, Values};
pub use visibility::{Changes, Shift, ShiftKind, Visibility, reply_body};
