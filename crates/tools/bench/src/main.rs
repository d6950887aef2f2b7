//! `nicekv-bench`, which `nicekv bench` runs.

use std::process::ExitCode;

use clap::Parser;
use nicekv_bench::BenchCommand;
use nicekv_cli::fail;

/// Measure NICEKV beside its peers
#[derive(Parser)]
#[command(name = "nicekv-bench", bin_name = "nicekv bench", version, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: BenchCommand,
}

fn main() -> ExitCode {
    let arguments = match nicekv_cli::parse::<Arguments>() {
        Ok(arguments) => arguments,
        Err(line) => return fail(line, 2),
    };
    match nicekv_bench::run(&arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let exit_code = error.exit_code();
            fail(error, exit_code)
        }
    }
}
