//! From partitions to switch tables (NICE §4.2, §4.5): a function of the persisted state and nothing else.
//!
//! ```text
//!   unicast_vring    vnodes of the partition ─▶ primary
//!   division         (partition, clients)    ─▶ another serving member
//!   multicast_vring  vnodes of the partition ─▶ consistent and copying members
//! ```
//!
//! Invariant: whoever the unicast ring names is a consistent member of the newest epoch.

use alloc::vec::Vec;
use core::net::Ipv4Addr;

use nicekv_dataplane::{
    DivisionEntry, Host, HostRole, MemberSet, MulticastEntry, Prefix, TableSet, UnicastEntry,
};
use nicekv_placement::{VnodeBlock, vnode_blocks};
use nicekv_wire::{NodeId, PartitionId};

use crate::config::{Balancing, Config, ServiceConfig, division_bits, host_id, service_host_id};
use crate::policy::Policy;
use crate::state::{Member, Partition, Standing, State};

/// All tables for `state`, as generation `generation`.
pub(crate) fn compile(config: &Config, state: &State, generation: u64) -> TableSet {
    let mut tables = TableSet { generation, hosts: hosts(config), ..TableSet::default() };
    for (id, partition) in state.partitions() {
        let keyspace = state.keyspace(partition);
        let blocks = vnode_blocks(partition.range).expect("partitions end with vnodes");
        for block in blocks {
            tables.unicast.push(UnicastEntry {
                destination: prefix(keyspace.unicast, block),
                partition: id.0,
                host: host_id(partition.primary),
            });
            tables.multicast.push(MulticastEntry {
                destination: prefix(keyspace.multicast, block),
                members: MemberSet::new(multicast_members(partition).map(|member| host_id(member.node))),
            });
        }
        if let Balancing::Source { clients } = config.balancing
            && Policy::of(keyspace).gets_are_spread
        {
            tables.division.extend(divisions(id, partition, clients, keyspace.replicas));
        }
    }
    tables
}

fn hosts(config: &Config) -> Vec<Host> {
    let host = |node: &crate::NodeConfig| Host {
        id: host_id(node.id),
        role: HostRole::Node,
        ip: node.address.ip().octets(),
        udp_port: node.address.port(),
        mac: node.mac,
        port: node.switch_port,
    };
    // Numbered from the end: nodes are numbered by the operator, from the beginning.
    let service = |(service, index): (&ServiceConfig, u16)| Host {
        id: service_host_id(index),
        role: HostRole::Metadata,
        ip: service.address.ip().octets(),
        udp_port: service.address.port(),
        mac: service.mac,
        port: service.switch_port,
    };
    config.nodes.iter().map(host).chain(config.services.iter().zip(0..).map(service)).collect()
}

/// The addresses of a block of vnodes in a ring.
fn prefix(ring: Ipv4Addr, block: VnodeBlock) -> Prefix {
    let [a, b, _, _] = ring.octets();
    let [c, d] = block.first.to_be_bytes();
    Prefix::new([a, b, c, d], 16 + block.bits)
}

fn multicast_members(partition: &Partition) -> impl Iterator<Item = &Member> {
    partition.members.iter().filter(|member| member.standing != Standing::Joining)
}

/// The client addresses in equal power-of-two parts, at least R, dealt out to the serving members in turn, each partition
/// beginning with another one. A part of the primary needs no entry.
fn divisions(
    id: PartitionId,
    partition: &Partition,
    clients: Prefix,
    replicas: usize,
) -> impl Iterator<Item = DivisionEntry> {
    let serving: Vec<NodeId> = partition
        .members
        .iter()
        .filter(|member| member.standing == Standing::Serving)
        .map(|member| member.node)
        .collect();
    let (primary, bits) = (partition.primary, division_bits(replicas));
    let length = clients.length + bits as u8;
    let parts = if serving.is_empty() { 0 } else { 1u32 << bits };
    (0..parts).filter_map(move |part| {
        let node = serving[(id.position() + part as usize) % serving.len()];
        // A shift by 32 means that there is one part: all addresses.
        let offset = part.checked_shl(32 - u32::from(length)).unwrap_or(0);
        let source = Prefix::new((clients.first() | offset).to_be_bytes(), length);
        let entry = DivisionEntry { partition: id.0, source, host: host_id(node) };
        (node != primary).then_some(entry)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::epochs;
    use crate::state::Process;
    use nicekv_wire::{KeyspaceId, MatchRange};

    fn first(originals: Vec<NodeId>) -> Partition {
        let process = |_| Process { incarnation: 1, storage: 1 };
        epochs::first(KeyspaceId::DEFAULT, MatchRange::ALL, originals, process)
    }

    fn divide(replicas: u16, id: u32) -> Vec<(String, u16)> {
        let mut partition = first((1..=replicas).map(NodeId).collect());
        for member in &mut partition.members {
            member.standing = Standing::Serving;
        }
        let clients = Prefix::new([10, 20, 2, 0], 24);
        let divisions = divisions(PartitionId(id), &partition, clients, replicas.into());
        divisions.map(|entry| (entry.source.to_string(), entry.host.0)).collect()
    }

    #[test]
    fn clients_are_dealt_out_to_the_members_in_turn() {
        let entry = |last: u8, length: u8, host: u16| (format!("10.20.2.{last}/{length}"), host);
        // Node 1 is the primary.
        assert_eq!(divide(3, 0), [entry(64, 26, 2), entry(128, 26, 3)]);
        assert_eq!(divide(3, 1), [entry(0, 26, 2), entry(64, 26, 3), entry(192, 26, 2)]);
        assert_eq!(divide(2, 0), [entry(128, 25, 2)]);
        assert_eq!(divide(1, 0), []);
    }

    #[test]
    fn one_division_of_all_addresses_is_possible() {
        let mut partition = first([NodeId(1), NodeId(2)].into());
        partition.members[1].standing = Standing::Serving;
        let all = Prefix::new([0; 4], 0);
        let entries: Vec<_> = divisions(PartitionId(0), &partition, all, 1).collect();
        assert_eq!(entries.len(), 1);
        assert_eq!((entries[0].source, entries[0].host), (all, host_id(NodeId(2))));
    }
}
