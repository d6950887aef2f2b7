//! The metadata service cannot reach a rack that holds the tail of a chain: its switch must still acknowledge tables (C12).
//!
//! ```text
//!          head's rack             tail's rack, cut off; its switch has the old record
//!   put ──▶ head ──▶ middle: the tail of the next epoch
//!                                  client ──get──▶ ToR ──▶ old tail: has a lease, and has not received the put
//! ```

use super::common::{cut_both, set};
use super::script::{MILLISECOND_NS, PARTITION, Script, Stage};
use crate::cluster::{Cluster, Fault, Scenario};
use crate::keyspace::{Key, Shape};
use crate::network::Host;
use crate::trunks::Trunks;
use nicekv_metadata::{Metadata, PartitionStatus};
use nicekv_proto::Duration;

/// Longer than the script.
const AWAY_NS: u64 = 3_000 * MILLISECOND_NS;

pub(super) const SCRIPTS: &[Script] = &[
    Script {
        name: "a-rack-is-cut-off-with-the-tail",
        row: 13,
        what: "eight switches: the tail of a chain has a long lease and does not learn that it was removed; nor does the switch of its rack, through which a client goes on reading",
        shape: one_key_in_racks,
        play: |stage| {
            let cut_off = cut_off_with_tail(stage)?;
            set(stage, cut_off.writer, "new");
            stage.run_before(|cluster, _| is_answered(cluster, cut_off.writer))?;
            stage.cluster.get(cut_off.reader, 0);
            stage.run(300);
            Some(())
        },
    },
    Script {
        name: "a-rack-starts-again-without-records",
        row: 22,
        what: "the same, and the switch of the rack has restarted: it has no records, and drops the client's gets",
        shape: one_key_in_racks,
        play: |stage| {
            let cut_off = cut_off_with_tail(stage)?;
            stage.inject(Fault::SwitchRestart(cut_off.rack));
            let answered = stage.answered();
            stage.cluster.get(cut_off.reader, 0);
            stage.run(300);
            if stage.answered() > answered {
                stage.violations.push("a get is answered below a switch without records (C12)".into());
            }
            Some(())
        },
    },
];

/// Only the script makes calls. Client n is attached to the switch of node n.
fn one_key_in_racks(scenario: &mut Scenario) {
    (scenario.nodes, scenario.clients, scenario.trunks) = (4, 4, Trunks::TURBOKV);
    scenario.keyspaces = vec![Shape::chain(3, 0)];
    scenario.workload.keys = Key::several(0, 1);
    (scenario.workload.calls, scenario.workload.timeout_ns) = (0, AWAY_NS);
    scenario.timing.lease = Duration::from_millis(500);
}

struct CutOff {
    /// The switch of the tail's rack.
    rack: usize,
    /// A client that is attached to this switch.
    reader: usize,
    /// A client that is attached to another switch.
    writer: usize,
}

/// The tail has stored a value, and is then cut off together with its switch.
fn cut_off_with_tail(stage: &mut Stage) -> Option<CutOff> {
    set(stage, 0, "old");
    stage.run(50);
    let tail = usize::from(partition(&stage.cluster)?.tail?) - 1;
    let rack = stage.cluster.switch_of(tail);
    let hangs_there = |client: &usize| stage.cluster.home(Host::Client(*client)) == rack;
    let clients = 0..stage.cluster.clients().len();
    let (reader, writer) = (clients.clone().find(hangs_there)?, clients.clone().find(|it| !hangs_there(it))?);
    let nodes = (0..stage.cluster.nodes().len()).filter(|node| *node != tail).map(Host::Node);
    for other in nodes.chain([Host::Metadata]) {
        cut_both(stage, Host::Node(tail), other);
    }
    stage.inject(Fault::AgentCut { switch: rack, away_ns: AWAY_NS });
    Some(CutOff { rack, reader, writer })
}

fn partition(cluster: &Cluster) -> Option<PartitionStatus> {
    let partitions = cluster.metadata().map(Metadata::status)?.partitions;
    partitions.into_iter().find(|partition| partition.id == PARTITION.0)
}

fn is_answered(cluster: &Cluster, client: usize) -> bool {
    cluster.clients()[client].history().last().is_some_and(|call| call.call.answered.is_some())
}
