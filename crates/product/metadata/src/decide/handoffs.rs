//! Handoffs: nodes that replace absent originals (R8). Decides when one joins and when one leaves.
//!
//! ```text
//!   A B C   C is silent   A B     activated, acknowledged, and     A B h   C is back    A B h C   C serves   A B C
//!           ───────────▶  (C)  ── C stays away for handoff_delay ─▶        ──────────▶           ─────────▶  (h)
//! ```
//!
//! A partition should have as many handoffs as originals that are not members. A handoff leaves
//! when there are more of them than originals that do not serve. In parentheses: removed, but still
//! waited for (R6).
//!
//! In a chain the replacement is a *spare*: like a newcomer it joins empty, behind all others. Once
//! it has copied everything it may be the tail or the head. It leaves by C9.
//!
//! Invariant: an epoch that removes a member adds no handoff. So puts continue with the remaining
//! members while a handoff is found, and a failover does not wait for a newcomer.

use alloc::vec::Vec;
use core::cmp::Reverse;

use nicekv_proto::NodeId;
use nicekv_proto::limits::MEMBERS_MAX;

use crate::state::{Member, Partition, Standing};
use crate::view::{Observed, all_acknowledged};

/// Removes members that are not originals and are no longer needed: handoffs before members with
/// all data. Among these the one with the least progress leaves first, and of several the newest.
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

/// Adds handoffs for absent originals, if nodes are available.
pub(crate) fn recruit(partition: &Partition, members: &mut Vec<Member>, observed: &impl Observed) {
    let originals = &partition.originals;
    let is_member = |members: &[Member], node| members.iter().any(|member| member.node == node);
    let is_settled = partition.activated
        && all_acknowledged(partition, observed)
        && partition.members.iter().all(|before| stays(before, members));
    let away = originals.iter().filter(|node| !is_member(members, **node)).count();
    // A leaving member has all data, so it also replaces an absent original.
    let handoffs = members.iter().filter(|member| !originals.contains(&member.node)).count();
    if !is_settled || away <= handoffs {
        return;
    }
    // Leaves room for every original to return.
    let room = (MEMBERS_MAX - originals.len()).saturating_sub(handoffs);
    let is_urgent = members.len() < observed.policy().members_needed;
    let mut stand_ins = observed.stand_ins(is_urgent);
    stand_ins.retain(|(node, _)| !is_member(members, *node) && !originals.contains(node));
    for (node, process) in stand_ins.into_iter().take((away - handoffs).min(room)) {
        // In a chain the replacement copies everything, and is then a member like any other (C8).
        let handoff = !observed.policy().is_chain;
        members.push(Member { node, process, standing: Standing::Joining, handoff });
    }
}

fn stays(before: &Member, members: &[Member]) -> bool {
    let now = members.iter().find(|member| member.node == before.node);
    now.is_some_and(|now| now.standing.is_consistent() >= before.standing.is_consistent())
}
