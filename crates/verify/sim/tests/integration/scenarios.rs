//! The scripted faults, one test per row of docs/FAULTS.md. `nicekv sim --scenario NAME` runs one.

use nicekv_sim::scenarios;

/// Seeds per script in `.ci/long`.
const SEEDS: u64 = 12;

fn survives(row: u8, name: &str) {
    let script = scenarios::find(name).expect("there is such a script");
    assert_eq!(script.row, row);
    for seed in 1..=crate::sampled(SEEDS) {
        let (report, is_played) = script.run(seed, None);
        assert!(is_played, "{name}, seed {seed}: the point did not come");
        let violations = report.violations.join("\n");
        assert!(violations.is_empty(), "{violations}\nreplay: nicekv sim --scenario {name} --seed {seed}");
        assert_eq!(report.too_large, 0, "{name}, seed {seed} is not judged");
    }
}

macro_rules! rows {
    ($($test:ident $row:literal $name:literal;)+) => {
        $(#[test]
        fn $test() {
            survives($row, $name);
        })+

        #[test]
        fn every_script_has_a_test() {
            let tested: &[&str] = &[$($name),+];
            let names: Vec<&str> = scenarios::scripts().map(|script| script.name).collect();
            assert_eq!(names, tested);
        }
    };
}

rows! {
    row_01_primary_dies_after_the_last_ack 1 "primary-dies-after-the-last-ack";
    row_02_primary_dies_before_the_answer 2 "primary-dies-before-the-answer";
    row_02_primary_dies_with_its_decisions 2 "primary-dies-with-its-decisions";
    row_03_secondary_dies_and_returns 3 "secondary-dies-and-returns";
    row_04_rejoin_under_writes 4 "rejoin-under-writes";
    row_04_restarted_but_reachable 4 "restarted-but-reachable";
    row_05_power_loss 5 "power-loss";
    row_05_power_loss_and_another_primary 5 "power-loss-and-another-primary";
    row_28_last_holder_dies 28 "last-holder-dies";
    row_36_disks_lost_in_a_restart 36 "disks-lost-in-a-restart";
    row_37_older_disks 37 "older-disks";
    row_37_disks_without_their_last_moments 37 "disks-without-their-last-moments";
    row_37_older_disks_of_a_chain 37 "older-disks-of-a-chain";
    row_40_older_metadata_state 40 "older-metadata-state";
    row_37_older_disk_of_a_quorum 37 "older-disk-of-a-quorum";
    row_28_who_leaves_starts_again 28 "who-leaves-starts-again";
    row_28_successor_does_not_hear_that_it_is_none 28 "successor-does-not-hear-that-it-is-none";
    row_28_who_has_left_does_not_hear_of_it 28 "who-has-left-does-not-hear-of-it";
    row_09_returns_without_space 9 "returns-without-space";
    row_09_chain_without_space_behind_the_head 9 "chain-without-space-behind-the-head";
    row_11_primary_in_a_minority 11 "primary-in-a-minority";
    row_12_primary_deaf_or_dumb 12 "primary-deaf-or-dumb";
    row_13_primary_cut_from_metadata 13 "primary-cut-from-metadata";
    row_13_removed_but_reachable 13 "removed-but-reachable";
    row_13_removed_but_reachable_by_old_flows 13 "removed-but-reachable-by-old-flows";
    row_26_multicast_misses_one 26 "multicast-misses-one";
    row_14_loss 14 "loss";
    row_15_duplication 15 "duplication";
    row_16_reordering 16 "reordering";
    row_17_late_replay 17 "late-replay";
    row_17_more_clients_than_are_remembered 17 "more-clients-than-are-remembered";
    row_18_lost_answers 18 "lost-answers";
    row_19_wrong_clocks 19 "wrong-clocks";
    row_20_paused_primary 20 "paused-primary";
    row_41_append_takes_seconds 41 "append-takes-seconds";
    row_22_switch_restarts 22 "switch-restarts";
    row_23_metadata_dies_between_two_switches 23 "metadata-dies-between-two-switches";
    row_24_old_leader_resumes 24 "old-leader-resumes";
    row_24_leader_outlives_its_lease 24 "leader-outlives-its-lease";
    row_25_tables_full 25 "tables-full";
    row_25_port_missing 25 "port-missing";
    row_22_ways_around_a_cable_and_a_switch 22 "ways-around-a-cable-and-a-switch";
    row_22_hundreds_of_switches 22 "hundreds-of-switches-of-which-one-lags";
    row_22_a_chain_moves_from_rack_to_rack 22 "a-chain-moves-from-rack-to-rack";
    row_13_a_rack_is_cut_off_with_the_tail 13 "a-rack-is-cut-off-with-the-tail";
    row_22_a_rack_starts_again_without_records 22 "a-rack-starts-again-without-records";
    row_35_load_on_the_first_of_ordered_keys 35 "load-on-the-first-of-ordered-keys";
    row_35_load_on_the_first_of_chains 35 "load-on-the-first-of-chains";
    row_35_one_key_is_too_hot 35 "one-key-is-too-hot";
}
