//! Which trunks are in use, and which are not because something is wrong.
//!
//! ```text
//!   a switch says that a port is dead ─┐
//!   a switch is not heard for a while ─┴▶ the routes that are wanted ─▶ closed first, opened when no circle can be ─▶ tables of each switch
//! ```
//!
//! A silent switch may go on forwarding by the tables that it has; the trunks to it are closed at their other ends, but for one: nothing passes it, and what
//! hangs there is reached if it works. It is passed again when it has acknowledged tables.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use nicekv_switch::{Failed, Link, Passage, Routes, TableSet, Topology};

use crate::config::{Config, NodeConfig};
use crate::status::{TrunkState, TrunkStatus};

/// A switch whose connection is lost is silent after that, if it does not come back.
const LOST_NS: u64 = 50_000_000;
/// One that has not been heard by this leader at all.
const UNHEARD_NS: u64 = 1_000_000_000;

/// Whether a switch is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Presence {
    /// Nothing is known yet.
    #[default]
    Unheard,
    /// It is, or was a moment ago.
    Heard,
    /// Nothing passes it, until it has acknowledged tables.
    Silent,
}

#[derive(Clone, Debug, Default)]
struct Watched {
    presence: Presence,
    /// Since when it is not connected.
    away_since_ns: Option<u64>,
    connected: bool,
    /// Ports that it says are dead.
    down: BTreeSet<u16>,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Fabric {
    topology: Topology,
    switches: BTreeMap<u16, Watched>,
    failed: Failed,
    wanted: Routes,
    passage: Passage,
}

impl Fabric {
    pub(crate) fn new(topology: Topology, switches: impl Iterator<Item = u16>) -> Self {
        let wanted = Routes::all(&topology);
        Self {
            topology,
            switches: switches.map(|switch| (switch, Watched::default())).collect(),
            failed: Failed::default(),
            passage: Passage::from(wanted.clone()),
            wanted,
        }
    }

    /// Nodes that have come since hang where they say.
    pub(crate) fn settle(&mut self, nodes: &[NodeConfig]) {
        self.topology = Config::settled(&self.topology, nodes);
    }

    pub(crate) fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The routes that switches are told.
    pub(crate) fn routes(&self) -> &Routes {
        self.passage.routes()
    }

    /// The tables of one switch.
    pub(crate) fn place(&self, switch: u16, tables: &TableSet) -> TableSet {
        self.topology.place(self.passage.routes(), switch, tables.clone())
    }

    /// The trunks of a switch.
    pub(crate) fn trunks(&self, switch: u16) -> Vec<TrunkStatus> {
        let state = |link| match () {
            () if self.failed.links.contains(&link) => TrunkState::Dead,
            () if self.routes().has(link) => TrunkState::Open,
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

    /// A switch has acknowledged tables.
    pub(crate) fn acknowledged(&mut self, switch: u16, generation: u64) {
        self.passage.acknowledged(switch, generation);
        if let Some(watched) = self.switches.get_mut(&switch) {
            watched.presence = Presence::Heard;
        }
    }

    /// A switch has said which of its ports are dead.
    pub(crate) fn ports_down(&mut self, switch: u16, down: impl IntoIterator<Item = u16>) {
        if let Some(watched) = self.switches.get_mut(&switch) {
            watched.down = down.into_iter().collect();
        }
    }

    /// Looks at what is wrong now. Whether switches have to be told other routes than before; these are then of `generation`.
    pub(crate) fn reroute(&mut self, now_ns: u64, generation: u64) -> bool {
        if !self.topology.has_trunks() {
            return false;
        }
        self.notice_silence(now_ns);
        let is_silent = |watched: &Watched| watched.presence == Presence::Silent;
        let silent = self.switches.iter().filter(|(_, watched)| is_silent(watched));
        let silent = silent.map(|(switch, _)| *switch).collect();
        let links = self.topology.links().filter(|link| self.is_dead(*link)).collect();
        let failed = Failed { links, silent };
        if failed != self.failed {
            self.wanted = Routes::around(&self.topology, &failed);
            self.failed = failed;
        }
        self.passage.towards(&self.wanted, generation)
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
            let patience_ns = if watched.presence == Presence::Unheard { UNHEARD_NS } else { LOST_NS };
            if now_ns >= since_ns + patience_ns {
                watched.presence = Presence::Silent;
            }
        }
    }
}
