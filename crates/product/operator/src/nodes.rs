//! `nicekv node list | add | drain | remove` (NICE §4.4, ring re-configuration).
//!
//! The metadata service persists the target of a node and moves replicas step by step. The command waits and shows the progress; if it is
//! interrupted, the change continues.

use crate::admin::{ListArguments, answer, ask_for};
use crate::discovery::{self, EndpointArguments, Purpose};
use crate::failure::Failure;
use crate::output::print;
use crate::tables;
use nicekv_config::{self as config, RoleKind};
use nicekv_metadata::{Change, Plan, Status};
use nicekv_runtime::control_plane::AdminRequest;
use std::io::{IsTerminal, Write};
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::time::Duration;

/// Interval between progress checks.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Width of the progress bar in characters.
const BAR: usize = 30;

#[derive(clap::Subcommand)]
pub enum NodeCommand {
    /// List nodes: state, replicas, and replicas that still have to move
    List(ListArguments),
    /// Add a new node, or give a drained node its share again
    ///
    /// Start the node first (`nicekv node --config FILE --name NAME`, with `spare = true` in its
    /// entry): replicas move to it once it is up. Puts and gets continue.
    Add(AddArguments),
    /// Move all data off a node but keep it in the cluster, for example before a long maintenance
    Drain(ChangeArguments),
    /// Move all data off a node and remove it from the cluster; the node may be dead
    ///
    /// Its number is never reused. If it comes back later, it is a new node.
    Remove(ChangeArguments),
}

#[derive(clap::Args)]
pub struct AddArguments {
    /// Configuration file with the node's entry
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Switch to which the node is connected, if trunks connect several switches [default: `switch`
    /// of its entry]
    #[arg(long, value_name = "NAME")]
    switch: Option<String>,
    #[command(flatten)]
    change: ChangeArguments,
}

#[derive(clap::Args)]
pub struct ChangeArguments {
    /// Name of the node
    name: String,
    /// Show what would move without changing anything
    #[arg(long)]
    dry_run: bool,
    /// Return without waiting for the moves
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    endpoint: EndpointArguments,
}

pub fn run(command: &NodeCommand) -> Result<(), Failure> {
    match command {
        NodeCommand::List(arguments) => list(arguments),
        NodeCommand::Add(AddArguments { config, switch, change: arguments }) => {
            let config = config::read(config, RoleKind::Node)?;
            let section = config.nodes.iter().find(|node| node.name == arguments.name);
            let section = section.ok_or_else(|| {
                Failure::Environment(format!("the file has no node named {:?}", arguments.name))
            })?;
            let endpoint = discovery::find_configured(&arguments.endpoint, config.metadata_controls())?;
            let change = Change::Add {
                name: section.name.clone(),
                address: SocketAddrV4::new(section.address, config.port),
                mac: section.mac.0,
                switch_port: section.switch_port,
                home: switch
                    .as_ref()
                    .or(section.switch.as_ref())
                    .map(|name| home(name, &endpoint))
                    .transpose()?,
            };
            carry_out(&endpoint, &change, Some(section.id), arguments)
        }
        NodeCommand::Drain(arguments) => {
            let endpoint = discovery::find(&arguments.endpoint, Purpose::Change)?;
            carry_out(&endpoint, &Change::Drain { name: arguments.name.clone() }, None, arguments)
        }
        NodeCommand::Remove(arguments) => {
            let endpoint = discovery::find(&arguments.endpoint, Purpose::Change)?;
            carry_out(&endpoint, &Change::Remove { name: arguments.name.clone() }, None, arguments)
        }
    }
}

/// The number of the switch with this name.
fn home(name: &str, endpoint: &[SocketAddrV4]) -> Result<u16, Failure> {
    let status: Status = answer(endpoint, &AdminRequest::Status)?;
    let found = status.switches.iter().find(|switch| switch.name == name);
    found.map(|switch| switch.id).ok_or_else(|| {
        let names: Vec<_> = status.switches.iter().map(|switch| switch.name.as_str()).collect();
        Failure::Environment(format!("there is no switch {name:?}; the switches are {}", names.join(", ")))
    })
}

fn list(arguments: &ListArguments) -> Result<(), Failure> {
    let status: Status =
        answer(&discovery::find(&arguments.endpoint, Purpose::Read)?, &AdminRequest::Status)?;
    let mut text = if arguments.json {
        serde_json::to_string(&status.nodes).map_err(Failure::environment)?
    } else {
        let moving = match status.moves {
            0 => String::new(),
            moves => format!("{moves} replicas still have to move"),
        };
        (tables::nodes(&status).text() + &moving).trim_end().to_owned()
    };
    text.push('\n');
    print(text.as_bytes())
}

/// Prints the plan, carries it out, and waits until it is done.
fn carry_out(
    endpoint: &[SocketAddrV4],
    change: &Change,
    number: Option<u16>,
    arguments: &ChangeArguments,
) -> Result<(), Failure> {
    let plan: Plan = ask_for(endpoint, &AdminRequest::Plan(change.clone()))?;
    if let Some(number) = number.filter(|number| *number != plan.node) {
        let line = format!("the file has id = {number}, but this cluster assigned {} to the node", plan.node);
        return Err(Failure::Environment(line));
    }
    print(show(&plan).as_bytes())?;
    if arguments.dry_run {
        return Ok(());
    }
    let _: Plan = ask_for(endpoint, &AdminRequest::Change(change.clone()))?;
    if arguments.no_wait { Ok(()) } else { wait(endpoint, change, &arguments.name) }
}

fn show(plan: &Plan) -> String {
    let moving: usize = plan.moves.iter().map(|(_, _, count)| count).sum();
    let mut text = format!("{moving} of {} replicas will move\n", plan.replicas);
    for (from, to, count) in &plan.moves {
        text += &format!("  {count} from {from} to {to}\n");
    }
    text
}

fn wait(endpoint: &[SocketAddrV4], change: &Change, name: &str) -> Result<(), Failure> {
    let is_terminal = std::io::stdout().is_terminal();
    let (mut most, mut told) = (0, usize::MAX);
    loop {
        let status = answer(endpoint, &AdminRequest::Status)?;
        if let (Change::Add { .. }, Some(why)) = (change, why_not_added(&status, name)) {
            return Err(Failure::Operation(why));
        }
        let left = left(&status, change, name);
        most = most.max(left);
        if is_terminal {
            let done = (most - left) * BAR / most.max(1);
            print(format!("\r[{:<BAR$}] {left} left ", "#".repeat(done)).as_bytes())?;
        } else if left != told && (told == usize::MAX || left * 10 / most.max(1) != told * 10 / most.max(1)) {
            print(format!("{left} left\n").as_bytes())?;
        }
        _ = std::io::stdout().flush();
        told = left;
        if left == 0 {
            return print(if is_terminal { b"\rdone\x1b[K\n" } else { b"done\n" });
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// The problem of a switch that prevents the node from being added, if there is one.
fn why_not_added(status: &Status, name: &str) -> Option<String> {
    let begin = format!("node {name} is ");
    if let Some(refused) = status.taken_back.iter().rfind(|line| line.starts_with(&begin)) {
        return Some(refused.clone());
    }
    status.switches.iter().find_map(|switch| {
        let missing = switch.missing_ports.iter().find(|missing| missing.name == name)?;
        let switch = if switch.name.is_empty() { switch.id.to_string() } else { switch.name.clone() };
        let port = missing.port;
        Some(format!(
            "switch {switch} has no port {port}, the `switch_port` of {name}: restart it with that port, or run `nicekv node remove {name}`"
        ))
    })
}

/// How many replicas still have to move or be dropped before the change is done.
fn left(status: &Status, change: &Change, name: &str) -> usize {
    let node = status.nodes.iter().find(|node| node.name == name);
    match change {
        Change::Add { .. } => status.moves + leaving(status),
        Change::Drain { .. } => status.moves + node.map_or(0, |node| node.members),
        // Counts the node itself as one, because it is removed last.
        Change::Remove { .. } => status.moves + node.map_or(0, |node| node.members.max(1)),
    }
}

fn leaving(status: &Status) -> usize {
    let members = status.partitions.iter().flat_map(|partition| &partition.members);
    members.filter(|member| member.leaving).count()
}
