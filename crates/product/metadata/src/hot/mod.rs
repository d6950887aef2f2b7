//! Hot keys (KVSwitch §4.1): which keys have an entry in which switch, and which nodes hold copies
//! of them.
//!
//! ```text
//!   switch ──Hot: counts, candidates, loads──▶ counts ─▶ hotkeys::plan ─▶ wanted ─▶ table ──ChangeHot──▶ switch
//!                                                                                    │ acknowledged
//!                                                                                    └──HotAssign──▶ owners
//! ```
//!
//! Once in a period each switch is read, and a plan is made for the nodes attached to it. A key's
//! entry is in the switch of its owner, the primary of its partition; all traffic of that owner
//! crosses that switch (H8). A key with more than T requests gets copies at some of these nodes,
//! except members of its partition, which hold it anyway. The keys with the most requests also get
//! a copy in the switch itself (H9). Only differences are installed; a changed entry is a new
//! instance.
//!
//! **All of this only affects routing.** Whether a copy may answer is decided by the owner, the
//! holders and the stamps of a switch (H3, H4, H6). So nothing here is persisted or waits for an
//! acknowledgement: a new leader clears the entries and counts anew, and its instances are greater
//! than those of all earlier terms.
//!
//! Without a keyspace with `balancing=hot`, no switch is read and nothing is stored.

mod controller;
mod counts;
mod owners;
mod rack;
mod table;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::config::{Config, SwitchId};
pub(crate) use counts::Requests;
pub(crate) use rack::{Rack, Totals};
use table::Instances;

/// Why hot keys are not spread in a cluster in which every host has an edge switch.
const NO_COMMON_SWITCH: &str = "hot keys need a switch that all traffic of a key's owner crosses, but every host has its own edge switch";

/// The leader's state of hot keys.
#[derive(Clone, Debug)]
pub(crate) struct HotKeys {
    /// Keyspaces that spread their hot keys, ascending.
    pub(crate) keyspaces: Vec<u16>,
    instances: Instances,
    /// Seed of the hash functions: the time in nanoseconds when this leader began, so that nobody
    /// can predict which keys collide.
    seed: u64,
    /// The state of each switch; empty if no keyspace spreads its hot keys.
    pub(crate) racks: BTreeMap<SwitchId, Rack>,
}

impl HotKeys {
    pub(crate) fn new(term: u64, now_ns: u64) -> Self {
        let instances = Instances::of_term(term);
        Self { keyspaces: Vec::new(), instances, seed: now_ns, racks: BTreeMap::new() }
    }

    /// Why hot keys cannot be spread in this cluster; `None` if they can.
    pub(crate) fn why_off(config: &Config) -> Option<&'static str> {
        let is_of_edges = config.switches.len() > 1 && !config.topology.has_trunks();
        is_of_edges.then_some(NO_COMMON_SWITCH)
    }

    pub(crate) fn handle_connected(&mut self, switch: SwitchId) {
        if let Some(rack) = self.racks.get_mut(&switch) {
            rack.handle_connected();
        }
    }

    pub(crate) fn handle_disconnected(&mut self, switch: SwitchId) {
        if let Some(rack) = self.racks.get_mut(&switch) {
            rack.handle_disconnected();
        }
    }
}
