//! Hot keys (KVSwitch §4.1): which keys have an entry in which switch, and who holds copies of them.
//!
//! ```text
//!   switch ──Hot: counts, candidates, loads──▶ counts ─▶ hotkeys::plan ─▶ wanted ─▶ table ──ChangeHot──▶ switch
//!                                                                                    │ acknowledged
//!                                                                                    └──HotAssign──▶ owners
//! ```
//!
//! Once in a period each switch is read and planned for, over the nodes that hang there: a key's entry is in the switch of its owner, the primary of its partition, which all
//! traffic of that crosses (H8). A key that is asked more than T is to have copies at some of these nodes, less the members of its partition, which hold it anyway, and the
//! most asked of them one in the switch itself (H9). Only differences are installed; an entry that is to be otherwise is a new instance.
//!
//! **All of this steers, and nothing else.** What may be read from a copy is between owner, holders and the stamps of a switch (H3, H4, H6), so nothing here is persisted, or
//! waits for an acknowledgement before it matters: a new leader clears what is there and counts anew, and its instances are above those of all terms before.
//!
//! Where no keyspace has `balancing=hot` nothing is asked, and nothing remembered.

mod counts;
mod owners;
mod rack;
mod table;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use nicekv_proto::NodeId;
use nicekv_proto::hot::HotAssign;
use nicekv_switch::Topology;
use nicekv_switch::control::{ControlReply, ControlRequest};

use crate::announce::Message;
use crate::config::{Config, SwitchId, host_id, nanoseconds};
use crate::leader::Metadata;
use crate::state::Wish;
pub(crate) use counts::Requests;
use owners::Owners;
use rack::{Announcement, Common};
pub(crate) use rack::{Rack, Totals};
use table::Instances;

/// Most announcements of a switch's entries at one tick: more would overrun the sockets of owners.
const ANNOUNCED_MAX: usize = 128;
/// Why hot keys of edges are not spread.
const NO_COMMON_SWITCH: &str =
    "hot keys need a switch that all traffic of a key's owner crosses, and every host has an edge of its own";

/// What a leader knows of hot keys.
#[derive(Clone, Debug)]
pub(crate) struct HotKeys {
    /// Those whose hot keys are spread, ascending.
    pub(crate) keyspaces: Vec<u16>,
    instances: Instances,
    /// Makes hash functions, so that nobody can tell which keys share a place: the moment at which this leader began, to the nanosecond.
    seed: u64,
    /// None where no keyspace has hot keys.
    pub(crate) racks: BTreeMap<SwitchId, Rack>,
}

impl HotKeys {
    pub(crate) fn new(term: u64, now_ns: u64) -> Self {
        let instances = Instances::of_term(term);
        Self { keyspaces: Vec::new(), instances, seed: now_ns, racks: BTreeMap::new() }
    }

    /// Why nothing is spread in such a cluster.
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

impl Metadata {
    fn hot_keyspaces(&self) -> Vec<u16> {
        let specs = self.committed.keyspaces.iter().filter(|spec| spec.is_hot());
        let mut keyspaces: Vec<u16> = specs.map(|spec| spec.id.0).collect();
        keyspaces.sort_unstable();
        keyspaces
    }

    /// Some time has passed: looks which keyspaces there are, and tells owners of hot keys what is to be told.
    pub(crate) fn tick_hot(&mut self) {
        self.hot.keyspaces = self.hot_keyspaces();
        if self.hot.keyspaces.is_empty() && self.hot.racks.is_empty() {
            return;
        }
        let settings = self.config.hot;
        if self.hot.keyspaces.is_empty() {
            self.hot.racks.values_mut().for_each(|rack| rack.retire(&settings));
            self.hot.racks.retain(|_, rack| !rack.is_retired());
        } else if HotKeys::why_off(&self.config).is_none() {
            let switches = &self.observations.switches;
            for switch in &self.config.switches {
                let rack = self.hot.racks.entry(*switch);
                rack.or_insert_with(|| {
                    let mut rack = Rack::new(&settings);
                    if switches.is_connected(*switch) {
                        rack.handle_connected();
                    }
                    rack
                });
            }
        }
        self.announce_hot();
    }

    fn announce_hot(&mut self) {
        let mut racks = core::mem::take(&mut self.hot.racks);
        let of_rack = |rack: &mut Rack| {
            core::iter::from_fn(|| rack.announcement()).take(ANNOUNCED_MAX).collect::<Vec<_>>()
        };
        let due: Vec<Announcement> = racks.values_mut().flat_map(of_rack).collect();
        self.hot.racks = racks;
        if due.is_empty() {
            return;
        }
        // Partings may be of keyspaces whose hot keys are not spread any more.
        let keyspaces: BTreeSet<u16> = due.iter().map(|one| one.key.keyspace.0).collect();
        let keyspaces: Vec<u16> = keyspaces.into_iter().collect();
        let owners = Owners::of(&self.committed, &keyspaces, self.config.balancing);
        let told: Vec<BTreeSet<NodeId>> = due.iter().map(|one| who_is_told(one, &owners)).collect();
        due.iter().zip(told).for_each(|(one, told)| self.announce_entry(one, told));
    }

    fn announce_entry(&mut self, announcement: &Announcement, told: BTreeSet<NodeId>) {
        let Announcement { key, instance, holders, in_switch, .. } = announcement;
        let address = |node: NodeId| self.config.node(node).map(|node| node.address);
        let assign = HotAssign {
            keyspace: key.keyspace,
            digest: key.digest,
            term: self.committed.term(),
            instance: *instance,
            holders: holders.iter().filter_map(|node| address(*node)).collect(),
            in_switch: *in_switch,
        };
        let is_live = |node: &NodeId| self.observations.membership.live(*node).is_some();
        let receivers: Vec<_> = told.into_iter().filter(is_live).filter_map(address).collect();
        for receiver in receivers {
            self.push(receiver, Message::HotAssign(assign.clone()));
        }
    }

    /// What a switch says of hot keys. Of another term it is counted, and nothing else.
    pub(crate) fn handle_hot(&mut self, switch: SwitchId, reply: &ControlReply) {
        let of = match reply {
            ControlReply::HotChanged { term, .. }
            | ControlReply::HotFailed { term, .. }
            | ControlReply::Hot { term, .. } => *term,
            _ => return,
        };
        let mut hot = core::mem::replace(&mut self.hot, HotKeys::new(0, 0));
        match hot.racks.get_mut(&switch).filter(|_| of == self.committed.term) {
            Some(rack) => {
                rack.handle_reply(&self.common(&hot.keyspaces, hot.seed), reply);
                if let ControlReply::Hot { reading, .. } = reply {
                    let owners = Owners::of(&self.committed, &hot.keyspaces, self.config.balancing);
                    let servers = self.servers_at(switch);
                    let is_available = |node| self.takes_copies(node);
                    rack.plan(&self.config.hot, reading, servers, &owners, is_available);
                }
            }
            None => self.counters.stale += 1,
        }
        self.hot = hot;
    }

    /// The next request to a switch that goes by the newest tables.
    pub(crate) fn poll_hot(&mut self) -> Option<(SwitchId, ControlRequest)> {
        if self.hot.racks.is_empty() {
            return None;
        }
        let mut hot = core::mem::replace(&mut self.hot, HotKeys::new(0, 0));
        let common = self.common(&hot.keyspaces, hot.seed);
        let mut current = hot.racks.iter_mut().filter(|(id, _)| self.observations.switches.is_current(**id));
        let request = current.find_map(|(id, rack)| Some((*id, rack.poll(&common, &mut hot.instances)?)));
        self.hot = hot;
        request
    }

    fn common<'a>(&'a self, keyspaces: &'a [u16], seed: u64) -> Common<'a> {
        let settings = &self.config.hot;
        let (now_ns, term) = (self.situation().now_ns, self.committed.term);
        Common { now_ns, term, settings, period_ns: nanoseconds(settings.period), keyspaces, seed }
    }

    /// The nodes that hang at a switch, ascending.
    fn servers_at(&self, switch: SwitchId) -> Vec<NodeId> {
        let topology: Topology = Config::settled(&self.config.topology, &self.config.nodes);
        let nodes = self.config.nodes.iter().map(|node| node.id);
        let is_here = |node: &NodeId| topology.home(host_id(*node)).is_none_or(|home| home == switch.0);
        let mut servers: Vec<NodeId> = nodes.filter(is_here).collect();
        servers.sort_unstable();
        servers
    }

    /// Whether a node is there, and to hold anything.
    fn takes_copies(&self, node: NodeId) -> bool {
        let is_wanted = self.committed.node(node).is_none_or(|node| node.wish == Wish::Holds);
        is_wanted && self.observations.membership.live(node).is_some()
    }
}

/// The owner, and the other members of the key's partition: they show the owner what they are asked for (it may never be asked itself).
fn who_is_told(Announcement { to, key, .. }: &Announcement, owners: &Owners<'_>) -> BTreeSet<NodeId> {
    let owned = owners.find(key).filter(|owned| owned.primary() == *to);
    let members = owned.into_iter().flat_map(|owned| owned.members());
    members.chain([*to]).collect()
}
