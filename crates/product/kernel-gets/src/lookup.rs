//! What the program does for one get that it may answer: the reference for the program in C,
//! `gets.bpf.c`.

use crate::layout::{
    BODY, CHAIN, DIGEST, ENTRY_WORDS, GATE, HITS, INSTANCE, KEY, LEASE, Memory, SEEN, SHAPE, USED, VERSION,
    WAYS, Word, body_length, digest_words, first_way, is_shown, shape, words,
};
use alloc::vec::Vec;
use nicekv_proto::hot::Stamp;
use nicekv_proto::limits::KERNEL_KEY_BYTES_MAX;
use nicekv_proto::route::{ChainHeader, Room, take_room};
use nicekv_proto::{Datagram, Get, Header, KeyspaceId, OpId, Opcode, Reply};

/// A get that the program may answer if it finds the key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GetRequest {
    /// Identifies the request.
    pub op: OpId,
    keyspace: u16,
    digest: [u8; 16],
    key: Vec<u8>,
    chain: Option<[u8; ChainHeader::BYTES]>,
    /// The stamp that the switch wrote when it sent the get to a copy (H2); [`Stamp::NONE`] for
    /// other gets.
    pub stamp: Stamp,
    /// Length of the whole datagram in bytes.
    length: usize,
}

impl GetRequest {
    /// Parses the payload of a datagram. Returns `None` if the program leaves the datagram to the
    /// process: bundles, long keys, and gets with a reply address. Only the fields that a lookup
    /// needs are checked; other malformed fields do not prevent an answer.
    pub fn parse(datagram: &[u8]) -> Option<Self> {
        let mut plain = Vec::new();
        let room = take_room(datagram, &mut plain).transpose().ok()?;
        let (chain, stamp) = match room {
            Some(Room::Chain(chain)) => (Some(chain.to_bytes()), Stamp::NONE),
            // A get with an empty stamp came by its default route, so it is treated as one without
            // room (H2).
            Some(Room::Stamp(stamp)) => (None, stamp),
            None => {
                plain.extend_from_slice(datagram);
                (None, Stamp::NONE)
            }
        };
        let Ok((header, Datagram::Get(get))) = Datagram::decode(&plain) else { return None };
        let Get { keyspace, op, digest, reply_to: None, forwarded: None, key, .. } = get else { return None };
        let is_for_owner = matches!(room, Some(Room::Stamp(_))) && !stamp.is_some() && is_shown(op);
        let is_short = (1..=KERNEL_KEY_BYTES_MAX).contains(&key.len());
        let may = header.opcode == Opcode::Get && is_short && !is_for_owner;
        may.then(|| Self {
            op,
            keyspace: keyspace.0,
            digest: digest.0,
            key: key.to_vec(),
            chain,
            stamp,
            length: datagram.len(),
        })
    }

    /// The reply datagram with this body.
    pub fn reply(&self, body: &[u8]) -> Vec<u8> {
        let mut datagram = Vec::new();
        Header { op: self.op, ..Header::internal(Opcode::Reply) }.with_body(body, &mut datagram);
        datagram
    }
}

/// Why a get is passed to the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Miss {
    /// No entry has the key.
    Absent,
    /// An op locks the key, or its entry is being written.
    Closed,
    /// The lease has ended, or the node does not answer for the partition.
    Lease,
    /// The chain header of the get differs from the one at the gate.
    Chain,
    /// The entry changed during the lookup.
    Changed,
    /// The reply is longer than the get (G8).
    Room,
    /// The copy is older than the stamp of the get demands (H6).
    Stamp,
}

/// The result of a lookup.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The program answers with this reply; its header is left out.
    Answer(Vec<u8>),
    /// The get is passed to the process.
    Pass(Miss),
}

/// The word to load next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Next {
    Version,
    /// A word of the entry's identity, which ends with the last word of the key.
    Identity(usize),
    Instance,
    Seen,
    Gate,
    Lease,
    Chain(usize),
    Body(usize),
    VersionAgain,
}

/// A lookup in progress. Each step loads one word.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lookup {
    get: GetRequest,
    now_ns: u64,
    /// The entry that is looked at, and the end of the range of entries where the key may be.
    entry: u32,
    end: u32,
    next: Next,
    version: u64,
    gate: u32,
    body_length: usize,
    body: Vec<u64>,
    /// Whether the lookup has passed a closed entry, which may be the key's.
    met_closed: bool,
}

impl Lookup {
    /// A lookup in a table of `entries` entries. `now_ns`: the boot-time clock, read after the get
    /// arrived.
    pub fn new(get: GetRequest, entries: u32, now_ns: u64) -> Self {
        let entry = first_way(KeyspaceId(get.keyspace), &nicekv_proto::KeyDigest(get.digest), entries);
        let (end, next) = (entry + WAYS, Next::Version);
        let (version, gate, body_length, body) = (0, 0, 0, Vec::new());
        Self { get, now_ns, entry, end, next, version, gate, body_length, body, met_closed: false }
    }

    pub fn get(&self) -> &GetRequest {
        &self.get
    }

    /// Loads a word. Returns the outcome when the lookup ends.
    pub fn step(&mut self, memory: &mut impl Memory) -> Option<Outcome> {
        let entry = |at| Word::Entry(self.entry, at);
        match self.next {
            Next::Version => {
                self.version = memory.load(entry(VERSION));
                self.next = Next::Identity(SHAPE);
                if self.version & 1 == 0 {
                    self.met_closed |= self.version > 0;
                    return self.next_way();
                }
            }
            Next::Identity(at) => {
                let word = memory.load(entry(at));
                if !self.is_of_key(at, word) {
                    return self.next_way();
                }
                self.identified(at, word);
            }
            Next::Instance => {
                let is_same_instance = memory.load(entry(INSTANCE)) == self.get.stamp.instance;
                if !is_same_instance {
                    return self.next_way();
                }
                self.next = Next::Seen;
            }
            Next::Seen => {
                let is_new_enough = memory.load(entry(SEEN)) >= self.get.stamp.seen;
                if !is_new_enough {
                    return Some(Outcome::Pass(Miss::Stamp));
                }
                self.next = Next::Gate;
            }
            Next::Gate => {
                self.gate = memory.load(entry(GATE)) as u32;
                self.next = Next::Lease;
            }
            Next::Lease => {
                let until_ns = memory.load(Word::Gate(self.gate, LEASE));
                if until_ns <= self.now_ns {
                    return Some(Outcome::Pass(Miss::Lease));
                }
                self.next = Next::Chain(CHAIN);
                if self.get.chain.is_none() {
                    return self.admitted();
                }
            }
            Next::Chain(at) => return self.compare_chain(memory, at),
            Next::Body(at) => {
                self.body.push(memory.load(entry(at)));
                let is_more = 8 * self.body.len() < self.body_length;
                self.next = if is_more { Next::Body(at + 1) } else { Next::VersionAgain };
            }
            Next::VersionAgain => return Some(self.copied(memory)),
        }
        None
    }

    /// Compares one word of the get's chain header with the gate's.
    fn compare_chain(&mut self, memory: &impl Memory, at: usize) -> Option<Outcome> {
        let word = memory.load(Word::Gate(self.gate, at));
        let chain = self.get.chain.as_ref().expect("the get has a chain header");
        if words(chain).nth(at - CHAIN) != Some(word) {
            return Some(Outcome::Pass(Miss::Chain));
        }
        self.next = Next::Chain(at + 1);
        if at + 1 == HITS { self.admitted() } else { None }
    }

    /// The reply has been copied. It is valid if the version has not changed meanwhile.
    fn copied(&self, memory: &mut impl Memory) -> Outcome {
        let is_same = memory.load(Word::Entry(self.entry, VERSION)) == self.version;
        if !is_same {
            return Outcome::Pass(Miss::Changed);
        }
        memory.store(Word::Entry(self.entry, USED), self.now_ns);
        memory.count(Word::Gate(self.gate, HITS));
        let bytes = self.body.iter().flat_map(|word| word.to_le_bytes());
        Outcome::Answer(bytes.take(self.body_length).collect())
    }

    /// The gate admits the get. Goes on to copy the reply, if the get is long enough for it (G8).
    fn admitted(&mut self) -> Option<Outcome> {
        self.next = Next::Body(BODY);
        let has_room = Header::BYTES + self.body_length <= self.get.length;
        (!has_room).then_some(Outcome::Pass(Miss::Room))
    }

    /// Whether this word of the entry's identity matches the key.
    fn is_of_key(&self, at: usize, word: u64) -> bool {
        let GetRequest { keyspace, digest, key, .. } = &self.get;
        match at {
            SHAPE => word & !0xffff == shape(KeyspaceId(*keyspace), key.len(), 0),
            DIGEST..KEY => digest_words(&nicekv_proto::KeyDigest(*digest))[at - DIGEST] == word,
            _ => words(key).nth(at - KEY) == Some(word),
        }
    }

    /// Chooses the next step after this word of the entry's identity has matched.
    fn identified(&mut self, at: usize, word: u64) {
        if at == SHAPE {
            self.body_length = body_length(word).min(8 * (ENTRY_WORDS - BODY));
        }
        let last = KEY + self.get.key.len().div_ceil(8) - 1;
        self.next = match at {
            SHAPE => Next::Identity(DIGEST),
            at if at < last => Next::Identity(at + 1),
            _ => Next::Instance,
        };
    }

    fn next_way(&mut self) -> Option<Outcome> {
        (self.entry, self.next) = (self.entry + 1, Next::Version);
        let miss = if self.met_closed { Miss::Closed } else { Miss::Absent };
        (self.entry == self.end).then_some(Outcome::Pass(miss))
    }
}

const _: () = assert!(BODY + Reply::FIXED_BYTES / 8 < ENTRY_WORDS);

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_proto::limits::KEY_BYTES_MAX;
    use nicekv_proto::route::{ROOM_AT, leave_room, leave_room_for_stamp, room_for_stamp, room_of};
    use nicekv_proto::{
        ClientId, Epoch, HeaderLayout, KeyDigest, PartitionId, ROOM_CHAIN, ROOM_STAMP, lengthen,
    };

    const BODY_LENGTH_AT: usize = core::mem::offset_of!(HeaderLayout, body_length);
    const OP: OpId = OpId { client: ClientId(7), sequence: 9 };

    fn get() -> Vec<u8> {
        get_of(OP)
    }

    fn get_of(op: OpId) -> Vec<u8> {
        get_of_key(op, b"key")
    }

    fn get_of_key(op: OpId, key: &[u8]) -> Vec<u8> {
        let (keyspace, digest) = (KeyspaceId(3), KeyDigest([5; 16]));
        let mut bytes = Vec::new();
        let get = Get { keyspace, op, digest, reply_to: None, forwarded: None, key, padding: 0 };
        get.encode(&mut bytes);
        bytes
    }

    #[test]
    fn get_of_a_long_or_empty_key_is_passed() {
        let longest = KERNEL_KEY_BYTES_MAX;
        for (bytes, is_parsed) in [(0, false), (1, true), (longest, true), (longest + 1, false)] {
            let get = GetRequest::parse(&get_of_key(OP, &vec![b'k'; bytes]));
            assert_eq!(get.is_some(), is_parsed, "{bytes}");
        }
        assert_eq!(GetRequest::parse(&get_of_key(OP, &[b'k'; KEY_BYTES_MAX])), None);
    }

    fn with_stamp(stamp: [u8; Stamp::BYTES]) -> Vec<u8> {
        let mut bytes = get();
        leave_room_for_stamp(&mut bytes);
        *room_for_stamp(&mut bytes).unwrap() = stamp;
        bytes
    }

    #[test]
    fn get_without_a_stamp_equals_one_without_room() {
        let (plain, roomy) = (get(), with_stamp([0; 16]));
        let parsed = GetRequest::parse(&plain).expect("a plain get");
        let expected = GetRequest { length: plain.len() + Stamp::BYTES, ..parsed };
        assert_eq!(GetRequest::parse(&roomy), Some(expected), "the room counts as length (G8)");
        let mut longer = roomy.clone();
        lengthen(&mut longer, 300);
        assert_eq!(GetRequest::parse(&longer).map(|get| (get.op, get.length)), Some((OP, 300)));
    }

    #[test]
    fn get_with_a_stamp_looks_for_a_copy_and_a_malformed_one_is_passed() {
        for (instance, seen) in [(1, 0), (1, 1), (u64::MAX, u64::MAX), (1 << 63, 9)] {
            let stamp = Stamp { instance, seen };
            assert_eq!(GetRequest::parse(&with_stamp(stamp.to_bytes())).map(|get| get.stamp), Some(stamp));
        }
        for at in 0..Stamp::BYTES {
            let mut stamp = [0; Stamp::BYTES];
            stamp[at] = 1;
            let is_of_instance = at < 8;
            assert_eq!(GetRequest::parse(&with_stamp(stamp)).is_some(), is_of_instance, "{stamp:?}");
        }
    }

    #[test]
    fn process_sees_a_sample_of_gets_with_room_for_a_stamp() {
        for client in [0, 1, 7, 0x1a31_85c5_0000_0001, u64::MAX] {
            // The client's other ops, in between, may be puts or gets of other keys.
            for every in 1..=64 {
                let is_answered = |leave: fn(&mut Vec<u8>), at: u64| {
                    let op = OpId { client: ClientId(client), sequence: 1 + every * at };
                    let mut bytes = get_of(op);
                    leave(&mut bytes);
                    GetRequest::parse(&bytes).is_some()
                };
                let stamped = |bytes: &mut Vec<u8>| {
                    leave_room_for_stamp(bytes);
                    *room_for_stamp(bytes).unwrap() = Stamp { instance: 3, seen: 1 }.to_bytes();
                };
                let answered = |leave| (0..1_280).filter(|at| is_answered(leave, *at)).count();
                assert!((1_230..1_276).contains(&answered(leave_room_for_stamp)), "{client:x}, {every}");
                assert_eq!((answered(|_| ()), answered(leave_room)), (1_280, 1_280), "no sampling");
                assert_eq!(answered(stamped), 1_280, "the owner already knows that the key is hot");
            }
        }
    }

    #[test]
    fn get_with_inconsistent_lengths_is_passed() {
        let whole = with_stamp([0; 16]);
        let says = |bytes: &[u8], room: u8, body_bytes: usize| {
            let mut changed = bytes.to_vec();
            changed[ROOM_AT] = room;
            changed[BODY_LENGTH_AT..][..2].copy_from_slice(&(body_bytes as u16).to_be_bytes());
            GetRequest::parse(&changed)
        };
        let body_bytes = whole.len() - Header::BYTES;
        assert!(says(&whole, ROOM_STAMP, body_bytes).is_some());
        for bytes in 0..whole.len() {
            assert_eq!(GetRequest::parse(&whole[..bytes]), None, "cut to {bytes}");
            if bytes >= Header::BYTES {
                let body_bytes = bytes - Header::BYTES;
                assert_eq!(
                    says(&whole[..bytes], ROOM_STAMP, body_bytes),
                    None,
                    "cut, with a matching length"
                );
            }
        }
        for stated in [0, 15, 16, body_bytes - Stamp::BYTES, body_bytes - 1, body_bytes + 1] {
            assert_eq!(says(&whole, ROOM_STAMP, stated), None, "{stated} bytes of body");
        }
        for room in [0, ROOM_CHAIN, 3, u8::MAX] {
            assert_eq!(says(&whole, room, body_bytes), None, "room {room}");
        }
    }

    #[test]
    fn chain_header_and_stamp_are_parsed_separately() {
        let chain = ChainHeader::new(PartitionId(1), Epoch(2), []);
        let mut of_chain = get();
        leave_room(&mut of_chain);
        *room_of(&mut of_chain).unwrap() = chain.to_bytes();
        assert_eq!(GetRequest::parse(&of_chain).and_then(|get| get.chain), Some(chain.to_bytes()));
        assert_eq!(GetRequest::parse(&of_chain).map(|get| get.stamp), Some(Stamp::NONE));
        let stamp = Stamp { instance: 1, seen: 2 };
        assert_eq!(GetRequest::parse(&with_stamp(stamp.to_bytes())).map(|get| get.chain), Some(None));
    }
}
