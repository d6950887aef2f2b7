//! Runs with an empty key. It sorts before all others, and must not be confused with the start
//! position of listings, copies and scrubs.

use crate::client::transactions::TAG;
use crate::cluster::Scenario;
use nicekv_testkit::Random;

/// Chooses the seeds in which a key is empty.
const EMPTY_KEYS: u64 = 0x65_6d70_7479;

/// In a sixth of the seeds each keyspace has the empty key. The rest of the scenario stays as
/// drawn.
pub(crate) fn draw(mut scenario: Scenario, seed: u64) -> Scenario {
    if Random::new(!(seed ^ EMPTY_KEYS)).below(6) == 0 {
        of(&mut scenario);
    }
    scenario
}

/// Replaces the first key of each keyspace by the empty key, which keeps the order of the keys. A
/// co-located key is not replaced.
pub fn of(scenario: &mut Scenario) {
    let keys = &mut scenario.workload.keys;
    for number in 0..scenario.keyspaces.len() as u16 {
        let of_it = keys.iter_mut().filter(|key| key.keyspace == number);
        if let Some(first) = of_it.min_by(|one, other| one.name.cmp(&other.name))
            && !first.name.starts_with(TAG)
        {
            first.name.clear();
        }
    }
}
