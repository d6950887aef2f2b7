use super::dying::{LINGER_NS, UNREAD_NS};
use super::*;
use nicekv_proto::ClientId;

const HOME: PartitionId = PartitionId(3);

fn reference(sequence: u64) -> Reference {
    Reference { name: OpId { client: ClientId(1), sequence }, length: 5_000, checksum: 7 }
}

fn name(sequence: u64) -> OpId {
    reference(sequence).name
}

fn lingered(index: &mut ValueIndex) -> Vec<OpId> {
    assert!(index.take_dead(1).is_empty(), "a client may be reading it");
    index.take_dead(1 + LINGER_NS)
}

#[test]
fn value_lives_while_an_op_or_entry_names_it() {
    let mut index = ValueIndex::default();
    assert!(index.mark() && !index.mark());
    index.add(name(1));
    index.take_up(reference(1), HOME);
    index.note(HOME, b"k", Some(reference(1)));
    index.let_go(name(1), HOME);
    assert!(lingered(&mut index).is_empty() && index.holds(name(1)));
    index.add(name(2));
    index.note(HOME, b"k", Some(reference(2)));
    assert_eq!(lingered(&mut index), [name(1)]);
    index.note(HOME, b"l", Some(reference(2)));
    index.note(HOME, b"k", None);
    assert!(lingered(&mut index).is_empty());
    index.note_cleared(HOME);
    assert_eq!(lingered(&mut index), [name(2)]);
}

#[test]
fn value_used_again_before_removal_stays() {
    let mut index = ValueIndex::default();
    index.add(name(1));
    assert!(index.take_dead(1).is_empty());
    index.note(HOME, b"k", Some(reference(1)));
    index.note(HOME, b"k", None);
    assert!(index.take_dead(LINGER_NS).is_empty());
    assert!(index.take_dead(LINGER_NS + 1).is_empty(), "the time until removal has started anew");
    assert_eq!(index.take_dead(2 * LINGER_NS), [name(1)]);
}

#[test]
fn unused_value_goes_soon_unless_read() {
    let mut index = ValueIndex::default();
    for number in 1..=2 {
        index.add(name(number));
        index.note(HOME, b"k", Some(reference(number)));
    }
    index.touch(0, name(2));
    index.note(HOME, b"k", None);
    assert!(index.take_dead(0).is_empty());
    index.touch(UNREAD_NS - 1, name(2));
    assert_eq!(index.take_dead(UNREAD_NS), [name(1)], "a value in use is not removed, whenever it was read");
    index.touch(UNREAD_NS + 5, name(2));
    assert!(index.take_dead(UNREAD_NS + 4 + LINGER_NS).is_empty());
    assert_eq!(index.take_dead(UNREAD_NS + 5 + LINGER_NS), [name(2)]);
    index.touch(0, name(2));
    assert!(index.take_dead(u64::MAX).is_empty());
}

#[test]
fn value_named_by_a_result_stays_until_forgotten_or_its_bound() {
    let mut index = ValueIndex::default();
    (1..=3).for_each(|sequence| index.add(name(sequence)));
    (1..=2).for_each(|sequence| index.pin(name(sequence)));
    index.pin(name(1));
    assert_eq!(lingered(&mut index), [name(3)]);
    index.unpin(name(1));
    assert!(index.take_dead(PINNED_NS / 2).is_empty(), "another result names it");
    index.unpin(name(1));
    assert!(index.take_dead(PINNED_NS / 2).is_empty(), "the time until removal starts with the last unpin");
    assert_eq!(index.take_dead(PINNED_NS / 2 + LINGER_NS), [name(1)]);
    assert!(index.take_dead(PINNED_NS).is_empty());
    assert_eq!(index.take_dead(PINNED_NS + 1), [name(2)], "removed although a result still names it");
    index.unpin(name(2));
    assert!(lingered(&mut index).is_empty() && !index.holds(name(2)));
}

#[test]
fn pinned_value_that_is_used_again_stays() {
    let mut index = ValueIndex::default();
    index.add(name(1));
    index.pin(name(1));
    assert!(index.take_dead(1).is_empty() && index.take_dead(1 + LINGER_NS).is_empty());
    index.note(HOME, b"k", Some(reference(1)));
    index.unpin(name(1));
    assert!(index.take_dead(PINNED_NS + 1).is_empty() && index.holds(name(1)));
    index.pin(name(7));
    index.unpin(name(7));
    index.unpin(name(7));
    assert!(lingered(&mut index).is_empty(), "a value that is not on disk is not removed");
}

#[test]
fn named_value_is_missing_until_fetched_or_unused() {
    let mut index = ValueIndex::default();
    index.note(HOME, b"k", Some(reference(1)));
    index.note(HOME, b"l", Some(reference(2)));
    assert!(index.lacks(HOME) && !index.lacks(PartitionId(4)));
    assert_eq!(index.lacking_after(None).map(|lack| lack.reference), Some(reference(1)));
    assert_eq!(index.lacking_after(Some(name(1))).map(|lack| lack.reference), Some(reference(2)));
    index.add(name(1));
    index.note(HOME, b"l", None);
    assert!(!index.lacks(HOME));
    index.lose(name(1));
    assert!(index.lacks(HOME) && !index.holds(name(1)));
    index.want(reference(9), HOME);
    index.give_up(name(9));
    index.give_up(name(1));
    assert_eq!(
        index.lacking_after(None).map(|lack| lack.reference),
        Some(reference(1)),
        "a value in use stays missing"
    );
}

/// An entry was unreadable when the pass came by, and is read later.
#[test]
fn entry_found_after_the_pass_counts_once() {
    let mut index = ValueIndex::default();
    index.begin([name(1)].into_iter());
    index.find(HOME, b"k", reference(2));
    assert_eq!(index.lack(name(2)), None, "not known before the pass");
    index.end_partition(HOME);
    index.end_pass();
    index.note(HOME, b"l", Some(reference(3)));
    index.find(HOME, b"l", reference(1));
    assert_eq!(lingered(&mut index), [name(1)], "the entry written since the read counts");
    for _ in 0..2 {
        index.find(HOME, b"k", reference(2));
        assert!(index.lack(name(2)).is_some());
    }
    index.note(HOME, b"k", None);
    assert_eq!(index.lack(name(2)), None);
}

#[test]
fn unused_condemned_value_is_removed() {
    let mut index = ValueIndex::default();
    for number in 1..=3 {
        index.add(name(number));
        index.note(HOME, &[number as u8], Some(reference(number)));
    }
    index.add(name(4));
    [1, 2, 4].into_iter().for_each(|number| index.lose(name(number)));
    assert!([1, 2, 4].into_iter().all(|number| index.is_condemned(name(number))));
    assert!(!index.holds(name(1)) && !index.is_condemned(name(3)));
    index.add(name(2));
    assert!(index.holds(name(2)) && !index.is_condemned(name(2)));
    index.note(HOME, &[1], None);
    let mut gone = lingered(&mut index);
    gone.sort_unstable();
    assert_eq!(gone, [name(1), name(4)]);
    assert!(!index.is_condemned(name(1)) && !index.lacks(HOME));
}

#[test]
fn value_of_a_taken_over_partition_is_fetched_from_its_members() {
    let (mut index, heir) = (ValueIndex::default(), PartitionId(4));
    index.add(name(1));
    for partition in [HOME, heir] {
        index.note(partition, b"k", Some(reference(1)));
        index.note(partition, b"l", Some(reference(2)));
    }
    index.note_cleared(HOME);
    index.lose(name(1));
    let lacks = [1, 2].map(|sequence| index.lack(name(sequence)).map(|lack| lack.partition));
    assert_eq!(lacks, [Some(heir), Some(heir)]);
}

#[test]
fn used_values_are_visited_in_name_order() {
    let mut index = ValueIndex::default();
    for (number, key) in [(3, b"a"), (1, b"b"), (2, b"c"), (4, b"d")] {
        index.note(HOME, key, Some(reference(number)));
    }
    [1, 3, 4, 5].into_iter().for_each(|number| index.add(name(number)));
    assert_eq!(index.used_after(None), Some(reference(1)));
    assert_eq!(index.used_after(Some(name(1))), Some(reference(3)), "the second is not on disk");
    index.lose(name(4));
    assert_eq!(index.used_after(Some(name(3))), None, "the fifth is not used");
}

#[test]
fn after_a_restart_nothing_is_removed_before_the_pass_ends() {
    let mut index = ValueIndex::default();
    index.begin([name(1), name(2), name(3)].into_iter());
    index.take_up(reference(3), HOME);
    assert!(index.lacks(HOME) && index.is_unread(HOME));
    index.begin_page();
    index.note(HOME, b"newer", None);
    index.note_read(HOME, b"k", reference(1));
    index.note_read(HOME, b"newer", reference(2));
    assert!(index.take_dead(LINGER_NS).is_empty());
    index.end_partition(HOME);
    assert!(!index.lacks(HOME));
    index.end_pass();
    assert_eq!(lingered(&mut index), [name(2)]);
    assert!(index.holds(name(1)) && index.holds(name(3)));
}

#[test]
fn missing_value_is_looked_for_in_the_remaining_partition() {
    let heir = PartitionId(4);
    let speakers = |order: [PartitionId; 2]| {
        let mut index = ValueIndex::default();
        index.mark();
        order.iter().for_each(|partition| index.note(*partition, b"k", Some(reference(1))));
        index
    };
    for order in [[HOME, heir], [heir, HOME]] {
        for (ends, stays) in [(HOME, heir), (heir, HOME)] {
            let mut index = speakers(order);
            assert!(index.lacks(HOME) && index.lacks(heir), "both partitions lack the value");
            index.note_cleared(ends);
            assert!(index.lacks(stays) && !index.lacks(ends));
            assert_eq!(index.lack(name(1)).map(|lack| lack.partition), Some(stays), "of {order:?}");
            index.add(name(1));
            index.lose(name(1));
            assert_eq!(index.lack(name(1)).map(|lack| lack.partition), Some(stays));
            index.note_cleared(stays);
            assert_eq!(index.lack(name(1)), None);
        }
    }
}
