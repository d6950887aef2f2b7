//! Faults: drawn at random with the rates of [`Faults`](crate::faults::Faults), or injected by a
//! script.

use super::Cluster;
use super::event::Event;
use crate::faults::Faults;
use crate::keyspace::Shape;
use crate::network::Host;
use crate::node::Kept;
use nicekv_metadata::MemberStanding;
use nicekv_proto::Form;
use nicekv_proto::PartitionId;
use nicekv_proto::limits::KEY_BYTES_MAX;
use nicekv_proto::recovery::Entry;
use nicekv_replica::{DiskSpace, Standing};

/// Direction of a cut, seen from one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    In,
    Out,
    Both,
}

/// A fault that a script injects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A node is killed.
    Crash {
        /// Index of the node.
        node: usize,
        /// The rest of its log.
        kept: Kept,
        /// When it restarts; `None`: on [`Fault::Start`], or when all faults are healed.
        downtime_ns: Option<u64>,
    },
    /// Takes a snapshot of a node's disk, which a later crash can put back ([`Kept::Snapshot`]).
    TakeSnapshot(usize),
    /// A node starts, if it is down.
    Start(usize),
    /// Nodes, switches and metadata service are killed and start again.
    PowerLoss {
        /// Time until the first of them restarts.
        downtime_ns: u64,
    },
    /// A node's process is paused.
    Pause {
        /// Index of the node.
        node: usize,
        pause_ns: u64,
    },
    /// Datagrams from one host to the other are dropped.
    Cut { from: Host, to: Host },
    /// A host is cut off from all others.
    CutOff {
        host: Host,
        /// Direction of the cut, seen from the host.
        direction: Direction,
    },
    /// Every stored value of a node is damaged.
    Damage(usize),
    /// Sets how much space is left on a node's disk.
    Space {
        /// Index of the node.
        node: usize,
        space: DiskSpace,
    },
    /// All cuts are healed.
    Mend,
    /// The metadata service is killed.
    MetadataCrash {
        /// Time until it restarts.
        downtime_ns: u64,
    },
    /// The stored state of the metadata service is copied. Only with a single instance.
    CopyState,
    /// Swaps the stored state and its copy. The metadata service must not be running.
    ExchangeState,
    /// The metadata service is paused, another process takes over, then the first resumes.
    MetadataPause {
        pause_ns: u64,
        /// Time until the other process starts.
        takeover_ns: u64,
    },
    /// The leading instance of the metadata service cannot reach the store.
    StoreLost { away_ns: u64 },
    /// The operator adds a node.
    Add(usize),
    /// The operator drains a node.
    Drain(usize),
    /// The operator removes a node.
    Remove(usize),
    /// A switch starts again with empty tables.
    SwitchRestart(usize),
    /// A switch's agent loses its connection to the metadata service.
    AgentCut {
        /// Index of the switch.
        switch: usize,
        away_ns: u64,
    },
    /// A switch is full and refuses new tables.
    TablesFull {
        /// Index of the switch.
        switch: usize,
        full_ns: u64,
    },
    /// No switch has the port of this node.
    PortMissing(usize),
}

/// Time within which the metadata service may act on a report that a node is unresponsive.
const ACCUSED_NS: u64 = 500_000_000;

impl Cluster {
    /// Injects a fault now.
    pub fn inject(&mut self, fault: Fault) {
        let now_ns = self.queue.now_ns();
        match fault {
            Fault::Crash { node, kept, downtime_ns } => {
                self.tally.count("crashes");
                self.crash_node(node, kept, downtime_ns);
            }
            Fault::TakeSnapshot(node) => {
                self.note(|names| {
                    Some(format!("a snapshot of the disk of {}", names.host(Host::Node(node))))
                });
                self.nodes[node].take_snapshot(now_ns);
            }
            Fault::Start(node) => self.start_node(node),
            Fault::PowerLoss { downtime_ns } => self.power_off(downtime_ns),
            Fault::Pause { node, pause_ns } => self.pause_node(node, pause_ns),
            Fault::Cut { from, to } => {
                self.tally.count("cuts");
                self.note(|names| Some(format!("cut: {} -> {}", names.host(from), names.host(to))));
                self.network.cut(from, to);
            }
            Fault::CutOff { host, direction } => {
                self.tally.count("cuts");
                self.note(|names| Some(format!("{} is cut off ({direction:?})", names.host(host))));
                self.cut_off(host, direction);
            }
            Fault::Damage(node) => {
                self.note(|names| {
                    Some(format!("the values of {} are damaged", names.host(Host::Node(node))))
                });
                let keys: Vec<_> = self.nodes[node].disk.entries().keys().cloned().collect();
                keys.iter().for_each(|key| self.nodes[node].disk.damage(key));
            }
            Fault::Space { node, space } => {
                self.tally.count("changes of a disk's space");
                self.note(|names| Some(format!("the disk of {}: {space:?}", names.host(Host::Node(node)))));
                self.nodes[node].set_space(space, space != DiskSpace::Enough);
            }
            Fault::Mend => {
                self.note(|_| Some("all cuts are healed".into()));
                self.network.heal();
            }
            Fault::MetadataCrash { downtime_ns } => {
                self.tally.count("metadata crashes");
                self.crash_metadata(downtime_ns);
            }
            Fault::CopyState => self.controllers.copied = self.controllers.stored.clone(),
            Fault::ExchangeState => {
                let controllers = &mut self.controllers;
                assert!(controllers.newest().is_none(), "the metadata service must not be running");
                std::mem::swap(&mut controllers.stored, &mut controllers.copied);
                self.note(|_| Some("the metadata state and its copy are swapped".into()));
            }
            Fault::MetadataPause { pause_ns, takeover_ns } => {
                self.tally.count("metadata pauses");
                self.pause_metadata(pause_ns, takeover_ns);
            }
            Fault::StoreLost { away_ns } => self.lose_store(away_ns),
            Fault::Add(node) => self.add_node(node),
            Fault::Drain(node) => self.drain_node(node),
            Fault::Remove(node) => self.remove_node(node),
            Fault::SwitchRestart(switch) => self.crash_switch(switch),
            Fault::AgentCut { switch, away_ns } => self.part_agent(switch, away_ns),
            Fault::PortMissing(node) => self.missing_port = Some(self.node_config(node).switch_port),
            Fault::TablesFull { switch, full_ns } => self.full_until_ns[switch] = now_ns + full_ns,
        }
        debug_assert_eq!(now_ns, self.queue.now_ns(), "a fault takes no time");
    }

    /// Ends all faults: everything that is down restarts.
    pub fn heal(&mut self) {
        self.faults = Faults { disk_max_ns: self.faults.disk_max_ns, ..Faults::NONE };
        self.losses = None;
        self.note(|_| Some("all faults are healed".into()));
        self.network.heal();
        self.power_loss_at = None;
        self.agent_away_until_ns.fill(0);
        for node in &mut self.nodes {
            node.set_space(DiskSpace::Enough, false);
            node.disk.mend();
        }
        self.full_until_ns.fill(0);
        self.missing_port = None;
        (0..self.nodes.len()).for_each(|node| self.queue.after(0, Event::NodeStart(node)));
        self.queue.after(0, Event::MetadataStart);
        self.heal_instances();
    }

    /// Replaces the fault rates from now on.
    pub fn disturb(&mut self, faults: Faults) {
        self.faults = Faults { disk_max_ns: self.faults.disk_max_ns, ..faults };
    }

    fn cut_off(&mut self, host: Host, direction: Direction) {
        for other in self.hosts().into_iter().filter(|other| *other != host) {
            if direction != Direction::Out {
                self.network.cut(other, host);
            }
            if direction != Direction::In {
                self.network.cut(host, other);
            }
        }
    }

    fn hosts(&self) -> Vec<Host> {
        let nodes = (0..self.nodes.len()).map(Host::Node);
        let clients = (0..self.clients.len()).map(Host::Client);
        let switches = (0..self.switches.len()).map(Host::Switch);
        let instances = (1..self.scenario.instances).map(Host::Instance);
        nodes.chain(clients).chain(switches).chain([Host::Metadata]).chain(instances).collect()
    }

    fn pause_node(&mut self, node: usize, pause_ns: u64) {
        self.tally.count("pauses");
        let until_ns = self.queue.now_ns() + pause_ns;
        self.note(|names| {
            Some(format!("{} is paused until {:.3}ms", names.host(Host::Node(node)), until_ns as f64 / 1e6))
        });
        self.nodes[node].paused_until_ns = until_ns;
        if self.scenario.edges {
            self.part_agent(node, pause_ns);
        }
        self.wake_node(node, until_ns);
    }

    // --- Random faults.

    /// Draws the faults of a node before it handles an event.
    pub(super) fn draw_node_fault(&mut self, index: usize) {
        self.look_at_losses();
        let may_fail = self.losses.is_none();
        if self.random.chance(self.faults.crash) && may_fail && self.may_crash(index) {
            self.tally.count("crashes");
            let kept = self.draw_loss(index);
            let downtime_ns = self.random.below(self.faults.downtime_max_ns);
            return self.crash_node(index, kept, Some(downtime_ns));
        }
        self.draw_snapshot(index);
        if self.random.chance(self.faults.pause) && may_fail {
            let pause_ns = self.random.below(self.faults.pause_max_ns);
            self.pause_node(index, pause_ns);
        }
        if self.random.chance(self.faults.wall_step) {
            self.tally.count("wall clock steps");
            self.nodes[index].clock.step_wall(&self.faults, &mut self.random);
        }
        if self.random.chance(self.faults.disk_full) {
            self.tally.count("changes of a disk's space");
            let spaces = [DiskSpace::Enough, DiskSpace::Enough, DiskSpace::Reserve, DiskSpace::Exhausted];
            let space = self.random.pick(&spaces);
            // The disk may have space for an op but not for a large value.
            let lacks_room = space != DiskSpace::Enough || self.random.below(2) == 0;
            self.nodes[index].set_space(space, lacks_room);
        }
        if self.random.chance(self.faults.corruption) && may_fail {
            self.damage_value(index);
        }
    }

    /// Replaces the entries of some of these keys at one of `holders`, with the rate of the fault
    /// `replacement`. The keys' entries are the same at all holders, as in a partition with a
    /// primary.
    pub fn replace_entries(&mut self, holders: &[usize], keys: &[(PartitionId, Vec<u8>)]) {
        let probability = self.scenario.faults.replacement;
        for key in keys {
            if !self.random.chance(probability) {
                continue;
            }
            let node = self.random.pick(holders);
            let stored = self.nodes[node].disk.entries()[key].clone();
            let entry = Entry::decode(&stored).expect("the core wrote it");
            let other = match self.random.below(3) {
                0 => None,
                1 => Some(Entry { value: Some(b"forged"), form: Form::Plain, ..entry }),
                _ => Some(Entry { index: entry.index - 1, value: Some(b"old"), form: Form::Plain, ..entry }),
            };
            let mut bytes = Vec::new();
            if let Some(other) = &other {
                other.append(&mut bytes);
            }
            self.tally.count("entries replaced");
            self.nodes[node].disk.replace(key, other.map(|_| &bytes[..]));
            self.nodes[node].shown.forget(key.0, &key.1);
            if self.random.below(4) == 0 {
                let longer = [&key.1[..], b"?"].concat();
                let is_possible = longer.len() <= KEY_BYTES_MAX && entry.may_be_of(&longer);
                let beginning = &key.1[..key.1.len() - usize::from(!is_possible)];
                let surplus = (key.0, [beginning, b"?"].concat());
                self.nodes[node].disk.replace(&surplus, Some(&stored));
                self.nodes[node].shown.forget(surplus.0, &surplus.1);
            }
        }
    }

    /// Whether a crash of this node would lose no data. A node that stores in memory may crash only
    /// while other members hold all its data, by their own state and by the metadata service's.
    fn may_crash(&self, index: usize) -> bool {
        if !self.nodes[index].in_memory {
            return true;
        }
        let now_ns = self.queue.now_ns();
        if self.is_unsettled() {
            return false;
        }
        let Some(metadata) = self.controllers.at_rest(now_ns) else { return false };
        let is_well = |node: &u16| {
            let node = &self.nodes[usize::from(*node) - 1];
            node.core.is_some() && node.paused_until_ns <= now_ns
        };
        let may_lose_storage = |shape: &Shape| shape.write_set != Some(1);
        !self.network.has_cuts()
            && self.scenario.keyspaces.iter().all(may_lose_storage)
            && !(self.scenario.keyspaces.iter().any(Shape::is_quorum) && self.has_damage())
            && metadata.status().partitions.iter().all(|partition| {
                let holds = |node: &u16| {
                    let status = self.nodes[usize::from(*node) - 1].core.as_ref().map(|core| core.status());
                    status.is_some_and(|status| {
                        status.partition(PartitionId(partition.id)).is_some_and(|known| {
                            known.epoch.0 == partition.epoch && known.standing == Standing::Consistent
                        })
                    })
                };
                // In a quorum keyspace a replica may hold data before the metadata service knows
                // it.
                let is_known =
                    |standing| matches!(standing, MemberStanding::Promoted | MemberStanding::Serving);
                let id = self.nodes[index].id.0;
                let others = partition.members.iter().filter(|member| {
                    let node = &member.node;
                    *node != id && is_known(member.standing) && is_well(node) && holds(node)
                });
                let is_member = partition.members.iter().any(|member| member.node == id);
                !is_member || others.count() + 1 == self.shape(partition.keyspace).replicas
            })
    }

    /// Whether the metadata service is about to change something, or a large value is missing
    /// somewhere.
    pub(super) fn is_unsettled(&self) -> bool {
        let now_ns = self.queue.now_ns();
        // A member that was reported as unresponsive may be removed before the crash is noticed.
        let is_accused = self.controllers.accused_ns.is_some_and(|at_ns| now_ns < at_ns + ACCUSED_NS);
        self.has_shared_step() || self.lacks_large() || is_accused
    }

    pub(super) fn draw_metadata_fault(&mut self) {
        if self.random.chance(self.faults.metadata_crash) {
            let downtime_ns = self.random.below(self.faults.downtime_max_ns);
            self.inject(Fault::MetadataCrash { downtime_ns });
        } else if self.random.chance(self.faults.metadata_pause) {
            let pause_ns = self.random.below(2 * self.faults.pause_max_ns);
            let takeover_ns = self.random.below(self.faults.downtime_max_ns);
            self.inject(Fault::MetadataPause { pause_ns, takeover_ns });
        }
    }

    /// Draws the event at which all power is lost next.
    pub(super) fn draw_power_loss(&mut self) {
        let mean = 1_000_000u64.checked_div(self.faults.power_loss);
        self.power_loss_at = mean.map(|mean| self.tally.events + 1 + self.random.below(2 * mean));
    }

    pub(super) fn lose_power(&mut self) {
        // Data in memory does not survive a power loss: see `may_crash`.
        if !self.nodes.iter().any(|node| node.in_memory) && self.losses.is_none() {
            let downtime_ns = self.random.below(self.faults.downtime_max_ns);
            self.power_off(downtime_ns);
        }
        self.draw_power_loss();
    }

    fn power_off(&mut self, downtime_ns: u64) {
        self.tally.count("losses of all power");
        self.note(|_| Some("all power is lost".into()));
        let victims = self.draw_losses();
        for node in 0..self.nodes.len() {
            let extra_ns = self.random.below(downtime_ns);
            match victims.iter().find(|(victim, _)| *victim == node) {
                // A node that loses data restarts after all nodes that kept theirs.
                Some((_, kept)) => self.crash_node(node, *kept, Some(2 * downtime_ns)),
                None => self.crash_node(node, Kept::Any, Some(downtime_ns + extra_ns)),
            }
        }
        (0..self.switches.len()).for_each(|switch| self.crash_switch(switch));
        if self.scenario.instances > 1 {
            return self.crash_instances(downtime_ns, true);
        }
        self.crash_metadata(downtime_ns);
    }

    pub(super) fn cut_or_mend(&mut self) {
        if self.faults.cut_interval_ns == 0 {
            return;
        }
        if self.random.below(2) == 0 || self.losses.is_some() {
            self.network.heal();
        } else {
            self.cut_somewhere();
        }
        let interval_ns = self.faults.cut_interval_ns;
        let pause_ns = self.random.between(interval_ns / 4, interval_ns);
        self.queue.after(pause_ns, Event::Cut);
    }

    fn cut_somewhere(&mut self) {
        let hosts = self.hosts();
        let (from, to) = (self.random.pick(&hosts), self.random.pick(&hosts));
        let both = self.random.below(2) == 0;
        if self.random.below(3) == 0 {
            let direction = if both { Direction::Both } else { Direction::Out };
            return self.inject(Fault::CutOff { host: from, direction });
        }
        self.inject(Fault::Cut { from, to });
        if both {
            self.network.cut(to, from);
        }
    }
}
