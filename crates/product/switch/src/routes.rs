//! Which trunks are in use: of a graph of switches a tree, computed alike by whoever computes it.
//!
//! ```text
//!   Core      0     1          0     1     Breadth first from the lowest number. Of the switches above, the one
//!             │╲ ╱ │           │╲   ╱      that has the fewest below it so far is the way up, then the lowest.
//!   AGG       │ ╳  │    ─▶     │ ╲ ╱       Where something is wrong, others keep the way up that they have when
//!             2   3            2   3       nothing is. A switch that is silent is at most the end of a way:
//!             ║ ╳ ║            ╱ ╲ ╱ ╲
//!   ToR     4 5 6 7           4 6 5 7      whether it forwards nobody knows.
//! ```
//!
//! **No circles, ever.** A trunk carries frames only if both of its ends have it open, and trunks that both ends may have open never form a circle:
//! before a trunk is opened, each one that would close a circle with it has been acknowledged as closed, by one end ([`Passage`]).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::topology::{Link, Topology};

/// The trunks in use. They form no circle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes {
    open: BTreeSet<Link>,
}

/// What is wrong between switches, as far as that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failed {
    /// Trunks that carry nothing.
    pub links: BTreeSet<Link>,
    /// Switches that are not heard.
    pub silent: BTreeSet<u16>,
}

impl Routes {
    /// Where nothing is wrong.
    pub fn all(topology: &Topology) -> Self {
        Self::grown(topology, &Failed::default(), &Self::default())
    }

    /// The trunks to use where this is wrong. A part to which nothing leads has a tree of its own.
    pub fn around(topology: &Topology, failed: &Failed) -> Self {
        Self::grown(topology, failed, &Self::all(topology))
    }

    /// `kept`: trunks that are taken before others of the same length.
    fn grown(topology: &Topology, failed: &Failed, kept: &Self) -> Self {
        let mut open = BTreeSet::new();
        let mut joined = BTreeSet::new();
        let usable = |link: Link| !failed.links.contains(&link);
        let switches: BTreeSet<u16> = topology.links().flat_map(|link| [link.one, link.other]).collect();
        let (silent, heard): (Vec<u16>, Vec<u16>) =
            switches.iter().copied().partition(|switch| failed.silent.contains(switch));
        for &root in &heard {
            if !joined.insert(root) {
                continue;
            }
            let mut level = Vec::from([root]);
            while !level.is_empty() {
                let below = below(topology, kept, &level, |link, switch| {
                    usable(link) && !joined.contains(&switch) && !failed.silent.contains(&switch)
                });
                open.extend(below.iter().map(|(switch, above)| Link::between(*switch, *above)));
                joined.extend(below.keys().copied());
                level = below.into_keys().collect();
            }
        }
        // Silent ones hang at the lowest neighbour that is heard.
        for switch in silent {
            let mut neighbours = topology.neighbours(switch).map(|(neighbour, _)| neighbour);
            let way = neighbours.find(|neighbour| {
                !failed.silent.contains(neighbour) && usable(Link::between(switch, *neighbour))
            });
            open.extend(way.map(|neighbour| Link::between(switch, neighbour)));
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

    /// The ports of a switch where trunks are that are in use, ascending.
    pub fn open_at(&self, topology: &Topology, switch: u16) -> Vec<u16> {
        let of = topology.neighbours(switch);
        let of = of.filter(|(neighbour, _)| self.has(Link::between(switch, *neighbour)));
        let mut ports: Vec<u16> = of.map(|(_, port)| port).collect();
        ports.sort_unstable();
        ports
    }

    /// By which port of a switch each other one is reached. Where no trunk in use leads there, the port of a closed one, at which everything ends.
    pub(crate) fn ways(&self, topology: &Topology, switch: u16) -> BTreeMap<u16, u16> {
        let mut ways = found(topology, switch, |link| self.has(link));
        for (other, port) in found(topology, switch, |_| true) {
            ways.entry(other).or_insert(port);
        }
        ways
    }

    /// Trunks between each switch and `from`, where there is a way.
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

/// The switches below a level, and above each the neighbour that it hangs at.
fn below(
    topology: &Topology,
    kept: &Routes,
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
    let way_kept = |switch: u16, above: &[u16]| {
        above.iter().copied().find(|above| kept.has(Link::between(switch, *above)))
    };
    let (those_that_keep, others): (Vec<_>, Vec<_>) =
        candidates.into_iter().partition(|(switch, above)| way_kept(*switch, above).is_some());
    for (switch, above) in those_that_keep.into_iter().chain(others) {
        let lightest = above.iter().copied();
        let lightest = lightest.min_by_key(|above| (load.get(above).copied().unwrap_or(0), *above));
        let above = way_kept(switch, &above).or(lightest).expect("found below somebody");
        *load.entry(above).or_default() += 1;
        chosen.insert(switch, above);
    }
    chosen
}

fn found(topology: &Topology, switch: u16, may_pass: impl Fn(Link) -> bool) -> BTreeMap<u16, u16> {
    let mut ways = BTreeMap::new();
    let mut next: Vec<(u16, Option<u16>)> = [(switch, None)].into();
    while let Some((at, way)) = next.pop() {
        for (neighbour, port) in topology.neighbours(at) {
            if neighbour != switch && !ways.contains_key(&neighbour) && may_pass(Link::between(at, neighbour))
            {
                let way = way.unwrap_or(port);
                ways.insert(neighbour, way);
                next.push((neighbour, Some(way)));
            }
        }
    }
    ways
}

/// The way from the routes in force to others, without a circle in between: trunks are closed first, and opened when nothing that would
/// close a circle with them can be open any more.
#[derive(Clone, Debug, Default)]
pub struct Passage {
    /// What switches are told to have open.
    routes: Routes,
    /// Closed by what switches are told, and still open for all that is known: until one end has acknowledged this generation.
    closing: BTreeMap<Link, u64>,
}

impl Passage {
    /// From the routes that everybody begins with.
    pub fn from(routes: Routes) -> Self {
        Self { routes, closing: BTreeMap::new() }
    }

    /// What switches are to be told.
    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// A switch goes by this generation, or a newer one.
    pub fn acknowledged(&mut self, switch: u16, generation: u64) {
        self.closing.retain(|link, closed_by| !(link.is_of(switch) && generation >= *closed_by));
    }

    /// Goes on towards `wanted`; whether switches have to be told something else than before, which is then of `generation`.
    pub fn towards(&mut self, wanted: &Routes, generation: u64) -> bool {
        let closed: Vec<Link> = self.routes.links().filter(|link| !wanted.has(*link)).collect();
        for link in &closed {
            self.routes.open.remove(link);
            self.closing.insert(*link, generation);
        }
        let mut may_be_open: BTreeSet<Link> =
            self.routes.links().chain(self.closing.keys().copied()).collect();
        let mut opened = false;
        for link in wanted.links().filter(|link| !self.routes.has(*link)).collect::<Vec<_>>() {
            // One that was being closed is opened again.
            let others: BTreeSet<Link> = may_be_open.iter().copied().filter(|other| *other != link).collect();
            if !leads(&others, link.one, link.other) {
                self.closing.remove(&link);
                self.routes.open.insert(link);
                may_be_open.insert(link);
                opened = true;
            }
        }
        opened || !closed.is_empty()
    }
}

fn leads(links: &BTreeSet<Link>, from: u16, to: u16) -> bool {
    Routes { open: links.clone() }.distances([from]).contains_key(&to)
}

#[cfg(test)]
mod tests;
