//! `nicekv keyspace list | create | drop`.
//!
//! The metadata service persists a change and carries it out step by step. The command waits; if it is interrupted, the change continues.

use crate::admin::{ChangeArguments, ListArguments, answer, ask_for};
use crate::discovery::{self, Purpose};
use crate::failure::Failure;
use crate::output::print;
use crate::progress::{Progress, wait};
use crate::table::Table;
use nicekv_config::{KeyspaceBalancing, ObjectChunks, Partitioning, Replication};
use nicekv_fields::{health, keyspace};
use nicekv_metadata::{
    DroppedStatus, HealthCounts, KeyspaceChange, KeyspacePlan, KeyspaceStatus, Status, UsageStatus,
};
use nicekv_proto::placement::{ChunkDelivery, KEYSPACE_SETTINGS, LoadBalancing};
use nicekv_runtime::control_plane::AdminRequest;
use serde::Serialize;
use std::io::{BufRead, IsTerminal, Write};
use std::net::SocketAddrV4;

#[derive(clap::Subcommand)]
pub enum KeyspaceCommand {
    /// List keyspaces: replication, health, stored data and request rates
    List(ListArguments),
    /// Create a keyspace
    ///
    /// The cluster assigns its virtual rings and its number, which Redis clients SELECT and which
    /// is never reused. Gateways know the keyspace within a second.
    Create(CreateArguments),
    /// Drop a keyspace and all its data
    ///
    /// First all nodes stop serving it, then each node discards its data. Its virtual rings are
    /// reused only after all nodes have discarded the data.
    Drop(DropArguments),
}

/// The help text of `--keyspace NAME=SPEC`.
pub fn spec_help() -> String {
    let settings = KEYSPACE_SETTINGS.map(|(name, takes)| format!("\n  {name}: {takes}"));
    format!(
        "Additional keyspace, such as sessions=replication=quorum,write-set=2, orders=range,chain, pictures=chunks=multicast or carts=replicas=2; may be repeated. Keyspaces of an existing data directory need not be repeated\n\n\
         NAME alone ({NAME}), or NAME= and comma-separated settings; partitioning and replication need only the value. Settings, their values and defaults:\n{}",
        settings.concat()
    )
}

const NAME: &str = "1 to 64 letters, digits, '-', '_' and '.'";

#[derive(clap::Args)]
pub struct CreateArguments {
    /// Name: 1 to 64 letters, digits, '-', '_' and '.'
    name: String,
    #[command(flatten)]
    change: ChangeArguments,
    /// Replication protocol
    #[arg(long, value_enum, default_value = "multicast")]
    replication: Replication,
    /// Write quorum size (k), 1 to R, for --replication quorum: replicas that store a put before it is acknowledged; a get asks R - k + 1
    #[arg(long, value_name = "K")]
    write_set: Option<u8>,
    /// How keys are assigned to partitions
    #[arg(long, value_enum, default_value = "hash")]
    partitioning: Partitioning,
    /// Copies of each value (R), 1 to 9, at most the number of nodes [default: as in the default keyspace]
    #[arg(long, value_name = "R")]
    replicas: Option<usize>,
    /// Partitions, a power of two up to 1024, at most 4096 in all keyspaces [default: as in the default keyspace]
    #[arg(long, value_name = "N")]
    partitions: Option<u32>,
    /// How load is balanced
    #[arg(long, value_enum, default_value = "none")]
    balancing: KeyspaceBalancing,
    /// Store objects (`nicekv object`), and how their chunks are sent to storage targets; needs --replication multicast
    #[arg(long, value_enum)]
    chunks: Option<ObjectChunks>,
    /// Split partitions with more keys, with --balancing migrate [default: no limit]
    #[arg(long, value_name = "N")]
    partition_keys: Option<u64>,
    /// Split partitions with more bytes of keys and values, with --balancing migrate [default: no limit]
    #[arg(long, value_name = "N")]
    partition_bytes: Option<u64>,
}

#[derive(clap::Args)]
pub struct DropArguments {
    /// Keyspace to drop
    name: String,
    #[command(flatten)]
    change: ChangeArguments,
    /// Confirm with the name, instead of typing it at the terminal
    #[arg(long, value_name = "NAME")]
    yes_drop: Option<String>,
}

pub fn run(command: &KeyspaceCommand) -> Result<(), Failure> {
    match command {
        KeyspaceCommand::List(arguments) => list(arguments),
        KeyspaceCommand::Create(arguments) => create(arguments),
        KeyspaceCommand::Drop(arguments) => drop_keyspace(arguments),
    }
}

#[derive(Serialize)]
struct Listed<'a> {
    keyspaces: &'a [KeyspaceStatus],
    dropped: &'a [DroppedStatus],
}

fn list(arguments: &ListArguments) -> Result<(), Failure> {
    let endpoint = discovery::find(&arguments.endpoint, Purpose::Read)?;
    let Status { keyspaces, dropped, .. } = answer(&endpoint, &AdminRequest::Status)?;
    let mut text = if arguments.json {
        let listed = Listed { keyspaces: &keyspaces, dropped: &dropped };
        serde_json::to_string(&listed).map_err(Failure::environment)?
    } else {
        let dropped = dropped.iter().map(|dropped| format!("{}\n", describe_dropped(dropped)));
        let table = Table::of("", &keyspace::COLUMNS, &keyspaces).text();
        (table + &dropped.collect::<String>()).trim_end().to_owned()
    };
    text.push('\n');
    print(text.as_bytes())
}

/// The progress of dropping a keyspace, in words.
pub fn describe_dropped(dropped: &DroppedStatus) -> String {
    let DroppedStatus { id, name, quiet, replicas, waits_for: (there, away), switches } = dropped;
    let waits = match (quiet, switches) {
        (false, _) => "waits until no node serves it".to_owned(),
        (true, Some(reason)) if *replicas == 0 => format!("waits for the switches: {reason}"),
        (true, _) if there.is_empty() && away.is_empty() => "data is discarded".to_owned(),
        (true, _) => {
            let away: Vec<_> = away.iter().map(|name| format!("{name} (down)")).collect();
            let nodes = [there.as_slice(), away.as_slice()].concat().join(", ");
            format!("{replicas} replicas still to be discarded by {nodes}")
        }
    };
    format!("keyspace {id} {name} is being dropped: {waits}")
}

fn create(arguments: &CreateArguments) -> Result<(), Failure> {
    let CreateArguments { name, change, replication, write_set, partitioning, replicas, partitions, .. } =
        arguments;
    let replication = match replication {
        Replication::Multicast => "multicast",
        Replication::Chain => "chain",
        Replication::Quorum => "quorum",
    };
    // In NAME=SPEC, the part of the name after '=' would be taken for settings.
    if name.contains('=') {
        return Err(Failure::Environment(format!("keyspace {name:?}: a name must not contain '='")));
    }
    let mut text = format!("{name}=replication={replication}");
    let mut set = |name: &str, value: Option<String>| {
        text.extend(value.map(|value| format!(",{name}={value}")));
    };
    set("write-set", write_set.map(|value| value.to_string()));
    let by_range = *partitioning == Partitioning::Range;
    set("partitioning", by_range.then(|| "range".into()));
    set("chunks", arguments.chunks.map(|chunks| ChunkDelivery::from(chunks).name().into()));
    let balancing = LoadBalancing::from(arguments.balancing);
    set("balancing", (balancing != LoadBalancing::None).then(|| balancing.name().into()));
    set("partition-keys", arguments.partition_keys.map(|value| value.to_string()));
    set("partition-bytes", arguments.partition_bytes.map(|value| value.to_string()));
    set("replicas", replicas.map(|value| value.to_string()));
    set("partitions", partitions.map(|value| value.to_string()));
    let endpoint = discovery::find(&change.endpoint, Purpose::Change)?;
    let Some(plan) = carry_out(&endpoint, &KeyspaceChange::Create { text }, change)? else { return Ok(()) };
    if change.no_wait {
        return Ok(());
    }
    wait_until_created(&endpoint, &plan)
}

/// Creates a keyspace and waits until it is ready.
pub fn create_and_wait(endpoint: &[SocketAddrV4], create: &KeyspaceChange) -> Result<(), Failure> {
    let plan: KeyspacePlan = ask_for(endpoint, &AdminRequest::ChangeKeyspace(create.clone()))?;
    print(format!("created: {}\n", plan.text).as_bytes())?;
    wait_until_created(endpoint, &plan)
}

fn wait_until_created(endpoint: &[SocketAddrV4], plan: &KeyspacePlan) -> Result<(), Failure> {
    wait(endpoint, |status| match status.keyspaces.iter().find(|keyspace| keyspace.id == plan.id) {
        None => {
            let begin = format!("keyspace {} is dropped again", plan.name);
            let refused = status.taken_back.iter().rfind(|line| line.starts_with(&begin));
            refused.cloned().map_or(Progress::Done("it was dropped meanwhile".into()), Progress::Failed)
        }
        Some(keyspace) if keyspace.ready < keyspace.partitions => {
            Progress::Left(format!("{} partitions left", keyspace.partitions - keyspace.ready))
        }
        Some(_) => match status.switches.iter().find(|switch| !switch.current) {
            Some(switch) => Progress::Left(format!("waits for the tables of switch {}", switch.id)),
            None => Progress::Done(format!("ready: SELECT {} or --keyspace {}", plan.id, plan.name)),
        },
    })
}

fn drop_keyspace(arguments: &DropArguments) -> Result<(), Failure> {
    let DropArguments { name, change, yes_drop } = arguments;
    let endpoint = discovery::find(&change.endpoint, Purpose::Change)?;
    let wanted = KeyspaceChange::Drop { name: name.clone() };
    if !change.dry_run {
        // Reports why the keyspace cannot be dropped before asking for a confirmation.
        let _: KeyspacePlan = ask_for(&endpoint, &AdminRequest::PlanKeyspace(wanted.clone()))?;
        confirm(name, yes_drop.as_deref())?;
    }
    let Some(plan) = carry_out(&endpoint, &wanted, change)? else { return Ok(()) };
    if change.no_wait {
        return Ok(());
    }
    wait(&endpoint, |status| match status.dropped.iter().find(|dropped| dropped.id == plan.id) {
        None => Progress::Done("dropped, data discarded everywhere".into()),
        Some(dropped) if dropped.quiet && dropped.replicas > 0 && dropped.waits_for.0.is_empty() => {
            let away = dropped.waits_for.1.join(", ");
            Progress::Done(format!("dropped; {away} will discard its data when it is back"))
        }
        Some(dropped) => Progress::Left(describe_dropped(dropped)),
    })
}

/// Asks the user to type the name of the keyspace.
fn confirm(name: &str, said: Option<&str>) -> Result<(), Failure> {
    let said = match said {
        Some(said) => said.to_owned(),
        None if std::io::stdin().is_terminal() => {
            print(
                format!("All data of keyspace {name} will be lost. Type its name to confirm: ").as_bytes(),
            )?;
            _ = std::io::stdout().flush();
            let mut line = String::new();
            std::io::stdin().lock().read_line(&mut line).map_err(Failure::environment)?;
            line.trim().to_owned()
        }
        None => return Err(Failure::Environment(format!("confirm with --yes-drop {name}"))),
    };
    match said == name {
        true => Ok(()),
        false => Err(Failure::Environment(format!("{said:?} is not {name:?}: nothing was changed"))),
    }
}

/// Prints the plan and carries it out; returns `None` for a dry run.
fn carry_out(
    endpoint: &[SocketAddrV4],
    change: &KeyspaceChange,
    arguments: &ChangeArguments,
) -> Result<Option<KeyspacePlan>, Failure> {
    let plan: KeyspacePlan = ask_for(endpoint, &AdminRequest::PlanKeyspace(change.clone()))?;
    let replicas: Vec<_> = plan.replicas.iter().map(|(node, count)| format!("{node} {count}")).collect();
    let number = if arguments.dry_run { "would be " } else { "" };
    let what = match change {
        KeyspaceChange::Create { .. } => format!("{number}created: {}", plan.text),
        KeyspaceChange::Drop { .. } => format!("{number}dropped: {}", plan.text),
    };
    print(format!("{what}\nreplicas: {}\n", replicas.join(", ")).as_bytes())?;
    if arguments.dry_run {
        return Ok(None);
    }
    ask_for(endpoint, &AdminRequest::ChangeKeyspace(change.clone())).map(Some)
}

/// Partitions by health, in words.
pub(crate) fn describe_health(counts: &HealthCounts, partitions: usize) -> String {
    let mut line = format!("{} of {partitions} partitions whole", counts.whole);
    for state in health::ALL.iter().skip(1) {
        let count = (state.read)(counts);
        if count > 0 {
            line += &format!(", {count} {} ({})", state.name, state.help);
        }
    }
    line
}

/// Stored data and request rates; says so if counts are old or incomplete.
pub(crate) fn describe_usage(usage: &UsageStatus, partitions: usize) -> String {
    let UsageStatus { keys, bytes, age_ms, gets_per_second, updates_per_second, .. } = *usage;
    let about = if age_ms == 0 { "" } else { "~" };
    let mut line = format!("{about}{keys} keys, {about}{} of keys and values", nicekv_fields::bytes(bytes));
    if age_ms > 0 {
        line += &format!(" (counted up to {} s ago)", age_ms.div_ceil(1000));
    }
    if usage.partitions < partitions as u64 {
        line += &format!(" (counted in {} of {partitions} partitions so far)", usage.partitions);
    }
    line + &format!(", {gets_per_second} gets/s, {updates_per_second} updates/s")
}
