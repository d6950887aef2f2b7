//! Divisions by what sources ask: R - 1 prefixes, chosen one after the other, each with a load as near as possible to an equal share of what is
//! left.
//!
//! What a prefix has is what no prefix before it has taken, so that a later, shorter one may lie around an earlier, longer one: the longest
//! prefix wins in the switch, too. Of prefixes with the same load the shortest is taken: with it comes who is not known yet.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use nicekv_proto::{NodeId, PartitionId};
use nicekv_switch::Prefix;

use crate::observe::Load;
use crate::state::{Division, Divisions};

/// What the busiest member answers. None: nobody answers.
pub(super) fn busiest(divisions: &Divisions, load: &Load) -> Option<u64> {
    let primary = *divisions.among.first()?;
    let mut answered = BTreeMap::from([(primary, load.outside)]);
    for (address, gets) in &load.inside {
        *answered.entry(divisions.holder(primary, *address)).or_default() += gets;
    }
    answered.into_values().max()
}

/// Divides among these, the primary first; every prefix goes to whom most of it was before, as far as that can be.
pub(super) fn divide(
    id: PartitionId,
    clients: Prefix,
    among: &[NodeId],
    before: &Divisions,
    load: &Load,
) -> Vec<Division> {
    let mut parts = choose(clients, among.len().saturating_sub(1), load);
    let mut free: Vec<NodeId> = among.iter().skip(1).copied().collect();
    if !free.is_empty() {
        let turn = id.position() % free.len();
        free.rotate_left(turn);
    }
    let mut divisions = Vec::with_capacity(parts.len());
    while !parts.is_empty() {
        let pairs = (0..parts.len()).flat_map(|part| (0..free.len()).map(move |node| (part, node)));
        // The first of those that had as much.
        let best = pairs.rev().max_by_key(|(part, node)| parts[*part].had_by(free[*node], before, load));
        let (part, node) = best.expect("there are no more parts than members");
        divisions.push(Division { source: parts.remove(part).source, node: free.remove(node) });
    }
    divisions.sort_by_key(|division| division.source);
    divisions
}

/// A prefix and what it has that no prefix before it has taken.
struct Part {
    source: Prefix,
    taken: Vec<usize>,
}

impl Part {
    /// How much of it was a member's before.
    fn had_by(&self, node: NodeId, before: &Divisions, load: &Load) -> u64 {
        let Some(&primary) = before.among.first() else { return 0 };
        let taken = self.taken.iter().map(|index| load.inside[*index]);
        taken.filter(|(address, _)| before.holder(primary, *address) == node).map(|(_, gets)| gets).sum()
    }
}

fn choose(clients: Prefix, count: usize, load: &Load) -> Vec<Part> {
    let mut left: Vec<u64> = load.inside.iter().map(|(_, gets)| *gets).collect();
    let mut parts = Vec::with_capacity(count);
    for remaining in (1..=count as u64).rev() {
        let inside: u64 = left.iter().sum();
        let share = match load.outside * remaining >= inside {
            // The primary has its share already.
            true => inside / remaining,
            false => (inside + load.outside) / (remaining + 1),
        };
        let Some(source) = nearest(clients, share, load, &left) else { break };
        let covered = load.inside.iter().enumerate().filter(|(_, (address, _))| covers(source, *address));
        let taken: Vec<usize> = covered.map(|(index, _)| index).filter(|index| left[*index] > 0).collect();
        taken.iter().for_each(|index| left[*index] = 0);
        parts.push(Part { source, taken });
    }
    parts
}

/// The shortest prefix whose load is nearest to `share`, of those that have any.
fn nearest(clients: Prefix, share: u64, load: &Load, left: &[u64]) -> Option<Prefix> {
    let mut sums = vec![0; left.len() + 1];
    for (index, gets) in left.iter().enumerate() {
        sums[index + 1] = sums[index] + gets;
    }
    let below = |address: u64| load.inside.partition_point(|(known, _)| u64::from(*known) < address);
    let mut best: Option<(u64, Prefix)> = None;
    for length in clients.length..=32 {
        for (address, _) in &load.inside {
            let source = prefix_of(*address, length);
            let (first, end) = (below(source.first().into()), below(u64::from(source.last()) + 1));
            let gets = sums[end] - sums[first];
            let distance = gets.abs_diff(share);
            if gets > 0 && best.is_none_or(|(least, _)| distance < least) {
                best = Some((distance, source));
            }
        }
    }
    best.map(|(_, source)| source)
}

fn covers(source: Prefix, address: u32) -> bool {
    source.contains(address.to_be_bytes())
}

fn prefix_of(address: u32, length: u8) -> Prefix {
    let mask = Prefix::new([0; 4], length).mask();
    Prefix::new((address & mask).to_be_bytes(), length)
}
