//! Encoded bytes of some messages in version 3 of the wire format: a change of any of them needs a
//! new version number.

use nicekv_proto::control::{DiskSpace, Heartbeat};
use nicekv_proto::large::{Chunk, Hole, ReadChunks, Reference, TransferReport};
use nicekv_proto::quorum::{Content, Quorum, QuorumHeld, QuorumStore, Timestamp};
use nicekv_proto::recovery::{Entry, RecoverReply, UndecidedOp};
use nicekv_proto::replication::{Acks, Decision, Decisions, Effect, PrepareAck, Progress, Watermark};
use nicekv_proto::scrub::{Cut, Listed, ListedEntry, ScrubPage};
use nicekv_proto::transaction::{Act, Argument, Step, Taken};
use nicekv_proto::{
    ClientId, Condition, Entries, Epoch, Expiry, Form, Get, KeyDigest, KeyspaceId, NodeId, OpId, Operation,
    PartitionId, Reply, Status, Update,
};
use std::net::{Ipv4Addr, SocketAddrV4};

const OP: OpId = OpId { client: ClientId(0x0102_0304_0506_0708), sequence: 0x1112 };
const VERSION: OpId = OpId { client: ClientId(0x2122), sequence: 0x31 };
const DIGEST: KeyDigest = KeyDigest([9; 16]);
const KEYSPACE: KeyspaceId = KeyspaceId(3);
const REPLY_TO: Option<SocketAddrV4> = Some(SocketAddrV4::new(Ipv4Addr::new(10, 20, 2, 1), 7000));
const PARTITION: PartitionId = PartitionId(0x7_0001);
const VALUE: &[u8] = b"value";

fn check(expected: &str, encode: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = Vec::new();
    encode(&mut bytes);
    let found: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(found, expected);
}

fn get(forwarded: Option<(PartitionId, Epoch, NodeId)>) -> Get<'static> {
    let (keyspace, op, digest, reply_to) = (KEYSPACE, OP, DIGEST, REPLY_TO);
    Get { keyspace, op, digest, reply_to, forwarded, key: b"color", padding: 0 }
}

#[test]
fn client_messages_keep_their_bytes() {
    check(
        "4e4b0301001100030a1402011b5800000102030405060708000000000000111209090909090909090909090909090909\
000000000000000000000005636f6c6f72",
        |out| {
            get(None).encode(out);
        },
    );
    check(
        "4e4b0310001100030a1402011b580000010203040506070800000000000011120909090909090909\
         0909090909090909000700010000000500060005636f6c6f72",
        |out| {
            get(Some((PARTITION, Epoch(5), NodeId(6)))).encode(out);
        },
    );
    check(
        "4e4b0302003a00030a1402011b580000010203040506070800000000000011120909090909090909\
         09090909090909090000000000000007030000000000002122000000000000003100000000000000\
         0001000501000502000000000000004d636f6c6f7276616c7565",
        |out| {
            let update = Update {
                keyspace: KEYSPACE,
                op: OP,
                digest: DIGEST,
                reply_to: REPLY_TO,
                watermark: 7,
                condition: Condition::IfVersion(VERSION),
                return_old: true,
                operation: Operation::Set { value: VALUE, expiry: Expiry::At(77) },
                key: b"color",
            };
            update.encode(out);
        },
    );
    check(
        "4e4b0303002d00000000000000000000010203040506070800000000000011120000000000000000\
         00000000000000000501000500000000000000000000212200000000000000310000000000000005\
         fffffffffffffffe76616c7565",
        |out| {
            let value = Some(VALUE);
            let (status, form) = (Status::Overflow, Form::Plain);
            Reply { op: OP, status, version: VERSION, expiry_ms: 5, integer: -2, value, form }.encode(out);
        },
    );
}

/// A script is encoded behind the declarations of its keys.
#[test]
fn script_messages_keep_their_bytes() {
    check(
        "000501636f6c6f720400050e636f6c6f7205000000000000004d010008000772657475726e203100036f6e650000",
        |out| {
            let mut arguments = Vec::new();
            [&b"one"[..], b""].iter().for_each(|bytes| Argument { bytes }.append(&mut arguments));
            let run =
                Act::Run { unix_ms: 77, is_read_only: true, source: b"return 1", arguments: &arguments };
            for act in [Act::Declare, run] {
                Step { key: b"color", act }.append(out);
            }
        },
    );
}

/// The steps of a transaction in an update, and their results in a decision and in the reply.
#[test]
fn transaction_messages_keep_their_bytes() {
    let (condition, return_old) = (Condition::IfAbsent, true);
    let operation = Operation::Set { value: VALUE, expiry: Expiry::At(77) };
    let steps = [
        Step { key: b"color", act: Act::Require(Condition::IfVersion(VERSION)) },
        Step { key: b"form", act: Act::Read },
        Step { key: b"color", act: Act::Apply { operation, condition, return_old } },
    ];
    let mut bytes = Vec::new();
    steps.iter().for_each(|step| step.append(&mut bytes));
    check(
        "4e4b0302008b00030a1402011b580000010203040506070800000000000011120909090909090909\
         09090909090909090000000000000007000000000000000000000000000000000000000000000000\
         000000050a0056000000000000000000636f6c6f72000512636f6c6f720103000000000000212200\
         00000000000031000401666f726d02000527636f6c6f720301000502000000000000004d01000000\
         0000000000000000000000000000000000000000000176616c7565",
        |out| {
            let update = Update {
                keyspace: KEYSPACE,
                op: OP,
                digest: DIGEST,
                reply_to: REPLY_TO,
                watermark: 7,
                condition: Condition::Always,
                return_old: false,
                operation: Operation::Transaction(&bytes),
                key: b"color",
            };
            update.encode(out);
        },
    );
    check("16000201000005000000000000004dfffffffffffffffe76616c75650101", |out| {
        let (value_is_result, form) = (true, Form::Plain);
        let stored = Taken {
            status: Status::Ok,
            effect: Effect::Store,
            value_is_result,
            form,
            value: VALUE,
            expiry_ms: 77,
            integer: -2,
        };
        stored.append(out);
        let refused = Taken { status: Status::NotFound, effect: Effect::None, value: b"", ..stored };
        Taken { value_is_result: false, expiry_ms: 0, integer: 0, ..refused }.append(out);
    });
}

#[test]
fn quorum_messages_keep_their_bytes() {
    let timestamp = Timestamp { counter: 5, op: VERSION };
    check(
        "4e4b0305002e00030a1402011b5800000102030405060708000000000000111209090909090909090909090909090909\
000000000000000500000000000021220000000000000031000000040302000501000500636f6c6f7276616c7565",
        |out| {
            let store = QuorumStore {
                keyspace: KEYSPACE,
                op: OP,
                digest: DIGEST,
                reply_to: REPLY_TO,
                quorum: Quorum::new(3, 2).unwrap(),
                timestamp,
                epoch: Epoch(4),
                value: Some(VALUE),
                is_large: false,
                key: b"color",
            };
            store.encode(out);
        },
    );
    check(
        "4e4b0306003500000000000000000000010203040506070800000000000011120000000000000000\
         000000000000000000000000000000050000000000002122000000000000003100000000000000070000000400030200\
         050000000000000076616c7565",
        |out| {
            let content = Content::Value(VALUE);
            QuorumHeld { op: OP, node: NodeId(3), epoch: Epoch(4), timestamp, floor: 7, content }.encode(out);
        },
    );
}

#[test]
fn node_messages_keep_their_bytes() {
    let sender = NodeId(4);
    check(
        "4e4b03110040000000000000000000000000000000000000000000000000000000000000000000000000000000000000\
000400010001000000070001000000050102030405060708000000000000111201000000000700010000000500000000\
00000007000000000000000601010000",
        |out| {
            let ack = PrepareAck {
                partition: PARTITION,
                epoch: Epoch(5),
                op: OP,
                contended: true,
                refused: false,
                receiving: false,
            };
            let (epoch, space) = (Epoch(5), DiskSpace::Reserve);
            let progress = Progress { partition: PARTITION, epoch, logged: 7, synced: 6, gap: true, space };
            let (prepares, progress) = ([ack], [progress]);
            let (prepares, progress) = (Entries::Values(&prepares), Entries::Values(&progress));
            Acks { sender, prepares, progress }.encode(out);
        },
    );
}

#[test]
fn primary_messages_keep_their_bytes() {
    let sender = NodeId(4);
    let decision = Decision {
        partition: PARTITION,
        epoch: Epoch(5),
        index: 9,
        origin: Epoch(4),
        op: OP,
        contended: false,
        effect: Effect::Store,
        status: Status::NotFound,
        version: VERSION,
        expiry_ms: 3,
        integer: 4,
        value: VALUE,
        form: Form::Plain,
        value_is_result: true,
    };
    let watermarks = [Watermark {
        partition: PARTITION,
        epoch: Epoch(2),
        base: 3,
        synced: 4,
        recovered: true,
        working: false,
    }];
    let watermarks = Entries::Values(&watermarks);
    let golden = "4e4b0312007900000000000000000000000000000000000000000000000000000000000000000000\
         00000000000000000004000100010000000700010000000200000000000000030000000000000004\
         01000000000000000007000100000005000000040201000100000000000000090102030405060708\
         00000000000011120000000000002122000000000000003100000000000000030000000000000004\
         0005000076616c7565";
    check(golden, |out| {
        Decisions {
            keyspace: nicekv_proto::KeyspaceId::DEFAULT,
            digest: nicekv_proto::KeyDigest::default(),
            sender,
            watermarks,
            decisions: Entries::Values(&[decision]),
        }
        .encode(out);
    });
    // Decisions that are appended one by one give the same bytes.
    check(golden, |out| {
        let mut bytes = Vec::new();
        decision.append(&mut bytes);
        Decisions {
            keyspace: nicekv_proto::KeyspaceId::DEFAULT,
            digest: nicekv_proto::KeyDigest::default(),
            sender,
            watermarks,
            decisions: Entries::Encoded { count: 1, bytes: &bytes },
        }
        .encode(out);
    });
}

#[test]
fn recovery_and_session_messages_keep_their_bytes() {
    let sender = NodeId(4);
    check(
        "4e4b0315005000000000000000000000000000000000000000000000000000000000000000000000\
         00000000000000000007000100000003000400010000000000000000000000040000000000000005\
         00000000000000060000000000000007000000000000000801020304050607080000000000001112\
         0100000000000000",
        |out| {
            let undecided = vec![UndecidedOp { op: OP, contended: true }];
            let (partition, epoch) = (PARTITION, Epoch(3));
            RecoverReply {
                sender,
                partition,
                epoch,
                cursor: 4,
                next: 5,
                logged: 6,
                synced: 7,
                released: 8,
                undecided,
            }
            .encode(out);
        },
    );
    check(
        "4e4b0320003800000000000000000000000000000000000000000000000000000000000000000000\
         00000000000000000004000501000000000000000000000200000000000000000000000000000003\
         000000000000000400000000000000060000000000000007",
        |out| {
            Heartbeat {
                node: sender,
                incarnation: 2,
                storage: 3,
                sent_ns: 4,
                unanswered: 5,
                space: DiskSpace::Reserve,
                opened: 6,
                durable: 7,
            }
            .encode(out);
        },
    );
    check("0000000000000001000000000000212200000000000000310000000000000002000176616c7565", |out| {
        Entry { index: 1, version: VERSION, expiry_ms: 2, form: Form::Plain, value: Some(VALUE) }.append(out);
    });
}

#[test]
fn large_value_messages_keep_their_bytes() {
    let reference = Reference { name: OP, length: 0x1_0000, checksum: 7 };
    let chunk = Chunk { keyspace: KEYSPACE, op: OP, digest: DIGEST, number: 3, mask: 5, bytes: VALUE };
    check(
        "4e4b0335000d000300000000000000000102030405060708000000000000111209090909090909090909090909090909\
000000030005000076616c7565",
        |out| chunk.encode(out),
    );
    check(
        "4e4b03370040000300000000000000000102030405060708000000000000111209090909090909090909090909090909\
0000000200020001010203040506070800000000000011120001000000000000000000000000000000000000000000070000000000000009\
0008000000000000",
        |out| {
            ReadChunks {
                keyspace: KEYSPACE,
                op: OP,
                digest: DIGEST,
                reply_to: None,
                reference,
                token: 9,
                first: 2,
                mask: 2,
                replica: NodeId(1),
                count: 8,
            }
            .encode(out);
        },
    );
    check(
        "4e4b03360039000000000000000000000102030405060708000000000000111200000000000000000000000000000000\
000700010000000500040802000000010000000900000014000000060000000d0000000b000000000000000c0100040006000000\
0200000004",
        |out| {
            TransferReport {
                op: OP,
                partition: PARTITION,
                epoch: Epoch(5),
                sender: NodeId(4),
                status: Status::Busy,
                members: vec![NodeId(4), NodeId(6)],
                prefix: 1,
                end: 9,
                limit: 20,
                arrived: 6,
                asked: 13,
                chunks_per_second: 11,
                held_ns: 12,
                missing: vec![Hole { start: 2, end: 4 }],
            }
            .encode(out);
        },
    );
}

/// The fields for borders between long keys, added later, are zero in all pages without such a
/// border.
#[test]
fn scrub_messages_keep_their_bytes() {
    let page = |after: Option<&[u8]>,
                is_last,
                begins_with,
                ends_before,
                listed: Option<Listed<'_>>,
                out: &mut Vec<u8>| {
        let mut told = Vec::new();
        listed.iter().for_each(|listed| listed.append(&mut told));
        let (partition, epoch, sender, bytes) = (PARTITION, Epoch(5), NodeId(4), 9);
        let (logged, released, listed) = (6, 5, &told[..]);
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
    };
    check(
        "4e4b0319003f000000000000000000000000000000000000000000000000000000000000000000000000000000000000\
         000700010000000500040003000000090000000000000006000000000000000501000000000000006162\
         01000000000000000700000000000000080000016b",
        |out| {
            let entry = Some(ListedEntry { index: 7, digest: 8, is_tombstone: false });
            page(Some(b"ab"), true, 0, None, Some(Listed { key: b"k", entry }), out);
        },
    );
    check(
        "4e4b0319002b000000000000000000000000000000000000000000000000000000000000000000000000000000000000\
         00070001000000050004000400000009000000000000000600000000000000050000000100026600616264",
        |out| page(Some(b"abd"), false, 0, Some(Cut::between(b"abd", b"abf")), None, out),
    );
    check(
        "4e4b0319003f000000000000000000000000000000000000000000000000000000000000000000000000000000000000\
         00070001000000050004000000000009000000000000000600000000000000050000030000000000\
         0000000000000000000000000000000000000003616266",
        |out| page(None, false, 3, None, Some(Listed { key: b"abf", entry: None }), out),
    );
}
