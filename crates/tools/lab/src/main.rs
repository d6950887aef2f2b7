//! The program `nicekv-lab`, which `nicekv lab` runs.

mod configuration;

use std::process::ExitCode;

use clap::Parser;
use nicekv_cli::fail;
use nicekv_lab::{LabCommand, LabError, Roles};

/// Run a cluster of network namespaces around a switch in the kernel; needs root
#[derive(Parser)]
#[command(name = "nicekv-lab", bin_name = "nicekv lab", version, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: LabCommand,
}

fn main() -> ExitCode {
    let arguments = match nicekv_cli::parse::<Arguments>() {
        Ok(arguments) => arguments,
        Err(line) => return fail(line, 2),
    };
    let program = match nicekv_cli::find("nicekv") {
        Ok(program) => program,
        Err(missing) => return fail(missing, 2),
    };
    let roles = Roles { program: &program, configure: &configuration::of };
    nicekv_lab::run(arguments.command, roles).unwrap_or_else(|error: LabError| {
        let exit_code = error.exit_code();
        fail(error, exit_code)
    })
}
