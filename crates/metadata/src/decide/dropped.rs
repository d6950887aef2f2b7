//! What becomes of keyspaces that are dropped (R16).
//!
//! ```text
//!   metadata                         switches              members
//!      │ persist: no members, no entries │                     │
//!      │──Install───────────────────────▶│                     │
//!      │──Assign: nobody is a member──────────────────────────▶│ answers nothing, takes nothing
//!      │◀──Installed, by all; or else acknowledged, and leases over
//!      │ persist: quiet                                        │
//!      │──Assign: discard─────────────────────────────────────▶│ holds nothing, durably
//!      │◀──discarded───────────────────────────────────────────│
//!      │ persist: forgotten, when all have said so, and every switch goes by tables without it
//! ```
//!
//! Quiet: nobody answers a get, or has a put acknowledged, of it any more. Either no switch leads there; or each former member knows that it is none,
//! or has no lease; and so many know it, or are gone, that the others are too few for a put.

use alloc::vec::Vec;

use nicekv_placement::{KeyspaceSpec, Protocol};
use nicekv_wire::PartitionId;

use crate::observations::Watch;
use crate::plant::Plant;
use crate::state::{Dropped, Gone, Left, Removed};
use crate::view::Situation;

/// The keyspaces that are still to be dropped, if something about them has changed.
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

fn step(situation: &Situation<'_>, id: PartitionId, spec: &KeyspaceSpec, gone: &mut Gone) {
    let watch = situation.observations.watch(id);
    let is_told = |removed: &Removed| is_told(situation, watch, removed);
    let told = gone.removed.iter().filter(|removed| removed.since == gone.epoch && is_told(removed)).count();
    gone.told = gone.told.saturating_add(told as u8);
    gone.removed.retain(|removed| !is_told(removed));
    let is_silent = |removed: &Removed| !removed.served || situation.harmless(removed);
    let switches = &situation.observations.switches;
    gone.quiet |= switches.all_current()
        || (gone.removed.iter().all(is_silent) && usize::from(gone.told) >= told_needed(spec))
        || situation.observations.has(Plant::DropNotAwaited);
    if gone.quiet {
        let has_discarded = |left: &Left| watch.has_discarded(left.node, left.since);
        gone.left.retain(|left| !has_discarded(left));
    }
}

/// Whether a former member knows that it is none, or its process is gone.
fn is_told(situation: &Situation<'_>, watch: &Watch, removed: &Removed) -> bool {
    let known = watch.acknowledged(removed.node, removed.incarnation);
    let live = situation.observations.membership.live(removed.node);
    known.is_some_and(|known| known.epoch >= removed.since)
        || live.is_some_and(|process| process.incarnation != removed.incarnation)
}

/// So many members must be out of it that the others acknowledge no put.
fn told_needed(spec: &KeyspaceSpec) -> usize {
    match spec.protocol {
        Protocol::Multicast => 1,
        Protocol::Quorum { write_set } => spec.replicas + 1 - usize::from(write_set),
    }
}
