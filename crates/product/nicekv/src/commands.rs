//! Client and admin commands.

use crate::clients::{client_for, failed};
use crate::discovery::{self, EndpointArguments, Purpose};
use crate::failure::Failure;
use crate::hot::describe_hot;
use crate::keyspaces::describe_dropped;
use crate::listening::describe_listening;
use crate::migration::describe_migration;
use crate::objects::describe_chunks;
use crate::partitions::describe_reshaping;
use crate::problems::problems;
use futures_executor::block_on;
use nicekv_client::facade::Client;
use nicekv_metadata::{
    BalancingStatus, ClusterInfo, ControlPlane, HealthCounts, KeyspaceInfo, KeyspaceStatus, MemberStatus,
    NodeState, NodeStatus, PartitionStatus, Refused, Status, UsageStatus,
};
use nicekv_proto::limits::LARGE_BYTES_MAX;
use nicekv_proto::{ClientId, Expiry, KeyOrder};
use nicekv_runtime::admin::NoLeader;
use nicekv_runtime::control_plane::AdminRequest;
use nicekv_runtime::{admin, new_client_id};
use serde::de::DeserializeOwned;
use std::io::{IsTerminal, Read, Write};
use std::net::SocketAddrV4;
use std::time::Duration;

/// For an answer of the metadata service.
const ADMIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Between two tries to begin a change while another one is being written down.
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// Tries to begin a change.
const BUSY_TRIES_MAX: usize = 50;

/// Where a client command goes.
#[derive(clap::Args)]
pub(crate) struct TargetArguments {
    /// The keyspace of the key, by its name or number
    #[arg(long, value_name = "NAME", default_value = "0", hide_default_value = true)]
    pub(crate) keyspace: String,
    #[command(flatten)]
    pub(crate) endpoint: EndpointArguments,
}

/// `nicekv put`
#[derive(clap::Args)]
pub(crate) struct PutArguments {
    /// At most 1024 bytes
    key: String,
    /// At most 512 MiB, in chains 56 KiB; a gateway hands out no more than its own limit [default: what comes on standard input]
    value: Option<String>,
    #[command(flatten)]
    target: TargetArguments,
}

impl PutArguments {
    /// Of what is too long one byte more than may be: the client says so.
    fn value(&self) -> Result<Vec<u8>, Failure> {
        if let Some(value) = &self.value {
            return Ok(value.clone().into_bytes());
        }
        let mut value = Vec::new();
        let input = std::io::stdin().take(u64::from(LARGE_BYTES_MAX) + 1).read_to_end(&mut value);
        input.map_err(|error| Failure::Environment(format!("cannot read the value: {error}")))?;
        Ok(value)
    }
}

/// `nicekv get`
#[derive(clap::Args)]
pub(crate) struct GetArguments {
    /// At most 1024 bytes
    key: String,
    /// No newline behind the value at a terminal either; elsewhere the value is written as it is
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    target: TargetArguments,
}

/// `nicekv delete`
#[derive(clap::Args)]
pub(crate) struct KeyArguments {
    /// At most 1024 bytes
    key: String,
    #[command(flatten)]
    target: TargetArguments,
}

/// `nicekv status`
#[derive(clap::Args)]
pub(crate) struct StatusArguments {
    /// For programs: everything
    #[arg(long)]
    json: bool,
    /// List the partitions: their epochs, their members and how far these are
    #[arg(long)]
    partitions: bool,
    #[command(flatten)]
    endpoint: EndpointArguments,
}

/// `nicekv node list`, `nicekv keyspace list`
#[derive(clap::Args)]
pub(crate) struct ListArguments {
    /// For programs
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) endpoint: EndpointArguments,
}

/// What commands that change keyspaces or partitions have in common.
#[derive(clap::Args)]
pub(crate) struct ChangeArguments {
    /// Show what would follow, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not wait until all of it is done
    #[arg(long)]
    pub(crate) no_wait: bool,
    #[command(flatten)]
    pub(crate) endpoint: EndpointArguments,
}

pub(crate) fn put(arguments: &PutArguments) -> Result<(), Failure> {
    let value = arguments.value()?;
    with_client(&arguments.target, Purpose::Change, async |client| {
        client.put(arguments.key.as_bytes(), &value, Expiry::Never).await.map_err(failed)?;
        Ok(())
    })
}

pub(crate) fn get(arguments: &GetArguments) -> Result<(), Failure> {
    with_client(&arguments.target, Purpose::Read, async |client| {
        let value = client.get(arguments.key.as_bytes()).await.map_err(failed)?;
        let value = value.ok_or_else(|| Failure::Operation(format!("{:?} has no value", arguments.key)))?;
        let mut bytes = value.bytes;
        if !arguments.raw && std::io::stdout().is_terminal() {
            bytes.push(b'\n');
        }
        print(&bytes)
    })
}

pub(crate) fn delete(arguments: &KeyArguments) -> Result<(), Failure> {
    let refuse_objects = |known: &KeyspaceInfo| match known.chunks {
        Some(_) => Err(Failure::Environment(format!(
            "the keys of keyspace {} are names of objects: `nicekv object delete` removes them",
            known.name
        ))),
        None => Ok(()),
    };
    with_checked_client(&arguments.target, Purpose::Change, refuse_objects, async |client| {
        let existed = client.delete(arguments.key.as_bytes()).await.map_err(failed)?;
        print(if existed { b"deleted\n" } else { b"had no value\n" })
    })
}

pub(crate) fn status(arguments: &StatusArguments) -> Result<(), Failure> {
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

fn no_leader(none: &NoLeader) -> Failure {
    Failure::Environment(format!(
        "{none}; is it running, and is that what it printed after endpoint=? Without one that leads, gets stop when the nodes' leases end"
    ))
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

/// How many partitions are how well.
fn describe_health(health: &HealthCounts, partitions: usize) -> String {
    let HealthCounts { whole, covered, reduced, waiting, unavailable, lost } = *health;
    let mut line = format!("{whole} of {partitions} partitions whole");
    let counts = [
        (covered, "covered by handoffs"),
        (reduced, "with fewer than R copies"),
        (waiting, "waiting to take puts"),
        (unavailable, "unavailable"),
        (lost, "lost"),
    ];
    for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
        line += &format!(", {count} {what}");
    }
    line
}

/// How much there is, and how busy it is. A number that was counted a while ago, or not everywhere, says so.
fn describe_usage(usage: &UsageStatus, partitions: usize) -> String {
    let UsageStatus { keys, bytes, age_ms, gets_per_second, updates_per_second, .. } = *usage;
    let about = if age_ms == 0 { "" } else { "~" };
    let mut line = format!("{about}{keys} keys, {about}{} of keys and values", bytes_in_words(bytes));
    if age_ms > 0 {
        line += &format!(" (counted up to {} s ago)", age_ms.div_ceil(1000));
    }
    if usage.partitions < partitions as u64 {
        line +=
            &format!(" (in {} of {partitions} partitions, the others are not counted yet)", usage.partitions);
    }
    line + &format!(", {gets_per_second} gets/s, {updates_per_second} updates/s")
}

/// 1,000 bytes are a kB, as disks are sold.
fn bytes_in_words(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if bytes < 1000 {
        return format!("{bytes} bytes");
    }
    let unit = ((bytes.ilog10() / 3) as usize - 1).min(UNITS.len() - 1);
    format!("{:.1} {}", bytes as f64 / 1000f64.powi(unit as i32 + 1), UNITS[unit])
}

pub(crate) fn describe_keyspace(keyspace: &KeyspaceStatus) -> String {
    let KeyspaceStatus { id, name, replication, write_set, replicas, unicast, multicast, .. } = keyspace;
    let write_set = write_set.map(|write_set| format!(" k={write_set}")).unwrap_or_default();
    let balancing =
        keyspace.balancing.as_ref().map(|balancing| format!(" balancing={balancing}")).unwrap_or_default();
    let health = describe_health(&keyspace.health, keyspace.partitions);
    let usage = describe_usage(&keyspace.usage, keyspace.partitions);
    format!(
        "keyspace {id} {name} {replication} R={replicas}{write_set}{balancing} {health}, {usage}, rings {unicast}/16 {multicast}/16"
    )
}

pub(crate) fn describe_partition(partition: &PartitionStatus) -> String {
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

/// A reader that has seen enough is no failure.
pub(crate) fn print(bytes: &[u8]) -> Result<(), Failure> {
    match std::io::stdout().write_all(bytes) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::environment(error)),
        _ => Ok(()),
    }
}

pub(crate) fn ask(endpoint: &[SocketAddrV4], request: &AdminRequest) -> Result<Vec<u8>, Failure> {
    admin::ask(endpoint, request, ADMIN_TIMEOUT).map_err(|none| no_leader(&none))
}

/// The same, as what it is.
pub(crate) fn answer<T: DeserializeOwned>(
    endpoint: &[SocketAddrV4],
    request: &AdminRequest,
) -> Result<T, Failure> {
    serde_json::from_slice(&ask(endpoint, request)?).map_err(Failure::environment)
}

/// What is refused changes nothing; while another change is being written down, it is asked again.
pub(crate) fn ask_for<P: DeserializeOwned>(
    endpoint: &[SocketAddrV4],
    request: &AdminRequest,
) -> Result<P, Failure> {
    let busy = Refused::Busy.to_string();
    let asked = || answer::<Result<P, String>>(endpoint, request);
    for _ in 1..BUSY_TRIES_MAX {
        match asked()? {
            Err(refused) if refused == busy => std::thread::sleep(BUSY_PAUSE),
            answer => return answer.map_err(Failure::Environment),
        }
    }
    asked()?.map_err(Failure::Environment)
}

pub(crate) fn with_client(
    arguments: &TargetArguments,
    purpose: Purpose,
    operate: impl AsyncFnOnce(Client) -> Result<(), Failure>,
) -> Result<(), Failure> {
    with_checked_client(arguments, purpose, |_| Ok(()), operate)
}

/// The same in a keyspace that passes a check.
fn with_checked_client(
    arguments: &TargetArguments,
    purpose: Purpose,
    check: impl FnOnce(&KeyspaceInfo) -> Result<(), Failure>,
    operate: impl AsyncFnOnce(Client) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let id = new_client_id().map_err(Failure::environment)?;
    let Connected { client, known, endpoint } = connected(arguments, id, purpose)?;
    check(&known)?;
    block_on(operate(client)).map_err(|failure| match failure {
        Failure::NoAnswer(line) => Failure::Operation(format!("{line}; {}", why_no_answer(&endpoint))),
        failure => failure,
    })
}

/// What the metadata service knows of why nobody has answered.
fn why_no_answer(endpoint: &[SocketAddrV4]) -> String {
    let status = match admin::ask(endpoint, &AdminRequest::Status, ADMIN_TIMEOUT) {
        Ok(json) => serde_json::from_slice::<Status>(&json),
        Err(none) => return format!("{none}: without one that leads, the nodes' leases end and gets stop"),
    };
    let wrong = status.map(|status| problems(&status)).unwrap_or_default();
    match wrong.split_first() {
        None => "`nicekv status` shows nothing wrong: is there a way from this host to the vrings?".into(),
        Some((worst, [])) => format!("WRONG: {worst}"),
        Some((worst, others)) => {
            format!("WRONG: {worst} (`nicekv status` shows {} more)", others.len())
        }
    }
}

/// A client of a keyspace, with an id that no client had before.
pub(crate) fn client_of(
    arguments: &TargetArguments,
    id: ClientId,
    purpose: Purpose,
) -> Result<Client, Failure> {
    Ok(client_with_order(arguments, id, purpose)?.0)
}

/// The same, and how the keyspace's keys are partitioned.
pub(crate) fn client_with_order(
    arguments: &TargetArguments,
    id: ClientId,
    purpose: Purpose,
) -> Result<(Client, KeyOrder), Failure> {
    let Connected { client, known, .. } = connected(arguments, id, purpose)?;
    Ok((client, known.order()))
}

/// A client of a keyspace.
struct Connected {
    client: Client,
    known: KeyspaceInfo,
    /// Where the metadata service is.
    endpoint: Vec<SocketAddrV4>,
}

fn connected(arguments: &TargetArguments, id: ClientId, purpose: Purpose) -> Result<Connected, Failure> {
    let endpoint = discovery::find(&arguments.endpoint, purpose)?;
    let info: ClusterInfo = answer(&endpoint, &AdminRequest::ClusterInfo)?;
    let known = keyspace(&info, &arguments.keyspace)?.clone();
    Ok(Connected { client: client_for(&known, info.port, id)?, known, endpoint })
}

pub(crate) fn keyspace<'a>(info: &'a ClusterInfo, name: &str) -> Result<&'a KeyspaceInfo, Failure> {
    let by_name = info.keyspaces.iter().find(|keyspace| keyspace.name == name);
    let found = by_name.or_else(|| name.parse().ok().and_then(|id| info.keyspace(id)));
    found.ok_or_else(|| {
        let names = info.keyspaces.iter().map(|keyspace| keyspace.name.as_str()).collect::<Vec<_>>();
        Failure::Environment(format!("there is no keyspace {name:?}, only {}", names.join(", ")))
    })
}
