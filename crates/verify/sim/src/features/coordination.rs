//! Runs in which nodes or clients route requests instead of the switch (TurboKV §1).

use crate::cluster::Scenario;
use nicekv_client::Coordination;
use nicekv_testkit::Random;

/// Chooses who does.
const COORDINATION: u64 = 0x63_6f6f_7264;

/// In half of the seeds the switch. It matters where there are chains.
pub(crate) fn draw(seed: u64) -> Coordination {
    use Coordination::{Client, Server, Switch};
    Random::new(seed ^ COORDINATION).pick(&[Switch, Switch, Server, Client])
}

/// What bugs are looked for in, unless they say otherwise.
pub(crate) fn by_switch(scenario: Scenario) -> Scenario {
    Scenario { coordination: Coordination::Switch, spares: 0, instances: 1, ..scenario }
}
