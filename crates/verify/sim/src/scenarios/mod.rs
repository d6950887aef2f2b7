//! Faults at chosen points: each script is a row of the list of faults that must be survived.
//!
//! A script runs on a small, busy cluster; chance decides only what the clients do, how long things take and which of several nodes
//! it is. Then everything is healed and judged, as after random faults.

mod control;
mod cuts;
mod datagrams;
mod deaths;
mod fabric;
mod forgotten;
mod load;
mod moves;
mod places;
mod racks;
mod space;
mod stage;
mod time;
pub mod told;

pub use stage::Script;
pub(crate) use stage::{MILLISECOND_NS, PARTITION};

/// By what fails.
const SCRIPTS: [&[Script]; 11] = [
    deaths::SCRIPTS,
    forgotten::SCRIPTS,
    places::SCRIPTS,
    space::SCRIPTS,
    cuts::SCRIPTS,
    datagrams::SCRIPTS,
    time::SCRIPTS,
    control::SCRIPTS,
    fabric::SCRIPTS,
    racks::SCRIPTS,
    load::SCRIPTS,
];

/// All scripts.
pub fn scripts() -> impl Iterator<Item = &'static Script> {
    SCRIPTS.into_iter().flatten()
}

/// The script of that name.
pub fn find(name: &str) -> Option<&'static Script> {
    scripts().find(|script| script.name == name)
}
