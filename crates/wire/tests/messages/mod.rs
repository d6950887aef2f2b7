//! Strategies for every message, and the way back from a decoded one to bytes.

use nicekv_wire::control::{
    Assign, AssignAck, DiskSpace, Heartbeat, HeartbeatReply, Member, MemberState, Probe, ProbeReply, Report,
    ReportKind,
};
use nicekv_wire::limits::{DATAGRAM_BYTES_MAX, KEY_BYTES_MAX, MEMBERS_MAX, VALUE_BYTES_MAX};
use nicekv_wire::number::LongDouble;
use nicekv_wire::quorum::{Content, Quorum, QuorumHeld, QuorumQuery, QuorumStore, Timestamp};
use nicekv_wire::recovery::{Entry, Fetch, RecoverReply, RecoverRequest, UNDECIDED_MAX, UndecidedOp, Wanted};
use nicekv_wire::repair::{KeyState, RepairReply, RepairRequest};
use nicekv_wire::replication::{
    ACKS_MAX, Acks, Decision, Decisions, Effect, PrepareAck, Progress, Resend, Watermark,
};
use nicekv_wire::scrub::{Listed, ListedEntry, ScrubPage};
use nicekv_wire::{
    ClientId, Condition, Datagram, Epoch, ExpireCondition, Expiry, Get, Header, KeyDigest, KeyspaceId,
    MatchRange, NodeId, OpId, Operation, PartitionId, Replication, Reply, Status, Term, Update,
    stamp_reply_to,
};
use proptest::prelude::*;
use std::net::{Ipv4Addr, SocketAddrV4};

/// The 48 bytes before a body of `length` bytes.
pub(crate) fn header_of(opcode: u8, length: usize) -> Vec<u8> {
    let mut bytes = b"NK\x02".to_vec();
    bytes.push(opcode);
    bytes.extend((length as u16).to_be_bytes());
    bytes.resize(48, 0);
    bytes
}

/// Encodes a decoded message; what the header says besides is put back too.
pub(crate) fn encode_again(header: &Header, message: &Datagram<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    match message {
        Datagram::Get(m) => m.encode(&mut out),
        Datagram::Update(m) => m.encode(&mut out),
        Datagram::Reply(m) => m.encode(&mut out),
        Datagram::QuorumQuery(m) => m.encode(&mut out),
        Datagram::QuorumStore(m) => m.encode(&mut out),
        Datagram::QuorumHeld(m) => m.encode(&mut out),
        Datagram::Acks(m) => Acks::encode(m.sender, &m.prepares, &m.progress, &mut out),
        Datagram::Decisions(m) => encode_decisions(m, &mut out),
        Datagram::Resend(m) => m.encode(&mut out),
        Datagram::RecoverRequest(m) => m.encode(&mut out),
        Datagram::RecoverReply(m) => m.encode(&mut out),
        Datagram::Fetch(m) => m.encode(&mut out),
        Datagram::RepairRequest(m) => m.encode(&mut out),
        Datagram::RepairReply(m) => m.encode(&mut out),
        Datagram::ScrubPage(m) => m.encode(&mut out),
        Datagram::Heartbeat(m) => m.encode(&mut out),
        Datagram::HeartbeatReply(m) => m.encode(&mut out),
        Datagram::Assign(m) => m.encode(&mut out),
        Datagram::AssignAck(m) => m.encode(&mut out),
        Datagram::Report(m) => m.encode(&mut out),
        Datagram::Probe(m) => m.encode(&mut out),
        Datagram::ProbeReply(m) => m.encode(&mut out),
    }
    // The switch stamps messages of every kind.
    if let Some(address) = header.reply_to {
        stamp_reply_to(&mut out, address);
    }
    out
}

fn encode_decisions(message: &Decisions<'_>, out: &mut Vec<u8>) {
    let watermarks: Vec<_> = message.watermarks().collect();
    let mut entries = Vec::new();
    let count = message.decisions().map(|decision| decision.append(&mut entries)).count();
    Decisions::encode(message.sender, &watermarks, count, &entries, out);
}

/// Any valid datagram, encoded.
pub(crate) fn datagram() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => get(),
        6 => update(),
        3 => reply(),
        1 => quorum_query(),
        2 => quorum_store(),
        2 => quorum_held(),
        2 => acks(),
        3 => decisions(),
        1 => resend(),
        1 => recover_request(),
        2 => recover_reply(),
        1 => fetch(),
        1 => repair_request(),
        2 => repair_reply(),
        2 => scrub_page(),
        2 => assign(),
        4 => membership(),
    ]
}

fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = b"left over".to_vec();
    encode(&mut out);
    out
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 1..=KEY_BYTES_MAX)
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..20),
        prop::collection::vec(any::<u8>(), 0..=VALUE_BYTES_MAX)
    ]
}

fn op() -> impl Strategy<Value = OpId> {
    (any::<u64>(), 1..=u64::MAX).prop_map(|(client, sequence)| OpId { client: ClientId(client), sequence })
}

fn address() -> impl Strategy<Value = SocketAddrV4> {
    (any::<u32>(), 1..=u16::MAX).prop_map(|(ip, port)| SocketAddrV4::new(Ipv4Addr::from(ip), port))
}

fn route() -> impl Strategy<Value = (PartitionId, Epoch, NodeId)> {
    any::<(u32, u32, u16)>()
        .prop_map(|(partition, epoch, node)| (PartitionId(partition), Epoch(epoch), NodeId(node)))
}

fn digest() -> impl Strategy<Value = KeyDigest> {
    any::<[u8; 16]>().prop_map(KeyDigest)
}

/// Any keyspace, the same for the same digest.
fn keyspace_of(digest: &KeyDigest) -> KeyspaceId {
    KeyspaceId(u16::from_be_bytes([digest.0[2], digest.0[3]]))
}

fn get() -> impl Strategy<Value = Vec<u8>> {
    (op(), digest(), prop::option::of(address()), prop::option::of(route()), key()).prop_map(
        |(op, digest, reply_to, forwarded, key)| {
            encoded(|out| {
                Get { keyspace: keyspace_of(&digest), op, digest, reply_to, forwarded, key: &key }
                    .encode(out);
            })
        },
    )
}

fn condition() -> impl Strategy<Value = Condition> {
    prop_oneof![
        Just(Condition::Always),
        Just(Condition::IfAbsent),
        Just(Condition::IfPresent),
        Just(Condition::IfVersion(OpId::NONE)),
        op().prop_map(Condition::IfVersion),
    ]
}

fn operation() -> impl Strategy<Value = Operation<'static>> {
    let leak = |value: Vec<u8>| -> &'static [u8] { value.leak() };
    let expiry = prop_oneof![Just(Expiry::Never), Just(Expiry::Keep), any::<u64>().prop_map(Expiry::At)];
    let expire = prop::sample::select(vec![
        ExpireCondition::Always,
        ExpireCondition::IfNone,
        ExpireCondition::IfSome,
        ExpireCondition::IfLater,
        ExpireCondition::IfEarlier,
        ExpireCondition::IfSomeAndLater,
        ExpireCondition::IfSomeAndEarlier,
    ]);
    prop_oneof![
        (value(), expiry).prop_map(move |(value, expiry)| Operation::Set { value: leak(value), expiry }),
        Just(Operation::Delete),
        any::<i64>().prop_map(Operation::Increment),
        (any::<u16>(), any::<u64>())
            .prop_filter_map("no number", |(head, significand)| {
                LongDouble::from_bytes(&[&head.to_be_bytes()[..], &significand.to_be_bytes()].concat())
            })
            .prop_map(Operation::IncrementFloat),
        value().prop_map(move |value| Operation::Append(leak(value))),
        (any::<u64>(), expire).prop_map(|(at_ms, condition)| Operation::Expire { at_ms, condition }),
        Just(Operation::Persist),
    ]
}

fn update() -> impl Strategy<Value = Vec<u8>> {
    let names = (op(), digest(), prop::option::of(address()), any::<u64>());
    (names, condition(), any::<bool>(), operation(), key()).prop_map(
        |((op, digest, reply_to, watermark), condition, return_old, operation, key)| {
            let watermark = watermark.min(op.sequence);
            let update = Update {
                keyspace: keyspace_of(&digest),
                op,
                digest,
                reply_to,
                watermark,
                condition,
                return_old,
                operation,
                key: &key,
            };
            encoded(|out| update.encode(out))
        },
    )
}

fn status() -> impl Strategy<Value = Status> {
    (0u8..=10).prop_map(|status| Status::decode(status).unwrap())
}

fn reply() -> impl Strategy<Value = Vec<u8>> {
    (op(), status(), op(), any::<u64>(), any::<i64>(), prop::option::of(value())).prop_map(
        |(op, status, version, expiry_ms, integer, value)| {
            let reply = Reply { op, status, version, expiry_ms, integer, value: value.as_deref() };
            encoded(|out| reply.encode(out))
        },
    )
}

fn quorum() -> impl Strategy<Value = Quorum> {
    (1..=MEMBERS_MAX as u8)
        .prop_flat_map(|replicas| (Just(replicas), 1..=replicas))
        .prop_map(|(replicas, write_set)| Quorum::new(replicas, write_set).unwrap())
}

fn timestamp() -> impl Strategy<Value = Timestamp> {
    (1..=u64::MAX, op()).prop_map(|(counter, op)| Timestamp { counter, op })
}

fn quorum_query() -> impl Strategy<Value = Vec<u8>> {
    (op(), digest(), prop::option::of(address()), quorum(), any::<bool>(), key()).prop_map(
        |(op, digest, reply_to, quorum, wants_value, key)| {
            let query = QuorumQuery {
                keyspace: keyspace_of(&digest),
                op,
                digest,
                reply_to,
                quorum,
                wants_value,
                key: &key,
            };
            encoded(|out| query.encode(out))
        },
    )
}

fn quorum_store() -> impl Strategy<Value = Vec<u8>> {
    let names = (op(), digest(), prop::option::of(address()), quorum());
    (names, timestamp(), prop::option::of(value()), key()).prop_map(
        |((op, digest, reply_to, quorum), timestamp, value, key)| {
            let value = value.as_deref();
            let store = QuorumStore {
                keyspace: keyspace_of(&digest),
                op,
                digest,
                reply_to,
                quorum,
                timestamp,
                value,
                key: &key,
            };
            encoded(|out| store.encode(out))
        },
    )
}

fn quorum_held() -> impl Strategy<Value = Vec<u8>> {
    let held = prop_oneof![Just((Timestamp::NEVER, None)), (timestamp(), (0..3u8, value()).prop_map(Some)),];
    (op(), route(), held).prop_map(|(op, (_, epoch, node), (timestamp, held))| {
        let content = match &held {
            None | Some((0, _)) => Content::Absent,
            Some((1, _)) => Content::Present,
            Some((_, value)) => Content::Value(value),
        };
        encoded(|out| QuorumHeld { op, node, epoch, timestamp, content }.encode(out))
    })
}

fn acks() -> impl Strategy<Value = Vec<u8>> {
    let prepare = (route(), op(), any::<bool>(), any::<bool>()).prop_map(
        |((partition, epoch, _), op, contended, refused)| PrepareAck {
            partition,
            epoch,
            op,
            contended,
            refused,
        },
    );
    let progress =
        (route(), any::<(u64, u64, bool)>()).prop_map(|((partition, epoch, _), (logged, forced, gap))| {
            Progress { partition, epoch, logged, forced, gap }
        });
    let prepares = prop::collection::vec(prepare, 0..ACKS_MAX);
    (any::<u16>(), prepares, prop::collection::vec(progress, 0..ACKS_MAX)).prop_map(
        |(sender, prepares, mut progress)| {
            progress.truncate(ACKS_MAX - prepares.len());
            encoded(|out| Acks::encode(NodeId(sender), &prepares, &progress, out))
        },
    )
}

fn decisions() -> impl Strategy<Value = Vec<u8>> {
    let watermark = (route(), any::<(u64, u64)>())
        .prop_map(|((partition, epoch, _), (base, released))| Watermark { partition, epoch, base, released });
    let effect =
        prop::sample::select(vec![Effect::None, Effect::StorePrepared, Effect::Store, Effect::Remove]);
    let decision = (route(), op(), effect, status(), op(), any::<(u64, bool, u64, i64, bool)>(), value());
    let watermarks = prop::collection::vec(watermark, 0..4);
    (any::<u16>(), watermarks, prop::collection::vec(decision, 0..4)).prop_map(
        |(sender, watermarks, decisions)| {
            let (mut entries, mut count) = (Vec::new(), 0);
            for ((partition, epoch, _), op, effect, status, version, numbers, value) in &decisions {
                let (index, contended, expiry_ms, integer, value_is_result) = *numbers;
                let decision = Decision {
                    partition: *partition,
                    epoch: *epoch,
                    index,
                    origin: Epoch(expiry_ms as u32),
                    op: *op,
                    contended,
                    effect: *effect,
                    status: *status,
                    version: *version,
                    expiry_ms,
                    integer,
                    value,
                    value_is_result,
                };
                if entries.len() + decision.bytes() < DATAGRAM_BYTES_MAX - 200 {
                    decision.append(&mut entries);
                    count += 1;
                }
            }
            encoded(|out| Decisions::encode(NodeId(sender), &watermarks, count, &entries, out))
        },
    )
}

fn resend() -> impl Strategy<Value = Vec<u8>> {
    (update(), route(), address()).prop_map(|(mut datagram, (partition, epoch, sender), address)| {
        stamp_reply_to(&mut datagram, address);
        encoded(|out| Resend { sender, partition, epoch, logged: 7, datagram: &datagram }.encode(out))
    })
}

fn recover_request() -> impl Strategy<Value = Vec<u8>> {
    (route(), any::<u64>()).prop_map(|((partition, epoch, sender), cursor)| {
        encoded(|out| RecoverRequest { sender, partition, epoch, cursor }.encode(out))
    })
}

fn recover_reply() -> impl Strategy<Value = Vec<u8>> {
    let undecided = (op(), any::<bool>()).prop_map(|(op, contended)| UndecidedOp { op, contended });
    (route(), any::<[u64; 4]>(), prop::collection::vec(undecided, 0..=UNDECIDED_MAX)).prop_map(
        |((partition, epoch, sender), [cursor, next, logged, forced], undecided)| {
            let reply = RecoverReply { sender, partition, epoch, cursor, next, logged, forced, undecided };
            encoded(|out| reply.encode(out))
        },
    )
}

fn fetch() -> impl Strategy<Value = Vec<u8>> {
    let wanted = prop_oneof![op().prop_map(Wanted::Op), any::<u64>().prop_map(Wanted::DecisionsAfter)];
    (route(), wanted).prop_map(|((partition, epoch, sender), wanted)| {
        encoded(|out| Fetch { sender, partition, epoch, wanted }.encode(out))
    })
}

fn repair_request() -> impl Strategy<Value = Vec<u8>> {
    (route(), any::<(u64, u64)>(), key()).prop_map(|((partition, epoch, sender), (logged, released), key)| {
        encoded(|out| RepairRequest { sender, partition, epoch, logged, released, key: &key }.encode(out))
    })
}

fn repair_reply() -> impl Strategy<Value = Vec<u8>> {
    let entry = (any::<(u64, u64)>(), op(), prop::option::of(value())).prop_map(
        |((index, expiry_ms), version, value)| {
            let mut stored = Vec::new();
            Entry { index, version, expiry_ms, value: value.as_deref() }.append(&mut stored);
            stored
        },
    );
    (route(), any::<(u64, u64, u64, bool)>(), key(), prop::option::of(entry)).prop_map(
        |((partition, epoch, sender), (logged, released, through, absent), key, entry)| {
            let state = match &entry {
                Some(entry) => KeyState::Stored(entry),
                None if absent => KeyState::Absent,
                None => KeyState::Corrupt,
            };
            let asked = (logged, released);
            let reply = RepairReply { sender, partition, epoch, asked, through, key: &key, state };
            encoded(|out| reply.encode(out))
        },
    )
}

fn scrub_page() -> impl Strategy<Value = Vec<u8>> {
    let key = || prop::collection::vec(any::<u8>(), 1..=40);
    let entry = any::<(u64, u64, bool)>().prop_map(|(index, digest, is_tombstone)| ListedEntry {
        index,
        digest,
        is_tombstone,
    });
    let listed = prop::collection::vec((key(), prop::option::of(entry)), 0..16);
    (route(), any::<(u64, u64, u32, bool)>(), prop::option::of(key()), listed).prop_map(
        |((partition, epoch, sender), (logged, released, bytes, is_last), after, entries)| {
            let mut listed = Vec::new();
            for (key, entry) in &entries {
                Listed { key, entry: *entry }.append(&mut listed);
            }
            let (after, listed) = (after.as_deref().unwrap_or_default(), &listed[..]);
            let page =
                ScrubPage { sender, partition, epoch, logged, released, after, is_last, bytes, listed };
            let told: Vec<_> = page.entries().map(|listed| (listed.key.to_vec(), listed.entry)).collect();
            assert_eq!(told, entries);
            encoded(|out| page.encode(out))
        },
    )
}

fn assign() -> impl Strategy<Value = Vec<u8>> {
    let member = any::<(u16, bool, bool)>();
    let member = (member, address()).prop_map(|((node, consistent, handoff), address)| Member {
        node: NodeId(node),
        state: if consistent { MemberState::Consistent } else { MemberState::Joining },
        handoff,
        address,
    });
    let members = prop::collection::vec(member, 0..=MEMBERS_MAX);
    (part(), route(), any::<(u64, u64, bool)>(), members).prop_map(
        |((keyspace, range, replicas, replication, multicast), route, numbers, members)| {
            let ((partition, epoch, primary), (term, incarnation, activated)) = (route, numbers);
            let assign = Assign {
                term: Term(term),
                incarnation,
                partition,
                keyspace,
                range,
                replication,
                multicast,
                epoch,
                activated,
                primary,
                replicas,
                members,
            };
            encoded(|out| assign.encode(out))
        },
    )
}

fn part() -> impl Strategy<Value = (KeyspaceId, MatchRange, u8, Replication, SocketAddrV4)> {
    let replication = prop_oneof![
        any::<u8>().prop_map(|replicas| (replicas, Replication::Multicast)),
        quorum().prop_map(|quorum| (quorum.replicas() as u8, Replication::Quorum(quorum))),
    ];
    (any::<u16>(), any::<(u128, u128)>(), replication, address()).prop_map(
        |(keyspace, (one, other), (replicas, replication), multicast)| {
            let range = MatchRange::new(one.min(other), one.max(other)).unwrap();
            (KeyspaceId(keyspace), range, replicas, replication, multicast)
        },
    )
}

fn membership() -> impl Strategy<Value = Vec<u8>> {
    (0..7, route(), any::<[u64; 3]>(), any::<u128>(), any::<bool>(), any::<u16>()).prop_map(
        |(kind, (partition, epoch, node), [first, second, third], storage, activated, accused)| {
            let accuse = ReportKind::Accuse(NodeId(accused));
            let report_kind = if activated { ReportKind::CopyDone } else { accuse };
            encoded(|out| match kind {
                0 => {
                    let unanswered = first as u16;
                    let space =
                        [DiskSpace::Enough, DiskSpace::Reserve, DiskSpace::Exhausted][second as usize % 3];
                    Heartbeat { node, incarnation: first, storage, sent_ns: second, unanswered, space }
                        .encode(out);
                }
                1 => {
                    let term = Term(third);
                    HeartbeatReply { term, incarnation: first, sent_ns: second, lease_ns: third }.encode(out);
                }
                2 => AssignAck { node, incarnation: first, partition, epoch, activated }.encode(out),
                3 => Report { node, incarnation: first, partition, epoch, kind: report_kind }.encode(out),
                4 => Probe { term: Term(first), nonce: second }.encode(out),
                _ => ProbeReply { node, incarnation: first, nonce: second }.encode(out),
            })
        },
    )
}
