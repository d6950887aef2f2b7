//! Nodes that stand in for originals that are away (R8): when one comes, and when one goes.
//!
//! ```text
//!   A B C   C is silent   A B     activated, acknowledged, and     A B h   C is back    A B h C   C serves   A B C
//!           ───────────▶  (C)  ── C stays away for handoff_delay ─▶        ──────────▶           ─────────▶  (h)
//! ```
//!
//! A partition should have as many handoffs as originals that are no members; it lets one go when there are more than originals
//! that do not serve. In parentheses: removed, waited for (R6).
//!
//! In a chain who stands in is a *spare*: it joins as newcomers do, with nothing, behind all others, and when it holds everything it may be its tail, or lead. It goes by C9.
//!
//! Invariant: an epoch that removes somebody adds no handoff. So puts go on with those that are left while a handoff is found,
//! and a failover waits for no newcomer.

use alloc::vec::Vec;
use core::cmp::Reverse;

use nicekv_proto::NodeId;
use nicekv_proto::limits::MEMBERS_MAX;

use crate::state::{Member, Partition, Standing};
use crate::view::{Observed, all_acknowledged};

/// Lets those go who are no originals and not needed any more: handoffs before those that hold everything, first who has come least far,
/// of equals the newest.
pub(crate) fn dismiss(originals: &[NodeId], members: &mut Vec<Member>) {
    let is_original = |member: &Member| originals.contains(&member.node);
    let serves = |member: &&Member| is_original(member) && member.standing == Standing::Serving;
    let needed = originals.len() - members.iter().filter(serves).count();
    while members.iter().filter(|member| !is_original(member)).count() > needed {
        let others = (0..members.len()).filter(|index| !is_original(&members[*index]));
        let worth = |index: &usize| (!members[*index].handoff, members[*index].standing, Reverse(*index));
        let least = others.min_by_key(worth);
        members.remove(least.expect("there are more than needed"));
    }
}

/// Adds handoffs for originals that stay away, if there are nodes to spare.
pub(crate) fn recruit(partition: &Partition, members: &mut Vec<Member>, observed: &impl Observed) {
    let originals = &partition.originals;
    let is_member = |members: &[Member], node| members.iter().any(|member| member.node == node);
    let is_settled = partition.activated
        && all_acknowledged(partition, observed)
        && partition.members.iter().all(|before| stays(before, members));
    let away = originals.iter().filter(|node| !is_member(members, **node)).count();
    // Who leaves holds everything, and makes up for one that is away as well.
    let handoffs = members.iter().filter(|member| !originals.contains(&member.node)).count();
    if !is_settled || away <= handoffs {
        return;
    }
    // Every original can come back, whoever stands in.
    let room = (MEMBERS_MAX - originals.len()).saturating_sub(handoffs);
    let is_urgent = members.len() < observed.policy().members_needed;
    let mut stand_ins = observed.stand_ins(is_urgent);
    stand_ins.retain(|(node, _)| !is_member(members, *node) && !originals.contains(node));
    for (node, process) in stand_ins.into_iter().take((away - handoffs).min(room)) {
        // In a chain it is to hold everything, and then is a member like any other (C8).
        let handoff = !observed.policy().is_chain;
        members.push(Member { node, process, standing: Standing::Joining, handoff });
    }
}

fn stays(before: &Member, members: &[Member]) -> bool {
    let now = members.iter().find(|member| member.node == before.node);
    now.is_some_and(|now| now.standing.is_consistent() >= before.standing.is_consistent())
}
