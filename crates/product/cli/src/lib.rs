//! Shared by the project's command-line programs.
//!
//! `nicekv` runs and operates a cluster. `nicekv-lab`, `nicekv-bench` and `nicekv-sim` build clusters of network namespaces, measure and
//! simulate: programs of their own, so that what ships holds nothing of them. `nicekv lab …` runs `nicekv-lab …`, and the lab runs
//! `nicekv node …`: [`find`] tells where the others are.

pub mod lab;
mod programs;
mod usage;

pub use programs::{Missing, find};
pub use usage::{fail, one_line, parse};
