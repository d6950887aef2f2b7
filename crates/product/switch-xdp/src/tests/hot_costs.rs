//! Time that the stage of hot keys takes for a packet, measured by the kernel's run statistics
//! under `BPF_PROG_TEST_RUN`. The clock is read around each run, so only differences are
//! meaningful. Caches are as cold as a system call leaves them.

use nicekv_proto::Opcode;
use nicekv_proto::hot::Stamp;
use nicekv_proto::route::leave_room_for_stamp;
use nicekv_switch::{Backend as _, Counter, HOT_CAPACITY, HOT_VALUES_MAX, HostId, HotConfig, HotEntry};
use nicekv_switch_fixtures::hot::KEYSPACE;
use nicekv_switch_fixtures::{frames, tables};

use super::hot::{of_key, said_by};
use super::{Lab, at_both};
use crate::{OBJECT, count_runs};

/// Number of requests per block. The result is the median of the blocks.
const BLOCK: usize = 1_000;
const BLOCKS: usize = 20;
/// Upper bound of the extra time, far above the time on any machine. The measured times are
/// printed.
const NANOSECONDS_MAX: f64 = 10_000.0;
/// Number of entries without a value in the switch.
const ENTRIES: usize = HOT_CAPACITY - HOT_VALUES_MAX;
/// A keyspace that does not spread its hot keys and has no entries.
const PLAIN: u16 = 5;
/// A keyspace whose hot keys have their values in the switch.
const ANSWERED: u16 = 6;

fn digest(number: usize) -> [u8; 16] {
    (number as u128).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835).to_be_bytes()
}

fn frame(opcode: Opcode, keyspace: u16, number: usize, has_room: bool) -> Vec<u8> {
    let destination = if opcode == Opcode::Update { [10, 11, 0, 7] } else { [10, 10, 0, 7] };
    // A get of a key of 16 bytes, padded to leave room for a reply with a value of 64 bytes.
    let asked = [&[0; 10][..], &[0, 16], &[b'k'; 16], &[0; 120]].concat();
    let (body, number) = match keyspace {
        ANSWERED => (&asked[..], number % HOT_VALUES_MAX),
        _ => (&b"and something behind"[..], number),
    };
    let mut payload = of_key(frames::message(opcode, body), keyspace, digest(number));
    if has_room {
        leave_room_for_stamp(&mut payload);
    }
    frames::Udp { payload, ..frames::Udp::request(destination) }.build()
}

/// Fills the table with entries. All holders have confirmed valid copies.
fn full(lab: &mut Lab) {
    lab.xdp.install(&tables()).unwrap();
    let config = HotConfig { keyspaces: vec![KEYSPACE], keys_max: 10_000, stages: 4, seed: 5 };
    lab.xdp.set_hot(&config).unwrap();
    let entry = |number: usize| HotEntry {
        keyspace: KEYSPACE,
        digest: digest(number),
        instance: number as u64 + 1,
        owner_turns: 1,
        holders: vec![HostId(2), HostId(3)],
        in_switch: false,
    };
    let valued = |number: usize| HotEntry {
        keyspace: ANSWERED,
        digest: digest(number),
        instance: (ENTRIES + number) as u64 + 1,
        holders: vec![],
        in_switch: true,
        ..entry(0)
    };
    let wanted = (0..HOT_VALUES_MAX).map(valued);
    let entries: Vec<HotEntry> = (0..ENTRIES).map(entry).chain(wanted).collect();
    lab.xdp.change_hot(false, &[], &entries).unwrap();
    offer_values(lab);
    for (number, node) in (0..ENTRIES).flat_map(|number| [(number, 2), (number, 3)]) {
        let told = Stamp { instance: number as u64 + 1, seen: 1 };
        let payload = of_key(frames::message(Opcode::HotConfirm, &told.to_bytes()), KEYSPACE, digest(number));
        lab.test_run(node, &said_by(node, payload));
    }
    let confirmed = lab.xdp.counters().unwrap().get(Counter::HotConfirmed);
    assert_eq!(confirmed, 2 * ENTRIES as u64);
}

/// Stores the maximum number of values, within a lease that does not end.
fn offer_values(lab: &mut Lab) {
    lab.xdp.hot.begin_incarnation(1).unwrap();
    let lease = [1, u64::MAX, 1].map(u64::to_be_bytes).concat();
    let lease = of_key(frames::message(Opcode::HotLease, &lease), ANSWERED, digest(0));
    lab.test_run(1, &said_by(1, lease));
    for number in 0..HOT_VALUES_MAX {
        let words = [(ENTRIES + number) as u64 + 1, 1, 1].map(u64::to_be_bytes).concat();
        let body = [&words[..], &[0, 16], &[0; 6], &[b'k'; 16], &[7; 104]].concat();
        let value = of_key(frames::message(Opcode::HotValue, &body), ANSWERED, digest(number));
        lab.test_run(1, &said_by(1, value));
    }
    let counters = lab.xdp.counters().unwrap();
    assert_eq!([Counter::HotLeased, Counter::HotKept].map(|it| counters.get(it)), [1, HOT_VALUES_MAX as u64]);
}

/// The distribution of requested keys.
#[derive(Clone, Copy, Debug)]
enum Asked {
    /// Always the same key: measures the time of the program itself.
    One,
    /// All keys with equal probability.
    Evenly,
    /// The n-th key with a probability proportional to 1/n, like real hot keys.
    Skewed,
}

impl Asked {
    /// The key of the n-th request.
    fn key(self, draw: usize) -> usize {
        let drawn = u128::from_be_bytes(digest(draw + 1)) >> 64;
        let part = drawn as f64 / 2_f64.powi(64);
        match self {
            Self::One => 77,
            Self::Evenly => (part * ENTRIES as f64) as usize,
            Self::Skewed => (ENTRIES as f64).powf(part) as usize - 1,
        }
    }
}

/// A kind of request: name, opcode, keyspace, whether it has room for a stamp, and whether its keys
/// have no entries.
type Kind = (&'static str, Opcode, u16, bool, bool);

const KINDS: [Kind; 8] = [
    ("get, not hot", Opcode::Get, PLAIN, false, false),
    ("get, not hot, room", Opcode::Get, PLAIN, true, false),
    ("get, hot", Opcode::Get, KEYSPACE, true, false),
    ("get, answered", Opcode::Get, ANSWERED, true, false),
    ("get, candidate", Opcode::Get, KEYSPACE, true, true),
    ("get, candidate, no room", Opcode::Get, KEYSPACE, false, true),
    ("put, not hot", Opcode::Update, PLAIN, false, false),
    ("put, hot", Opcode::Update, KEYSPACE, true, false),
];

/// The median time of a run for each kind, in nanoseconds. Blocks of all kinds are measured
/// alternately.
fn measure(lab: &Lab, asked: Asked) -> Vec<f64> {
    let _counting = count_runs().unwrap();
    let mut blocks = vec![Vec::new(); KINDS.len()];
    for block in 0..BLOCKS {
        for (at, (&(_, opcode, keyspace, has_room, is_other), blocks)) in
            KINDS.iter().zip(&mut blocks).enumerate()
        {
            // Each kind draws its own keys; otherwise it would find those of the previous kind in
            // the cache.
            let draw = |number: usize| asked.key((block * KINDS.len() + at) * BLOCK + number);
            let key = |number| draw(number) + if is_other { ENTRIES } else { 0 };
            let frames: Vec<_> =
                (0..BLOCK).map(|number| frame(opcode, keyspace, key(number), has_room)).collect();
            let before = lab.xdp.runs();
            frames.iter().for_each(|frame| drop(lab.test_run(0, frame)));
            let after = lab.xdp.runs();
            let time = (after.time - before.time).as_nanos() as f64;
            blocks.push(time / (after.count - before.count) as f64);
        }
    }
    let median = |mut blocks: Vec<f64>| {
        blocks.sort_by(f64::total_cmp);
        blocks[blocks.len() / 2]
    };
    blocks.into_iter().map(median).collect()
}

#[test]
fn cost_of_hot_keys() {
    at_both("cost_of_hot_keys", |hook| {
        let mut lab = Lab::new(OBJECT, hook);
        full(&mut lab);
        for asked in [Asked::One, Asked::Skewed, Asked::Evenly] {
            let measured = measure(&lab, asked);
            for ((name, ..), nanoseconds) in KINDS.iter().zip(&measured) {
                println!("{hook}, {asked:?}: {name}: {nanoseconds:.0} ns");
            }
            let is_of = |opcode| move |(kind, _): &(&Kind, &f64)| kind.1 == opcode;
            for opcode in [Opcode::Get, Opcode::Update] {
                let mut times = KINDS.iter().zip(&measured).filter(is_of(opcode)).map(|(_, time)| *time);
                let plain = times.next().expect("the first kind is not hot");
                assert!(times.all(|time| time - plain < NANOSECONDS_MAX), "{measured:?}");
            }
        }
        let answered = lab.xdp.counters().unwrap().get(Counter::HotAnswered);
        assert!(answered >= 3 * (BLOCK * BLOCKS) as u64, "{answered} were answered");
        let redirected = lab.xdp.counters().unwrap().get(Counter::HotRedirected);
        assert!(redirected > 1_000, "{redirected} were redirected");
    });
}
