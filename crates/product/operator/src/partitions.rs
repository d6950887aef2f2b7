//! `nicekv partition list | split | merge | balance | cancel` (R17).
//!
//! The metadata service persists a split or merge and carries it out once the partitions are whole. The command waits; if it is
//! interrupted, the change continues.

use crate::admin::{ChangeArguments, ListArguments, answer, ask_for};
use crate::client::keyspace;
use crate::discovery::{self, EndpointArguments, Purpose};
use crate::failure::Failure;
use crate::output::print;
use crate::progress::{Progress, wait};
use nicekv_metadata::{
    ClusterInfo, MatchValue, MemberStatus, PartitionChange, PartitionPlan, PartitionStatus, ReshapingPhase,
    ReshapingStatus, Status,
};
use nicekv_proto::MatchRange;
use nicekv_proto::placement::{match_digest, vnodes};
use nicekv_runtime::control_plane::AdminRequest;
use serde::Serialize;
use std::net::SocketAddrV4;

#[derive(clap::Subcommand)]
pub enum PartitionCommand {
    /// List partitions: key range, request rate, members, and splits or merges under way
    List(PartitionListArguments),
    /// Split a partition in two
    ///
    /// Its members build both halves while it serves; then both replace it at once. No data is lost, and puts wait only briefly. Afterwards
    /// the second half may move to other nodes.
    Split(SplitArguments),
    /// Merge two adjacent partitions into one
    ///
    /// If they are on different nodes, one of them moves first.
    Merge(MergeArguments),
    /// Show load balancing by migration: past and next steps, and keys too hot for any node
    Balance(ListArguments),
    /// Cancel a split or merge that is not done yet
    Cancel(CancelArguments),
}

#[derive(clap::Args)]
pub struct PartitionListArguments {
    /// Only partitions of this keyspace, by name or number
    #[arg(long, value_name = "NAME")]
    keyspace: Option<String>,
    #[command(flatten)]
    list: ListArguments,
}

#[derive(clap::Args)]
#[group(id = "which", required = true, multiple = false, args = ["partition", "key", "hottest"])]
pub struct SplitArguments {
    /// Number of the partition, as in `nicekv partition list`
    partition: Option<u32>,
    /// The partition of this key; in a range-partitioned keyspace the second half starts with the key
    #[arg(long)]
    key: Option<String>,
    /// The partition with the most requests
    #[arg(long)]
    hottest: bool,
    /// Keyspace of --key or --hottest, by name or number
    #[arg(long, value_name = "NAME", default_value = "0", hide_default_value = true)]
    keyspace: String,
    /// First vnode of the second half, in hexadecimal; in a range-partitioned keyspace the first 16 bits of the key [default: the middle]
    #[arg(long, value_name = "VNODE", value_parser = vnode)]
    at: Option<u16>,
    #[command(flatten)]
    change: ChangeArguments,
}

#[derive(clap::Args)]
pub struct MergeArguments {
    /// Number of a partition
    one: u32,
    /// Number of an adjacent partition
    other: u32,
    #[command(flatten)]
    change: ChangeArguments,
}

#[derive(clap::Args)]
pub struct CancelArguments {
    /// Number of the partition
    partition: u32,
    #[command(flatten)]
    endpoint: EndpointArguments,
}

fn vnode(text: &str) -> Result<u16, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u16::from_str_radix(digits, 16).map_err(|_| "a vnode is 0 to ffff, in hexadecimal".into())
}

pub fn run(command: &PartitionCommand) -> Result<(), Failure> {
    match command {
        PartitionCommand::List(arguments) => list(arguments),
        PartitionCommand::Split(arguments) => {
            let endpoint = discovery::find(&arguments.change.endpoint, Purpose::Change)?;
            carry_out(&endpoint, &chosen(&endpoint, arguments)?, &arguments.change)
        }
        PartitionCommand::Merge(MergeArguments { one, other, change }) => {
            let endpoint = discovery::find(&change.endpoint, Purpose::Change)?;
            carry_out(&endpoint, &PartitionChange::Merge { partitions: [*one, *other] }, change)
        }
        PartitionCommand::Balance(arguments) => crate::balance::show(arguments),
        PartitionCommand::Cancel(CancelArguments { partition, endpoint }) => {
            let endpoint = discovery::find(endpoint, Purpose::Change)?;
            let wanted = PartitionChange::Cancel { partition: *partition };
            let plan: PartitionPlan = ask_for(&endpoint, &AdminRequest::ChangePartitions(wanted))?;
            print(format!("cancelled: {} unchanged\n", named(&plan.parents)).as_bytes())
        }
    }
}

/// A partition, as printed in JSON.
#[derive(Serialize)]
struct Listed<'a> {
    id: u32,
    keyspace: &'a str,
    first_vnode: String,
    last_vnode: String,
    /// First and last match value, 32 hexadecimal digits each.
    first: &'a str,
    last: &'a str,
    /// The match values are the first 16 bytes of keys, not hashes.
    by_range: bool,
    /// Share of the keyspace, in percent.
    share: f64,
    gets_per_second: Option<u64>,
    /// Reads per second, as counted by switches.
    reads_per_second: Option<u64>,
    updates_per_second: Option<u64>,
    epoch: u32,
    primary: u16,
    /// The tail of a chain, which answers gets. `members` are then in the order of the chain.
    tail: Option<u16>,
    members: &'a [MemberStatus],
    ready: bool,
    reshaping: Option<&'a ReshapingStatus>,
}

fn list(arguments: &PartitionListArguments) -> Result<(), Failure> {
    let endpoint = discovery::find(&arguments.list.endpoint, Purpose::Read)?;
    let status: Status = answer(&endpoint, &AdminRequest::Status)?;
    let info: ClusterInfo = answer(&endpoint, &AdminRequest::ClusterInfo)?;
    let keyspace = arguments.keyspace.as_deref().map(|name| keyspace(&info, name));
    let keyspace = keyspace.transpose()?.map(|known| known.id);
    let is_shown = |partition: &&PartitionStatus| keyspace.is_none_or(|id| partition.keyspace == id);
    let mut shown: Vec<_> = status.partitions.iter().filter(is_shown).collect();
    shown.sort_by_key(|partition| (partition.keyspace, range(partition).first()));
    let listed: Vec<_> = shown.into_iter().map(|partition| listed(&info, &status, partition)).collect();
    let mut text = match arguments.list.json {
        true => serde_json::to_string(&listed).map_err(Failure::environment)?,
        false => listed.iter().map(describe).collect::<Vec<_>>().join("\n"),
    };
    text.push('\n');
    print(text.as_bytes())
}

fn range(partition: &PartitionStatus) -> MatchRange {
    partition.range().unwrap_or(MatchRange::ALL)
}

/// A range of keys, as "FIRST to before END".
fn shown_range(range: MatchRange) -> String {
    let key = |value: u128| {
        let bytes = value.to_be_bytes();
        let length = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        format!("\"{}\"", bytes[..length].escape_ascii())
    };
    let from = if range.first() == 0 { "the first key".into() } else { key(range.first()) };
    match range.last().checked_add(1) {
        Some(next) => format!("{from} to before {}", key(next)),
        None => format!("{from} to the last key"),
    }
}

fn shown_vnodes(range: MatchRange) -> String {
    let (first, last) = vnodes(range);
    format!("{first:04x}-{last:04x}")
}

fn listed<'a>(info: &ClusterInfo, status: &'a Status, partition: &'a PartitionStatus) -> Listed<'a> {
    let name = status.keyspaces.iter().find(|keyspace| keyspace.id == partition.keyspace);
    let range = range(partition);
    let (first, last) = vnodes(range);
    let is_it = |reshaping: &&ReshapingStatus| {
        let is_child =
            reshaping.phase == ReshapingPhase::Succeeding && reshaping.children.contains(&partition.id);
        is_child || reshaping.parents.contains(&partition.id)
    };
    Listed {
        id: partition.id,
        keyspace: name.map_or("", |keyspace| keyspace.name.as_str()),
        first_vnode: format!("{first:04x}"),
        last_vnode: format!("{last:04x}"),
        first: &partition.first,
        last: &partition.last,
        by_range: info.keyspace(partition.keyspace).is_some_and(|keyspace| keyspace.by_range),
        share: ((range.last() - range.first()) as f64 + 1.0) * 100.0 / 2f64.powi(128),
        gets_per_second: partition.gets_per_second,
        reads_per_second: partition.asked_per_second.map(|(reads, _)| reads),
        updates_per_second: partition.asked_per_second.map(|(_, updates)| updates),
        epoch: partition.epoch,
        primary: partition.primary,
        tail: partition.tail,
        members: &partition.members,
        ready: partition.health == nicekv_metadata::Health::Whole,
        reshaping: status.reshapings.iter().find(is_it),
    }
}

fn describe(listed: &Listed<'_>) -> String {
    let Listed { id, keyspace, first_vnode, last_vnode, share, epoch, primary, tail, members, .. } = listed;
    let bound = |text: &str| u128::from_str_radix(text, 16).unwrap_or_default();
    let owned = match listed.by_range {
        true => MatchRange::new(bound(listed.first), bound(listed.last)).map_or(String::new(), shown_range),
        false => format!("{first_vnode}-{last_vnode} {share:.3} %"),
    };
    let mut members: Vec<_> = members.iter().collect();
    members.sort_by_key(|member| member.node != *primary);
    let member = |member: &&MemberStatus| {
        let role = match member {
            _ if Some(member.node) == *tail && member.node == *primary => " (head and tail)",
            _ if Some(member.node) == *tail => " (tail)",
            _ if member.node == *primary && tail.is_some() => " (head)",
            _ if member.node == *primary => " (primary)",
            MemberStatus { handoff: true, .. } => " (handoff)",
            MemberStatus { leaving: true, .. } => " (leaving)",
            _ => "",
        };
        format!("{}{role}", member.name)
    };
    let members = members.iter().map(member).collect::<Vec<_>>().join(" ");
    let asked = match (listed.reads_per_second.zip(listed.updates_per_second), listed.gets_per_second) {
        (Some((reads, updates)), _) => format!(", {reads} reads/s, {updates} updates/s"),
        (None, Some(gets)) => format!(", {gets} gets/s"),
        (None, None) => String::new(),
    };
    let health = if listed.ready { "" } else { ", degraded" };
    let under_way = listed.reshaping.map_or_else(String::new, |it| format!("; {}", how_far(it)));
    format!("partition {id} {keyspace} {owned}{asked}, epoch {epoch}: {members}{health}{under_way}")
}

fn how_far(reshaping: &ReshapingStatus) -> String {
    let phase = match reshaping.phase {
        ReshapingPhase::Waiting => "waits for",
        ReshapingPhase::Forming => "building the new partitions,",
        ReshapingPhase::Sealed => "sealed, waits for",
        ReshapingPhase::Succeeding => "taking over, waits for",
    };
    format!("{phase} {}", reshaping.waits_for)
}

/// Describes a split or merge in progress.
pub fn describe_reshaping(reshaping: &ReshapingStatus) -> String {
    let children = match reshaping.children.is_empty() {
        true => String::new(),
        false => format!(" into {}", named(&reshaping.children)),
    };
    let what = if reshaping.parents.len() == 2 { "merging" } else { "splitting" };
    format!("{what} {}{children}: {}", named(&reshaping.parents), how_far(reshaping))
}

fn named(partitions: &[u32]) -> String {
    let numbers: Vec<_> = partitions.iter().map(u32::to_string).collect();
    let several = if partitions.len() > 1 { "s" } else { "" };
    format!("partition{several} {}", numbers.join(" and "))
}

/// The partition to split, and where, as the arguments choose them.
fn chosen(endpoint: &[SocketAddrV4], arguments: &SplitArguments) -> Result<PartitionChange, Failure> {
    let at = arguments.at;
    if let Some(partition) = arguments.partition {
        return Ok(PartitionChange::Split { partition, at });
    }
    let info: ClusterInfo = answer(endpoint, &AdminRequest::ClusterInfo)?;
    let known = keyspace(&info, &arguments.keyspace)?;
    let keyspace = known.id;
    let status: Status = answer(endpoint, &AdminRequest::Status)?;
    let of_keyspace = || status.partitions.iter().filter(|partition| partition.keyspace == keyspace);
    let Some(key) = &arguments.key else {
        let load = |partition: &&PartitionStatus| {
            let counted = partition.asked_per_second.map(|(reads, updates)| reads + updates);
            counted.or(partition.gets_per_second).unwrap_or(0)
        };
        let hottest = of_keyspace().filter(|partition| load(partition) > 0).max_by_key(load);
        let none = || Failure::Environment("no recent load data for any partition".into());
        let partition = hottest.map(|partition| partition.id).ok_or_else(none)?;
        return Ok(PartitionChange::Split { partition, at });
    };
    let value = match_digest(known.order(), key.as_bytes()).match_value();
    let has_it = |partition: &&PartitionStatus| partition.range().is_some_and(|range| range.contains(value));
    let found = of_keyspace().find(has_it).map(|partition| partition.id);
    let partition = found.ok_or_else(|| Failure::Environment("the cluster has no partitions yet".into()))?;
    Ok(match known.by_range && at.is_none() {
        true => PartitionChange::SplitAt { partition, first: MatchValue(value) },
        false => PartitionChange::Split { partition, at },
    })
}

/// Prints the plan, carries it out, and waits until it is done.
fn carry_out(
    endpoint: &[SocketAddrV4],
    wanted: &PartitionChange,
    arguments: &ChangeArguments,
) -> Result<(), Failure> {
    let plan: PartitionPlan = ask_for(endpoint, &AdminRequest::PlanPartitions(wanted.clone()))?;
    print(show(&plan, arguments.dry_run).as_bytes())?;
    if arguments.dry_run {
        return Ok(());
    }
    let plan: PartitionPlan = ask_for(endpoint, &AdminRequest::ChangePartitions(wanted.clone()))?;
    match arguments.no_wait {
        true => Ok(()),
        false => wait(endpoint, |status| progress(status, &plan)),
    }
}

fn show(plan: &PartitionPlan, is_dry: bool) -> String {
    let ranges = plan.children.iter().filter_map(|(first, last)| MatchRange::new(first.0, last.0).ok());
    let shown = if plan.by_range { shown_range } else { shown_vnodes };
    let children: Vec<_> = ranges.map(shown).collect();
    let becomes = match (is_dry, plan.parents.len()) {
        (true, _) => "would become",
        (false, 1) => "becomes",
        (false, _) => "become",
    };
    let mut text = format!(
        "{} of keyspace {} {becomes} {}\n",
        named(&plan.parents),
        plan.keyspace,
        children.join(" and ")
    );
    let when = if plan.parents.len() > 1 { "before" } else { "after" };
    for (from, to, count) in &plan.moves {
        text += &format!("  {count} replicas move from {from} to {to} {when} that\n");
    }
    text
}

fn progress(status: &Status, plan: &PartitionPlan) -> Progress {
    let of_keyspace = || status.partitions.iter().filter(|partition| partition.keyspace == plan.keyspace_id);
    let owned = |partition: &PartitionStatus| {
        let range = range(partition);
        (MatchValue(range.first()), MatchValue(range.last()))
    };
    let is_child = |partition: &&PartitionStatus| plan.children.contains(&owned(partition));
    let children: Vec<u32> = of_keyspace().filter(is_child).map(|partition| partition.id).collect();
    let is_it = |reshaping: &&ReshapingStatus| reshaping.parents == plan.parents;
    if let Some(reshaping) = status.reshapings.iter().find(is_it) {
        return Progress::Left(how_far(reshaping));
    }
    match () {
        () if children.len() == plan.children.len() => Progress::Done(format!("done: {}", named(&children))),
        () if of_keyspace().next().is_none() => Progress::Done("the keyspace was dropped meanwhile".into()),
        () if of_keyspace().any(|partition| plan.parents.contains(&partition.id)) => {
            Progress::Done("it was cancelled meanwhile".into())
        }
        () => Progress::Done("done, and split or merged again meanwhile".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vnodes_are_hexadecimal() {
        assert_eq!((vnode("1fff"), vnode("0x2000"), vnode("0")), (Ok(0x1fff), Ok(0x2000), Ok(0)));
        assert!(vnode("10000").is_err() && vnode("g").is_err() && vnode("").is_err());
    }

    #[test]
    fn key_ranges_are_shown_by_their_borders() {
        let shown = |first, last| shown_range(MatchRange::new(first, last).unwrap());
        let value = |key: &[u8]| match_digest(nicekv_proto::placement::KeyOrder::Range, key).match_value();
        assert_eq!(shown(0, u128::MAX), "the first key to the last key");
        assert_eq!(shown(value(b"g"), value(b"user1") - 1), "\"g\" to before \"user1\"");
        assert_eq!(shown(value(b"a\"\xff"), u128::MAX), "\"a\\\"\\xff\" to the last key");
        assert_eq!(shown_vnodes(MatchRange::ALL), "0000-ffff");
    }

    #[test]
    fn splits_and_merges_are_described_in_one_line() {
        let reshaping = |parents: &[u32], children: &[u32], phase, waits_for: &str| ReshapingStatus {
            keyspace: 0,
            parents: parents.into(),
            children: children.into(),
            phase,
            waits_for: waits_for.into(),
        };
        for (status, line) in [
            (
                reshaping(&[3], &[], ReshapingPhase::Waiting, "partition 3, n2 is not live"),
                "splitting partition 3: waits for partition 3, n2 is not live",
            ),
            (
                reshaping(&[3, 4], &[9], ReshapingPhase::Forming, "1 of 3"),
                "merging partitions 3 and 4 into partition 9: building the new partitions, 1 of 3",
            ),
        ] {
            assert_eq!(describe_reshaping(&status), line);
        }
    }
}
