//! Tests of transactions at one replica: which keys they lock, when they are decided, and what
//! takes effect. The test plays the other member.

use crate::harness;

use harness::pair::{
    OTHER, OTHER_ADDRESS, PARTITION, Sent, ack, acks, decisions, increment, op, other, prepare_ack, primary,
    progress, recover, watermark,
};
use harness::{CLIENT, Node, answer, update};
use nicekv_proto::placement::key_digest;
use nicekv_proto::recovery::{Entry, UndecidedOp};
use nicekv_proto::replication::{Acks, Decision, Decisions, Effect, Progress};
use nicekv_proto::transaction::{Act, Step, Taken};
use nicekv_proto::{
    Condition, Datagram, Entries, Epoch, Expiry, Form, KeyDigest, KeyspaceId, MatchRange, OpId, Operation,
    Replication, Status, Term,
};
use nicekv_replica::{
    DiskSpace, MarkKeeper, OpMarks, ScriptCall, ScriptEnd, ScriptEngine, ScriptRun, ScriptStates, Scripts,
    StorageCompletion, StorageRequest,
};
use std::sync::Arc;

fn apply<'a>(key: &'a [u8], operation: Operation<'a>) -> Step<'a> {
    Step { key, act: Act::Apply { operation, condition: Condition::Always, return_old: false } }
}

fn add(key: &[u8]) -> Step<'_> {
    apply(key, Operation::Increment(1))
}

fn read(key: &[u8]) -> Step<'_> {
    Step { key, act: Act::Read }
}

/// The value that the engine has for a key.
fn held(node: &Node, key: &[u8]) -> Option<String> {
    let entry = Entry::decode(node.engine.get(key)?).unwrap();
    entry.value.map(|value| String::from_utf8(value.into()).unwrap())
}

/// Status, integer and value of each step's result in the reply.
fn results(sent: &Sent) -> Vec<(Status, i64, Option<String>)> {
    let Some((Status::Ok, Some(value))) = answer(sent) else { panic!("{sent:?}") };
    let text = |taken: &Taken<'_>| String::from_utf8(taken.value.into()).unwrap();
    Taken::each(&value)
        .map(|taken| (taken.status, taken.integer, taken.value_is_result.then(|| text(&taken))))
        .collect()
}

/// The primary shows none of a transaction's effects before it is released, and then all of them. A
/// secondary that holds it passes gets of any of its keys on (T1).
#[test]
fn transaction_locks_all_keys_until_it_takes_effect() {
    let mut node = primary();
    let keys = [&b"a"[..], b"b", b"c"];
    assert_eq!(decisions(&node.transact(op(1), &[add(b"a"), add(b"b"), add(b"a")])), []);
    let sent = ack(&mut node, 5, 1, true);
    assert_eq!((decisions(&sent), answer(&sent)), (vec![(op(1), true, Status::Ok, 0)], None), "one decision");
    assert_eq!(keys.map(|key| node.get(key)), [const { Some((Status::NotFound, None)) }; 3]);
    let sent = progress(&mut node, 5, 1);
    assert_eq!(results(&sent), [1, 1, 2].map(|sum| (Status::Ok, sum, None)));
    let told = |value: &str| Some((Status::Ok, Some(value.into())));
    assert_eq!(keys.map(|key| node.get(key)), [told("2"), told("1"), Some((Status::NotFound, None))]);
    node.assign_under(Term(3), Epoch(6), OTHER, &[other()]);
    node.transact(op(2), &[add(b"a"), add(b"b")]);
    assert_eq!(keys.map(|key| node.get(key)), [None, None, Some((Status::NotFound, None))]);
}

/// An op that locks one of the transaction's keys is decided first, and makes the transaction
/// contended (T2, T3).
#[test]
fn transaction_waits_for_earlier_ops_of_any_key() {
    let mut node = primary();
    increment(&mut node, 2);
    node.transact(op(1), &[add(b"a"), add(b"n")]);
    assert_eq!(decisions(&ack(&mut node, 5, 1, false)), []);
    let sent = ack(&mut node, 5, 2, false);
    assert_eq!(decisions(&sent), [(op(2), false, Status::Ok, 1), (op(1), true, Status::Ok, 0)]);
    assert_eq!(
        [&b"a"[..], b"n"].map(|key| held(&node, key)),
        [None, Some("1".into())],
        "the transaction has not taken effect yet"
    );
    let sent = progress(&mut node, 5, 2);
    assert_eq!(results(&sent), [(Status::Ok, 1, None), (Status::Ok, 2, None)]);
    assert_eq!([&b"a"[..], b"n"].map(|key| held(&node, key)), [Some("1".into()), Some("2".into())]);
}

/// The acks of the last transaction arrive first. Ops that wait for other keys of decided
/// transactions are decided, too.
#[test]
fn transactions_that_share_keys_are_decided_in_log_order() {
    let mut node = primary();
    node.transact(op(1), &[add(b"a"), add(b"n")]);
    node.transact(op(2), &[add(b"n"), add(b"b")]);
    node.transact(op(3), &[add(b"b"), add(b"c")]);
    for client in [3, 2] {
        assert_eq!(decisions(&ack(&mut node, 5, client, false)), []);
    }
    let sent = ack(&mut node, 5, 1, false);
    let decided = [(1, false), (2, true), (3, true)].map(|(c, contended)| (op(c), contended, Status::Ok, 0));
    assert_eq!(decisions(&sent), decided);
    progress(&mut node, 5, 3);
    let held = [&b"a"[..], b"n", b"b", b"c"].map(|key| held(&node, key).unwrap());
    assert_eq!(held, ["1", "2", "2", "1"]);
}

/// An op of one of the transaction's keys that arrives while the transaction is decided and not
/// released is contended (T3).
#[test]
fn op_that_shares_a_key_with_a_transaction_is_contended() {
    let mut node = primary();
    node.transact(op(1), &[add(b"a"), add(b"n")]);
    assert_eq!(decisions(&ack(&mut node, 5, 1, true)), [(op(1), true, Status::Ok, 0)]);
    increment(&mut node, 2);
    assert_eq!(decisions(&ack(&mut node, 5, 2, false)), [(op(2), true, Status::Ok, 2)]);
    progress(&mut node, 5, 1);
    assert_eq!(held(&node, b"n"), Some("1".into()));
    progress(&mut node, 5, 2);
    assert_eq!(held(&node, b"n"), Some("2".into()));
}

/// A transaction is not decided while the state of one of its keys is unknown.
#[test]
fn transaction_is_decided_when_all_keys_are_read() {
    let mut node = primary();
    node.transact(op(1), &[add(b"a"), add(b"b")]);
    let mut bytes = Vec::new();
    let prepare = prepare_ack(5, op(1));
    let (prepares, none) = (Entries::Values(core::slice::from_ref(&prepare)), Entries::Values(&[]));
    Acks { sender: OTHER, prepares, progress: none }.encode(&mut bytes);
    node.core.handle_datagram(node.now, OTHER_ADDRESS, &bytes);
    let mut reads = Vec::new();
    while let Some(request) = node.core.poll_storage() {
        if let StorageRequest::Read { token, key, .. } = request {
            reads.push((token, key.to_vec()));
        }
    }
    assert_eq!(
        reads.iter().map(|(_, key)| &key[..]).collect::<Vec<_>>(),
        [b"a", b"b"],
        "both keys are read at the same time"
    );
    let mut told = |token| {
        node.core.handle_storage(node.now, StorageCompletion::Read { token, entry: None });
        node.core.handle_batch_end(node.now);
        decisions(&node.sent()).len()
    };
    assert_eq!(reads.iter().map(|(token, _)| told(*token)).collect::<Vec<_>>(), [0, 1]);
}

/// A transaction that was open when the epoch began is decided as a whole, and as contended (R3).
#[test]
fn open_transaction_is_recovered() {
    let mut node = Node::started();
    node.grant_lease(Term(3));
    node.assign_under(Term(3), Epoch(1), OTHER, &[other()]);
    increment(&mut node, 2);
    let told: Vec<bool> =
        acks(&node.transact(op(1), &[add(b"a"), add(b"n")])).iter().map(|ack| ack.contended).collect();
    assert_eq!(told, [true], "its second key makes the transaction contended");
    node.assign_with(Term(3), Epoch(6), &[other()]);
    let held_there = [2, 1].map(|client| UndecidedOp { op: op(client), contended: false });
    let sent = recover(&mut node, 6, 0, held_there.to_vec());
    assert_eq!(decisions(&sent), [(op(2), true, Status::Ok, 1), (op(1), true, Status::Ok, 0)]);
    progress(&mut node, 6, 2);
    assert_eq!([&b"a"[..], b"n"].map(|key| held(&node, key).unwrap()), ["1", "2"]);
}

/// A prepared transaction is in the log like any op, and locks its keys again after a restart.
#[test]
fn restarted_node_has_its_open_transactions() {
    let mut before = primary();
    before.transact(op(1), &[add(b"a"), add(b"b")]);
    let mut node = Node::restarted_with(&before.log);
    node.grant_lease(Term(3));
    node.assign_with(Term(3), Epoch(6), &[other()]);
    recover(&mut node, 6, 0, Vec::new());
    assert_eq!([&b"a"[..], b"b"].map(|key| node.get(key)), [None, None]);
    assert_eq!(decisions(&ack(&mut node, 6, 1, false)), [(op(1), true, Status::Ok, 0)]);
    let mut node = Node::restarted_with(&node.log);
    node.assign_under(Term(3), Epoch(7), OTHER, &[other()]);
    watermark(&mut node, 7, 1);
    assert_eq!(
        [&b"a"[..], b"b"].map(|key| held(&node, key).unwrap()),
        ["1", "1"],
        "applied once, from the log"
    );
}

/// A secondary applies all effects of a transaction's decision at once.
#[test]
fn members_apply_the_decided_outcome() {
    let mut node = Node::started();
    node.assign_under(Term(3), Epoch(5), OTHER, &[other()]);
    watermark(&mut node, 5, 0);
    let set = Operation::Set { value: b"prepared", expiry: Expiry::Never };
    node.transact(op(1), &[apply(b"a", set), read(b"b"), add(b"b"), apply(b"c", Operation::Delete)]);
    let taken = |status, effect, value| Taken {
        status,
        effect,
        value_is_result: false,
        form: Form::Plain,
        value,
        expiry_ms: 0,
        integer: 0,
    };
    let mut value = Vec::new();
    taken(Status::Ok, Effect::StorePrepared, &b""[..]).append(&mut value);
    Taken { value_is_result: true, ..taken(Status::Ok, Effect::None, b"7") }.append(&mut value);
    taken(Status::Ok, Effect::Store, b"8").append(&mut value);
    taken(Status::Ok, Effect::Remove, b"").append(&mut value);
    let decision = Decision {
        form: Form::Plain,
        partition: PARTITION,
        epoch: Epoch(5),
        index: 1,
        origin: Epoch(5),
        op: op(1),
        contended: false,
        effect: Effect::Transaction,
        status: Status::Ok,
        version: op(1),
        expiry_ms: 0,
        integer: 0,
        value: &value,
        value_is_result: true,
    };
    let decisions = Entries::Values(core::slice::from_ref(&decision));
    let (keyspace, digest, watermarks) = (KeyspaceId::DEFAULT, KeyDigest::default(), Entries::Values(&[]));
    node.receive(OTHER_ADDRESS, |out| {
        Decisions { keyspace, digest, sender: OTHER, watermarks, decisions }.encode(out);
    });
    let expected = [Some("prepared".into()), Some("8".into()), None];
    assert_eq!([&b"a"[..], b"b", b"c"].map(|key| held(&node, key)), expected);
    assert!(node.engine.contains_key(&b"c"[..]), "a deletion leaves a tombstone");
    let entry = Entry::decode(&node.engine[&b"b"[..]]).unwrap();
    assert_eq!((entry.index, entry.version), (1, op(1)), "index of the decision, version of the transaction");
}

/// A requirement that does not hold ends the transaction, and nothing takes effect (T4).
#[test]
fn unmet_version_condition_has_no_effect() {
    let mut node = Node::serving();
    assert_eq!(node.set(b"a", b"1", Expiry::Never), Some(Status::Ok));
    let version = Entry::decode(&node.engine[&b"a"[..]]).unwrap().version;
    let mut transact = |version| {
        let require = Step { key: b"a", act: Act::Require(Condition::IfVersion(version)) };
        let op = node.op();
        let sent = node.transact(op, &[add(b"b"), require, add(b"a")]);
        (answer(&sent).map(|(status, _)| status), [&b"a"[..], b"b"].map(|key| held(&node, key)))
    };
    assert_eq!(transact(OpId::NONE), (Some(Status::ConditionFailed), [Some("1".into()), None]));
    assert_eq!(transact(version), (Some(Status::Ok), [Some("2".into()), Some("1".into())]));
    assert_eq!(transact(version).0, Some(Status::ConditionFailed), "the key has another version now");
}

/// In the chain, which has only this member, the head decides the deletes and the transaction.
#[test]
fn overdue_key_of_a_transaction_is_deleted_first() {
    for replication in [Replication::Multicast, Replication::Chain] {
        let mut node = Node::started();
        node.replication = replication;
        node.grant_lease(Term(3));
        node.assign(Term(3), Epoch(5));
        for key in [b"a", b"b"] {
            let expiry = Expiry::At(node.now.unix_ms + 5);
            assert_eq!(node.set(key, b"7", expiry), Some(Status::Ok), "{replication:?}");
        }
        let decided = node.core.status().counters.decided;
        node.now.unix_ms += 5;
        let op = node.op();
        let sent = node.transact(op, &[read(b"c"), add(b"b"), read(b"a")]);
        let expected = [(Status::NotFound, 0, None), (Status::Ok, 1, None), (Status::NotFound, 0, None)];
        assert_eq!(results(&sent), expected, "{replication:?}");
        assert_eq!(
            node.core.status().counters.decided,
            decided + 3,
            "two deletes and the transaction are decided"
        );
        assert_eq!([&b"a"[..], b"b"].map(|key| held(&node, key)), [None, Some("1".into())]);
    }
}

/// One of the transaction's keys is in the upper half of the match values, which belongs to another
/// partition.
#[test]
fn only_the_primary_refuses_keys_of_another_partition() {
    let is_upper = |key: &&Vec<u8>| key_digest(key).match_value() >> 127 == 1;
    let keys: Vec<Vec<u8>> = (0..20).map(|number| vec![b'a' + number]).collect();
    let (upper, lower): (Vec<&Vec<u8>>, Vec<&Vec<u8>>) = keys.iter().partition(is_upper);
    let half = MatchRange::new(0, u128::MAX >> 1).unwrap();
    let mut node = Node { range: half, ..Node::started() };
    node.grant_lease(Term(3));
    node.assign_with(Term(3), Epoch(5), &[other()]);
    recover(&mut node, 5, 0, Vec::new());
    let logged = node.log.len();
    let sent = node.transact(op(1), &[add(lower[0]), add(upper[0])]);
    assert_eq!(answer(&sent), Some((Status::CrossPartition, None)));
    assert_eq!(node.log.len(), logged);
    node.transact(op(2), &[add(lower[0]), add(lower[1])]);
    assert_eq!(decisions(&ack(&mut node, 5, 2, false)), [(op(2), false, Status::Ok, 0)]);
    node.assign_under(Term(3), Epoch(6), OTHER, &[other()]);
    let logged = node.log.len();
    assert_eq!(node.transact(op(3), &[add(lower[0]), add(upper[0])]), [], "only the primary replies");
    assert_eq!(node.log.len(), logged);
    let plain = node.receive(CLIENT, |out| update(op(4), lower[0], Operation::Increment(1)).encode(out));
    assert_eq!(acks(&plain).len(), 1);
}

/// A script that ends when the node asks for the third time, and that may end differently in
/// another run.
struct Late;

impl ScriptEngine for Late {
    fn run(&self, run: &ScriptRun, _: &ScriptCall<'_>, keys: &mut dyn ScriptStates) -> Option<ScriptEnd> {
        (run.asked == 2).then(|| {
            keys.update(b"a", &Operation::Increment(1), Condition::Always, false);
            ScriptEnd { reply: b"+OK\r\n".to_vec(), has_failed: false, may_differ: true }
        })
    }
}

/// While the script runs, its keys are locked and other keys are not. The client is answered when
/// all members have synced the decision (T5).
#[test]
fn slow_script_runs_beside_the_node() {
    let mut node = primary();
    node.core.run_scripts(Scripts::new(Arc::new(Late)));
    let act = Act::Run { unix_ms: 1, is_read_only: false, source: b"script", arguments: b"" };
    let steps = [Step { key: b"a", act: Act::Declare }, Step { key: b"a", act }];
    node.transact(op(1), &steps);
    assert_eq!(decisions(&ack(&mut node, 5, 1, false)), [], "the script is running");
    node.transact(op(2), &[add(b"a")]);
    assert_eq!(decisions(&ack(&mut node, 5, 2, false)), [], "the script's key is locked");
    node.transact(op(3), &[add(b"c")]);
    assert_eq!(decisions(&ack(&mut node, 5, 3, false)), [(op(3), false, Status::Ok, 0)]);
    assert!(says_that_it_works(&mut node), "the other member must not accuse it");
    let ask = |node: &mut Node| {
        node.pass(std::time::Duration::from_millis(1));
        node.sent()
    };
    assert_eq!(decisions(&ask(&mut node)), [], "the script is still running");
    let sent = ask(&mut node);
    let decided = [(op(1), true, Status::Ok, 0), (op(2), true, Status::Ok, 0)];
    assert_eq!(
        (decisions(&sent), answer(&sent)),
        (decided.into(), None),
        "contended, so the client is not answered yet"
    );
    progress(&mut node, 5, 3);
    assert_eq!(held(&node, b"a"), Some("2".into()));
    assert!(!says_that_it_works(&mut node));
}

/// The other member asks for missing decisions; returns whether the primary answers that it is at
/// work (R15).
fn says_that_it_works(node: &mut Node) -> bool {
    let progress = Progress {
        partition: PARTITION,
        epoch: Epoch(5),
        logged: 0,
        synced: 0,
        gap: true,
        space: DiskSpace::Enough,
    };
    let asks = Acks { sender: OTHER, prepares: Entries::Values(&[]), progress: Entries::Values(&[progress]) };
    let sent = node.receive(OTHER_ADDRESS, |out| asks.encode(out));
    let mut watermarks = Vec::new();
    for (_, bytes) in &sent {
        if let Datagram::Decisions(decisions) = Datagram::decode(bytes).unwrap().1 {
            watermarks.extend(decisions.watermarks.iter());
        }
    }
    watermarks.iter().any(|watermark| watermark.working)
}

/// Keeps no marks; the test itself says which ops have ended the node.
struct Unkept;

impl MarkKeeper for Unkept {
    fn begin(&self, _: OpId) {}

    fn end(&self) {}
}

/// The op is not evaluated again. Like any refusal, the error is shown when all members have synced
/// it (T6).
#[test]
fn op_that_has_ended_the_node_twice_is_decided_as_an_error() {
    let mut node = primary();
    node.core.mark_ops(OpMarks::new(Arc::new(Unkept), [op(1), op(2)].into()));
    node.transact(op(1), &[add(b"a"), add(b"b")]);
    let sent = ack(&mut node, 5, 1, false);
    assert_eq!(
        (decisions(&sent), answer(&sent)),
        (vec![(op(1), true, Status::EndedByStore, 0)], None),
        "the client is not answered yet"
    );
    assert_eq!(answer(&progress(&mut node, 5, 1)), Some((Status::EndedByStore, None)));
    increment(&mut node, 2);
    assert_eq!(decisions(&ack(&mut node, 5, 2, false)), [(op(2), true, Status::EndedByStore, 0)]);
    progress(&mut node, 5, 2);
    assert_eq!([&b"a"[..], b"b", b"n"].map(|key| held(&node, key)), [None, None, None]);
    assert_eq!(node.core.status().counters.barred, 2);
    increment(&mut node, 3);
    assert_eq!(
        decisions(&ack(&mut node, 5, 3, false)),
        [(op(3), false, Status::Ok, 1)],
        "other ops are decided as usual"
    );
}
