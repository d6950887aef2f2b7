//! Three levels of switches with redundant trunks. Links and switches fail, and switches learn of
//! it in any order.

use super::common::{crash, cut_both};
use super::{MILLISECOND_NS, Script};
use crate::cluster::{Fault, Scenario};
use crate::keyspace::{Key, Shape};
use crate::network::Host;
use crate::trunks::Trunks;

pub(super) const SCRIPTS: &[Script] = &[
    Script {
        name: "ways-around-a-cable-and-a-switch",
        row: 22,
        what: "eight switches in three levels: a rack's link breaks, then an AGG and a Core restart with empty tables, then the link is restored",
        shape: |scenario| in_racks(scenario, Trunks::TURBOKV),
        play: |stage| {
            // The path from the first rack up to the cores.
            for above in [2, 3] {
                cut_both(stage, Host::Switch(above), Host::Switch(4));
                stage.run(300);
                let before = stage.answered();
                stage.run(200);
                if stage.answered() == before {
                    stage
                        .violations
                        .push(format!("no call is answered while the link of switch {above} is cut"));
                }
                stage.inject(Fault::Mend);
                stage.run(200);
            }
            for switch in [2, 0, 3] {
                stage.inject(Fault::SwitchRestart(switch));
                stage.run(150);
            }
            Some(())
        },
    },
    Script {
        name: "hundreds-of-switches-of-which-one-lags",
        row: 22,
        what: "206 switches in three levels: the rack of a chain's head does not learn of the next head, a link breaks, an AGG restarts with empty tables",
        shape: |scenario| {
            in_racks(scenario, Trunks::Racks { cores: 2, pods: 6, racks: 32 });
            (scenario.faults_end_ns, scenario.workload.calls) = (1_500 * MILLISECOND_NS, 100);
        },
        play: |stage| {
            let head = stage.primary()?;
            let rack = stage.cluster.switch_of(head);
            stage.inject(Fault::AgentCut { switch: rack, away_ns: 600 * MILLISECOND_NS });
            stage.inject(crash(head, 200));
            stage.run(200);
            let above = stage.cluster.neighbours(rack)[0];
            cut_both(stage, Host::Switch(above), Host::Switch(rack));
            stage.run(200);
            stage.inject(Fault::SwitchRestart(above));
            stage.run(200);
            stage.inject(Fault::Mend);
            stage.run(400);
            Some(())
        },
    },
    Script {
        name: "a-chain-moves-from-rack-to-rack",
        row: 22,
        what: "each node of a chain, in a rack of its own, is killed and restarts: its requests take other paths, and no switch sends one back",
        shape: |scenario| {
            in_racks(scenario, Trunks::TURBOKV);
            scenario.ways_are_whole = true;
            (scenario.workload.calls, scenario.workload.window) = (1_500, 4);
            (scenario.workload.pause_ns_max, scenario.clients) = (2 * MILLISECOND_NS, 5);
            scenario.workload.keys = Key::several(0, 40);
        },
        play: |stage| {
            for node in 0..4 {
                stage.inject(crash(node, 100));
                stage.run(600);
            }
            Some(())
        },
    },
];

/// A chain of three of four nodes, spread over the racks.
fn in_racks(scenario: &mut Scenario, trunks: Trunks) {
    (scenario.nodes, scenario.trunks) = (4, trunks);
    scenario.keyspaces = vec![Shape::chain(3, 0)];
}
