//! Tests of the pages that a replica's scrub sends to other members, and of how a replica handles
//! such pages. The test plays the other member.

use crate::harness;

use harness::pair::{
    OTHER, OTHER_ADDRESS, PARTITION, Sent, ack, decisions, increment, other, position, primary,
};
use harness::{CLIENT, Node};
use nicekv_proto::control::{Member, MemberRole, MemberState};
use nicekv_proto::limits::KEY_BYTES_MAX;
use nicekv_proto::recovery::{CopyFrame, CopySection, Entry};
use nicekv_proto::scrub::ScrubPage;
use nicekv_proto::{ClientId, Datagram, Duration, Epoch, Form, NodeId, OpId, Term};
use nicekv_replica::{StreamPeer, Timing};

/// A stored entry that decision `index` has written.
fn entry(index: u64, value: &[u8]) -> Vec<u8> {
    let version = OpId { client: ClientId::new(2, 1), sequence: index };
    let mut bytes = Vec::new();
    Entry { form: Form::Plain, index, version, expiry_ms: 0, value: Some(value) }.append(&mut bytes);
    bytes
}

/// The pages of a scrub: bytes, whether it is the last page, and number of keys of each.
fn pages(sent: &Sent) -> Vec<(u32, bool, usize)> {
    let page = |(to, bytes): &(std::net::SocketAddrV4, Vec<u8>)| match Datagram::decode(bytes).unwrap().1 {
        Datagram::ScrubPage(page) if *to == OTHER_ADDRESS => {
            Some((page.bytes, page.is_last, page.entries().count()))
        }
        _ => None,
    };
    sent.iter().filter_map(page).collect()
}

/// A consistent member with these entries that scrubs every second.
fn scrubbing(entries: &[(&[u8], Vec<u8>)]) -> Node {
    let timing = Timing { scrub_interval: Duration::from_secs(1), ..Timing::default() };
    let mut node = Node::started_with(timing);
    node.engine.extend(entries.iter().map(|(key, entry)| (key.to_vec(), entry.clone())));
    node.assign_members(Term(3), Epoch(5), OTHER, vec![Node::me(), other()]);
    node
}

fn pass(node: &mut Node) -> Sent {
    let mut sent = Sent::new();
    for _ in 0..5 {
        node.pass(Duration::from_millis(40));
        sent.extend(node.sent());
    }
    sent
}

#[test]
fn pass_lists_everything_and_its_end() {
    let entries = [(&b"a"[..], entry(1, b"1")), (&b"b"[..], entry(2, b"22"))];
    let bytes: usize = entries.iter().map(|(key, entry)| key.len() + entry.len()).sum();
    assert_eq!(pages(&pass(&mut scrubbing(&entries))), [(bytes as u32, true, 2)]);
    assert_eq!(pages(&pass(&mut scrubbing(&[]))), [(0, true, 0)], "an empty partition is reported, too");
}

/// Another member's pass lists the entries `theirs` to a member that has `mine`. Returns the keys
/// that the latter asks about.
fn suspects(theirs: &[(&[u8], Vec<u8>)], mine: &[(&[u8], Vec<u8>)]) -> Vec<Vec<u8>> {
    let mut node = scrubbing(mine);
    let mut asked = Vec::new();
    for (to, bytes) in pass(&mut scrubbing(theirs)) {
        let Datagram::ScrubPage(page) = Datagram::decode(&bytes).unwrap().1 else { continue };
        assert_eq!(to, OTHER_ADDRESS);
        let page = ScrubPage { sender: OTHER, ..page };
        for (_, bytes) in node.receive(OTHER_ADDRESS, |out| page.encode(out)) {
            if let Datagram::RepairRequest(request) = Datagram::decode(&bytes).unwrap().1 {
                asked.push(request.key.to_vec());
            }
        }
    }
    asked
}

/// The keys are so long that a page has no room for two of them.
#[test]
fn ranges_between_long_keys_are_compared() {
    let long = |start: &str, end: u8| [start.as_bytes(), &[b'-'; KEY_BYTES_MAX - 2], &[end]].concat();
    let keys = [long("a", 1), long("c", 1), long("c", 3), long("d", 1)];
    assert!(keys.iter().all(|key| key.len() == KEY_BYTES_MAX));
    let both: Vec<_> = keys.iter().map(|key| (&key[..], entry(0, b"value"))).collect();
    assert_eq!(suspects(&both, &both), [b""; 0]);
    let check = |extra: &[u8], is_mine: bool| {
        let more = [&both[..], &[(extra, entry(0, b"more"))]].concat();
        let (theirs, mine) = if is_mine { (&both, &more) } else { (&more, &both) };
        assert_eq!(suspects(theirs, mine), [extra], "{:?}, mine: {is_mine}", &extra[..1]);
    };
    for extra in [&long("b", 1), &long("c", 2), &long("c", 0), &long("d", 0)] {
        check(extra, true);
        check(extra, false);
    }
    for extra in [&b"a"[..], b"b", b"c", b"d", b"c-", b"e", &long("c", 1)[..KEY_BYTES_MAX - 1]] {
        check(extra, true);
        check(extra, false);
    }
}

/// The other member sends a page without entries that covers the whole partition. `bytes`: how many
/// bytes of entries it claims to have read, which bounds what the receiver reads.
fn tell(node: &mut Node, epoch: u32, logged: u64, released: u64, bytes: u32) -> Sent {
    let page = ScrubPage {
        partition: PARTITION,
        epoch: Epoch(epoch),
        sender: OTHER,
        after: None,
        bytes,
        logged,
        released,
        is_last: true,
        begins_with: 0,
        ends_before: None,
        listed: &[],
    };
    node.receive(OTHER_ADDRESS, |out| page.encode(out))
}

#[test]
fn member_that_is_behind_does_not_compare() {
    let mut node = scrubbing(&[]);
    let (dropped, scans) = (node.core.status().counters.dropped, node.scans);
    tell(&mut node, 5, 1, 0, 0);
    assert_eq!((node.core.status().counters.dropped, node.scans), (dropped + 1, scans));
    tell(&mut node, 5, 0, 0, 0);
    assert_eq!((node.core.status().counters.dropped, node.scans), (dropped + 1, scans + 1));
}

/// A member has far more entries in a range than the other. It compares only a part, and continues
/// in the next pass.
#[test]
fn comparison_reads_a_bounded_number_of_pages() {
    let mut node = scrubbing(&[]);
    node.engine.extend((0..400u32).map(|number| (number.to_be_bytes().to_vec(), entry(0, &[7; 1_000]))));
    let scans = node.scans;
    tell(&mut node, 5, 0, 0, 0);
    assert_eq!(node.scans - scans, nicekv_replica::COPY_PAGES_MAX + 1);
}

/// A page of another member must not release anything at the primary: only the primary knows what
/// all members hold.
#[test]
fn page_of_another_member_releases_nothing_at_the_primary() {
    let mut node = primary();
    increment(&mut node, 1);
    assert_eq!(decisions(&ack(&mut node, 5, 1, true)).len(), 1);
    let sent = tell(&mut node, 5, 1, 1, 0);
    assert_eq!(sent.iter().filter(|(to, _)| *to == CLIENT).count(), 0);
    assert_eq!(node.engine.len(), 0);
}

/// The source skips old entries, page after page, until it has enough new ones for an answer.
#[test]
fn copy_collects_new_entries_from_several_pages() {
    const JOINER: NodeId = NodeId(3);
    let address = "10.0.0.4:7400".parse().unwrap();
    let joiner = Member { node: JOINER, state: MemberState::Joining, role: MemberRole::Original, address };
    // The decisions that wrote the entries are no longer remembered, so the source has to scan.
    let mut node = Node::restarted_with(&[position(5, 4)]);
    node.grant_lease(Term(3));
    node.assign_with(Term(3), Epoch(5), &[joiner]);
    let reply = nicekv_proto::recovery::RecoverReply {
        sender: JOINER,
        partition: PARTITION,
        epoch: Epoch(5),
        cursor: 0,
        next: 0,
        logged: 0,
        synced: 0,
        released: 0,
        undecided: Vec::new(),
    };
    node.receive(address, |out| reply.encode(out));
    node.engine.extend((0..400u32).map(|number| (number.to_be_bytes().to_vec(), entry(1, &[7; 1_000]))));
    node.engine.insert(b"z".to_vec(), entry(5, b"new"));
    let request = CopyFrame::Request {
        joiner: JOINER,
        partition: PARTITION,
        epoch: Epoch(5),
        section: CopySection::Entries,
        since: 3,
        after: &[],
    };
    let frames = node.receive_frame(StreamPeer::Accepted(1), &request);
    let [frame] = &frames[..] else { panic!("{} frames", frames.len()) };
    let Ok(CopyFrame::Chunk { more, payload, .. }) = CopyFrame::decode(frame) else { panic!("no chunk") };
    assert!(!more && payload.len() < 200 && payload.windows(3).any(|window| window == b"new"));
    assert_eq!(node.scans, 4);
}
