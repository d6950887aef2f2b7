//! `nicekv keyspace list | create | drop`: keyspaces of a running cluster.
//!
//! A change is written down by the metadata service and carried out step by step; the command waits and may be ended: the change goes on.

use crate::admin::{ChangeArguments, ListArguments, answer, ask_for};
use crate::discovery::{self, Purpose};
use crate::failure::Failure;
use crate::output::print;
use crate::progress::{Progress, wait};
use nicekv_config::{KeyspaceBalancing, ObjectChunks, Partitioning, Replication};
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
    /// Show the cluster's keyspaces: how each is kept, and how much it holds
    List(ListArguments),
    /// Create a keyspace, in a pair of virtual rings of its own
    ///
    /// Its number, by which Redis clients select it, is given by the cluster, and never again. Gateways know it within a second.
    Create(CreateArguments),
    /// Drop a keyspace and all that it holds
    ///
    /// First nobody serves it any more, then every node discards what it holds of it. Until all have, its rings are nobody else's.
    Drop(DropArguments),
}

/// What `--keyspace NAME=SPEC` takes.
pub fn spec_help() -> String {
    let settings = KEYSPACE_SETTINGS.map(|(name, takes)| format!("\n  {name}: {takes}"));
    format!(
        "Another keyspace beside the default one, such as sessions=replication=quorum,write-set=2, orders=range,chain, pictures=chunks=multicast or carts=replicas=2; may be repeated. Keyspaces of the data directory need not be named again\n\n\
         NAME alone ({NAME}), or NAME= and settings with commas between them; of partitioning and replication the value is enough. What each takes, and what it is unless it is said:\n{}",
        settings.concat()
    )
}

const NAME: &str = "1 to 64 letters, digits, '-', '_' and '.'";

#[derive(clap::Args)]
pub struct CreateArguments {
    /// Which keyspace: 1 to 64 letters, digits, '-', '_' and '.'
    name: String,
    #[command(flatten)]
    change: ChangeArguments,
    /// How copies are kept in step
    #[arg(long, value_enum, default_value = "multicast")]
    replication: Replication,
    /// With `--replication quorum`: copies that hold what is acknowledged (k), 1 to R; a get asks R - k + 1
    #[arg(long, value_name = "K")]
    write_set: Option<u8>,
    /// How keys are divided among partitions
    #[arg(long, value_enum, default_value = "hash")]
    partitioning: Partitioning,
    /// Copies of each value (R), 1 to 9 and at most as many as nodes [default: as in the default keyspace]
    #[arg(long, value_name = "R")]
    replicas: Option<usize>,
    /// Partitions, a power of two up to 1024; 4096 in all keyspaces together [default: as in the default keyspace]
    #[arg(long, value_name = "N")]
    partitions: Option<u32>,
    /// How load spreads: partitions go where load is little, or keys that are asked most are copied
    #[arg(long, value_enum, default_value = "none")]
    balancing: KeyspaceBalancing,
    /// It has names of objects (`nicekv object`), whose chunks go to their storage targets so; needs `--replication multicast`
    #[arg(long, value_enum)]
    chunks: Option<ObjectChunks>,
    /// With `--balancing migrate`: a partition with more keys is split [default: any number]
    #[arg(long, value_name = "N")]
    partition_keys: Option<u64>,
    /// The same of bytes, keys and values together [default: any number]
    #[arg(long, value_name = "N")]
    partition_bytes: Option<u64>,
}

#[derive(clap::Args)]
pub struct DropArguments {
    /// Which keyspace
    name: String,
    #[command(flatten)]
    change: ChangeArguments,
    /// The name once more, in place of typing it at the terminal
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
        let there = keyspaces.iter().map(describe_keyspace);
        there.chain(dropped.iter().map(describe_dropped)).collect::<Vec<_>>().join("\n")
    };
    text.push('\n');
    print(text.as_bytes())
}

/// A keyspace that goes, for people.
pub fn describe_dropped(dropped: &DroppedStatus) -> String {
    let DroppedStatus { id, name, quiet, replicas, waits_for: (there, away), switches } = dropped;
    let waits = match (quiet, switches) {
        (false, _) => "waits until nobody serves it any more".to_owned(),
        (true, Some(reason)) if *replicas == 0 => format!("waits for the switches: {reason}"),
        (true, _) if there.is_empty() && away.is_empty() => "is forgotten next".to_owned(),
        (true, _) => {
            let away: Vec<_> = away.iter().map(|name| format!("{name} (not there)")).collect();
            let nodes = [there.as_slice(), away.as_slice()].concat().join(", ");
            format!("{replicas} replicas are to be discarded, by {nodes}")
        }
    };
    format!("keyspace {id} {name} is dropped: {waits}")
}

fn create(arguments: &CreateArguments) -> Result<(), Failure> {
    let CreateArguments { name, change, replication, write_set, partitioning, replicas, partitions, .. } =
        arguments;
    let replication = match replication {
        Replication::Multicast => "multicast",
        Replication::Chain => "chain",
        Replication::Quorum => "quorum",
    };
    // What a name must not have would be taken for a setting.
    if name.contains('=') {
        return Err(Failure::Environment(format!("keyspace {name:?}: a name has no '='")));
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

/// Creates a keyspace, and waits until it is there.
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
            refused.cloned().map_or(Progress::Done("it has been dropped meanwhile".into()), Progress::Failed)
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
        // What is refused is refused before anything is asked.
        let _: KeyspacePlan = ask_for(&endpoint, &AdminRequest::PlanKeyspace(wanted.clone()))?;
        confirm(name, yes_drop.as_deref())?;
    }
    let Some(plan) = carry_out(&endpoint, &wanted, change)? else { return Ok(()) };
    if change.no_wait {
        return Ok(());
    }
    wait(&endpoint, |status| match status.dropped.iter().find(|dropped| dropped.id == plan.id) {
        None => Progress::Done("dropped, and discarded everywhere".into()),
        Some(dropped) if dropped.quiet && dropped.replicas > 0 && dropped.waits_for.0.is_empty() => {
            let away = dropped.waits_for.1.join(", ");
            Progress::Done(format!("dropped; what {away} holds of it is discarded when it is back"))
        }
        Some(dropped) => Progress::Left(describe_dropped(dropped)),
    })
}

/// The name is said once more.
fn confirm(name: &str, said: Option<&str>) -> Result<(), Failure> {
    let said = match said {
        Some(said) => said.to_owned(),
        None if std::io::stdin().is_terminal() => {
            print(format!("All that keyspace {name} holds will be lost. Its name once more: ").as_bytes())?;
            _ = std::io::stdout().flush();
            let mut line = String::new();
            std::io::stdin().lock().read_line(&mut line).map_err(Failure::environment)?;
            line.trim().to_owned()
        }
        None => return Err(Failure::Environment(format!("say --yes-drop {name} to drop it"))),
    };
    match said == name {
        true => Ok(()),
        false => Err(Failure::Environment(format!("{said:?} is not {name:?}: nothing has changed"))),
    }
}

/// Shows what follows, and does it; none if nothing is to be changed.
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

pub fn describe_keyspace(keyspace: &KeyspaceStatus) -> String {
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

/// How many partitions are how well.
pub fn describe_health(health: &HealthCounts, partitions: usize) -> String {
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
pub fn describe_usage(usage: &UsageStatus, partitions: usize) -> String {
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
