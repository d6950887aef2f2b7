//! Switches refuse tables: the refusal is reported to operators, and delays no failover.

use nicekv_proto::NodeId;
use nicekv_switch::HostId;

use super::changes::{NEW, add, change, is_settled, refused, remove};
use super::cluster::{Cluster, partitions};
use super::node::Node;
use super::scenarios::{is_gone, ready};
use crate::{KeyspaceChange, Refused, SwitchId};

const SWITCHES: [SwitchId; 2] = [SwitchId(0), SwitchId(1)];
/// The ports of the first three nodes.
const THREE_PORTS: [u16; 3] = [1, 2, 3];

/// Three nodes, and a fourth that runs but is not added. Only the second switch has a port for it.
fn with_a_port_missing() -> Cluster {
    let mut cluster = ready(3, 3);
    cluster.nodes.insert(NEW, Node::new(NEW.0, 0));
    cluster.start(NEW);
    set_ports(&mut cluster, SWITCHES[0], &THREE_PORTS);
    set_ports(&mut cluster, SWITCHES[1], &[1, 2, 3, 4]);
    cluster.run_until_ready(1000);
    cluster
}

/// Restarts a switch with these ports.
fn set_ports(cluster: &mut Cluster, switch: SwitchId, ports: &[u16]) {
    cluster.switches.get_mut(&switch).unwrap().ports = Some(ports.to_vec());
    cluster.restart_switch(switch);
    cluster.run(20);
}

/// Kills a node, and checks that all switches get tables without it.
fn a_failover_succeeds(cluster: &mut Cluster, victim: NodeId) {
    cluster.kill(victim);
    cluster.run_until(2000, "the dead node is out, in every switch", |cluster| {
        is_gone(cluster, victim) && cluster.status().switches.iter().all(|switch| switch.current)
    });
    puts_succeed(cluster);
}

fn puts_succeed(cluster: &mut Cluster) {
    let before = cluster.acknowledged.clone();
    cluster.run_until(500, "every partition takes puts", |cluster| {
        partitions().all(|id| cluster.acknowledged[&id] > before[&id])
    });
}

#[test]
fn node_on_a_missing_switch_port_is_refused() {
    let mut cluster = with_a_port_missing();
    let why =
        "switch 0 has no port 4, the `switch_port` of node-4: correct it, or start the switch with that port";
    assert_eq!(cluster.core().plan(&add(NEW)).unwrap_err().to_string(), why);
    refused(&mut cluster, &add(NEW), why);
    let named = cluster.core().plan(&add(NEW)).unwrap_err();
    let named = named.naming_switches(|number| (number == 0).then(|| "left".into()));
    assert!(named.to_string().starts_with("switch left has no port 4"), "{named}");
    a_failover_succeeds(&mut cluster, NodeId(1));
    // Once the switch has the port, the same command is accepted.
    cluster.start(NodeId(1));
    set_ports(&mut cluster, SWITCHES[0], &[1, 2, 3, 4]);
    cluster.run_until_ready(3000);
    change(&mut cluster, &add(NEW)).unwrap();
    cluster.run_until(3000, "the node has its share", is_settled);
}

/// While a switch is disconnected it is not known that it lacks a port.
#[test]
fn switch_that_returns_without_a_port_delays_no_failover() {
    let mut cluster = with_a_port_missing();
    set_ports(&mut cluster, SWITCHES[0], &[1, 2, 3, 4]);
    cluster.kill(NEW);
    change(&mut cluster, &add(NEW)).unwrap();
    set_ports(&mut cluster, SWITCHES[0], &THREE_PORTS);
    let tables = cluster.switches[&SWITCHES[0]].tables.clone().expect("the switch accepts tables");
    assert!(tables.host(HostId(NEW.0)).is_none(), "the tables leave out the host without a port");
    let status = cluster.status();
    let missing: Vec<_> = status.switches.iter().flat_map(|switch| &switch.missing_ports).collect();
    assert_eq!(missing.len(), 1, "{status:?}");
    assert_eq!((missing[0].name.as_str(), missing[0].port), ("node-4", 4));
    assert_eq!(status.switches[0].error, None);
    a_failover_succeeds(&mut cluster, NodeId(2));
    change(&mut cluster, &remove(NEW)).unwrap();
    cluster.run_until(2000, "no port is missing", |cluster| {
        cluster.status().switches.iter().all(|switch| switch.missing_ports.is_empty())
    });
}

/// A switch loses the port of a node that holds data. The node's partitions continue without it.
#[test]
fn switch_without_a_members_port_serves_the_others() {
    let mut cluster = with_a_port_missing();
    // Frames sent by the missing port do not arrive.
    cluster.mute.insert(NodeId(3));
    cluster.deaf.insert(NodeId(3));
    set_ports(&mut cluster, SWITCHES[0], &[1, 2]);
    cluster.run_until(3000, "the node without a port is removed", |cluster| is_gone(cluster, NodeId(3)));
    puts_succeed(&mut cluster);
    assert!(cluster.status().switches.iter().all(|switch| switch.current && switch.error.is_none()));
}

/// A switch may find out only during the install that it lacks room. Here one of two switches
/// refuses, after the other one has installed.
#[test]
fn change_refused_by_a_switch_is_rolled_back_and_reported() {
    let mut cluster = ready(3, 3);
    let entries = cluster.switches[&SWITCHES[1]].tables.as_ref().unwrap().unicast.len();
    cluster.switches.get_mut(&SWITCHES[1]).unwrap().unicast_max = entries;
    let wanted = KeyspaceChange::Create { text: "more".into() };
    let outcome = (0..100).find_map(|_| match cluster.core().change_keyspace(&wanted) {
        Err(Refused::Busy) => {
            cluster.run(1);
            None
        }
        outcome => Some(outcome),
    });
    outcome.expect("the change is accepted at some time").unwrap();
    cluster.run_until(1000, "it is taken back", |cluster| !cluster.status().taken_back.is_empty());
    let told = "keyspace more is dropped again: switch 1 refused the tables: no memory for unicast_vring";
    assert_eq!(cluster.status().taken_back, [told]);
    cluster.run_until(2000, "both switches are filled", |cluster| {
        cluster.status().switches.iter().all(|switch| switch.current && switch.error.is_none())
    });
    a_failover_succeeds(&mut cluster, NodeId(3));
}
