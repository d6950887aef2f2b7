//! Worlds of negotiated storage: targets, initiators and names, with a network, disks and processes
//! that fail.
//!
//! ```text
//!   users ──put, get, copy, delete──▶ initiators ──▶ network (loses, doubles, damages, delays) ──▶ targets ──▶ disks (slow, full, damaged)
//!     └──manifests──▶ names, in partitions ◀──adopt── rounds of garbage collection ──marks──▶ targets
//! ```
//!
//! Groups of targets change, driven by the metadata service: targets join or are lost for good,
//! with their data; groups are split, merged and given other slots. A target is lost only after the
//! targets have reported that the data of the previous one is restored.
//!
//! The cores are those of production (`nicekv-objects`). Names are a linearizable keyspace, which
//! other worlds check: here each op on a name is atomic.
//!
//! Checked at every step, and after all faults are healed:
//! * a manifest is accepted only when R targets hold each of its chunks durably, and this stays
//!   true while it can be read;
//! * a read returns what was put; a chunk of a live manifest is never "not found";
//! * after the faults, each chunk that a manifest names is at exactly R targets of its group, and
//!   at no others;
//! * no chunk of a live manifest is deleted; a chunk without a manifest is deleted within two
//!   rounds;
//! * reservations of time, memory and disk are released when their owner is gone, and never exceed
//!   their bounds.

mod crashes;
mod disk;
pub mod exhaustive;
mod garbage;
mod groups;
mod judge;
mod names;
mod plants;
mod report;
mod shape;
mod tasks;
mod traffic;
mod users;
mod verdict;
mod world;

pub use plants::{OBJECT_PLANTS, ObjectPlant, SEEDS_MAX, find};
pub use report::ObjectReport;
pub use shape::{ObjectFaults, Shape, draw};

use world::World;

/// Runs the world of a seed, with a shape that may have been changed since it was drawn.
pub fn run(shape: Shape, seed: u64) -> ObjectReport {
    World::new(shape, seed).run()
}
