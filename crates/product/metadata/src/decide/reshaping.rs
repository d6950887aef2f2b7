//! Carries out requested splits and merges of partitions (R17).
//!
//! ```text
//!   request ─ parents whole ─▶ forming ── all members have formed ─▶ sealed ── all primaries drained ─▶ children, not activated
//!     ▲                         ║                                     ║                                  │ all have acknowledged (epochs)
//!     ╚═ other members, roles ══╩═════════════════════════════════════╝                                  ▼ activated
//! ```
//!
//! Each step is an epoch of the parents with unchanged members. Any other epoch of a parent has no
//! children. It voids what was formed, and the request waits until the parents are whole again. So
//! nothing has to be undone after a failure.
//!
//! Invariants: all parents of a request form the same children in the same phase, or none does. A
//! child is created only from the final decisions of all its parents: every member has made them
//! durable, and no further ones follow.

use alloc::vec::Vec;
use core::time::Duration;

use nicekv_proto::{MatchRange, PartitionId};

use super::{epochs, moves};
use crate::state::{Child, FORMING_MAX, Forming, Member, Parent, Partition, Reshaping, State};
use crate::view::{Observed, Situation, all_acknowledged};

/// Upper bound of the time for which partitions are sealed.
const SEALED_MAX: Duration = Duration::from_secs(5);

/// Why a request is not carried out now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// A parent is not whole: not all of its originals serve and are live, or the change of an
    /// earlier epoch is not complete.
    NotWhole(PartitionId),
    /// A parent's originals will change soon.
    Moves(PartitionId),
    /// A parent has itself replaced another partition, and not all members have acknowledged that.
    Young(PartitionId),
    /// The disk of a parent's member is full.
    Full(PartitionId),
    /// The request was broken off recently.
    BrokenOff,
    /// The parents have different members.
    Apart,
    /// As many other requests as allowed are being carried out.
    Others,
    /// Partition ids are exhausted.
    NoIds,
}

/// The next action for a request.
enum Step {
    Begin(Vec<MatchRange>),
    BreakOff,
    Seal(Forming),
    Succeed(Vec<Parent>),
}

/// Whether any request can make progress if nothing else changes.
pub(super) fn is_due(situation: &Situation<'_>) -> bool {
    let reshapings = &situation.state.reshapings;
    reshapings.iter().any(|reshaping| step(situation, situation.state, reshaping).is_some())
}

/// Carries out one step of each request. `next` is the state with all other changes.
pub(super) fn advance(situation: &Situation<'_>, next: &mut State) {
    for reshaping in next.reshapings.clone() {
        match step(situation, next, &reshaping) {
            Some(Step::Begin(ranges)) => {
                let ids = next.give_ids(ranges.len());
                let children = ids.zip(ranges).map(|(partition, range)| Child { partition, range }).collect();
                next_epochs(next, &reshaping, Some(&Forming { children, sealed: false }));
            }
            Some(Step::BreakOff) => next_epochs(next, &reshaping, None),
            Some(Step::Seal(forming)) => next_epochs(next, &reshaping, Some(&forming)),
            Some(Step::Succeed(drained)) => succeed(next, &reshaping, &drained),
            None => {}
        }
    }
}

fn step(situation: &Situation<'_>, next: &State, reshaping: &Reshaping) -> Option<Step> {
    let all: Vec<_> = reshaping.parents.iter().map(|id| forming(next, *id)).collect();
    match all[0] {
        None if all.iter().all(Option::is_none) => {
            let ranges = next.ranges_of(reshaping);
            obstacle(situation, next, reshaping).is_none().then_some(Step::Begin(ranges))
        }
        Some(first) if all.iter().all(|other| *other == Some(first)) && !is_full(situation, reshaping) => {
            match first.sealed {
                true => drained(situation, next, reshaping)
                    .map(Step::Succeed)
                    .or_else(|| is_stuck(situation, reshaping).then_some(Step::BreakOff)),
                false => have_formed(situation, next, reshaping)
                    .then(|| Step::Seal(Forming { sealed: true, ..first.clone() })),
            }
        }
        _ => Some(Step::BreakOff),
    }
}

fn forming(state: &State, id: PartitionId) -> Option<&Forming> {
    state.partition(id).and_then(|parent| parent.forming.as_ref())
}

/// Begins the next epoch of the parents, with unchanged members.
fn next_epochs(next: &mut State, reshaping: &Reshaping, forming: Option<&Forming>) {
    for id in &reshaping.parents {
        let parent = next.partition(*id).expect("the parents of a reshaping are there");
        // If forming was broken off in this step, the parent already has its next epoch.
        if parent.forming.as_ref() != forming {
            let (epoch, forming) = (parent.epoch + 1, forming.cloned());
            next.replace(*id, Partition { epoch, forming, ..parent.clone() });
        }
    }
}

/// The first condition that a request waits for before it begins.
pub(crate) fn obstacle(situation: &Situation<'_>, next: &State, reshaping: &Reshaping) -> Option<Obstacle> {
    let of_parent = reshaping.parents.iter().find_map(|id| parent_obstacle(situation, next, *id));
    if of_parent.is_some() {
        return of_parent;
    }
    let parents: Vec<&Partition> = reshaping.parents.iter().filter_map(|id| next.partition(*id)).collect();
    if parents.windows(2).any(|pair| !are_together(pair[0], pair[1])) {
        return Some(Obstacle::Apart);
    }
    let forming = |other: &&Reshaping| forming(next, other.parents[0]).is_some();
    if next.reshapings.iter().filter(forming).count() >= FORMING_MAX {
        return Some(Obstacle::Others);
    }
    (!next.has_ids(2)).then_some(Obstacle::NoIds)
}

fn parent_obstacle(situation: &Situation<'_>, next: &State, id: PartitionId) -> Option<Obstacle> {
    let (Some(partition), Some(after)) = (situation.state.partition(id), next.partition(id)) else {
        return Some(Obstacle::NotWhole(id));
    };
    let Situation { config, observations, now_ns, .. } = situation;
    let view = situation.view(id, partition);
    let is_there = |member: &Member| view.live(member.node) == Some(member.process);
    let is_whole = partition.is_whole() && after.is_whole() && after.epoch == partition.epoch;
    let is_known = all_acknowledged(partition, &view) && observations.watch(id).is_settled();
    if !is_whole || !is_known || !partition.members.iter().all(is_there) {
        return Some(Obstacle::NotWhole(id));
    }
    if moves::is_due(partition, &view) {
        return Some(Obstacle::Moves(id));
    }
    if next.is_young(id) {
        return Some(Obstacle::Young(id));
    }
    if !partition.members.iter().all(|member| view.has_space(member.node)) {
        return Some(Obstacle::Full(id));
    }
    observations.watch(id).was_broken_off(*now_ns, &config.timing).then_some(Obstacle::BrokenOff)
}

/// Whether the members of both partitions are the same processes, and their originals the same
/// nodes.
fn are_together(one: &Partition, other: &Partition) -> bool {
    let is_in_both =
        |member: &Member| other.member(member.node).is_some_and(|it| it.process == member.process);
    one.members.len() == other.members.len()
        && one.members.iter().all(is_in_both)
        && one.originals.iter().all(|node| other.originals.contains(node))
}

/// Whether a parent has been sealed for too long. Puts wait while a partition is sealed. A member
/// that delays this is usually removed much earlier, which breaks the request off.
fn is_stuck(situation: &Situation<'_>, reshaping: &Reshaping) -> bool {
    let Situation { observations, now_ns, .. } = situation;
    reshaping.parents.iter().any(|id| observations.watch(*id).has_lasted(*now_ns, SEALED_MAX))
}

/// Whether a member has run out of disk space. It would make every put of the parents fail, so
/// forming is broken off.
fn is_full(situation: &Situation<'_>, reshaping: &Reshaping) -> bool {
    let has_full = |id: &PartitionId| {
        situation.state.partition(*id).is_some_and(|parent| {
            let view = situation.view(*id, parent);
            parent.members.iter().any(|member| !view.has_space(member.node))
        })
    };
    reshaping.parents.iter().any(has_full)
}

/// Whether every member of every parent has formed the children, in the parent's epoch.
fn have_formed(situation: &Situation<'_>, next: &State, reshaping: &Reshaping) -> bool {
    reshaping.parents.iter().all(|id| {
        let watch = situation.observations.watch(*id);
        let has_formed = |parent: &Partition| {
            let mut members = parent.members.iter();
            members.all(|member| watch.has_formed(member.node, member.process.incarnation, parent.epoch))
        };
        next.partition(*id).is_some_and(has_formed)
    })
}

/// The final decisions of all parents, if their primaries have reported in the sealed epoch that
/// they have drained.
fn drained(situation: &Situation<'_>, next: &State, reshaping: &Reshaping) -> Option<Vec<Parent>> {
    let drained = |id: &PartitionId| {
        let parent = next.partition(*id)?;
        let primary = parent.member(parent.primary)?.process.incarnation;
        let index = situation.observations.watch(*id).drained(primary, parent.epoch)?;
        Some(Parent { partition: *id, index })
    };
    reshaping.parents.iter().map(drained).collect()
}

fn succeed(next: &mut State, reshaping: &Reshaping, drained: &[Parent]) {
    let Some(parents) = next.parents_of(reshaping) else { return };
    let first = parents[0];
    let epoch = parents.iter().map(|parent| parent.epoch).max().unwrap_or(first.epoch) + 1;
    let born = |child: &Child| {
        let process = |node| first.member(node).expect("a whole partition has its originals").process;
        let partition = epochs::first(first.keyspace, child.range, first.originals.clone(), process);
        // Members keep their order, which in a chain is the chain's order. All of them serve,
        // because the parent is whole.
        let (primary, members, parents) = (first.primary, first.members.clone(), drained.to_vec());
        (child.partition, Partition { epoch, activated: false, primary, members, parents, ..partition })
    };
    let children = first.forming.iter().flat_map(|forming| &forming.children).map(born).collect();
    next.succeed(reshaping, children);
}
