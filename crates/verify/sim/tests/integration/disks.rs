//! Full disks and damaged values (docs/FAULTS.md rows 9 and 10) without other faults. `seeds.rs` mixes them with all others.

use nicekv_proto::KeyOrder;
use nicekv_sim::cluster::{Scenario, Tally};
use nicekv_sim::faults::Faults;
use nicekv_sim::judge;
use nicekv_sim::keyspace::{Key, Shape};

const SEEDS: std::ops::Range<u64> = 0..40;

/// Runs random scenarios under these faults only; what befell them all.
fn run(faults: Faults) -> Tally {
    let mut tally = Tally::default();
    for seed in SEEDS {
        let report = judge::run(Scenario { faults, ..judge::draw(seed) }, seed, None);
        assert!(report.violations.is_empty(), "seed {seed}: {}", report.violations.join("\n"));
        tally.add(&report.tally);
    }
    tally
}

#[test]
fn row_09_full_disks_refuse_puts_and_recover() {
    let tally = run(Faults { disk_full: 3_000, loss: 10_000, ..Faults::NONE });
    assert!(tally.of("prepares refused for space") > 1_000, "{tally:?}");
}

#[test]
fn row_10_damaged_values_are_repaired_from_replicas() {
    let tally = run(Faults { corruption: 10_000, loss: 10_000, ..Faults::NONE });
    assert!(tally.of("values damaged") > 100, "{tally:?}");
    assert!(tally.of("values repaired") > tally.of("values damaged") / 3, "{tally:?}");
}

/// Large values that nobody reads any more, in keyspaces of both kinds: the scrub finds what is damaged, whether or not the disk knows it.
#[test]
fn row_10_damaged_large_values_are_fetched_from_replicas() {
    for shape in [Shape::multicast(3, 0), Shape::quorum(3, 2)] {
        let mut tally = Tally::default();
        for seed in SEEDS {
            let faults = Faults { corruption: 5_000, loss: 10_000, ..Faults::NONE };
            let mut scenario = Scenario { faults, ..judge::draw(seed) };
            (scenario.keyspaces, scenario.workload.large) = (vec![shape], 500_000);
            scenario.workload.keys = Key::of(0, KeyOrder::Hash, 8);
            let report = judge::run(scenario, seed, None);
            assert!(report.violations.is_empty(), "seed {seed}: {}", report.violations.join("\n"));
            tally.add(&report.tally);
        }
        assert!(tally.of("large values damaged") > 100, "{tally:?}");
    }
}

/// All power is lost now and then, or one node fails; some of up to R − 1 come back without their disks, or with older ones.
#[test]
fn rows_36_and_37_lost_and_older_disks_are_restored() {
    let faults = Faults { crash: 1_000, power_loss: 100, downtime_max_ns: 100_000_000, ..Faults::NONE };
    let tally = run(Faults { disk_lost: 300_000, disk_older: 700_000, loss: 10_000, ..faults });
    assert!(tally.of("disks lost") > 30 && tally.of("older disks put back") > 30, "{tally:?}");
}
