//! Adapts the groups of storage targets to the set of nodes (P11, P13).
//!
//! ```text
//!   nodes come, leave ──▶ v + 1: the new layout, and the one before ── all targets have moved what they hold elsewhere ──▶ v + 2: the new layout
//!   a target is lost for good ──▶ the same layouts without it, at any time: others make the copies that it had
//! ```
//!
//! Chunks take time to move, so the change to one layout is completed before the next one begins.

use alloc::vec::Vec;

use nicekv_proto::NodeId;

use crate::observe::TargetReport;
use crate::state::{ChunkGroups, DesiredState};
use crate::view::Situation;

/// The next map of groups, if the observations require one.
pub(crate) fn next(situation: &Situation<'_>) -> Option<ChunkGroups> {
    let chunks = situation.state.chunks.as_ref()?;
    let next = step(situation, chunks.clone());
    (next != *chunks).then(|| ChunkGroups { version: chunks.version + 1, ..next })
}

fn step(situation: &Situation<'_>, chunks: ChunkGroups) -> ChunkGroups {
    let lost: Vec<NodeId> =
        chunks.layout.targets().filter(|node| is_lost(situation, &chunks, *node)).collect();
    if !lost.is_empty() {
        return lost.into_iter().fold(chunks, ChunkGroups::without);
    }
    if chunks.before.is_some() {
        let has_moved = chunks.layout.targets().all(|node| has_moved(situation, &chunks, node));
        let before = chunks.before.clone().filter(|_| !has_moved);
        return ChunkGroups { before, ..chunks };
    }
    let empty: Vec<NodeId> =
        chunks.layout.targets().filter(|node| is_empty(situation, &chunks, *node)).collect();
    if !empty.is_empty() {
        return empty.into_iter().fold(chunks, ChunkGroups::without);
    }
    // A target that is briefly absent stays, and a node that is not live yet is not added.
    let is_there =
        |node: &NodeId| chunks.layout.has(*node) || situation.observations.membership.live(*node).is_some();
    let wanted = situation.state.wanted_targets().into_iter().filter(is_there).collect();
    let layout = chunks.layout.followed(&wanted);
    if layout == chunks.layout { chunks } else { chunks.reshaped(layout) }
}

/// Whether a target is considered lost: the operator gave it up, or it has been absent for too long
/// and its group can do without it.
fn is_lost(situation: &Situation<'_>, chunks: &ChunkGroups, node: NodeId) -> bool {
    let Situation { config, state, observations, now_ns, .. } = situation;
    let membership = &observations.membership;
    if membership.live(node).is_some() {
        return false;
    }
    let Some(known) = state.node(node) else { return true };
    if known.desired == DesiredState::Removed {
        return true;
    }
    let Some(timeout) = config.timing.target_timeout else { return false };
    let is_away = *now_ns >= membership.silent_since_ns(node) + crate::config::nanoseconds(timeout);
    let Some(group) = chunks.layout.group_of(node) else { return false };
    let others = chunks.layout.members(group).filter(|other| membership.live(*other).is_some());
    is_away && others.count() >= state.copies()
}

/// A target's report for this version of the map, if it has sent one.
fn report<'a>(situation: &Situation<'a>, chunks: &ChunkGroups, node: NodeId) -> Option<&'a TargetReport> {
    situation.observations.chunks.of(node).filter(|report| report.version == chunks.version)
}

/// Whether a target has moved everything that belongs to other groups.
fn has_moved(situation: &Situation<'_>, chunks: &ChunkGroups, node: NodeId) -> bool {
    report(situation, chunks, node).is_some_and(|report| report.has_moved)
}

/// Whether a leaving target holds no chunks any more.
fn is_empty(situation: &Situation<'_>, chunks: &ChunkGroups, node: NodeId) -> bool {
    let serves = chunks.layout.group_of(node).is_some_and(|group| chunks.layout.serves(group));
    !serves && report(situation, chunks, node).is_some_and(|report| report.has_moved && report.chunks == 0)
}
