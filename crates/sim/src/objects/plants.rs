//! Bugs that are planted in negotiated storage, each of which must be found.

use super::planted::Planted;
use super::report::ObjectReport;
use super::run;
use super::shape::{Shape, draw};
use super::world::MS;
use nicekv_chunks::Plant;

/// A bug that is not found within so many seeds is not found.
const SEEDS_MAX: u64 = 500;

/// A bug, and how it is looked for.
pub struct ObjectPlant {
    /// On the command line.
    pub name: &'static str,
    /// The rule that it breaks.
    pub rule: &'static str,
    planted: Planted,
    shape: fn(&mut Shape),
}

const fn core(name: &'static str, rule: &'static str, plant: Plant, shape: fn(&mut Shape)) -> ObjectPlant {
    ObjectPlant { name, rule, planted: Planted::Core(plant), shape }
}

const fn names(name: &'static str, rule: &'static str, planted: Planted) -> ObjectPlant {
    ObjectPlant { name, rule, planted, shape: collects }
}

fn as_drawn(_: &mut Shape) {}

fn collects(shape: &mut Shape) {
    shape.faults.round_ms = 40;
}

fn restarts(shape: &mut Shape) {
    collects(shape);
    // Chunks are garbage most of the time, and put again then.
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

/// Groups are split, merged, and have other slots and members.
fn reshapes(shape: &mut Shape) {
    shape.groups = 2;
    shape.targets = 12;
    shape.copies = 2;
    shape.tending.copies = 2;
    shape.faults.map_ms = 60;
}

/// There are copies too many, and targets look often.
fn has_surplus(shape: &mut Shape) {
    shape.copies = 2;
    shape.more_copies = 2;
    // Chunks are garbage most of the time, and put again then.
    (shape.contents, shape.names) = (8, 2);
    shape.initiators = 4;
    shape.tending.copies = 2;
    shape.tending.pass_ns = 20 * MS;
    shape.tending.again_ns = 4 * MS;
    shape.faults.crash_ms = 0;
    shape.faults.power_ms = 0;
    shape.faults.late = 200_000;
    shape.faults.round_ms = 20;
}

/// All bugs.
#[rustfmt::skip]
pub const OBJECT_PLANTS: &[ObjectPlant] = &[
    core("chunk-ack-before-force", "P3", Plant::AckBeforeForce, loses_power),
    core("chunk-unverified-stored", "P1", Plant::UnverifiedStored, garbles),
    core("chunk-unverified-read", "P1", Plant::UnverifiedRead, garbles),
    core("chunk-acks-of-two-maps", "P2", Plant::AcksOfTwoMaps, changes_maps),
    core("chunk-confirmed-without-stamp", "P7", Plant::ConfirmedWithoutStamp, collects),
    core("chunk-arriving-counted", "P6", Plant::ArrivingCounted, same_chunks),
    core("chunk-restart-forgets-stamps", "P8", Plant::RestartForgetsStamps, restarts),
    core("chunk-not-found-by-one", "P10", Plant::NotFoundByOne, as_drawn),
    core("chunk-lapsed-accepted", "P5", Plant::LapsedAccepted, loses),
    core("chunk-lapsed-kept", "P5", Plant::LapsedKept, loses),
    core("chunk-highest-stamp", "P9", Plant::HighestStamp, collects),
    core("chunk-surplus-by-count", "P12", Plant::SurplusByCount, has_surplus),
    core("chunk-surplus-unconfirmed", "P12", Plant::SurplusUnconfirmed, |shape| {
        has_surplus(shape);
        (shape.initiators, shape.targets, shape.groups) = (6, 5, 1);
        // What is too old is there for long enough to be relied on.
        (shape.listing_ms, shape.faults.round_ms) = (50, 60);
        shape.faults.late = 0;
        shape.faults.cut_ms = 0;
        shape.faults.loss = 250_000;
        // It takes a while, and what comes after the faults takes as long in each world.
        shape.busy_ms = 8_000;
        shape.tending.pass_ns = 10 * MS;
        shape.tending.chunks_per_second = 10_000;
    }),
    core("chunk-former-not-asked", "P13", Plant::FormerNotAsked, reshapes),
    core("chunk-former-drops-early", "P13", Plant::FormerDropsEarly, reshapes),
    core("chunk-moved-too-early", "P13", Plant::MovedTooEarly, reshapes),
    core("chunk-former-counted", "P13", Plant::FormerCounted, reshapes),
    names("chunk-stale-stamp-taken", "P8", Planted::StaleStampTaken),
    names("chunk-swept-before-all-marks", "P8", Planted::SweptBeforeAllMarks),
    names("chunk-marks-before-adoption", "P8", Planted::MarksBeforeAdoption),
    names("chunk-manifest-first", "P9", Planted::ManifestFirst),
];

/// The bug of that name.
pub fn find(name: &str) -> Option<&'static ObjectPlant> {
    OBJECT_PLANTS.iter().find(|plant| plant.name == name)
}

impl ObjectPlant {
    /// Where it is.
    pub(super) fn planted(&self) -> Planted {
        self.planted
    }

    /// Looks for it; how many seeds that took, and what was found.
    pub fn hunt(&self, only: Option<u64>) -> (u64, Option<String>) {
        let mut seeds = 0;
        for seed in only.map_or(1..=SEEDS_MAX, |seed| seed..=seed) {
            seeds += 1;
            if let Some(violation) = self.run(seed).violations.into_iter().next() {
                return (seeds, Some(violation));
            }
        }
        (seeds, None)
    }

    /// Its world of a seed.
    pub fn run(&self, seed: u64) -> ObjectReport {
        let mut shape = draw(seed);
        (self.shape)(&mut shape);
        shape.planted = Some(self.planted);
        run(shape, seed)
    }
}
