//! A member of a quorum keyspace is replaced by another node, and one of the two crashes or misses
//! messages meanwhile (docs/FAULTS.md row 28).

use super::common::{crash, set};
use super::script::{MILLISECOND_NS, PARTITION, Script, Stage};
use crate::cluster::{Fault, Scenario, What};
use crate::judge;
use crate::keyspace::{Key, Shape};
use crate::network::Host;
use nicekv_proto::Duration;

pub(super) const SCRIPTS: &[Script] = &[
    Script {
        name: "who-leaves-starts-again",
        row: 28,
        what: "by quorum, k = 1: the leaving member is killed and restarts when its successor has merged all, but lacks what was put since",
        shape: |scenario| one_key(scenario, 1),
        play: |stage| {
            let (leaves, comes) = hand_over(stage)?;
            // No node learns that the copy is complete, and only the leaving member receives the
            // put.
            stage.inject(Fault::Cut { from: Host::Node(comes), to: Host::Metadata });
            stage.inject(Fault::Cut { from: Host::Node(leaves), to: Host::Node(comes) });
            put_to_one(stage, leaves);
            stage.run(10);
            stage.inject(crash(leaves, 1));
            stage.run(30);
            stage.inject(Fault::Mend);
            stage.inject(Fault::Cut { from: Host::Node(leaves), to: Host::Node(comes) });
            cut_from_others(stage, leaves);
            stage.run(100);
            read_when_it_is_over(stage);
            Some(())
        },
    },
    Script {
        name: "successor-does-not-hear-that-it-is-none",
        row: 28,
        what: "by quorum, k = 1: a member is to leave, to stay, and to leave again, and its successor learns only of the last",
        shape: |scenario| one_key(scenario, 1),
        play: |stage| {
            let (leaves, comes) = hand_over(stage)?;
            stage.inject(Fault::Cut { from: Host::Node(comes), to: Host::Metadata });
            stage.inject(Fault::Cut { from: Host::Metadata, to: Host::Node(comes) });
            stage.run(5);
            stage.inject(Fault::Add(leaves));
            stage.run(10);
            put_to_one(stage, leaves);
            stage.run(20);
            stage.inject(Fault::Drain(leaves));
            stage.run(10);
            stage.inject(Fault::Mend);
            cut_from_others(stage, leaves);
            stage.run(50);
            read_when_it_is_over(stage);
            Some(())
        },
    },
    Script {
        name: "who-has-left-does-not-hear-of-it",
        row: 28,
        what: "by quorum, k = 2: the member that has left has a long lease, and does not learn that its successor counts; nor do another member and a switch",
        shape: |scenario| {
            one_key(scenario, 2);
            scenario.switches = 2;
            scenario.timing.lease = Duration::from_millis(500);
        },
        play: |stage| {
            let (leaves, comes) = hand_over(stage)?;
            let hears = (0..stage.cluster.nodes().len()).find(|node| *node != leaves && *node != comes)?;
            for node in (0..stage.cluster.nodes().len()).filter(|node| ![comes, hears].contains(node)) {
                stage.inject(Fault::Cut { from: Host::Metadata, to: Host::Node(node) });
            }
            stage.inject(Fault::AgentCut { switch: 1, away_ns: 3_000 * MILLISECOND_NS });
            stage.run(20);
            update(stage, "new");
            stage.run(40);
            // A client with the old tables asks members that have not learned of the change.
            for node in [comes, hears] {
                stage.inject(Fault::Cut { from: Host::Node(node), to: Host::Client(1) });
            }
            stage.cluster.get(1, 0);
            stage.run(1_000);
            stage.inject(Fault::Mend);
            stage.run(1_000);
            Some(())
        },
    },
];

/// Only the script makes calls.
fn one_key(scenario: &mut Scenario, write_set: u8) {
    (scenario.nodes, scenario.clients) = (4, 2);
    scenario.keyspaces = vec![Shape::quorum(3, write_set)];
    scenario.workload.keys = Key::several(0, 1);
    (scenario.workload.calls, scenario.workload.timeout_ns) = (0, 3_000 * MILLISECOND_NS);
}

fn update(stage: &mut Stage, value: &str) {
    set(stage, 0, value);
}

/// Begins to replace a member, and runs until its data has just arrived at its successor. Returns
/// the leaving member and the successor.
fn hand_over(stage: &mut Stage) -> Option<(usize, usize)> {
    update(stage, "old");
    stage.run(50);
    let members = judge::members(&stage.cluster, PARTITION);
    let comes = (0..stage.cluster.nodes().len()).find(|node| !members.contains(node))?;
    let leaves = stage.random.pick(&members);
    stage.inject(Fault::Drain(leaves));
    let has_copied = |seen: crate::cluster::Seen<'_>| {
        seen.host == Host::Node(comes) && matches!(seen.what, What::Frame(_))
    };
    stage.run_before(|_, seen| has_copied(seen))?;
    stage.cluster.step();
    Some((leaves, comes))
}

fn cut_from_others(stage: &mut Stage, one: usize) {
    for node in (0..stage.cluster.nodes().len()).filter(|node| *node != one) {
        stage.inject(Fault::Cut { from: Host::Client(0), to: Host::Node(node) });
    }
}

/// Makes a put that only this node stores.
fn put_to_one(stage: &mut Stage, one: usize) {
    // The put's first phase reaches all members.
    update(stage, "new");
    let is_answer = |seen: &crate::cluster::Seen<'_>| {
        seen.host == Host::Client(0) && matches!(seen.what, What::Datagram { .. })
    };
    for _ in 0..3 {
        if stage.run_before(|_, seen| is_answer(&seen)).is_some() && stage.cluster.violation().is_none() {
            stage.cluster.step();
        }
    }
    cut_from_others(stage, one);
}

fn read_when_it_is_over(stage: &mut Stage) {
    stage.inject(Fault::Mend);
    stage.run(1_000);
    stage.cluster.get(1, 0);
    stage.run(100);
}
