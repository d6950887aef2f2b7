//! The program that answers gets at a node, run by `BPF_PROG_TEST_RUN` and compared with the
//! reference implementation on the same memory.

use std::mem::offset_of;
use std::net::{Ipv4Addr, SocketAddrV4};

use aya::programs::{SchedClassifier, TestRun as _, TestRunOptions};
use nicekv_kernel_gets::{GetRequest, Grant, Lookup, Miss, OUTCOMES, Outcome, Size, Table};
use nicekv_proto::hot::Stamp;
use nicekv_proto::limits::DATAGRAM_BYTES_MAX;
use nicekv_proto::recovery::Entry;
use nicekv_proto::route::{ChainHeader, ROOM_AT, leave_room, leave_room_for_stamp, room_for_stamp, room_of};
use nicekv_proto::{
    ClientId, Epoch, Form, Get, Header, HeaderLayout, KeyDigest, KeyspaceId, OpId, PartitionId,
};
use nicekv_replica::{CopyOf, CopyShift, Lessor, Shift, ShiftKind};
use nicekv_testkit::Random;

use super::TC_REDIRECT;
use super::namespaces::as_root;
use crate::gets::{KernelGets, SharedWords};

const NODE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 7400);
const CLIENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 1, 9), 40_001);
const SIZE: Size = Size { entries: 32, gates: 3, lessors: 3 };
/// More keys than there are entries and gates for.
const KEYS: u64 = 40;
const PARTITIONS: u64 = 4;
const ROUNDS: u64 = 30_000;
const UP: u32 = u32::MAX;
/// The index in [`OUTCOMES`] of a get that is answered from a copy.
const COPY: usize = 8;
const UDP_AT: usize = 34;
const PAYLOAD_AT: usize = 42;

/// The one's complement sum of `bytes` and `more`: 0xffff if the bytes include their correct
/// checksum.
fn sum(bytes: &[u8], more: u32) -> u16 {
    let word = |pair: &[u8]| u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    let mut sum = bytes.chunks(2).map(word).sum::<u32>() + more;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The sum over the frame's UDP datagram and its pseudo-header.
fn udp_sum(frame: &[u8]) -> u16 {
    let length = frame.len() - UDP_AT;
    sum(&frame[26..], 17 + length as u32)
}

fn frame_of(payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u16;
    let mut frame = vec![0; PAYLOAD_AT];
    frame[6] = 2;
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&(length + 28).to_be_bytes());
    frame[20..24].copy_from_slice(&[0x40, 0, 63, 17]);
    frame[26..30].copy_from_slice(&CLIENT.ip().octets());
    frame[30..34].copy_from_slice(&NODE.ip().octets());
    frame[34..36].copy_from_slice(&CLIENT.port().to_be_bytes());
    frame[36..38].copy_from_slice(&NODE.port().to_be_bytes());
    frame[38..40].copy_from_slice(&(length + 8).to_be_bytes());
    frame.extend_from_slice(payload);
    complete(&mut frame);
    frame
}

/// Writes the IPv4 and UDP checksums.
fn complete(frame: &mut [u8]) {
    frame[24..26].fill(0);
    let check = !sum(&frame[14..34], 0);
    frame[24..26].copy_from_slice(&check.to_be_bytes());
    frame[40..42].fill(0);
    let check = !udp_sum(frame);
    frame[40..42].copy_from_slice(&(if check == 0 { 0xffff } else { check }).to_be_bytes());
}

/// A key with its keyspace, digest and partition. Some keys share a digest, and some are too long
/// for the kernel.
fn key(number: u64) -> (Vec<u8>, KeyspaceId, KeyDigest, PartitionId) {
    let length = match number % 20 {
        13 => 257,
        17 => 1_024,
        number => [1, 7, 8, 9, 40, 63, 100, 200, 255, 256][number as usize % 10],
    };
    let mut key = vec![b'k'; length];
    key[length - 1] = number as u8;
    let digest = (number / 2).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let digest = u128::from(digest) << 64 | u128::from(digest ^ 0x5555);
    (
        key,
        KeyspaceId((number % 2) as u16),
        KeyDigest(digest.to_be_bytes()),
        PartitionId((number % PARTITIONS) as u32),
    )
}

fn chain(partition: PartitionId) -> ChainHeader {
    ChainHeader::new(partition, Epoch(3), [*NODE.ip()])
}

fn payload(number: u64, random: &mut Random) -> Vec<u8> {
    let (key, keyspace, digest, partition) = key(number);
    let op = OpId { client: ClientId(77), sequence: 1 + random.below(1 << 40) };
    let mut payload = Vec::new();
    let room = DATAGRAM_BYTES_MAX - Get::FIXED_BYTES - key.len() - ChainHeader::BYTES;
    let padding = if random.below(4) == 0 { 0 } else { random.below(1_100) as usize }.min(room);
    Get { keyspace, op, digest, reply_to: None, forwarded: None, key: &key, padding }.encode(&mut payload);
    match random.below(8) {
        0 | 1 => {}
        2..5 => {
            leave_room_for_stamp(&mut payload);
            *room_for_stamp(&mut payload).unwrap() = stamp(random).to_bytes();
        }
        _ => {
            leave_room(&mut payload);
            let other = PartitionId(9);
            let told = chain(if random.below(3) == 0 { other } else { partition });
            *room_of(&mut payload).unwrap() = told.to_bytes();
        }
    }
    payload
}

/// A random stamp: often none or one that a copy may have; otherwise any instance and number, some
/// of which no switch writes.
fn stamp(random: &mut Random) -> Stamp {
    let number = |random: &mut Random| 1 << random.below(64);
    match random.below(16) {
        0 => Stamp { instance: number(random), seen: 0 },
        1 => Stamp { instance: number(random), seen: number(random) },
        2 => Stamp { instance: 0, seen: number(random) },
        3..10 => stamp_of_copy(random),
        _ => Stamp::NONE,
    }
}

/// A stamp from few values that differ in the upper and the lower half.
fn stamp_of_copy(random: &mut Random) -> Stamp {
    let number = |random: &mut Random| [1, 1 << 40][random.below(2) as usize];
    Stamp { instance: number(random), seen: number(random) }
}

/// Makes the payload inconsistent: a wrong room field or body length. Or truncates it, with a
/// matching body length.
fn lie(payload: &mut Vec<u8>, random: &mut Random) {
    let stated_at = offset_of!(HeaderLayout, body_length);
    match random.below(3) {
        0 => payload[ROOM_AT] = random.below(4) as u8,
        1 => {
            let off_by = 1 << random.below(7);
            let stated = u16::from_be_bytes([payload[stated_at], payload[stated_at + 1]]);
            let stated = if random.below(2) == 0 { stated + off_by } else { stated.wrapping_sub(off_by) };
            payload[stated_at..][..2].copy_from_slice(&stated.to_be_bytes());
        }
        _ => {
            let body_bytes = random.below((payload.len() - Header::BYTES) as u64) as usize;
            payload.truncate(Header::BYTES + body_bytes);
            payload[stated_at..][..2].copy_from_slice(&(body_bytes as u16).to_be_bytes());
        }
    }
}

struct Run {
    program: KernelGets,
    memory: SharedWords,
    table: Table,
    random: Random,
}

impl Run {
    fn new() -> Self {
        let (program, memory) = KernelGets::load(NODE, SIZE).unwrap();
        Self { program, memory, table: Table::new(SIZE), random: Random::new(0x6765_7473) }
    }

    fn take(&mut self, number: u64, kind: ShiftKind) {
        let (_, keyspace, digest, partition) = key(number);
        self.table.apply(&mut self.memory, Shift { partition, kind }, |_, _| Some((keyspace, digest)));
    }

    /// Notifies the table of a random change to copies.
    fn change_copies(&mut self) {
        let number = self.random.below(KEYS);
        let (key, keyspace, digest, _) = key(number);
        let of = CopyOf { name: (keyspace, digest), key: key.into() };
        let serial = self.random.below(2);
        let lessor = Lessor { owner: [CLIENT, NODE][self.random.below(2) as usize], serial };
        let shift = match self.random.below(8) {
            0 => CopyShift::Dropped(of),
            1 => {
                let until_ns = if self.random.below(4) == 0 { 0 } else { 1 << 62 };
                CopyShift::Leased { lessor, until_ns }
            }
            _ => {
                let (stamp, entry) = (stamp_of_copy(&mut self.random), self.entry().into());
                CopyShift::Kept { of, stamp, lessor, entry }
            }
        };
        self.table.apply_copy(&mut self.memory, shift);
    }

    fn entry(&mut self) -> Vec<u8> {
        let length_max = if self.random.below(4) == 0 { 1_025 } else { 90 };
        let value = vec![self.random.below(256) as u8; self.random.below(length_max) as usize];
        let version = OpId { client: ClientId(1), sequence: 1 + self.random.below(1000) };
        let value = (self.random.below(5) > 0).then_some(&value[..]);
        let mut bytes = Vec::new();
        Entry { form: Form::Plain, index: 1, version, expiry_ms: 0, value }.append(&mut bytes);
        bytes
    }

    /// Notifies the table of a random change to copies, locks, leases or members' entries.
    fn change(&mut self) {
        if self.random.below(2) == 0 {
            return self.change_copies();
        }
        let number = self.random.below(KEYS);
        let name: Box<[u8]> = key(number).0.into();
        match self.random.below(8) {
            0 => self.take(number, ShiftKind::Locked(name)),
            1 => self.take(number, ShiftKind::Unlocked(name)),
            2 if self.random.below(8) == 0 => self.take(number, ShiftKind::Unknown),
            2 | 3 => {
                let grants: Vec<_> = (0..PARTITIONS as u32)
                    .map(|id| Grant {
                        partition: PartitionId(id),
                        until_ns: if self.random.below(6) == 0 { 0 } else { 1 << 62 },
                        chain: chain(PartitionId(id)),
                    })
                    .collect();
                self.table.grant(&mut self.memory, &grants);
            }
            _ => {
                let bytes = self.entry();
                match self.random.below(3) {
                    0 => self.take(number, ShiftKind::Changed(name, Some(bytes))),
                    _ => self.take(number, ShiftKind::Read(name, bytes)),
                }
            }
        }
    }

    fn test_run(&self, frame: &[u8]) -> (u32, Vec<u8>) {
        let mut out = vec![0; frame.len() + 64];
        let options =
            TestRunOptions { data_in: Some(frame), data_out: Some(&mut out), ..TestRunOptions::new() };
        let program = <&SchedClassifier>::try_from(self.program.programs.program("nicekv_gets").unwrap());
        let result = program.unwrap().test_run(options).unwrap();
        out.truncate(result.data_size_out as usize);
        (result.return_value, out)
    }

    /// The outcome of the reference implementation, as an index in [`OUTCOMES`], and its reply.
    /// `None`: the get is not parsed.
    fn expected(&mut self, payload: &[u8]) -> Option<(usize, Vec<u8>)> {
        let mut lookup = Lookup::new(GetRequest::parse(payload)?, SIZE.entries, 1);
        let outcome = loop {
            if let Some(outcome) = lookup.step(&mut self.memory) {
                break outcome;
            }
        };
        Some(match outcome {
            Outcome::Answer(body) => {
                let reply = lookup.get().reply(&body);
                assert!(reply.len() <= payload.len(), "the reply is at most as long as the get (G8)");
                (if lookup.get().stamp.is_some() { COPY } else { 0 }, reply)
            }
            Outcome::Pass(Miss::Absent) => (1, Vec::new()),
            Outcome::Pass(Miss::Closed) => (2, Vec::new()),
            Outcome::Pass(Miss::Lease) => (3, Vec::new()),
            Outcome::Pass(Miss::Chain) => (4, Vec::new()),
            Outcome::Pass(Miss::Room) => (6, Vec::new()),
            Outcome::Pass(Miss::Stamp) => (7, Vec::new()),
            Outcome::Pass(Miss::Changed) => unreachable!("the memory does not change during the lookup"),
        })
    }

    /// Checks that the program and the reference have the same outcome, which is returned.
    #[track_caller]
    fn compare(&mut self, round: u64, frame: &[u8]) -> Option<usize> {
        let mut counted = self.program.outcomes().unwrap();
        let (verdict, out) = self.test_run(frame);
        let expected = self.expected(&frame[PAYLOAD_AT..]);
        if let Some((outcome, _)) = &expected {
            counted[*outcome] += 1;
        }
        assert_eq!(self.program.outcomes().unwrap(), counted, "round {round}: {OUTCOMES:?}, {expected:?}");
        let Some((end @ (0 | COPY), reply)) = &expected else {
            assert_eq!((verdict, &out[..]), (UP, frame), "round {round}: {expected:?}");
            return expected.map(|(outcome, _)| outcome);
        };
        assert_eq!((verdict, &out[PAYLOAD_AT..]), (TC_REDIRECT, &reply[..]), "round {round}");
        assert_eq!(sum(&out[14..34], 0), 0xffff, "round {round}: the IP header's checksum");
        assert_eq!(usize::from(u16::from_be_bytes([out[16], out[17]])), out.len() - 14);
        assert_eq!(usize::from(u16::from_be_bytes([out[38], out[39]])), out.len() - UDP_AT);
        assert_eq!(
            &out[26..38],
            &[&frame[30..34], &frame[26..30], &frame[36..38], &frame[34..36]].concat()[..]
        );
        match [frame[40], frame[41]] {
            [0, 0] => assert_eq!(
                out[40..42],
                [0, 0],
                "round {round}: a get without a checksum gets a reply without one"
            ),
            _ => assert_eq!(
                udp_sum(&out),
                udp_sum(frame),
                "round {round}: the checksum is as correct as the get's"
            ),
        }
        Some(*end)
    }
}

#[test]
fn gets_program_agrees_with_the_reference() {
    as_root("gets_program_agrees_with_the_reference", || {
        let mut run = Run::new();
        let (mut ends, mut damaged, mut hits_by_room) = ([0; OUTCOMES.len()], 0, [0; 3]);
        let (mut from_copies, mut told_of_copies) = (0, 0);
        for round in 0..ROUNDS {
            run.change();
            let number = run.random.below(KEYS);
            let mut payload = payload(number, &mut run.random);
            let is_damaged = run.random.below(4) == 0;
            if is_damaged {
                let at = run.random.below(payload.len() as u64) as usize;
                payload[at] ^= 1 << run.random.below(8);
                damaged += 1;
            }
            if run.random.below(8) == 0 {
                lie(&mut payload, &mut run.random);
            }
            if run.random.below(16) == 0 {
                payload.truncate(run.random.below(payload.len() as u64) as usize);
            }
            let mut frame = frame_of(&payload);
            match run.random.below(8) {
                0 => frame[40..42].fill(0),
                1 => frame[41] ^= 0x10,
                _ => {}
            }
            if let Some(end) = run.compare(round, &frame) {
                ends[end] += 1;
                hits_by_room[usize::from(payload[ROOM_AT])] += usize::from(end == 0);
                from_copies += u64::from(end == COPY);
                told_of_copies += run.table.hits_of_copies(&run.memory);
            }
        }
        let counted = run.memory.take_sources();
        let from_client = counted
            .iter()
            .all(|(gate, source, gets)| *gate < SIZE.gates && source == CLIENT.ip() && *gets > 0);
        let sum: u64 = counted.iter().map(|(_, _, gets)| gets).sum();
        assert!(from_client && sum == ends[0] as u64 && counted.len() > 1, "{counted:?} {ends:?}");
        assert_eq!(run.memory.take_sources(), [], "each count is reported once");
        // The reference increments the same hit counters as the program.
        assert_eq!(told_of_copies, 2 * from_copies, "hits on copies are in the gates of their lessors");
        println!(
            "{ROUNDS} gets, {damaged} of them damaged: {OUTCOMES:?} {ends:?}, hits by room {hits_by_room:?}"
        );
        assert!(hits_by_room.iter().all(|count| *count > 100), "{hits_by_room:?}");
        assert!(ends.iter().enumerate().all(|(at, count)| at == 5 || *count > 100), "{ends:?}");
    });
}

#[test]
fn frames_other_than_plain_datagrams_are_passed() {
    as_root("frames_other_than_plain_datagrams_are_passed", || {
        let mut run = Run::new();
        (0..2_000).for_each(|_| run.change());
        let frame = loop {
            let number = run.random.below(KEYS);
            let frame = frame_of(&payload(number, &mut run.random));
            if run.compare(0, &frame) == Some(0) {
                break frame;
            }
        };
        let up = |name: &str, change: &dyn Fn(&mut Vec<u8>)| {
            let mut changed = frame.clone();
            change(&mut changed);
            let (verdict, out) = run.test_run(&changed);
            assert_eq!((verdict, out), (UP, changed), "{name}");
        };
        let complete_with = |at: usize, byte: u8| {
            move |frame: &mut Vec<u8>| {
                frame[at] = byte;
                complete(frame);
            }
        };
        up("another MAC address", &|frame| frame[0] = 2);
        up("not IPv4", &|frame| frame[13] = 6);
        up("options", &complete_with(14, 0x46));
        up("more fragments", &complete_with(20, 0x20));
        up("a later fragment", &complete_with(21, 1));
        up("not UDP", &complete_with(23, 6));
        up("another address", &complete_with(33, 3));
        up("another port", &complete_with(37, 1));
        up("a longer packet than the frame", &complete_with(17, frame[17] + 1));
        up("a longer datagram than the packet", &complete_with(39, frame[39] + 1));
        up("from itself", &|frame| {
            frame.copy_within(30..34, 26);
            complete(frame);
        });
        up("from no port", &|frame| {
            frame[34..36].fill(0);
            complete(frame);
        });
        up("a damaged IP header", &|frame| frame[22] ^= 1);
        up("bytes behind the packet", &|frame| frame.push(0));
        for cut in PAYLOAD_AT..frame.len() {
            up("cut short", &|frame| frame.truncate(cut));
        }
    });
}
