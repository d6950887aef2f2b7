//! The end of partitions: of dropped keyspaces (R16), and of partitions that were split or merged
//! (R17).
//!
//! ```text
//!   metadata                         switches              members
//!      │ persist: no members, no entries │                     │
//!      │──Install───────────────────────▶│                     │
//!      │──Assign: no members──────────────────────────────────▶│ answer and accept nothing
//!      │◀──Installed, by all; or acknowledged, and leases over
//!      │ persist: quiet                                        │
//!      │──Assign: discard─────────────────────────────────────▶│ hold nothing, durably
//!      │◀──discarded───────────────────────────────────────────│
//!      │ persist: forgotten, when all have reported it and every switch has installed tables without it
//! ```
//!
//! Quiet: no node answers gets of the partition or acknowledges puts any more. For gets, each former
//! member must know that it was removed, or have no lease that counts (R6). For puts, either every
//! switch has installed tables without the partition, or so many members know its end that the
//! others are too few.
//!
//! A partition that was split or merged is quiet when its children are whole. Until then children
//! may be built from its members' data, and the members learn of its end from the assignments of
//! its children. A process that was removed from it, or is not a member of a child, gets no lease
//! until it knows the end of this partition, too; otherwise it could continue to answer gets. It is
//! notified as soon as no child is built from its data any more.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use nicekv_proto::PartitionId;
use nicekv_proto::placement::{KeyspaceSpec, Protocol};

use crate::observe::Watch;
use crate::state::{Dropped, Gone, Left, Partition, Removed};
use crate::view::Situation;

/// The keyspaces that are still being dropped; `None` if nothing has changed.
pub(super) fn next(situation: &Situation<'_>) -> Option<Vec<Dropped>> {
    let before = &situation.state.dropped;
    let mut after = before.clone();
    for Dropped { spec, partitions } in &mut after {
        for (id, gone) in partitions.iter_mut() {
            step(situation, *id, spec, gone);
        }
        partitions.retain(|_, gone| !gone.is_over());
    }
    if situation.observations.switches.all_current() {
        after.retain(|dropped| !dropped.partitions.is_empty());
    }
    (after != *before).then_some(after)
}

/// The split or merged partitions that are not forgotten yet; `None` if nothing has changed.
pub(super) fn next_reshaped(situation: &Situation<'_>) -> Option<BTreeMap<PartitionId, Gone>> {
    let before = &situation.state.reshaped;
    let mut after = before.clone();
    after.iter_mut().for_each(|(id, gone)| step_reshaped(situation, *id, gone));
    after.retain(|_, gone| !gone.is_over());
    (after != *before).then_some(after)
}

fn step_reshaped(situation: &Situation<'_>, id: PartitionId, gone: &mut Gone) {
    let watch = situation.observations.watch(id);
    let children: Vec<_> = gone.children.iter().map(|id| (*id, situation.state.partition(*id))).collect();
    let knows = |process: &Removed| {
        let has_taken_over = |(id, _): &(PartitionId, _)| {
            situation.observations.watch(*id).acknowledged(process.node, process.incarnation).is_some()
        };
        children.iter().all(has_taken_over)
    };
    gone.removed.retain(|removed| !is_told(situation, watch, removed));
    gone.members.retain(|member| !is_told(situation, watch, member) && !knows(member));
    let is_whole = |(id, child): &(PartitionId, Option<&Partition>)| {
        child.is_none_or(|child| situation.may_discard(*id, child))
    };
    gone.quiet |= children.iter().all(is_whole);
    if gone.quiet {
        gone.left.retain(|left| !watch.has_discarded(left.node, left.since));
    }
}

/// The former members that must be notified of the end of a partition. For a split or merged one,
/// these do not include members from whose data children are still being built.
pub(crate) fn to_be_told(situation: &Situation<'_>, gone: &Gone) -> Vec<Removed> {
    let is_needed = |removed: &Removed, id: &PartitionId| {
        let known = situation.observations.watch(*id).acknowledged(removed.node, removed.incarnation);
        let child = situation.state.partition(*id);
        known.is_none() && child.is_some_and(|child| Gone::goes_on_in(removed, child))
    };
    let is_over = |removed: &&Removed| !gone.children.iter().any(|id| is_needed(removed, id));
    gone.removed.iter().filter(is_over).copied().collect()
}

fn step(situation: &Situation<'_>, id: PartitionId, spec: &KeyspaceSpec, gone: &mut Gone) {
    let watch = situation.observations.watch(id);
    let is_told = |removed: &Removed| is_told(situation, watch, removed);
    let told = gone.removed.iter().filter(|removed| removed.since == gone.epoch && is_told(removed)).count();
    gone.told = gone.told.saturating_add(told as u8);
    gone.removed.retain(|removed| !is_told(removed));
    let is_silent = |removed: &Removed| !removed.served || situation.harmless(removed);
    let is_out_of_reach =
        situation.observations.switches.all_current() || usize::from(gone.told) >= told_needed(spec);
    gone.quiet |= gone.removed.iter().all(is_silent) && is_out_of_reach;
    if gone.quiet {
        let has_discarded = |left: &Left| watch.has_discarded(left.node, left.since);
        gone.left.retain(|left| !has_discarded(left));
    }
}

/// Whether a former member knows that it is not a member, or its process is gone.
fn is_told(situation: &Situation<'_>, watch: &Watch, removed: &Removed) -> bool {
    let known = watch.acknowledged(removed.node, removed.incarnation);
    let live = situation.observations.membership.live(removed.node);
    known.is_some_and(|known| known.epoch >= removed.since)
        || live.is_some_and(|process| process.incarnation != removed.incarnation)
}

/// Number of members that must know the end of the partition, or be gone, so that the others are
/// too few for a put.
fn told_needed(spec: &KeyspaceSpec) -> usize {
    match spec.protocol {
        Protocol::Multicast | Protocol::Chain => 1,
        Protocol::Quorum { write_set } => spec.replicas + 1 - usize::from(write_set),
    }
}
