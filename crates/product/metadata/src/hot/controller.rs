//! The leader's part in hot keys: reads switches, plans entries, installs them, and announces them
//! to owners.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use nicekv_proto::NodeId;
use nicekv_proto::hot::HotAssign;
use nicekv_switch::Topology;
use nicekv_switch::control::{ControlReply, ControlRequest};

use super::HotKeys;
use super::owners::Owners;
use super::rack::{Announcement, Common, Rack};
use crate::announce::Message;
use crate::config::{Config, SwitchId, host_id, nanoseconds};
use crate::leader::Metadata;
use crate::state::DesiredState;

/// Upper bound of announcements about a switch's entries in one tick; more would overflow the
/// owners' sockets.
const ANNOUNCED_MAX: usize = 128;
impl Metadata {
    fn hot_keyspaces(&self) -> Vec<u16> {
        let specs = self.committed.keyspaces.iter().filter(|spec| spec.is_hot());
        let mut keyspaces: Vec<u16> = specs.map(|spec| spec.id.0).collect();
        keyspaces.sort_unstable();
        keyspaces
    }

    /// Updates the set of keyspaces, and announces entries to the owners of hot keys.
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
        // Announcements of removed entries may belong to keyspaces whose hot keys are no longer
        // spread.
        let keyspaces: BTreeSet<u16> = due.iter().map(|one| one.key.keyspace.0).collect();
        let keyspaces: Vec<u16> = keyspaces.into_iter().collect();
        let owners = Owners::of(&self.committed, &keyspaces, self.config.balancing);
        let receivers: Vec<BTreeSet<NodeId>> = due.iter().map(|one| receivers_of(one, &owners)).collect();
        due.iter().zip(receivers).for_each(|(one, receivers)| self.announce_entry(one, receivers));
    }

    fn announce_entry(&mut self, announcement: &Announcement, receivers: BTreeSet<NodeId>) {
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
        let receivers: Vec<_> = receivers.into_iter().filter(is_live).filter_map(address).collect();
        for receiver in receivers {
            self.push(receiver, Message::HotAssign(assign.clone()));
        }
    }

    /// Handles a switch's reply about hot keys. A reply of another term is only counted.
    pub(crate) fn handle_hot(&mut self, switch: SwitchId, reply: &ControlReply) {
        let reply_term = match reply {
            ControlReply::HotChanged { term, .. }
            | ControlReply::HotFailed { term, .. }
            | ControlReply::Hot { term, .. } => *term,
            _ => return,
        };
        let mut hot = core::mem::replace(&mut self.hot, HotKeys::new(0, 0));
        match hot.racks.get_mut(&switch).filter(|_| reply_term == self.committed.term) {
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

    /// The next request to a switch. Only switches that have installed the newest tables get one.
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

    /// The nodes attached to a switch, ascending.
    fn servers_at(&self, switch: SwitchId) -> Vec<NodeId> {
        let topology: Topology = Config::settled(&self.config.topology, &self.config.nodes);
        let nodes = self.config.nodes.iter().map(|node| node.id);
        let is_here = |node: &NodeId| topology.home(host_id(*node)).is_none_or(|home| home == switch.0);
        let mut servers: Vec<NodeId> = nodes.filter(is_here).collect();
        servers.sort_unstable();
        servers
    }

    /// Whether a node may get copies: it is live and should hold data.
    fn takes_copies(&self, node: NodeId) -> bool {
        let is_wanted = self.committed.node(node).is_none_or(|node| node.desired == DesiredState::Holds);
        is_wanted && self.observations.membership.live(node).is_some()
    }
}

/// The nodes that get an announcement: the owner, and the other members of the key's partition.
/// These forward some of their gets to the owner, so that it learns of them.
fn receivers_of(Announcement { to, key, .. }: &Announcement, owners: &Owners<'_>) -> BTreeSet<NodeId> {
    let owned = owners.find(key).filter(|owned| owned.primary() == *to);
    let members = owned.into_iter().flat_map(|owned| owned.members());
    members.chain([*to]).collect()
}
