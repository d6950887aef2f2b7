//! When a move may begin, and what waits for it.

use super::*;
use nicekv_proto::limits::MEMBERS_MAX;

/// A move takes one member more for a while: with as many as a partition may have it waits, until whoever is to go is given up.
#[test]
fn move_waits_for_room_among_the_members() {
    let begins = |others: usize| {
        let members = format!("1+ 2+ 3+{}", " 5h+".repeat(others));
        let observed = Table { target: [1, 2, 4].map(NodeId).into(), ..Table::default() };
        moves::begin(&partition(&members), &observed).is_some()
    };
    assert!(begins(MEMBERS_MAX - 4));
    assert!(!begins(MEMBERS_MAX - 3));
}

#[test]
fn a_split_waits_for_moves_that_may_begin() {
    let is_due = |target: [u16; 3], table: Table| {
        let observed = Table { target: target.map(NodeId).into(), ..table };
        moves::is_due(&partition("1+ 2+ 3+"), &observed)
    };
    assert!(!is_due([1, 2, 3], Table::default()), "it is where it is to be");
    assert!(!is_due([3, 1, 2], Table::default()), "the order moves nothing");
    assert!(is_due([1, 2, 4], Table::default()));
    // Nobody knows when the one that is to take it over is back, or has room.
    assert!(!is_due([1, 2, 4], Table::with(4, None)));
    assert!(!is_due([1, 2, 4], Table { full: Some(4), ..Table::default() }));
    assert!(is_due([1, 5, 4], Table::with(4, None)), "the other one may come");
}

/// Two are to go, one of whom is gone: that one goes first, as nothing would begin while it is waited for.
#[test]
fn absent_original_leaves_before_a_live_one() {
    let originals = |target: [u16; 3], live: [bool; 3]| {
        let mut observed = Table { target: target.map(NodeId).into(), ..Table::default() };
        for (place, _) in live.iter().enumerate().filter(|(_, is_live)| !**is_live) {
            observed.live[place] = None;
        }
        moves::begin(&partition("1+ 2+ 3+"), &observed).map(|next| next.originals)
    };
    let nodes = |nodes: [u16; 3]| Some(nodes.map(NodeId).to_vec());
    assert_eq!(originals([1, 4, 5], [true, true, true]), nodes([1, 4, 3]));
    assert_eq!(originals([1, 4, 5], [true, true, false]), nodes([1, 2, 4]));
    assert_eq!(originals([1, 4, 5], [true, false, false]), nodes([1, 4, 3]), "both are gone for good");
    assert_eq!(originals([1, 2, 4], [true, false, false]), None, "the second may be back");
}
