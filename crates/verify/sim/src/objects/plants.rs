//! How planted bugs of object storage are hunted: the shape of the worlds for each. The bugs are in
//! `crates/verify/mutants/plants`.

use super::report::ObjectReport;
use super::run;
use super::shape::{Shape, draw};
use super::world::MS;

/// A hunt gives up after this number of seeds.
pub const SEEDS_MAX: u64 = 500;

/// A planted bug, and the shape of the worlds in which it is hunted.
pub struct ObjectPlant {
    pub name: &'static str,
    shape: fn(&mut Shape),
}

const fn plant(name: &'static str, shape: fn(&mut Shape)) -> ObjectPlant {
    ObjectPlant { name, shape }
}

fn as_drawn(_: &mut Shape) {}

fn collects(shape: &mut Shape) {
    shape.faults.round_ms = 40;
}

fn restarts(shape: &mut Shape) {
    collects(shape);
    // With few names for the contents, chunks are garbage most of the time, and then put again.
    (shape.contents, shape.names) = (8, 2);
    (shape.faults.crash_ms, shape.faults.loss_ms, shape.faults.damage_ms) = (40, 0, 0);
    shape.busy_ms = 4_000;
}

fn loses_power(shape: &mut Shape) {
    shape.faults.power_ms = 60;
    shape.faults.has_slow_disk = true;
}

fn garbles(shape: &mut Shape) {
    shape.faults.garble = 20_000;
}

fn changes_maps(shape: &mut Shape) {
    shape.faults.map_ms = 50;
    shape.faults.loss = 100_000;
}

fn loses(shape: &mut Shape) {
    shape.faults.loss = 200_000;
    shape.faults.late = 200_000;
}

fn same_chunks(shape: &mut Shape) {
    shape.contents = 3;
    shape.initiators = 4;
    shape.faults.crash_ms = 60;
    shape.faults.has_slow_disk = true;
}

/// Groups are split and merged, and their slots and members change.
fn reshapes(shape: &mut Shape) {
    shape.groups = 2;
    shape.targets = 12;
    shape.copies = 2;
    shape.maintenance.copies = 2;
    shape.faults.map_ms = 60;
}

/// Some chunks have too many copies, and targets check often.
fn has_surplus(shape: &mut Shape) {
    shape.copies = 2;
    shape.more_copies = 2;
    // With few names for the contents, chunks are garbage most of the time, and then put again.
    (shape.contents, shape.names) = (8, 2);
    shape.initiators = 4;
    shape.maintenance.copies = 2;
    shape.maintenance.pass_ns = 20 * MS;
    shape.maintenance.again_ns = 4 * MS;
    shape.faults.crash_ms = 0;
    shape.faults.power_ms = 0;
    shape.faults.late = 200_000;
    shape.faults.round_ms = 20;
}

#[rustfmt::skip]
pub const OBJECT_PLANTS: &[ObjectPlant] = &[
    plant("chunk-ack-before-force", loses_power),
    plant("chunk-unverified-stored", garbles),
    plant("chunk-unverified-read", garbles),
    plant("chunk-acks-of-two-maps", changes_maps),
    plant("chunk-confirmed-without-stamp", collects),
    plant("chunk-arriving-counted", same_chunks),
    plant("chunk-restart-forgets-stamps", restarts),
    plant("chunk-not-found-by-one", as_drawn),
    plant("chunk-lapsed-accepted", loses),
    plant("chunk-lapsed-kept", loses),
    plant("chunk-highest-stamp", collects),
    plant("chunk-surplus-by-count", has_surplus),
    plant("chunk-surplus-unconfirmed", |shape| {
        has_surplus(shape);
        (shape.initiators, shape.targets, shape.groups) = (6, 5, 1);
        // Outdated marks stay for so long that a target may rely on them.
        (shape.listing_ms, shape.faults.round_ms) = (50, 60);
        shape.faults.late = 0;
        shape.faults.cut_ms = 0;
        shape.faults.loss = 250_000;
        // Long runs: the bug shows late, and the time after the faults is the same in each world.
        shape.busy_ms = 8_000;
        shape.maintenance.pass_ns = 10 * MS;
        shape.maintenance.chunks_per_second = 10_000;
    }),
    plant("chunk-former-not-asked", reshapes),
    plant("chunk-former-drops-early", reshapes),
    plant("chunk-moved-too-early", reshapes),
    plant("chunk-former-counted", reshapes),
    plant("chunk-stale-stamp-taken", collects),
    plant("chunk-swept-before-all-marks", collects),
    plant("chunk-marks-before-adoption", collects),
    plant("chunk-manifest-first", collects),
];

pub fn find(name: &str) -> Option<&'static ObjectPlant> {
    OBJECT_PLANTS.iter().find(|plant| plant.name == name)
}

impl ObjectPlant {
    /// Hunts the bug in at most [`SEEDS_MAX`] seeds, or in one. Returns the seed that found it, and
    /// the violation. `begin` is called with each seed before its run, in which a core may panic.
    pub fn hunt(&self, only: Option<u64>, begin: impl Fn(u64)) -> Option<(u64, String)> {
        let mut seeds = only.map_or(1..=SEEDS_MAX, |seed| seed..=seed);
        seeds.find_map(|seed| {
            begin(seed);
            self.run(seed).violations.into_iter().next().map(|violation| (seed, violation))
        })
    }

    /// Runs the world of a seed, in the shape for this bug.
    pub fn run(&self, seed: u64) -> ObjectReport {
        let mut shape = draw(seed);
        (self.shape)(&mut shape);
        run(shape, seed)
    }
}
