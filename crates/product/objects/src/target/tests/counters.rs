use super::*;

#[test]
fn every_bid_is_counted_once_when_made_and_once_when_ended() {
    let mut target = target();
    let contents: Vec<Vec<u8>> = (1..=5).map(|seed| content(seed, 2_000)).collect();
    stored(&mut target, 0, 1, &contents[0]);
    // The chunk is held: no bid. While another chunk is arriving, there is no bid for that either.
    target.put(10 * MS, 2, &contents[0]);
    let bid = chosen(target.put(10 * MS, 3, &contents[1]));
    target.accept(10 * MS, 3, chunk_id(&contents[1]), bid);
    target.put(10 * MS, 4, &contents[1]);
    // The initiator chooses other targets, or none; a duplicate request gets the same bid.
    target.put(10 * MS, 5, &contents[2]);
    target.accept(10 * MS, 5, chunk_id(&contents[2]), vec![]);
    target.put(10 * MS, 6, &contents[3]);
    target.put(10 * MS, 6, &contents[3]);
    let usage = target.usage();
    assert_eq!((usage.bids, usage.transfers, usage.reads), (1, 1, 0));
    assert_eq!(usage.memory_promised_bytes, 2 * 2_000);
    assert!(usage.disk_promised_bytes > 2 * 2_000 && usage.disk_free_bytes > 1 << 39);
    target.handle_deadline(1_000 * MS);
    let TargetCounters { bids, transfers, cancelled, lapsed, .. } = target.counters;
    assert_eq!((bids, transfers, cancelled, lapsed), (4, 2, 1, 1));
    let TargetCounters { confirmed, arriving, stored, transfers_lapsed, given_up, .. } = target.counters;
    assert_eq!((confirmed, arriving, stored, transfers_lapsed, given_up), (1, 1, 1, 1, 0));
    assert_eq!(target.counters.requests, 7);
    let usage = target.usage();
    assert_eq!((usage.bids, usage.transfers, usage.memory_promised_bytes), (0, 0, 0));
    assert_eq!(usage.disk_promised_bytes, 0);
}

#[test]
fn refused_requests_are_counted_by_reason() {
    let mut target = target();
    target.set_free(1 << 20);
    let wanted = |bytes| Wanted::Put { bytes, earliest_ns: 0, except: 0 };
    assert_eq!(target.request(0, 1, ChunkId([1; 32]), wanted(2 << 20)), Some(Answer::NoSpace));
    target.config.reservation.bytes_max = 100;
    assert!(matches!(target.request(0, 2, ChunkId([1; 32]), wanted(101)), Some(Answer::NotNow(_))));
    let TargetCounters { bids, no_space, not_now, disk_full, .. } = target.counters;
    assert_eq!((bids, no_space, not_now, disk_full), (0, 1, 1, 0));
    assert_eq!((target.usage().disk_free_bytes, target.usage().memory_bytes_max), (1 << 20, 100));
}

#[test]
fn duplicate_and_missing_frames_are_counted() {
    let (mut target, bytes) = (target(), content(1, 5 * CHUNK_BYTES));
    let bid = chosen(target.put(0, 1, &bytes));
    target.accept(0, 1, chunk_id(&bytes), bid);
    for number in [0, 0, 3] {
        target.frame(0, 1, number, &bytes[..CHUNK_BYTES]);
    }
    target.handle_deadline(2 * MS);
    let TargetCounters { frames, frames_known, frames_missing, frames_refused, .. } = target.counters;
    assert_eq!((frames, frames_known, frames_missing, frames_refused), (3, 1, 2, 0));
}

#[test]
fn round_is_announced_then_listed_then_swept() {
    let mut target = target();
    (0..5_000_u32).for_each(|number| {
        let mut id = ChunkId([7; 32]);
        id.0[..4].copy_from_slice(&number.to_be_bytes());
        let held = Held { bytes: 1, stamp: Round(2), marked: Round(0), holders: vec![] };
        target.holdings.held.insert(id, held);
    });
    let of = |target: &Target| (target.usage().round, target.usage().listed, target.usage().swept);
    assert_eq!(of(&target), (Round(2), Round(0), Round(0)));
    assert!(!target.sweep(Round(2)), "not all chunks were examined");
    assert_eq!(of(&target), (Round(2), Round(2), Round(0)));
    while !target.sweep(Round(2)) {}
    target.set_round(Round(3));
    assert_eq!(of(&target), (Round(3), Round(2), Round(2)));
}
