use super::*;
use crate::chunk_id;
use crate::map::{Group, Layout, SLOTS};
use crate::reservation::Config;
use crate::transmit::Destination;
use alloc::vec::Vec;
use nicekv_proto::OpId;
use nicekv_proto::chunk::{Answer, ChunkAccept, ChunkAnswer, ChunkRequest, Wanted, frames_of};
use nicekv_proto::chunk::{MapVersion, Round};
use nicekv_proto::large::{Chunk, RECEIVERS_ALL};
use nicekv_proto::limits::CHUNK_BYTES;
use nicekv_proto::{ClientId, NodeId};
use nicekv_proto::{KeyDigest, KeyspaceId};
use std::vec;

const MS: u64 = 1_000_000;
const VERSION: MapVersion = MapVersion(2);
const WIDE: Answer = Answer::Bid { bid: 8, left_ns: MS, right_ns: 9 * MS, disk_ns: MS };

fn map(version: u32, first: u16) -> Arc<Map> {
    let group = Group::new(&[0, 1, 2, 3].map(|node| NodeId(first + node))).unwrap();
    Arc::new(Map::new(MapVersion(version), vec![group]).unwrap())
}

fn initiator(reservation: Config) -> Initiator {
    let timing = Timing { deadline_ns: 500 * MS, ..Timing::DEFAULT };
    let config = InitiatorConfig { client: ClientId(4), copies: 3, reservation, timing };
    let mut initiator = Initiator::new(config, 11).unwrap();
    initiator.set_map(0, map(2, 10));
    initiator
}

fn multicast() -> Initiator {
    initiator(Config { is_last_tried: true, ..Config::MULTICAST })
}

fn content(length: usize) -> Arc<[u8]> {
    (0..length).map(|at| (at / 3) as u8).collect()
}

/// A datagram that was sent.
#[derive(Debug)]
enum Sent {
    Request(OpId, ChunkRequest),
    Accept(ChunkAccept),
    Frame(u16),
    Read(u32, u16, u16),
}

fn sent(initiator: &mut Initiator, now_ns: u64) -> Vec<Sent> {
    let sends = core::iter::from_fn(|| initiator.poll_transmit(now_ns));
    let sent = sends.map(|send| {
        let Destination::Group { mask, .. } = send.to else { panic!("{send:?} is not for a group") };
        match Datagram::decode(&send.bytes).unwrap().1 {
            Datagram::ChunkRequest(request) => Sent::Request(request.op, request),
            Datagram::ChunkAccept(accept) => Sent::Accept(accept),
            Datagram::Chunk(_) => Sent::Frame(mask),
            Datagram::ChunkRead(read) => Sent::Read(read.first, read.count, mask),
            other => panic!("initiators do not send {other:?}"),
        }
    });
    sent.collect()
}

fn requested(initiator: &mut Initiator, now_ns: u64) -> OpId {
    let all = sent(initiator, now_ns);
    let op = all.iter().find_map(|sent| if let Sent::Request(op, _) = sent { Some(*op) } else { None });
    op.unwrap_or_else(|| panic!("no request in {all:?}"))
}

fn tell(initiator: &mut Initiator, now_ns: u64, of: (OpId, ChunkId), place: u8, answer: Answer) {
    tell_by(initiator, now_ns, of, (place, NodeId(10 + u16::from(place)), VERSION), answer);
}

fn tell_by(
    initiator: &mut Initiator,
    now_ns: u64,
    (op, id): (OpId, ChunkId),
    (place, node, version): (u8, NodeId, MapVersion),
    answer: Answer,
) {
    let mut bytes = Vec::new();
    ChunkAnswer { op, version, node, place, answer, id }.encode(&mut bytes);
    initiator.handle_datagram(now_ns, &bytes);
}

fn stored(stamp: u64) -> Answer {
    Answer::Stored { stamp: Round(stamp), process: 1 }
}

fn events(initiator: &mut Initiator) -> Vec<Event> {
    core::iter::from_fn(|| initiator.poll_event()).collect()
}

#[test]
fn multicast_put_sends_once_to_three_in_their_common_window() {
    let (mut initiator, bytes) = (multicast(), content(5_000));
    let id = chunk_id(&bytes);
    let handle = initiator.put(0, id, bytes);
    let op = requested(&mut initiator, 0);
    (0..4).for_each(|place| tell(&mut initiator, 100_000, (op, id), place, WIDE));
    let said = sent(&mut initiator, 100_000);
    let [Sent::Accept(accept)] = &said[..] else { panic!("{said:?}") };
    let chosen = accept.chosen.iter().fold(0, |mask, chosen| mask | 1_u16 << chosen.place);
    assert_eq!((accept.chosen.len(), chosen.count_ones()), (3, 3));
    assert!(initiator.next_deadline() >= MS, "frames wait for the window");
    let frames = sent(&mut initiator, 2 * MS);
    let masks: Vec<u16> =
        frames.iter().map(|sent| if let Sent::Frame(mask) = sent { *mask } else { 0 }).collect();
    assert_eq!(masks, vec![chosen; frames_of(5_000) as usize], "each frame once");
    let places: Vec<u8> = accept.chosen.iter().map(|chosen| chosen.place).collect();
    for (at, place) in places.iter().enumerate() {
        assert_eq!(events(&mut initiator).len(), 0);
        tell(&mut initiator, 3 * MS, (op, id), *place, stored(5 + at as u64));
    }
    let told = events(&mut initiator);
    let [Event::Put(of, Ok(placed))] = &told[..] else { panic!("{told:?}") };
    assert_eq!((*of, placed.stamp, placed.version, placed.holders.len()), (handle, Round(5), VERSION, 3));
    assert_eq!((initiator.under_way(), initiator.next_deadline()), (0, u64::MAX));
}

#[test]
fn unicast_put_uses_one_window_per_target() {
    let (mut initiator, bytes) = (initiator(Config::UNICAST), content(5_000));
    let id = chunk_id(&bytes);
    initiator.put(0, id, bytes);
    let op = requested(&mut initiator, 0);
    (0..4).for_each(|place| tell(&mut initiator, 100_000, (op, id), place, WIDE));
    let said = sent(&mut initiator, 100_000);
    let [Sent::Accept(accept)] = &said[..] else { panic!("{said:?}") };
    let mut windows: Vec<(u64, u64)> =
        accept.chosen.iter().map(|chosen| (chosen.left_ns, chosen.right_ns)).collect();
    windows.sort_unstable();
    assert_eq!(windows.len(), 3);
    let frames = sent(&mut initiator, 8 * MS);
    for chosen in &accept.chosen {
        let own =
            frames.iter().filter(|sent| matches!(sent, Sent::Frame(mask) if *mask == 1 << chosen.place));
        assert_eq!(own.count(), frames_of(5_000) as usize);
    }
}

#[test]
fn put_decides_by_the_bids_that_came_in_time_and_asks_the_others_again() {
    let (mut initiator, bytes) = (multicast(), content(3_000));
    let id = chunk_id(&bytes);
    initiator.put(0, id, bytes);
    let op = requested(&mut initiator, 0);
    [1, 2].iter().for_each(|place| tell(&mut initiator, 100_000, (op, id), *place, WIDE));
    assert!(sent(&mut initiator, 200_000).is_empty());
    initiator.handle_deadline(Timing::DEFAULT.answers_ns);
    let said = sent(&mut initiator, Timing::DEFAULT.answers_ns);
    assert!(matches!(&said[..], [Sent::Accept(accept), ..] if accept.chosen.len() == 2), "{said:?}");
    [1, 2].iter().for_each(|place| tell(&mut initiator, 4 * MS, (op, id), *place, stored(4)));
    let again_ns = 4 * MS;
    let said = sent(&mut initiator, again_ns);
    let wanted = said
        .iter()
        .find_map(|sent| if let Sent::Request(_, request) = sent { Some(request.wanted) } else { None });
    assert_eq!(wanted, Some(Wanted::Put { bytes: 3_000, earliest_ns: 0, except: 0b110 }));
    // An answer to an earlier attempt counts.
    tell(&mut initiator, again_ns, (op, id), 3, stored(6));
    let told = events(&mut initiator);
    assert!(matches!(&told[..], [Event::Put(_, Ok(placed))] if placed.stamp == Round(4)), "{told:?}");
}

#[test]
fn put_of_an_existing_chunk_sends_no_frame() {
    let (mut initiator, bytes) = (multicast(), content(3_000));
    let id = chunk_id(&bytes);
    initiator.put(0, id, bytes);
    let op = requested(&mut initiator, 0);
    [0, 1, 3].iter().for_each(|place| tell(&mut initiator, 1, (op, id), *place, stored(9)));
    assert!(matches!(&events(&mut initiator)[..], [Event::Put(_, Ok(_))]));
    assert!(matches!(&sent(&mut initiator, MS)[..], [Sent::Accept(accept)] if accept.chosen.is_empty()));
    assert_eq!((initiator.counters().known, initiator.counters().frames), (1, 0));
}

/// Regression: a put of an existing chunk sent one chunk in fourteen again, because the third
/// holder answered late.
#[test]
fn late_holders_are_asked_again_before_the_chunk_is_sent_to_others() {
    let (mut initiator, bytes) = (multicast(), content(3_000));
    let id = chunk_id(&bytes);
    initiator.put(0, id, bytes);
    let mut now_ns = 0;
    for _ in 0..3 {
        let op = requested(&mut initiator, now_ns);
        [0, 1].iter().for_each(|place| tell(&mut initiator, now_ns + 1, (op, id), *place, stored(9)));
        tell(&mut initiator, now_ns + 1, (op, id), 2, WIDE);
        now_ns += Timing::DEFAULT.answers_ns;
        initiator.handle_deadline(now_ns);
        let said = sent(&mut initiator, now_ns);
        assert!(matches!(&said[..], [Sent::Accept(accept)] if accept.chosen.is_empty()), "{said:?}");
        now_ns = initiator.next_deadline();
        initiator.handle_deadline(now_ns);
    }
    // The put does not wait for a silent target again.
    let op = requested(&mut initiator, now_ns);
    tell(&mut initiator, now_ns + 1, (op, id), 2, WIDE);
    now_ns += Timing::DEFAULT.answers_ns;
    initiator.handle_deadline(now_ns);
    let said = sent(&mut initiator, now_ns);
    assert!(matches!(&said[..], [Sent::Accept(accept), ..] if accept.chosen.len() == 1), "{said:?}");
}

#[test]
fn acknowledgements_by_another_map_do_not_count() {
    let (mut initiator, bytes) = (multicast(), content(3_000));
    let id = chunk_id(&bytes);
    initiator.put(0, id, bytes);
    let op = requested(&mut initiator, 0);
    [0, 1].iter().for_each(|place| tell(&mut initiator, 1, (op, id), *place, stored(9)));
    tell_by(&mut initiator, 2, (op, id), (2, NodeId(12), MapVersion(3)), Answer::OtherMap);
    assert!(matches!(&events(&mut initiator)[..], [Event::NewerMap(MapVersion(3))]));
    initiator.set_map(5, map(3, 10));
    let op = requested(&mut initiator, 5);
    let by_three = |place: u8| (place, NodeId(10 + u16::from(place)), MapVersion(3));
    tell_by(&mut initiator, 6, (op, id), by_three(2), stored(9));
    assert_eq!(events(&mut initiator).len(), 0);
    [0, 1].iter().for_each(|place| tell_by(&mut initiator, 6, (op, id), by_three(*place), stored(9)));
    assert!(matches!(&events(&mut initiator)[..], [Event::Put(_, Ok(_))]));
}

#[test]
fn unexpected_messages_are_ignored() {
    let (mut initiator, bytes) = (multicast(), content(3_000));
    let id = chunk_id(&bytes);
    initiator.put(0, id, bytes);
    let op = requested(&mut initiator, 0);
    for (place, node) in [(0, 11), (9, 10), (200, 10)] {
        tell_by(&mut initiator, 1, (op, id), (place, NodeId(node), VERSION), stored(9));
    }
    tell(&mut initiator, 1, (OpId { sequence: op.sequence + 1, ..op }, id), 0, stored(9));
    tell(&mut initiator, 1, (op, ChunkId([1; 32])), 0, stored(9));
    initiator.handle_datagram(1, b"no datagram");
    assert_eq!((initiator.counters().unexpected, events(&mut initiator).len()), (6, 0));
}

#[test]
fn full_group_and_invalid_length_are_errors() {
    let (mut initiator, bytes) = (multicast(), content(3_000));
    let id = chunk_id(&bytes);
    initiator.put(0, id, bytes);
    let op = requested(&mut initiator, 0);
    (0..4).for_each(|place| tell(&mut initiator, 1, (op, id), place, Answer::NoSpace));
    assert!(matches!(&events(&mut initiator)[..], [Event::Put(_, Err(PutError::NoSpace))]));
    for length in [0, nicekv_proto::chunk::CHUNK_LENGTH_MAX as usize + 1] {
        initiator.put(0, id, content(length));
        let told = events(&mut initiator);
        assert!(
            matches!(told[..], [Event::Put(_, Err(PutError::Length { bytes, .. }))] if bytes == length),
            "{told:?}"
        );
    }
    assert_eq!(initiator.under_way(), 0);
}

#[test]
fn without_answers_the_outcome_is_unknown() {
    let mut initiator = multicast();
    initiator.put(0, ChunkId([1; 32]), content(10));
    initiator.get(0, ChunkId([2; 32]));
    let mut now_ns = 0;
    while initiator.under_way() > 0 {
        sent(&mut initiator, now_ns);
        let next_ns = initiator.next_deadline();
        assert!(next_ns > now_ns && next_ns <= 500 * MS, "{next_ns}");
        now_ns = next_ns;
        initiator.handle_deadline(now_ns);
    }
    let told = events(&mut initiator);
    assert!(
        matches!(
            &told[..],
            [Event::Put(_, Err(PutError::Unknown)), Event::Got(_, Err(GetError::Unavailable))]
        ),
        "{told:?}"
    );
    assert!(initiator.counters().requests < 60, "{:?}", initiator.counters());
}

#[test]
fn get_tries_the_next_holder() {
    let (mut initiator, bytes) = (multicast(), content(3_000));
    let id = chunk_id(&bytes);
    initiator.get(0, id);
    let op = requested(&mut initiator, 0);
    let held = |token| Answer::Held { bytes: 3_000, token, wait_ns: 0 };
    tell(&mut initiator, 1, (op, id), 2, held(7));
    let frame = |initiator: &mut Initiator, number: usize, bytes: &[u8]| {
        let (keyspace, digest, mask) = (KeyspaceId::DEFAULT, KeyDigest::default(), RECEIVERS_ALL);
        let mut out = Vec::new();
        Chunk { keyspace, op, digest, number: number as u32, mask, bytes }.encode(&mut out);
        initiator.handle_datagram(2, &out);
    };
    let said = sent(&mut initiator, 1);
    assert!(matches!(said[..], [Sent::Read(0, 3, 0b100)]), "{said:?}");
    tell(&mut initiator, 1, (op, id), 0, held(9));
    bytes.chunks(CHUNK_BYTES).enumerate().for_each(|(number, part)| {
        let mut part = part.to_vec();
        part[0] ^= 1;
        frame(&mut initiator, number, &part);
    });
    assert_eq!(initiator.counters().wrong, 1);
    let said = sent(&mut initiator, 2);
    assert!(matches!(said[..], [Sent::Read(0, 3, 0b001)]), "{said:?}");
    bytes.chunks(CHUNK_BYTES).enumerate().for_each(|(number, part)| frame(&mut initiator, number, part));
    let told = events(&mut initiator);
    assert!(matches!(&told[..], [Event::Got(_, Ok(got))] if *got == bytes), "{told:?}");
}

#[test]
fn not_found_takes_the_answer_of_all_members() {
    let mut initiator = multicast();
    let id = ChunkId([3; 32]);
    initiator.get(0, id);
    let op = requested(&mut initiator, 0);
    (0..3).for_each(|place| tell(&mut initiator, 1, (op, id), place, Answer::NotFound));
    assert_eq!(events(&mut initiator).len(), 0);
    tell(&mut initiator, 1, (op, id), 3, Answer::NotFound);
    assert!(matches!(&events(&mut initiator)[..], [Event::Got(_, Err(GetError::NotFound))]));
}

#[test]
fn silent_target_does_not_waste_the_windows_of_the_others() {
    let (mut initiator, bytes) = (multicast(), content(3_000));
    let id = chunk_id(&bytes);
    initiator.put(0, id, bytes);
    let op = requested(&mut initiator, 0);
    let soon = Answer::Bid { bid: 8, left_ns: 1, right_ns: MS, disk_ns: MS };
    (0..3).for_each(|place| tell(&mut initiator, 1_000, (op, id), place, soon));
    let answers_ns = Timing::DEFAULT.answers_ns;
    initiator.handle_deadline(answers_ns);
    let said = sent(&mut initiator, answers_ns);
    assert!(matches!(&said[..], [Sent::Accept(accept)] if accept.chosen.is_empty()), "{said:?}");
    let again_ns = initiator.next_deadline();
    initiator.handle_deadline(again_ns);
    let said = sent(&mut initiator, again_ns);
    let is_later = |wanted| matches!(wanted, Wanted::Put { earliest_ns, .. } if earliest_ns == answers_ns);
    assert!(matches!(&said[..], [Sent::Request(_, request)] if is_later(request.wanted)), "{said:?}");
}

/// An initiator whose map has just changed: all slots belong to the second group, and belonged to
/// the first one before.
fn moving() -> Initiator {
    let mut initiator = multicast();
    let layout = |slots_of: u8| {
        let group = |first: u16| Group::new(&[0, 1, 2, 3].map(|node| NodeId(first + node))).unwrap();
        Layout::new(vec![group(10), group(20)], [slots_of; SLOTS]).unwrap()
    };
    let map = Map::of(MapVersion(3), layout(1), Some(layout(0))).unwrap();
    initiator.set_map(0, Arc::new(map));
    initiator
}

/// Where requests were sent: groups, with masks of their members.
fn asked(initiator: &mut Initiator, now_ns: u64) -> Vec<(u8, u16)> {
    let sends = core::iter::from_fn(|| initiator.poll_transmit(now_ns));
    sends
        .map(|send| if let Destination::Group { group, mask } = send.to { (group, mask) } else { panic!() })
        .collect()
}

#[test]
fn get_asks_former_members_while_the_slot_moves() {
    let mut initiator = moving();
    let (id, op) = (ChunkId([3; 32]), OpId { client: ClientId(4), sequence: 1 });
    initiator.get(0, id);
    assert_eq!(asked(&mut initiator, 0), [(1, 0xfff)]);
    let by = |place: u8, node: u16| (place, NodeId(node), MapVersion(3));
    let lacks = |initiator: &mut Initiator, place: u8, node: u16| {
        tell_by(initiator, 1, (op, id), by(place, node), Answer::NotFound);
    };
    (0..4).for_each(|place| lacks(&mut initiator, place, 20 + u16::from(place)));
    assert_eq!(events(&mut initiator).len(), 0);
    assert_eq!(asked(&mut initiator, 1), [(0, 1), (0, 2), (0, 4), (0, 8)]);
    (0..3).for_each(|place| lacks(&mut initiator, place, 10 + u16::from(place)));
    let mut other = initiator.clone();
    lacks(&mut other, 3, 13);
    assert!(matches!(&events(&mut other)[..], [Event::Got(_, Err(GetError::NotFound))]));
    let held = Answer::Held { bytes: 10, token: 7, wait_ns: 0 };
    tell_by(&mut initiator, 1, (op, id), by(3, 13), held);
    assert_eq!(
        (asked(&mut initiator, 1), events(&mut initiator).len()),
        (vec![(0, 8)], 0),
        "the chunk is being read"
    );
}

#[test]
fn holder_that_dropped_the_chunk_meanwhile_does_not_count_as_not_found() {
    let mut initiator = multicast();
    let id = ChunkId([3; 32]);
    initiator.get(0, id);
    let op = requested(&mut initiator, 0);
    (0..3).for_each(|place| tell(&mut initiator, 1, (op, id), place, Answer::NotFound));
    tell(&mut initiator, 1, (op, id), 3, Answer::Held { bytes: 10, token: 7, wait_ns: 0 });
    tell(&mut initiator, 2, (op, id), 3, Answer::NotFound);
    assert_eq!(events(&mut initiator).len(), 0, "other targets may hold it by now");
    let again_ns = initiator.next_deadline();
    initiator.handle_deadline(again_ns);
    let op = requested(&mut initiator, again_ns);
    (0..4).for_each(|place| tell(&mut initiator, again_ns, (op, id), place, Answer::NotFound));
    assert!(matches!(&events(&mut initiator)[..], [Event::Got(_, Err(GetError::NotFound))]));
}

#[test]
fn count_reports_holders_others_silent_members_and_stamps() {
    let mut initiator = multicast();
    let id = ChunkId([3; 32]);
    initiator.count(0, id, 0b0111);
    let op = requested(&mut initiator, 0);
    tell(&mut initiator, 1, (op, id), 0, Answer::Held { bytes: 10, token: 7, wait_ns: 0 });
    tell(&mut initiator, 1, (op, id), 1, Answer::NotFound);
    tell(&mut initiator, 1, (op, id), 3, Answer::NotFound);
    initiator.handle_deadline(initiator.next_deadline());
    let counted = Counted { held: 1, lacking: 2, silent: 4, stamps: vec![] };
    assert!(matches!(&events(&mut initiator)[..], [Event::Counted(_, of)] if *of == counted));
    initiator.confirm(0, id, 10, 0b0011);
    let op = requested(&mut initiator, 0);
    tell(&mut initiator, 1, (op, id), 0, WIDE);
    tell(&mut initiator, 1, (op, id), 1, stored(6));
    let counted = Counted { held: 2, lacking: 1, silent: 0, stamps: vec![(1, Round(6))] };
    assert!(matches!(&events(&mut initiator)[..], [Event::Counted(_, of)] if *of == counted));
    let said = sent(&mut initiator, 1);
    assert!(matches!(&said[..], [Sent::Accept(accept)] if accept.chosen.is_empty()), "{said:?}");
    // Answers by another map do not count.
    initiator.count(0, id, 0b0111);
    let op = requested(&mut initiator, 1);
    tell(&mut initiator, 1, (op, id), 0, Answer::NotFound);
    initiator.set_map(1, map(3, 10));
    let counted = Counted { silent: 7, ..Counted::default() };
    assert!(matches!(&events(&mut initiator)[..], [Event::Counted(_, of)] if *of == counted));
    assert_eq!(initiator.under_way(), 0);
}

mod turns;
