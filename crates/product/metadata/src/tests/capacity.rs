//! The predicted capacity of a switch matches the size of the compiled tables.

use std::collections::BTreeMap;

use nicekv_proto::placement::{KeyspaceDefaults, KeyspaceSpec, RingsBase};
use nicekv_proto::{KeyspaceId, MatchRange, NodeId};
use nicekv_switch::{Prefix, TableSet};

use super::cluster::config;
use crate::announce::{divisions, rules};
use crate::decide::{epochs, revise_divisions};
use crate::observe::Observations;
use crate::state::{Process, Standing, State};
use crate::targets::Targets;
use crate::view::Situation;
use crate::{Balancing, Config, Demand, NodeConfig, SwitchCapacity};

const R: usize = 3;

/// A ring of nodes, each of which leads a partition of one vnode. The next `replicas - 1` nodes
/// also hold it.
fn cluster(nodes: usize, replicas: usize, is_balanced: bool) -> (Config, State) {
    let mut config = config(1, 1);
    let mut state = State::new(&config);
    let clients = Prefix::new([10, 20, 2, 0], 24);
    config.balancing = if is_balanced { Balancing::Source { clients } } else { Balancing::None };
    let node = |number: usize| NodeConfig {
        id: NodeId(number as u16),
        name: format!("node-{number}"),
        address: std::net::SocketAddrV4::new((0x0a80_0000 + number as u32).into(), 7400),
        mac: [2, 0, 0, 0, (number >> 8) as u8, number as u8],
        switch_port: number as u16,
        home: None,
    };
    config.nodes = (0..nodes).map(node).collect();
    let defaults =
        KeyspaceDefaults { id: KeyspaceId::DEFAULT, replicas, partitions: 1, rings: RingsBase::Network };
    state.keyspaces = vec![KeyspaceSpec::of(&defaults)];
    for number in 0..nodes {
        let first = (number as u128) << 112;
        let range = MatchRange::new(first, first + ((1 << 112) - 1)).unwrap();
        let originals = (0..replicas).map(|next| NodeId(((number + next) % nodes) as u16)).collect();
        let process = |_| Process { incarnation: 1, storage: 1 };
        let mut partition = epochs::first(KeyspaceId::DEFAULT, range, originals, process);
        partition.members.iter_mut().for_each(|member| member.standing = Standing::Serving);
        state.add(partition);
    }
    let (observations, mut targets) = (Observations::new(&config, &state, 1, 0), Targets::default());
    // Targets by the ring are not needed here, and would take long to compute for so many nodes.
    let situation = Situation {
        config: &config,
        state: &state.clone(),
        observations: &observations,
        targets: &std::mem::take(&mut targets),
        now_ns: 0,
        moves_wait: false,
    };
    let mut changes = BTreeMap::new();
    revise_divisions(&situation, &mut changes);
    changes.into_iter().for_each(|(id, partition)| state.replace(id, partition));
    (config, state)
}

fn compiled(nodes: usize, is_balanced: bool) -> TableSet {
    let (config, state) = cluster(nodes, R, is_balanced);
    rules::compile_within(&config, &state, usize::MAX)
}

fn entries(tables: &TableSet) -> usize {
    tables.unicast.len() + tables.division.len() + tables.multicast.len()
}

#[test]
fn a_switch_of_128_k_entries_carries_64_k_nodes_and_half_as_many_with_balancing() {
    let switch = SwitchCapacity { shared: Some(128 << 10), ..SwitchCapacity::default() };
    for (is_balanced, nodes, each) in [(false, 64 << 10, 2), (true, 32 << 10, R + 1)] {
        let demand = Demand { replicas: R, partitions_per_node: 1, is_balanced };
        let carried = demand.carried(&switch);
        assert_eq!((carried.nodes, carried.partitions), (nodes, nodes));
        assert_eq!((carried.entries_per_partition, carried.limit), (each, "entries of all tables"));
        let tables = compiled(nodes, is_balanced);
        assert_eq!(entries(&tables), 128 << 10, "the switch is full");
        assert_eq!(tables.groups().len(), nodes, "no two partitions have the same replicas");
        assert_eq!(tables.hosts.len(), nodes);
    }
}

#[test]
fn the_first_table_that_is_full_is_the_limit() {
    let demand = Demand { replicas: R, partitions_per_node: 8, is_balanced: true };
    let ours = demand.carried(&SwitchCapacity::OURS);
    assert_eq!((ours.partitions, ours.nodes, ours.limit), (1024, 128, "groups"));
    let of = |change: fn(&mut SwitchCapacity)| {
        let mut switch = SwitchCapacity::default();
        change(&mut switch);
        let carried = Demand { partitions_per_node: 1, ..demand }.carried(&switch);
        (carried.nodes, carried.limit)
    };
    assert_eq!(of(|switch| switch.unicast = Some(100)), (100, "unicast_vring"));
    assert_eq!(of(|switch| switch.multicast = Some(100)), (100, "multicast_vring"));
    assert_eq!(of(|switch| switch.division = Some(101)), (50, "division"));
    assert_eq!(of(|switch| switch.hosts = Some(7)), (7, "hosts"));
    for nodes in [50, 51] {
        let fits = compiled(nodes, true).division.len() <= 101;
        assert_eq!(fits, nodes == 50, "{nodes}");
    }
}

#[test]
fn partitions_without_room_for_divisions_are_counted() {
    let (config, state) = cluster(10, R, true);
    let (all, left_out) = divisions::entries(&config, &state, 20);
    assert_eq!((all.len(), left_out), (20, 0));
    let (some, left_out) = divisions::entries(&config, &state, 19);
    assert_eq!(
        (some.as_slice(), left_out),
        (&all[..18], 1),
        "a partition gets all of its divisions, or none"
    );
    let (none, left_out) = divisions::entries(&config, &state, 0);
    assert_eq!((none.len(), left_out), (0, 10));
    // The largest number of partitions with the largest number of replicas needs more divisions
    // than the table has.
    let (config, state) = cluster(4096, 9, true);
    let tables = rules::compile(&config, &state);
    assert_eq!(tables.division.len(), 16384);
    let (_, left_out) = divisions::entries(&config, &state, 16384);
    assert_eq!(left_out, 2048);
}
