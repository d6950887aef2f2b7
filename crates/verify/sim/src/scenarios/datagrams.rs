//! Lost, reordered and duplicated datagrams (docs/FAULTS.md rows 14 to 18).

use super::common::{as_it_is, crash, opened, two_failovers};
use super::script::{MILLISECOND_NS, Played, Script, Stage};
use crate::cluster::{Fault, What};
use crate::keyspace::Key;
use crate::network::Host;
use nicekv_proto::Datagram;

pub(super) const SCRIPTS: &[Script] = &[
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
        what: "30 % of all datagrams arrive twice, the second copy late",
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
        what: "datagrams are reordered by more than the time of a failover",
        shape: |scenario| {
            scenario.faults.delay = 100_000;
            scenario.faults.delay_max_ns = 400_000_000;
        },
        play: |stage| two_failovers(stage, 300, 1_000),
    },
    Script {
        name: "late-replay",
        row: 17,
        what: "puts arrive again long after their clients have continued",
        shape: as_it_is,
        play: |stage| {
            let puts = puts_within(stage, 300);
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
        what: "some nodes have tiny client tables; puts arrive again, and primaries change",
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
                puts.extend(puts_within(stage, 200));
                for (sender, put) in &puts {
                    stage.cluster.replay(*sender, put);
                }
                if let Some(primary) = stage.primary() {
                    stage.inject(crash(primary, 300));
                }
            }
            stage.run(500);
            (!puts.is_empty()).then_some(())
        },
    },
    Script {
        name: "lost-answers",
        row: 18,
        what: "all answers to clients are lost for a while: ops are retried, conditional ones too",
        shape: as_it_is,
        play: |stage| {
            for client in 0..stage.cluster.clients().len() {
                for node in 0..stage.cluster.nodes().len() {
                    stage.inject(Fault::Cut { from: Host::Node(node), to: Host::Client(client) });
                }
            }
            let primary = stage.primary()?;
            stage.run(150);
            if stage.random.below(2) == 0 {
                stage.inject(crash(primary, 300));
            }
            stage.run(250);
            stage.inject(Fault::Mend);
            stage.run(400);
            Some(())
        },
    },
];

/// Lets the scenario's own faults act for some time.
fn long(stage: &mut Stage) -> Played {
    stage.run(2_500);
    Some(())
}

/// The puts that clients send within this time, with their senders.
fn puts_within(stage: &mut Stage, milliseconds: u64) -> Vec<(Host, Vec<u8>)> {
    let mut puts = Vec::new();
    let end_ns = stage.cluster.now_ns() + milliseconds * MILLISECOND_NS;
    stage.cluster.run_before(end_ns, |_, seen| {
        if let What::Datagram { sender: sender @ Host::Client(_), bytes } = seen.what
            && matches!(opened(seen.what), Some(Datagram::Update(_)))
        {
            puts.push((sender, bytes.to_vec()));
        }
        false
    });
    puts
}
