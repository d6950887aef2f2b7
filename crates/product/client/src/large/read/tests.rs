use super::*;
use crate::Outcome;
use nicekv_proto::{ClientId, Datagram, Form, KeyDigest, KeyspaceId, OpId};
use nicekv_transport::checksum;

const MS: u64 = 1_000_000;
const TIMEOUT_NS: u64 = 5 * MS;
const OP: OpId = OpId { client: ClientId(5), sequence: 7 };
const FOUND: Summary = Summary {
    outcome: Outcome::Done,
    version: OP,
    expiry_ms: 0,
    integer: 0,
    has_value: true,
    form: Form::Plain,
};

fn read(length: u32, checksum: u128) -> Read {
    let about = About { keyspace: KeyspaceId::DEFAULT, op: OP, digest: KeyDigest([3; 16]) };
    let name = OpId { sequence: 99, ..OP };
    Read::new(about, Reference { name, length, checksum }, ReadSource::Any(1), FOUND)
}

/// The requests that it sends now: first chunk, count, token.
fn asked(read: &mut Read, now_ns: u64) -> Vec<(u32, u16, u64)> {
    let (mut all, mut out) = (Vec::new(), Vec::new());
    while read.poll_transmit(now_ns, TIMEOUT_NS, &mut out) {
        let Ok((_, Datagram::ReadChunks(asks))) = Datagram::decode(&out) else { panic!("{out:?}") };
        all.push((asks.first, asks.count, asks.token));
    }
    assert!(read.next_deadline(TIMEOUT_NS) > now_ns, "nothing is due before chunks arrive");
    all
}

#[test]
fn timeout_follows_how_long_answers_take() {
    let timeout_ns_of = |read: &Read, timeout_ns| read.next_deadline(timeout_ns) - read.heard_ns;
    let mut read = read(1 << 20, 0);
    asked(&mut read, 0);
    assert_eq!(read.next_deadline(100 * MS), 100 * MS, "no answer was measured yet");
    read.on_chunk(MS, 0, &[0; CHUNK_BYTES]);
    assert_eq!(timeout_ns_of(&read, 100 * MS), 4 * MS);
    assert_eq!(timeout_ns_of(&read, 3 * MS), 3 * MS, "no longer than a get would wait");
    read.silences = 2;
    assert_eq!(timeout_ns_of(&read, 100 * MS), 16 * MS);
    read.on_chunk(20 * MS, 1, &[0; CHUNK_BYTES]);
    assert_eq!(timeout_ns_of(&read, 200 * MS), 80 * MS, "a queue has grown");
    read.answer_ns = 1;
    assert_eq!(timeout_ns_of(&read, 200 * MS), TIMEOUT_NS_MIN);
}

#[test]
fn length_takes_no_memory_until_chunks_come() {
    let mut read = read(512 << 20, 0);
    for turn in 0..50 {
        asked(&mut read, turn * 10 * MS);
    }
    assert_eq!(read.value.capacity(), 0);
    assert!(read.again.len() + read.batches.len() < 64, "the requests stay bounded");
    let last = read.reference.chunks() - 1;
    assert_eq!(read.on_chunk(0, last, &[0; CHUNK_BYTES]), ChunkOutcome::Stray, "the chunk was not requested");
    assert_eq!(read.on_chunk(0, 7, &[0; CHUNK_BYTES]), ChunkOutcome::Kept);
    assert!(read.value.capacity() <= 8 * CHUNK_BYTES);
}

#[test]
fn unrequested_chunks_are_ignored() {
    let mut read = read(10 * CHUNK_BYTES as u32 + 5, 0);
    assert_eq!(read.on_chunk(0, 0, &[0; CHUNK_BYTES]), ChunkOutcome::Stray, "nothing was requested yet");
    assert_eq!(asked(&mut read, 0), [(0, 11, 1)]);
    let lies: [(u32, usize); 5] = [(0, 5), (0, CHUNK_BYTES - 1), (10, CHUNK_BYTES), (11, 5), (u32::MAX, 5)];
    for (number, length) in lies {
        assert_eq!(read.on_chunk(0, number, &vec![0; length]), ChunkOutcome::Stray, "{number} {length}");
    }
    assert_eq!(read.on_chunk(0, 10, &[0; 5]), ChunkOutcome::Kept);
    assert_eq!(read.on_chunk(0, 10, &[0; 5]), ChunkOutcome::Stray, "the chunk had arrived");
}

#[test]
fn value_is_whole_if_its_checksum_is_right() {
    let value: Vec<u8> = (0..300_007_u32).map(|at| (at * 7 % 251) as u8).collect();
    for (named, is_right) in [(checksum(&value), true), (1, false)] {
        let mut read = read(value.len() as u32, named);
        let mut taken = Vec::new();
        while read.chunks.prefix() < read.reference.chunks() {
            let mut came: Vec<u32> = asked(&mut read, 0)
                .iter()
                .flat_map(|(first, count, _)| *first..first + u32::from(*count))
                .collect();
            came.reverse();
            for number in came {
                let bytes = value.chunks(CHUNK_BYTES).nth(number as usize).unwrap();
                taken.push(read.on_chunk(0, number, bytes));
            }
        }
        let last = if is_right { ChunkOutcome::Whole(FOUND) } else { ChunkOutcome::Wrong };
        assert_eq!(taken.pop(), Some(last));
        assert!(taken.iter().all(|taken| *taken == ChunkOutcome::Kept));
        assert_eq!(read.value.capacity(), value.len(), "the buffer is exactly as long as the value");
        assert_eq!(read.into_whole(), Some(value.clone()));
    }
}

#[test]
fn window_grows_with_answers_and_is_halved_once_per_loss() {
    let mut read = read(64 << 20, 0);
    let mut waiting: VecDeque<u32> = VecDeque::new();
    for turn in 0..40 {
        for (first, count, _) in asked(&mut read, turn) {
            waiting.extend(first..first + u32::from(count));
        }
        assert!(waiting.len() as u32 <= read.window && read.window <= WINDOW_MAX);
        waiting.drain(..).for_each(|number| {
            read.on_chunk(turn, number, &[0; CHUNK_BYTES]);
        });
    }
    assert_eq!(read.window, WINDOW_MAX);
    let lost = asked(&mut read, MS);
    assert_eq!(lost.len(), 16);
    assert_eq!(read.next_deadline(TIMEOUT_NS), MS + TIMEOUT_NS);
    let again = asked(&mut read, MS + TIMEOUT_NS);
    assert_eq!((read.window, read.silences), (WINDOW_MAX / 2, 1));
    assert_eq!(again, lost[..8]);
    (0..20).for_each(|turn| drop(asked(&mut read, (7 + 5 * turn) * MS)));
    assert_eq!(read.window, WINDOW_MIN);
}

#[test]
fn overtaken_chunks_are_requested_again() {
    let mut read = Read { window: 64, ..read(1 << 20, 0) };
    assert_eq!(asked(&mut read, 0), [(0, 16, 1), (16, 16, 1), (32, 16, 1), (48, 16, 1)]);
    [0, 1, 2, 4, 5, 7, 16].iter().for_each(|number| {
        read.on_chunk(MS, *number, &[0; CHUNK_BYTES]);
    });
    assert_eq!(read.next_deadline(TIMEOUT_NS), 2 * MS);
    assert_eq!(asked(&mut read, 2 * MS), [], "the smaller window is full");
    assert_eq!(read.window, 32);
    for number in 17..48 {
        read.on_chunk(2 * MS, number, &[0; CHUNK_BYTES]);
    }
    assert_eq!(asked(&mut read, 2 * MS)[..2], [(3, 1, 1), (6, 1, 1)]);
    assert_eq!((read.window, read.silences), (32 + 4, 0), "two requests were answered completely");
}

#[test]
fn slow_transfer_is_not_given_up_while_chunks_come() {
    let mut read = read(1 << 20, 0);
    let asks = asked(&mut read, 0).len();
    for number in 0..32 {
        let now_ns = u64::from(number + 1) * (TIMEOUT_NS - 1);
        read.give_up(now_ns, TIMEOUT_NS);
        assert_eq!(read.on_chunk(now_ns, number, &[0; CHUNK_BYTES]), ChunkOutcome::Kept);
    }
    assert_eq!((asks, read.has_lost, read.again.len()), (4, false, 0));
}

#[test]
fn new_token_is_tried_once_until_a_chunk_comes() {
    let mut read = Read { window: 32, ..read(1 << 20, 0) };
    let first = asked(&mut read, 0);
    read.take_token(1);
    assert_eq!(asked(&mut read, 0), [], "this token was already tried");
    read.take_token(2);
    let again: Vec<_> = first.iter().map(|(first, count, _)| (*first, *count, 2)).collect();
    assert_eq!(asked(&mut read, 0), again);
    read.take_token(3);
    assert_eq!(asked(&mut read, 0), []);
    read.on_chunk(0, 0, &[0; CHUNK_BYTES]);
    read.take_token(4);
    assert_eq!(asked(&mut read, 0)[0], (1, 7, 4));
}
