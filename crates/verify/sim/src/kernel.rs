//! A node's kernel that answers gets: the table that the process writes, and the lookups of the
//! eBPF program. A lookup reads one word at a time, interleaved with stores of the process.

use nicekv_kernel_gets::{
    ENTRY_WORDS, GATE_WORDS, GetRequest, Grant, Lookup, Memory, Outcome, Size, Table, Word,
};
use nicekv_proto::Datagram;
use nicekv_replica::Replica;
use nicekv_replica::{CopyOf, CopyShift, Shift};
use nicekv_testkit::Random;
use std::collections::BTreeSet;
use std::net::SocketAddrV4;

/// So small that keys evict each other, and there is no room for some partitions and some owners of
/// hot keys.
const SIZE: Size = Size { entries: 16, gates: 3, lessors: 2 };
/// Maximum words that a lookup reads in one go.
const STEPS_MAX: u64 = 60;

/// The memory that program and process share.
#[derive(Clone)]
struct Words {
    gates: Vec<u64>,
    entries: Vec<u64>,
}

impl Words {
    fn place(&mut self, at: Word) -> &mut u64 {
        match at {
            Word::Gate(gate, word) => &mut self.gates[gate as usize * GATE_WORDS + word],
            Word::Entry(entry, word) => &mut self.entries[entry as usize * ENTRY_WORDS + word],
        }
    }
}

impl Memory for Words {
    fn load(&self, at: Word) -> u64 {
        match at {
            Word::Gate(gate, word) => self.gates[gate as usize * GATE_WORDS + word],
            Word::Entry(entry, word) => self.entries[entry as usize * ENTRY_WORDS + word],
        }
    }

    fn store(&mut self, at: Word, word: u64) {
        *self.place(at) = word;
    }
}

/// A lookup in progress.
#[derive(Clone)]
struct Reader {
    lookup: Lookup,
    from: SocketAddrV4,
    bytes: Vec<u8>,
}

/// An answer to a client.
#[derive(Clone)]
pub struct Answer {
    /// The client.
    pub to: SocketAddrV4,
    pub bytes: Vec<u8>,
    pub is_copy: bool,
}

/// The eBPF program: the shared memory, and lookups that continue whenever a word is stored.
#[derive(Clone)]
struct Program {
    words: Words,
    readers: Vec<Reader>,
    /// Number of gets answered so far.
    answered: u64,
    answers: Vec<Answer>,
    /// Datagrams passed up to the process.
    up: Vec<(SocketAddrV4, Vec<u8>)>,
    random: Random,
    /// The first violation.
    violation: Option<String>,
}

impl Program {
    /// Continues lookups by at most this many words.
    fn go_on(&mut self, steps_max: u64) {
        let readers = std::mem::take(&mut self.readers);
        for mut reader in readers {
            let steps = self.random.between(1, steps_max);
            let ended = (0..steps).find_map(|_| reader.lookup.step(&mut self.words));
            match ended {
                None => self.readers.push(reader),
                Some(Outcome::Answer(body)) => {
                    let asked = reader.lookup.get();
                    let (to, bytes, is_copy) = (reader.from, asked.reply(&body), asked.stamp.is_some());
                    self.answered += 1;
                    self.judge(&bytes, reader.bytes.len());
                    self.answers.push(Answer { to, bytes, is_copy });
                }
                Some(Outcome::Pass(_)) => self.up.push((reader.from, reader.bytes)),
            }
        }
    }

    fn judge(&mut self, answer: &[u8], asked_length: usize) {
        let what = match Datagram::decode(answer) {
            _ if answer.len() > asked_length => "a kernel's answer is longer than the request (G8)".into(),
            Ok((_, Datagram::Reply(reply))) if reply.expiry_ms == 0 => return,
            Ok(_) => "a kernel answers a value that expires (G5)".into(),
            Err(error) => format!("a kernel's answer is not a valid reply: {error}"),
        };
        self.violation.get_or_insert(what);
    }
}

impl Memory for Program {
    fn load(&self, at: Word) -> u64 {
        self.words.load(at)
    }

    fn store(&mut self, at: Word, word: u64) {
        if !self.readers.is_empty() && self.random.below(3) > 0 {
            self.go_on(2);
        }
        self.words.store(at, word);
    }
}

#[derive(Clone)]
pub struct Kernel {
    table: Table,
    /// Copies that the core has published and not withdrawn.
    copies: BTreeSet<CopyOf>,
    program: Program,
}

impl Kernel {
    /// The kernel of a new process, with an empty table.
    pub fn new(random: Random) -> Self {
        let words = Words {
            gates: vec![0; SIZE.gate_count() as usize * GATE_WORDS],
            entries: vec![0; SIZE.entries as usize * ENTRY_WORDS],
        };
        let (readers, answers, up) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            table: Table::new(SIZE),
            copies: BTreeSet::new(),
            program: Program { words, readers, answered: 0, answers, up, random, violation: None },
        }
    }

    /// Handles a datagram. Returns it if the kernel does not handle it.
    pub fn receive(&mut self, now_ns: u64, from: SocketAddrV4, bytes: Vec<u8>) -> Option<Vec<u8>> {
        let Some(asked) = GetRequest::parse(&bytes) else { return Some(bytes) };
        let lookup = Lookup::new(asked, SIZE.entries, now_ns);
        self.program.readers.push(Reader { lookup, from, bytes });
        if self.program.random.below(3) == 0 {
            self.program.go_on(STEPS_MAX);
        }
        None
    }

    /// Applies a change of an entry that the core published.
    pub fn take(&mut self, core: &Replica, shift: Shift) {
        self.table.apply(&mut self.program, shift, |partition, key| core.named(partition, key));
    }

    /// Applies a change of a copy that the core published.
    pub fn take_copy(&mut self, core: &Replica, shift: CopyShift) {
        if let CopyShift::Kept { of, .. } = &shift {
            let is_member = core.partition_of(of.name.0, &of.name.1).is_some();
            self.copies.insert(of.clone());
            self.complain_if(
                is_member,
                "the core publishes a copy of a key in a partition that the node is a member of",
            );
        }
        if let CopyShift::Dropped(of) = &shift {
            self.copies.remove(of);
        }
        self.table.apply_copy(&mut self.program, shift);
    }

    /// Reports the gets that the kernel answered to the core. Each is counted once (G7).
    fn count(&mut self, core: &mut Replica) {
        let counted: u64 =
            (0..SIZE.gate_count()).map(|gate| self.program.load(Word::Gate(gate, GATE_WORDS - 1))).sum();
        let answered = self.program.answered;
        self.complain_if(
            counted != answered,
            format!("{answered} gets were answered, and {counted} counted (G7)"),
        );
        for (partition, gets) in self.table.hits(&self.program) {
            core.count_gets_elsewhere(partition, gets);
        }
        core.count_copies_elsewhere(self.table.hits_of_copies(&self.program));
    }

    /// Renews the core's grants. The core has published all changes before its next datagram.
    pub fn grant(&mut self, core: &mut Replica) {
        self.count(core);
        let is_member = |of: &CopyOf| core.partition_of(of.name.0, &of.name.1).is_some();
        let is_both = self.copies.iter().any(is_member);
        self.complain_if(is_both, "the node keeps copies of keys in a partition that it is a member of");
        let grants: Vec<_> = core
            .served_elsewhere()
            .map(|(partition, until_ns, chain)| Grant { partition, until_ns, chain })
            .collect();
        self.table.grant(&mut self.program, &grants);
    }

    /// Continues lookups, as time passes. Returns the datagrams that go to the process.
    pub fn pass(&mut self) -> impl Iterator<Item = (SocketAddrV4, Vec<u8>)> {
        let steps_max = self.program.random.pick(&[4, 12, STEPS_MAX, 1_000]);
        self.program.go_on(steps_max);
        self.program.up.drain(..)
    }

    /// Takes the answers since the last call.
    pub fn answers(&mut self) -> Vec<Answer> {
        std::mem::take(&mut self.program.answers)
    }

    fn complain_if(&mut self, is_wrong: bool, what: impl Into<String>) {
        if is_wrong {
            self.program.violation.get_or_insert(what.into());
        }
    }

    /// The first violation.
    pub fn violation(&self) -> Option<&str> {
        self.program.violation.as_deref()
    }
}
