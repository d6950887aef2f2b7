//! Faults at chosen points: each script is a row of the list of faults that must be survived
//! (docs/FAULTS.md).
//!
//! A script runs on a small, busy cluster. Only the clients' calls, the timing and the choice among
//! equal nodes are random. Afterwards everything is healed and judged, as after random faults.

mod common;
mod control;
mod crashes;
mod cuts;
mod datagrams;
mod fabric;
mod forgotten;
mod load;
mod racks;
mod script;
mod space;
pub mod stories;
mod successions;
mod time;

pub use script::Script;
pub(crate) use script::{MILLISECOND_NS, PARTITION};

/// The scripts, grouped by the kind of fault.
const SCRIPTS: [&[Script]; 11] = [
    crashes::SCRIPTS,
    forgotten::SCRIPTS,
    successions::SCRIPTS,
    space::SCRIPTS,
    cuts::SCRIPTS,
    datagrams::SCRIPTS,
    time::SCRIPTS,
    control::SCRIPTS,
    fabric::SCRIPTS,
    racks::SCRIPTS,
    load::SCRIPTS,
];

pub fn scripts() -> impl Iterator<Item = &'static Script> {
    SCRIPTS.into_iter().flatten()
}

pub fn find(name: &str) -> Option<&'static Script> {
    scripts().find(|script| script.name == name)
}
