//! `nicekv`: the one binary. Every role, every command.
//!
//! Reading order: [`config`] (a cluster in one file), [`roles`] (one thread per role), [`up`] (all of them in one process),
//! [`discovery`] and [`commands`] (talking to a running cluster).
//!
//! Exit codes: 0 done, 1 the check or operation failed, 2 usage or environment, each failure with one line on standard error.

mod commands;
mod config;
mod discovery;
mod failure;
mod gateway;
mod lab;
mod roles;
mod sim;
mod up;

use clap::{Parser, Subcommand};
use failure::Failure;
use std::path::PathBuf;
use std::process::ExitCode;

/// A binary that was built together with the simulator (`cargo build --workspace`) has bugs that could be planted, and says so;
/// `.ci/no-plants` looks for these words in what is shipped.
const VERSION: &str =
    if nicekv_client::HAS_PLANTS || nicekv_metadata::HAS_PLANTS || nicekv_replication::HAS_PLANTS {
        concat!(env!("CARGO_PKG_VERSION"), " (with planted bugs, for tests only)")
    } else {
        env!("CARGO_PKG_VERSION")
    };

/// A replicated key-value store whose routing, replication and failure hiding are done by the network.
#[derive(Parser)]
#[command(name = "nicekv", version = VERSION, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a whole cluster in this process, on the loopback interface; needs no privilege
    ///
    /// Stays in the foreground; Ctrl-C stops it. The line that begins with "ready" says where Redis clients connect.
    Up(up::UpArguments),
    /// Run one storage node of a cluster
    Node(RoleArguments),
    /// Run the metadata service of a cluster
    Metadata(ConfigArguments),
    /// Run one switch of a cluster, or the agent of an XDP switch
    Switch(RoleArguments),
    /// Run one RESP gateway of a cluster
    Gateway(RoleArguments),
    /// Run a cluster on hosts of its own: network namespaces around an XDP switch; needs root
    #[command(subcommand)]
    Lab(nicekv_lab::LabCommand),
    /// Measure how fast NICEKV is beside its peers
    #[command(subcommand)]
    Bench(nicekv_bench::BenchCommand),
    /// Run the whole system in a deterministic simulation that fails on purpose, and judge what clients saw
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Sim(sim::SimArguments),
    /// Store a value
    Put(commands::PutArguments),
    /// Print a value; exit code 1 if there is none
    Get(commands::KeyArguments),
    /// Remove a key
    Delete(commands::KeyArguments),
    /// Show nodes, partitions and switch tables
    Status(commands::StatusArguments),
}

#[derive(clap::Args)]
struct ConfigArguments {
    /// The file that describes the cluster
    #[arg(long)]
    config: PathBuf,
}

#[derive(clap::Args)]
struct RoleArguments {
    #[command(flatten)]
    config: ConfigArguments,
    /// Which entry of the file this process is
    #[arg(long)]
    name: String,
}

fn main() -> ExitCode {
    // Usage errors and --help end the process here, with exit code 2 and 0.
    match run(Arguments::parse().command) {
        Ok(exit_code) => exit_code,
        Err(failure) => {
            eprintln!("nicekv: {failure}");
            failure.exit_code()
        }
    }
}

fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Lab(command) => return lab::run(command),
        Command::Bench(command) => bench(&command),
        Command::Up(arguments) => up::run(&arguments),
        Command::Node(role) => roles::run_node(&config::read(&role.config.config)?, &role.name),
        Command::Metadata(role) => roles::run_metadata(&config::read(&role.config)?),
        Command::Switch(role) => roles::run_switch(&config::read(&role.config.config)?, &role.name),
        Command::Gateway(role) => roles::run_gateway(&config::read(&role.config.config)?, &role.name),
        Command::Sim(arguments) => sim::run(&arguments),
        Command::Put(arguments) => commands::put(&arguments),
        Command::Get(arguments) => commands::get(&arguments),
        Command::Delete(arguments) => commands::delete(&arguments),
        Command::Status(arguments) => commands::status(&arguments),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn bench(command: &nicekv_bench::BenchCommand) -> Result<(), Failure> {
    nicekv_bench::run(command).map_err(|error| match error.exit_code() {
        2 => Failure::environment(error),
        _ => Failure::operation(error),
    })
}
