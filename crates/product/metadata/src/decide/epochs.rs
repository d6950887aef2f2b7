//! The epochs of a partition (rules R3, R6, R7, R9): pure functions of its state and of what is
//! observed.
//!
//! ```text
//!              all acked        copy done        all acked
//!   Joining ─────────▶ Copying ═══════▶ Promoted ─────────▶ Serving          ═▶ a new epoch
//!      ▲                   ║                ║                  ║             ─▶ a step within the epoch
//!      ╚═══ live again ═══ removed ◀════════╩══ suspected ═════╝
//! ```
//!
//! Originals and handoffs go through the same states; [`super::handoffs`] says when a handoff joins
//! and leaves.
//!
//! No events are remembered: everything is decided by comparing the state with what is observed
//! now, so an event that is lost, repeated or reordered makes no difference in the end.
//!
//! [`Policy`](crate::policy::Policy) has the differences between protocols: where silent members
//! are counted instead of removed, only a new storage goes through the states from Joining on.
//!
//! Invariants: the primary is a consistent original; a consistent original is removed only while
//! another one stays that has proven to be live and intact; a serving member that is removed is
//! waited for (R6) before the epoch is activated, and so are those of the epochs before.

use alloc::vec::Vec;

use nicekv_proto::{KeyspaceId, MatchRange, NodeId};

use super::{handoffs, moves};
use crate::policy::Silent;
use crate::state::{Divisions, Member, Partition, Process, Removed, Standing};
use crate::view::{Observed, all_acknowledged, has_live_consistent, holders, is_intact, is_same_storage};

/// The first epoch: every original is consistent, because there are no data yet.
pub(crate) fn first(
    keyspace: KeyspaceId,
    range: MatchRange,
    originals: Vec<NodeId>,
    process: impl Fn(NodeId) -> Process,
) -> Partition {
    let member = |node: &NodeId| Member {
        node: *node,
        process: process(*node),
        standing: Standing::Promoted,
        handoff: false,
    };
    Partition {
        keyspace,
        range,
        epoch: 1,
        activated: true,
        primary: originals[0],
        members: originals.iter().map(member).collect(),
        removed: Vec::new(),
        originals,
        newcomers: Vec::new(),
        emptied: Vec::new(),
        divisions: Divisions::default(),
        left: Vec::new(),
        forming: None,
        parents: Vec::new(),
        round: 0,
    }
}

/// The next epoch, if the observations require one.
pub(crate) fn next_epoch(partition: &Partition, observed: &impl Observed) -> Option<Partition> {
    if !has_live_consistent(partition, observed) {
        return None;
    }
    let moved = moves::break_off(partition, observed).or_else(|| moves::begin(partition, observed));
    let before = partition;
    let partition = moved.as_ref().unwrap_or(partition);
    let mut members = next_members(partition, observed);
    if observed.policy().is_chain {
        // Members with all data keep their place in the chain. Joiners come behind them, and start
        // without data (C8, C9).
        members.sort_by_key(|member| !member.standing.is_consistent());
    }
    let announced = |member: &Member| (member.node, member.process, member.standing.is_consistent());
    if moved.is_none() && members.iter().map(announced).eq(before.members.iter().map(announced)) {
        return fence(partition, observed).or_else(|| given_back(partition, observed));
    }
    // Children that were formed by other members or under another primary are void (R17).
    let mut next = Partition { epoch: partition.epoch + 1, members, forming: None, ..partition.clone() };
    let hold: Vec<NodeId> = next.holders().map(|member| member.node).collect();
    next.newcomers.retain(|node| !hold.contains(node));
    let Partition { members, originals, emptied, .. } = &mut next;
    emptied.retain(|node| {
        let holds_anew = |member: &Member| {
            let is_it = member.node == *node && member.standing.is_consistent();
            is_it && observed.identity(*node) == Some(member.process.storage)
        };
        originals.contains(node) && !members.iter().any(holds_anew)
    });
    for member in &before.members {
        // In quorum mode a joiner, unless it is a newcomer, may answer at once. So its removal is
        // recorded.
        let may_answer = observed.policy().silent == Silent::Counted
            && !before.is_newcomer(member.node)
            && next.member(member.node).is_none();
        remember_removed(&mut next, member, may_answer);
    }
    next.note_left(before);
    next.activated &= !observed.policy().is_chain;
    if observed.policy().is_chain {
        next.primary = next.members[0].node;
    } else if !holders(&next, observed).any(|member| member.node == next.primary) {
        let in_turn = |member: &&Member| (!next.originals.contains(&member.node), observed.led(member.node));
        let successor = holders(&next, observed).min_by_key(in_turn);
        next.primary = successor.expect("a live consistent original stays").node;
    }
    Some(next)
}

/// A new epoch without other changes. Either a member has requested it (R14), or names should adopt
/// a round (P8). The latter waits until formed children have become partitions.
fn fence(partition: &Partition, observed: &impl Observed) -> Option<Partition> {
    let is_to_adopt = partition.round < observed.round() && partition.forming.is_none();
    let calls_for_it = is_to_adopt || observed.wants_fence();
    calls_for_it.then(|| Partition { epoch: partition.epoch + 1, ..partition.clone() })
}

/// The epoch in which the first original becomes primary of a whole partition again. It is
/// activated at once: the former primary stays a member, so nothing is decided without it.
fn given_back(partition: &Partition, observed: &impl Observed) -> Option<Partition> {
    let first = partition.originals[0];
    let calls_for_it = first != partition.primary
        && !observed.policy().is_chain
        && partition.is_whole()
        && all_acknowledged(partition, observed)
        && observed.may_lead_again(first);
    let (epoch, forming) = (partition.epoch + 1, None);
    calls_for_it.then(|| Partition { epoch, primary: first, forming, ..partition.clone() })
}

fn next_members(partition: &Partition, observed: &impl Observed) -> Vec<Member> {
    let has_survivor = |silent: NodeId| {
        observed.policy().silent == Silent::Removed
            && holders(partition, observed)
                .any(|member| is_intact(member, observed) && observed.outlives(member.node, silent))
    };
    let may_go = |node: &NodeId| {
        let is_counted = holders(partition, observed).any(|member| member.node == *node);
        observed.policy().silent == Silent::Removed || !is_counted
    };
    let expelled = observed.expelled().filter(may_go).filter(|expelled| {
        holders(partition, observed).any(|member| member.node != *expelled && is_intact(member, observed))
    });
    let all_acknowledged = all_acknowledged(partition, observed);
    let mut members = Vec::with_capacity(partition.originals.len());
    for member in &partition.members {
        if expelled == Some(member.node) {
            continue;
        }
        match observed.live(member.node) {
            Some(process) => {
                let next = next_member(member, process, all_acknowledged, observed);
                let stays = is_welcome(&next, observed) && has_place(partition, member, &next, observed);
                members.extend(Some(next).filter(|_| stays));
            }
            None if has_survivor(member.node) => {}
            None => members.push(*member),
        }
    }
    for &node in &partition.originals {
        let is_new = partition.member(node).is_none_or(|member| member.handoff)
            && !observed.barred(node)
            && observed.has_space(node);
        if let Some(process) = observed.live(node).filter(|_| is_new) {
            members.push(Member { node, process, standing: Standing::Joining, handoff: false });
        }
    }
    moves::release(partition, &mut members, observed);
    handoffs::dismiss(&partition.originals, &mut members);
    handoffs::recruit(partition, &mut members, observed);
    members
}

/// Whether a member keeps its place. A member that is neither an original nor a handoff stays while
/// it has all data. A handoff that has become an original joins anew. A spare of a chain stays
/// while it joins, if it is still the same process.
fn has_place(partition: &Partition, before: &Member, member: &Member, observed: &impl Observed) -> bool {
    if partition.originals.contains(&member.node) {
        return !member.handoff;
    }
    let is_spare = observed.policy().is_chain && before.process == member.process;
    member.handoff || member.standing.is_consistent() || is_spare
}

/// Whether a member's disk space allows it to take part. A joiner without space for its copy would
/// make every put fail, so it stays out. A member with all data stays, and refuses puts. Where
/// members are only counted, nobody waits for a full one.
fn is_welcome(member: &Member, observed: &impl Observed) -> bool {
    let stays = member.standing.is_consistent() || observed.policy().silent == Silent::Counted;
    stays || observed.has_space(member.node)
}

fn next_member(
    member: &Member,
    process: Process,
    all_acknowledged: bool,
    observed: &impl Observed,
) -> Member {
    let same_process = process.incarnation == member.process.incarnation && is_same_storage(member, process);
    let standing = match member.standing {
        Standing::Copying if same_process && is_consistent(member, all_acknowledged, observed) => {
            Standing::Promoted
        }
        standing if same_process => standing,
        // The process has restarted, and its log has everything that it had acknowledged (R18).
        standing if standing.is_consistent() && is_same_storage(member, process) => Standing::Promoted,
        _ => Standing::Joining,
    };
    Member { process, standing, ..*member }
}

fn is_consistent(member: &Member, all_acknowledged: bool, observed: &impl Observed) -> bool {
    observed.policy().is_consistent(observed.copied(member.node), all_acknowledged)
}

/// Records that `member` of the previous epoch is no longer a member, or no longer consistent.
///
/// A restarted member that stays consistent is not recorded: nothing is decided without it, and its
/// former process is gone.
fn remember_removed(next: &mut Partition, member: &Member, may_answer: bool) {
    let served = member.standing.is_consistent() || may_answer;
    let stays = next.member(member.node).is_some_and(|now| now.standing.is_consistent() || !served);
    if stays {
        return;
    }
    let (node, incarnation, since) = (member.node, member.process.incarnation, next.epoch);
    next.activated &= !served;
    match next.removed.iter_mut().find(|entry| entry.node == node && entry.incarnation == incarnation) {
        Some(entry) => *entry = Removed { since, served: entry.served || served, ..*entry },
        None => next.removed.push(Removed { node, incarnation, since, served }),
    }
}

/// The next step within the epoch, if there is one.
///
/// Activation considers only removals that are already persisted. From then on a removed member
/// gets no lease, so that a lease that has ended stays ended.
pub(crate) fn next_step(partition: &Partition, observed: &impl Observed) -> Option<Partition> {
    let originals = moves::in_order(partition, observed);
    let is_final = partition.members.iter().all(|member| member.standing == Standing::Serving)
        && partition.activated
        && partition.removed.is_empty()
        && partition.originals == originals
        && partition.left.is_empty();
    if is_final {
        return None;
    }
    let mut next = Partition { originals: originals.to_vec(), ..partition.clone() };
    if all_acknowledged(partition, observed) {
        for member in &mut next.members {
            member.standing = match member.standing {
                Standing::Joining => Standing::Copying,
                Standing::Promoted => Standing::Serving,
                standing => standing,
            };
        }
    }
    next.removed.retain(|removed| {
        let is_unaware = observed.acknowledged(removed.node, removed.incarnation) < removed.since;
        is_unaware || observed.is_of_parent(removed)
    });
    next.left.retain(|left| !observed.discarded(left));
    let activated = next.removed.iter().all(|removed| !removed.served || observed.harmless(removed));
    next.activated |= activated && has_taken_over(partition, observed);
    if next.activated {
        next.parents.clear();
        // A process that another one has replaced cannot return.
        next.removed.retain(|removed| {
            observed.live(removed.node).is_none_or(|process| process.incarnation == removed.incarnation)
        });
    }
    (next != *partition).then_some(next)
}

/// For a partition that replaces another: whether all members have built it, or will not use old
/// data. From then on no node answers gets as a member of the old one (R17). In a chain this
/// includes members that may have been the tail of an earlier epoch (C7).
fn has_taken_over(partition: &Partition, observed: &impl Observed) -> bool {
    let is_awaited = !partition.parents.is_empty() || observed.policy().is_chain;
    !is_awaited || all_acknowledged(partition, observed)
}

#[cfg(test)]
mod tests;
