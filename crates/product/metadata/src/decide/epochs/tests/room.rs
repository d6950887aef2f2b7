//! When a move of an original may begin, and what waits for moves.

use super::*;
use nicekv_proto::limits::MEMBERS_MAX;

/// During a move the partition has one member more. If it already has as many as allowed, the move
/// waits.
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
    assert!(!is_due([1, 2, 3], Table::default()), "the originals are the targets");
    assert!(!is_due([3, 1, 2], Table::default()), "a new order needs no move");
    assert!(is_due([1, 2, 4], Table::default()));
    // The target node is absent or full: it is unknown when the move can begin, so nothing waits
    // for it.
    assert!(!is_due([1, 2, 4], Table::with(4, None)));
    assert!(!is_due([1, 2, 4], Table { full: Some(4), ..Table::default() }));
    assert!(is_due([1, 5, 4], Table::with(4, None)), "the other target is live");
}

/// Of two originals that should be replaced, a dead one is replaced first, because no move begins
/// while it is waited for.
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
    assert_eq!(originals([1, 2, 4], [true, false, false]), None, "the second original may return");
}
