//! Bugs that are planted in negotiated storage, each of which must be found.

use super::planted::Planted;
use super::report::ObjectReport;
use super::run;
use super::shape::{Shape, draw};
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
    shape.faults.crash_ms = 60;
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
