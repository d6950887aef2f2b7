//! Disks fill up at chosen points (docs/FAULTS.md row 9).

use super::script::{MILLISECOND_NS, PARTITION, Played, Script, Stage};
use crate::cluster::Fault;
use crate::keyspace::{Key, Shape};
use crate::node::Kept;
use nicekv_replica::{DiskSpace, Standing};

/// Maximum events until a node whose disk has space again begins to copy.
const STEPS_MAX: usize = 100_000;

pub(super) const SCRIPTS: &[Script] = &[
    Script {
        name: "returns-without-space",
        row: 9,
        what: "a node returns with a full disk: it is excluded, and puts go on; its disk fills up again while it copies",
        shape: |scenario| {
            scenario.workload.keys = Key::several(0, 300);
            scenario.clients = 4;
            scenario.workload.calls = 600;
            scenario.workload.pause_ns_max = 10 * MILLISECOND_NS;
        },
        play,
    },
    Script {
        name: "chain-without-space-behind-the-head",
        row: 9,
        what: "the disk of a chain member behind the head fills up: puts are refused until it has space again",
        shape: |scenario| (scenario.nodes, scenario.keyspaces) = (4, vec![Shape::chain(4, 0)]),
        play: play_chain,
    },
];

fn play(stage: &mut Stage) -> Played {
    let node = stage.secondary()?;
    stage.inject(Fault::Crash { node, kept: Kept::All, downtime_ns: None });
    let space = stage.random.pick(&[DiskSpace::Reserve, DiskSpace::Exhausted]);
    stage.inject(Fault::Space { node, space });
    stage.run(300);
    stage.inject(Fault::Start(node));
    stays_outside(stage, node, "it returned with a full disk");
    stage.inject(Fault::Space { node, space: DiskSpace::Enough });
    let joins = |stage: &Stage| standing(stage, node) == Some(Standing::Joining);
    for _ in 0..STEPS_MAX {
        stage.cluster.step();
        if joins(stage) {
            break;
        }
    }
    if !joins(stage) {
        return None;
    }
    stage.inject(Fault::Space { node, space });
    // Time until the metadata service knows of the full disk, and the other nodes of the member's
    // removal.
    stage.run(200);
    if standing(stage, node) != Some(Standing::Consistent) {
        stays_outside(stage, node, "its disk became full while it copied");
    }
    stage.inject(Fault::Space { node, space: DiskSpace::Enough });
    stage.run(400);
    Some(())
}

fn play_chain(stage: &mut Stage) -> Played {
    let node = stage.secondary()?;
    let space = stage.random.pick(&[DiskSpace::Reserve, DiskSpace::Exhausted]);
    stage.inject(Fault::Space { node, space });
    // The full member reports its disk with the next entry that passes along the chain.
    stage.run(100);
    let before = (stage.answered(), refused(stage));
    stage.run(400);
    if refused(stage) == before.1 {
        stage.violations.push("no put is refused although a disk behind the head is full".into());
    }
    if stage.answered() == before.0 {
        stage.violations.push("no call is answered while a disk behind the head is full".into());
    }
    stage.inject(Fault::Space { node, space: DiskSpace::Enough });
    stage.run(100);
    let before = refused(stage);
    stage.run(400);
    if refused(stage) > before {
        stage.violations.push("puts are refused although all disks have room".into());
    }
    Some(())
}

fn refused(stage: &Stage) -> u64 {
    stage.cluster.tally().of("prepares refused for space")
}

fn standing(stage: &Stage, node: usize) -> Option<Standing> {
    let status = stage.cluster.nodes()[node].core.as_ref()?.status();
    status.partition(PARTITION).map(|partition| partition.standing)
}

/// Checks that calls are answered and not refused, and that the node is not a member.
fn stays_outside(stage: &mut Stage, node: usize, why: &str) {
    let before = (stage.answered(), refused(stage));
    stage.run(400);
    if standing(stage, node).is_some_and(|standing| standing != Standing::Outside) {
        stage.violations.push(format!("a node is a member although {why}"));
    }
    if refused(stage) > before.1 {
        stage.violations.push(format!("puts are refused although the full disk is no member's: {why}"));
    }
    if stage.answered() == before.0 {
        stage.violations.push(format!("no call is answered: {why}"));
    }
}
