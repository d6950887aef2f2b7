//! Quorum keyspaces (R14) under random faults: SCENARIOS 21 and 27, and planted bugs that must be found.
//!
//! `NICEKV_SIM_SEEDS=A..B cargo test -p nicekv-sim --test quorum random` runs other seeds.

use nicekv_client::Plant as InClient;
use nicekv_node::Plant;

use nicekv_sim::quorum::{Scenario, draw, run};
use std::ops::Range;

/// A planted bug must show within so many seeds.
const PLANT_SEEDS: u64 = 200;

fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("NICEKV_SIM_SEEDS") else { return 0..150 };
    let (start, end) = text.split_once("..").expect("NICEKV_SIM_SEEDS is A..B");
    start.parse().expect("a number")..end.parse().expect("a number")
}

#[test]
fn random_faults_leave_histories_linearizable() {
    let (mut answered, mut too_large, mut runs) = (0, 0, 0);
    for seed in seeds() {
        let report = run(draw(seed), seed);
        let replay =
            format!("NICEKV_SIM_SEEDS={seed}..{} cargo test -p nicekv-sim --test quorum random", seed + 1);
        assert!(report.violations.is_empty(), "seed {seed}: {:#?}\nreplay: {replay}", report.violations);
        (answered, too_large, runs) = (answered + report.answered, too_large + report.too_large, runs + 1);
    }
    println!("{runs} runs, {answered} calls answered, {too_large} histories too large to judge");
    assert!(answered > 50 * runs, "the clients got too few answers to prove anything: {answered}");
    assert!(too_large * 20 <= runs, "too many histories without a verdict: {too_large}");
}

fn assert_found(what: &str, plant: impl Fn(&mut Scenario)) {
    let found = (0..PLANT_SEEDS).find(|&seed| {
        let mut scenario = draw(seed);
        plant(&mut scenario);
        run(scenario, seed).violations.iter().any(|violation| violation.ends_with("(L)"))
    });
    println!("{what}: {found:?}");
    assert!(found.is_some(), "{what} was not found within {PLANT_SEEDS} seeds");
}

#[test]
fn a_get_that_does_not_write_back_is_found() {
    assert_found("no write-back", |scenario| scenario.client_plant = Some(InClient::NoWriteBack));
}

#[test]
fn a_timestamp_chosen_from_one_answer_is_found() {
    assert_found("one answer", |scenario| scenario.client_plant = Some(InClient::AskOne));
}

#[test]
fn an_ack_before_the_force_is_found() {
    assert_found("early ack", |scenario| scenario.replica_plant = Some(Plant::QuorumAckBeforeForce));
}

#[test]
fn new_storage_that_counts_at_once_is_found() {
    assert_found("newcomer", |scenario| scenario.replica_plant = Some(Plant::NewcomerCountsAtOnce));
}
