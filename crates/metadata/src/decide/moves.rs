//! Originals that are to change: the ring names other nodes for a partition than it did (NICE §4.4, ring re-configuration).
//!
//! ```text
//!   A B C   the ring wants A B D   A B c D     D has copied, and serves   A B D
//!           ─────────────────────▶ D: newcomer ─────────────────────────▶ (c)
//!                                  c: leaving
//! ```
//!
//! One original goes at a time, and stays as a member that holds everything, and may lead, until all originals serve. In parentheses:
//! removed, waited for (R6). Where members are only counted (R14) there is no room for a fourth: D takes C's place, as a newcomer that
//! counts when it has merged what the others hold.
//!
//! Invariants: a move begins only when every other original serves and is live, so no two copies of a partition are missing at once; and
//! what a newcomer holds from another time is void, since deletions may have been forgotten while it was no original (R7).

use alloc::vec::Vec;

use nicekv_wire::NodeId;

use crate::state::{Partition, Standing};
use crate::view::{Observed, all_acknowledged};

/// Most partitions that a node copies at once because they move to it.
pub(crate) const MOVES_PER_NODE_MAX: usize = 4;

/// The partition with the originals that it is to have next, if a move may begin now.
pub(crate) fn begin(partition: &Partition, observed: &impl Observed) -> Option<Partition> {
    let target = observed.target();
    let place = partition.originals.iter().position(|node| !target.contains(node))?;
    let node = *target.iter().find(|node| !partition.originals.contains(node))?;
    let mut others = partition.originals.iter().filter(|original| **original != partition.originals[place]);
    let serves = |original: &NodeId| {
        let member = partition.member(*original);
        member
            .is_some_and(|member| member.standing == Standing::Serving && observed.live(*original).is_some())
    };
    // A newcomer that is given up before it holds everything is replaced like any other.
    let has_left = partition.newcomers.iter().all(|newcomer| *newcomer == partition.originals[place]);
    let is_settled = has_left && partition.activated && all_acknowledged(partition, observed);
    let returns = partition.holders().any(|member| member.node == node);
    let may_come = observed.live(node).is_some() && observed.has_space(node) && !observed.barred(node);
    if !is_settled || !others.all(serves) || !may_come || !(returns || observed.may_move(node)) {
        return None;
    }
    let mut next = partition.clone();
    next.originals[place] = node;
    next.newcomers = if returns { Vec::new() } else { [node].into() };
    Some(next)
}

/// Whether an original is to be another node, which is there and has room: a move begins as soon as it may.
pub(crate) fn is_due(partition: &Partition, observed: &impl Observed) -> bool {
    let target = observed.target();
    let is_to_go = partition.originals.iter().any(|node| !target.contains(node));
    let comes = |node: &&NodeId| !partition.originals.contains(node);
    let may_come = |node: &NodeId| observed.live(*node).is_some() && observed.has_space(*node);
    is_to_go && target.iter().filter(comes).any(may_come)
}

/// The same originals in the order that the ring says, the one that leads by right first.
pub(crate) fn in_order<'a>(partition: &'a Partition, observed: &'a impl Observed) -> &'a [NodeId] {
    let target = observed.target();
    let is_same_set = target.iter().all(|node| partition.originals.contains(node));
    if is_same_set { target } else { &partition.originals }
}
