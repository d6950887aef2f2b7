//! Object storage: random worlds, and every interleaving of events on one chunk.

use nicekv_sim::objects::exhaustive::explore;
use nicekv_sim::objects::{draw, find, run};
use std::io::Write;

#[test]
fn random_object_worlds_have_no_violation() {
    let (mut put, mut got, mut collected, mut crashes) = (0, 0, 0, 0);
    let (mut lost, mut older, mut reshaped, mut put_again, mut surplus) = (0, 0, 0, 0, 0);
    for seed in 1..=150 {
        let report = run(draw(seed), seed);
        assert!(report.violations.is_empty(), "nicekv sim --objects --seed {seed}: {:?}", report.violations);
        put += report.put;
        got += report.got;
        collected += report.collected;
        crashes += report.crashes;
        lost += report.lost;
        older += report.older;
        reshaped += report.reshaped;
        put_again += report.put_again;
        surplus += report.surplus;
    }
    assert!(put > 5_000 && got > 5_000, "{put} put, {got} got");
    assert!(collected > 1_000 && crashes > 300, "{collected} collected, {crashes} crashes");
    assert!(lost > 20 && reshaped > 10, "{lost} targets lost, {reshaped} reshapings");
    assert!(older > 20, "{older} disks put back as they were");
    assert!(put_again > 200 && surplus > 500, "{put_again} chunks put again, {surplus} copies dropped");
}

/// Regression: maintenance passes skipped chunks that garbage collection had not decided about, so
/// a damaged one was found only after the next round.
#[test]
fn damaged_chunks_are_found_before_garbage_collection_decides() {
    let plant = find("chunk-lapsed-kept").expect("its shape loses and delays many datagrams");
    let report = plant.run(120);
    assert!(report.violations.is_empty(), "{:?}", report.violations);
}

#[test]
fn no_interleaving_on_one_chunk_loses_it() {
    let explored = explore();
    writeln!(std::io::stderr(), "P6 to P9: {} states", explored.states).expect("standard error is open");
    assert_eq!(explored.violation, None);
    assert!(explored.states > 10_000, "{} states", explored.states);
}
