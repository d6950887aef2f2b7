//! A controller and a model of a switch, which exchange bytes.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use nicekv_proto::Now;
use nicekv_switch::{HostId, Table, TableSet};
use nicekv_switch_fixtures::{Fixture, PORTS, ROUTER_MAC, cases, tables, vrings};
use proptest::prelude::*;

use super::*;
use crate::model::ModelSwitch;
use crate::program::FlowKey;
use crate::wire::{
    self, Action, BundleControl, Description, Features, Field, GroupCommand, GroupMod, HEADER_BYTES, Hello,
    Instruction, MultipartReply,
};

const NOW: Now = Now { boot_ns: 0, unix_ms: 0 };
const TABLE_FULL: SwitchError = SwitchError { kind: 5, code: 1, data: Vec::new() };

/// A switch that speaks OpenFlow.
#[derive(Default)]
struct Peer {
    model: ModelSwitch,
    has_bundles: bool,
    bundle: Option<Vec<Message>>,
    /// Flows that it has room for.
    capacity: Option<usize>,
    /// It refuses to commit bundles.
    refuses_commits: bool,
    /// It deletes nothing.
    deletes_nothing: bool,
    /// The highest generation of a primary role.
    term: u64,
    received: Vec<u8>,
    /// Changes and bundles that came, in their order.
    log: Vec<Message>,
}

impl Peer {
    fn new(has_bundles: bool) -> Self {
        Self { has_bundles, ..Self::default() }
    }

    /// Handles at most `most` messages of these bytes, and returns the replies.
    fn serve(&mut self, bytes: &[u8], most: usize) -> Vec<u8> {
        self.received.extend_from_slice(bytes);
        let mut replies = Vec::new();
        for _ in 0..most {
            let Some(length) = wire::message_bytes(&self.received).unwrap() else { break };
            let rest = self.received.split_off(length);
            let message = std::mem::replace(&mut self.received, rest);
            let (transaction, message) = wire::decode(&message).unwrap();
            for reply in self.handle(message) {
                wire::encode(transaction, &reply, &mut replies).unwrap();
            }
        }
        replies
    }

    fn handle(&mut self, message: Message) -> Vec<Message> {
        match message {
            Message::Hello(_) => vec![Message::Hello(Hello { version: 4, versions: None })],
            Message::RoleRequest(status) if status.generation < self.term => {
                vec![Message::Error(error(11, 0))]
            }
            Message::RoleRequest(status) => {
                self.term = status.generation;
                vec![Message::RoleReply(status)]
            }
            Message::FeaturesRequest => {
                let features =
                    Features { datapath: 1, buffers: 0, tables: 254, auxiliary: 0, capabilities: 0 };
                vec![Message::FeaturesReply(features)]
            }
            Message::MultipartRequest(request) => self.parts(&request),
            Message::BarrierRequest => vec![Message::BarrierReply],
            Message::SetConfig(_) => vec![],
            Message::Bundle(control) => vec![self.step(control)],
            Message::BundleAdd(add) => {
                self.log.push(Message::BundleAdd(add.clone()));
                match &mut self.bundle {
                    Some(bundle) if self.capacity.is_none_or(|most| bundle.len() < most) => {
                        bundle.push(*add.message);
                        vec![]
                    }
                    _ => vec![Message::Error(TABLE_FULL)],
                }
            }
            change => self.change(&change).err().map(Message::Error).into_iter().collect(),
        }
    }

    fn change(&mut self, change: &Message) -> Result<(), SwitchError> {
        self.log.push(change.clone());
        if let Message::FlowMod(flow) = change {
            let is_deletion = matches!(flow.command, wire::FlowCommand::DeleteStrict);
            if is_deletion && self.deletes_nothing {
                return Err(error(1, 9));
            }
            if !is_deletion && self.capacity.is_some_and(|most| self.model.flows.len() >= most) {
                return Err(TABLE_FULL);
            }
        }
        let refusal = if let Message::MeterMod(_) = change { error(12, 1) } else { error(6, 0) };
        self.model.change(change).map_err(|_| refusal)
    }

    fn step(&mut self, control: BundleControl) -> Message {
        self.log.push(Message::Bundle(control));
        if !self.has_bundles {
            return Message::Error(error(1, 3));
        }
        let step = match control.step {
            BundleStep::OpenRequest => {
                self.bundle = Some(Vec::new());
                BundleStep::OpenReply
            }
            BundleStep::CommitRequest if self.refuses_commits => {
                self.bundle = None;
                return Message::Error(TABLE_FULL);
            }
            BundleStep::CommitRequest => {
                for message in self.bundle.take().expect("an open bundle") {
                    self.model.change(&message).expect("a sound bundle");
                }
                BundleStep::CommitReply
            }
            BundleStep::DiscardRequest if self.bundle.take().is_none() => {
                return Message::Error(error(17, 4));
            }
            _ => BundleStep::DiscardReply,
        };
        Message::Bundle(BundleControl { step, ..control })
    }

    /// The reply in several messages, as a switch with many flows sends it.
    fn parts(&self, request: &MultipartRequest) -> Vec<Message> {
        let parts: Vec<Part> = match request {
            MultipartRequest::Description => vec![Part::Description(Description::default())],
            MultipartRequest::Ports => vec![Part::Ports(Vec::new())],
            MultipartRequest::Groups => {
                let group = |(group, buckets): (&u32, &Vec<Vec<Action>>)| GroupStatus {
                    kind: GroupKind::All,
                    group: *group,
                    buckets: buckets.clone(),
                };
                vec![Part::Groups(self.model.groups.iter().map(group).collect())]
            }
            MultipartRequest::Flows { .. } => {
                let status = |((table, priority, matches), flow): (&_, &crate::model::Installed)| {
                    let core::cmp::Reverse(priority) = *priority;
                    let (matches, instructions): (&Match, _) = (matches, flow.instructions.clone());
                    let matches = matches.clone();
                    FlowStatus {
                        table: *table,
                        priority,
                        cookie: 0,
                        packets: flow.packets,
                        bytes: 0,
                        matches,
                        instructions,
                    }
                };
                let flows: Vec<FlowStatus> = self.model.flows.iter().map(status).collect();
                let mut parts: Vec<Part> =
                    flows.chunks(100).map(|flows| Part::Flows(flows.to_vec())).collect();
                parts.push(Part::Flows(Vec::new()));
                parts
            }
            other => panic!("{other:?} is not requested"),
        };
        let last = parts.len() - 1;
        let reply = |(at, part)| Message::MultipartReply(MultipartReply { has_more: at < last, part });
        parts.into_iter().enumerate().map(reply).collect()
    }
}

fn error(kind: u16, code: u16) -> SwitchError {
    SwitchError { kind, code, data: Vec::new() }
}

/// Lets both talk until neither has anything to say.
fn talk(controller: &mut Controller, peer: &mut Peer) -> Vec<Event> {
    loop {
        let bytes = std::mem::take(controller.unsent());
        if bytes.is_empty() {
            assert_eq!(controller.error(), None);
            return std::iter::from_fn(|| controller.poll_event()).collect();
        }
        let replies = peer.serve(&bytes, usize::MAX);
        controller.handle_bytes(NOW, &replies);
    }
}

fn connected(peer: &mut Peer, term: u64) -> Controller {
    let mut controller = Controller::new(NOW, term);
    let events = talk(&mut controller, peer);
    assert!(matches!(events[..], [Event::Ready(_)]), "{events:?}");
    controller
}

fn fabric() -> Fabric {
    Fabric {
        vrings: vrings(),
        router_mac: ROUTER_MAC,
        ports: PORTS.collect(),
        trunks: [].into(),
        requests_per_second: Some(10_000),
        learns: false,
    }
}

/// The fixtures' tables, as far as an OpenFlow switch supports them.
fn plain() -> TableSet {
    let mut tables = tables();
    tables.record.clear();
    tables.unicast.retain(|entry| entry.chain.is_none());
    tables.multicast.retain(|entry| entry.chain.is_none() && entry.places.is_none());
    tables
}

/// Other tables.
fn changed() -> TableSet {
    let mut tables = plain();
    tables.unicast[0].host = HostId(3);
    tables.division.pop();
    tables.multicast[0].members = nicekv_switch::MemberSet::new([HostId(2), HostId(3)]);
    tables
}

fn install(controller: &mut Controller, peer: &mut Peer, tables: &TableSet) -> Vec<Event> {
    controller.set_tables(&fabric(), tables, &BTreeMap::new()).unwrap();
    talk(controller, peer)
}

/// What a switch with these tables sends for some packets, each from its port.
fn forwarded(peer: &Peer) -> Vec<Vec<(u16, Vec<u8>)>> {
    static PROBES: LazyLock<Vec<Fixture>> = LazyLock::new(|| cases::all().into_iter().step_by(7).collect());
    let mut model = peer.model.clone();
    PROBES.iter().map(|probe| model.process(probe.ingress, &probe.frame)).collect()
}

fn forwarded_by(tables: &TableSet) -> Vec<Vec<(u16, Vec<u8>)>> {
    let mut peer = Peer::new(true);
    let mut controller = connected(&mut peer, 1);
    assert_eq!(install(&mut controller, &mut peer, tables), [Event::Installed]);
    forwarded(&peer)
}

#[test]
fn tables_are_installed_changed_and_found_again() {
    for has_bundles in [true, false] {
        let mut peer = Peer::new(has_bundles);
        let mut controller = connected(&mut peer, 7);
        assert_eq!(install(&mut controller, &mut peer, &plain()), [Event::Installed]);
        assert_eq!(forwarded(&peer), forwarded_by(&plain()));
        assert_eq!(install(&mut controller, &mut peer, &changed()), [Event::Installed]);
        assert_eq!(forwarded(&peer), forwarded_by(&changed()));
        // Another controller finds what it would install, and sends nothing but meters.
        let mut next = connected(&mut peer, 8);
        let before = peer.model.flows.keys().next_back().cloned();
        peer.log.clear();
        assert_eq!(install(&mut next, &mut peer, &changed()), [Event::Installed]);
        let others = peer.log.iter().filter(|message| !matches!(message, Message::MeterMod(_))).count();
        assert_eq!(others == 0, has_bundles, "without bundles there is a new generation");
        assert_eq!(forwarded(&peer), forwarded_by(&changed()));
        assert!(before.is_some());
    }
}

#[test]
fn barrier_follows_every_flip() {
    for has_bundles in [true, false] {
        let mut peer = Peer::new(has_bundles);
        let mut controller = connected(&mut peer, 7);
        controller.set_tables(&fabric(), &plain(), &BTreeMap::new()).unwrap();
        assert_eq!(
            controller.set_tables(&fabric(), &plain(), &BTreeMap::new()),
            Err(InstallError::Busy),
            "one change at a time"
        );
        let (old, new) = (forwarded(&peer), forwarded_by(&plain()));
        // One message after the other: before the event, nobody may rely on the new tables.
        let mut waiting = std::mem::take(controller.unsent());
        for handled in 0.. {
            let replies = peer.serve(&waiting, 1);
            waiting.clear();
            controller.handle_bytes(NOW, &replies);
            waiting.append(controller.unsent());
            if handled % 5 == 0 {
                let now = forwarded(&peer);
                assert!(now == old || now == new, "a mixture");
            }
            if let Some(event) = controller.poll_event() {
                assert_eq!(event, Event::Installed);
                assert!(forwarded(&peer) == new);
                break;
            }
        }
    }
}

#[test]
fn refused_change_leaves_the_old_tables_in_force() {
    for (has_bundles, refuses_commits) in [(true, false), (true, true), (false, false)] {
        let mut peer = Peer::new(has_bundles);
        let mut controller = connected(&mut peer, 7);
        install(&mut controller, &mut peer, &plain());
        let state = peer.model.state();
        peer.refuses_commits = refuses_commits;
        peer.capacity =
            (!refuses_commits).then_some(if has_bundles { 3 } else { peer.model.flows.len() + 9 });
        let events = install(&mut controller, &mut peer, &changed());
        assert_eq!(events, [Event::Refused("the switch's flow table is full".into())]);
        assert!(peer.model.state() == state, "bundles: {has_bundles}");
        (peer.refuses_commits, peer.capacity) = (false, None);
        assert_eq!(install(&mut controller, &mut peer, &changed()), [Event::Installed]);
        assert_eq!(forwarded(&peer), forwarded_by(&changed()));
    }
}

#[test]
fn what_cannot_be_removed_harms_nothing_and_is_removed_later() {
    let mut peer = Peer::new(false);
    let mut controller = connected(&mut peer, 7);
    install(&mut controller, &mut peer, &plain());
    peer.deletes_nothing = true;
    assert_eq!(install(&mut controller, &mut peer, &changed()), [Event::Installed]);
    assert_eq!(forwarded(&peer), forwarded_by(&changed()));
    peer.deletes_nothing = false;
    assert_eq!(install(&mut controller, &mut peer, &plain()), [Event::Installed]);
    let mut fresh = Peer::new(false);
    let mut other = connected(&mut fresh, 7);
    install(&mut other, &mut fresh, &plain());
    assert_eq!(peer.model.flows.len(), fresh.model.flows.len());
    assert_eq!(forwarded(&peer), forwarded_by(&plain()));
}

#[test]
fn foreign_flows_and_groups_are_deleted() {
    for has_bundles in [true, false] {
        let mut peer = Peer::new(has_bundles);
        let bucket = vec![vec![Action::output(1)]];
        for group in [1, 9] {
            let command = GroupCommand::Add;
            let add = GroupMod { command, kind: GroupKind::All, group, buckets: bucket.clone() };
            peer.model.change(&Message::GroupMod(add)).unwrap();
        }
        let flow = wire::FlowMod {
            command: wire::FlowCommand::Add,
            table: 0,
            priority: 9,
            cookie: 0,
            cookie_mask: 0,
            matches: Match::default().with(Field::InPort, 3u16),
            instructions: vec![Instruction::Apply(vec![Action::Group(9)])],
        };
        peer.model.change(&Message::FlowMod(flow)).unwrap();
        let mut controller = connected(&mut peer, 7);
        assert_eq!(install(&mut controller, &mut peer, &plain()), [Event::Installed]);
        assert_eq!(forwarded(&peer), forwarded_by(&plain()));
        assert!(!peer.model.groups.contains_key(&9));
    }
}

#[test]
fn counts_are_those_of_the_flows() {
    let mut peer = Peer::new(true);
    let mut controller = connected(&mut peer, 7);
    install(&mut controller, &mut peer, &plain());
    let probe = cases::all().into_iter().find(|probe| probe.name == "unicast default host").unwrap();
    (0..3).for_each(|_| drop(peer.model.process(probe.ingress, &probe.frame)));
    controller.read_counts().unwrap();
    let events = talk(&mut controller, &mut peer);
    let [Event::Counts(counts)] = &events[..] else { panic!("{events:?}") };
    let entry = Meaning::Entry { table: Table::Unicast, position: 0, is_from_node: false };
    let key = controller.program().flows.iter().find(|(_, flow)| flow.meaning == entry).unwrap().0;
    assert_eq!(counts[key], 3);
    let program: Vec<&FlowKey> = controller.program().flows.keys().collect();
    assert_eq!(counts.keys().collect::<Vec<_>>(), program);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// A controller dies in the middle of a change, wherever that is: the switch forwards by the old
    /// tables or by the new ones, and the next controller makes it forward by its own.
    #[test]
    fn killed_controller_leaves_no_mixture(handled in 0usize..400, has_bundles: bool) {
        let mut peer = Peer::new(has_bundles);
        let mut controller = connected(&mut peer, 7);
        install(&mut controller, &mut peer, &plain());
        controller.set_tables(&fabric(), &changed(), &BTreeMap::new()).unwrap();
        let mut left = handled;
        while left > 0 && !controller.unsent().is_empty() {
            let bytes = std::mem::take(controller.unsent());
            let messages = bytes.len() / HEADER_BYTES;
            let replies = peer.serve(&bytes, left);
            left = left.saturating_sub(messages);
            controller.handle_bytes(NOW, &replies);
        }
        drop(controller);
        peer.received.clear();
        peer.bundle = None;
        let now = forwarded(&peer);
        prop_assert!(now == forwarded_by(&plain()) || now == forwarded_by(&changed()));
        let mut next = connected(&mut peer, 8);
        prop_assert_eq!(install(&mut next, &mut peer, &changed()), [Event::Installed]);
        prop_assert_eq!(forwarded(&peer), forwarded_by(&changed()));
        let mut fresh = Peer::new(has_bundles);
        let mut other = connected(&mut fresh, 7);
        install(&mut other, &mut fresh, &changed());
        prop_assert_eq!(peer.model.flows.len(), fresh.model.flows.len());
        prop_assert_eq!(peer.model.groups.len(), fresh.model.groups.len());
    }
}
