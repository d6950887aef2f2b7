//! Every message that carries a key has room for the longest one, next to its other content; a key
//! that is one byte longer is refused with an error that names the field.

use nicekv_proto::hot::{HotCopy, HotValue, Stamp};
use nicekv_proto::large::Reference;
use nicekv_proto::limits::{
    DATAGRAM_BYTES_MAX, KERNEL_KEY_BYTES_MAX, KEY_BYTES_MAX, LONG_VALUE_BYTES_MAX, VALUE_BYTES_MAX,
    small_value_bytes_max,
};
use nicekv_proto::quorum::{
    Entrust, Quorum, QuorumQuery, QuorumStore, Timestamp, Tombstone, TombstoneStage, Tombstones,
};
use nicekv_proto::recovery::Entry;
use nicekv_proto::repair::{KeyState, RepairReply, RepairRequest};
use nicekv_proto::replication::Resend;
use nicekv_proto::route::{ChainHeader, leave_room};
use nicekv_proto::scan::{Scan, ScanPiece, ScanWants, Scanned};
use nicekv_proto::scrub::{Listed, ScrubPage};
use nicekv_proto::{
    ClientId, Condition, Datagram, DecodeError, Epoch, Expiry, Form, Get, KeyDigest, KeyspaceId, MatchRange,
    NodeId, OpId, Operation, PartitionId, Update,
};

const KEYSPACE: KeyspaceId = KeyspaceId(3);
const OP: OpId = OpId { client: ClientId(1), sequence: 7 };
const DIGEST: KeyDigest = KeyDigest([5; 16]);
const PARTITION: PartitionId = PartitionId(1);
const EPOCH: Epoch = Epoch(2);
const SENDER: NodeId = NodeId(3);
const TIMESTAMP: Timestamp = Timestamp { counter: 1, op: OP };
const STAMP: Stamp = Stamp { instance: 1, seen: 1 };

fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out);
    out
}

fn update(key: &[u8], operation: Operation<'_>) -> Vec<u8> {
    let condition = Condition::IfVersion(OP);
    let (reply_to, watermark) = (Some("10.0.0.1:7".parse().unwrap()), 1);
    let (keyspace, op, digest) = (KEYSPACE, OP, DIGEST);
    let update =
        Update { keyspace, op, digest, reply_to, watermark, condition, return_old: true, operation, key };
    encoded(|out| update.encode(out))
}

/// Requests of clients, without the room that may be added for a switch.
fn asked(key: &[u8], value: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let reference = Reference { name: OP, length: VALUE_BYTES_MAX as u32 + 1, checksum: 9 }.bytes();
    let (keyspace, op, digest, reply_to) = (KEYSPACE, OP, DIGEST, None);
    let (quorum, epoch, timestamp) = (Quorum::new(3, 2).unwrap(), EPOCH, TIMESTAMP);
    let get = Get { keyspace, op, digest, reply_to, forwarded: None, key, padding: 0 };
    let query =
        QuorumQuery { keyspace, op, digest, reply_to, quorum, wants_value: true, key, announced: None };
    let store = |is_large, value| QuorumStore {
        keyspace,
        op,
        digest,
        reply_to,
        timestamp,
        epoch,
        quorum,
        key,
        value: Some(value),
        is_large,
    };
    let set = Operation::Set { value, expiry: Expiry::At(7) };
    vec![
        ("get", encoded(|out| get.encode(out))),
        ("set", update(key, set)),
        ("append", update(key, Operation::Append(value))),
        ("large set", update(key, Operation::SetLarge { reference: &reference, expiry: Expiry::Keep })),
        ("large append", update(key, Operation::AppendLarge(&reference))),
        ("query", encoded(|out| query.encode(out))),
        ("store", encoded(|out| store(false, value).encode(out))),
        ("store of a large value", encoded(|out| store(true, &reference).encode(out))),
    ]
}

/// Messages between nodes, and the answers to scans.
fn told(key: &[u8], value: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let (partition, epoch, sender, timestamp) = (PARTITION, EPOCH, SENDER, TIMESTAMP);
    let mut entry = Vec::new();
    Entry { index: 1, version: OP, expiry_ms: 0, form: Form::Plain, value: Some(value) }.append(&mut entry);
    let set = update(key, Operation::Set { value, expiry: Expiry::Never });
    let resend = Resend { partition, epoch, sender, logged: 1, datagram: &set };
    let entrust =
        Entrust { partition, epoch, sender, serial: 1, timestamp, key, value: Some(value), is_large: false };
    let deletions = encoded(|out| Tombstone { timestamp, key }.append(out));
    let stage = TombstoneStage::Hold;
    let tombstones = Tombstones { partition, epoch, sender, stage, round: 1, listed: &deletions };
    let request = RepairRequest { partition, epoch, sender, key, logged: 1, released: 1 };
    let state = KeyState::Stored(&entry);
    let reply = RepairReply { partition, epoch, sender, key, state, asked: (1, 1), through: 1 };
    let scanned = encoded(|out| Scanned { key, form: Form::Plain, value: Some(value) }.append(out));
    let piece = |through, listed| ScanPiece {
        op: OP,
        partition,
        epoch,
        range: MatchRange::ALL,
        more: true,
        count: 1,
        through,
        listed,
    };
    let (keyspace, digest) = (KEYSPACE, DIGEST);
    let vring = "10.10.0.1:7400".parse().unwrap();
    let copy = HotCopy { keyspace, digest, stamp: STAMP, serial: 1, vring, key, entry: &entry };
    vec![
        ("resend", encoded(|out| resend.encode(out))),
        ("entrust", encoded(|out| entrust.encode(out))),
        ("tombstones", encoded(|out| tombstones.encode(out))),
        ("repair request", encoded(|out| request.encode(out))),
        ("repair reply", encoded(|out| reply.encode(out))),
        ("piece", encoded(|out| piece(None, &scanned).encode(out))),
        ("piece that lists nothing", encoded(|out| piece(Some(key), &[]).encode(out))),
        ("scrub page", encoded(|out| scrub_page(None, &[Listed { key, entry: None }], out))),
        ("scrub page behind a key", encoded(|out| scrub_page(Some(key), &[], out))),
        ("hot copy", encoded(|out| copy.encode(out))),
    ]
}

fn scrub_page(after: Option<&[u8]>, listed: &[Listed<'_>], out: &mut Vec<u8>) {
    let (partition, epoch, sender) = (PARTITION, EPOCH, SENDER);
    let (begins_with, ends_before, is_last) = (0, None, true);
    let listed = encoded(|out| listed.iter().for_each(|one| one.append(out)));
    let listed = &listed[..];
    let (bytes, logged, released) = (9, 1, 1);
    let page = ScrubPage {
        partition,
        epoch,
        sender,
        after,
        bytes,
        logged,
        released,
        is_last,
        begins_with,
        ends_before,
        listed,
    };
    page.encode(out);
}

fn scan(after: Option<&[u8]>, pieces: u8) -> Vec<u8> {
    let scan = Scan {
        keyspace: KEYSPACE,
        op: OP,
        digest: KeyDigest::default(),
        reply_to: None,
        forwarded: None,
        wants: ScanWants::Values,
        pieces,
        is_cut: false,
        range: MatchRange::ALL,
        after,
        padding: Scan::padding_for(after, DATAGRAM_BYTES_MAX, pieces),
    };
    encoded(|out| scan.encode(out))
}

#[test]
fn longest_key_and_small_value_fit_every_message() {
    for key_bytes in [KERNEL_KEY_BYTES_MAX, KERNEL_KEY_BYTES_MAX + 1, KEY_BYTES_MAX] {
        let (key, value) = (vec![b'k'; key_bytes], vec![b'v'; small_value_bytes_max(key_bytes)]);
        let scans = [("scan", scan(Some(&key), 1)), ("scan in pieces", scan(Some(&key), 8))];
        for (what, datagram) in asked(&key, &value).into_iter().chain(scans) {
            let (_, decoded) = Datagram::decode(&datagram).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(encoded(|out| decoded.encode(out)).len(), datagram.len(), "{what}");
            let mut with_room = datagram.clone();
            leave_room(&mut with_room);
            assert!(with_room.len() <= DATAGRAM_BYTES_MAX, "{what}");
            assert!(datagram.len() + ChainHeader::BYTES <= DATAGRAM_BYTES_MAX, "{what}: it may get room yet");
        }
        for (what, datagram) in told(&key, &value) {
            let (_, decoded) = Datagram::decode(&datagram).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(encoded(|out| decoded.encode(out)), datagram, "{what}");
        }
    }
}

#[test]
fn too_long_key_is_refused_by_every_message() {
    let key = vec![b'k'; KEY_BYTES_MAX + 1];
    let longer = asked(&key, b"v").into_iter().chain(told(&key, b"v")).chain([("scan", scan(Some(&key), 1))]);
    for (what, datagram) in longer {
        let refused = Datagram::decode(&datagram).unwrap_err();
        let DecodeError::OutOfRange { field, value, maximum, .. } = refused else {
            panic!("{what}: {refused}")
        };
        assert!(["key", "after", "through"].contains(&field), "{what}: {field}");
        assert_eq!((value, maximum), (KEY_BYTES_MAX + 1, KEY_BYTES_MAX), "{what}");
    }
}

#[test]
fn value_without_room_for_its_key_is_refused() {
    let (key, value) = ([b'k'; KEY_BYTES_MAX], [b'v'; small_value_bytes_max(KEY_BYTES_MAX) + 1]);
    // An append is not refused: it may be sent in fragments.
    let carry = ["set", "store", "resend", "entrust", "repair reply", "hot copy"];
    for (what, datagram) in asked(&key, &value).into_iter().chain(told(&key, &value)) {
        let refused = Datagram::decode(&datagram).err();
        let is_value = matches!(refused, Some(DecodeError::OutOfRange { field: "value", .. }));
        assert_eq!(is_value, carry.contains(&what), "{what}: {refused:?}");
    }
}

#[test]
fn non_canonical_value_form_is_refused() {
    let large = |key: &[u8], length: usize| {
        let reference = Reference { name: OP, length: length as u32, checksum: 9 }.bytes();
        let set = update(key, Operation::SetLarge { reference: &reference, expiry: Expiry::Never });
        Datagram::decode(&set).is_ok()
    };
    for key_bytes in [1, KERNEL_KEY_BYTES_MAX, 700, KEY_BYTES_MAX] {
        let (key, small_max) = (vec![b'k'; key_bytes], small_value_bytes_max(key_bytes));
        assert_eq!((large(&key, small_max), large(&key, small_max + 1)), (false, true), "{key_bytes}");
        let long = |length: usize| {
            let (value, expiry) = (&vec![7; length][..], Expiry::Never);
            Datagram::decode(&update(&key, Operation::SetLong { value, expiry })).is_ok()
        };
        let lengths = [small_max, small_max + 1, LONG_VALUE_BYTES_MAX, LONG_VALUE_BYTES_MAX + 1];
        assert_eq!(lengths.map(long), [false, true, true, false], "{key_bytes}");
    }
}

#[test]
fn switch_messages_have_bounded_keys() {
    let told = |key_bytes: usize| {
        let (keyspace, digest, key) = (KEYSPACE, DIGEST, vec![b'k'; key_bytes]);
        let value = HotValue { keyspace, digest, stamp: STAMP, serial: 1, key: &key, reply: &[1; 9] };
        Datagram::decode(&encoded(|out| value.encode(out))).map(|_| ())
    };
    assert_eq!(told(KERNEL_KEY_BYTES_MAX), Ok(()));
    assert!(matches!(told(KERNEL_KEY_BYTES_MAX + 1), Err(DecodeError::OutOfRange { field: "key", .. })));
}
