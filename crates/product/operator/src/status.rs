//! `nicekv status`.

use crate::admin::{ADMIN_TIMEOUT, no_leader};
use crate::balance::describe_migration;
use crate::discovery::{self, EndpointArguments, Purpose};
use crate::failure::Failure;
use crate::hot_keys::describe_hot;
use crate::keyspaces::{describe_dropped, describe_health, describe_keyspace, describe_usage};
use crate::objects::describe_chunks;
use crate::open_sockets::describe_listening;
use crate::output::print;
use crate::partitions::describe_reshaping;
use crate::problems::problems;
use nicekv_metadata::{
    BalancingStatus, ControlPlane, MemberStatus, NodeState, NodeStatus, PartitionStatus, Status,
};
use nicekv_runtime::admin::{self, NoLeader};
use nicekv_runtime::control_plane::AdminRequest;

/// `nicekv status`
#[derive(clap::Args)]
pub struct StatusArguments {
    /// For programs: everything
    #[arg(long)]
    json: bool,
    /// List the partitions: their epochs, their members and how far these are
    #[arg(long)]
    partitions: bool,
    #[command(flatten)]
    endpoint: EndpointArguments,
}

pub fn run(arguments: &StatusArguments) -> Result<(), Failure> {
    let endpoint = discovery::find(&arguments.endpoint, Purpose::Read)?;
    let json = match admin::ask(&endpoint, &AdminRequest::Status, ADMIN_TIMEOUT) {
        Ok(json) => json,
        Err(none) => return nobody_leads(&none, arguments),
    };
    let mut text = if arguments.json {
        String::from_utf8_lossy(&json).into_owned()
    } else {
        let status = serde_json::from_slice(&json).map_err(Failure::environment)?;
        describe(&status, arguments.partitions).join("\n")
    };
    text.push('\n');
    print(text.as_bytes())
}

/// What is known nevertheless, and the failure.
fn nobody_leads(none: &NoLeader, arguments: &StatusArguments) -> Result<(), Failure> {
    if let Some(status) = &none.last_known {
        let text = match arguments.json {
            true => serde_json::to_string(status).map_err(Failure::environment)?,
            false => describe(status, arguments.partitions).join("\n"),
        };
        print(format!("{text}\n").as_bytes())?;
    }
    Err(no_leader(none))
}

/// Who leads, and whether it hears its store.
fn describe_control_plane(control_plane: &ControlPlane) -> String {
    let ControlPlane { instance, store, outage, .. } = control_plane;
    let outage = outage.as_ref().map(|(since_ms, why)| {
        format!(
            ", silent for {} s: nothing can change, and without leases gets stop ({why})",
            since_ms.div_ceil(1000)
        )
    });
    format!("control {instance}, state in {store}{}", outage.unwrap_or_default())
}

fn describe(status: &Status, with_partitions: bool) -> Vec<String> {
    let Status { cluster, term, why_not_ready, nodes, keyspaces, partitions, switches, tables, .. } = status;
    let readiness = why_not_ready.as_ref().map_or("ready".into(), |reason| format!("not ready: {reason}"));
    let mut lines: Vec<_> = problems(status).into_iter().map(|line| format!("WRONG: {line}")).collect();
    lines.extend([format!("cluster {cluster} term {term} {readiness}"), summary(status)]);
    lines.push(describe_control_plane(&status.control_plane));
    lines.push(format!("stored {}", describe_usage(&status.usage, partitions.len())));
    if status.moves > 0 {
        lines.push(format!("moving {} replicas, `nicekv node list` shows where", status.moves));
    }
    lines.extend(nodes.iter().map(|node| {
        let NodeStatus { name, address, state, gets_per_second, .. } = node;
        format!("node {name} {address} {state:?}, {gets_per_second} gets/s")
    }));
    lines.extend(status.balancing.as_ref().map(describe_balancing));
    lines.extend(status.migrations.iter().flat_map(describe_migration));
    lines.extend(status.hot.iter().flat_map(describe_hot));
    lines.extend(keyspaces.iter().map(describe_keyspace));
    lines.extend(status.dropped.iter().map(describe_dropped));
    lines.extend(status.reshapings.iter().map(describe_reshaping));
    lines.extend(status.chunks.as_ref().map(describe_chunks));
    let partitions = partitions.iter().filter(|_| with_partitions);
    lines.extend(partitions.map(describe_partition));
    lines.extend(switches.iter().map(|switch| {
        let tables = if switch.current { "current" } else { "not current" };
        let connection = if switch.connected { "connected" } else { "not connected" };
        let error = switch.error.as_ref().map(|error| format!(", refused its tables: {error}"));
        let trunks =
            switch.trunks.iter().map(|trunk| format!(" {} {:?}", trunk.name, trunk.state).to_lowercase());
        let trunks = trunks.collect::<Vec<_>>().join(",");
        let between = if trunks.is_empty() {
            String::new()
        } else {
            format!(", {} entries, trunks{trunks}", switch.entries)
        };
        format!("switch {} {connection}, tables {tables}{}{between}", switch.id, error.unwrap_or_default())
    }));
    lines.extend(tables.iter().map(|table| {
        format!("table {} {}/{} entries, {} hits", table.name, table.entries, table.capacity, table.hits)
    }));
    lines.extend(describe_listening(&status.control_plane.listening));
    lines
}

/// Whose gets go to which replicas.
fn describe_balancing(balancing: &BalancingStatus) -> String {
    let BalancingStatus { divided, left_out, entries_per_partition, sources, divided_by_load } = balancing;
    let mut line = format!(
        "balancing gets of {divided} partitions divided by source, at most {entries_per_partition} entries (R + 1) for each, \
         {sources} sources known, changed {divided_by_load} times because of load"
    );
    if *left_out > 0 {
        line += &format!("; {left_out} partitions without room for it: their primaries answer alone");
    }
    line
}

/// One line: who is there, and how many partitions are how well.
fn summary(status: &Status) -> String {
    let live = status.nodes.iter().filter(|node| node.state == NodeState::Live).count();
    let (nodes, partitions) = (status.nodes.len(), status.partitions.len());
    format!("health {live} of {nodes} nodes live, {}", describe_health(&status.health, partitions))
}

pub fn describe_partition(partition: &PartitionStatus) -> String {
    let member = |member: &MemberStatus| {
        if let Some(role) = partition.chain_role(member.node) {
            return format!("{}={role}:{:?}", member.name, member.standing);
        }
        let role = if member.node == partition.primary {
            "primary:"
        } else if member.handoff {
            "handoff:"
        } else if member.leaving {
            "leaving:"
        } else {
            ""
        };
        format!("{}={role}{:?}", member.name, member.standing)
    };
    let members = partition.members.iter().map(member).collect::<Vec<_>>().join(" ");
    let away = partition.away.iter().map(|name| format!(" {name}=away")).collect::<String>();
    let PartitionStatus { id, keyspace, epoch, state, health, .. } = partition;
    format!("partition {id} keyspace {keyspace} epoch {epoch} {state:?} {health:?} {members}{away}")
}
