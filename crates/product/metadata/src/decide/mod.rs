//! Decides the next state from the persisted state and what is observed: a pure function.
//!
//! [`crate::policy`] has the differences between protocols. `epochs` decides about members and
//! primaries, `handoffs` about replacements, `divisions` about which replica answers whose gets,
//! `dropped` about partitions that no longer exist, `reshaping` about splits and merges,
//! `migration` about load.

mod divisions;
pub(crate) mod dropped;
pub(crate) mod epochs;
mod handoffs;
pub(crate) mod migration;
pub(crate) mod moves;
mod regroup;
pub(crate) mod reshaping;
pub(crate) mod rounds;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use nicekv_proto::placement::{KeyspaceSpec, replica_sets};
use nicekv_proto::{NodeId, PartitionId};

use crate::state::{ChunkGroups, DesiredState, Node, Partition, Removed, State};
use crate::view::{Load, Observed, Situation};
#[cfg(test)]
pub(crate) use divisions::revise as revise_divisions;

/// The next state.
#[derive(Clone, Debug)]
pub(crate) struct Decision {
    pub(crate) state: State,
    /// Live members that are removed; they are barred for a while.
    pub(crate) expelled: Vec<(PartitionId, NodeId)>,
    /// Number of partitions whose divisions change because of load.
    pub(crate) divided_by_load: usize,
}

/// The next state, if the observations require one.
pub(crate) fn decide(situation: &Situation<'_>) -> Option<Decision> {
    if let Some(state) = found_keyspaces(situation) {
        return Some(Decision { state, expelled: Vec::new(), divided_by_load: 0 });
    }
    if let Some(state) = forgetful_storages(situation) {
        return Some(Decision { state, expelled: Vec::new(), divided_by_load: 0 });
    }
    let mut load = Load::of(situation);
    let (mut changes, mut expelled) = (BTreeMap::new(), Vec::new());
    for (id, partition) in situation.state.partitions() {
        let view = situation.view(id, partition).with_load(&load);
        let is_settled = situation.observations.watch(id).is_settled();
        let epoch = if is_settled { epochs::next_epoch(partition, &view) } else { None };
        let leaves =
            |node: &NodeId| epoch.as_ref().is_some_and(|next: &Partition| next.member(*node).is_none());
        expelled.extend(view.expelled().filter(leaves).map(|node| (id, node)));
        let Some(next) = epoch.or_else(|| epochs::next_step(partition, &view)) else { continue };
        load.replace(partition, &next);
        changes.insert(id, next);
    }
    let divided_by_load = divisions::revise(situation, &mut changes);
    let forgotten =
        |node: &Node| node.desired == DesiredState::Removed && may_be_forgotten(situation, node.config.id);
    let (dropped, reshaped) = (dropped::next(situation), dropped::next_reshaped(situation));
    let (collects, regrouped) = (rounds::is_due(situation), regroup::next(situation));
    let chunks_stay = !collects && regrouped.is_none();
    let is_quiet = changes.is_empty() && dropped.is_none() && reshaped.is_none() && chunks_stay;
    if is_quiet && !reshaping::is_due(situation) && !situation.state.nodes.iter().any(forgotten) {
        return None;
    }
    let mut state = situation.state.clone();
    state.chunks = regrouped.or(state.chunks);
    if let Some(chunks) = state.chunks.as_mut().filter(|_| collects) {
        chunks.round += 1;
    }
    for (id, next) in changes {
        state.replace(id, next);
    }
    state.dropped = dropped.unwrap_or(state.dropped);
    state.reshaped = reshaped.unwrap_or(state.reshaped);
    reshaping::advance(situation, &mut state);
    state.note_outside();
    for node in situation.state.nodes.iter().filter(|node| forgotten(node)) {
        state.forget(node.config.id);
    }
    state.version += 1;
    Some(Decision { state, expelled, divided_by_load })
}

/// Gives storages that have lost data a new identity, which voids their data (R18).
fn forgetful_storages(situation: &Situation<'_>) -> Option<State> {
    let forgetful = &situation.observations.forgetful;
    if forgetful.is_empty() {
        return None;
    }
    let mut next = situation.state.clone();
    next.version += 1;
    for (&node, &storage) in forgetful {
        next.storages.insert(node, storage);
        next.note_emptied(NodeId(node));
    }
    Some(next)
}

/// Whether a node holds no data and cannot answer gets any more: its process is gone, or knows that
/// it is not a member. From then on it gets no lease.
fn may_be_forgotten(situation: &Situation<'_>, node: NodeId) -> bool {
    if situation.state.chunks.as_ref().is_some_and(|chunks| chunks.has(node)) {
        return false;
    }
    let is_gone = situation.observations.membership.live(node).is_none();
    let of = |removed: &[Removed]| removed.iter().any(|removed| removed.node == node);
    let is_none = situation.state.partitions().all(|(_, partition)| {
        !partition.has(node) && (!of(&partition.removed) || (is_gone && partition.activated))
    });
    is_none
        && situation
            .state
            .gone()
            .all(|(_, _, gone)| !(of(&gone.removed) || of(&gone.members)) || (is_gone && gone.quiet))
}

/// Creates configured keyspaces that do not exist yet, with all their partitions, which are empty,
/// when every node is live.
fn found_keyspaces(situation: &Situation<'_>) -> Option<State> {
    let Situation { config, state, .. } = *situation;
    let nodes = state.ring().len();
    // A keyspace that needs more nodes than the cluster has for data waits for them.
    let new: Vec<_> = state.unfounded(config).filter(|spec| spec.replicas <= nodes).collect();
    if new.is_empty() {
        return None;
    }
    let mut next = state.clone();
    next.version += 1;
    for spec in new {
        found(situation, &mut next, spec).ok()?;
    }
    Some(next)
}

/// Creates a keyspace with all its partitions, which are empty.
///
/// # Errors
/// The nodes of the ring that are not live.
pub(crate) fn found(
    situation: &Situation<'_>,
    next: &mut State,
    spec: &KeyspaceSpec,
) -> Result<(), Vec<NodeId>> {
    let ring = next.ring();
    let live = |node: &NodeId| situation.observations.membership.live(*node).map(|process| (*node, process));
    let processes: BTreeMap<_, _> = ring.iter().filter_map(live).collect();
    if processes.len() < ring.len() {
        return Err(ring.into_iter().filter(|node| !processes.contains_key(node)).collect());
    }
    let sets = replica_sets(&ring, spec);
    if spec.chunks.is_some() && next.chunks.is_none() {
        next.chunks = Some(ChunkGroups::form(&ring));
    }
    next.keyspaces.push(spec.clone());
    for (range, originals) in spec.ranges().zip(sets) {
        next.add(epochs::first(spec.id, range, originals, |node| processes[&node]));
    }
    Ok(())
}
