//! Failures between switches and the metadata service (docs/FAULTS.md rows 22 to 25).

use super::common::{as_it_is, crash, cut_both, removed_but_reachable, two_switches};
use super::script::Script;
use crate::cluster::{Fault, What};
use crate::network::Host;
use nicekv_proto::Duration;

pub(super) const SCRIPTS: &[Script] = &[
    Script {
        name: "switch-restarts",
        row: 22,
        what: "the switch restarts with empty tables, also during a failover",
        shape: as_it_is,
        play: |stage| {
            stage.inject(Fault::SwitchRestart(0));
            stage.run(300);
            let primary = stage.primary()?;
            stage.inject(crash(primary, 300));
            let delay_ms = stage.random.below(250);
            stage.run(delay_ms);
            stage.inject(Fault::SwitchRestart(0));
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
            stage.inject(Fault::AgentCut { switch, away_ns });
            stage.inject(Fault::MetadataCrash { downtime_ns: 30_000_000 });
            stage.run(800);
            stage.inject(Fault::Mend);
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
            // A node is silent: the pause begins just before the leader would act on it.
            cut_both(stage, Host::Node(victim), Host::Metadata);
            let delay_ms = stage.random.between(60, 200);
            stage.run(delay_ms);
            stage.inject(Fault::MetadataPause { pause_ns: 500_000_000, takeover_ns: 50_000_000 });
            stage.run(300);
            stage.inject(Fault::Mend);
            stage.run(700);
            Some(())
        },
    },
    Script {
        name: "leader-outlives-its-lease",
        row: 24,
        what: "the leader reaches only a secondary, which reaches only the leader, and loses the store; a switch without a connection goes on sending gets to that secondary",
        shape: |scenario| {
            removed_but_reachable(scenario);
            scenario.instances = 3;
            scenario.store_lease = Duration::from_millis(200);
        },
        play: |stage| {
            let leader = stage.cluster.leading_instance()?;
            let victim = stage.secondary()?;
            for other in (0..3).filter(|index| *index != leader) {
                cut_both(stage, Host::Node(victim), Host::instance(other));
            }
            for other in (0..stage.cluster.nodes().len()).filter(|node| *node != victim) {
                cut_both(stage, Host::Node(victim), Host::Node(other));
                cut_both(stage, Host::instance(leader), Host::Node(other));
            }
            stage.inject(Fault::AgentCut { switch: 1, away_ns: 3_000_000_000 });
            stage.inject(Fault::StoreLost { away_ns: 1_500_000_000 });
            stage.run(1_200);
            (stage.cluster.tally().of("metadata leaders elected") > 1).then_some(())
        },
    },
    Script {
        name: "tables-full",
        row: 25,
        what: "a switch refuses new tables for a while, during a failover",
        shape: two_switches,
        play: |stage| {
            stage.inject(Fault::TablesFull { switch: 1, full_ns: 700_000_000 });
            let primary = stage.primary()?;
            stage.inject(crash(primary, 300));
            stage.run(1_000);
            (stage.cluster.tally().of("tables refused for want of room") > 0).then_some(())
        },
    },
    Script {
        name: "port-missing",
        row: 25,
        what: "the operator adds a node on a port that no switch has; then a primary fails",
        shape: |scenario| {
            two_switches(scenario);
            scenario.spares = 1;
            scenario.faults.downtime_max_ns = 0;
        },
        play: |stage| {
            let spare = 3;
            // The ports are reported before, after or while the operator adds the node.
            if stage.random.below(2) == 0 {
                stage.inject(Fault::Add(spare));
            }
            stage.inject(Fault::PortMissing(spare));
            stage.run(100);
            stage.inject(Fault::Add(spare));
            stage.run(100);
            stage.inject(crash(stage.primary()?, 2_000));
            stage.run(1_000);
            let status = stage.cluster.metadata()?.status();
            if let Some(switch) = status.switches.iter().find(|switch| !switch.current) {
                let why = switch.error.as_deref().unwrap_or("it has not acknowledged them");
                stage.violations.push(format!("the failover is not in switch {}: {why}", switch.id));
            }
            Some(())
        },
    },
];
