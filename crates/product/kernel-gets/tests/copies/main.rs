//! Entries of copies: what the table stores, and what lookups find.

mod interleaved;
mod told;

use nicekv_kernel_gets::{ENTRY_WORDS, GATE_WORDS, GetRequest, Memory, Size, Word};
use nicekv_proto::hot::Stamp;
use nicekv_proto::recovery::Entry;
use nicekv_proto::route::{leave_room_for_stamp, room_for_stamp};
use nicekv_proto::{ClientId, Form, Get, KeyDigest, KeyspaceId, OpId, PartitionId, lengthen};
use nicekv_replica::CopyOf;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Small enough that keys evict each other and some lessors get no gate.
const SIZE: Size = Size { entries: 8, gates: 1, lessors: 4 };
const PARTITION: PartitionId = PartitionId(5);

struct Words {
    gates: Vec<u64>,
    entries: Vec<u64>,
}

impl Words {
    fn new() -> Self {
        Self {
            gates: vec![0; SIZE.gate_count() as usize * GATE_WORDS],
            entries: vec![0; SIZE.entries as usize * ENTRY_WORDS],
        }
    }

    fn place(&self, at: Word) -> (bool, usize) {
        match at {
            Word::Gate(gate, word) => (true, gate as usize * GATE_WORDS + word),
            Word::Entry(entry, word) => (false, entry as usize * ENTRY_WORDS + word),
        }
    }
}

impl Memory for Words {
    fn load(&self, at: Word) -> u64 {
        match self.place(at) {
            (true, at) => self.gates[at],
            (false, at) => self.entries[at],
        }
    }

    fn store(&mut self, at: Word, word: u64) {
        match self.place(at) {
            (true, at) => self.gates[at] = word,
            (false, at) => self.entries[at] = word,
        }
    }
}

/// The name and key of a copy. Keys 2n and 2n + 1 have the same digest.
fn of(key: u64) -> CopyOf {
    let name = (KeyspaceId(1), KeyDigest([(key / 2) as u8; 16]));
    let key = vec![key as u8; 1 + key as usize / 2 * 9];
    CopyOf { name, key: key.into() }
}

fn owner(number: u64) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, number as u8), 7400)
}

fn entry(value: &[u8], expiry_ms: u64) -> Vec<u8> {
    let version = OpId { client: ClientId(1), sequence: 1 };
    let mut bytes = Vec::new();
    Entry { form: Form::Plain, index: 1, version, expiry_ms, value: Some(value) }.append(&mut bytes);
    bytes
}

fn get(key: u64, stamp: Stamp) -> GetRequest {
    let CopyOf { name: (keyspace, digest), key } = of(key);
    let op = OpId { client: ClientId(7), sequence: 2 };
    let mut bytes = Vec::new();
    Get { keyspace, op, digest, reply_to: None, forwarded: None, key: &key, padding: 0 }.encode(&mut bytes);
    leave_room_for_stamp(&mut bytes);
    *room_for_stamp(&mut bytes).unwrap() = stamp.to_bytes();
    lengthen(&mut bytes, 200);
    GetRequest::parse(&bytes).expect("a get that the program answers")
}
