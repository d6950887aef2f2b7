use super::*;
use crate::chunk_id;
use crate::map::Group;
use crate::reservation::Config;
use core::net::Ipv4Addr;
use nicekv_proto::chunk::{Chosen, ChunkAccept, ChunkRead, ChunkRequest, Wanted};
use nicekv_proto::large::{Chunk, RECEIVERS_ALL, TransferReport};
use nicekv_proto::limits::CHUNK_BYTES;
use nicekv_proto::{ClientId, KeyDigest, KeyspaceId};
use std::vec;

mod counters;
mod maps;

const MS: u64 = 1_000_000;
const ME: NodeId = NodeId(4);
const PLACE: u8 = 1;
const VERSION: MapVersion = MapVersion(7);

fn initiator(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 9), port)
}

fn op(sequence: u64) -> OpId {
    OpId { client: ClientId(5), sequence }
}

fn unready() -> Target {
    let config = TargetConfig {
        node: ME,
        process: 3,
        reservation: Config { margin_ns: 50_000, ..Config::MULTICAST },
        disk_bytes_per_second: 1 << 30,
        secret: [9; 32],
        maintenance: None,
    };
    Target::new(config, []).unwrap()
}

fn target() -> Target {
    let mut target = unready();
    let group = Group::new(&[NodeId(3), ME, NodeId(5), NodeId(6)]).unwrap();
    target.set_map(0, Map::new(VERSION, vec![group]).unwrap());
    target.set_round(Round(2));
    target.set_free(1 << 40);
    target
}

fn content(seed: u8, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at as u8).wrapping_mul(31) ^ seed).collect()
}

impl Target {
    fn hear(&mut self, now_ns: u64, from: SocketAddrV4, encode: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = Vec::new();
        encode(&mut bytes);
        self.handle_datagram(now_ns, from, &bytes);
    }

    fn request(&mut self, now_ns: u64, sequence: u64, id: ChunkId, wanted: Wanted) -> Option<Answer> {
        let request = ChunkRequest { op: op(sequence), reply_to: None, version: VERSION, id, wanted };
        self.hear(now_ns, initiator(1), |out| request.encode(out));
        self.answered()
    }

    fn put(&mut self, now_ns: u64, sequence: u64, bytes: &[u8]) -> Option<Answer> {
        let wanted = Wanted::Put { bytes: bytes.len() as u32, earliest_ns: 0, except: 0 };
        self.request(now_ns, sequence, chunk_id(bytes), wanted)
    }

    fn accept(&mut self, now_ns: u64, sequence: u64, id: ChunkId, chosen: Vec<Chosen>) -> Option<Answer> {
        let accept = ChunkAccept { op: op(sequence), reply_to: None, version: VERSION, id, chosen };
        self.hear(now_ns, initiator(1), |out| accept.encode(out));
        self.answered()
    }

    fn frame(&mut self, now_ns: u64, sequence: u64, number: u32, bytes: &[u8]) {
        let (keyspace, digest, mask) = (KeyspaceId::DEFAULT, KeyDigest::default(), RECEIVERS_ALL);
        let frame = Chunk { keyspace, op: op(sequence), digest, number, mask, bytes };
        self.hear(now_ns, initiator(1), |out| frame.encode(out));
    }

    /// The target's last answer; frames and reports are skipped.
    fn answered(&mut self) -> Option<Answer> {
        let sends = core::iter::from_fn(|| self.poll_transmit(0));
        let answers = sends.filter_map(|send| match Datagram::decode(&send.bytes) {
            Ok((_, Datagram::ChunkAnswer(ChunkAnswer { answer, .. }))) => Some(answer),
            _ => None,
        });
        answers.last()
    }

    fn reports(&mut self) -> Vec<TransferReport> {
        let sends = core::iter::from_fn(|| self.poll_transmit(0));
        let reports = sends.filter_map(|send| match Datagram::decode(&send.bytes) {
            Ok((_, Datagram::TransferReport(report))) => Some(report),
            _ => None,
        });
        reports.collect()
    }

    /// Carries out all requests to the disk, and reports that it has finished a transfer.
    fn finish(&mut self, now_ns: u64, sequence: u64, end: End) -> (Vec<Storage>, Option<Answer>) {
        let asked = core::iter::from_fn(|| self.poll_storage()).collect();
        self.handle_storage(now_ns, StorageDone::Finished { op: op(sequence), end });
        (asked, self.answered())
    }
}

fn chosen(answer: Option<Answer>) -> Vec<Chosen> {
    let Some(Answer::Bid { bid, left_ns, right_ns, .. }) = answer else { panic!("no bid: {answer:?}") };
    vec![Chosen { place: PLACE, bid, left_ns, right_ns }]
}

/// Puts a chunk and completes its transfer.
fn stored(target: &mut Target, now_ns: u64, sequence: u64, bytes: &[u8]) {
    let bid = chosen(target.put(now_ns, sequence, bytes));
    assert_eq!(target.accept(now_ns, sequence, chunk_id(bytes), bid), None);
    for (number, part) in (0..).zip(bytes.chunks(CHUNK_BYTES)) {
        target.frame(now_ns + MS, sequence, number, part);
    }
    let (_, answer) = target.finish(now_ns + 2 * MS, sequence, End::Whole);
    assert_eq!(answer, Some(Answer::Stored { stamp: Round(2), process: 3 }));
}

#[test]
fn chunk_is_bid_for_transferred_and_acknowledged_when_durable() {
    let (mut target, bytes) = (target(), content(1, 3_000));
    let id = chunk_id(&bytes);
    let bid = chosen(target.put(0, 1, &bytes));
    assert_eq!(target.accept(10_000, 1, id, bid), None);
    assert_eq!(
        target.put(20_000, 2, &bytes),
        Some(Answer::Arriving(target.transfers[&op(1)].left_ns(20_000).max(MS)))
    );
    [2, 0, 1].iter().for_each(|number| {
        target.frame(50_000, 1, *number, bytes.chunks(CHUNK_BYTES).nth(*number as usize).unwrap());
    });
    assert_eq!(target.answered(), None, "nothing is durable");
    let (asked, answer) = target.finish(MS, 1, End::Whole);
    assert_eq!(asked[0], Storage::Begin { op: op(1), id, bytes: 3_000, holders: vec![ME] });
    let writes = asked.iter().filter_map(|asked| match asked {
        Storage::Write { offset, bytes, .. } => Some((*offset, bytes.len())),
        _ => None,
    });
    assert_eq!(writes.collect::<Vec<_>>(), [(2_816, 184), (0, CHUNK_BYTES), (1_408, CHUNK_BYTES)]);
    assert_eq!(asked.last(), Some(&Storage::Finish { op: op(1) }));
    assert_eq!(answer, Some(Answer::Stored { stamp: Round(2), process: 3 }));
    assert_eq!((target.promised_memory(), target.promised_disk(), target.under_way()), (0, 0, 0));
    // The chunk exists: there is no transfer, only a new stamp.
    target.set_round(Round(5));
    assert_eq!(target.put(2 * MS, 3, &bytes), Some(Answer::Stored { stamp: Round(5), process: 3 }));
    assert_eq!(target.holdings.held[&id].stamp, Round(5));
}

#[test]
fn target_is_silent_before_it_has_a_map_and_a_round() {
    let mut target = unready();
    assert_eq!(target.request(0, 1, ChunkId([1; 32]), Wanted::Get), None);
    let group = Group::new(&[NodeId(3), ME]).unwrap();
    target.set_map(0, Map::new(VERSION, vec![group]).unwrap());
    assert_eq!(target.request(0, 1, ChunkId([1; 32]), Wanted::Get), None);
    target.set_round(Round(1));
    assert_eq!(target.request(0, 1, ChunkId([1; 32]), Wanted::Get), Some(Answer::NotFound));
}

#[test]
fn other_map_version_is_answered_and_excepted_target_is_silent() {
    let (mut target, bytes) = (target(), content(1, 100));
    let id = chunk_id(&bytes);
    for version in [MapVersion(6), MapVersion(8)] {
        let wanted = Wanted::Put { bytes: 100, earliest_ns: 0, except: 0 };
        let request = ChunkRequest { op: op(1), reply_to: None, version, id, wanted };
        target.hear(0, initiator(1), |out| request.encode(out));
        assert_eq!(target.answered(), Some(Answer::OtherMap));
    }
    let wanted = Wanted::Put { bytes: 100, earliest_ns: 0, except: 1 << PLACE };
    assert_eq!(target.request(0, 2, id, wanted), None);
    assert_eq!((target.under_way(), target.counters.other_map, target.counters.refused), (0, 2, 0));
}

#[test]
fn accept_of_an_unknown_bid_or_by_another_initiator_is_refused() {
    let (mut target, bytes) = (target(), content(1, 5_000));
    let id = chunk_id(&bytes);
    let never = vec![Chosen { place: PLACE, bid: 99, left_ns: 0, right_ns: 9_000_000 }];
    assert_eq!(target.accept(0, 1, id, never.clone()), Some(Answer::Lapsed));
    let bid = chosen(target.put(0, 2, &bytes));
    assert_eq!(target.accept(0, 2, id, never), Some(Answer::Lapsed), "a bid that was not made");
    let accept = ChunkAccept { op: op(3), reply_to: None, version: VERSION, id, chosen: bid };
    target.put(0, 3, &bytes);
    target.hear(0, initiator(2), |out| accept.encode(out));
    assert_eq!(
        (target.answered(), target.counters.refused, target.transfers.len()),
        (None, 1, 0),
        "a stranger"
    );
    let mut longer = chosen(target.put(0, 3, &bytes));
    longer[0].right_ns += 1;
    assert_eq!(target.accept(0, 3, id, longer), Some(Answer::Lapsed), "a window longer than promised");
    assert_eq!((target.promised_memory(), target.promised_disk(), target.under_way()), (0, 0, 0));
}

#[test]
fn invalid_frames_are_counted_and_dropped() {
    let (mut target, bytes) = (target(), content(1, 2_000));
    let bid = chosen(target.put(0, 1, &bytes));
    target.frame(0, 1, 0, &bytes[..CHUNK_BYTES]);
    target.accept(0, 1, chunk_id(&bytes), bid);
    target.frame(0, 1, 2, &bytes[..1]);
    target.frame(0, 1, 1, &bytes[..100]);
    target.frame(0, 9, 0, &bytes[..CHUNK_BYTES]);
    assert_eq!((target.counters.frames_refused, target.counters.frames), (4, 0));
    assert_eq!(core::iter::from_fn(|| target.poll_storage()).count(), 1, "the transfer has only begun");
    target.handle_datagram(0, initiator(1), b"no datagram");
    assert_eq!(target.counters.malformed, 1);
}

#[test]
fn chunk_that_does_not_match_its_id_is_refused() {
    let (mut target, bytes) = (target(), content(1, 2_000));
    for (sequence, end, told) in [(1, End::Wrong, Answer::Wrong), (2, End::NoRoom, Answer::NoSpace)] {
        let bid = chosen(target.put(0, sequence, &bytes));
        target.accept(0, sequence, chunk_id(&bytes), bid);
        target.frame(0, sequence, 0, &bytes[..CHUNK_BYTES]);
        target.frame(0, sequence, 1, &bytes[CHUNK_BYTES..]);
        assert_eq!(target.finish(MS, sequence, end).1, Some(told));
        assert_eq!((target.holdings.held.len(), target.arriving.len(), target.under_way()), (0, 0, 0));
        assert_eq!((target.promised_memory(), target.promised_disk()), (0, 0));
    }
}

#[test]
fn unaccepted_bids_are_bounded_and_expire() {
    let mut target = target();
    let bytes_max = target.config.reservation.bytes_max;
    let mut refused = 0;
    for sequence in 1..=100_000_u64 {
        let mut id = [0; 32];
        id[..8].copy_from_slice(&sequence.to_be_bytes());
        let wanted = Wanted::Put { bytes: 1 << 20, earliest_ns: 0, except: 0 };
        refused += u64::from(matches!(
            target.request(sequence, sequence, ChunkId(id), wanted),
            Some(Answer::NotNow(_))
        ));
        assert!(target.promised_memory() <= bytes_max && target.under_way() <= Config::MULTICAST.bids_max);
    }
    assert!(refused > 99_000, "{refused}");
    let lapse_ns = target.next_deadline();
    assert!(lapse_ns <= 100_000 + 5 * MS);
    target.handle_deadline(100_000 + 5 * MS);
    assert_eq!((target.promised_memory(), target.promised_disk(), target.under_way()), (0, 0, 0));
    assert_eq!(target.next_deadline(), u64::MAX);
}

#[test]
fn transfer_without_frames_expires() {
    let (mut target, bytes) = (target(), content(1, 2_000));
    let bid = chosen(target.put(0, 1, &bytes));
    target.accept(0, 1, chunk_id(&bytes), bid);
    target.frame(0, 1, 0, &bytes[..CHUNK_BYTES]);
    while target.under_way() > 0 {
        let now_ns = target.next_deadline();
        assert!(now_ns < 100 * MS);
        target.handle_deadline(now_ns);
    }
    let asked: Vec<_> = core::iter::from_fn(|| target.poll_storage()).collect();
    assert_eq!(asked.last(), Some(&Storage::Abandon { op: op(1) }));
    assert_eq!((target.promised_memory(), target.promised_disk(), target.arriving.len()), (0, 0, 0));
}

#[test]
fn missing_frames_and_probes_are_reported() {
    let (mut target, bytes) = (target(), content(1, 5 * CHUNK_BYTES));
    let bid = chosen(target.put(0, 1, &bytes));
    target.accept(0, 1, chunk_id(&bytes), bid.clone());
    let part = |number: usize| &bytes[number * CHUNK_BYTES..][..CHUNK_BYTES];
    target.frame(0, 1, 0, part(0));
    assert_eq!(target.reports(), [], "nothing is missing");
    target.frame(0, 1, 3, part(3));
    target.handle_deadline(2 * MS);
    let reports = target.reports();
    assert_eq!(reports.len(), 1);
    assert_eq!((reports[0].prefix, reports[0].missing[0].start, reports[0].missing[0].end), (1, 1, 3));
    assert_eq!((reports[0].op, reports[0].sender), (op(1), ME));
    target.accept(2 * MS + 1, 1, chunk_id(&bytes), bid.clone());
    let accept =
        ChunkAccept { op: op(1), reply_to: None, version: VERSION, id: chunk_id(&bytes), chosen: bid };
    target.hear(2 * MS + 2, initiator(1), |out| accept.encode(out));
    assert_eq!(target.reports(), [], "earlier frames may arrive after the probe");
    target.handle_deadline(3 * MS + 2);
    assert_eq!(target.reports().len(), 1, "a repeated accept asks for a report");
}

#[test]
fn full_disk_is_answered() {
    let mut target = target();
    target.set_free(3 << 20);
    let wanted = Wanted::Put { bytes: 1 << 20, earliest_ns: 0, except: 0 };
    let answers: Vec<_> =
        (1..=3).map(|number| target.request(0, number, ChunkId([number as u8; 32]), wanted)).collect();
    assert!(matches!(answers[..2], [Some(Answer::Bid { .. }), Some(Answer::Bid { .. })]));
    assert_eq!(answers[2], Some(Answer::NoSpace), "promised space is not free");
    target.handle_deadline(5 * MS);
    assert!(matches!(target.request(6 * MS, 4, ChunkId([4; 32]), wanted), Some(Answer::Bid { .. })));
}

#[test]
fn reads_need_the_token_of_their_address() {
    let (mut target, bytes) = (target(), content(3, 200_000));
    let id = chunk_id(&bytes);
    stored(&mut target, 0, 1, &bytes);
    let request = ChunkRequest { op: op(9), reply_to: None, version: VERSION, id, wanted: Wanted::Get };
    let mut asked = Vec::new();
    request.encode(&mut asked);
    target.handle_datagram(0, initiator(1), &asked);
    let Transmit { bytes: told, .. } = target.poll_transmit(0).unwrap();
    assert!(told.len() <= 3 * asked.len(), "{} for {}", told.len(), asked.len());
    let Ok((_, Datagram::ChunkAnswer(ChunkAnswer { answer: Answer::Held { bytes: length, token, .. }, .. }))) =
        Datagram::decode(&told)
    else {
        panic!("not held");
    };
    assert_eq!(length, 200_000);
    let read = |token, first, count| ChunkRead {
        op: op(9),
        reply_to: None,
        version: VERSION,
        id,
        token,
        first,
        count,
    };
    target.hear(0, initiator(2), |out| read(token, 0, 64).encode(out));
    target.hear(0, initiator(1), |out| read(token ^ 1, 0, 64).encode(out));
    target.hear(0, initiator(1), |out| read(token, 0, 65).encode(out));
    target.hear(0, initiator(1), |out| read(token, 143, 1).encode(out));
    target.hear(0, initiator(1), |out| read(token, 0, 0).encode(out));
    let TargetCounters { reads_unproven, reads_refused, reads, .. } = target.counters;
    assert_eq!((reads_unproven, reads_refused, reads, target.poll_transmit(0)), (2, 3, 0, None));
    target.hear(0, initiator(1), |out| read(token, 128, 64).encode(out));
    let reads: Vec<_> = core::iter::from_fn(|| target.poll_storage()).collect();
    let offset = 128 * CHUNK_BYTES as u32;
    assert_eq!(reads.last(), Some(&Storage::Read { id, offset, bytes: 200_000 - offset }));
    target.handle_storage(0, StorageDone::Read { bytes: Some(bytes[offset as usize..].to_vec()) });
    let frames: Vec<_> = core::iter::from_fn(|| target.poll_transmit(0)).collect();
    assert_eq!((frames.len(), target.counters.frames_sent), (15, 15));
    assert_eq!(target.counters.bytes_sent, 200_000 - u64::from(offset));
}

#[test]
fn damaged_chunk_is_dropped() {
    let (mut target, bytes) = (target(), content(3, 1_000));
    let id = chunk_id(&bytes);
    stored(&mut target, 0, 1, &bytes);
    let token = target.token(initiator(1));
    let read = ChunkRead { op: op(9), reply_to: None, version: VERSION, id, token, first: 0, count: 1 };
    target.hear(0, initiator(1), |out| read.encode(out));
    target.handle_storage(0, StorageDone::Read { bytes: None });
    assert_eq!(target.answered(), Some(Answer::NotFound));
    let asked: Vec<_> = core::iter::from_fn(|| target.poll_storage()).collect();
    assert_eq!((asked.last(), target.holdings.held.len()), (Some(&Storage::Remove { id }), 0));
}

#[test]
fn garbage_is_deleted_only_after_all_names_are_listed() {
    let mut target = target();
    let contents: Vec<Vec<u8>> = (1..=4).map(|seed| content(seed, 500)).collect();
    (0..).zip(&contents).for_each(|(at, bytes)| stored(&mut target, at * 10 * MS, at, bytes));
    let [old, marked, confirmed, kept] = [0, 1, 2, 3].map(|at: usize| chunk_id(&contents[at]));
    assert!(!target.mark(Round(3), &[marked]), "that round was not announced");
    target.set_round(Round(3));
    while !target.sweep(Round(3)) {}
    assert_eq!(target.holdings.held.len(), 4, "their objects may still get names");
    target.set_round(Round(4));
    target.put(50 * MS, 20, &contents[2]);
    assert!(target.mark(Round(4), &[marked]) && target.mark(Round(4), &[marked, kept]));
    assert!(!target.mark(Round(3), &[old]), "the round is over");
    assert_eq!((target.holdings.held.len(), target.swept()), (4, Round(3)), "names are still listed");
    assert!(target.sweep(Round(3)) && target.holdings.held.len() == 4, "that round is over");
    while !target.sweep(Round(4)) {}
    assert_eq!(target.holdings.held.keys().filter(|id| [marked, confirmed, kept].contains(id)).count(), 3);
    assert!(!target.holdings.held.contains_key(&old));
    let progress = target.progress();
    assert_eq!((progress.swept, progress.chunks, progress.bytes), (Round(4), 3, 3 * 500));
    assert_eq!((target.counters.collected, target.swept()), (1, Round(4)));
    for round in [5, 6] {
        target.set_round(Round(round));
        while !target.sweep(Round(round)) {}
    }
    assert!(target.holdings.held.is_empty(), "no chunk is needed");
}

#[test]
fn chunks_waiting_for_the_disk_count_as_memory() {
    let (mut target, bytes) = (target(), content(7, 4_000));
    let bid = chosen(target.put(0, 1, &bytes));
    target.accept(0, 1, chunk_id(&bytes), bid);
    for (number, part) in (0..).zip(bytes.chunks(CHUNK_BYTES)) {
        target.frame(MS, 1, number, part);
    }
    assert_eq!((target.book.bytes(), target.promised_memory()), (0, 4_000));
    target.config.reservation.bytes_max = 1 << 20;
    let wanted = |bytes| Wanted::Put { bytes, earliest_ns: 0, except: 0 };
    let answer = target.request(MS, 2, ChunkId([1; 32]), wanted((1 << 20) - 3_999));
    assert!(matches!(answer, Some(Answer::NotNow(_))), "{answer:?}");
    target.finish(2 * MS, 1, End::Whole);
    let answer = target.request(3 * MS, 3, ChunkId([1; 32]), wanted((1 << 20) - 3_999));
    assert!(matches!(answer, Some(Answer::Bid { .. })), "{answer:?}");
}
