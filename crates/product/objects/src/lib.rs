//! Objects: immutable data in chunks, stored by negotiation (Replicast).
//!
//! An object is a list of *chunks*, each named by the hash of its bytes ([`chunk_id`]). Its [`Manifest`] is the value of a
//! key. Chunks are held by *targets*. A [`Map`] divides targets into groups of up to twelve and says which group a chunk
//! belongs to. Within the group, targets and the *initiator* negotiate: each target bids a time window in which it can
//! receive and write the chunk, and the initiator chooses the targets that will have it soonest. So load goes where there is
//! room, and no link or disk is promised twice.
//!
//! ```text
//!   put                                                      get
//!   ───                                                      ───
//!   initiator ──request──▶ all targets of the group          initiator ──request──▶ all targets of the group
//!             ◀──bid, or "stored"── each                               ◀──held, or not found── each
//!             ──accept: targets, window──▶ all                         ──read, token──▶ the least busy holder
//!             ──frames──▶ the chosen targets, in the window            ◀──frames──
//!             ◀──stored── each, when the chunk is durable    the id is verified; if wrong, the next holder is read
//! ```
//!
//! [`Initiator`] puts and gets chunks, [`Target`] holds them. Both are state machines without socket, clock or disk: input is
//! `handle_*` with the time, output is `poll_*`. `nicekv_runtime` runs them on sockets and disks, `nicekv-sim` under
//! injected faults.
//!
//! # Invariants
//! - A window is a promise of resources, never of correctness (P4). A put is done when R targets have answered, by one map,
//!   that they hold the chunk durably (P3).
//! - A chunk matches its id: targets verify it before they store it, and readers verify it too (P1).
//! - A target is silent until it has a map and a round of garbage collection (P14). What is stored or confirmed gets the
//!   round's stamp (P7). Only a chunk with an older stamp and no mark is ever deleted as garbage (P8).
//! - Targets maintain what they hold (P11 to P13): enough targets of the right group hold each chunk, and a copy is dropped
//!   only after R targets that rank before it have confirmed theirs.
//! - Every promise expires: bids and transfers, and with them time, memory and disk (P5, P15).
//!
//! # Modules, in reading order
//!
//! | module | holds |
//! | --- | --- |
//! | `map` | groups of targets, and which chunk belongs to which group |
//! | `manifest` | the value of an object's name |
//! | [`reservation`] | time windows: a target's book, and an initiator's choice; also the model of the paper's figures |
//! | `initiator` | puts, gets, counts of holders |
//! | `target` | negotiation, transfers, reads, garbage collection, maintenance |
//! | [`testing`] | helpers for simulations and model checking |

#![cfg_attr(not(test), no_std)]
#![warn(missing_docs)]
extern crate alloc;

mod initiator;
mod manifest;
mod map;
mod random;
pub mod reservation;
mod target;
pub mod testing;
mod transmit;

pub use initiator::{
    Counted, Event, GetError, Handle, Initiator, InitiatorConfig, InitiatorCounters, Placed, PutError, Timing,
};
pub use manifest::{Manifest, ManifestError};
pub use map::{Group, Layout, Map, MapError, SLOTS};
pub use target::{
    End, Held, MaintenanceConfig, Progress, Storage, StorageDone, Target, TargetConfig, TargetCounters,
    TargetUsage,
};
pub use transmit::{Destination, Transmit};

use nicekv_proto::chunk::ChunkId;

/// The id of a chunk: the BLAKE3 hash of its bytes.
pub fn chunk_id(bytes: &[u8]) -> ChunkId {
    ChunkId(*blake3::hash(bytes).as_bytes())
}
