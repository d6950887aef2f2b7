//! Moves of originals, when the ring names other nodes for a partition than before (NICE §4.4, ring
//! re-configuration).
//!
//! ```text
//!   A B C   the ring wants A B D   A B c D     D has copied, and serves   A B D
//!           ─────────────────────▶ D: newcomer ─────────────────────────▶ (c)
//!                                  c: leaving
//! ```
//!
//! One original is replaced at a time. It stays as a leaving member, with all data, and may lead,
//! until all originals serve. In parentheses: removed, but still waited for (R6).
//!
//! Where members are only counted (R14), C hands its part over to D alone, and leaves in the epoch
//! in which D counts. This *succession* needs both processes from its beginning to its end. If one
//! of them fails, or D should no longer replace C, the succession is *broken off*: D leaves, and C
//! is an original as before. The next succession begins when D knows that it was removed. None
//! begins while C is not live, unless the operator has given C up and others hold everything that C
//! has acknowledged (k > 1). Then D replaces C in one step, and merges what the others hold.
//!
//! Invariants: a move begins only when every other original serves and is live, except originals
//! that are gone for good; so no two copies of a partition are missing at once. Data that a
//! newcomer holds from an earlier time are void, because it may have missed deletions while it was
//! not an original (R7).

use alloc::vec::Vec;

use nicekv_proto::NodeId;
use nicekv_proto::limits::MEMBERS_MAX;

use crate::policy::Silent;
use crate::state::{Member, Partition, Removed, Standing};
use crate::view::{Observed, all_acknowledged};

/// The partition with its next originals, if a move may begin now.
pub(crate) fn begin(partition: &Partition, observed: &impl Observed) -> Option<Partition> {
    let target = observed.target();
    let place = place_of_leaver(partition, observed)?;
    let node = *target.iter().find(|node| !partition.originals.contains(node))?;
    let mut others = partition.originals.iter().filter(|original| **original != partition.originals[place]);
    let may_begin_beside = |original: &NodeId| {
        let member = partition.member(*original);
        let is_live = observed.live(*original).is_some();
        let serves = is_live && member.is_some_and(|member| member.standing == Standing::Serving);
        // A dead original that should be replaced is not waited for.
        let is_gone = !is_live && !target.contains(original) && observed.policy().silent == Silent::Removed;
        serves || is_gone
    };
    // No move begins while another newcomer still lacks data, unless this move replaces that
    // newcomer.
    let has_left = partition.newcomers.iter().all(|newcomer| *newcomer == partition.originals[place]);
    let is_settled = has_left && partition.activated && all_acknowledged(partition, observed);
    let returns = partition.holders().any(|member| member.node == node);
    let may_come = observed.live(node).is_some() && observed.has_space(node) && !observed.barred(node);
    let follows = match observed.policy().silent {
        // The leaving member stays until the newcomer serves, so there is one member more
        // meanwhile.
        Silent::Removed => partition.member(node).is_some() || partition.members.len() < MEMBERS_MAX,
        Silent::Counted => may_follow(partition, partition.originals[place], node, observed),
    };
    if !follows
        || !is_settled
        || !others.all(may_begin_beside)
        || !may_come
        || !(returns || observed.may_move(node))
    {
        return None;
    }
    let mut next = partition.clone();
    next.originals[place] = node;
    next.newcomers = if returns { Vec::new() } else { [node].into() };
    Some(next)
}

/// The place of an original that should be replaced. One that is not live is replaced first,
/// because a live one is needed until then.
fn place_of_leaver(partition: &Partition, observed: &impl Observed) -> Option<usize> {
    let leaves = |node: &NodeId| !observed.target().contains(node);
    let originals = || partition.originals.iter();
    let gone = originals().position(|node| leaves(node) && observed.live(*node).is_none());
    gone.or_else(|| originals().position(leaves))
}

/// In quorum mode: whether a node may replace an original now.
fn may_follow(partition: &Partition, original: NodeId, node: NodeId, observed: &impl Observed) -> bool {
    let is_told = |removed: &Removed| removed.node != node;
    let has_room = partition.members.len() < MEMBERS_MAX;
    let may_go = match observed.live(original) {
        // A newcomer has never answered, so it can be replaced at any time.
        _ if partition.is_newcomer(original) => true,
        Some(_) => {
            let serves = |member: &Member| member.standing == Standing::Serving;
            has_room && partition.member(original).is_some_and(serves)
        }
        None => observed.policy().others_hold && observed.is_given_up(original),
    };
    may_go && partition.removed.iter().all(is_told)
}

/// In quorum mode: breaks a succession off, if the leaving member or the newcomer has changed or
/// failed since it began, or the leaving member should stay. The leaving member becomes an original
/// again.
pub(crate) fn break_off(partition: &Partition, observed: &impl Observed) -> Option<Partition> {
    if observed.policy().silent == Silent::Removed {
        return None;
    }
    let leaves = partition.members.iter().find(|member| !partition.originals.contains(&member.node))?;
    let newcomer = *partition.newcomers.first()?;
    let is_as_before = |node: NodeId| {
        let live = observed.live(node);
        live.is_some() && partition.member(node).map(|member| member.process) == live
    };
    let target = observed.target();
    let goes_on = is_as_before(leaves.node)
        && is_as_before(newcomer)
        && observed.expelled() != Some(newcomer)
        && observed.has_space(newcomer)
        && target.contains(&newcomer)
        && !target.contains(&leaves.node);
    if goes_on {
        return None;
    }
    let mut next = partition.clone();
    let place = partition.originals.iter().position(|node| *node == newcomer)?;
    next.originals[place] = leaves.node;
    next.newcomers.clear();
    Some(next)
}

/// In quorum mode: removes the leaving member as soon as all originals count, but not before,
/// unless it is dead.
pub(crate) fn release(partition: &Partition, members: &mut Vec<Member>, observed: &impl Observed) {
    if observed.policy().silent == Silent::Removed {
        return;
    }
    let is_awaited = |member: &Member| {
        partition.is_newcomer(member.node) && !member.standing.is_consistent() && !member.handoff
    };
    let is_needed = members.iter().any(is_awaited);
    members.retain(|member| {
        let is_original = partition.originals.contains(&member.node);
        is_original || (is_needed && observed.live(member.node).is_some())
    });
}

/// Whether an original should be replaced by a node that is live and has disk space, so that a move
/// begins as soon as possible.
pub(crate) fn is_due(partition: &Partition, observed: &impl Observed) -> bool {
    let target = observed.target();
    let is_to_go = partition.originals.iter().any(|node| !target.contains(node));
    let comes = |node: &&NodeId| !partition.originals.contains(node);
    let may_come = |node: &NodeId| observed.live(*node).is_some() && observed.has_space(*node);
    is_to_go && target.iter().filter(comes).any(may_come)
}

/// The same originals in the ring's order; the preferred leader comes first.
pub(crate) fn in_order<'a>(partition: &'a Partition, observed: &'a impl Observed) -> &'a [NodeId] {
    let target = observed.target();
    let is_same_set = target.iter().all(|node| partition.originals.contains(node));
    if is_same_set { target } else { &partition.originals }
}
