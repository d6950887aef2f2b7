//! Tests of which requests and messages reach which partition.

use crate::node::tests::recorder::{
    CLIENT, EPOCH, INCARNATION, METADATA, Node, PARTITION, SWITCH, TERM, address, assign, member,
};
use nicekv_proto::bundle::{Bundle, append_bundled};
use nicekv_proto::control::{Assign, AssignAck, DiskSpace, HeartbeatReply};
use nicekv_proto::placement::key_digest;
use nicekv_proto::quorum::{Quorum, QuorumQuery};
use nicekv_proto::recovery::{Fetch, RecoverReply, RecoverRequest, Wanted};
use nicekv_proto::repair::RepairRequest;
use nicekv_proto::replication::{Acks, Decisions, PrepareAck, Progress, Resend, Watermark};
use nicekv_proto::{
    ClientId, Condition, Datagram, Entries, Epoch, Get, KeyspaceId, MatchRange, NodeId, OpId, Operation,
    PartitionId, Replication, Reply, Status, Term, Update, stamp_reply_to,
};
use std::net::{Ipv4Addr, SocketAddrV4};

fn op(sequence: u64) -> OpId {
    OpId { client: ClientId::new(2, 2), sequence }
}

fn get(key: &[u8]) -> Get<'_> {
    let digest = key_digest(key);
    Get { keyspace: KeyspaceId::DEFAULT, op: op(1), digest, reply_to: None, forwarded: None, key, padding: 0 }
}

/// A get from a client.
pub(crate) fn some_get(out: &mut Vec<u8>) {
    get(b"k").encode(out);
}

fn delete(sequence: u64, key: &[u8], reply_to: Option<SocketAddrV4>) -> Update<'_> {
    Update {
        keyspace: KeyspaceId::DEFAULT,
        op: op(sequence),
        digest: key_digest(key),
        reply_to,
        watermark: 0,
        condition: Condition::Always,
        return_old: false,
        operation: Operation::Delete,
        key,
    }
}

#[test]
fn request_reaches_the_partition_of_its_key() {
    let mut node = Node::member();
    let half = key_digest(b"k").match_value();
    let [low, high] =
        [(0, half - 1), (half, u128::MAX)].map(|(first, last)| MatchRange::new(first, last).unwrap());
    node.receive(METADATA, |out| assign(PARTITION, low).encode(out));
    node.receive(CLIENT, |out| get(b"k").encode(out));
    assert_eq!((node.told(), node.turned_away()), (vec![], (0, 0, 1)));
    node.receive(METADATA, |out| assign(PartitionId(6), high).encode(out));
    node.receive(CLIENT, |out| get(b"k").encode(out));
    node.receive(CLIENT, |out| delete(2, b"k", None).encode(out));
    let query = QuorumQuery {
        keyspace: KeyspaceId::DEFAULT,
        op: op(3),
        digest: key_digest(b"k"),
        reply_to: None,
        quorum: Quorum::new(3, 2).unwrap(),
        wants_value: false,
        announced: None,
        key: b"k",
    };
    node.receive(CLIENT, |out| query.encode(out));
    let told = ["get k from 10.0.0.200", "update k from 10.0.0.200", "query k from 10.0.0.200"];
    assert_eq!((node.told(), node.turned_away()), (told.map(String::from).to_vec(), (0, 0, 1)));
    let numbers: Vec<_> = node.core.status().partitions.iter().map(|status| status.partition.0).collect();
    assert_eq!(numbers, [4, 6]);
}

#[test]
fn wrong_digest_is_malformed_from_any_sender() {
    let mut node = Node::member();
    node.receive(CLIENT, |out| Get { digest: key_digest(b"other"), ..get(b"k") }.encode(out));
    assert_eq!((node.told(), node.turned_away()), (vec![], (0, 1, 0)));
    let forwarded = Some((PARTITION, EPOCH, NodeId(2)));
    node.receive(address(2), |out| Get { digest: key_digest(b"other"), forwarded, ..get(b"k") }.encode(out));
    assert_eq!((node.told(), node.turned_away()), (vec![], (0, 2, 0)));
}

#[test]
fn forwarded_get_is_accepted_from_a_member_of_the_epoch() {
    let mut node = Node::member();
    let passed_on =
        |partition, epoch, sender| Get { forwarded: Some((partition, epoch, NodeId(sender))), ..get(b"k") };
    node.receive(address(2), |out| passed_on(PARTITION, EPOCH, 2).encode(out));
    assert_eq!((node.told(), node.turned_away()), (vec!["get k from 10.0.0.2".into()], (0, 0, 0)));
    for (refused, (from, get)) in (1..).zip([
        (address(2), passed_on(PARTITION, Epoch(4), 2)),
        (address(2), passed_on(PARTITION, Epoch(6), 2)),
        (address(2), passed_on(PartitionId(5), EPOCH, 2)),
        (address(2), passed_on(PARTITION, EPOCH, 3)),
        (address(9), passed_on(PARTITION, EPOCH, 9)),
    ]) {
        node.receive(from, |out| get.encode(out));
        assert_eq!((node.told(), node.turned_away()), (vec![], (refused, 0, 0)));
    }
    let other = MatchRange::new(0, key_digest(b"k").match_value() - 1).unwrap();
    node.receive(METADATA, |out| assign(PARTITION, other).encode(out));
    node.receive(address(2), |out| passed_on(PARTITION, EPOCH, 2).encode(out));
    assert_eq!((node.told(), node.turned_away()), (vec![], (5, 1, 0)));
}

/// A message of every kind, of this epoch and from this sender.
fn messages(epoch: Epoch, sender: NodeId) -> Vec<(Vec<u8>, &'static str)> {
    let partition = PARTITION;
    let mut all = Vec::new();
    let mut add = |told: &'static str, encode: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = Vec::new();
        encode(&mut bytes);
        all.push((bytes, told));
    };
    let prepares =
        [PrepareAck { partition, epoch, op: op(7), contended: false, refused: false, receiving: false }];
    let progress =
        [Progress { partition, epoch, logged: 8, synced: 8, gap: false, space: DiskSpace::Enough }];
    let acks = |prepares, progress| Acks { sender, prepares, progress };
    add("prepare ack 7", &|out| acks(Entries::Values(&prepares), Entries::Values(&[])).encode(out));
    add("progress 8 with 0", &|out| acks(Entries::Values(&[]), Entries::Values(&progress)).encode(out));
    let watermarks = [Watermark { partition, epoch, base: 1, synced: 2, recovered: false, working: false }];
    let decisions = Decisions {
        keyspace: nicekv_proto::KeyspaceId::DEFAULT,
        digest: nicekv_proto::KeyDigest::default(),
        sender,
        watermarks: Entries::Values(&watermarks),
        decisions: Entries::Values(&[]),
    };
    add("watermark 2", &|out| decisions.encode(out));
    let mut datagram = Vec::new();
    delete(9, b"k", Some(CLIENT)).encode(&mut datagram);
    add("resent 3 9", &|out| Resend { partition, epoch, sender, logged: 3, datagram: &datagram }.encode(out));
    add("recover request 4", &|out| RecoverRequest { partition, epoch, sender, cursor: 4 }.encode(out));
    add("fetch DecisionsAfter(6)", &|out| {
        Fetch { partition, epoch, sender, wanted: Wanted::DecisionsAfter(6) }.encode(out);
    });
    add("repair request 7", &|out| {
        RepairRequest { partition, epoch, sender, key: b"k", logged: 7, released: 7 }.encode(out);
    });
    all
}

#[test]
fn message_is_accepted_in_its_epoch_from_a_members_address_or_the_switch() {
    let mut node = Node::member();
    for from in [address(2), SWITCH] {
        for (message, told) in messages(EPOCH, NodeId(2)) {
            node.receive(from, |out| out.extend(message));
            assert_eq!(node.told(), [format!("{told} of 2")]);
        }
    }
    assert_eq!(node.turned_away(), (0, 0, 0));
    let mut refused = 0;
    for (epoch, sender, from) in [
        (Epoch(4), 2, address(2)),
        (Epoch(6), 2, address(2)),
        (EPOCH, 2, address(3)),
        (EPOCH, 3, address(2)),
        (EPOCH, 9, address(9)),
        (EPOCH, 2, CLIENT),
    ] {
        for (message, told) in messages(epoch, NodeId(sender)) {
            node.receive(from, |out| out.extend(message));
            refused += 1;
            assert_eq!((node.told(), node.turned_away().0), (vec![], refused), "{told}");
        }
    }
}

#[test]
fn resent_prepare_must_belong_to_the_partition() {
    let mut node = Node::member();
    let other = MatchRange::new(0, key_digest(b"k").match_value() - 1).unwrap();
    node.receive(METADATA, |out| assign(PARTITION, other).encode(out));
    let resent = messages(EPOCH, NodeId(2)).into_iter().find(|(_, told)| told.starts_with("resent"));
    node.receive(address(2), |out| out.extend(resent.unwrap().0));
    assert_eq!((node.told(), node.turned_away()), (vec![], (0, 1, 0)));
}

#[test]
fn messages_for_others_are_refused_and_noise_is_malformed() {
    let mut node = Node::member();
    node.receive(CLIENT, |out| Reply::bare(op(1), Status::Ok).encode(out));
    node.receive(address(2), |out| {
        let (partition, epoch, sender) = (PARTITION, EPOCH, NodeId(2));
        RecoverReply {
            partition,
            epoch,
            sender,
            undecided: vec![],
            cursor: 0,
            next: 0,
            logged: 0,
            synced: 0,
            released: 0,
        }
        .encode(out);
    });
    assert_eq!((node.told(), node.turned_away()), (vec!["recover reply 0 of 2".into()], (1, 0, 0)));
    node.receive(CLIENT, |out| out.extend(b"noise"));
    assert_eq!((node.told(), node.turned_away()), (vec![], (1, 1, 0)));
}

fn ack(node: &mut Node) -> Option<AssignAck> {
    let [(to, bytes)] = &node.sent()[..] else { return None };
    assert_eq!(*to, METADATA);
    match Datagram::decode(bytes) {
        Ok((_, Datagram::AssignAck(ack))) => Some(ack),
        _ => None,
    }
}

#[test]
fn valid_assignment_of_the_metadata_service_is_taken_and_acknowledged() {
    let mut node = Node::member();
    let usual = || Assign { epoch: Epoch(6), ..assign(PARTITION, MatchRange::ALL) };
    let elsewhere = Replication::Quorum(Quorum::new(3, 2).unwrap());
    for (refused, (from, assign)) in (1..).zip([
        (address(2), usual()),
        (METADATA, Assign { term: Term(2), ..usual() }),
        (METADATA, Assign { incarnation: INCARNATION + 1, ..usual() }),
        (METADATA, Assign { primary: NodeId(9), ..usual() }),
        (METADATA, Assign { replication: elsewhere, ..usual() }),
    ]) {
        node.receive(from, |out| assign.encode(out));
        assert_eq!((node.turned_away().0, ack(&mut node)), (refused, None), "{assign:?}");
        assert_eq!(node.core.status().partitions[0].epoch, EPOCH);
    }
    node.receive(METADATA, |out| Assign { activated: false, ..usual() }.encode(out));
    let told = AssignAck {
        node: NodeId(1),
        incarnation: INCARNATION,
        partition: PARTITION,
        epoch: Epoch(6),
        activated: false,
        discarded: false,
    };
    assert_eq!((ack(&mut node), node.turned_away()), (Some(told), (5, 0, 0)));
}

#[test]
fn highest_known_term_counts() {
    let mut node = Node::member();
    node.grant(Term(5));
    assert_eq!(node.core.status().term, Term(5));
    node.receive(METADATA, |out| assign(PARTITION, MatchRange::ALL).encode(out));
    node.grant(TERM);
    assert_eq!((node.core.status().term, node.turned_away().0), (Term(5), 2));
    node.receive(METADATA, |out| Assign { term: Term(8), ..assign(PARTITION, MatchRange::ALL) }.encode(out));
    assert_eq!(node.core.status().term, Term(8));
    let of_another_process = HeartbeatReply { term: Term(9), incarnation: 1, sent_ns: 0, lease_ns: 0 };
    node.receive(METADATA, |out| of_another_process.encode(out));
    assert_eq!((node.core.status().term, node.turned_away().0), (Term(8), 3));
}

#[test]
fn node_outside_of_an_epoch_refuses_members() {
    let mut node = Node::member();
    let without = Assign { members: vec![member(2), member(3)], ..assign(PARTITION, MatchRange::ALL) };
    node.receive(METADATA, |out| without.encode(out));
    for (message, _) in messages(EPOCH, NodeId(2)) {
        node.receive(address(2), |out| out.extend(message));
    }
    assert_eq!((node.told(), node.turned_away().0), (vec![], messages(EPOCH, NodeId(2)).len() as u64));
}

#[test]
fn switch_that_hides_senders_passes_members_only() {
    let mut node = Node::member();
    for (message, _) in messages(EPOCH, NodeId(9)) {
        node.receive(SWITCH, |out| out.extend(message));
    }
    assert_eq!(node.told(), Vec::<String>::new());
    node.receive(SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 7401), |out| {
        out.extend(messages(EPOCH, NodeId(2)).remove(0).0);
    });
    assert_eq!(node.told(), Vec::<String>::new());
}

/// A bundle of these datagrams, as a client sends it.
fn bundle(datagrams: &[Vec<u8>]) -> Vec<u8> {
    encoded(|out| {
        Bundle::encode_with(&datagrams[0], out, |out| {
            datagrams.iter().for_each(|datagram| append_bundled(datagram, out));
        });
    })
}

fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out);
    out
}

#[test]
fn bundle_delivers_its_requests_with_its_reply_address() {
    let mut node = Node::member();
    let requests = [encoded(|out| get(b"k").encode(out)), encoded(|out| delete(2, b"l", None).encode(out))];
    let mut bytes = bundle(&requests);
    node.receive(CLIENT, |out| out.extend_from_slice(&bytes));
    assert_eq!(node.told(), ["get k from 10.0.0.200", "update l from 10.0.0.200"]);
    // Behind a switch that hides the client, only the bundle's header contains the client's
    // address.
    stamp_reply_to(&mut bytes, CLIENT);
    node.receive(SWITCH, |out| out.extend_from_slice(&bytes));
    assert_eq!(node.told().len(), 2);
    assert_eq!(node.turned_away(), (0, 0, 0));
}

#[test]
fn bundle_holds_requests_without_reply_addresses_only() {
    let mut node = Node::member();
    let forwarded = Get { forwarded: Some((PARTITION, EPOCH, NodeId(2))), ..get(b"k") };
    let acks = Acks { sender: NodeId(2), prepares: Entries::Values(&[]), progress: Entries::Values(&[]) };
    let smuggled = [
        encoded(|out| forwarded.encode(out)),
        encoded(|out| acks.encode(out)),
        bundle(&[encoded(|out| get(b"k").encode(out))]),
    ];
    let bytes = bundle(&smuggled);
    node.receive(address(2), |out| out.extend_from_slice(&bytes));
    assert_eq!((node.told(), node.turned_away()), (vec![], (0, 3, 0)));
}
