//! `nicekv sim`: becomes `nicekv-sim`, the binary beside this one. The simulator plants bugs into the cores to see that they are found; what
//! users run is built without them, so the two cannot be one binary. What simulates performance needs no bugs, and is here.

use crate::failure::Failure;
use nicekv_bench::ReplicastSimArguments;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// How to get the binary that is missing.
const BUILD: &str =
    if cfg!(debug_assertions) { "cargo build -p nicekv-sim" } else { "cargo build --release -p nicekv-sim" };

/// What `nicekv-sim` is given, or another simulation.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub(crate) struct SimArguments {
    #[command(subcommand)]
    simulation: Option<Simulation>,
    /// As in `nicekv-sim --help`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

#[derive(clap::Subcommand)]
enum Simulation {
    /// Simulate Replicast at the paper's scale, each frame: throughput, disks' time and latency of M, H and uch-ccp, beside what the paper prints
    Replicast(ReplicastArguments),
}

#[derive(clap::Args)]
struct ReplicastArguments {
    #[command(flatten)]
    of_simulation: ReplicastSimArguments,
    /// Print help
    // `nicekv sim` has none, as `nicekv-sim` answers for it.
    #[arg(short, long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// Replaces this process, unless the simulation is here; else returns only if there is nothing to replace it with.
pub(crate) fn run(arguments: &SimArguments) -> Result<(), Failure> {
    if let Some(Simulation::Replicast(arguments)) = &arguments.simulation {
        return nicekv_bench::simulate_replicast(&arguments.of_simulation).map_err(Failure::of_bench);
    }
    let simulator = std::env::current_exe().map_err(Failure::environment)?.with_file_name("nicekv-sim");
    let error = Command::new(&simulator).args(&arguments.arguments).exec();
    let path = simulator.display();
    Err(Failure::Environment(match error.kind() {
        ErrorKind::NotFound => format!("there is no {path}; build it: {BUILD}"),
        _ => format!("{path}: {error}"),
    }))
}
