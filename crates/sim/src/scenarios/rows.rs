//! The scripts.

use super::{MILLISECOND_NS, Played, Script, Stage};
use crate::cluster::{Direction, Mishap, Scenario, What};
use crate::keyspace::Key;
use crate::network::Host;
use crate::node::Kept;
use nicekv_wire::{Datagram, Duration, OpId};
use std::collections::BTreeMap;

fn as_it_is(_: &mut Scenario) {}

fn four_nodes(scenario: &mut Scenario) {
    scenario.nodes = 4;
}

/// Everybody changes a few keys, whose ops arrive in different orders at different nodes.
fn few_hot_keys(scenario: &mut Scenario) {
    scenario.workload.keys.truncate(2);
    scenario.workload.pause_ns_max = 4 * MILLISECOND_NS;
    scenario.workload.calls = 300;
    scenario.workload.timeout_ns = 5_000 * MILLISECOND_NS;
}

/// Many puts at once, each of another key.
fn many_keys(scenario: &mut Scenario) {
    scenario.workload.keys = Key::several(0, 1_500);
    scenario.workload.window = 8;
    scenario.workload.pause_ns_max = MILLISECOND_NS;
    scenario.workload.calls = 600;
    scenario.clients = 4;
}

fn two_switches(scenario: &mut Scenario) {
    scenario.switches = 2;
}

pub(super) const SCRIPTS: &[Script] = &[
    Script {
        name: "primary-dies-after-the-last-ack",
        row: 1,
        what: "the primary is killed between the last prepare ack and the commit multicast",
        shape: as_it_is,
        play: |stage| {
            let primary = last_ack(stage)?;
            stage.inflict(crash(primary, 400));
            stage.run(700);
            Some(())
        },
    },
    Script {
        name: "primary-dies-before-the-answer",
        row: 2,
        what: "the primary commits, nobody hears of it or only the others do, then it is killed",
        shape: as_it_is,
        play: |stage| {
            let primary = last_ack(stage)?;
            if stage.random.below(2) == 0 {
                stage.inflict(Mishap::CutOff { host: Host::Node(primary), direction: Direction::Out });
            } else {
                for client in 0..stage.cluster.clients().len() {
                    stage.inflict(Mishap::Cut { from: Host::Node(primary), to: Host::Client(client) });
                }
            }
            stage.run(2);
            stage.inflict(crash(primary, 400));
            stage.inflict(Mishap::Mend);
            stage.run(700);
            Some(())
        },
    },
    Script {
        name: "primary-dies-with-its-decisions",
        row: 2,
        what: "the primary decides ops that nobody else hears of, is killed, and returns with them in its log",
        shape: many_keys,
        play: |stage| {
            let primary = last_ack(stage)?;
            stage.inflict(Mishap::CutOff { host: Host::Node(primary), direction: Direction::Out });
            for _ in 0..stage.random.below(40) {
                stage.cluster.step();
            }
            let (node, kept) = (primary, Kept::All);
            stage.inflict(Mishap::Crash { node, kept, downtime_ns: Some(300 * MILLISECOND_NS) });
            stage.inflict(Mishap::Mend);
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
            stage.inflict(crash(secondary, 900));
            stage.run(1800);
            Some(())
        },
    },
    Script {
        name: "rejoin-under-writes",
        row: 4,
        what: "a node returns and is disturbed while it copies",
        shape: as_it_is,
        play: |stage| {
            let secondary = stage.secondary()?;
            stage.inflict(crash(secondary, 200));
            for _ in 0..3 {
                stage.run_before(|_, seen| {
                    seen.host == Host::Node(secondary) && matches!(seen.what, What::Frame(_))
                })?;
                stage.inflict(crash(secondary, 100));
            }
            stage.run(800);
            Some(())
        },
    },
    Script {
        name: "restarted-but-reachable",
        row: 4,
        what: "a secondary is away and returns, again and again, while a switch that does not hear of it sends gets to it",
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
            stage.inflict(Mishap::AgentCut { switch: 1, away_ns: 3_000_000_000 });
            for _ in 0..4 {
                stage.inflict(crash(victim, 400));
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
                stage.inflict(Mishap::PowerLoss { downtime_ns: 20_000_000 });
                stage.run(400);
            }
            Some(())
        },
    },
    Script {
        name: "power-loss-and-another-primary",
        row: 5,
        what: "all nodes lose power just when an answer arrives; the primary comes back too late to stay it",
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
                // The clients may have done all that they had to do.
                let Some(primary) = comes.and_then(|()| stage.primary()) else { break };
                stage.cluster.step();
                losses += 1;
                for node in 0..stage.cluster.nodes().len() {
                    let downtime_ms = if node == primary { 900 } else { 5 };
                    let downtime_ns = Some(downtime_ms * MILLISECOND_NS);
                    stage.inflict(Mishap::Crash { node, kept: Kept::Forced, downtime_ns });
                }
                stage.run(1_300);
            }
            (losses > 0).then_some(())
        },
    },
    super::space::RETURNS_WITHOUT_SPACE,
    Script {
        name: "primary-in-a-minority",
        row: 11,
        what: "the primary is cut off from the other nodes and the metadata service, not from clients",
        shape: as_it_is,
        play: |stage| {
            let primary = stage.primary()?;
            let others = (0..stage.cluster.nodes().len()).filter(|node| *node != primary).map(Host::Node);
            for other in others.chain([Host::Metadata]) {
                cut_both(stage, Host::Node(primary), other);
            }
            stage.run(600);
            stage.inflict(Mishap::Mend);
            stage.run(400);
            Some(())
        },
    },
    Script {
        name: "primary-deaf-or-dumb",
        row: 12,
        what: "the primary can send and not receive, or receive and not send",
        shape: as_it_is,
        play: |stage| {
            let host = Host::Node(stage.primary()?);
            let direction = stage.random.pick(&[Direction::In, Direction::Out]);
            stage.inflict(Mishap::CutOff { host, direction });
            stage.run(600);
            stage.inflict(Mishap::Mend);
            stage.run(400);
            Some(())
        },
    },
    Script {
        name: "primary-cut-from-metadata",
        row: 13,
        what: "the primary is cut off from the metadata service alone; so may be a switch",
        shape: two_switches,
        play: |stage| {
            let primary = Host::Node(stage.primary()?);
            if stage.random.below(2) == 0 {
                stage.inflict(Mishap::AgentCut { switch: 1, away_ns: 500_000_000 });
            }
            cut_both(stage, primary, Host::Metadata);
            stage.run(600);
            stage.inflict(Mishap::Mend);
            stage.run(400);
            Some(())
        },
    },
    Script {
        name: "removed-but-reachable",
        row: 13,
        what: "a removed secondary does not know it and has a long lease; a switch that does not hear of it goes on sending gets to it",
        shape: |scenario| {
            scenario.switches = 2;
            // Many keys: one that is put through the old tables is locked at the removed node, which then says nothing of it.
            scenario.clients = 8;
            scenario.workload.keys = Key::several(0, 60);
            scenario.workload.pause_ns_max = 8_000_000;
            scenario.workload.calls = 600;
            scenario.timing.lease = Duration::from_millis(500);
            scenario.faults.drift = 50_000;
        },
        play: |stage| {
            let victim = Host::Node(stage.secondary()?);
            for other in (0..stage.cluster.nodes().len()).map(Host::Node).filter(|node| *node != victim) {
                cut_both(stage, victim, other);
            }
            stage.inflict(Mishap::Cut { from: Host::Metadata, to: victim });
            if stage.random.below(3) > 0 {
                stage.inflict(Mishap::Cut { from: victim, to: Host::Metadata });
            }
            stage.inflict(Mishap::AgentCut { switch: 1, away_ns: 3_000_000_000 });
            if stage.random.below(2) == 0 {
                let delay_ms = stage.random.between(1, 200);
                stage.run(delay_ms);
                stage.inflict(Mishap::MetadataCrash { downtime_ns: 1_000_000 });
            }
            stage.run(1_200);
            let answered = stage.answered();
            stage.run(600);
            let all_done = stage.cluster.clients().iter().all(|client| client.is_done());
            if stage.answered() == answered && !all_done {
                stage
                    .violations
                    .push("nothing is answered although the removed node's lease is over (V)".into());
            }
            Some(())
        },
    },
    Script {
        name: "loss",
        row: 14,
        what: "a fifth of all datagrams is lost",
        shape: |scenario| scenario.faults.loss = 200_000,
        play: long,
    },
    Script {
        name: "duplication",
        row: 15,
        what: "three tenths of all datagrams arrive twice, the second late",
        shape: |scenario| {
            scenario.faults.duplication = 300_000;
            scenario.faults.delay = 100_000;
            scenario.faults.delay_max_ns = 20_000_000;
        },
        play: long,
    },
    Script {
        name: "reordering",
        row: 16,
        what: "datagrams overtake each other by more than a failover takes",
        shape: |scenario| {
            scenario.faults.delay = 100_000;
            scenario.faults.delay_max_ns = 400_000_000;
        },
        play: |stage| two_failovers(stage, 300, 1_000),
    },
    Script {
        name: "late-replay",
        row: 17,
        what: "puts arrive once more when their clients have long gone on",
        shape: as_it_is,
        play: |stage| {
            let mut puts: Vec<(Host, Vec<u8>)> = Vec::new();
            let end_ns = stage.cluster.now_ns() + 300_000_000;
            stage.cluster.run_before(end_ns, |_, seen| {
                if let What::Datagram { sender: sender @ Host::Client(_), bytes } = seen.what
                    && matches!(opened(seen.what), Some(Datagram::Update(_)))
                {
                    puts.push((sender, bytes.to_vec()));
                }
                false
            });
            stage.run(500);
            for (sender, put) in &puts {
                stage.cluster.replay(*sender, put);
            }
            stage.run(500);
            (!puts.is_empty()).then_some(())
        },
    },
    Script {
        name: "more-clients-than-are-remembered",
        row: 17,
        what: "some nodes forget clients after a few others; puts arrive once more, and primaries change",
        shape: |scenario| {
            scenario.clients = 8;
            scenario.workload.keys = Key::several(0, 60);
            scenario.workload.calls = 60;
            scenario.workload.window = 1;
            scenario.faults.forgetful = 700_000;
        },
        play: |stage| {
            let mut puts: Vec<(Host, Vec<u8>)> = Vec::new();
            for _ in 0..3 {
                let end_ns = stage.cluster.now_ns() + 200_000_000;
                stage.cluster.run_before(end_ns, |_, seen| {
                    if let What::Datagram { sender: sender @ Host::Client(_), bytes } = seen.what
                        && matches!(opened(seen.what), Some(Datagram::Update(_)))
                    {
                        puts.push((sender, bytes.to_vec()));
                    }
                    false
                });
                for (sender, put) in &puts {
                    stage.cluster.replay(*sender, put);
                }
                if let Some(primary) = stage.primary() {
                    stage.inflict(crash(primary, 300));
                }
            }
            stage.run(500);
            (!puts.is_empty()).then_some(())
        },
    },
    Script {
        name: "lost-answers",
        row: 18,
        what: "answers to clients are lost for a while, whoever gives them: ops are retried, conditional ones too",
        shape: as_it_is,
        play: |stage| {
            for client in 0..stage.cluster.clients().len() {
                for node in 0..stage.cluster.nodes().len() {
                    stage.inflict(Mishap::Cut { from: Host::Node(node), to: Host::Client(client) });
                }
            }
            let primary = stage.primary()?;
            stage.run(150);
            if stage.random.below(2) == 0 {
                stage.inflict(crash(primary, 300));
            }
            stage.run(250);
            stage.inflict(Mishap::Mend);
            stage.run(400);
            Some(())
        },
    },
    Script {
        name: "wrong-clocks",
        row: 19,
        what: "wall clocks are a day off and step, boot-time clocks run apart, values expire, primaries change",
        shape: |scenario| {
            scenario.workload.expiring = 500_000;
            scenario.faults.wall_skew_max_ns = 86_400_000_000_000;
            scenario.faults.wall_step = 5_000;
            scenario.faults.drift = 50_000;
        },
        play: |stage| two_failovers(stage, 200, 900),
    },
    Script {
        name: "paused-primary",
        row: 20,
        what: "the primary is paused past its lease, then resumes",
        shape: as_it_is,
        play: |stage| {
            let node = stage.primary()?;
            let pause_ns = stage.random.between(100, 500) * 1_000_000;
            stage.inflict(Mishap::Pause { node, pause_ns });
            stage.run(900);
            Some(())
        },
    },
    Script {
        name: "switch-restarts",
        row: 22,
        what: "the switch starts again with empty tables, also during a failover",
        shape: as_it_is,
        play: |stage| {
            stage.inflict(Mishap::SwitchRestart(0));
            stage.run(300);
            let primary = stage.primary()?;
            stage.inflict(crash(primary, 300));
            let delay_ms = stage.random.below(250);
            stage.run(delay_ms);
            stage.inflict(Mishap::SwitchRestart(0));
            stage.run(700);
            Some(())
        },
    },
    Script {
        name: "metadata-dies-between-two-switches",
        row: 23,
        what: "one switch has the new tables, the other loses the metadata service, which then dies",
        shape: two_switches,
        play: |stage| {
            let victim = stage.secondary()?;
            cut_both(stage, Host::Node(victim), Host::Metadata);
            stage.run_before(|_, seen| seen.host == Host::Switch(1) && matches!(seen.what, What::Tables))?;
            let away_ns = stage.random.between(50, 500) * 1_000_000;
            let switch = stage.random.below(2) as usize;
            stage.inflict(Mishap::AgentCut { switch, away_ns });
            stage.inflict(Mishap::MetadataCrash { downtime_ns: 30_000_000 });
            stage.run(800);
            stage.inflict(Mishap::Mend);
            stage.run(400);
            Some(())
        },
    },
    Script {
        name: "old-leader-resumes",
        row: 24,
        what: "a paused metadata leader resumes beside its successor",
        shape: two_switches,
        play: |stage| {
            let victim = stage.primary()?;
            // Just before it would act on something: a node is silent.
            cut_both(stage, Host::Node(victim), Host::Metadata);
            let delay_ms = stage.random.between(60, 200);
            stage.run(delay_ms);
            stage.inflict(Mishap::MetadataPause { pause_ns: 500_000_000, takeover_ns: 50_000_000 });
            stage.run(300);
            stage.inflict(Mishap::Mend);
            stage.run(700);
            Some(())
        },
    },
    Script {
        name: "tables-full",
        row: 25,
        what: "a switch refuses new tables for a while, during a failover",
        shape: two_switches,
        play: |stage| {
            stage.inflict(Mishap::TablesFull { switch: 1, full_ns: 700_000_000 });
            let primary = stage.primary()?;
            stage.inflict(crash(primary, 300));
            stage.run(1_000);
            (stage.cluster.tally().of("tables refused for want of room") > 0).then_some(())
        },
    },
    Script {
        name: "multicast-misses-one",
        row: 26,
        what: "no client's datagram reaches one secondary, and no other node's multicast",
        shape: as_it_is,
        play: |stage| {
            let deaf = stage.secondary()?;
            for client in 0..stage.cluster.clients().len() {
                stage.inflict(Mishap::Cut { from: Host::Client(client), to: Host::Node(deaf) });
            }
            stage.run(300);
            let primary = stage.primary()?;
            stage.inflict(Mishap::Cut { from: Host::Node(primary), to: Host::Node(deaf) });
            stage.run(700);
            Some(())
        },
    },
    Script {
        name: "last-holder-dies",
        row: 28,
        what: "one replica after the other dies while its successor still copies",
        shape: four_nodes,
        play: |stage| {
            let first = stage.secondary()?;
            stage.inflict(crash(first, 300));
            stage.run(250);
            for _ in 0..3 {
                let end_ns = stage.cluster.now_ns() + 400_000_000;
                stage.cluster.run_before(end_ns, |_, seen| matches!(seen.what, What::Frame(_)));
                if let Some(primary) = stage.primary() {
                    stage.inflict(crash(primary, 500));
                }
            }
            stage.run(1_000);
            Some(())
        },
    },
];

/// Nothing but the faults that go on all the time.
fn long(stage: &mut Stage) -> Played {
    stage.run(2_500);
    Some(())
}

fn crash(node: usize, downtime_ms: u64) -> Mishap {
    Mishap::Crash { node, kept: Kept::Any, downtime_ns: Some(downtime_ms * 1_000_000) }
}

fn cut_both(stage: &mut Stage, one: Host, other: Host) {
    stage.inflict(Mishap::Cut { from: one, to: other });
    stage.inflict(Mishap::Cut { from: other, to: one });
}

fn opened(what: What<'_>) -> Option<Datagram<'_>> {
    let What::Datagram { bytes, .. } = what else { return None };
    Datagram::decode(bytes).ok().map(|(_, datagram)| datagram)
}

/// Two primaries in turn are killed and come back.
fn two_failovers(stage: &mut Stage, downtime_ms: u64, run_ms: u64) -> Played {
    for _ in 0..2 {
        let primary = stage.primary()?;
        stage.inflict(crash(primary, downtime_ms));
        stage.run(run_ms);
    }
    Some(())
}

/// Up to the moment when the last ack of some op has reached the primary, which has not looked at it.
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
