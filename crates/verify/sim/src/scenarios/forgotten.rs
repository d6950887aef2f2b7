//! Storage that has lost acknowledged data (docs/FAULTS.md rows 36, 37 and 40, R18): all nodes
//! stop, and some restart with an older disk or an empty one; or the metadata service continues
//! from an older copy of its state.

use super::common::as_it_is;
use super::script::{MILLISECOND_NS, Played, Script, Stage};
use crate::cluster::{Fault, Scenario};
use crate::features::chains::chains;
use crate::keyspace::{Key, Shape};
use crate::node::Kept;

pub(super) const SCRIPTS: &[Script] = &[
    Script {
        name: "disks-lost-in-a-restart",
        row: 36,
        what: "all nodes stop at once; one or two of three restart with empty disks",
        shape: as_it_is,
        play: |stage| {
            stage.run(200);
            let victims = victims(stage, 2);
            restart_all(stage, &victims, Kept::NoDisk);
            Some(())
        },
    },
    Script {
        name: "older-disks",
        row: 37,
        what: "all nodes stop at once; one or two of three restart with copies of their disks up to 900 ms old",
        shape: few_keys,
        play: |stage| older_disks(stage, 2, 0),
    },
    Script {
        name: "disks-without-their-last-moments",
        row: 37,
        what: "the same, but the copies lack only the last few syncs, which no other host can know of yet",
        shape: few_keys,
        play: |stage| {
            let victims = victims(stage, 2);
            for node in &victims {
                stage.inject(Fault::TakeSnapshot(*node));
            }
            let events = 20 + stage.random.below(200);
            (0..events).for_each(|_| stage.cluster.step());
            stage.inject(Fault::MetadataCrash { downtime_ns: MILLISECOND_NS });
            restart_all(stage, &victims, Kept::Snapshot);
            Some(())
        },
    },
    Script {
        name: "older-disks-of-a-chain",
        row: 37,
        what: "the same for a chain",
        shape: chains,
        play: |stage| older_disks(stage, 2, 0),
    },
    Script {
        name: "older-metadata-state",
        row: 40,
        what: "epochs go on, then the metadata service starts from a copy of its state that is older, alone or with all nodes; then from the newest one again",
        shape: few_keys,
        play: |stage| {
            stage.inject(Fault::CopyState);
            let away = stage.random.below(3) as usize;
            for _ in 0..2 {
                let downtime_ns = Some(300 * MILLISECOND_NS);
                stage.inject(Fault::Crash { node: away, kept: Kept::Forced, downtime_ns });
                stage.run(600);
            }
            exchange_state(stage);
            if stage.random.below(2) == 0 {
                (0..3).for_each(|node| restart(stage, node, Kept::Forced));
            }
            stage.run(1_000);
            let why = stage.cluster.metadata().and_then(|metadata| metadata.status().why_not_ready);
            if !why.as_ref().is_some_and(|why| why.contains("older copy")) {
                stage.violations.push(format!(
                    "the state is older, and the metadata service does not report it: {why:?}"
                ));
            }
            exchange_state(stage);
            // Repeated, since a switch remembers the terms of the leaders that used the copy.
            for _ in 0..2 {
                stage.run(300);
                stage.inject(Fault::MetadataCrash { downtime_ns: 10 * MILLISECOND_NS });
            }
            Some(())
        },
    },
    Script {
        name: "older-disk-of-a-quorum",
        row: 37,
        what: "the same for one replica of a quorum keyspace: its disk is older than what the metadata service knows of it",
        shape: quorum,
        // A replica's progress is persisted every 500 ms; the loss of anything newer is not
        // detected.
        play: |stage| older_disks(stage, 1, 800),
    },
];

fn few_keys(scenario: &mut Scenario) {
    scenario.workload.keys = Key::several(0, 3);
    scenario.workload.pause_ns_max = 5 * MILLISECOND_NS;
    scenario.workload.calls = 600;
}

fn quorum(scenario: &mut Scenario) {
    few_keys(scenario);
    scenario.keyspaces = vec![Shape::quorum(3, 2)];
    (scenario.workload.appends, scenario.workload.expiring) = (0, 0);
}

fn victims(stage: &mut Stage, most: u64) -> Vec<usize> {
    let first = stage.random.below(3) as usize;
    let count = 1 + stage.random.below(most) as usize;
    (first..first + count).map(|node| node % 3).collect()
}

fn older_disks(stage: &mut Stage, most: u64, apart_ms: u64) -> Played {
    let victims = victims(stage, most);
    for node in &victims {
        let moment_ms = stage.random.below(50);
        stage.run(moment_ms);
        stage.inject(Fault::TakeSnapshot(*node));
    }
    let events = stage.random.below(2_000);
    (0..events).for_each(|_| stage.cluster.step());
    let more_ms = stage.random.below(500);
    stage.run(apart_ms + more_ms);
    restart_all(stage, &victims, Kept::Snapshot);
    Some(())
}

/// Stops all nodes, and restarts the victims with what is kept. The metadata service is killed,
/// too, in some runs: then it loses what it has not persisted.
fn restart_all(stage: &mut Stage, victims: &[usize], kept: Kept) {
    if stage.random.below(2) == 0 {
        stage.inject(Fault::MetadataCrash { downtime_ns: 10 * MILLISECOND_NS });
    }
    for node in 0..3 {
        restart(stage, node, if victims.contains(&node) { kept } else { Kept::Forced });
    }
    stage.run(1_500);
}

fn restart(stage: &mut Stage, node: usize, kept: Kept) {
    let downtime_ns = Some((5 + stage.random.below(40)) * MILLISECOND_NS);
    stage.inject(Fault::Crash { node, kept, downtime_ns });
}

fn exchange_state(stage: &mut Stage) {
    stage.inject(Fault::MetadataCrash { downtime_ns: 60 * MILLISECOND_NS });
    // Lets a write in flight complete or get lost.
    stage.run(50);
    stage.inject(Fault::ExchangeState);
    stage.run(20);
}
