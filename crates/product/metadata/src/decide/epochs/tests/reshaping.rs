//! Epoch changes while children are being formed, and of new children (R17).

use super::*;
use crate::state::Forming;

/// Any epoch that begins for another reason drops the children that are being formed (R17). Steps
/// within an epoch keep them.
#[test]
fn children_belong_to_the_members_that_form_them() {
    let forming = Forming { children: Vec::new(), sealed: true };
    let with = |members: &str| Partition { forming: Some(forming.clone()), ..partition(members) };
    let kept = |next: Option<Partition>| next.map(|next| next.forming.is_some());
    let again = || Table { may_lead_again: true, ..Table::default() };
    for (members, table) in [
        ("1+ 2+ 3+", Table::with(2, None)),
        ("1+ 2+ 3+", Table::with(1, None)),
        ("1+ 2+ 3+", Table::with(3, Some(process(2)))),
        ("1+ 2+ 3+", Table { target: [1, 2, 4].map(NodeId).into(), ..Table::default() }),
        ("1+ 2+ 3+", Table { expelled: Some(NodeId(2)), ..Table::default() }),
        ("2+ 1+ 3+", again()),
    ] {
        assert_eq!(kept(next_epoch(&with(members), &table)), Some(false), "{members}");
    }
    assert_eq!(kept(next_epoch(&with("1+ 2+ 3+"), &Table::default())), None);
    let left = Left { node: NodeId(4), since: 2 };
    let table = Table { discarded: Some(NodeId(4)), ..Table::default() };
    let partition = Partition { left: vec![left], ..with("1+ 2+ 3+") };
    assert_eq!(kept(next_step(&partition, &table)), Some(true));
}

/// A child is in force when all its members have acknowledged it, including those that joined in
/// the meantime (R17).
#[test]
fn child_is_activated_when_all_members_have_taken_over() {
    let parents = || vec![crate::state::Parent { partition: nicekv_proto::PartitionId(0), index: 7 }];
    let child = |members: &str| Partition { activated: false, parents: parents(), ..partition(members) };
    let behind = |table: Table| Table { acknowledged: 4, harmless: true, ..table };
    let born = |members: &str, table: &Table| {
        let next = next_step(&child(members), table);
        next.map(|next| (next.activated, next.parents.is_empty()))
    };
    assert_eq!(born("1+ 2+ 3+", &behind(Table::default())), None);
    assert_eq!(born("1+ 2+ 3+", &Table::default()), Some((true, true)));
    // A member dies before that: the next epoch still knows the child's parents.
    let next = next_epoch(&child("1+ 2+ 3+"), &behind(Table::with(2, None))).unwrap();
    assert_eq!((show(&Some(next.clone())).as_str(), next.parents), ("6* 1: 1+ 3+ -2", parents()));
    let next = next_epoch(&child("1+ 2+ 3+"), &Table::with(1, Some(process(2)))).unwrap();
    assert_eq!((show(&Some(next.clone())).as_str(), next.parents), ("6* 1: 1p 2+ 3+", parents()));
    // A joiner must acknowledge as well.
    assert_eq!(born("1+ 2+ 3j", &behind(Table::default())), None);
}
