//! Switches: brings each to the newest tables, and tracks which have installed them.
//!
//! ```text
//!   not current ── Install ──▶ ... ── Installed{newest} ──▶ current ── newer tables ──▶ not current
//!        ▲     └─ no answer: again each interval                 │
//!        └───────── Status shows otherwise (restarted empty) ────┘
//! ```
//!
//! Invariant: a switch that has acknowledged a generation never forwards by older tables in this
//! term: it keeps them, installs newer ones, or restarts empty and drops (R12). So an
//! acknowledgement holds while the switch is disconnected. Switches that match only headers may forward by
//! older tables for a while all the same, so removals do not rely on their acknowledgements
//! ([`Situation::harmless`](crate::view::Situation::harmless)).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use nicekv_switch::control::{ControlReply, ControlRequest};
use nicekv_switch::{HostId, MemberSet, RecordEntry, Table, TableSet, TableStatus, Topology};

use super::fabric::Fabric;
use super::order::Order;
use super::requests::RequestCounts;
use crate::config::{Config, NodeConfig, SwitchId, Timing, host_id, nanoseconds};
use crate::status::{MissingPort, SwitchStatus};

#[derive(Clone, Debug, Default)]
struct Switch {
    connected: bool,
    /// The generation that the switch has acknowledged in this term.
    acknowledged: u64,
    /// Whether tables must be installed even if the switch has acknowledged them, because it may
    /// have lost them.
    doubtful: bool,
    install_at_ns: u64,
    status_at_ns: u64,
    requests_at_ns: u64,
    /// Number of entries in the tables that the switch was last sent.
    entries: usize,
    /// The switch's last status report.
    tables: Vec<TableStatus>,
    /// Why the switch refused the newest tables.
    failure: Option<String>,
    /// The ports that the switch has reported; `None`: it has not reported any, or it has none.
    ports: Option<BTreeSet<u16>>,
}

impl Switch {
    /// Whether the switch has reported its ports, and this one is not among them.
    fn lacks(&self, port: u16) -> bool {
        self.ports.as_ref().is_some_and(|ports| !ports.contains(&port))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Switches {
    switches: BTreeMap<SwitchId, Switch>,
    interval_ns: u64,
    /// Interval at which request counts are read; 0: never.
    count_interval_ns: u64,
    /// Client requests.
    pub(crate) requests: RequestCounts,
    /// Places the newest tables at the ports of each switch.
    fabric: Fabric,
    /// The order in which switches get new tables.
    order: Order,
    newest: TableSet,
    /// The term of a newer leader that a switch has obeyed.
    newer_term: Option<u64>,
    /// The last refusal of tables: the switch, the generation that it refused, and why.
    refusal: Option<(SwitchId, u64, String)>,
}

impl Switches {
    pub(crate) fn new(switches: &[SwitchId], topology: Topology, timing: &Timing) -> Self {
        Self {
            switches: switches.iter().map(|id| (*id, Switch::default())).collect(),
            interval_ns: nanoseconds(timing.switch_interval),
            count_interval_ns: nanoseconds(timing.count_interval),
            requests: RequestCounts::default(),
            fabric: Fabric::new(topology, switches.iter().map(|id| id.0)),
            order: Order::default(),
            newest: TableSet::default(),
            newer_term: None,
            refusal: None,
        }
    }

    /// The generation of the newest tables; 0: none.
    pub(crate) fn generation(&self) -> u64 {
        self.newest.generation
    }

    /// Takes the last refusal, if it concerns tables of `generation` or later: the switch, and why.
    pub(crate) fn take_refusal(&mut self, generation: u64) -> Option<(SwitchId, String)> {
        let (switch, refused, reason) = self.refusal.take()?;
        (refused >= generation).then_some((switch, reason))
    }

    /// The first switch that has reported its ports and lacks the port of a node, and that port.
    pub(crate) fn without_port(&self, node: &NodeConfig, nodes: &[NodeConfig]) -> Option<(SwitchId, u16)> {
        let topology = Config::settled(self.fabric.topology(), nodes);
        self.switches.iter().find_map(|(id, switch)| {
            let host = host_id(node.id);
            let is_here = topology.home(host).is_none_or(|home| home == id.0);
            let port = topology.port(id.0, host).unwrap_or(node.switch_port);
            (is_here && switch.lacks(port)).then_some((*id, port))
        })
    }

    /// Hosts in the newest tables whose ports the switch does not have.
    fn unreachable(&self, id: SwitchId, switch: &Switch) -> BTreeMap<HostId, u16> {
        if switch.ports.is_none() {
            return BTreeMap::new();
        }
        let hosts = TableSet { hosts: self.newest.hosts.clone(), ..TableSet::default() };
        let placed = self.fabric.place(id.0, &hosts).hosts.into_iter();
        placed.filter(|host| switch.lacks(host.port)).map(|host| (host.id, host.port)).collect()
    }

    /// The newest tables for one switch: with its own ports, and without hosts at ports that it
    /// does not have. Otherwise one such host would keep the switch from installing everything else
    /// that is new.
    fn tables_for(&self, id: SwitchId) -> TableSet {
        let unreachable =
            self.switches.get(&id).map(|switch| self.unreachable(id, switch)).unwrap_or_default();
        if unreachable.is_empty() {
            return self.fabric.place(id.0, &self.newest);
        }
        self.fabric.place(id.0, &reaching(self.newest.clone(), |host| !unreachable.contains_key(&host)))
    }

    /// Sets the nodes. Their configuration says which switch they are attached to.
    pub(crate) fn settle(&mut self, nodes: &[NodeConfig]) {
        self.fabric.settle(nodes);
    }

    /// Makes `tables` the newest, under the next generation, if they differ from the previous ones.
    pub(crate) fn set_tables(&mut self, mut tables: TableSet) {
        tables.generation = self.newest.generation;
        if self.newest.generation > 0 && TableSet::diff(&self.newest, &tables).is_empty() {
            return;
        }
        self.order = Order::between(self.fabric.topology(), self.fabric.tree(), &self.newest, &tables);
        tables.generation += 1;
        self.newest = tables;
        self.renew();
    }

    /// Starts to install the newest tables.
    fn renew(&mut self) {
        for switch in self.switches.values_mut() {
            switch.install_at_ns = 0;
            switch.failure = None;
        }
    }

    /// Reacts to failures between switches.
    pub(crate) fn reroute(&mut self, now_ns: u64) {
        let generation = self.newest.generation + 1;
        if generation > 1 && self.fabric.reroute(now_ns, generation) {
            self.newest.generation = generation;
            self.order = Order::default();
            self.renew();
        }
    }

    /// Whether every switch has installed the newest tables, so that it forwards no packet by older
    /// ones.
    pub(crate) fn all_current(&self) -> bool {
        let newest = self.newest.generation;
        // All switches count, not only those of the head and the tail: a switch below them routes
        // by its own tables (C7 (a), C12).
        newest > 0 && self.switches.values().all(|switch| switch.acknowledged == newest)
    }

    /// Whether every connected switch has installed the newest tables. The tables of disconnected
    /// switches are unknown.
    pub(crate) fn connected_are_current(&self) -> bool {
        let newest = self.newest.generation;
        newest > 0 && self.switches.values().all(|switch| !switch.connected || switch.acknowledged == newest)
    }

    /// The first reason why a switch may not have the newest tables; `None`: all have them.
    pub(crate) fn why_not_ready(&self) -> Option<String> {
        if let Some(term) = self.newer_term {
            return Some(alloc::format!("a switch obeys a newer metadata leader, of term {term}"));
        }
        self.switches.iter().find_map(|(id, switch)| {
            if !switch.connected {
                return Some(alloc::format!("switch {} is not connected", id.0));
            }
            if let Some(failure) = &switch.failure {
                return Some(alloc::format!("switch {} refused its tables: {failure}", id.0));
            }
            let current = switch.acknowledged == self.newest.generation && !switch.doubtful;
            (!current).then(|| alloc::format!("switch {} has not acknowledged its tables", id.0))
        })
    }

    /// The status of all switches, by id.
    pub(crate) fn status(&self) -> Vec<SwitchStatus> {
        let newest = self.newest.generation;
        let status = |(id, switch): (&SwitchId, &Switch)| SwitchStatus {
            id: id.0,
            name: String::new(),
            connected: switch.connected,
            current: newest > 0 && switch.acknowledged == newest && !switch.doubtful,
            error: switch.failure.clone(),
            entries: switch.entries,
            trunks: self.fabric.trunks(id.0),
            missing_ports: {
                let missing = self.unreachable(*id, switch).into_iter();
                missing.map(|(HostId(node), port)| MissingPort { node, name: String::new(), port }).collect()
            },
        };
        self.switches.iter().map(status).collect()
    }

    /// Entries, capacity and hits of each table: the most entries and the smallest capacity of any
    /// switch, and the hits of all switches together.
    pub(crate) fn table_status(&self) -> Vec<TableStatus> {
        let mut sum: Vec<TableStatus> = Vec::new();
        for table in self.switches.values().flat_map(|switch| &switch.tables) {
            match sum.iter_mut().find(|known| known.name == table.name) {
                Some(known) => {
                    known.entries = known.entries.max(table.entries);
                    known.capacity = known.capacity.min(table.capacity);
                    known.hits += table.hits;
                }
                None => sum.push(table.clone()),
            }
        }
        if sum.is_empty() { TableStatus::list(Some(&self.newest), &Default::default()) } else { sum }
    }

    /// Handles a new connection. The tables of the switch are unknown, so it is sent the newest
    /// ones.
    pub(crate) fn handle_connected(&mut self, id: SwitchId) {
        self.fabric.connected(id.0);
        if let Some(switch) = self.switches.get_mut(&id) {
            *switch = Switch {
                connected: true,
                doubtful: true,
                acknowledged: switch.acknowledged,
                entries: switch.entries,
                ports: switch.ports.take(),
                ..Switch::default()
            };
        }
    }

    pub(crate) fn handle_disconnected(&mut self, id: SwitchId) {
        self.fabric.disconnected(id.0);
        if let Some(switch) = self.switches.get_mut(&id) {
            switch.connected = false;
        }
    }

    /// Whether the switch is connected.
    pub(crate) fn is_connected(&self, id: SwitchId) -> bool {
        self.switches.get(&id).is_some_and(|switch| switch.connected)
    }

    /// Whether the switch has installed the newest tables.
    pub(crate) fn is_current(&self, id: SwitchId) -> bool {
        let is_current = |switch: &Switch| {
            switch.connected && switch.acknowledged == self.newest.generation && !switch.doubtful
        };
        self.newest.generation > 0 && self.switches.get(&id).is_some_and(is_current)
    }

    pub(crate) fn handle_reply(&mut self, now_ns: u64, id: SwitchId, term: u64, reply: ControlReply) {
        let newest = self.newest.generation;
        let Some(switch) = self.switches.get_mut(&id) else { return };
        match reply {
            ControlReply::Installed { term: of, generation } if of == term && generation <= newest => {
                switch.acknowledged = switch.acknowledged.max(generation);
                self.fabric.acknowledged(id.0, generation);
                if generation == newest {
                    switch.doubtful = false;
                    switch.failure = None;
                    // Requests the status of the new tables at once.
                    switch.status_at_ns = now_ns;
                }
            }
            // This service does not read registers, and only operators' commands look keys up.
            ControlReply::Installed { .. } | ControlReply::Register { .. } | ControlReply::Found { .. } => {}
            ControlReply::Refused { current_term } if current_term > term => {
                self.newer_term = Some(current_term);
            }
            ControlReply::Refused { .. } => {}
            ControlReply::Failed { generation, reason } if generation == newest => {
                self.refusal = Some((id, generation, reason.clone()));
                switch.failure = Some(reason);
            }
            ControlReply::Failed { .. } => {}
            ControlReply::Requests { generation, matched, requests, .. } if generation == Some(newest) => {
                let tables = self.tables_for(id);
                self.requests.handle(now_ns, id, matched, &requests, &tables, self.fabric.topology());
            }
            ControlReply::Ports { present, down } => {
                self.fabric.ports_down(id.0, down);
                self.handle_ports(id, present);
            }
            // Replies about hot keys are handled by `crate::hot`.
            ControlReply::Requests { .. }
            | ControlReply::HotChanged { .. }
            | ControlReply::HotFailed { .. }
            | ControlReply::Hot { .. } => {}
            ControlReply::Status { generation, tables, .. } => {
                switch.tables = tables;
                if switch.acknowledged == newest && generation != Some(newest) {
                    switch.doubtful = true;
                }
            }
        }
        self.reroute(now_ns);
    }

    /// Handles a switch's report of its ports. Its tables may have to change.
    fn handle_ports(&mut self, id: SwitchId, present: Option<Vec<u16>>) {
        let Some(switch) = self.switches.get(&id) else { return };
        let before = self.unreachable(id, switch);
        let ports = present.map(|ports| ports.into_iter().collect());
        let switch = Switch { ports, ..switch.clone() };
        let is_other = self.unreachable(id, &switch) != before;
        self.switches.insert(id, switch);
        if is_other && self.newest.generation > 0 {
            self.newest.generation += 1;
            self.order = Order::default();
            self.renew();
        }
    }

    /// The next request that is due.
    pub(crate) fn poll(&mut self, now_ns: u64, term: u64) -> Option<(SwitchId, ControlRequest)> {
        if self.newest.generation == 0 {
            return None;
        }
        let newest = self.newest.generation;
        let awaited = self.switches.iter();
        let awaited = awaited.filter(|(_, switch)| switch.connected && switch.acknowledged != newest);
        let awaited: BTreeSet<u16> = awaited.map(|(id, _)| id.0).collect();
        let ids: Vec<SwitchId> = self.switches.keys().copied().collect();
        for id in ids {
            let Some(switch) = self.switches.get_mut(&id).filter(|switch| switch.connected) else { continue };
            let current = switch.acknowledged == newest && !switch.doubtful;
            let mut is_due = || self.order.is_due(now_ns, id.0, |other| awaited.contains(&other));
            if !current && now_ns >= switch.install_at_ns && is_due() {
                switch.install_at_ns = now_ns + self.interval_ns;
                let tables = self.tables_for(id);
                let entries = Table::ALL.iter().map(|table| tables.entries(*table)).sum();
                self.switches.entry(id).and_modify(|switch| switch.entries = entries);
                return Some((id, ControlRequest::Install { term, tables }));
            }
            if now_ns >= switch.status_at_ns {
                switch.status_at_ns = now_ns + self.interval_ns;
                return Some((id, ControlRequest::Status { term }));
            }
            if current && self.count_interval_ns > 0 && now_ns >= switch.requests_at_ns {
                switch.requests_at_ns = now_ns + self.count_interval_ns;
                return Some((id, ControlRequest::Requests { term }));
            }
        }
        None
    }
}

/// The tables without unreachable hosts and the entries that lead to them. Requests for their
/// partitions get no answer, as if the host were absent.
fn reaching(tables: TableSet, is_reached: impl Fn(HostId) -> bool) -> TableSet {
    // Both rings must keep the same blocks of vnodes in the same order.
    let mut unicast = Vec::new();
    let mut multicast = Vec::new();
    for (place, entry) in tables.multicast.iter().enumerate() {
        let of_gets = tables.unicast.get(place);
        let reached = entry.reaching(&is_reached);
        match (of_gets, reached) {
            (Some(of_gets), Some(entry)) if is_reached(of_gets.host) => {
                unicast.push(*of_gets);
                multicast.push(entry);
            }
            (None, Some(entry)) => multicast.push(entry),
            _ => {}
        }
    }
    let record = tables.record.iter().filter_map(|entry| {
        let members =
            MemberSet::new(entry.members.as_slice().iter().copied().filter(|host| is_reached(*host)));
        let chain = entry.chain.as_ref();
        let is_whole = chain.is_none_or(|chain| chain.nodes().iter().all(|host| is_reached(*host)));
        (is_whole && is_reached(entry.host)).then(|| RecordEntry { members, ..entry.clone() })
    });
    TableSet {
        hosts: tables.hosts.iter().filter(|host| is_reached(host.id)).copied().collect(),
        division: tables.division.iter().filter(|entry| is_reached(entry.host)).copied().collect(),
        record: record.collect(),
        unicast,
        multicast,
        ..tables
    }
}
