//! Code that the project's command-line programs share: usage errors, and finding each other's
//! binaries.
//!
//! `nicekv lab …` runs the program `nicekv-lab`, and the lab runs `nicekv node …`; [`find`] locates
//! them.

pub mod lab;
mod programs;
mod usage;

pub use programs::{Missing, find};
pub use usage::{fail, one_line, parse};
