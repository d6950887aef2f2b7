//! Divisions by load: R - 1 prefixes of client addresses, chosen one after the other. Each prefix
//! has a load as near as possible to an equal share of the load that is left.
//!
//! The load of a prefix excludes the sources that earlier prefixes have taken. So a later, shorter
//! prefix may enclose an earlier, longer one; in the switch, too, the longest prefix wins. Among
//! prefixes with the same load the shortest is chosen, because it also covers sources that are not
//! known yet.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use nicekv_proto::{NodeId, PartitionId};
use nicekv_switch::Prefix;

use crate::observe::Load;
use crate::state::{Division, Divisions};

/// Number of gets that the busiest member answers. `None`: no member answers gets.
pub(super) fn busiest(divisions: &Divisions, load: &Load) -> Option<u64> {
    let primary = *divisions.among.first()?;
    let mut answered = BTreeMap::from([(primary, load.outside)]);
    for (address, gets) in &load.inside {
        *answered.entry(divisions.holder(primary, *address)).or_default() += gets;
    }
    answered.into_values().max()
}

/// Divides the load among these members, the primary first. As far as possible, every prefix goes
/// to the member that had most of it before.
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
        // Among pairs with the same load, the first one is taken.
        let best = pairs.rev().max_by_key(|(part, node)| parts[*part].had_by(free[*node], before, load));
        let (part, node) = best.expect("there are no more parts than members");
        divisions.push(Division { source: parts.remove(part).source, node: free.remove(node) });
    }
    divisions.sort_by_key(|division| division.source);
    divisions
}

/// A prefix, and the indexes of its sources that no earlier prefix has taken.
struct Part {
    source: Prefix,
    taken: Vec<usize>,
}

impl Part {
    /// The part of its load that the member answered before.
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
            // Sources outside of the divided addresses already give the primary its share.
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

/// The shortest prefix whose load is nearest to `share`. Prefixes without load are not considered.
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
