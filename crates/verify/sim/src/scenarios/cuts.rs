//! Network partitions, in both directions or in one (docs/FAULTS.md rows 11 to 13 and 26).

use super::common::{as_it_is, cut_both, removed_but_reachable, two_switches};
use super::script::{Played, Script, Stage};
use crate::cluster::{Direction, Fault};
use crate::network::Host;
use nicekv_proto::Duration;
use nicekv_switch::Matching;

pub(super) const SCRIPTS: &[Script] = &[
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
            stage.inject(Fault::Mend);
            stage.run(400);
            Some(())
        },
    },
    Script {
        name: "primary-deaf-or-dumb",
        row: 12,
        what: "the primary can send but not receive, or receive but not send",
        shape: as_it_is,
        play: |stage| {
            let host = Host::Node(stage.primary()?);
            let direction = stage.random.pick(&[Direction::In, Direction::Out]);
            stage.inject(Fault::CutOff { host, direction });
            stage.run(600);
            stage.inject(Fault::Mend);
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
                stage.inject(Fault::AgentCut { switch: 1, away_ns: 500_000_000 });
            }
            cut_both(stage, primary, Host::Metadata);
            stage.run(600);
            stage.inject(Fault::Mend);
            stage.run(400);
            Some(())
        },
    },
    Script {
        name: "removed-but-reachable",
        row: 13,
        what: "a secondary is removed, does not learn it, and has a long lease; a switch with old tables still sends gets to it",
        shape: removed_but_reachable,
        play: |stage| remove_a_reachable_secondary(stage, true),
    },
    Script {
        name: "removed-but-reachable-by-old-flows",
        row: 13,
        what: "the same, and the switch acknowledges tables without it, but keeps using the old ones, as Open vSwitch may",
        shape: |scenario| {
            removed_but_reachable(scenario);
            (scenario.switches, scenario.matching) = (1, Matching::Headers);
            // The part of the lease for gets through switches is longer than a switch needs.
            scenario.timing.lease = Duration::from_millis(900);
        },
        play: |stage| remove_a_reachable_secondary(stage, false),
    },
    Script {
        name: "multicast-misses-one",
        row: 26,
        what: "no datagrams of clients and no multicasts of nodes reach one secondary",
        shape: as_it_is,
        play: |stage| {
            let deaf = stage.secondary()?;
            for client in 0..stage.cluster.clients().len() {
                stage.inject(Fault::Cut { from: Host::Client(client), to: Host::Node(deaf) });
            }
            stage.run(300);
            let primary = stage.primary()?;
            stage.inject(Fault::Cut { from: Host::Node(primary), to: Host::Node(deaf) });
            stage.run(700);
            Some(())
        },
    },
];

/// A secondary is removed and does not learn it, while clients reach it.
fn remove_a_reachable_secondary(stage: &mut Stage, by_a_switch_that_is_cut_off: bool) -> Played {
    let victim = Host::Node(stage.secondary()?);
    for other in (0..stage.cluster.nodes().len()).map(Host::Node).filter(|node| *node != victim) {
        cut_both(stage, victim, other);
    }
    stage.inject(Fault::Cut { from: Host::Metadata, to: victim });
    if stage.random.below(3) > 0 {
        stage.inject(Fault::Cut { from: victim, to: Host::Metadata });
    }
    if by_a_switch_that_is_cut_off {
        stage.inject(Fault::AgentCut { switch: 1, away_ns: 3_000_000_000 });
        if stage.random.below(2) == 0 {
            let delay_ms = stage.random.between(1, 200);
            stage.run(delay_ms);
            stage.inject(Fault::MetadataCrash { downtime_ns: 1_000_000 });
        }
    }
    stage.run(if by_a_switch_that_is_cut_off { 2_000 } else { 3_000 });
    let answered = stage.answered();
    stage.run(600);
    let all_done = stage.cluster.clients().iter().all(|client| client.is_done());
    if stage.answered() == answered && !all_done {
        stage.violations.push("nothing is answered although the removed node's lease is over (V)".into());
    }
    Some(())
}
