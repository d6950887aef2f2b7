//! Scans cross trees of switches and are split in them (TurboKV §4.3, §6), in random runs under
//! faults.

use nicekv_proto::KeyOrder;
use nicekv_sim::cluster::{Scenario, Tally};
use nicekv_sim::judge;
use nicekv_sim::trunks::Trunks;
use std::io::Write;

fn scans_a_tree(scenario: &Scenario) -> bool {
    let is_ordered = scenario.keyspaces.iter().all(|shape| shape.order == KeyOrder::Range);
    let is_tree =
        matches!(scenario.trunks, Trunks::Racks { .. }) && !scenario.edges && !scenario.hides_sources;
    is_ordered && is_tree && scenario.workload.scans.2 > 2
}

/// Cores and AGGs split scans, too, by their coarse records. What clients join of the pieces is
/// judged.
#[test]
fn scans_are_split_at_every_level_of_a_switch_tree() {
    let runs = crate::sampled(40);
    let mut tally = Tally::default();
    for seed in (1..).filter(|seed| scans_a_tree(&judge::draw(*seed))).take(runs as usize) {
        let report = judge::run(judge::draw(seed), seed, None);
        assert_eq!(report.violations, [""; 0], "replay: nicekv sim --seed {seed}");
        tally.add(&report.tally);
    }
    let [split, above, coarse] =
        ["scans split by a switch", "scans split above the racks", "switches with coarse records at the end"]
            .map(|what| tally.of(what));
    writeln!(std::io::stderr(), "{split} scans split, {above} above the racks; {coarse} coarse switches")
        .unwrap();
    assert!(
        above * 2 >= 25 * runs && (split - above) * 2 >= 25 * runs && coarse * 2 >= 5 * runs,
        "{tally:?}"
    );
}
