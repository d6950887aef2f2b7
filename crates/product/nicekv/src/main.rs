//! `nicekv`: the one binary. Every role, every command.
//!
//! Reading order: [`config`] (a cluster in one file), [`roles`] (one thread per role), [`up`] (all of them in one process),
//! [`discovery`] and [`commands`] (talking to a running cluster).
//!
//! Exit codes: 0 done, 1 the check or operation failed, 2 usage or environment, each failure with one line on standard error.

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
use nicekv_config::RoleKind;
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
    /// Run a whole cluster in this process, on the loopback interface; needs no privilege
    ///
    /// Stays in the foreground; Ctrl-C stops it. The line that begins with "ready" says where Redis clients connect.
    Up(up::UpArguments),
    /// Run one storage node of a cluster; or list, add, drain and remove nodes
    #[command(after_long_help = configuration_help())]
    Node(NodeArguments),
    /// Run the metadata service of a cluster, or one of its instances
    #[command(after_long_help = configuration_help())]
    Metadata(MetadataArguments),
    /// Run one switch of a cluster, or the agent of a switch in the kernel (XDP or tc)
    #[command(after_long_help = configuration_help())]
    Switch(RoleArguments),
    /// Run one RESP gateway of a cluster
    #[command(after_long_help = configuration_help())]
    Gateway(GatewayArguments),
    /// Check configuration files, or print one to begin with
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Run a cluster on hosts of its own: network namespaces around a switch in the kernel; needs root
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Lab(tools::ToolArguments),
    /// Measure how fast NICEKV is beside its peers
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Bench(tools::ToolArguments),
    /// Run with injected faults in a deterministic simulation; check linearizability
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Sim(tools::ToolArguments),
    /// List, create and drop keyspaces of a running cluster
    #[command(subcommand)]
    Keyspace(keyspaces::KeyspaceCommand),
    /// Partitions of a running cluster: list, split, merge
    #[command(subcommand)]
    Partition(partitions::PartitionCommand),
    /// Store a value
    Put(values::PutArguments),
    /// Print a value; exit code 1 if there is none
    ///
    /// The bytes of the value and nothing else, but a newline behind it at a terminal.
    Get(values::GetArguments),
    /// Remove a key
    Delete(values::DeleteArguments),
    /// List keys
    ///
    /// One a line, in the order of bytes where keys are partitioned by range; else partition by partition, each in that order. What is there all the while is
    /// listed; what comes or goes meanwhile may be.
    Scan(scan::ScanArguments),
    /// Objects of any length: store, read, list, delete
    #[command(subcommand)]
    Object(objects::ObjectCommand),
    /// Write what the cluster holds to a file, each partition as it was at one moment, while clients go on
    ///
    /// Everything that was acknowledged before is in it. Values and expiry times are, and objects with their chunks; versions, and what is remembered of clients, are not.
    Backup(backup::BackupArguments),
    /// Put what a backup has into a cluster, which is to be empty
    ///
    /// The whole file is checked first. Keyspaces are found by their names; numbers of nodes, replicas and partitions may differ. Chunks of objects that are there already are not sent again.
    Restore(backup::RestoreArguments),
    /// Show what becomes of a key: where its gets and puts go, and who holds it
    ///
    /// Read from the tables that switches have installed and from what the nodes say of themselves, beside what the metadata service
    /// believes; where they differ, a line begins with DIFFERENT.
    Explain(explain::ExplainArguments),
    /// Carry out one put or get, and show its way with times: switches, replicas, logs, acknowledgements, the answer
    #[command(subcommand)]
    Trace(trace::TraceCommand),
    /// Show nodes, partitions, how much is stored and asked, and switch tables; what is wrong first
    ///
    /// Each line that begins with WRONG names something that is, the worst first.
    ///
    /// Keys and bytes (of keys and values together, each counted once) are counted by reading what has been written to, about 1 MiB a second and
    /// node: after a second or two without writes they are exact, and with a ~ they are as old as the line says. Gets and updates a second are
    /// those that came to the nodes, between their last two reports, which they send once a second; what clients repeat counts again.
    Status(status::StatusArguments),
    /// Print how many nodes and partitions a switch with tables of some sizes carries
    Plan(plan::PlanArguments),
    /// Show what goes on, live: what is wrong, keyspaces with their rates, nodes, switch tables; `q` ends it
    Top(top::TopArguments),
    /// Run scripts for a node, which starts this by itself
    #[command(hide = true)]
    ScriptWorker,
}

#[derive(clap::Args)]
struct ConfigArguments {
    /// The file that describes the cluster: `--help` shows it
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

#[derive(clap::Args)]
struct MetadataArguments {
    #[command(flatten)]
    file: ConfigArguments,
    /// Which instance this process is: one of `instances`
    #[arg(long, default_value = nicekv_config::MetadataSection::FIRST)]
    name: String,
    /// Where the state is kept [default: as the file says]
    #[arg(long, value_enum)]
    store: Option<nicekv_config::Store>,
    /// Members of etcd, such as http://10.20.0.2:2379, or https://…, with commas between them [default: as the file says]
    #[arg(long, value_name = "URL,…", value_delimiter = ',')]
    endpoints: Vec<String>,
    #[command(flatten)]
    tls: TlsArguments,
    #[command(flatten)]
    metrics: metrics::MetricsArguments,
    #[command(flatten)]
    log: logs::LogArguments,
}

/// Of endpoints with https; PEM files.
#[derive(clap::Args)]
struct TlsArguments {
    /// The authority of etcd's certificates, for endpoints with https [default: as the file says]
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// The certificate that is shown to etcd, if it asks for one [default: as the file says]
    #[arg(long, value_name = "FILE", requires = "key_file")]
    certificate_file: Option<PathBuf>,
    /// The private key of that certificate
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
    /// The file, with what the command line says instead.
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
    /// Which entry of the file this process is
    #[arg(long)]
    name: String,
}

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct NodeArguments {
    #[command(subcommand)]
    command: Option<nodes::NodeCommand>,
    /// The file that describes the cluster: `--help` shows it
    #[arg(long, value_name = "FILE", required = true)]
    config: Option<PathBuf>,
    /// Which entry of the file this process is
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

fn configuration_help() -> String {
    format!(
        "The configuration file, here one for all roles of a cluster; `nicekv config print ROLE` has one for each role. Relative paths are from the working directory:\n\n{}",
        nicekv_config::EXAMPLE
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
        // What the engine's library creates is private, too.
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

/// A role's configuration; from here on events are logged.
fn logged(
    config: nicekv_config::ClusterConfig,
    arguments: logs::LogArguments,
) -> Result<nicekv_config::ClusterConfig, Failure> {
    logs::begin(arguments.or(config.log))?;
    Ok(config)
}
