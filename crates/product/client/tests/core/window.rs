//! Tests: how many of the submitted requests are in flight.

use crate::world::World;
use nicekv_client::OperationError;
use nicekv_proto::{Datagram, OpId, Reply, Status};
use std::collections::VecDeque;

/// Two keys in different parts of the ring.
const NEAR_AND_FAR: [&str; 2] = ["color", "shape"];

#[test]
fn requests_beyond_the_window_wait() {
    let mut world = World::new();
    for _ in 0..1_000 {
        world.get("color");
    }
    let first = world.sent_ops();
    assert!((16..200).contains(&first.len()), "{}", first.len());
    assert_eq!(world.client.counters().waited, 1_000 - first.len() as u64);
    let (mut answered, mut under_way) = (0, first);
    while let Some(op) = under_way.pop() {
        world.now.boot_ns += 10_000;
        world.reply(Reply::bare(op, Status::NotFound));
        under_way.splice(..0, world.sent_ops());
        answered += 1;
    }
    assert_eq!((answered, world.client.counters().retries), (1_000, 0));
}

#[test]
fn silent_destination_does_not_delay_others() {
    let mut world = World::new();
    let [live, dead] = NEAR_AND_FAR;
    for _ in 0..500 {
        world.get(dead);
    }
    let silent: Vec<OpId> = world.sent_ops();
    for _ in 0..3 {
        world.advance();
    }
    world.sent();
    for _ in 0..500 {
        world.get(live);
    }
    let mut answered = 0;
    loop {
        let ops = world.sent_ops();
        let ops: Vec<OpId> = ops.into_iter().filter(|op| op.sequence > 500).collect();
        if ops.is_empty() {
            break;
        }
        for op in ops {
            world.reply(Reply::bare(op, Status::NotFound));
            answered += 1;
        }
    }
    assert_eq!(answered, 500, "requests to the live part are answered");
    // After one answer, the other requests to the silent part are sent, too.
    let op = silent[0];
    world.reply(Reply::bare(op, Status::NotFound));
    assert!(world.sent_ops().iter().any(|op| op.sequence > silent.len() as u64));
}

#[test]
fn request_that_waits_too_long_is_refused_and_not_sent() {
    let mut world = World::new();
    for _ in 0..1_000 {
        world.put("color", "blue");
    }
    let sent = world.sent_ops().len();
    while world.client.in_flight() > 0 {
        let (mut unknown, mut refused) = (0, 0);
        while world.client.next_deadline().is_some() {
            world.advance();
            world.sent();
            while let Some((_, result)) = world.outcome() {
                match result {
                    Err(OperationError::OutcomeUnknown) => unknown += 1,
                    Err(OperationError::Busy) => refused += 1,
                    other => panic!("{other:?}"),
                }
            }
        }
        assert_eq!((unknown, refused), (sent, 1_000 - sent));
    }
}

/// Replicas whose disks stall answer nothing, and later everything at once.
#[test]
fn during_an_outage_few_requests_are_retried_and_all_in_the_end() {
    const MS: u64 = 1_000_000;
    let mut world = World::new();
    let answer_all = |world: &mut World, ops: Vec<OpId>| {
        ops.into_iter().for_each(|op| world.reply(Reply::bare(op, Status::NotFound)));
        while world.outcome().is_some() {}
    };
    for _ in 0..64 {
        world.get("color");
    }
    let ops = world.sent_ops();
    world.now.boot_ns += MS / 10;
    answer_all(&mut world, ops);
    for stall_ns in [30 * MS, 60 * MS] {
        let before = world.client.counters().retries;
        for number in 0..64 {
            world.get(NEAR_AND_FAR[number % 2]);
        }
        let (begun_ns, ops) = (world.now.boot_ns, world.sent_ops());
        assert!(ops.len() >= 32, "{}", ops.len());
        while world.client.next_deadline().is_some_and(|at_ns| at_ns < begun_ns + stall_ns) {
            world.advance();
        }
        world.now.boot_ns = begun_ns + stall_ns;
        answer_all(&mut world, ops);
        let retries = world.client.counters().retries - before;
        assert!((1..=12).contains(&retries), "{retries} of 64 in {} ms", stall_ns / MS);
        let rest = world.sent_ops();
        answer_all(&mut world, rest);
    }
    // The silence lasts longer than the longest retry interval, so it does not count as a stall.
    for _ in 0..64 {
        world.get("color");
    }
    let (begun_ns, first) = (world.now.boot_ns, world.sent_ops());
    let mut again = std::collections::BTreeSet::new();
    while world.now.boot_ns < begun_ns + 150 * MS {
        world.advance();
        again.extend(world.sent_ops());
    }
    assert!(first.iter().all(|op| again.contains(op)), "{} of {}", again.len(), first.len());
}

/// 32 nodes that answer at once, except the first, whose link lets one reply out per millisecond;
/// 256 callers each send one request after another, all for different keys.
struct SlowLink {
    world: World,
    /// Replies of the first node that wait for its link.
    queue: VecDeque<OpId>,
    keys: u32,
    answered: u32,
}

impl SlowLink {
    fn ask(&mut self) {
        self.world.get(&format!("key {}", self.keys));
        self.keys += 1;
    }

    /// Answers a request, or queues the answer on the link.
    fn ask_nodes(&mut self) {
        loop {
            let sent = self.world.sent();
            if sent.is_empty() {
                return;
            }
            for bytes in sent {
                let header = Datagram::decode(&bytes).unwrap().0;
                match header.digest.vnode() >> 11 {
                    0 => self.queue.push_back(header.op),
                    _ => self.answer(header.op),
                }
            }
        }
    }

    fn answer(&mut self, op: OpId) {
        self.world.reply(Reply::bare(op, Status::NotFound));
        while let Some((_, result)) = self.world.outcome() {
            result.expect("no request fails");
            self.answered += 1;
            self.ask();
        }
    }

    /// Advances the time; `is_open`: the link transmits.
    fn pass(&mut self, milliseconds: u64, is_open: bool) {
        for _ in 0..milliseconds {
            self.world.now.boot_ns += 1_000_000;
            let op = if is_open { self.queue.pop_front() } else { None };
            op.into_iter().for_each(|op| self.answer(op));
            if self.world.client.next_deadline().is_some_and(|at_ns| at_ns <= self.world.now.boot_ns) {
                self.world.client.handle_deadline(self.world.now);
            }
            self.ask_nodes();
        }
    }
}

#[test]
fn retries_do_not_keep_a_full_link_full() {
    let mut load = SlowLink { world: World::new(), queue: VecDeque::new(), keys: 0, answered: 0 };
    (0..256).for_each(|_| load.ask());
    load.ask_nodes();
    load.pass(1_000, true);
    load.pass(400, false);
    load.pass(20_000, true);
    assert!(load.queue.len() <= 300, "{} replies wait", load.queue.len());
    let (before, retries) = (load.answered, load.world.client.counters().retries);
    load.pass(5_000, true);
    let (again, answered) = (load.world.client.counters().retries - retries, load.answered - before);
    assert!(again < 500, "{again} requests were sent again in five seconds");
    // All nodes get equally many requests, and the slow one is never idle.
    assert!(answered > 5 * 32 * 900, "{answered} are answered in five seconds");
}
