//! `nicekv sim`: becomes `nicekv-sim`, the binary beside this one. The simulator plants bugs into the cores to see that they are found; what
//! users run is built without them, so the two cannot be one binary.

use crate::failure::Failure;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// How to get the binary that is missing.
const BUILD: &str =
    if cfg!(debug_assertions) { "cargo build -p nicekv-sim" } else { "cargo build --release -p nicekv-sim" };

/// What `nicekv-sim` is given.
#[derive(clap::Args)]
pub(crate) struct SimArguments {
    /// As in `nicekv-sim --help`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Replaces this process; returns only if there is nothing to replace it with.
pub(crate) fn run(arguments: &SimArguments) -> Result<(), Failure> {
    let simulator = std::env::current_exe().map_err(Failure::environment)?.with_file_name("nicekv-sim");
    let error = Command::new(&simulator).args(&arguments.arguments).exec();
    let path = simulator.display();
    Err(Failure::Environment(match error.kind() {
        ErrorKind::NotFound => format!("there is no {path}; build it: {BUILD}"),
        _ => format!("{path}: {error}"),
    }))
}
