//! Announces the persisted state until it is acknowledged: assignments to nodes, tables to switches
//! ([`rules`], [`divisions`]). Every announcement is derived from persisted state only, so no
//! message can be sent before its step is persisted (R13).

pub(crate) mod directory;
pub(crate) mod divisions;
pub(crate) mod rules;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};

use nicekv_proto::chunk::Round;
use nicekv_proto::control::{
    Assign, Child as AnnouncedChild, HeartbeatReply, Member as AnnouncedMember, Parent as AnnouncedParent,
    Probe,
};
use nicekv_proto::hot::HotAssign;
use nicekv_proto::placement::{KeyspaceSpec, vnodes};
use nicekv_proto::{Epoch, KeyOrder, KeyspaceId, MatchRange, NodeId, PartitionId, Replication};

use crate::config::nanoseconds;
use crate::decide::dropped;
use crate::observe::{Observations, Stray};
use crate::state::{Child, Gone, Left, Member, Parent, Partition, Removed};
use crate::view::Situation;

/// Upper bound of unacknowledged assignments to one node; more would overflow its socket.
const ASSIGNS_IN_FLIGHT_MAX: usize = 64;
/// Upper bound of partitions that one node is asked to discard at the same time.
const DISCARDS_IN_FLIGHT_MAX: usize = 16;
/// Interval at which a node is asked again to discard the same partition.
const DISCARD_INTERVAL_NS: u64 = 1_000_000_000;
/// Capacity of the outbox in datagrams. Further datagrams are dropped, as a network may drop them.
const TRANSMIT_QUEUE_MAX: usize = 1 << 16;

/// A message to a node.
#[derive(Clone)]
pub(crate) enum Message {
    HeartbeatReply(HeartbeatReply),
    Assign(Box<Assign>),
    Probe(Probe),
    /// An encoded page of the directory.
    Directory(Vec<u8>),
    /// The holders of copies of a hot key. Hot keys only affect routing, so this does not depend on
    /// persisted state.
    HotAssign(HotAssign),
}

/// Outgoing datagrams.
#[derive(Clone, Default)]
pub(crate) struct Outbox {
    messages: VecDeque<(SocketAddrV4, Message)>,
}

impl Outbox {
    /// Queues a datagram. Returns false if there is no room.
    pub(crate) fn push(&mut self, address: SocketAddrV4, message: Message) -> bool {
        let has_room = self.messages.len() < TRANSMIT_QUEUE_MAX;
        if has_room {
            self.messages.push_back((address, message));
        }
        has_room
    }

    /// Writes the next datagram to `out` and returns its destination.
    pub(crate) fn pop(&mut self, out: &mut Vec<u8>) -> Option<SocketAddrV4> {
        let (address, message) = self.messages.pop_front()?;
        match message {
            Message::HeartbeatReply(message) => message.encode(out),
            Message::Assign(message) => message.encode(out),
            Message::Probe(message) => message.encode(out),
            Message::Directory(page) => *out = page,
            Message::HotAssign(message) => message.encode(out),
        }
        Some(address)
    }

    pub(crate) fn clear(&mut self) {
        self.messages.clear();
    }
}

/// An assignment that is due.
pub(crate) struct Announcement {
    pub(crate) node: NodeId,
    pub(crate) assign: Assign,
}

/// The assignments that are due. Every live member, and every former member that does not know yet
/// that it was removed, is sent the newest epoch until it acknowledges it.
pub(crate) fn due(situation: &Situation<'_>) -> Vec<Announcement> {
    let mut outstanding: BTreeMap<NodeId, usize> = BTreeMap::new();
    let interval_ns = nanoseconds(situation.config.timing.heartbeat);
    let mut due = Vec::new();
    let mut tell = |id, nodes: Vec<(NodeId, u64)>, assign: &dyn Fn(u64) -> Assign| {
        let watch = situation.observations.watch(id);
        for (node, incarnation) in nodes {
            let outstanding = outstanding.entry(node).or_default();
            if *outstanding == ASSIGNS_IN_FLIGHT_MAX {
                continue;
            }
            *outstanding += 1;
            if !watch.is_outstanding(node, situation.now_ns, interval_ns) {
                due.push(Announcement { node, assign: assign(incarnation) });
            }
        }
    };
    for (id, partition) in situation.state.partitions() {
        let nodes = uninformed(situation, id, partition);
        tell(id, nodes, &|incarnation| assign(situation, id, partition, incarnation));
    }
    for (id, spec, gone) in situation.state.gone() {
        let nodes = unaware(situation, id, &dropped::to_be_told(situation, gone));
        tell(id, nodes, &|incarnation| last_assign(situation, id, spec, gone, incarnation));
    }
    due
}

/// The orders to discard data that are due. They go to live nodes that hold the data, a few at a
/// time, and are repeated until the node reports that it has discarded them (R16).
pub(crate) fn due_discards(situation: &Situation<'_>) -> Vec<Announcement> {
    let mut told: BTreeMap<NodeId, usize> = BTreeMap::new();
    let mut due = Vec::new();
    let mut tell = |id, left: &[Left], assign: &dyn Fn(u64) -> Assign| {
        let watch = situation.observations.watch(id);
        for Left { node, .. } in left {
            let Some(process) = situation.observations.membership.live(*node) else { continue };
            let told = told.entry(*node).or_default();
            *told += 1;
            let has_turn = *told <= DISCARDS_IN_FLIGHT_MAX;
            if has_turn && !watch.is_discarding(*node, situation.now_ns, DISCARD_INTERVAL_NS) {
                let assign = Assign { discard: true, ..assign(process.incarnation) };
                due.push(Announcement { node: *node, assign });
            }
        }
    };
    for (id, spec, gone) in situation.state.gone().filter(|(_, _, gone)| gone.quiet) {
        tell(id, &gone.left, &|incarnation| last_assign(situation, id, spec, gone, incarnation));
    }
    for (id, partition) in situation.state.partitions().filter(|(_, partition)| !partition.left.is_empty()) {
        // An absent original needs the data that it holds when it returns.
        let is_needed = |left: &Left| partition.has(left.node);
        let left: Vec<_> = partition.left.iter().copied().filter(|left| !is_needed(left)).collect();
        if !left.is_empty() && situation.may_discard(id, partition) {
            tell(id, &left, &|incarnation| assign(situation, id, partition, incarnation));
        }
    }
    due
}

/// The assignment for a partition that a node has found on its disk. It says to discard the
/// partition if the node should not be a member and the data are not needed (R16); otherwise there
/// is none. If the id was assigned and the partition no longer exists, its data are not needed,
/// even if this state is an older copy.
pub(crate) fn for_stray(situation: &Situation<'_>, node: NodeId, stray: &Stray) -> Option<Announcement> {
    let Stray { partition: id, incarnation, replication } = *stray;
    let state = situation.state;
    if !situation.observations.membership.is_live(node, incarnation) {
        return None;
    }
    let discard = match state.partition(id) {
        Some(partition) if partition.has(node) || !situation.may_discard(id, partition) => return None,
        Some(partition) => assign(situation, id, partition, incarnation),
        None if !state.was_given(id) || state.is_awaited(id) => return None,
        // The largest epoch, so that no later one can follow.
        None => Assign {
            epoch: Epoch(u32::MAX),
            activated: true,
            ..without_members(situation, id, replication, incarnation)
        },
    };
    Some(Announcement { node, assign: Assign { discard: true, ..discard } })
}

/// Live processes of members and former members that have not acknowledged the newest epoch.
fn uninformed(situation: &Situation<'_>, id: PartitionId, partition: &Partition) -> Vec<(NodeId, u64)> {
    let view = situation.view(id, partition);
    let members = partition.members.iter().filter(|member| !view.is_informed(member));
    let members = members.map(|member| (member.node, member.process.incarnation));
    let removed = partition.removed.iter().filter(|removed| partition.member(removed.node).is_none());
    let removed: Vec<_> = removed.copied().collect();
    let membership = &situation.observations.membership;
    let members = members.filter(|(node, incarnation)| membership.is_live(*node, *incarnation));
    members.chain(unaware(situation, id, &removed)).collect()
}

/// Live processes of former members that have not acknowledged that they are not members.
fn unaware(situation: &Situation<'_>, id: PartitionId, removed: &[Removed]) -> Vec<(NodeId, u64)> {
    let Observations { membership, .. } = situation.observations;
    let watch = situation.observations.watch(id);
    let is_unaware = |removed: &&Removed| {
        let known = watch.acknowledged(removed.node, removed.incarnation);
        known.is_none_or(|known| known.epoch < removed.since)
    };
    let unaware = removed.iter().filter(is_unaware).map(|removed| (removed.node, removed.incarnation));
    unaware.filter(|(node, incarnation)| membership.is_live(*node, *incarnation)).collect()
}

/// The last epoch of a partition that no longer exists; it has no members.
fn last_assign(
    situation: &Situation<'_>,
    id: PartitionId,
    spec: &KeyspaceSpec,
    gone: &Gone,
    incarnation: u64,
) -> Assign {
    let multicast = spec.vrings(situation.config.port).multicast_ring();
    Assign {
        keyspace: spec.id,
        range: gone.range,
        order: spec.order,
        multicast,
        epoch: Epoch(gone.epoch),
        activated: gone.quiet,
        replicas: spec.replicas as u8,
        ..without_members(situation, id, spec.replication(), incarnation)
    }
}

/// An assignment without members.
fn without_members(
    situation: &Situation<'_>,
    id: PartitionId,
    replication: Replication,
    incarnation: u64,
) -> Assign {
    Assign {
        term: situation.state.term(),
        incarnation,
        partition: id,
        keyspace: KeyspaceId::DEFAULT,
        range: MatchRange::ALL,
        order: KeyOrder::Hash,
        replication,
        multicast: SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0),
        epoch: Epoch::default(),
        activated: false,
        primary: NodeId(0),
        replicas: replication.quorum().map_or(1, |quorum| quorum.replicas() as u8),
        members: Vec::new(),
        discard: false,
        children: Vec::new(),
        sealed: false,
        parents: Vec::new(),
        stamp_min: Round::default(),
    }
}

fn assign(situation: &Situation<'_>, id: PartitionId, partition: &Partition, incarnation: u64) -> Assign {
    let Situation { config, state, .. } = situation;
    let keyspace = state.keyspace(partition);
    // Any vnode of the partition will do, because each reaches all of its members.
    let (vnode, _) = vnodes(partition.range);
    let member = |member: &Member| AnnouncedMember {
        node: member.node,
        state: member.standing.announced(),
        role: partition.role(member),
        address: config.node(member.node).expect("members are configured").address,
    };
    let forming = partition.forming.as_ref();
    let order = keyspace.order;
    let child = |child: &Child| AnnouncedChild { partition: child.partition, range: child.range, order };
    let parent = |parent: &Parent| AnnouncedParent { partition: parent.partition, index: parent.index };
    Assign {
        term: state.term(),
        incarnation,
        partition: id,
        keyspace: partition.keyspace,
        range: partition.range,
        order,
        replication: keyspace.replication(),
        multicast: keyspace.vrings(config.port).multicast_vnode(vnode),
        epoch: partition.epoch(),
        activated: partition.activated,
        primary: partition.primary,
        replicas: keyspace.replicas as u8,
        members: partition.members.iter().map(member).collect(),
        discard: false,
        children: forming.map(|forming| forming.children.iter().map(child).collect()).unwrap_or_default(),
        sealed: forming.is_some_and(|forming| forming.sealed),
        parents: partition.parents.iter().map(parent).collect(),
        // A chunk that was put in the previous round may still get its name.
        stamp_min: Round(partition.round.saturating_sub(1)),
    }
}
