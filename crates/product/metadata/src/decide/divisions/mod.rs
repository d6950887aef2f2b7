//! Which replica answers which gets (NICE §4.5): client addresses are divided into at most R
//! divisions per partition.
//!
//! ```text
//!   clients' addresses   .0 ─────────────── .127 ─────── .191 ──── .255      all others
//!                        primary: the rest      B: .128/26   C: .192/26       primary
//! ```
//!
//! A division is a prefix. The primary has none: it answers all gets that no division covers. So a
//! partition has R + 1 entries: `R - 1` divisions, and one entry each of the unicast and of the
//! multicast ring (NICE §4.6). A longer prefix may lie within a shorter one.
//!
//! Divisions change for two reasons:
//! 1. *members*: the set of serving members or the primary has changed. The partition is divided
//!    anew when its epoch is in force, in the same step if there is one.
//! 2. *load*: by the loads that nodes report by source ([`crate::observe::SourceLoads`]), new
//!    divisions would relieve the busiest member by more than [`GAIN_PERCENT_MIN`] percent of an
//!    equal share. This is checked once an interval, when no other change is in progress, and at
//!    most [`CHANGED_AT_ONCE_MAX`] partitions change at once.
//!
//! Divisions are persisted with the partition before any table has them (R13), so that a new leader
//! continues with the same ones. [`crate::announce::divisions`] compiles them to tables.

mod by_load;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use nicekv_proto::control::MemberRole;
use nicekv_proto::limits::MEMBERS_MAX;
use nicekv_proto::{NodeId, PartitionId};
use nicekv_switch::{DIVISIONS_MAX, Prefix};

use crate::config::Balancing;
use crate::observe::Load;
use crate::policy::Policy;
use crate::state::{Division, Divisions, Partition, Standing};
use crate::view::Situation;
use by_load::{busiest, divide};

/// By how much a change must relieve the busiest member, in percent of an equal share. Smaller
/// differences are noise.
const GAIN_PERCENT_MIN: u64 = 10;
/// Upper bound of partitions that are divided anew at once because of load.
const CHANGED_AT_ONCE_MAX: usize = 64;
/// Upper bound of partitions whose load is examined at once: the most requested ones.
const LOOKED_AT_MAX: usize = 256;

const _: () =
    assert!(MEMBERS_MAX <= DIVISIONS_MAX + 1, "switches take as many divisions as a partition may have");

/// The members among which a partition's gets are divided: the primary, and at most R - 1 other
/// serving members. Originals come first in the ring's order, then leaving members, then handoffs.
fn among(partition: &Partition, replicas: usize) -> Vec<NodeId> {
    let others = partition.members.iter().filter(|member| member.node != partition.primary);
    let mut others: Vec<_> = others.filter(|member| member.standing == Standing::Serving).collect();
    others.sort_by_key(|member| {
        let role = match partition.role(member) {
            MemberRole::Original | MemberRole::Newcomer => 0,
            MemberRole::Leaving => 1,
            MemberRole::Handoff => 2,
        };
        (role, partition.originals.iter().position(|node| *node == member.node), member.node)
    });
    let others = others.iter().map(|member| member.node).take(replicas.saturating_sub(1));
    [partition.primary].into_iter().chain(others).collect()
}

/// Divides the clients' addresses into equal parts, one for each member but the primary. Each
/// partition begins with another part, so that the gets of a client that accesses all partitions
/// are spread over all nodes.
fn evenly(id: PartitionId, clients: Prefix, among: &[NodeId]) -> Vec<Division> {
    let bits = among.len().next_power_of_two().ilog2();
    let (parts, length) = (1usize << bits, clients.length + bits as u8);
    let others = among.iter().skip(1).enumerate();
    let division = |(index, node): (usize, &NodeId)| {
        let part = ((id.position() + index + 1) % parts) as u32;
        // A shift by 32 means that there is one part with all addresses.
        let offset = part.checked_shl(32 - u32::from(length)).unwrap_or(0);
        Division { source: Prefix::new((clients.first() | offset).to_be_bytes(), length), node: *node }
    };
    others.map(division).collect()
}

/// Adds to `changes` the partitions that must be divided anew. Returns how many of them change
/// because of load.
pub(crate) fn revise(situation: &Situation<'_>, changes: &mut BTreeMap<PartitionId, Partition>) -> usize {
    let Balancing::Source { clients } = situation.config.balancing else { return 0 };
    let is_in_force = situation.state.partitions().all(|(_, partition)| partition.activated);
    let is_calm = is_in_force && situation.observations.switches.connected_are_current();
    revise_members(situation, clients, changes);
    if is_calm && changes.is_empty() && situation.observations.loads.is_due(situation.now_ns) {
        revise_loads(situation, clients, changes);
        return changes.len();
    }
    0
}

/// The partitions whose gets are divided, with their numbers of replicas.
fn divisible<'a>(
    situation: &Situation<'a>,
) -> impl Iterator<Item = (PartitionId, &'a Partition, usize)> + use<'a> {
    let state = situation.state;
    let is_spread = |partition: &Partition| Policy::of(state.keyspace(partition)).gets_are_spread;
    let partitions = state.partitions().filter(move |(_, partition)| is_spread(partition));
    partitions.map(|(id, partition)| (id, partition, state.keyspace(partition).replicas))
}

fn revise_members(
    situation: &Situation<'_>,
    clients: Prefix,
    changes: &mut BTreeMap<PartitionId, Partition>,
) {
    for (id, partition, replicas) in divisible(situation) {
        let next = changes.get(&id).unwrap_or(partition);
        let among = among(next, replicas);
        if among == next.divisions.among || !next.activated {
            continue;
        }
        let load = situation.observations.loads.of(id, clients);
        let list = match load.total() >= u64::from(situation.config.timing.divide_gets_min) {
            true => divide(id, clients, &among, &next.divisions, &load),
            false => evenly(id, clients, &among),
        };
        changes.entry(id).or_insert_with(|| partition.clone()).divisions = Divisions { among, list };
    }
}

fn revise_loads(situation: &Situation<'_>, clients: Prefix, changes: &mut BTreeMap<PartitionId, Partition>) {
    let loads = &situation.observations.loads;
    let least = u64::from(situation.config.timing.divide_gets_min);
    let asked = divisible(situation).map(|(id, partition, _)| (loads.of(id, clients), id, partition));
    let is_asked = |load: &Load| load.total() >= least.max(1);
    let mut asked: Vec<_> = asked.filter(|(load, ..)| is_asked(load)).collect();
    asked.sort_by_key(|(load, id, _)| (u64::MAX - load.total(), *id));
    asked.truncate(LOOKED_AT_MAX);
    let better = |(load, id, partition): (Load, PartitionId, &Partition)| {
        let Divisions { among, .. } = &partition.divisions;
        let list = divide(id, clients, among, &partition.divisions, &load);
        let next = Divisions { among: among.clone(), list };
        let (before, after) = (busiest(&partition.divisions, &load)?, busiest(&next, &load)?);
        let gain = before.saturating_sub(after);
        let is_worth_it = gain * among.len() as u64 * 100 > load.total() * GAIN_PERCENT_MIN;
        is_worth_it.then(|| (gain, id, Partition { divisions: next, ..partition.clone() }))
    };
    let mut better: Vec<_> = asked.into_iter().filter_map(better).collect();
    better.sort_by_key(|(gain, id, _)| (u64::MAX - gain, *id));
    better.truncate(CHANGED_AT_ONCE_MAX);
    changes.extend(better.into_iter().map(|(_, id, partition)| (id, partition)));
}

#[cfg(test)]
mod tests;
