//! Steps that several scripts share.

use super::script::{MILLISECOND_NS, Played, Stage};
use crate::checker::Action;
use crate::checker::model::{Change, When};
use crate::cluster::{Fault, Scenario, What};
use crate::keyspace::Key;
use crate::network::Host;
use crate::node::Kept;
use nicekv_proto::{Datagram, Duration};

pub(super) fn as_it_is(_: &mut Scenario) {}

pub(super) fn two_switches(scenario: &mut Scenario) {
    scenario.switches = 2;
}

/// Makes a removed node remain reachable: the lease is long, a second switch keeps old tables, and
/// many clients can notice stale answers.
pub(super) fn removed_but_reachable(scenario: &mut Scenario) {
    scenario.switches = 2;
    // Many keys: a key that is put through the old tables is locked at the removed node, which then
    // does not answer gets of it.
    scenario.clients = 8;
    scenario.workload.keys = Key::several(0, 60);
    scenario.workload.pause_ns_max = 8 * MILLISECOND_NS;
    scenario.workload.calls = 600;
    scenario.timing.lease = Duration::from_millis(500);
    scenario.faults.drift = 50_000;
}

pub(super) fn crash(node: usize, downtime_ms: u64) -> Fault {
    Fault::Crash { node, kept: Kept::Any, downtime_ns: Some(downtime_ms * 1_000_000) }
}

pub(super) fn cut_both(stage: &mut Stage, one: Host, other: Host) {
    stage.inject(Fault::Cut { from: one, to: other });
    stage.inject(Fault::Cut { from: other, to: one });
}

/// A client sets the first key.
pub(super) fn set(stage: &mut Stage, client: usize, value: &str) {
    update(stage, client, 0, Change::Set(value.into()));
}

/// A client changes a key, without a condition.
pub(super) fn update(stage: &mut Stage, client: usize, key: usize, change: Change) {
    let op = stage.cluster.clients()[client].next_op();
    stage.cluster.call(
        client,
        key,
        Action::Update { op, condition: When::Always, return_old: false, change },
    );
}

pub(super) fn opened(what: What<'_>) -> Option<Datagram<'_>> {
    let What::Datagram { bytes, .. } = what else { return None };
    Datagram::decode(bytes).ok().map(|(_, datagram)| datagram)
}

/// Kills two primaries in turn, each of which restarts.
pub(super) fn two_failovers(stage: &mut Stage, downtime_ms: u64, run_ms: u64) -> Played {
    for _ in 0..2 {
        let primary = stage.primary()?;
        stage.inject(crash(primary, downtime_ms));
        stage.run(run_ms);
    }
    Some(())
}
