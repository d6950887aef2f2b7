//! The fabric of switches: which trunks are in use, and which trunks and switches have failed.
//!
//! ```text
//!   a switch reports a dead port ──────┐
//!   a switch is not connected for long ┴▶ wanted tree ─▶ trunks are closed, then opened when no loop can form ─▶ tables of each switch
//! ```
//!
//! A silent switch may continue to forward by its old tables. The trunks to it are closed at their
//! other ends, except one. So it becomes a leaf, and nodes attached to it are still reached if it
//! works. It carries transit traffic again after it has acknowledged tables.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use nicekv_switch::{Link, SpanningTree, TableSet, Topology, TreeTransition, TrunkFailures};

use crate::config::{Config, NodeConfig};
use crate::status::{TrunkState, TrunkStatus};

/// A switch whose connection is lost counts as silent after this time.
const LOST_NS: u64 = 50_000_000;
/// A switch that has never connected to this leader counts as silent after this time.
const UNHEARD_NS: u64 = 1_000_000_000;

/// Whether a switch can be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Presence {
    /// Unknown: the switch has not connected to this leader yet.
    #[default]
    Unheard,
    /// Connected now, or until recently.
    Heard,
    /// Silent. The switch is a leaf until it has acknowledged tables.
    Silent,
}

#[derive(Clone, Debug, Default)]
struct Watched {
    presence: Presence,
    /// Since when the switch is not connected; `None` while it is.
    away_since_ns: Option<u64>,
    connected: bool,
    /// Ports that the switch reports as dead.
    down: BTreeSet<u16>,
}

/// The fabric, as this leader observes it.
#[derive(Clone, Debug)]
pub(crate) struct Fabric {
    topology: Topology,
    switches: BTreeMap<u16, Watched>,
    failed: TrunkFailures,
    wanted: SpanningTree,
    transition: TreeTransition,
}

impl Fabric {
    pub(crate) fn new(topology: Topology, switches: impl Iterator<Item = u16>) -> Self {
        let wanted = SpanningTree::full(&topology);
        Self {
            topology,
            switches: switches.map(|switch| (switch, Watched::default())).collect(),
            failed: TrunkFailures::default(),
            transition: TreeTransition::from(wanted.clone()),
            wanted,
        }
    }

    /// Sets the nodes. Their configuration says which switch they are attached to.
    pub(crate) fn settle(&mut self, nodes: &[NodeConfig]) {
        self.topology = Config::settled(&self.topology, nodes);
    }

    pub(crate) fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The tree that switches should use now.
    pub(crate) fn tree(&self) -> &SpanningTree {
        self.transition.tree()
    }

    /// The tables of one switch.
    pub(crate) fn place(&self, switch: u16, tables: &TableSet) -> TableSet {
        self.topology.place(self.transition.tree(), switch, tables.clone())
    }

    /// The trunks of a switch, for status.
    pub(crate) fn trunks(&self, switch: u16) -> Vec<TrunkStatus> {
        let state = |link| match () {
            () if self.failed.links.contains(&link) => TrunkState::Dead,
            () if self.tree().has(link) => TrunkState::Open,
            () => TrunkState::Closed,
        };
        let neighbours = self.topology.neighbours(switch);
        neighbours
            .map(|(to, _)| TrunkStatus { to, name: String::new(), state: state(Link::between(switch, to)) })
            .collect()
    }

    pub(crate) fn connected(&mut self, switch: u16) {
        if let Some(watched) = self.switches.get_mut(&switch) {
            (watched.connected, watched.away_since_ns) = (true, None);
        }
    }

    pub(crate) fn disconnected(&mut self, switch: u16) {
        if let Some(watched) = self.switches.get_mut(&switch) {
            watched.connected = false;
        }
    }

    /// Records that a switch has acknowledged tables.
    pub(crate) fn acknowledged(&mut self, switch: u16, generation: u64) {
        self.transition.acknowledged(switch, generation);
        if let Some(watched) = self.switches.get_mut(&switch) {
            watched.presence = Presence::Heard;
        }
    }

    /// Records the ports that a switch has reported as dead.
    pub(crate) fn ports_down(&mut self, switch: u16, down: impl IntoIterator<Item = u16>) {
        if let Some(watched) = self.switches.get_mut(&switch) {
            watched.down = down.into_iter().collect();
        }
    }

    /// Reacts to failures. Returns whether the tree has changed; switches then learn of the change
    /// with `generation`.
    pub(crate) fn reroute(&mut self, now_ns: u64, generation: u64) -> bool {
        if !self.topology.has_trunks() {
            return false;
        }
        self.notice_silence(now_ns);
        let is_silent = |watched: &Watched| watched.presence == Presence::Silent;
        let silent = self.switches.iter().filter(|(_, watched)| is_silent(watched));
        let silent = silent.map(|(switch, _)| *switch).collect();
        let links = self.topology.links().filter(|link| self.is_dead(*link)).collect();
        let failed = TrunkFailures { links, silent };
        if failed != self.failed {
            self.wanted = SpanningTree::around(&self.topology, &failed);
            self.failed = failed;
        }
        self.transition.towards(&self.wanted, generation)
    }

    fn is_dead(&self, link: Link) -> bool {
        let is_down = |switch: u16, neighbour: u16| {
            let port = self.topology.trunk(switch, neighbour);
            let watched = self.switches.get(&switch);
            port.is_some_and(|port| watched.is_some_and(|watched| watched.down.contains(&port)))
        };
        is_down(link.one, link.other) || is_down(link.other, link.one)
    }

    fn notice_silence(&mut self, now_ns: u64) {
        for watched in self.switches.values_mut().filter(|watched| !watched.connected) {
            let since_ns = *watched.away_since_ns.get_or_insert(now_ns);
            let timeout_ns = if watched.presence == Presence::Unheard { UNHEARD_NS } else { LOST_NS };
            if now_ns >= since_ns + timeout_ns {
                watched.presence = Presence::Silent;
            }
        }
    }
}
