//! Negotiated storage (Replicast §II): chunks, named by what they are, at those targets of a group that can take them soonest.
//!
//! ```text
//!   put                                                      get
//!   ───                                                      ───
//!   initiator ──request──▶ all targets of the group          initiator ──request──▶ all targets of the group
//!             ◀──bid, or "stored"── each                               ◀──held, or not found── each
//!             ──accept: who, when──▶ all                               ──read, token──▶ the soonest
//!             ──frames──▶ the chosen ones, in the window               ◀──frames──
//!             ◀──stored── each, when it is durable           and it is what its id says, or the next one is asked
//! ```
//!
//! [`Target`] holds chunks, [`Initiator`] puts and gets them; both are state machines without socket, clock or disk. Windows are made and chosen by `nicekv-reservation`, frames are sent
//! and repaired by `nicekv-transport`, and [`Map`] says which chunk belongs to which group.
//!
//! # Invariants
//! - A window is a promise of resources, never of correctness (P4): a put is done when R targets have said, by one map, that they hold the chunk durably (P3).
//! - What is held is what its id says: that is checked before it is stored, and by who reads it (P1).
//! - Who answers has a map and a round (P14). What is stored or confirmed has the round's stamp (P7); only what has an older one, and no mark, is ever deleted (P8).
//! - What is held is looked after (P11 to P13): as many as are wanted hold it, in the group that it belongs to, and no copy goes before R that are before it have confirmed theirs.
//! - Every promise ends: bids lapse, transfers lapse, and with them go time, memory and disk (P5, P15).

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

/// What a chunk is called.
pub fn chunk_id(bytes: &[u8]) -> ChunkId {
    ChunkId(*blake3::hash(bytes).as_bytes())
}
