//! Hot keys (H1 to H9): entries of switches come and go, and gets of copies stay linearizable.

use nicekv_sim::{features, judge};

/// Random runs of each world, and those in `.ci/long`.
const SEEDS: u64 = 12;
const SEEDS_LONG: u64 = 72;
/// Seeds that have found bugs. 239: a paused member was removed, and answered gets as a member
/// since a hot entry still led to it.
const FOUND: [u64; 1] = [239];

#[test]
fn gets_of_copies_are_linearizable_with_random_hot_entries() {
    let (seeds, mut all_waited) = (crate::runs(SEEDS, SEEDS_LONG), 0);
    for (name, shape) in features::hot_keys::WORLDS {
        let (mut answered, mut by_kernels, mut by_switches, mut waited) = (0, 0, 0, 0);
        for seed in (1..=seeds).chain(FOUND) {
            let mut scenario = judge::draw(seed);
            shape(&mut scenario);
            let report = judge::run(scenario, seed, None);
            assert!(report.violations.is_empty(), "{name}, seed {seed}: {}", report.violations[0]);
            answered += report.tally.of("gets answered by holders of copies");
            by_kernels += report.tally.of("gets answered by a kernel from copies");
            by_switches += report.tally.of("gets answered by a switch");
            waited += report.tally.of("ops that waited until copies were closed");
        }
        eprintln!(
            "{name}: holders answered {answered} gets, {by_kernels} of them by kernels, switches {by_switches}; {waited} ops waited for evidence"
        );
        assert!(answered > seeds, "{name}: too little happens");
        // Rare among switches.
        let is_rare = by_kernels == 0 && name == "among switches" && !nicekv_testkit::runs_long();
        assert!(by_kernels > 0 || is_rare, "{name}: too little happens in kernels");
        assert!(answered + by_switches > 5 * seeds, "{name}: too little happens");
        assert!(by_switches > seeds, "{name}: too little happens in switches");
        all_waited += waited;
    }
    assert!(all_waited > 0, "no op had to wait for evidence");
}
