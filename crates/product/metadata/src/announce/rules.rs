//! Compiles partitions to switch tables (NICE §4.2, §4.5): a function of the persisted state only.
//!
//! ```text
//!   unicast_vring    vnodes of the partition ─▶ primary
//!   division         (partition, clients)    ─▶ another serving member
//!   multicast_vring  vnodes of the partition ─▶ consistent and copying members
//!   record           match values of a range partition ─▶ both of these
//!   multicast_vring  a group of storage targets ─▶ those whose bits are in the address (Replicast §III)
//! ```
//!
//! For a chain, the unicast ring leads to the tail and the multicast ring only to the head; both
//! entries have the epoch and the nodes, for the header that switches write (C5).
//!
//! Invariant: the host of a unicast entry is a consistent member in the newest epoch.

use alloc::vec::Vec;
use core::net::Ipv4Addr;

use nicekv_proto::placement::{KeyOrder, KeyspaceSpec, VnodeBlock, vnode_blocks};
use nicekv_proto::{NodeId, PartitionId};
use nicekv_switch::{
    Chain, Host, HostRole, Matching, MemberSet, MulticastEntry, Prefix, RecordEntry, Table, TableSet,
    UnicastEntry, masked_entry, subset_entries,
};

use super::divisions;
use crate::config::{Config, ServiceConfig, host_id, service_host_id};
use crate::policy::Policy;
use crate::state::{Member, Partition, Standing, State};

/// Prefix length of a ring.
const RING_BITS: u8 = 16;

/// All tables for `state`, without a generation.
pub(crate) fn compile(config: &Config, state: &State) -> TableSet {
    compile_within(config, state, Table::Division.capacity())
}

/// Like [`compile`], with at most `divisions_max` divisions.
pub(crate) fn compile_within(config: &Config, state: &State, divisions_max: usize) -> TableSet {
    let (division, _) = divisions::entries(config, state, divisions_max);
    let mut tables = TableSet { hosts: hosts(config), division, ..TableSet::default() };
    for (id, partition) in state.partitions() {
        let keyspace = state.keyspace(partition);
        let is_chain = Policy::of(keyspace).is_chain;
        let answering = if is_chain { partition.tail() } else { partition.primary };
        let chain = is_chain.then(|| chain(id, partition));
        if keyspace.order == KeyOrder::Range {
            tables.record.push(record(keyspace, id, partition, answering, chain));
            continue;
        }
        let blocks = vnode_blocks(partition.range).expect("partitions end with vnodes");
        for block in blocks {
            tables.unicast.push(UnicastEntry {
                destination: prefix(keyspace.unicast, block),
                partition: id.0,
                host: host_id(answering),
                chain,
            });
            tables.multicast.push(MulticastEntry {
                destination: prefix(keyspace.multicast, block),
                members: members(partition, is_chain),
                chain,
                places: None,
            });
        }
    }
    if let (Some(ring), Some(chunks)) = (&config.group_ring, &state.chunks) {
        for (group, targets) in (0..).zip(&chunks.layout.groups) {
            let order: Vec<_> =
                targets.iter().map(|target| target.map(|node| host_id(NodeId(node)))).collect();
            match config.matching {
                Matching::Messages => tables.multicast.extend(masked_entry(ring, group, &order)),
                Matching::Headers => tables.multicast.extend(subset_entries(ring, group, &order)),
            }
        }
    }
    tables
}

/// The record of a range partition.
fn record(
    keyspace: &KeyspaceSpec,
    id: PartitionId,
    partition: &Partition,
    answering: NodeId,
    chain: Option<Chain>,
) -> RecordEntry {
    RecordEntry {
        ring: Prefix::new(keyspace.unicast.octets(), RING_BITS),
        keyspace: keyspace.id.0,
        first: partition.range.first(),
        last: partition.range.last(),
        partition: id.0,
        host: host_id(answering),
        members: members(partition, chain.is_some()),
        chain,
    }
}

/// The chain from head to tail. A joiner comes after the tail, and no request passes it (C8).
fn chain(id: PartitionId, partition: &Partition) -> Chain {
    let place = |node| partition.members.iter().position(|member| member.node == node).unwrap_or(0);
    let (head, tail) = (place(partition.primary), place(partition.tail()));
    let nodes = partition.members.iter().take(tail + 1).skip(head);
    Chain::new(id.0, partition.epoch, nodes.map(|member| host_id(member.node)))
}

fn members(partition: &Partition, is_chain: bool) -> MemberSet {
    MemberSet::new(multicast_members(partition, is_chain).map(|member| host_id(member.node)))
}

fn hosts(config: &Config) -> Vec<Host> {
    let host = |node: &crate::NodeConfig| Host {
        id: host_id(node.id),
        role: HostRole::Node,
        ip: node.address.ip().octets(),
        udp_port: node.address.port(),
        mac: node.mac,
        port: node.switch_port,
        is_remote: false,
    };
    // Ids of services count down from the largest, because operators number nodes upwards.
    let service = |(service, index): (&ServiceConfig, u16)| Host {
        id: service_host_id(index),
        role: HostRole::Metadata,
        ip: service.address.ip().octets(),
        udp_port: service.address.port(),
        mac: service.mac,
        port: service.switch_port,
        is_remote: false,
    };
    config.nodes.iter().map(host).chain(config.services.iter().zip(0..).map(service)).collect()
}

/// The addresses of a block of vnodes in a ring.
fn prefix(ring: Ipv4Addr, block: VnodeBlock) -> Prefix {
    let [a, b, _, _] = ring.octets();
    let [c, d] = block.first.to_be_bytes();
    Prefix::new([a, b, c, d], RING_BITS + block.bits)
}

fn multicast_members(partition: &Partition, is_chain: bool) -> impl Iterator<Item = &Member> {
    let takes_puts = move |member: &&Member| match is_chain {
        true => member.node == partition.primary,
        false => member.standing != Standing::Joining,
    };
    partition.members.iter().filter(takes_puts)
}
