//! What follows from the persisted state for others, and is said until they acknowledge it: assignments to nodes, tables to switches
//! ([`rules`], [`divisions`]). As it is derived from nothing else, no message can outrun its step (R13).

pub(crate) mod divisions;
pub(crate) mod rules;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::SocketAddrV4;

use nicekv_wire::control::{Assign, HeartbeatReply, Member as AnnouncedMember, Probe};
use nicekv_wire::{NodeId, PartitionId};

use crate::config::nanoseconds;
use crate::state::{Member, Partition};
use crate::view::Situation;

/// Most assignments on their way to one node; more would overrun its socket.
const ASSIGNS_IN_FLIGHT_MAX: usize = 64;
/// Most datagrams that wait to be polled; more are dropped, as by a network.
const TRANSMIT_QUEUE_MAX: usize = 1 << 16;

/// To a node.
#[derive(Clone)]
pub(crate) enum Message {
    HeartbeatReply(HeartbeatReply),
    Assign(Box<Assign>),
    Probe(Probe),
}

/// Datagrams that wait to be polled.
#[derive(Clone, Default)]
pub(crate) struct Outbox {
    messages: VecDeque<(SocketAddrV4, Message)>,
}

impl Outbox {
    /// Returns whether there was room.
    pub(crate) fn push(&mut self, address: SocketAddrV4, message: Message) -> bool {
        let has_room = self.messages.len() < TRANSMIT_QUEUE_MAX;
        if has_room {
            self.messages.push_back((address, message));
        }
        has_room
    }

    /// Writes the next datagram to `out` and returns where it goes.
    pub(crate) fn pop(&mut self, out: &mut Vec<u8>) -> Option<SocketAddrV4> {
        let (address, message) = self.messages.pop_front()?;
        match message {
            Message::HeartbeatReply(message) => message.encode(out),
            Message::Assign(message) => message.encode(out),
            Message::Probe(message) => message.encode(out),
        }
        Some(address)
    }

    pub(crate) fn clear(&mut self) {
        self.messages.clear();
    }
}

/// An assignment that is to be sent now.
pub(crate) struct Announcement {
    pub(crate) node: NodeId,
    pub(crate) assign: Assign,
}

/// What every live member, and every former one that does not know that it is none, has to be told now: the newest epoch, until it
/// is acknowledged.
pub(crate) fn due(situation: &Situation<'_>) -> Vec<Announcement> {
    let mut outstanding: BTreeMap<NodeId, usize> = BTreeMap::new();
    let interval_ns = nanoseconds(situation.config.timing.heartbeat);
    let mut due = Vec::new();
    for (id, partition) in situation.state.partitions() {
        let watch = situation.observations.watch(id);
        for (node, incarnation) in uninformed(situation, id, partition) {
            let outstanding = outstanding.entry(node).or_default();
            if *outstanding == ASSIGNS_IN_FLIGHT_MAX {
                continue;
            }
            *outstanding += 1;
            if !watch.is_outstanding(node, situation.now_ns, interval_ns) {
                due.push(Announcement { node, assign: assign(situation, id, partition, incarnation) });
            }
        }
    }
    due
}

/// Live processes that have not acknowledged what the partition is now.
fn uninformed(situation: &Situation<'_>, id: PartitionId, partition: &Partition) -> Vec<(NodeId, u64)> {
    let view = situation.view(id, partition);
    let members = partition.members.iter().filter(|member| !view.is_informed(member));
    let members = members.map(|member| (member.node, member.process.incarnation));
    let removed = partition.removed.iter().filter(|removed| view.is_unaware(removed));
    let removed = removed.map(|removed| (removed.node, removed.incarnation));
    let membership = &situation.observations.membership;
    members.chain(removed).filter(|(node, incarnation)| membership.is_live(*node, *incarnation)).collect()
}

fn assign(situation: &Situation<'_>, id: PartitionId, partition: &Partition, incarnation: u64) -> Assign {
    let Situation { config, state, .. } = situation;
    let keyspace = state.keyspace(partition);
    // Any vnode of the partition reaches all of its members.
    let vnode = (partition.range.first() >> 112) as u16;
    let member = |member: &Member| AnnouncedMember {
        node: member.node,
        state: member.standing.announced(),
        role: partition.role(member),
        address: config.node(member.node).expect("members are configured").address,
    };
    Assign {
        term: state.term(),
        incarnation,
        partition: id,
        keyspace: partition.keyspace,
        range: partition.range,
        replication: keyspace.replication(),
        multicast: keyspace.vrings(config.port).multicast_vnode(vnode),
        epoch: partition.epoch(),
        activated: partition.activated,
        primary: partition.primary,
        replicas: keyspace.replicas as u8,
        members: partition.members.iter().map(member).collect(),
    }
}
