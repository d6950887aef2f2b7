//! Appends to values that are too long for a datagram (L8), under faults.

use nicekv_sim::cluster::{Scenario, Tally};
use nicekv_sim::features;
use nicekv_sim::judge;
use std::io::Write;
use std::ops::RangeInclusive;

const MILLISECOND_NS: u64 = 1_000_000;

/// Runs in which most updates are appends, in a scenario that `change` adapts.
fn survive(what: &str, seeds: RangeInclusive<u64>, change: impl Fn(&mut Scenario)) -> Tally {
    let mut tally = Tally::default();
    for seed in seeds.clone() {
        let mut scenario = judge::draw(seed);
        features::large_values::appended(&mut scenario);
        change(&mut scenario);
        let report = judge::run(scenario, seed, None);
        assert_eq!(report.violations, [""; 0], "{what}, seed {seed}");
        assert_eq!(report.too_large, 0, "{what}, seed {seed}: its histories are not judged");
        tally.add(&report.tally);
    }
    let made = tally.of("values made by primaries");
    writeln!(std::io::stderr(), "{what}, seeds {seeds:?}: {made} values made; {tally:?}")
        .expect("it is open");
    assert!(made > 300, "{what}: {made} values were made");
    tally
}

#[test]
fn appends_to_large_values_survive_crashes() {
    let tally = survive("crashes", 1..=40, |_| {});
    assert!(tally.of("crashes") > 50);
}

#[test]
fn appends_to_large_values_survive_losses_and_changes_of_primary() {
    let tally = survive("losses", 1..=40, |scenario| {
        (scenario.faults.loss, scenario.faults.delay) = (50_000, 50_000);
        scenario.faults.delay_max_ns = 100 * MILLISECOND_NS;
        (scenario.faults.stream_break, scenario.faults.duplication) = (100_000, 50_000);
        (scenario.faults.pause, scenario.faults.pause_max_ns) = (1_000, 500 * MILLISECOND_NS);
        scenario.faults.cut_interval_ns = 300 * MILLISECOND_NS;
    });
    assert!(tally.of("pauses") > 50 && tally.of("streams broken") > 50);
}

#[test]
fn appends_to_large_values_survive_power_losses() {
    let tally = survive("losses of power", 1..=40, |scenario| {
        (scenario.faults.crash, scenario.faults.power_loss) = (500, 200);
    });
    assert!(tally.of("losses of all power") > 20);
}

#[test]
fn appends_to_large_values_survive_full_disks_and_damage() {
    let tally = survive("full disks and damage", 1..=40, |scenario| {
        (scenario.faults.crash, scenario.faults.disk_full) = (500, 2_000);
        scenario.faults.corruption = 3_000;
    });
    assert!(tally.of("prepares refused for space") > 50);
}
