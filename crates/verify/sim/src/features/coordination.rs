//! Runs in which nodes or clients route requests instead of the switch (TurboKV §1).

use crate::cluster::Scenario;
use nicekv_client::Coordination;
use nicekv_testkit::Random;

/// Chooses who routes requests in a seed.
const COORDINATION: u64 = 0x63_6f6f_7264;

/// Draws who routes requests: in half of the seeds the switch. Only requests to chains depend on
/// it.
pub(crate) fn draw(seed: u64) -> Coordination {
    use Coordination::{Client, Server, Switch};
    Random::new(seed ^ COORDINATION).pick(&[Switch, Switch, Server, Client])
}

/// Lets the switch route requests. Hunts for planted bugs begin with this, unless they choose
/// otherwise.
pub(crate) fn by_switch(scenario: Scenario) -> Scenario {
    Scenario { coordination: Coordination::Switch, spares: 0, instances: 1, ..scenario }
}
