//! Tests: which commands wait for which, and how much memory they occupy.

use super::*;
use nicekv_client::{Answer, Outcome};
use nicekv_proto::{Form, OpId};
use nicekv_redis::resp::ArgumentList;
use nicekv_redis::table::find;

fn keys(hashes: &[u64]) -> UsedKeys {
    let mut hashes = hashes.iter().copied();
    UsedKeys { first: hashes.next(), others: hashes.collect(), exclusive: false, usage: KeyUsage::Write }
}

fn read_in(turn: u64, hashes: &[u64]) -> UsedKeys {
    UsedKeys { usage: KeyUsage::Read { turn }, ..keys(hashes) }
}

fn integer(integer: i64) -> Answered<'static> {
    Ok(Answer {
        outcome: Outcome::Done,
        version: OpId::NONE,
        expiry_ms: 0,
        integer,
        value: None,
        form: Form::Plain,
    })
    .into()
}

fn text(mut bytes: ReplyBuffer) -> String {
    let mut all = Vec::new();
    bytes.drain(|piece| {
        all.extend_from_slice(piece);
        Some(piece.len())
    });
    String::from_utf8(all).unwrap()
}

fn output(bytes: &mut ReplyBuffer) -> Output<'_> {
    Output { bytes, protocol: Protocol::Resp2, unix_ms: 0 }
}

#[test]
fn a_command_waits_for_those_on_its_keys_and_one_on_very_many_for_all() {
    let exclusive = || UsedKeys { exclusive: true, ..UsedKeys::none() };
    let mut unanswered = Unanswered::default();
    assert!(!unanswered.blocks(&exclusive()) && !unanswered.blocks(&keys(&[1])));
    unanswered.push(keys(&[1, 2]), State::Request(Finish::Integer));
    for (other, blocks) in
        [(keys(&[1]), true), (keys(&[3, 2]), true), (keys(&[3]), false), (UsedKeys::none(), false)]
    {
        assert_eq!(unanswered.blocks(&other), blocks, "{other:?}");
    }
    assert!(unanswered.blocks(&exclusive()));
    let mut bytes = ReplyBuffer::default();
    unanswered.complete(0, 0, integer(5), output(&mut bytes));
    assert!(!unanswered.blocks(&keys(&[1])) && !unanswered.blocks(&keys(&[2])));
    unanswered.push(exclusive(), State::Request(Finish::Integer));
    assert!(unanswered.blocks(&keys(&[9])) && !unanswered.blocks(&UsedKeys::none()));
    unanswered.complete(1, 0, integer(6), output(&mut bytes));
    assert!(!unanswered.blocks(&keys(&[9])));
    assert_eq!(text(bytes), ":5\r\n:6\r\n");
}

#[test]
fn reads_of_one_turn_share_a_key_and_all_else_waits() {
    let mut unanswered = Unanswered::default();
    unanswered.push(read_in(4, &[1, 1, 2]), State::Request(Finish::Integer));
    unanswered.push(read_in(4, &[1]), State::Request(Finish::Integer));
    for (other, blocks) in [
        (read_in(4, &[1, 2]), false),
        (read_in(5, &[2]), true),
        (read_in(5, &[3]), false),
        (keys(&[1]), true),
    ] {
        assert_eq!(unanswered.blocks(&other), blocks, "{other:?}");
    }
    let mut bytes = ReplyBuffer::default();
    unanswered.complete(0, 0, integer(5), output(&mut bytes));
    assert!(
        unanswered.blocks(&keys(&[1])) && !unanswered.blocks(&keys(&[2])),
        "one still reads the first key"
    );
    unanswered.complete(1, 0, integer(6), output(&mut bytes));
    unanswered.push(keys(&[1]), State::Request(Finish::Integer));
    assert!(unanswered.blocks(&read_in(4, &[1])) && unanswered.blocks(&keys(&[1])));
}

#[test]
fn replies_leave_in_order_and_waiting_ones_are_counted_to_the_byte() {
    let mut unanswered = Unanswered::default();
    let mut bytes = ReplyBuffer::default();
    unanswered.push_ready(b"+at once\r\n"[..].into(), &mut bytes);
    assert_eq!((bytes.len(), unanswered.next_number(), unanswered.ready_bytes()), (10, 1, 0));
    bytes = ReplyBuffer::default();
    for key in [1, 2] {
        unanswered.push(keys(&[key]), State::Request(Finish::Integer));
    }
    unanswered.push_ready(b"+three\r\n"[..].into(), &mut bytes);
    unanswered.push_ready(b"+four\r\n"[..].into(), &mut bytes);
    assert_eq!((unanswered.len(), unanswered.ready_bytes(), unanswered.held_bytes), (4, 15, 15));
    unanswered.complete(2, 0, integer(20), output(&mut bytes));
    assert_eq!((bytes.len(), unanswered.ready_bytes(), unanswered.held_bytes), (0, 20, 20));
    unanswered.complete(1, 0, integer(10), output(&mut bytes));
    assert_eq!(text(std::mem::take(&mut bytes)), ":10\r\n:20\r\n+three\r\n+four\r\n");
    assert_eq!((unanswered.ready_bytes(), unanswered.held_bytes, unanswered.next_number()), (0, 0, 5));
    assert!(unanswered.is_empty() && unanswered.keys_in_use.is_empty());
}

#[test]
fn memory_is_what_was_allocated_and_is_freed() {
    let mut unanswered = Unanswered::default();
    assert_eq!(unanswered.memory(), 0);
    for command in 0..10u64 {
        let hashes: Vec<u64> = (0..20).map(|key| command * 100 + key).collect();
        unanswered.push(keys(&hashes), State::Request(Finish::Integer));
    }
    let others: usize = unanswered.queue.iter().map(|pending| pending.keys.others.capacity() * 8).sum();
    let queue = unanswered.queue.capacity() * size_of::<Pending>();
    // A hash, its usage and a control byte of the table for each place, an eighth of which stays
    // free.
    let hashes = |unanswered: &Unanswered| unanswered.keys_in_use.capacity() * 33 * 8 / 7;
    assert!(others >= 10 * 19 * 8 && queue > 0 && hashes(&unanswered) >= 200 * 33);
    assert_eq!(unanswered.memory(), others + queue + hashes(&unanswered));
    let mut bytes = ReplyBuffer::default();
    for command in 0..10 {
        unanswered.complete(command, 0, integer(1), output(&mut bytes));
    }
    assert_eq!(unanswered.memory(), queue + hashes(&unanswered));
    unanswered.shrink();
    assert_eq!(unanswered.memory(), 0);
}

#[test]
fn arguments_are_kept_until_their_command_is_accounted_for() {
    let mut list = ArgumentList::new(1 << 20);
    list.copy_from(&[b"GET", b"k"]);
    let (called, mut unanswered, mut bytes) =
        (find(b"get").unwrap(), Unanswered::default(), ReplyBuffer::default());
    let begin = |unanswered: &mut Unanswered, since_ns| {
        let logged = Some(unanswered.logged.add(called, list.arguments()));
        unanswered.begin(Begun { called: called.number, since_ns, logged }, false);
    };
    for since_ns in [2, 3] {
        begin(&mut unanswered, since_ns);
        unanswered.push(keys(&[since_ns]), State::Request(Finish::Integer));
    }
    let accounted = |unanswered: &mut Unanswered| {
        let mut all = Vec::new();
        unanswered.account(|finished, logged| {
            all.push((finished.begun.since_ns, logged.at(finished.begun.logged.unwrap())));
        });
        all
    };
    let words = || vec![b"GET".to_vec(), b"k".to_vec()];
    unanswered.complete(1, 0, integer(1), output(&mut bytes));
    assert_eq!(accounted(&mut unanswered), [(3, words())]);
    unanswered.complete(0, 0, integer(1), output(&mut bytes));
    assert_eq!(accounted(&mut unanswered), [(2, words())]);
    unanswered.shrink();
    assert_eq!((unanswered.logged.memory(), unanswered.is_empty()), (0, true));
}
