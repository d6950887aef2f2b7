//! Tests: which put may use the link, and which targets are chosen.

use super::*;

fn request_count(sent: &[Sent]) -> usize {
    sent.iter().filter(|sent| matches!(sent, Sent::Request(..))).count()
}

#[test]
fn one_put_at_a_time_uses_the_link() {
    let (mut initiator, bytes) = (multicast(), content(5_000));
    let id = chunk_id(&bytes);
    initiator.put(0, id, bytes);
    initiator.put(0, ChunkId([7; 32]), content(10));
    let said = sent(&mut initiator, 0);
    assert_eq!(request_count(&said), 1, "{said:?}");
    let [Sent::Request(op, _)] = said[..] else { panic!("{said:?}") };
    (0..4).for_each(|place| tell(&mut initiator, 100_000, (op, id), place, WIDE));
    initiator.handle_deadline(MS / 2);
    assert_eq!(request_count(&sent(&mut initiator, MS / 2)), 0, "another put has the turn");
    let frames = sent(&mut initiator, 2 * MS);
    assert_eq!((frames.len() as u32, request_count(&frames)), (frames_of(5_000), 0));
    let next_ns = initiator.next_deadline();
    assert!(next_ns <= 2 * MS, "the turn ends when all frames are sent, acknowledged or not: {next_ns}");
    initiator.handle_deadline(2 * MS);
    assert_eq!(request_count(&sent(&mut initiator, 2 * MS)), 1);
    assert_eq!(initiator.under_way(), 2);
}

#[test]
fn failed_negotiation_ends_the_turn() {
    let mut initiator = multicast();
    for seed in [1, 2] {
        initiator.put(0, ChunkId([seed; 32]), content(10));
    }
    assert_eq!(request_count(&sent(&mut initiator, 0)), 1);
    let over_ns = initiator.next_deadline();
    assert_eq!(over_ns, Timing::DEFAULT.answers_ns);
    initiator.handle_deadline(over_ns);
    assert_eq!(
        request_count(&sent(&mut initiator, over_ns)),
        1,
        "the other put has the turn while the first one pauses"
    );
}

/// A mask of the targets chosen among four bids. Each bid is a window (start, end) and the disk
/// time, in milliseconds; an empty window is no bid.
fn chosen_of(bids: [(u64, u64, u64); 4]) -> u16 {
    let (mut initiator, bytes) = (multicast(), content(5_000));
    let id = chunk_id(&bytes);
    initiator.put(0, id, bytes);
    let op = requested(&mut initiator, 0);
    for (place, (left, right, disk)) in (0..).zip(bids) {
        let bid = Answer::Bid { bid: 8, left_ns: left * MS, right_ns: right * MS, disk_ns: disk * MS };
        let answer = if left < right { bid } else { Answer::NotNow(MS) };
        tell(&mut initiator, 100_000, (op, id), place, answer);
    }
    let said = sent(&mut initiator, 100_000);
    let [Sent::Accept(accept)] = &said[..] else { panic!("{said:?}") };
    accept.chosen.iter().fold(0, |mask, chosen| mask | 1 << chosen.place)
}

#[test]
fn bids_are_chosen_by_earliest_durability() {
    assert_eq!(chosen_of([(1, 900, 400), (1, 900, 1), (1, 900, 1), (1, 900, 1)]), 0b1110);
    assert_eq!(
        chosen_of([(1, 900, 400), (1, 900, 1), (1, 900, 1), (300, 900, 1)]),
        0b1110,
        "a later window, but durable first"
    );
    assert_eq!(
        chosen_of([(1, 900, 400), (1, 900, 1), (1, 900, 1), (500, 900, 1)]),
        0b0111,
        "even with a slow disk, durable first"
    );
    assert_eq!(chosen_of([(1, 900, 400), (1, 900, 1), (1, 900, 1), (1, 1, 1)]), 0b0111, "no other bids");
}

#[test]
fn unicast_put_continues_at_once_after_each_stored_copy() {
    let (mut initiator, bytes) = (initiator(Config::UNICAST), content(5_000));
    let id = chunk_id(&bytes);
    initiator.put(0, id, bytes);
    let op = requested(&mut initiator, 0);
    // A window that is long enough for one target.
    let narrow = Answer::Bid { bid: 8, left_ns: MS, right_ns: MS + 200_000, disk_ns: MS };
    let refused = Answer::NotNow(MS);
    [narrow, refused, refused, refused]
        .into_iter()
        .zip(0..)
        .for_each(|(answer, place)| tell(&mut initiator, 100_000, (op, id), place, answer));
    sent(&mut initiator, 2 * MS);
    tell(&mut initiator, 3 * MS, (op, id), 0, stored(5));
    assert_eq!(request_count(&sent(&mut initiator, 3 * MS)), 1);
}
