//! The checker against every order of many small random histories: correct ones and ones with a
//! wrong answer, both with unknown outcomes.

#[allow(dead_code, reason = "other tests use the rest")]
use crate::reference;

use nicekv_history::{Verdict, check};
use nicekv_testkit::Random;
use reference::{history, orders, spoil};

/// Number of histories that are compared.
const HISTORIES: u64 = 60_000;

#[test]
fn every_order_of_small_histories_gives_the_same_verdict() {
    let mut random = Random::new(1);
    let (mut linearizable, mut violations) = (0, 0);
    for number in 0..HISTORIES {
        let mut calls = history(&mut random);
        if random.below(2) == 0 {
            spoil(&mut calls, &mut random);
        }
        let expected = match orders(&calls) {
            true => Verdict::Linearizable,
            false => Verdict::Violation,
        };
        assert_eq!(check(&calls), expected, "history {number}: {calls:?}");
        match expected {
            Verdict::Linearizable => linearizable += 1,
            _ => violations += 1,
        }
    }
    let least = HISTORIES / 10;
    assert!(linearizable > least && violations > least, "{linearizable} linearizable, {violations} not");
}
