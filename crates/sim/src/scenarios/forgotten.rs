//! Storages that have forgotten what they had confirmed (rows 36 and 37, R18): all nodes stop, and some come back with an older disk, or without one.

use super::moves::as_it_is;
use super::stage::{MILLISECOND_NS, Played, Script, Stage};
use crate::by_chain::chains;
use crate::cluster::{Mishap, Scenario};
use crate::keyspace::{Key, Shape};
use crate::node::Kept;

pub(super) const SCRIPTS: &[Script] = &[
    Script {
        name: "disks-lost-in-a-restart",
        row: 36,
        what: "all nodes stop at once; one or two of three come back with empty disks",
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
        what: "all nodes stop at once; one or two of three come back with disks as they were up to 900 ms before",
        shape: few_keys,
        play: |stage| older_disks(stage, 2, 0),
    },
    Script {
        name: "disks-without-their-last-moments",
        row: 37,
        what: "the same with disks that lack the last few forces, of which nobody outside can know yet",
        shape: few_keys,
        play: |stage| {
            let victims = victims(stage, 2);
            for node in &victims {
                stage.inflict(Mishap::TakeSnapshot(*node));
            }
            let events = 20 + stage.random.below(200);
            (0..events).for_each(|_| stage.cluster.step());
            stage.inflict(Mishap::MetadataCrash { downtime_ns: MILLISECOND_NS });
            restart_all(stage, &victims, Kept::Snapshot);
            Some(())
        },
    },
    Script {
        name: "older-disks-of-a-chain",
        row: 37,
        what: "the same of a chain",
        shape: chains,
        play: |stage| older_disks(stage, 2, 0),
    },
    Script {
        name: "older-disk-of-a-quorum",
        row: 37,
        what: "the same of one replica of a quorum, whose disk is older than what is remembered of it",
        shape: quorum,
        // How far it had come is persisted every 500 ms; who forgets less is not found out.
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
        stage.inflict(Mishap::TakeSnapshot(*node));
    }
    let events = stage.random.below(2_000);
    (0..events).for_each(|_| stage.cluster.step());
    let more_ms = stage.random.below(500);
    stage.run(apart_ms + more_ms);
    restart_all(stage, &victims, Kept::Snapshot);
    Some(())
}

/// The metadata service forgets what it has not persisted, or not.
fn restart_all(stage: &mut Stage, victims: &[usize], kept: Kept) {
    if stage.random.below(2) == 0 {
        stage.inflict(Mishap::MetadataCrash { downtime_ns: 10 * MILLISECOND_NS });
    }
    for node in 0..3 {
        let kept = if victims.contains(&node) { kept } else { Kept::Forced };
        let downtime_ns = Some((5 + stage.random.below(40)) * MILLISECOND_NS);
        stage.inflict(Mishap::Crash { node, kept, downtime_ns });
    }
    stage.run(1_500);
}
