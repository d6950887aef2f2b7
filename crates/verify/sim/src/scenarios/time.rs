//! Wrong clocks and paused processes (docs/FAULTS.md rows 19 and 20).

use super::common::{as_it_is, two_failovers};
use super::script::Script;
use crate::cluster::Fault;

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
];
