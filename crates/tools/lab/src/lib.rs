//! A cluster on one machine with real hosts: network namespaces around a switch in the kernel, one
//! process in each.
//!
//! ```text
//!   nicekv lab up ─▶ namespaces, links ─▶ nicekv switch | metadata | node | gateway, one per namespace ─▶ ready
//!   nicekv lab exec | kill | start | status ─▶ find them by /run/nicekv/lab.json
//!   nicekv lab cut | loss | pause | heal …  ─▶ faults at the switch's ports, and of processes
//!   nicekv lab down ─▶ nothing left
//! ```
//!
//! Reading order: [`topology`] (hosts and addresses), `layout` (which host is at which switch),
//! `scope` (names and files), `network` (links), `process`, `launch` and `up`, `ready`, `commands`,
//! `faults`. Then the tests that an operator can run: `clients`, `test_lab`, `chaos`, `power_loss`.
//!
//! Invariants:
//! - While anything of a lab exists, its state file exists; a second lab of the same name is
//!   refused.
//! - Everything that belongs to a lab is one of its namespaces, is in one, or is below its
//!   directory. So `down` finds all of it whatever has happened, and touches nothing else.
//! - A process is killed only if it is the recorded one or is in a namespace of the lab.

mod arguments;
mod chaos;
mod clients;
mod commands;
mod data_plane;
mod error;
mod etcd;
mod faults;
mod launch;
mod layout;
mod lock;
mod namespace;
mod network;
mod open_vswitch;
mod plan;
mod power_loss;
mod process;
mod ready;
mod scope;
mod state;
mod test_lab;
mod tool;
pub mod topology;
mod up;
mod wait;

use std::process::ExitCode;

pub use nicekv_cli::lab::LAB_VARIABLE;
pub use nicekv_switch_xdp::Hook;

pub use arguments::{ChaosArguments, LabCommand, PowerLossArguments, ProcessHost, UpArguments};
pub use data_plane::{CONTROLLER, DataPlane};
pub use error::{LabError, Result};
pub use namespace::Namespace;
pub use plan::{
    Plan, PlannedEdge, PlannedHot, PlannedInstance, PlannedNode, PlannedPort, PlannedSwitch, Roles,
};
pub use topology::Fabric;

use scope::Scope;
use state::LinkFaults;

/// Executes a command on the lab that [`LAB_VARIABLE`] names.
pub fn run(command: LabCommand, roles: Roles<'_>) -> Result<ExitCode> {
    if !rustix::process::geteuid().is_root() {
        return Err(LabError::NotRoot);
    }
    let scope = Scope::from_environment()?;
    match command {
        LabCommand::Up(arguments) => up::up(&scope, &arguments, roles)?,
        LabCommand::Exec { host, command } => commands::exec(&scope, &host, &command)?,
        LabCommand::Status { json, partitions } => return commands::status(&scope, json, partitions),
        LabCommand::Kill(ProcessHost { host }) => commands::kill_resolved(&scope, &host)?,
        LabCommand::Start(ProcessHost { host }) => commands::start_resolved(&scope, &host)?,
        LabCommand::Pause(ProcessHost { host }) => commands::pause_resolved(&scope, &host)?,
        LabCommand::Resume(ProcessHost { host }) => commands::resume_resolved(&scope, &host)?,
        LabCommand::SwitchRestart { host } => commands::restart_switch(&scope, &host)?,
        LabCommand::Cut { host, inward, outward } => faults::change(&scope, Some(&host), |faults| {
            (faults.cut_in, faults.cut_out) = (!outward, !inward);
        })?,
        LabCommand::Loss { percent, host } => {
            faults::change(&scope, host.as_deref(), |faults| faults.loss_percent = percent)?;
        }
        LabCommand::Duplicate { percent, host } => {
            faults::change(&scope, host.as_deref(), |faults| faults.duplicate_percent = percent)?;
        }
        LabCommand::Heal { host } => {
            faults::change(&scope, host.as_deref(), |faults| *faults = LinkFaults::default())?;
            if host.is_none() {
                faults::plug_all(&scope)?;
            }
        }
        LabCommand::Unplug { one, other } => faults::set_link(&scope, &one, &other, false)?,
        LabCommand::Plug { one, other } => faults::set_link(&scope, &one, &other, true)?,
        LabCommand::Chaos(arguments) => return chaos::run(&scope, &arguments, roles),
        LabCommand::PowerLoss(arguments) => return power_loss::run(&scope, &arguments, roles),
        LabCommand::Down => up::down(&scope)?,
    }
    Ok(ExitCode::SUCCESS)
}
