//! `nicekv lab`, `nicekv bench` and `nicekv sim` run the program of that name, which must be in the
//! directory of this one or in `PATH`.

use nicekv_operator::failure::Failure;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Arguments that are passed to the program unchanged.
#[derive(clap::Args)]
pub(crate) struct ToolArguments {
    /// Arguments of the program; `--help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Replaces this process by `program`; returns only if that fails.
pub(crate) fn run(program: &'static str, arguments: &ToolArguments) -> Result<(), Failure> {
    let path = nicekv_cli::find(program).map_err(Failure::environment)?;
    let error = Command::new(&path).args(&arguments.arguments).exec();
    Err(Failure::Environment(format!("{}: {error}", path.display())))
}
