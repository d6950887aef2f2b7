//! Worlds of negotiated storage: targets, initiators and names, with a network, disks and processes that fail.
//!
//! ```text
//!   users ──put, get, copy, delete──▶ initiators ──▶ network (loses, doubles, damages, delays) ──▶ targets ──▶ disks (slow, full, damaged)
//!     └──manifests──▶ names, in partitions ◀──adopt── rounds of garbage collection ──marks──▶ targets
//! ```
//!
//! Groups of targets change: targets join, are lost for good with all that they held, and groups are split, merged and given other slots, as the metadata service leads it. It loses no target before what the one before held is
//! there again, as the targets say.
//!
//! The cores are those that production runs (`nicekv-chunks`). Names are as linearizable as a keyspace is, which other worlds judge: here each op on one is a moment.
//!
//! Judged, at every step and after all is healed:
//! * a manifest is taken only when each of its chunks lies at R targets, durably, and as long as it can be read that stays so;
//! * what is read is what was put; a chunk of a live manifest is never "not found";
//! * after the faults each chunk that a manifest names lies at R targets of its group, and nowhere else;
//! * nothing is deleted that a live manifest names, and what none names is deleted by two rounds;
//! * no promise of time, memory or disk outlives who it was made to, and none is beyond its bound.

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

/// Runs the world of a seed, or of a shape that was made of one.
pub fn run(shape: Shape, seed: u64) -> ObjectReport {
    World::new(shape, seed).run()
}
