//! What a command asks for, and what it keeps.

use super::*;
use crate::permits::Permits;

fn permits(bytes: usize) -> Arc<Permits> {
    Arc::new(Permits::new(bytes, Vec::new()))
}

/// Fills the argument that has begun with so many bytes.
fn fill(filling: &mut Filling, bytes: usize) {
    filling.buffer().expect("it was granted").extend(std::iter::repeat_n(b'v', bytes));
}

#[test]
fn an_argument_is_kept_as_long_as_somebody_needs_it_and_so_is_its_claim() {
    let permits = permits(200);
    let mut filling = Filling::default();
    assert!(filling.begin(80) && filling.missing() == Some(80) && filling.buffer().is_none());
    filling.accept(permits.ask_now(80).unwrap());
    assert_eq!((filling.missing(), filling.has_claim()), (None, true));
    fill(&mut filling, 80);
    filling.end(2);
    assert!(!filling.begin(1), "most commands have only one: another is not denied, but cut short");
    assert!(!filling.is_denied() && filling.bytes() == 80 && filling.kept(1).is_none());
    let kept = filling.kept(2).unwrap().clone();
    assert!(filling.all().count() == 1 && kept.bytes == [b'v'; 80]);
    drop(filling);
    assert_eq!(permits.held(), 80);
    drop(kept);
    assert_eq!(permits.held(), 0);
}

#[test]
fn what_was_granted_for_several_is_divided_and_the_rest_given_back() {
    let permits = permits(400);
    let mut filling = Filling::default();
    assert!(filling.begin(50));
    filling.accept(permits.ask_now(200).unwrap());
    fill(&mut filling, 50);
    filling.end(2);
    filling.expect(120);
    assert_eq!(permits.held(), 170);
    assert!(filling.begin(100) && filling.missing().is_none(), "that was granted before");
    fill(&mut filling, 100);
    filling.end(4);
    assert!(!filling.begin(21) && filling.is_denied(), "that was not");
    assert!(!filling.begin(1), "and so it stays");
    filling.expect(0);
    assert_eq!((permits.held(), filling.bytes()), (150, 150));
    assert_eq!([2, 4].map(|number| filling.kept(number).unwrap().bytes.len()), [50, 100]);
}

#[test]
fn what_is_denied_keeps_nothing() {
    let mut filling = Filling::default();
    assert!(filling.begin(50));
    filling.deny();
    assert!(filling.is_denied() && filling.missing().is_none() && filling.buffer().is_none());
    filling.end(2);
    assert!(filling.kept(2).is_none() && !filling.begin(1));
}

#[test]
fn who_is_interrupted_holds_what_is_there_and_asks_for_the_rest() {
    let permits = permits(200);
    let mut filling = Filling::default();
    assert!(filling.begin(100));
    filling.accept(permits.ask_now(100).unwrap());
    fill(&mut filling, 30);
    filling.interrupt();
    assert_eq!((filling.missing(), filling.has_begun(), permits.held()), (Some(70), true, 30));
    filling.interrupt();
    assert_eq!((filling.missing(), permits.held()), (Some(70), 30), "once is enough");
    filling.accept(permits.ask_now(70).unwrap());
    fill(&mut filling, 70);
    filling.end(2);
    assert_eq!((filling.kept(2).unwrap().bytes.len(), permits.held()), (100, 100));
}

#[test]
fn who_may_not_hold_on_to_a_part_is_not_interrupted() {
    let permits = permits(200);
    let others = permits.ask_dependent(71).unwrap();
    let mut filling = Filling::default();
    assert!(filling.begin(100));
    filling.accept(permits.ask_now(100).unwrap());
    fill(&mut filling, 30);
    filling.interrupt();
    assert_eq!((filling.missing(), permits.held()), (None, 171), "30 and 71 are more than a half");
    drop(others);
    filling.end(2);
    assert!(filling.begin(60));
    fill(&mut filling, 1);
    filling.interrupt();
    assert_eq!(
        (filling.missing(), permits.held()),
        (None, 100),
        "it has others that would be held meanwhile"
    );
}
