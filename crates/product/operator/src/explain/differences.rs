//! Differences between switch tables, the state of nodes, and what the metadata service believes.

use super::Explanation;
use nicekv_metadata::{MemberStanding, MemberStatus, MemberStatusState};
use nicekv_runtime::control_plane::{NodeAnswer, NodePartition, SwitchAnswer};
use nicekv_switch::HostId;
use nicekv_switch::control::Found;
use std::collections::BTreeSet;

/// One line for each difference.
pub(super) fn find(told: &Explanation) -> Vec<String> {
    let mut lines = Vec::new();
    for switch in &told.switches {
        let line = |line: String| format!("switch {}: {line}", switch.switch);
        lines.extend(of_switch(told, switch).into_iter().map(line));
    }
    let generations: BTreeSet<_> = told.switches.iter().filter_map(|switch| switch.generation).collect();
    if generations.len() > 1 {
        lines.push(format!("switches have tables of different generations: {generations:?}"));
    }
    for (member, (name, answer)) in told.partition.members.iter().zip(&told.nodes) {
        let line = |line: String| format!("{name}: {line}");
        lines.extend(of_node(told, member, answer.as_ref()).into_iter().map(line));
    }
    lines
}

fn of_switch(told: &Explanation, answer: &SwitchAnswer) -> Vec<String> {
    let Some(found) = &answer.found else {
        return vec!["does not answer: its tables are unknown".into()];
    };
    if answer.generation.is_none() {
        return vec!["has no tables: it drops gets and puts".into()];
    }
    let mut lines = Vec::new();
    if answer.term != told.term {
        lines.push(format!("obeys term {}, the metadata service is in term {}", answer.term, told.term));
    }
    if !passes_on(found) {
        lines.extend(of_gets(told, found));
        lines.extend(of_puts(told, found));
    }
    lines
}

/// Whether the switch only forwards to trunks. Its entries then cover several partitions, and may
/// name any host behind the same trunk, so they cannot be compared.
fn passes_on(found: &Found) -> bool {
    !found.hosts.is_empty() && found.hosts.iter().all(|host| host.is_remote)
}

fn of_gets(told: &Explanation, found: &Found) -> Vec<String> {
    let partition = &told.partition;
    let serves = |member: &&MemberStatus| match partition.tail {
        Some(tail) => member.node == tail,
        None => member.standing == MemberStanding::Serving,
    };
    let serving = partition.members.iter().filter(serves);
    let serving: BTreeSet<u16> = serving.map(|member| member.node).collect();
    let Some((of_gets, host)) = found.gets() else {
        // If no member serves gets, the metadata service removes the entry on purpose.
        let is_intended = serving.is_empty();
        return (!is_intended).then(|| "has no entry for gets: it drops them".into()).into_iter().collect();
    };
    let mut lines = Vec::new();
    if of_gets != partition.id {
        lines.push(format!("routes gets to partition {of_gets}, not {}", partition.id));
    }
    let hosts = std::iter::once(host).chain(found.divisions.iter().map(|met| met.entry.host));
    let others: BTreeSet<u16> = hosts.map(|host| host.0).filter(|host| !serving.contains(host)).collect();
    lines.extend(others.iter().map(|host| format!("sends gets to node {host}, which does not serve them")));
    lines
}

fn of_puts(told: &Explanation, found: &Found) -> Option<String> {
    let Some(group) = found.puts() else { return Some("has no entry for puts: it drops them".into()) };
    // A member that has just joined receives puts only once all members know of it (R7).
    let takes_puts = |member: &&MemberStatus| match told.partition.tail {
        Some(_) => member.node == told.partition.primary,
        None => member.standing != MemberStanding::Joining,
    };
    let members = told.partition.members.iter().filter(takes_puts);
    let members: BTreeSet<u16> = members.map(|member| member.node).collect();
    let copies: BTreeSet<u16> = group.as_slice().iter().map(|&HostId(id)| id).collect();
    (members != copies).then(|| format!("sends puts to nodes {copies:?}, the members are {members:?}"))
}

fn of_node(told: &Explanation, member: &MemberStatus, answer: Option<&NodeAnswer>) -> Vec<String> {
    match answer {
        None => vec!["does not answer: its state is unknown".into()],
        Some(NodeAnswer { partition: None, .. }) => vec!["does not know the partition".into()],
        Some(NodeAnswer { partition: Some(own), .. }) => of_member(told, member, own),
    }
}

fn of_member(told: &Explanation, member: &MemberStatus, own: &NodePartition) -> Vec<String> {
    let partition = &told.partition;
    if own.epoch != partition.epoch {
        return vec![format!("is in epoch {}, the partition in epoch {}", own.epoch, partition.epoch)];
    }
    let mut lines = Vec::new();
    if told.has_primary && own.primary != partition.primary {
        lines.push(format!("believes node {} is the primary, not {}", own.primary, partition.primary));
    }
    if told.has_primary && member.node == partition.primary && !own.leads {
        lines.push("is the primary but has not recovered: puts wait".into());
    }
    let is_complete = matches!(own.standing.as_str(), "consistent" | "handoff");
    if member.state == MemberStatusState::Consistent && !is_complete {
        lines.push(format!("should have all data but reports that it is {}", own.standing));
    }
    lines
}
