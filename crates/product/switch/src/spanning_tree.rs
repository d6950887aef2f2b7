//! The spanning tree of trunks in use, computed from the graph of switches. The result depends only
//! on the graph and on the known failures.
//!
//! ```text
//!   core      0     1          0     1     Breadth first from the lowest number. A switch joins the parent that has the
//!             │╲ ╱ │           │╲   ╱      fewest children so far, then the one with the lowest number.
//!   agg       │ ╳  │    ─▶     │ ╲ ╱       After a failure, other switches keep the parent that they have in the full
//!             2   3            2   3       tree. A silent switch is at most a leaf, because it may not be
//!             ║ ╳ ║            ╱ ╲ ╱ ╲     forwarding.
//!   tor     4 5 6 7           4 6 5 7
//! ```
//!
//! **No loops, ever.** A trunk carries frames only if both of its ends have opened it, and the
//! trunks that both ends may have open never form a loop: before a trunk is opened, one end of each
//! trunk that would close a loop with it has acknowledged that it is closed ([`TreeTransition`]).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::topology::{Link, Topology};

/// The trunks in use. They form no loop.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpanningTree {
    open: BTreeSet<Link>,
}

/// Known failures between switches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrunkFailures {
    /// Trunks that carry no frames.
    pub links: BTreeSet<Link>,
    /// Switches that do not respond.
    pub silent: BTreeSet<u16>,
}

impl SpanningTree {
    /// The tree without failures.
    pub fn full(topology: &Topology) -> Self {
        Self::grown(topology, &TrunkFailures::default(), &Self::default())
    }

    /// The tree around failures. A part that is cut off has a tree of its own.
    pub fn around(topology: &Topology, failed: &TrunkFailures) -> Self {
        Self::grown(topology, failed, &Self::full(topology))
    }

    /// `kept`: trunks that are preferred among paths of the same length.
    fn grown(topology: &Topology, failed: &TrunkFailures, kept: &Self) -> Self {
        let mut open = BTreeSet::new();
        let mut joined = BTreeSet::new();
        let usable = |link: Link| !failed.links.contains(&link);
        let switches: BTreeSet<u16> = topology.links().flat_map(|link| [link.one, link.other]).collect();
        let (silent, live): (Vec<u16>, Vec<u16>) =
            switches.iter().copied().partition(|switch| failed.silent.contains(switch));
        for &root in &live {
            if !joined.insert(root) {
                continue;
            }
            let mut level = Vec::from([root]);
            while !level.is_empty() {
                let below = children_of(topology, kept, &level, |link, switch| {
                    usable(link) && !joined.contains(&switch) && !failed.silent.contains(&switch)
                });
                open.extend(below.iter().map(|(switch, above)| Link::between(*switch, *above)));
                joined.extend(below.keys().copied());
                level = below.into_keys().collect();
            }
        }
        // A silent switch becomes a leaf below its lowest-numbered live neighbour.
        for switch in silent {
            let mut neighbours = topology.neighbours(switch).map(|(neighbour, _)| neighbour);
            let parent = neighbours.find(|neighbour| {
                !failed.silent.contains(neighbour) && usable(Link::between(switch, *neighbour))
            });
            open.extend(parent.map(|neighbour| Link::between(switch, neighbour)));
        }
        Self { open }
    }

    /// The trunks, ascending.
    pub fn links(&self) -> impl Iterator<Item = Link> {
        self.open.iter().copied()
    }

    /// Whether a trunk is in use.
    pub fn has(&self, link: Link) -> bool {
        self.open.contains(&link)
    }

    /// The ports of a switch whose trunks are in use, ascending.
    pub fn open_at(&self, topology: &Topology, switch: u16) -> Vec<u16> {
        let neighbours = topology.neighbours(switch);
        let open = neighbours.filter(|(neighbour, _)| self.has(Link::between(switch, *neighbour)));
        let mut ports: Vec<u16> = open.map(|(_, port)| port).collect();
        ports.sort_unstable();
        ports
    }

    /// The port by which a switch reaches each other switch. If no trunk in use leads there, it is
    /// the port of a closed trunk, which drops all frames.
    pub(crate) fn ports_to(&self, topology: &Topology, switch: u16) -> BTreeMap<u16, u16> {
        let mut ports = ports_from(topology, switch, |link| self.has(link));
        for (other, port) in ports_from(topology, switch, |_| true) {
            ports.entry(other).or_insert(port);
        }
        ports
    }

    /// For each switch that is connected to one of `from`, the number of trunks between them.
    pub fn distances(&self, from: impl IntoIterator<Item = u16>) -> BTreeMap<u16, u32> {
        let mut distances: BTreeMap<u16, u32> = from.into_iter().map(|switch| (switch, 0)).collect();
        let mut level: Vec<u16> = distances.keys().copied().collect();
        let mut distance = 0;
        while !level.is_empty() {
            distance += 1;
            let mut next = Vec::new();
            for link in &self.open {
                for (near, far) in [(link.one, link.other), (link.other, link.one)] {
                    if level.contains(&near) && !distances.contains_key(&far) {
                        distances.insert(far, distance);
                        next.push(far);
                    }
                }
            }
            level = next;
        }
        distances
    }
}

/// The switches that join the tree one level below `level`, each with its parent.
fn children_of(
    topology: &Topology,
    kept: &SpanningTree,
    level: &[u16],
    may_join: impl Fn(Link, u16) -> bool,
) -> BTreeMap<u16, u16> {
    let mut candidates: BTreeMap<u16, Vec<u16>> = BTreeMap::new();
    for &above in level {
        for (switch, _) in topology.neighbours(above) {
            if may_join(Link::between(above, switch), switch) {
                candidates.entry(switch).or_default().push(above);
            }
        }
    }
    let mut load: BTreeMap<u16, usize> = BTreeMap::new();
    let mut chosen = BTreeMap::new();
    let kept_parent = |switch: u16, above: &[u16]| {
        above.iter().copied().find(|above| kept.has(Link::between(switch, *above)))
    };
    let (with_kept_parent, others): (Vec<_>, Vec<_>) =
        candidates.into_iter().partition(|(switch, above)| kept_parent(*switch, above).is_some());
    for (switch, above) in with_kept_parent.into_iter().chain(others) {
        let lightest = above.iter().copied();
        let lightest = lightest.min_by_key(|above| (load.get(above).copied().unwrap_or(0), *above));
        let above = kept_parent(switch, &above).or(lightest).expect("a candidate has a parent");
        *load.entry(above).or_default() += 1;
        chosen.insert(switch, above);
    }
    chosen
}

/// The port by which `switch` reaches each other switch, over links for which `may_pass` is true.
fn ports_from(topology: &Topology, switch: u16, may_pass: impl Fn(Link) -> bool) -> BTreeMap<u16, u16> {
    let mut ports = BTreeMap::new();
    let mut next: Vec<(u16, Option<u16>)> = [(switch, None)].into();
    while let Some((at, first_port)) = next.pop() {
        for (neighbour, port) in topology.neighbours(at) {
            if neighbour != switch
                && !ports.contains_key(&neighbour)
                && may_pass(Link::between(at, neighbour))
            {
                let first_port = first_port.unwrap_or(port);
                ports.insert(neighbour, first_port);
                next.push((neighbour, Some(first_port)));
            }
        }
    }
    ports
}

/// A transition from the tree in use to another one, without a loop at any time: trunks are closed
/// first, and a trunk is opened only when no trunk that would close a loop with it can still be
/// open.
#[derive(Clone, Debug, Default)]
pub struct TreeTransition {
    /// The trunks that switches are instructed to open.
    tree: SpanningTree,
    /// Trunks that switches are instructed to close and may still have open. A trunk is removed
    /// from here when one end has acknowledged this generation.
    closing: BTreeMap<Link, u64>,
}

impl TreeTransition {
    /// Starts from a tree that all switches have already installed.
    pub fn from(tree: SpanningTree) -> Self {
        Self { tree, closing: BTreeMap::new() }
    }

    /// The tree that switches should use now.
    pub fn tree(&self) -> &SpanningTree {
        &self.tree
    }

    /// Records that a switch has acknowledged this generation or a newer one.
    pub fn acknowledged(&mut self, switch: u16, generation: u64) {
        self.closing.retain(|link, closed_by| !(link.is_of(switch) && generation >= *closed_by));
    }

    /// Takes the next step towards `wanted`. Returns whether the tree has changed; switches then
    /// learn of the change with `generation`.
    pub fn towards(&mut self, wanted: &SpanningTree, generation: u64) -> bool {
        let closed: Vec<Link> = self.tree.links().filter(|link| !wanted.has(*link)).collect();
        for link in &closed {
            self.tree.open.remove(link);
            self.closing.insert(*link, generation);
        }
        let mut may_be_open: BTreeSet<Link> = self.tree.links().chain(self.closing.keys().copied()).collect();
        let mut opened = false;
        for link in wanted.links().filter(|link| !self.tree.has(*link)).collect::<Vec<_>>() {
            // The trunk itself may still be closing; then it is simply opened again.
            let others: BTreeSet<Link> = may_be_open.iter().copied().filter(|other| *other != link).collect();
            if !is_connected(&others, link.one, link.other) {
                self.closing.remove(&link);
                self.tree.open.insert(link);
                may_be_open.insert(link);
                opened = true;
            }
        }
        opened || !closed.is_empty()
    }
}

fn is_connected(links: &BTreeSet<Link>, from: u16, to: u16) -> bool {
    SpanningTree { open: links.clone() }.distances([from]).contains_key(&to)
}

#[cfg(test)]
mod tests;
