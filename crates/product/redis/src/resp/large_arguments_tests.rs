//! Tests: how much memory a command requests, and which bytes it keeps.

use super::super::test_grant::TestGrant;
use super::*;

fn fill(large: &mut LargeArguments<TestGrant>, bytes: usize) {
    large.buffer().expect("it was granted").extend(core::iter::repeat_n(b'v', bytes));
}

#[test]
fn a_grant_is_held_until_the_last_user_of_the_argument_drops_it() {
    let budget = TestGrant::budget();
    let mut large = LargeArguments::default();
    assert!(large.begin(80) && large.missing() == Some(80) && large.buffer().is_none());
    large.accept(budget.grant(80));
    assert_eq!((large.missing(), large.has_grant()), (None, true));
    fill(&mut large, 80);
    let kept = large.end().unwrap();
    assert!(!large.begin(1), "a second large argument is truncated, not denied");
    assert!(!large.is_denied() && large.bytes() == 80);
    assert_eq!(kept[..], [b'v'; 80]);
    drop(large);
    assert_eq!(budget.held(), 80);
    drop(kept);
    assert_eq!(budget.held(), 0);
}

#[test]
fn a_grant_for_several_arguments_is_divided_and_the_rest_returned() {
    let budget = TestGrant::budget();
    let mut large = LargeArguments::default();
    assert!(large.begin(50));
    large.accept(budget.grant(200));
    fill(&mut large, 50);
    let first = large.end().unwrap();
    large.expect(120);
    assert_eq!(budget.held(), 170);
    assert!(large.begin(100) && large.missing().is_none(), "it was granted before");
    fill(&mut large, 100);
    let second = large.end().unwrap();
    assert!(!large.begin(21) && large.is_denied(), "20 bytes are left");
    assert!(!large.begin(1), "a denied command keeps nothing more");
    large.expect(0);
    assert_eq!((budget.held(), large.bytes()), (150, 150));
    assert_eq!([first, second].map(|bytes| bytes.len()), [50, 100]);
}

#[test]
fn a_denied_command_keeps_nothing() {
    let mut large = LargeArguments::<TestGrant>::default();
    assert!(large.begin(50));
    large.deny();
    assert!(large.is_denied() && large.missing().is_none() && large.buffer().is_none());
    assert!(large.end().is_none() && !large.begin(1));
}

#[test]
fn an_interrupted_argument_keeps_its_bytes_and_asks_for_the_rest() {
    let budget = TestGrant::budget();
    let mut large = LargeArguments::default();
    assert!(large.begin(100));
    large.accept(budget.grant(100));
    fill(&mut large, 30);
    large.interrupt();
    assert_eq!((large.missing(), large.has_begun(), budget.held()), (Some(70), true, 30));
    large.interrupt();
    assert_eq!((large.missing(), budget.held()), (Some(70), 30), "a second interruption returns nothing");
    large.accept(budget.grant(70));
    fill(&mut large, 70);
    let kept = large.end().unwrap();
    assert_eq!((kept.len(), budget.held()), (100, 100));
}

#[test]
fn an_argument_is_not_interrupted_without_room_for_a_dependent_grant() {
    let budget = TestGrant::budget();
    budget.set_dependent_max(29);
    let mut large = LargeArguments::default();
    assert!(large.begin(160));
    large.accept(budget.grant(160));
    fill(&mut large, 30);
    large.interrupt();
    assert_eq!((large.missing(), budget.held()), (None, 160));
    budget.set_dependent_max(1_000);
    let _first = large.end();
    assert!(large.begin(60));
    fill(&mut large, 1);
    large.interrupt();
    assert_eq!(
        (large.missing(), budget.held()),
        (None, 160),
        "an interruption would hold the first argument"
    );
}
