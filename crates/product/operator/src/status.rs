//! `nicekv status`.

use crate::admin::{ADMIN_TIMEOUT, no_leader};
use crate::balance::describe_migration;
use crate::discovery::{self, EndpointArguments, Purpose};
use crate::failure::Failure;
use crate::hot_keys::describe_hot;
use crate::keyspaces::{describe_dropped, describe_health, describe_usage};
use crate::objects::describe_chunks;
use crate::open_sockets::describe_listening;
use crate::output::print;
use crate::partitions::describe_reshaping;
use crate::problems::problems;
use crate::table::Table;
use crate::tables;
use nicekv_metadata::{BalancingStatus, ControlPlane, NodeState, Status, SwitchStatus};
use nicekv_runtime::admin::{self, NoLeader};
use nicekv_runtime::control_plane::AdminRequest;

/// `nicekv status`
#[derive(clap::Args)]
pub struct StatusArguments {
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    /// Also list every partition: epoch, health and members
    #[arg(long)]
    partitions: bool,
    #[command(flatten)]
    endpoint: EndpointArguments,
}

pub fn run(arguments: &StatusArguments) -> Result<(), Failure> {
    let endpoint = discovery::find(&arguments.endpoint, Purpose::Read)?;
    let json = match admin::ask(&endpoint, &AdminRequest::Status, ADMIN_TIMEOUT) {
        Ok(json) => json,
        Err(none) => return last_known(&none, arguments),
    };
    if arguments.json {
        return print(&[&json[..], b"\n"].concat());
    }
    let status = serde_json::from_slice(&json).map_err(Failure::environment)?;
    print(describe(&status, arguments.partitions).as_bytes())
}

/// Prints the status that an instance knew last, if any, and fails, because no instance leads.
fn last_known(none: &NoLeader, arguments: &StatusArguments) -> Result<(), Failure> {
    if let Some(status) = &none.last_known {
        let text = match arguments.json {
            true => serde_json::to_string(status).map_err(Failure::environment)? + "\n",
            false => describe(status, arguments.partitions),
        };
        print(text.as_bytes())?;
    }
    Err(no_leader(none))
}

fn describe(status: &Status, with_partitions: bool) -> String {
    let mut lines: Vec<_> = problems(status).into_iter().map(|line| format!("WRONG: {line}")).collect();
    let ready = status.why_not_ready.as_ref().map_or("ready".into(), |reason| format!("not ready: {reason}"));
    lines.push(format!("cluster {} term {} {ready}", status.cluster, status.term));
    lines.push(health(status));
    lines.push(describe_control_plane(&status.control_plane));
    lines.push(format!("stored {}", describe_usage(&status.usage, status.partitions.len())));
    if status.moves > 0 {
        lines.push(format!("moving {} replicas; `nicekv node list` shows where", status.moves));
    }
    lines.extend(status.balancing.as_ref().map(describe_balancing));
    lines.extend(status.migrations.iter().flat_map(describe_migration));
    lines.extend(status.hot.iter().flat_map(describe_hot));
    lines.extend(status.dropped.iter().map(describe_dropped));
    lines.extend(status.reshapings.iter().map(describe_reshaping));
    lines.extend(status.chunks.as_ref().map(describe_chunks));
    lines.extend(status.switches.iter().map(describe_switch));
    let mut tables = vec![tables::nodes(status), tables::keyspaces(status)];
    tables.extend(with_partitions.then(|| tables::partitions("partitions", &status.partitions)));
    tables.push(tables::switch_tables(status, None));
    tables.extend(status.hot.iter().flat_map(tables::hot_keys));
    let mut text = lines.join("\n") + "\n" + &tables.iter().map(Table::section).collect::<String>();
    let sockets = describe_listening(&status.control_plane.listening);
    if !sockets.is_empty() {
        text += "\nopen sockets\n";
        text.extend(sockets.iter().map(|line| format!("  {line}\n")));
    }
    text
}

/// The instance that leads, and whether its store answers.
fn describe_control_plane(control_plane: &ControlPlane) -> String {
    let ControlPlane { instance, store, outage, .. } = control_plane;
    let outage = outage.as_ref().map(|(since_ms, why)| {
        let since_s = since_ms.div_ceil(1000);
        format!(" (no answer for {since_s} s: no changes, and gets stop when leases end; {why})")
    });
    format!("metadata leader {instance}, state in {store}{}", outage.unwrap_or_default())
}

fn describe_switch(switch: &SwitchStatus) -> String {
    let SwitchStatus { id, connected, current, error, entries, trunks, .. } = switch;
    let connection = if *connected { "connected" } else { "not connected" };
    let tables = if *current { "tables up to date" } else { "tables out of date" };
    let error = error.as_ref().map(|error| format!(", refused its tables: {error}"));
    let trunks: Vec<_> =
        trunks.iter().map(|trunk| format!("{} {:?}", trunk.name, trunk.state).to_lowercase()).collect();
    let trunks = match trunks.is_empty() {
        true => String::new(),
        false => format!(", {entries} entries, trunks to {}", trunks.join(", ")),
    };
    format!("switch {id} {connection}, {tables}{}{trunks}", error.unwrap_or_default())
}

/// How gets are divided among replicas by client address.
fn describe_balancing(balancing: &BalancingStatus) -> String {
    let BalancingStatus { divided, left_out, entries_per_partition, sources, divided_by_load } = balancing;
    let mut line = format!(
        "balancing: gets of {divided} partitions divided by client address, up to {entries_per_partition} entries each, \
         {sources} client networks, changed {divided_by_load} times by load"
    );
    if *left_out > 0 {
        line += &format!("; no room for {left_out} partitions, whose primaries answer all gets");
    }
    line
}

/// How many nodes are live and how many partitions are whole.
fn health(status: &Status) -> String {
    let live = status.nodes.iter().filter(|node| node.state == NodeState::Live).count();
    let (nodes, partitions) = (status.nodes.len(), status.partitions.len());
    format!("health {live} of {nodes} nodes live, {}", describe_health(&status.health, partitions))
}
