//! Processes crash at chosen points, and restart with all, some or none of their data
//! (docs/FAULTS.md rows 1 to 5 and 28).

use super::common::{as_it_is, crash, opened};
use super::script::{MILLISECOND_NS, Script, Stage};
use crate::cluster::{Direction, Fault, Scenario, What};
use crate::keyspace::Key;
use crate::network::Host;
use crate::node::Kept;
use nicekv_proto::{Datagram, OpId};
use std::collections::BTreeMap;

pub(super) const SCRIPTS: &[Script] = &[
    Script {
        name: "primary-dies-after-the-last-ack",
        row: 1,
        what: "the primary is killed between the last prepare ack and the commit multicast",
        shape: as_it_is,
        play: |stage| {
            let primary = last_ack(stage)?;
            stage.inject(crash(primary, 400));
            stage.run(700);
            Some(())
        },
    },
    Script {
        name: "primary-dies-before-the-answer",
        row: 2,
        what: "the primary commits, its decision reaches nobody or only the members, then it is killed",
        shape: as_it_is,
        play: |stage| {
            let primary = last_ack(stage)?;
            if stage.random.below(2) == 0 {
                stage.inject(Fault::CutOff { host: Host::Node(primary), direction: Direction::Out });
            } else {
                for client in 0..stage.cluster.clients().len() {
                    stage.inject(Fault::Cut { from: Host::Node(primary), to: Host::Client(client) });
                }
            }
            stage.run(2);
            stage.inject(crash(primary, 400));
            stage.inject(Fault::Mend);
            stage.run(700);
            Some(())
        },
    },
    Script {
        name: "primary-dies-with-its-decisions",
        row: 2,
        what: "the primary decides ops, is killed before any message leaves, and returns with them in its log",
        shape: many_keys,
        play: |stage| {
            let primary = last_ack(stage)?;
            stage.inject(Fault::CutOff { host: Host::Node(primary), direction: Direction::Out });
            for _ in 0..stage.random.below(40) {
                stage.cluster.step();
            }
            let (node, kept) = (primary, Kept::All);
            stage.inject(Fault::Crash { node, kept, downtime_ns: Some(300 * MILLISECOND_NS) });
            stage.inject(Fault::Mend);
            stage.run(600);
            Some(())
        },
    },
    Script {
        name: "secondary-dies-and-returns",
        row: 3,
        what: "a secondary is killed during a put, a handoff may join, the original returns under load",
        shape: four_nodes,
        play: |stage| {
            let secondary = stage.secondary()?;
            stage.run_before(|_, seen| {
                seen.host == Host::Node(secondary) && matches!(opened(seen.what), Some(Datagram::Update(_)))
            })?;
            stage.inject(crash(secondary, 900));
            stage.run(1800);
            Some(())
        },
    },
    Script {
        name: "rejoin-under-writes",
        row: 4,
        what: "a node returns, and faults hit it while it copies",
        shape: as_it_is,
        play: |stage| {
            let secondary = stage.secondary()?;
            stage.inject(crash(secondary, 200));
            for _ in 0..3 {
                stage.run_before(|_, seen| {
                    seen.host == Host::Node(secondary) && matches!(seen.what, What::Frame(_))
                })?;
                stage.inject(crash(secondary, 100));
            }
            stage.run(800);
            Some(())
        },
    },
    Script {
        name: "restarted-but-reachable",
        row: 4,
        what: "a secondary leaves and returns repeatedly, while a switch with old tables sends gets to it",
        shape: |scenario| {
            scenario.switches = 2;
            scenario.clients = 8;
            scenario.workload.keys = Key::several(0, 40);
            scenario.workload.pause_ns_max = 8_000_000;
            scenario.workload.calls = 400;
            scenario.faults.loss = 200_000;
        },
        play: |stage| {
            let victim = stage.secondary()?;
            stage.inject(Fault::AgentCut { switch: 1, away_ns: 3_000_000_000 });
            for _ in 0..4 {
                stage.inject(crash(victim, 400));
                stage.run(500);
            }
            Some(())
        },
    },
    Script {
        name: "power-loss",
        row: 5,
        what: "everything loses power at once, at any event, three times",
        shape: as_it_is,
        play: |stage| {
            for _ in 0..3 {
                let events = stage.random.below(3_000);
                (0..events).for_each(|_| stage.cluster.step());
                stage.inject(Fault::PowerLoss { downtime_ns: 20_000_000 });
                stage.run(400);
            }
            Some(())
        },
    },
    Script {
        name: "power-loss-and-another-primary",
        row: 5,
        what: "all nodes lose power just when an answer arrives; the primary restarts too late to remain primary",
        shape: few_hot_keys,
        play: |stage| {
            let mut losses = 0;
            for _ in 0..3 {
                let mut skipped = stage.random.below(40);
                let comes = stage.run_before(|_, seen| {
                    let is_answer = matches!(opened(seen.what), Some(Datagram::Reply(_)));
                    skipped -= u64::from(is_answer && skipped > 0);
                    is_answer && skipped == 0
                });
                // The point does not come if the clients have made all their calls.
                let Some(primary) = comes.and_then(|()| stage.primary()) else { break };
                stage.cluster.step();
                losses += 1;
                for node in 0..stage.cluster.nodes().len() {
                    let downtime_ms = if node == primary { 900 } else { 5 };
                    let downtime_ns = Some(downtime_ms * MILLISECOND_NS);
                    stage.inject(Fault::Crash { node, kept: Kept::Forced, downtime_ns });
                }
                stage.run(1_300);
            }
            (losses > 0).then_some(())
        },
    },
    Script {
        name: "last-holder-dies",
        row: 28,
        what: "one replica after another dies while its successor still copies",
        shape: four_nodes,
        play: |stage| {
            let first = stage.secondary()?;
            stage.inject(crash(first, 300));
            stage.run(250);
            for _ in 0..3 {
                let end_ns = stage.cluster.now_ns() + 400_000_000;
                stage.cluster.run_before(end_ns, |_, seen| matches!(seen.what, What::Frame(_)));
                if let Some(primary) = stage.primary() {
                    stage.inject(crash(primary, 500));
                }
            }
            stage.run(1_000);
            Some(())
        },
    },
];

fn four_nodes(scenario: &mut Scenario) {
    scenario.nodes = 4;
}

/// All clients change a few keys, and the ops arrive in different orders at different nodes.
fn few_hot_keys(scenario: &mut Scenario) {
    scenario.workload.keys.truncate(2);
    scenario.workload.pause_ns_max = 4 * MILLISECOND_NS;
    scenario.workload.calls = 300;
    scenario.workload.timeout_ns = 5_000 * MILLISECOND_NS;
}

/// Many concurrent puts, each of another key.
fn many_keys(scenario: &mut Scenario) {
    scenario.workload.keys = Key::several(0, 1_500);
    scenario.workload.window = 8;
    scenario.workload.pause_ns_max = MILLISECOND_NS;
    scenario.workload.calls = 600;
    scenario.clients = 4;
}

/// Runs up to the moment when the last acknowledgement of an op is in the primary's socket, and not
/// handled yet. Returns the primary.
fn last_ack(stage: &mut Stage) -> Option<usize> {
    let primary = stage.primary()?;
    let needed = stage.cluster.scenario().keyspaces[0].replicas - 1;
    let mut skipped = stage.random.below(20);
    let mut acked: BTreeMap<OpId, Vec<u16>> = BTreeMap::new();
    stage.run_before(|_, seen| {
        let Some(Datagram::Acks(acks)) = opened(seen.what).filter(|_| seen.host == Host::Node(primary))
        else {
            return false;
        };
        let mut is_last = false;
        for ack in acks.prepares.iter() {
            let members = acked.entry(ack.op).or_default();
            if !members.contains(&acks.sender.0) {
                members.push(acks.sender.0);
                is_last |= members.len() == needed;
            }
        }
        skipped -= u64::from(is_last && skipped > 0);
        is_last && skipped == 0
    })?;
    stage.cluster.step();
    Some(primary)
}
