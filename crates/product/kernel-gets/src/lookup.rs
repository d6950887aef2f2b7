//! What the program does for one get that it may answer: the reference that the program in C is held against.

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
pub struct Asked {
    /// Names the request.
    pub op: OpId,
    keyspace: u16,
    digest: [u8; 16],
    key: Vec<u8>,
    chain: Option<[u8; ChainHeader::BYTES]>,
    /// What a switch has written, if it has sent the get to a copy (H2).
    pub stamp: Stamp,
    /// Of the whole datagram.
    length: usize,
}

impl Asked {
    /// Of the payload of a datagram. `None`: it is for the process, whatever is found. The program looks at what a lookup goes by and at nothing else, since
    /// what is malformed in another way is answered as if it was not; bundles, long keys, and what says where its answer goes, it leaves alone.
    pub fn of(datagram: &[u8]) -> Option<Self> {
        let mut plain = Vec::new();
        let room = take_room(datagram, &mut plain).transpose().ok()?;
        let (chain, stamp) = match room {
            Some(Room::Chain(chain)) => (Some(chain.to_bytes()), Stamp::NONE),
            // What has no stamp went its usual way.
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

    /// The reply with this body.
    pub fn reply(&self, body: &[u8]) -> Vec<u8> {
        let mut datagram = Vec::new();
        Header { op: self.op, ..Header::internal(Opcode::Reply) }.with_body(body, &mut datagram);
        datagram
    }
}

/// Why the process is left to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Miss {
    /// The key has no entry.
    Absent,
    /// An op locks the key, or its entry is being written.
    Closed,
    /// The lease is over, or the node does not answer for the partition.
    Lease,
    /// It came by another chain.
    Chain,
    /// The entry was written to meanwhile.
    Changed,
    /// The reply is longer than the get (G8).
    Room,
    /// The copy is older than the get (H6).
    Stamp,
}

/// How a lookup ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// This is the reply, less its header.
    Answer(Vec<u8>),
    /// The process answers.
    Up(Miss),
}

/// How the program counts gets that it may answer: what it answered as a member's, then by [`Miss`], and what it answered from copies.
pub const OUTCOMES: [&str; 9] =
    ["hit", "absent", "closed", "lease", "chain", "changed", "room", "stamp", "copy"];

/// What is to be loaded next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Next {
    Version,
    /// What the entry is of, up to the last word of the key.
    Identity(usize),
    Instance,
    Seen,
    Gate,
    Lease,
    Chain(usize),
    Body(usize),
    VersionAgain,
}

/// See the module. Each step loads one word.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lookup {
    asked: Asked,
    now_ns: u64,
    /// The entry that is looked at, and the one behind the last.
    entry: u32,
    end: u32,
    next: Next,
    version: u64,
    gate: u32,
    body_length: usize,
    body: Vec<u64>,
    /// One of the entries may be that of the key.
    met_closed: bool,
}

impl Lookup {
    /// Of a table of so many entries. `now_ns`: what the boot-time clock says, after the get has arrived.
    pub fn new(asked: Asked, entries: u32, now_ns: u64) -> Self {
        let entry = first_way(KeyspaceId(asked.keyspace), &nicekv_proto::KeyDigest(asked.digest), entries);
        let (end, next) = (entry + WAYS, Next::Version);
        let (version, gate, body_length, body) = (0, 0, 0, Vec::new());
        Self { asked, now_ns, entry, end, next, version, gate, body_length, body, met_closed: false }
    }

    /// What was asked.
    pub fn asked(&self) -> &Asked {
        &self.asked
    }

    /// Loads a word; how it ends, if it does.
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
                let is_asked_for = memory.load(entry(INSTANCE)) == self.asked.stamp.instance;
                if !is_asked_for {
                    return self.next_way();
                }
                self.next = Next::Seen;
            }
            Next::Seen => {
                let is_new_enough = memory.load(entry(SEEN)) >= self.asked.stamp.seen;
                if !is_new_enough {
                    return Some(Outcome::Up(Miss::Stamp));
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
                    return Some(Outcome::Up(Miss::Lease));
                }
                self.next = Next::Chain(CHAIN);
                if self.asked.chain.is_none() {
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

    /// Looks at a word of the chain that the gate admits.
    fn compare_chain(&mut self, memory: &impl Memory, at: usize) -> Option<Outcome> {
        let word = memory.load(Word::Gate(self.gate, at));
        let chain = self.asked.chain.as_ref().expect("a reason to be here");
        if words(chain).nth(at - CHAIN) != Some(word) {
            return Some(Outcome::Up(Miss::Chain));
        }
        self.next = Next::Chain(at + 1);
        if at + 1 == HITS { self.admitted() } else { None }
    }

    /// The reply is copied: it is right if the entry is still the same.
    fn copied(&self, memory: &mut impl Memory) -> Outcome {
        let is_same = memory.load(Word::Entry(self.entry, VERSION)) == self.version;
        if !is_same {
            return Outcome::Up(Miss::Changed);
        }
        memory.store(Word::Entry(self.entry, USED), self.now_ns);
        memory.count(Word::Gate(self.gate, HITS));
        let bytes = self.body.iter().flat_map(|word| word.to_le_bytes());
        Outcome::Answer(bytes.take(self.body_length).collect())
    }

    /// The gate is open: the reply is copied if there is room for it.
    fn admitted(&mut self) -> Option<Outcome> {
        self.next = Next::Body(BODY);
        let has_room = Header::BYTES + self.body_length <= self.asked.length;
        (!has_room).then_some(Outcome::Up(Miss::Room))
    }

    /// Whether a word of what an entry is of is as in the key's.
    fn is_of_key(&self, at: usize, word: u64) -> bool {
        let Asked { keyspace, digest, key, .. } = &self.asked;
        match at {
            SHAPE => word & !0xffff == shape(KeyspaceId(*keyspace), key.len(), 0),
            DIGEST..KEY => digest_words(&nicekv_proto::KeyDigest(*digest))[at - DIGEST] == word,
            _ => words(key).nth(at - KEY) == Some(word),
        }
    }

    /// So far it is the key's.
    fn identified(&mut self, at: usize, word: u64) {
        if at == SHAPE {
            self.body_length = body_length(word).min(8 * (ENTRY_WORDS - BODY));
        }
        let last = KEY + self.asked.key.len().div_ceil(8) - 1;
        self.next = match at {
            SHAPE => Next::Identity(DIGEST),
            at if at < last => Next::Identity(at + 1),
            _ => Next::Instance,
        };
    }

    fn next_way(&mut self) -> Option<Outcome> {
        (self.entry, self.next) = (self.entry + 1, Next::Version);
        let miss = if self.met_closed { Miss::Closed } else { Miss::Absent };
        (self.entry == self.end).then_some(Outcome::Up(miss))
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
    fn a_get_of_a_long_key_or_the_empty_one_is_for_the_process() {
        let longest = KERNEL_KEY_BYTES_MAX;
        for (bytes, is_asked) in [(0, false), (1, true), (longest, true), (longest + 1, false)] {
            let asked = Asked::of(&get_of_key(OP, &vec![b'k'; bytes]));
            assert_eq!(asked.is_some(), is_asked, "{bytes}");
        }
        assert_eq!(Asked::of(&get_of_key(OP, &[b'k'; KEY_BYTES_MAX])), None);
    }

    fn with_stamp(stamp: [u8; Stamp::BYTES]) -> Vec<u8> {
        let mut bytes = get();
        leave_room_for_stamp(&mut bytes);
        *room_for_stamp(&mut bytes).unwrap() = stamp;
        bytes
    }

    #[test]
    fn a_get_without_a_stamp_is_as_one_without_room() {
        let (plain, roomy) = (get(), with_stamp([0; 16]));
        let asked = Asked::of(&plain).expect("an ordinary one");
        let expected = Asked { length: plain.len() + Stamp::BYTES, ..asked };
        assert_eq!(Asked::of(&roomy), Some(expected), "the room counts as what it is long (G8)");
        let mut longer = roomy.clone();
        lengthen(&mut longer, 300);
        assert_eq!(Asked::of(&longer).map(|asked| (asked.op, asked.length)), Some((OP, 300)));
    }

    #[test]
    fn a_get_with_a_stamp_asks_for_a_copy_and_a_malformed_one_is_for_the_process() {
        for (instance, seen) in [(1, 0), (1, 1), (u64::MAX, u64::MAX), (1 << 63, 9)] {
            let stamp = Stamp { instance, seen };
            assert_eq!(Asked::of(&with_stamp(stamp.to_bytes())).map(|asked| asked.stamp), Some(stamp));
        }
        for at in 0..Stamp::BYTES {
            let mut stamp = [0; Stamp::BYTES];
            stamp[at] = 1;
            let is_of_instance = at < 8;
            assert_eq!(Asked::of(&with_stamp(stamp)).is_some(), is_of_instance, "{stamp:?}");
        }
    }

    #[test]
    fn the_process_sees_some_gets_of_every_client_with_room_for_a_stamp() {
        for client in [0, 1, 7, 0x1a31_85c5_0000_0001, u64::MAX] {
            // Others of the client's ops may be puts, or gets of other keys.
            for every in 1..=64 {
                let is_answered = |leave: fn(&mut Vec<u8>), at: u64| {
                    let op = OpId { client: ClientId(client), sequence: 1 + every * at };
                    let mut bytes = get_of(op);
                    leave(&mut bytes);
                    Asked::of(&bytes).is_some()
                };
                let stamped = |bytes: &mut Vec<u8>| {
                    leave_room_for_stamp(bytes);
                    *room_for_stamp(bytes).unwrap() = Stamp { instance: 3, seen: 1 }.to_bytes();
                };
                let answered = |leave| (0..1_280).filter(|at| is_answered(leave, *at)).count();
                assert!((1_230..1_276).contains(&answered(leave_room_for_stamp)), "{client:x}, {every}");
                assert_eq!((answered(|_| ()), answered(leave_room)), (1_280, 1_280), "of no hot key");
                assert_eq!(answered(stamped), 1_280, "its owner knows that the key is hot");
            }
        }
    }

    #[test]
    fn what_says_more_than_it_has_is_for_the_process() {
        let whole = with_stamp([0; 16]);
        let says = |bytes: &[u8], room: u8, body_bytes: usize| {
            let mut changed = bytes.to_vec();
            changed[ROOM_AT] = room;
            changed[BODY_LENGTH_AT..][..2].copy_from_slice(&(body_bytes as u16).to_be_bytes());
            Asked::of(&changed)
        };
        let body_bytes = whole.len() - Header::BYTES;
        assert!(says(&whole, ROOM_STAMP, body_bytes).is_some());
        for bytes in 0..whole.len() {
            assert_eq!(Asked::of(&whole[..bytes]), None, "cut to {bytes}");
            if bytes >= Header::BYTES {
                let body_bytes = bytes - Header::BYTES;
                assert_eq!(says(&whole[..bytes], ROOM_STAMP, body_bytes), None, "says so");
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
    fn a_chain_and_a_stamp_are_compared_each_with_its_own() {
        let chain = ChainHeader::new(PartitionId(1), Epoch(2), []);
        let mut of_chain = get();
        leave_room(&mut of_chain);
        *room_of(&mut of_chain).unwrap() = chain.to_bytes();
        assert_eq!(Asked::of(&of_chain).and_then(|asked| asked.chain), Some(chain.to_bytes()));
        assert_eq!(Asked::of(&of_chain).map(|asked| asked.stamp), Some(Stamp::NONE));
        let stamp = Stamp { instance: 1, seen: 2 };
        assert_eq!(Asked::of(&with_stamp(stamp.to_bytes())).map(|asked| asked.chain), Some(None));
    }
}
