//! In which order switches get new tables, where trunks join them.
//!
//! What a record's requests change between two generations is the way that they take. The switch where they are to arrive has to know that first, then those
//! from which a trunk leads there, and so on: below before above, and down again to the switch that they arrived at before. Then no switch sends a
//! request to one that would send it back, which it may not. What nobody receives any more is forgotten from above.
//!
//! ```text
//!   the tail moves from node-0 (ToR 4) to node-1 (ToR 5):   ToR 5 ─▶ AGG ─▶ Core ─▶ AGG ─▶ ToR 4
//! ```
//!
//! It is an order of convenience: what a node takes in follows from the epoch alone (C5, C7), and a client asks again. So nobody waits long for a switch that does not
//! answer ([`PATIENCE_NS`]).

use alloc::collections::{BTreeMap, BTreeSet};

use nicekv_switch::{Action, HostId, Match, Routes, Table, TableSet, Topology};

/// For the switches of each rank.
pub(crate) const PATIENCE_NS: u64 = 20_000_000;

/// The ranks of switches: those of a lower one are first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order {
    ranks: BTreeMap<u16, u32>,
    /// When the first was told.
    begun_ns: Option<u64>,
}

impl Order {
    /// From one generation to the next.
    pub(crate) fn between(topology: &Topology, routes: &Routes, old: &TableSet, new: &TableSet) -> Self {
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
            false => routes.distances(gaining),
            true => {
                let distances = routes.distances(losing);
                let farthest = distances.values().copied().max().unwrap_or(0);
                distances.into_iter().map(|(switch, distance)| (switch, farthest - distance)).collect()
            }
        };
        Self { ranks, begun_ns: None }
    }

    fn rank(&self, switch: u16) -> u32 {
        self.ranks.get(&switch).copied().unwrap_or(0)
    }

    /// Whether a switch has its turn. `is_awaited`: of a switch that is there and has not acknowledged.
    pub(crate) fn is_due(&mut self, now_ns: u64, switch: u16, is_awaited: impl Fn(u16) -> bool) -> bool {
        let begun_ns = *self.begun_ns.get_or_insert(now_ns);
        let rank = self.rank(switch);
        let mut before = self.ranks.iter().filter(|(_, other)| **other < rank);
        now_ns >= begun_ns + u64::from(rank) * PATIENCE_NS || !before.any(|(other, _)| is_awaited(*other))
    }
}

/// Of what an entry matches those that are asked, and those that are told.
type Key = (Table, Match, bool);
type Receivers = BTreeMap<Key, BTreeSet<u16>>;

/// The switches where the receivers of each entry hang.
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
