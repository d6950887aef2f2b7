//! Negotiations and transfers that a new map interrupts (P2, P13).

use super::*;
use crate::map::Layout;

/// A map in which the target is in the second group, and all slots belong to group `slots_of`.
fn next_map(slots_of: u8, before: Option<Layout>) -> Map {
    let groups = vec![
        Group::new(&[NodeId(3), NodeId(5), NodeId(6)]).unwrap(),
        Group::new(&[NodeId(8), NodeId(9), ME]).unwrap(),
    ];
    let layout = Layout::new(groups, [slots_of; crate::map::SLOTS]).unwrap();
    Map::of(MapVersion(VERSION.0 + 1), layout, before).unwrap()
}

fn asked(target: &mut Target) -> Vec<Storage> {
    core::iter::from_fn(|| target.poll_storage()).collect()
}

#[test]
fn new_map_frees_promises_by_the_old_one() {
    let (mut target, bytes) = (target(), content(1, 2_000));
    let id = chunk_id(&bytes);
    let bid = chosen(target.put(0, 1, &bytes));
    target.put(0, 2, &content(2, 3_000));
    target.accept(0, 1, id, bid);
    target.set_map(10, next_map(0, None));
    assert_eq!((target.promised_memory(), target.promised_disk(), target.under_way()), (0, 0, 0));
    assert_eq!(
        (target.arriving.len(), asked(&mut target).last()),
        (0, Some(&Storage::Abandon { op: op(1) }))
    );
    target.frame(20, 1, 0, &bytes[..CHUNK_BYTES]);
    assert_eq!((target.counters.frames_refused, target.next_deadline()), (1, u64::MAX));
}

#[test]
fn member_by_both_maps_completes_a_transfer_and_answers_by_the_new_one() {
    let (mut target, bytes) = (target(), content(1, 1_000));
    let bid = chosen(target.put(0, 1, &bytes));
    target.accept(0, 1, chunk_id(&bytes), bid);
    target.set_map(10, next_map(1, None));
    target.frame(20, 1, 0, &bytes);
    target.handle_storage(30, StorageDone::Finished { op: op(1), end: End::Whole });
    let said = core::iter::from_fn(|| target.poll_transmit(30)).last().unwrap();
    let Ok((_, Datagram::ChunkAnswer(answer))) = Datagram::decode(&said.bytes) else { panic!("{said:?}") };
    assert_eq!((answer.version, answer.place), (MapVersion(VERSION.0 + 1), 2));
    assert!(matches!(answer.answer, Answer::Stored { .. }) && target.holdings.held.len() == 1);
}

#[test]
fn transfer_that_ends_at_a_former_member_is_not_kept() {
    let (mut target, bytes) = (target(), content(1, 1_000));
    let id = chunk_id(&bytes);
    let bid = chosen(target.put(0, 1, &bytes));
    target.accept(0, 1, id, bid);
    target.frame(5, 1, 0, &bytes);
    // The disk has all of the chunk already.
    target.set_map(10, next_map(0, None));
    target.handle_storage(30, StorageDone::Finished { op: op(1), end: End::Whole });
    assert_eq!((target.holdings.held.len(), target.under_way(), target.promised_disk()), (0, 0, 0));
    assert_eq!(asked(&mut target).last(), Some(&Storage::Remove { id }));
    assert_eq!(target.answered(), None, "the target does not acknowledge it");
}

#[test]
fn former_member_is_read_under_its_present_place_while_the_slot_moves() {
    let (mut target, bytes) = (target(), content(1, 1_000));
    let id = chunk_id(&bytes);
    stored(&mut target, 0, 1, &bytes);
    let before = target.map.as_ref().unwrap().layout().clone();
    let version = MapVersion(VERSION.0 + 1);
    let ask = |target: &mut Target, wanted| {
        let request = ChunkRequest { op: op(9), reply_to: None, version, id, wanted };
        target.hear(10 * MS, initiator(1), |out| request.encode(out));
        target.poll_transmit(10 * MS).map(|send| match Datagram::decode(&send.bytes) {
            Ok((_, Datagram::ChunkAnswer(answer))) => (answer.place, answer.answer),
            other => panic!("{other:?}"),
        })
    };
    target.set_map(9 * MS, next_map(0, Some(before)));
    let Some((place, Answer::Held { token, .. })) = ask(&mut target, Wanted::Get) else { panic!("not held") };
    assert_eq!(place, 2, "its place in its current group");
    let put = Wanted::Put { bytes: 1_000, earliest_ns: 0, except: 0 };
    assert_eq!(ask(&mut target, put), None, "a former member takes no puts");
    let read = ChunkRead { op: op(9), reply_to: None, version, id, token, first: 0, count: 1 };
    asked(&mut target);
    target.hear(10 * MS, initiator(1), |out| read.encode(out));
    assert_eq!(asked(&mut target), [Storage::Read { id, offset: 0, bytes: 1_000 }]);
    // Marks protect chunks wherever they are held.
    target.set_round(Round(3));
    assert!(target.mark(Round(3), &[id]));
    while !target.sweep(Round(3)) {}
    assert_eq!((target.holdings.held.len(), target.counters.collected), (1, 0));
    target.set_round(Round(4));
    while !target.sweep(Round(4)) {}
    assert_eq!((target.holdings.held.len(), target.counters.collected), (0, 1));
}
