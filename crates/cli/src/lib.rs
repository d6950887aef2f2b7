//! What the command-line programs of the project have in common.
//!
//! `nicekv` runs and operates a cluster. `nicekv-lab`, `nicekv-bench` and `nicekv-sim` build clusters of network namespaces, measure and
//! simulate: programs of their own, so that what ships holds nothing of them. `nicekv lab …` runs `nicekv-lab …`, and the lab runs
//! `nicekv node …`: [`find`] tells where the others are.

mod programs;
mod usage;

pub use programs::{Missing, find, how_to_build};
pub use usage::{one_line, parse, usage_error};
