//! The metadata service, the store of its state, and the switches' agents.
//!
//! ```text
//!   leader ──persist──▶ store (compare-and-swap)          paused leader
//!     │  ▲                                                     │ resumes: handles the datagrams in its socket, then its deadlines.
//!     ▼  └── newest process: has the address                   ▼ Its next persist fails, and it stops
//!   link ──Install──▶ agent ◀──Install (older term: refused)── older link
//! ```
//!
//! Datagrams go to the newest process. A paused process keeps the datagrams that it had received,
//! and its connections to the agents.

use super::addresses::service;
use super::event::Event;
use super::{Cluster, MILLISECOND_NS};
use crate::keyspace::specs;
use crate::network::Host;
use crate::node::Clock;
use nicekv_metadata::{
    Balancing, Config, LINK_BITS_PER_SECOND, Metadata, Persisted, StorageRequest, SwitchId,
};
use nicekv_proto::control::{Report, ReportKind};
use nicekv_proto::limits::PORT_DEFAULT;
use nicekv_proto::{Datagram, Now};
use nicekv_switch::Prefix;
use nicekv_switch::control::{ControlReply, ControlRequest};
use std::net::SocketAddrV4;

/// Interval at which an agent tries to reach the metadata service.
const REDIAL_NS: u64 = 20 * MILLISECOND_NS;
/// Maximum datagrams that wait for a paused process; more are lost.
const INBOX_MAX: usize = 4096;

#[derive(Clone)]
pub(super) struct Controller {
    pub(super) core: Metadata,
    pub(super) process: u64,
    clock: Clock,
    turn_at_ns: Option<u64>,
    pub(super) paused_until_ns: u64,
    inbox: Vec<(SocketAddrV4, Vec<u8>)>,
}

/// All processes of the metadata service, and the store of its state.
#[derive(Clone, Default)]
pub(super) struct Controllers {
    /// At most two, the newest last. An older one is paused, or has resumed and has not noticed yet
    /// that another one leads.
    running: Vec<Controller>,
    started: u64,
    pub(super) stored: Option<Vec<u8>>,
    /// An earlier copy of the stored state.
    pub(super) copied: Option<Vec<u8>>,
    /// Number of writes in flight.
    persists: usize,
    /// When a member last reported another one as unresponsive.
    pub(super) accused_ns: Option<u64>,
}

/// An agent's connection to a process of the metadata service.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) switch: usize,
    process: u64,
    /// The switch's ports and its dead ports, as last reported to that process.
    pub(super) told: Option<(Option<Vec<u16>>, Vec<u16>)>,
}

impl Controller {
    pub(super) fn new(core: Metadata, process: u64, clock: Clock, paused_until_ns: u64) -> Self {
        Self { core, process, clock, turn_at_ns: None, paused_until_ns, inbox: Vec::new() }
    }

    pub(super) fn pause(&mut self, until_ns: u64) {
        self.paused_until_ns = until_ns;
    }
}

impl Controllers {
    /// Starts a new process and returns its number.
    pub(super) fn begin(&mut self) -> u64 {
        self.started += 1;
        self.started
    }

    pub(super) fn add(&mut self, controller: Controller) {
        self.running.push(controller);
    }

    /// The newest process, if it is running. An older process never becomes the newest again.
    pub(super) fn newest(&self) -> Option<&Controller> {
        self.running.last().filter(|newest| newest.process == self.started)
    }

    pub(super) fn newest_mut(&mut self) -> Option<&mut Controller> {
        self.running.last_mut().filter(|newest| newest.process == self.started)
    }

    /// The leader, unless it is paused or has a write in flight.
    pub(super) fn at_rest(&self, now_ns: u64) -> Option<&Metadata> {
        let newest = self.newest().filter(|newest| newest.paused_until_ns <= now_ns && self.persists == 0);
        newest.map(|newest| &newest.core)
    }

    pub(super) fn find(&mut self, process: u64) -> Option<&mut Controller> {
        self.running.iter_mut().find(|controller| controller.process == process)
    }
}

impl Cluster {
    pub(super) fn start_metadata(&mut self) {
        if self.scenario.instances > 1 {
            return self.start_instances();
        }
        let now_ns = self.queue.now_ns();
        let leads = |newest: &Controller| newest.paused_until_ns <= now_ns;
        if self.controllers.newest().is_some_and(leads) || self.controllers.running.len() == 2 {
            return;
        }
        // Each start may be on another machine, with other clocks.
        let clock = Clock::draw(&self.faults, &mut self.random);
        let core =
            Metadata::new(self.metadata_config(), self.controllers.stored.as_deref(), clock.now(now_ns));
        let core = core.expect("the state is our own");
        let process = self.controllers.begin();
        self.controllers.add(Controller::new(core, process, clock, 0));
        self.note(|_| Some("metadata starts".into()));
        self.drive_metadata(process);
    }

    pub(super) fn metadata_config(&self) -> Config {
        let nodes = (0..self.scenario.nodes).map(|node| self.node_config(node));
        let clients = Prefix::new([10, 20, 2, 0], 24);
        Config {
            cluster: 1,
            nodes: nodes.collect(),
            keyspaces: specs(&self.scenario.keyspaces),
            port: PORT_DEFAULT,
            group_ring: self.scenario.group_ring(),
            link_bits_per_second: LINK_BITS_PER_SECOND,
            balancing: if self.scenario.balancing { Balancing::Source { clients } } else { Balancing::None },
            switches: (0..self.switches.len()).map(|switch| SwitchId(switch as u16)).collect(),
            services: (0..self.scenario.instances).map(service).collect(),
            topology: self.topology(),
            matching: self.scenario.matching,
            timing: self.scenario.timing(),
            hot: Default::default(),
        }
    }

    pub(super) fn metadata_turn(&mut self, process: u64) {
        let now_ns = self.queue.now_ns();
        let is_newest = self.controllers.newest().is_some_and(|newest| newest.process == process);
        let Some(controller) = self.controllers.find(process) else { return };
        if controller.turn_at_ns != Some(now_ns) {
            return;
        }
        controller.turn_at_ns = None;
        if is_newest {
            self.draw_metadata_fault();
        }
        self.tell_hold(process);
        let Some(controller) = self.controllers.find(process) else { return };
        if now_ns < controller.paused_until_ns {
            controller.turn_at_ns = Some(controller.paused_until_ns);
            let at_ns = controller.paused_until_ns;
            return self.queue.at(at_ns, Event::MetadataTurn(process));
        }
        let now = controller.clock.now(now_ns);
        for (from, bytes) in std::mem::take(&mut controller.inbox) {
            controller.core.handle_datagram(now, from, &bytes);
        }
        controller.core.handle_deadline(now);
        self.drive_metadata(process);
    }

    /// A datagram arrives at the address of the metadata service or of one of its instances.
    pub(super) fn metadata_hears(&mut self, instance: usize, from: SocketAddrV4, bytes: Vec<u8>) {
        let now_ns = self.queue.now_ns();
        if matches!(
            Datagram::decode(&bytes),
            Ok((_, Datagram::Report(Report { kind: ReportKind::Accuse(_), .. })))
        ) {
            self.controllers.accused_ns = Some(now_ns);
        }
        let process = match self.instances.members.get(instance) {
            Some(member) => member.process,
            None => self.controllers.newest().map(|newest| newest.process),
        };
        let Some(process) = process else { return };
        self.tell_hold(process);
        let Some(newest) = self.controllers.find(process) else { return };
        if now_ns < newest.paused_until_ns {
            if newest.inbox.len() < INBOX_MAX {
                newest.inbox.push((from, bytes));
            }
            return;
        }
        let now = newest.clock.now(now_ns);
        newest.core.handle_datagram(now, from, &bytes);
        self.drive_metadata(process);
    }

    pub(super) fn drive_metadata(&mut self, process: u64) {
        self.tell_hold(process);
        let (host, address) = self.place_of(process);
        let (now_ns, instance) = (self.queue.now_ns(), self.instances.of(process));
        let Some(index) = self.controllers.running.iter().position(|known| known.process == process) else {
            return;
        };
        let mut controller = self.controllers.running.remove(index);
        let now: Now = controller.clock.now(now_ns);
        controller.core.handle_batch_end(now);
        while let Some(StorageRequest::Persist { version, bytes }) = controller.core.poll_storage() {
            if let Some(instance) = instance {
                self.persist_shared(instance, version, bytes);
                break;
            }
            let takes_ns = self.scenario.pace.disk_ns + self.random.below(self.faults.disk_max_ns);
            self.controllers.persists += 1;
            self.queue.after(takes_ns, Event::Persisted { process, version, bytes });
        }
        let mut bytes = Vec::new();
        while let Some(to) = controller.core.poll_transmit(&mut bytes) {
            self.send(host, address, to, &bytes);
        }
        while let Some((switch, request)) = controller.core.poll_switch() {
            if let ControlRequest::Install { tables, .. } = &request {
                self.watch.tables_sent(&controller.core.status(), tables);
            }
            let link = Link { switch: switch.0.into(), process, told: None };
            let open =
                self.links.iter().find(|(_, known)| (known.switch, known.process) == (link.switch, process));
            if let Some((&number, _)) = open {
                let delay_ns = self.network.reliable_delay(&mut self.random);
                self.queue.after(delay_ns, Event::ToAgent(number, Box::new(request)));
            }
        }
        if let Some(boot_ns) = controller.core.next_deadline() {
            let at_ns = controller.clock.when(boot_ns).max(now_ns + 1);
            if controller.turn_at_ns != Some(at_ns) {
                controller.turn_at_ns = Some(at_ns);
                self.queue.at(at_ns, Event::MetadataTurn(process));
            }
        }
        self.controllers.running.insert(index, controller);
        self.look_at_state();
    }

    /// Ends a process and its connections.
    pub(super) fn stop_metadata(&mut self, process: u64) {
        self.controllers.running.retain(|controller| controller.process != process);
        self.links.retain(|_, link| link.process != process);
    }

    /// Kills the newest process.
    pub(super) fn crash_metadata(&mut self, downtime_ns: u64) {
        if self.scenario.instances > 1 {
            return self.crash_instances(downtime_ns, false);
        }
        let Some(process) = self.controllers.newest().map(|newest| newest.process) else { return };
        self.note(|_| Some("metadata is killed".into()));
        self.stop_metadata(process);
        self.queue.after(downtime_ns, Event::MetadataStart);
    }

    /// Pauses the newest process. After `takeover_ns` another process starts and leads, unless this
    /// one has resumed by then.
    pub(super) fn pause_metadata(&mut self, pause_ns: u64, takeover_ns: u64) {
        if self.scenario.instances > 1 {
            return self.pause_instance(pause_ns);
        }
        let until_ns = self.queue.now_ns() + pause_ns;
        let Some(newest) = self.controllers.newest_mut() else { return };
        newest.paused_until_ns = until_ns;
        self.note(|_| Some(format!("metadata is paused until {:.3}ms", until_ns as f64 / 1e6)));
        self.queue.after(takeover_ns, Event::MetadataStart);
    }

    pub(super) fn persisted(&mut self, process: u64, version: u64, bytes: Vec<u8>) {
        let now_ns = self.queue.now_ns();
        let (is_running, paused_until_ns) = match self.controllers.find(process) {
            Some(controller) => (true, controller.paused_until_ns),
            None => (false, 0),
        };
        if now_ns < paused_until_ns {
            // The write is delayed with its process, so the next leader may write first.
            return self.queue.at(paused_until_ns, Event::Persisted { process, version, bytes });
        }
        self.controllers.persists -= 1;
        // A write in flight when its process dies may take effect or not.
        if !is_running && self.random.below(2) == 0 {
            return;
        }
        let stored_version = self
            .controllers
            .stored
            .as_deref()
            .map_or(0, |stored| nicekv_metadata::persisted_version(stored).expect("our own"));
        if stored_version + 1 == version {
            self.controllers.stored = Some(bytes);
            let Some(controller) = self.controllers.find(process) else { return };
            let now = controller.clock.now(now_ns);
            controller.core.handle_storage(now, Persisted { version });
            self.drive_metadata(process);
        } else if is_running {
            self.tally.count("old leaders stopped");
            self.note(|_| Some("metadata: another process leads; this process stops".into()));
            self.stop_metadata(process);
            self.queue.after(MILLISECOND_NS, Event::MetadataStart);
        }
    }

    // --- Agents.

    pub(super) fn dial_metadata(&mut self, switch: usize) {
        self.queue.after(REDIAL_NS, Event::AgentDial(switch));
        let processes: Vec<u64> = if self.scenario.instances > 1 {
            self.instances.members.iter().filter_map(|member| member.process).collect()
        } else {
            self.controllers.newest().map(|newest| newest.process).into_iter().collect()
        };
        let (agent, (metadata, _)) = (Host::Switch(switch), self.place_of(0));
        // Without a running process, the cut is judged by the address of the first instance.
        if processes.is_empty() && self.is_parted(agent, metadata) {
            return self.unlink(switch);
        }
        for process in processes {
            let (metadata, _) = self.place_of(process);
            if self.is_parted(agent, metadata) {
                self.unlink_from(switch, process);
            } else {
                self.link(switch, process);
            }
        }
        self.tell_ports(switch);
    }

    pub(super) fn is_parted(&self, one: Host, other: Host) -> bool {
        self.network.is_cut(one, other) || self.network.is_cut(other, one)
    }

    fn link(&mut self, switch: usize, process: u64) {
        let now_ns = self.queue.now_ns();
        self.tell_hold(process);
        let is_linked = self.links.values().any(|link| (link.switch, link.process) == (switch, process));
        let Some(controller) = self.controllers.find(process) else { return };
        if is_linked || now_ns < self.agent_away_until_ns[switch] || now_ns < controller.paused_until_ns {
            return;
        }
        self.links_made += 1;
        self.links.insert(self.links_made, Link { switch, process, told: None });
        let now = controller.clock.now(now_ns);
        controller.core.handle_switch_connected(now, SwitchId(switch as u16));
        self.drive_metadata(process);
    }

    fn unlink_from(&mut self, switch: usize, process: u64) {
        if self.scenario.instances == 1 {
            return self.unlink(switch);
        }
        let now_ns = self.queue.now_ns();
        let before = self.links.len();
        self.links.retain(|_, link| (link.switch, link.process) != (switch, process));
        if self.links.len() < before
            && let Some(controller) = self.controllers.find(process)
        {
            controller.core.handle_switch_disconnected(controller.clock.now(now_ns), SwitchId(switch as u16));
        }
    }

    /// Ends all connections of an agent.
    pub(super) fn unlink(&mut self, switch: usize) {
        let now_ns = self.queue.now_ns();
        for link in self.links.values().filter(|link| link.switch == switch) {
            let (process, id) = (link.process, SwitchId(switch as u16));
            if let Some(controller) = self.controllers.find(process) {
                let now = controller.clock.now(now_ns);
                controller.core.handle_switch_disconnected(now, id);
            }
        }
        self.links.retain(|_, link| link.switch != switch);
    }

    pub(super) fn serve_agent(&mut self, number: u64, request: ControlRequest) {
        let Some(&Link { switch, .. }) = self.links.get(&number) else { return };
        if self.random.chance(self.faults.switch_crash) {
            return self.crash_switch(switch);
        }
        let is_cut = self.random.chance(self.faults.agent_cut);
        if is_cut && self.random.below(2) == 0 {
            return self.cut_agent(switch);
        }
        self.note(|names| names.tables_request(switch, &request));
        let reply = match &request {
            ControlRequest::Install { tables, .. } if self.queue.now_ns() < self.full_until_ns[switch] => {
                self.tally.count("tables refused for want of room");
                ControlReply::Failed { generation: tables.generation, reason: "no room".into() }
            }
            ControlRequest::Install { tables, .. } if self.lacks_port(tables) => {
                self.tally.count("tables refused for want of a port");
                ControlReply::Failed { generation: tables.generation, reason: "no such port".into() }
            }
            _ => self.switches[switch].handle(self.queue.now_ns(), request),
        };
        if matches!(reply, ControlReply::Refused { .. }) {
            self.tally.count("requests of an old leader refused by a switch");
        }
        if is_cut {
            return self.cut_agent(switch);
        }
        let delay_ns = self.network.reliable_delay(&mut self.random);
        self.queue.after(delay_ns, Event::FromAgent(number, Box::new(reply)));
    }

    pub(super) fn hear_agent(&mut self, number: u64, reply: ControlReply) {
        let now_ns = self.queue.now_ns();
        let Some(&Link { switch, process, .. }) = self.links.get(&number) else { return };
        self.tell_hold(process);
        let Some(controller) = self.controllers.find(process) else { return };
        if now_ns < controller.paused_until_ns {
            let at_ns = controller.paused_until_ns;
            return self.queue.at(at_ns, Event::FromAgent(number, Box::new(reply)));
        }
        let now = controller.clock.now(now_ns);
        let note = crate::transcript::tables_reply(switch, &reply);
        controller.core.handle_switch(now, SwitchId(switch as u16), reply);
        self.note(|_| note);
        self.drive_metadata(process);
    }

    /// Restarts a switch with empty tables.
    pub(super) fn crash_switch(&mut self, switch: usize) {
        self.tally.count("switch restarts");
        self.note(|names| Some(format!("{} restarts with empty tables", names.host(Host::Switch(switch)))));
        self.switches[switch].restart();
        self.unlink(switch);
    }

    /// Cuts an agent off from the metadata service for some time.
    fn cut_agent(&mut self, switch: usize) {
        let away_ns = self.random.below(self.faults.downtime_max_ns);
        self.part_agent(switch, away_ns);
    }

    pub(super) fn part_agent(&mut self, switch: usize, away_ns: u64) {
        self.tally.count("agents cut off");
        self.note(|names| Some(format!("{} loses the metadata service", names.host(Host::Switch(switch)))));
        self.agent_away_until_ns[switch] = self.queue.now_ns() + away_ns;
        self.unlink(switch);
    }
}
