//! `nicekv`: one binary for every role and every command.
//!
//! Reading order: [`roles`] (one thread per role), [`up`] (all roles in one process), [`gateway`],
//! [`logs`]. Commands that talk to a running cluster are in the crate `nicekv-operator`,
//! configuration files in `nicekv-config`.
//!
//! Exit codes: 0 success, 1 the operation or check failed, 2 usage or environment. Each failure is
//! one line on standard error.

mod chunk_target;
mod config;
mod descriptors;
#[cfg(test)]
mod documents;
mod gateway;
mod kernel_gets;
mod logs;
mod metrics;
mod notify;
mod object_names;
mod reserves;
mod role;
mod roles;
mod sockets;
mod tools;
mod up;

use clap::{Parser, Subcommand};
use nicekv_config::{RoleKind, Template};
use nicekv_operator::failure::Failure;
use nicekv_operator::{
    backup, explain, keyspaces, nodes, objects, partitions, plan, scan, status, top, trace, values,
};
use rustix::fs::Mode;
use std::path::PathBuf;
use std::process::ExitCode;

/// A replicated key-value store whose routing, replication and failure hiding are done by the network.
#[derive(Parser)]
#[command(name = "nicekv", version, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a whole cluster in this process, on the loopback interface, without privileges
    ///
    /// Runs in the foreground until Ctrl-C. The line that begins with "ready" has the address for
    /// Redis clients.
    Up(up::UpArguments),
    /// Run a storage node; or list, add, drain and remove nodes
    #[command(after_long_help = configuration_help(Template::Node))]
    Node(NodeArguments),
    /// Run an instance of the metadata service
    #[command(after_long_help = configuration_help(Template::Metadata))]
    Metadata(MetadataArguments),
    /// Run a switch in user space, or the agent of a switch in the kernel (XDP or tc)
    #[command(after_long_help = configuration_help(Template::Switch))]
    Switch(RoleArguments),
    /// Run a gateway for Redis clients
    #[command(after_long_help = configuration_help(Template::Gateway))]
    Gateway(GatewayArguments),
    /// Check configuration files, print one to start from, or print the reference of all keys
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Run a cluster of network namespaces around a switch in the kernel; needs root
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Lab(tools::ToolArguments),
    /// Measure performance, also of other stores for comparison
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Bench(tools::ToolArguments),
    /// Run with injected faults in a deterministic simulation; check linearizability
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Sim(tools::ToolArguments),
    /// List, create and drop keyspaces
    #[command(subcommand)]
    Keyspace(keyspaces::KeyspaceCommand),
    /// List, split and merge partitions, and show load balancing
    #[command(subcommand)]
    Partition(partitions::PartitionCommand),
    /// Store a value
    Put(values::PutArguments),
    /// Print a value; exit code 1 if the key has none
    ///
    /// Prints exactly the bytes of the value; at a terminal a newline follows.
    Get(values::GetArguments),
    /// Delete a key
    Delete(values::DeleteArguments),
    /// List keys
    ///
    /// Prints one key per line: in byte order if the keyspace is partitioned by range, otherwise
    /// partition by partition. Keys that exist during the whole scan are listed; keys that are
    /// created or deleted meanwhile may be.
    Scan(scan::ScanArguments),
    /// Store, read, list and delete objects of any length
    #[command(subcommand)]
    Object(objects::ObjectCommand),
    /// Back up the cluster to a file, with a consistent snapshot of each partition, while clients continue
    ///
    /// The backup has every write that was acknowledged before it started: values, expiry times, and objects with their chunks. It has no
    /// versions and no client sessions. Quorum keyspaces cannot be backed up.
    Backup(backup::BackupArguments),
    /// Restore a backup into an empty cluster
    ///
    /// The whole file is verified first. Missing keyspaces are created; existing ones are matched by name. The number of nodes, replicas
    /// and partitions may differ. Chunks of objects that the cluster already has are not sent again.
    Restore(backup::RestoreArguments),
    /// Show where gets and puts of a key go, and which nodes store it
    ///
    /// Compares the tables installed in the switches and the state of the nodes with what the metadata service believes. Lines that begin
    /// with DIFFERENT are contradictions.
    Explain(explain::ExplainArguments),
    /// Run one put or get and show each hop with its time: switches, replicas, log, acknowledgements, reply
    #[command(subcommand)]
    Trace(trace::TraceCommand),
    /// Show problems, nodes, keyspaces, stored data, request rates, switch tables and open sockets
    ///
    /// Lines that begin with WRONG are problems, worst first.
    ///
    /// Keys and bytes (keys and values, one copy of each) are counted in the background at about 1
    /// MiB/s per node: a second or two after the last write they are exact; a ~ marks older counts.
    /// Rates count requests that reached the nodes, including retries of clients, between the
    /// nodes' last two reports; nodes report once a second.
    Status(status::StatusArguments),
    /// Calculate how many nodes and partitions fit into a switch with given table sizes
    Plan(plan::PlanArguments),
    /// Show problems, keyspaces, nodes, latencies and switch tables live; `q` quits
    Top(top::TopArguments),
    /// Run Lua scripts for a node; nodes start this process themselves
    #[command(hide = true)]
    ScriptWorker,
}

#[derive(clap::Args)]
struct ConfigArguments {
    /// Configuration file; `--help` shows one
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

#[derive(clap::Args)]
struct MetadataArguments {
    #[command(flatten)]
    file: ConfigArguments,
    /// Name of this instance, one of `instances` in the file
    #[arg(long, default_value = nicekv_config::MetadataSection::FIRST)]
    name: String,
    /// Where to keep the metadata service's state [default: from the file]
    #[arg(long, value_enum)]
    store: Option<nicekv_config::Store>,
    /// etcd endpoints, comma-separated, such as http://10.20.0.2:2379 or https://… [default: from
    /// the file]
    #[arg(long, value_name = "URL,…", value_delimiter = ',')]
    endpoints: Vec<String>,
    #[command(flatten)]
    tls: TlsArguments,
    #[command(flatten)]
    metrics: metrics::MetricsArguments,
    #[command(flatten)]
    log: logs::LogArguments,
}

/// PEM files for https endpoints.
#[derive(clap::Args)]
struct TlsArguments {
    /// Authority (PEM) of etcd's certificates, for https endpoints [default: from the file]
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Client certificate for etcd, if it asks for one [default: from the file]
    #[arg(long, value_name = "FILE", requires = "key_file")]
    certificate_file: Option<PathBuf>,
    /// Private key of the client certificate
    #[arg(long, value_name = "FILE", requires = "certificate_file")]
    key_file: Option<PathBuf>,
}

impl TlsArguments {
    fn apply(self, section: &mut nicekv_config::MetadataSection) {
        let Self { ca_file, certificate_file, key_file } = self;
        section.ca_file = ca_file.or(section.ca_file.take());
        section.certificate_file = certificate_file.or(section.certificate_file.take());
        section.key_file = key_file.or(section.key_file.take());
    }
}

impl MetadataArguments {
    /// Reads the file, and applies the flags to it.
    fn config(self) -> Result<nicekv_config::ClusterConfig, Failure> {
        let Self { file: ConfigArguments { config: path }, store, endpoints, tls, .. } = self;
        let config = nicekv_config::read_with(&path, RoleKind::Metadata, |config| {
            let section = &mut config.metadata;
            section.store = store.unwrap_or(section.store);
            if !endpoints.is_empty() {
                section.endpoints = endpoints;
            }
            tls.apply(section);
            if store == Some(nicekv_config::Store::Etcd) {
                section.data_directory = None;
            }
        })?;
        Ok(config)
    }
}

#[derive(clap::Args)]
struct RoleArguments {
    #[command(flatten)]
    config: ConfigArguments,
    #[command(flatten)]
    metrics: metrics::MetricsArguments,
    #[command(flatten)]
    log: logs::LogArguments,
    /// Name of this role, an entry of the file
    #[arg(long)]
    name: String,
}

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct NodeArguments {
    #[command(subcommand)]
    command: Option<nodes::NodeCommand>,
    /// Configuration file; `--help` shows one
    #[arg(long, value_name = "FILE", required = true)]
    config: Option<PathBuf>,
    /// Name of this role, an entry of the file
    #[arg(long, required = true)]
    name: Option<String>,
    #[command(flatten)]
    metrics: metrics::MetricsArguments,
    #[command(flatten)]
    log: logs::LogArguments,
}

#[derive(clap::Args)]
struct GatewayArguments {
    #[command(flatten)]
    role: RoleArguments,
    #[command(flatten)]
    flags: gateway::GatewayFlags,
}

fn configuration_help(template: Template) -> String {
    format!(
        "A configuration file to start from, as `nicekv config print` prints it. Relative paths are relative to the working directory:\n\n{}",
        template.text()
    )
}

fn main() -> ExitCode {
    let parsed = nicekv_cli::parse::<Arguments>().map_err(Failure::Environment);
    let outcome = parsed.and_then(|arguments| run(arguments.command));
    match outcome {
        Ok(exit_code) => exit_code,
        Err(failure) => {
            if !logs::failed(&failure) {
                eprintln!("nicekv: {failure}");
            }
            failure.exit_code()
        }
    }
}

fn run(command: Command) -> Result<ExitCode, Failure> {
    if matches!(command, Command::Up(_) | Command::Node(_) | Command::Metadata(_) | Command::Switch(_)) {
        // Umask for the whole process: files that the storage engine creates must be private as
        // well.
        rustix::process::umask(Mode::RWXG | Mode::RWXO);
    }
    match command {
        Command::Lab(arguments) => tools::run("nicekv-lab", &arguments),
        Command::Bench(arguments) => tools::run("nicekv-bench", &arguments),
        Command::Up(arguments) => up::run(&arguments),
        Command::Node(NodeArguments { command: Some(command), .. }) => nodes::run(&command),
        Command::Node(NodeArguments { config, name, metrics, log, .. }) => {
            let (config, name) = (config.expect("required"), name.expect("required"));
            let config = logged(nicekv_config::read(&config, RoleKind::Node)?, log)?;
            roles::run_node(&config, &name, metrics)
        }
        Command::Metadata(arguments) => {
            let (name, metrics, log) = (arguments.name.clone(), arguments.metrics, arguments.log);
            roles::run_metadata(&logged(arguments.config()?, log)?, &name, metrics)
        }
        Command::Switch(RoleArguments { config, metrics, log, name }) => {
            let config = logged(nicekv_config::read(&config.config, RoleKind::Switch)?, log)?;
            roles::run_switch(&config, &name, metrics)
        }
        Command::Gateway(GatewayArguments { role, flags }) => {
            let RoleArguments { config, metrics, log, name } = role;
            let config = logged(nicekv_config::read(&config.config, RoleKind::Gateway)?, log)?;
            roles::run_gateway(&config, &name, &flags, metrics)
        }
        Command::Config(command) => config::run(&command),
        Command::Keyspace(command) => keyspaces::run(&command),
        Command::Partition(command) => partitions::run(&command),
        Command::Sim(arguments) => tools::run("nicekv-sim", &arguments),
        Command::Put(arguments) => values::put(&arguments),
        Command::Get(arguments) => values::get(&arguments),
        Command::Delete(arguments) => values::delete(&arguments),
        Command::Scan(arguments) => scan::run(&arguments),
        Command::Object(command) => objects::run(&command),
        Command::Backup(arguments) => backup::backup(&arguments),
        Command::Restore(arguments) => backup::restore(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Trace(command) => trace::run(&command),
        Command::Plan(arguments) => plan::run(&arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::ScriptWorker => roles::run_script_worker(),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// Starts logging, and returns the configuration.
fn logged(
    config: nicekv_config::ClusterConfig,
    arguments: logs::LogArguments,
) -> Result<nicekv_config::ClusterConfig, Failure> {
    logs::begin(arguments.or(config.log))?;
    Ok(config)
}
