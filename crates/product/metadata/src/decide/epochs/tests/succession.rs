//! A node takes over a member's place in keyspaces where silent members are only counted (R14).

use super::*;

/// The ring names node 4 instead of node 3.
fn wants(write_set: usize, table: Table) -> Table {
    Table { target: [1, 2, 4].map(NodeId).into(), policy: Policy::quorum(3, write_set), ..table }
}

fn epoch(originals: &str, members: &str, table: Table) -> String {
    moving(originals, members, &wants(2, table)).0
}

#[test]
fn leaving_member_counts_until_its_successor_does() {
    let default = Table::default;
    assert_eq!(epoch("1 2 3", "1+ 2+ 3+", default()), "6 1: 1+ 2+ 3+ 4j | 1 2 4n");
    assert_eq!(epoch("1 2 4n", "1+ 2+ 3+ 4j", default()), "- | ");
    assert_eq!(epoch("1 2 4n", "1+ 2+ 3+ 4c", default()), "- | ");
    // The leaving member is removed in the epoch in which its successor counts, and is waited for.
    let copied = || Table { copied: true, ..default() };
    assert_eq!(epoch("1 2 4n", "1+ 2+ 3+ 4c", copied()), "6* 1: 1+ 2+ 4p -3 | 1 2 4");
    assert_eq!(epoch("1 2 4n", "1+ 2+ 3+ 4c", Table { acknowledged: 4, ..copied() }), "- | ");
    // A primary leaves like any other member.
    assert_eq!(epoch("1 2 4n", "3+ 1+ 2+ 4c", copied()), "6* 4: 1+ 2+ 4p -3 | 1 2 4");
    // A fence, and the failure or restart of another member, do not interrupt the succession.
    let fence = Table { wants_fence: true, ..default() };
    assert_eq!(epoch("1 2 4n", "1+ 2+ 3+ 4c", fence), "6 1: 1+ 2+ 3+ 4c | 1 2 4n");
    assert_eq!(epoch("1 2 4n", "1+ 2+ 3+ 4c", Table::with(1, None)), "- | ");
    let again = || Table::with(1, Some(process(2)));
    assert_eq!(epoch("1 2 4n", "1+ 2+ 3+ 4c", again()), "6 1: 1p 2+ 3+ 4c | 1 2 4n");
    // A joiner with a new storage does not delay the removal of the leaving member, because
    // otherwise four members would count.
    assert_eq!(epoch("1 2 4n", "2+ 1j 3+ 4c", copied()), "6* 2: 2+ 1j 4p -3 | 1 2 4");
}

#[test]
fn succession_is_broken_off_when_either_process_changes() {
    let default = Table::default;
    let back = "6 1: 1+ 2+ 3+ -4j | 1 2 3";
    // The successor or the leaving member falls silent or restarts.
    assert_eq!(epoch("1 2 4n", "1+ 2+ 3+ 4c", Table::with(4, None)), back);
    assert_eq!(epoch("1 2 4n", "1+ 2+ 3+ 4c", Table::with(4, Some(process(2)))), back);
    assert_eq!(epoch("1 2 4n", "1+ 2+ 3+ 4c", Table::with(3, None)), back);
    let again = Table { copied: true, ..Table::with(3, Some(process(2))) };
    assert_eq!(epoch("1 2 4n", "1+ 2+ 3+ 4c", again), "6 1: 1+ 2+ 3p -4j | 1 2 3");
    // The leaving member has lost its disk. Its former process is waited for, because it had
    // served.
    let wiped = Some(Process { incarnation: 2, storage: 2 });
    assert_eq!(epoch("1 2 4n", "1+ 2+ 3+ 4c", Table::with(3, wiped)), "6* 1: 1+ 2+ 3j -3 -4j | 1 2 3");
    // The successor's disk is full, or it cannot communicate with the leaving member; or the ring
    // does not name it any more.
    assert_eq!(epoch("1 2 4n", "1+ 2+ 3+ 4c", Table { full: Some(4), ..default() }), back);
    let expelled = |node| Table { expelled: Some(NodeId(node)), ..default() };
    assert_eq!(epoch("1 2 4n", "1+ 2+ 3+ 4c", expelled(4)), back);
    assert_eq!(epoch("1 2 4n", "1+ 2+ 3+ 4c", expelled(3)), "- | ", "a member that counts is not expelled");
    let of = |target: [u16; 3]| Table { target: target.map(NodeId).into(), ..wants(2, default()) };
    assert_eq!(moving("1 2 4n", "1+ 2+ 3+ 4c", &of([1, 2, 3])).0, back);
    assert_eq!(moving("1 2 4n", "1+ 2+ 3+ 4c", &of([1, 2, 5])).0, back);
}

#[test]
fn succession_waits_until_the_rejected_newcomer_knows() {
    let mut after = partition("1+ 2+ 3+");
    after.removed.push(Removed { node: NodeId(4), incarnation: 1, since: 5, served: false });
    assert_eq!(show(&next_epoch(&after, &wants(2, Table::default()))), "-");
    after.removed[0].node = NodeId(5);
    assert_eq!(show(&next_epoch(&after, &wants(2, Table::default()))), "6 1: 1+ 2+ 3+ 4j -5j");
}

#[test]
fn succession_begins_when_the_leaving_member_is_live_and_counts() {
    let default = Table::default;
    assert_eq!(epoch("1 2 3", "1+ 2+ 3+", Table::with(3, None)), "- | ", "the leaving member may return");
    assert_eq!(epoch("1 2 3", "1+ 2+ 3p", default()), "- | ", "the leaving member must serve first");
    assert_eq!(epoch("1 2 3", "1+ 2+ 3c", default()), "- | ", "the leaving member lacks data");
    assert_eq!(epoch("1 2 3", "1+ 2c 3+", default()), "- | ");
}

#[test]
fn removed_node_is_replaced_if_others_hold_its_data() {
    let gone = || Table { given_up: Some(NodeId(3)), ..Table::with(3, None) };
    assert_eq!(epoch("1 2 3", "1+ 2+ 3+", gone()), "6* 1: 1+ 2+ 4j -3 | 1 2 4n");
    assert_eq!(
        epoch("1 2 3", "1+ 2+ 3c", gone()),
        "6* 1: 1+ 2+ 4j -3 | 1 2 4n",
        "the removed member may have answered"
    );
    let alone = moving("1 2 3", "1+ 2+ 3+", &wants(1, gone())).0;
    assert_eq!(alone, "- | ", "with k = 1 no other member may have its values");
    // While the node is live it hands its part over.
    let there = Table { given_up: Some(NodeId(3)), ..Table::default() };
    assert_eq!(epoch("1 2 3", "1+ 2+ 3+", there), "6 1: 1+ 2+ 3+ 4j | 1 2 4n");
    // The node that replaces it is a newcomer, which may itself be replaced, because it has never
    // answered.
    assert_eq!(epoch("1 2 4n", "1+ 2+ 4c", Table { copied: true, ..gone() }), "6 1: 1+ 2+ 4p | 1 2 4");
    assert_eq!(epoch("1 2 5n", "1+ 2+ 5c", gone()), "6 1: 1+ 2+ 4j -5j | 1 2 4n");
}
