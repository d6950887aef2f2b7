//! Wrong clocks, paused processes, and work that takes long (docs/FAULTS.md rows 19, 20 and 41).

use super::common::{as_it_is, two_failovers, update};
use super::script::{MILLISECOND_NS, Script};
use crate::checker::model::Change;
use crate::cluster::{Fault, Scenario};
use crate::faults::Faults;

pub(super) const SCRIPTS: &[Script] = &[
    Script {
        name: "wrong-clocks",
        row: 19,
        what: "wall clocks are a day off and step, boot-time clocks drift, values expire, primaries change",
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
            stage.inject(Fault::Pause { node, pause_ns });
            stage.run(900);
            Some(())
        },
    },
    Script {
        name: "append-takes-seconds",
        row: 41,
        what: "the other members wait for two seconds before they may fetch a large value, so an append is decided late: no node is replaced, and ops of other keys do not wait",
        shape: slow_copies,
        play: |stage| {
            update(stage, 0, 0, Change::Set(vec![b'v'; LARGE_BYTES]));
            stage.run(500);
            let before = stage.cluster.epochs();
            // The first append uses up what may be copied in two seconds.
            update(stage, 0, 0, Change::Append(b"1".to_vec()));
            stage.run(100);
            update(stage, 0, 0, Change::Append(b"2".to_vec()));
            for _ in 0..WAIT_MS / 100 {
                let answered = stage.answered();
                update(stage, 1, 1, Change::Increment(1));
                stage.run(100);
                if stage.answered() != answered + 1 {
                    stage.violations.push("only the other key's op is answered meanwhile".into());
                }
            }
            stage.run(3_000);
            if stage.cluster.epochs() != before {
                stage.violations.push("a node that was at work was replaced".into());
            }
            Some(())
        },
    },
];

const LARGE_BYTES: usize = 2_000_000;
/// Less than the time for which the other members wait.
const WAIT_MS: u64 = 1_500;

/// The script makes all calls. Nodes copy one large value in two seconds.
fn slow_copies(scenario: &mut Scenario) {
    scenario.faults = Faults::NONE;
    scenario.copy_bytes_per_second = LARGE_BYTES as u64 / 2;
    scenario.workload.calls = 0;
    scenario.workload.timeout_ns = 10_000 * MILLISECOND_NS;
}
