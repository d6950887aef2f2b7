//! Full disks and damaged values (docs/FAULTS.md rows 9 and 10) without other faults. `seeds.rs`
//! mixes them with all others.

use nicekv_proto::KeyOrder;
use nicekv_sim::cluster::{Scenario, Tally};
use nicekv_sim::faults::Faults;
use nicekv_sim::judge;
use nicekv_sim::keyspace::{Key, Shape};

/// Random runs of each test in `.ci/long`.
const SEEDS: u64 = 40;

/// Runs random scenarios under these faults only. Returns the sum of their counts.
fn run(faults: Faults) -> Tally {
    let mut tally = Tally::default();
    for seed in 0..crate::sampled(SEEDS) {
        let report = judge::run(Scenario { faults, ..judge::draw(seed) }, seed, None);
        assert!(report.violations.is_empty(), "seed {seed}: {}", report.violations.join("\n"));
        tally.add(&report.tally);
    }
    tally
}

#[test]
fn row_09_full_disks_refuse_puts_and_recover() {
    let tally = run(Faults { disk_full: 3_000, loss: 10_000, ..Faults::NONE });
    assert!(tally.of("prepares refused for space") > 25 * crate::sampled(SEEDS), "{tally:?}");
}

#[test]
fn row_10_damaged_values_are_repaired_from_replicas() {
    let tally = run(Faults { corruption: 10_000, loss: 10_000, ..Faults::NONE });
    assert!(tally.of("values damaged") > 5 * crate::sampled(SEEDS) / 2, "{tally:?}");
    assert!(tally.of("values repaired") > tally.of("values damaged") / 3, "{tally:?}");
}

/// Large values that no client reads, in both kinds of keyspaces: the scrub finds the damage,
/// whether or not the disk detects it.
#[test]
fn row_10_damaged_large_values_are_fetched_from_replicas() {
    for shape in [Shape::multicast(3, 0), Shape::quorum(3, 2)] {
        let mut tally = Tally::default();
        for seed in 0..crate::sampled(SEEDS) {
            let faults = Faults { corruption: 5_000, loss: 10_000, ..Faults::NONE };
            let mut scenario = Scenario { faults, ..judge::draw(seed) };
            (scenario.keyspaces, scenario.workload.large) = (vec![shape], 500_000);
            scenario.workload.keys = Key::of(0, KeyOrder::Hash, 8);
            let report = judge::run(scenario, seed, None);
            assert!(report.violations.is_empty(), "seed {seed}: {}", report.violations.join("\n"));
            tally.add(&report.tally);
        }
        assert!(tally.of("large values damaged") > 5 * crate::sampled(SEEDS) / 2, "{tally:?}");
    }
}

/// Sometimes all power is lost, or one node fails; up to R − 1 nodes restart with empty or older
/// disks.
#[test]
fn rows_36_and_37_lost_and_older_disks_are_restored() {
    let faults = Faults { crash: 1_000, power_loss: 100, downtime_max_ns: 100_000_000, ..Faults::NONE };
    let tally = run(Faults { disk_lost: 300_000, disk_older: 700_000, loss: 10_000, ..faults });
    assert!(
        tally.of("disks lost") * 4 > 3 * crate::sampled(SEEDS)
            && tally.of("older disks put back") * 4 > 3 * crate::sampled(SEEDS),
        "{tally:?}"
    );
}
