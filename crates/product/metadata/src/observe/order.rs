//! The order in which switches get new tables, if they are connected by trunks.
//!
//! A change of a record's hosts between two generations changes the path of its requests. The
//! switch at the new end must get its tables first, then the switches with a trunk to it, and so
//! on: upwards from the new end, then down to the old end. Otherwise a switch might send a request
//! to one that would send it back, which is not allowed. Entries that are no longer used are
//! removed from the top down.
//!
//! ```text
//!   the tail moves from node-0 (ToR 4) to node-1 (ToR 5):   ToR 5 ─▶ AGG ─▶ Core ─▶ AGG ─▶ ToR 4
//! ```
//!
//! The order is only an optimisation: what a node accepts depends on the epoch alone (C5, C7), and
//! clients retry. So a switch that does not answer delays the others only for a short time
//! ([`TIMEOUT_NS`]).

use alloc::collections::{BTreeMap, BTreeSet};

use nicekv_switch::{Action, HostId, Match, SpanningTree, Table, TableSet, Topology};

/// Timeout for the switches of each rank.
pub(crate) const TIMEOUT_NS: u64 = 20_000_000;

/// The rank of each switch; lower ranks come first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order {
    ranks: BTreeMap<u16, u32>,
    /// When the first switch was sent its tables.
    begun_ns: Option<u64>,
}

impl Order {
    /// The order for the change from one generation to the next.
    pub(crate) fn between(topology: &Topology, tree: &SpanningTree, old: &TableSet, new: &TableSet) -> Self {
        if !topology.has_trunks() {
            return Self::default();
        }
        let (before, after) = (receivers(topology, old), receivers(topology, new));
        let more = |these: &Receivers, those: &Receivers| -> BTreeSet<u16> {
            let more = |(key, homes): (&Key, &BTreeSet<u16>)| {
                let known = those.get(key).cloned().unwrap_or_default();
                homes.difference(&known).copied().collect::<BTreeSet<_>>()
            };
            these.iter().flat_map(more).collect()
        };
        let (gaining, losing) = (more(&after, &before), more(&before, &after));
        let ranks = match gaining.is_empty() {
            false => tree.distances(gaining),
            true => {
                let distances = tree.distances(losing);
                let farthest = distances.values().copied().max().unwrap_or(0);
                distances.into_iter().map(|(switch, distance)| (switch, farthest - distance)).collect()
            }
        };
        Self { ranks, begun_ns: None }
    }

    fn rank(&self, switch: u16) -> u32 {
        self.ranks.get(&switch).copied().unwrap_or(0)
    }

    /// Whether a switch may get its tables now. `is_awaited`: whether a switch is live and has not
    /// acknowledged yet.
    pub(crate) fn is_due(&mut self, now_ns: u64, switch: u16, is_awaited: impl Fn(u16) -> bool) -> bool {
        let begun_ns = *self.begun_ns.get_or_insert(now_ns);
        let rank = self.rank(switch);
        let mut before = self.ranks.iter().filter(|(_, other)| **other < rank);
        now_ns >= begun_ns + u64::from(rank) * TIMEOUT_NS || !before.any(|(other, _)| is_awaited(*other))
    }
}

/// A table and match; the flag distinguishes the hosts of gets from those of puts.
type Key = (Table, Match, bool);
type Receivers = BTreeMap<Key, BTreeSet<u16>>;

/// For each entry, the switches to which its receivers are attached.
fn receivers(topology: &Topology, tables: &TableSet) -> Receivers {
    let homes = |hosts: &[HostId]| -> BTreeSet<u16> {
        hosts.iter().filter_map(|host| topology.home(*host)).collect()
    };
    let mut all = Receivers::new();
    for table in Table::ALL {
        for (matches, action) in tables.rules(table) {
            let (host, members): (Option<HostId>, &[HostId]) = match action {
                Action::Host { host, .. } => (Some(host), &[]),
                Action::Group(members) => (None, members.as_slice()),
                Action::Record { host, members } => (Some(host), members.as_slice()),
            };
            all.extend(host.map(|host| ((table, matches, false), homes(&[host]))));
            if !members.is_empty() {
                all.insert((table, matches, true), homes(members));
            }
        }
    }
    all
}
