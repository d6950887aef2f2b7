//! A node's kernel that answers gets: the table that the process writes, and the lookups of the eBPF program. A lookup reads one word at
//! a time, interleaved with stores of the process.

use nicekv_kernel_gets::{
    ENTRY_WORDS, GATE_WORDS, GetRequest, Grant, Lookup, Memory, Outcome, Size, Table, Word,
};
use nicekv_proto::Datagram;
use nicekv_replica::Replica;
use nicekv_replica::{CopyOf, CopyShift, Shift};
use nicekv_testkit::Random;
use std::collections::BTreeSet;
use std::net::SocketAddrV4;

/// So few that keys make room for each other, and partitions and owners of hot keys go without.
const SIZE: Size = Size { entries: 16, gates: 3, lessors: 2 };
/// Of a lookup at once, at most.
const STEPS_MAX: u64 = 60;

/// What program and process share.
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

/// A get under way.
#[derive(Clone)]
struct Reader {
    lookup: Lookup,
    from: SocketAddrV4,
    bytes: Vec<u8>,
}

/// What goes to a client.
#[derive(Clone)]
pub struct Answer {
    /// Who has asked.
    pub to: SocketAddrV4,
    /// The reply.
    pub bytes: Vec<u8>,
    /// Whether it is from a copy.
    pub is_copy: bool,
}

/// The words, and lookups that go on whenever one is stored.
#[derive(Clone)]
struct Program {
    words: Words,
    readers: Vec<Reader>,
    /// Of all gets so far.
    answered: u64,
    answers: Vec<Answer>,
    /// For the process.
    up: Vec<(SocketAddrV4, Vec<u8>)>,
    random: Random,
    /// What must not be, and was.
    violation: Option<String>,
}

impl Program {
    /// Maximum words by which a lookup continues.
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
            _ if answer.len() > asked_length => "a kernel answers more than it was asked (G8)".into(),
            Ok((_, Datagram::Reply(reply))) if reply.expiry_ms == 0 => return,
            Ok(_) => "a kernel answers a value that expires (G5)".into(),
            Err(error) => format!("a kernel answers what is no reply: {error}"),
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

/// See the module.
#[derive(Clone)]
pub struct Kernel {
    table: Table,
    /// What it was told of, and not of its end.
    copies: BTreeSet<CopyOf>,
    program: Program,
}

impl Kernel {
    /// Of a new process; nothing is left of the one before.
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

    /// A datagram has arrived; what is none of its business is returned.
    pub fn receive(&mut self, now_ns: u64, from: SocketAddrV4, bytes: Vec<u8>) -> Option<Vec<u8>> {
        let Some(asked) = GetRequest::parse(&bytes) else { return Some(bytes) };
        let lookup = Lookup::new(asked, SIZE.entries, now_ns);
        self.program.readers.push(Reader { lookup, from, bytes });
        if self.program.random.below(3) == 0 {
            self.program.go_on(STEPS_MAX);
        }
        None
    }

    /// The core published a change.
    pub fn take(&mut self, core: &Replica, shift: Shift) {
        self.table.apply(&mut self.program, shift, |partition, key| core.named(partition, key));
    }

    /// The same of copies.
    pub fn take_copy(&mut self, core: &Replica, shift: CopyShift) {
        if let CopyShift::Kept { of, .. } = &shift {
            let is_member = core.partition_of(of.name.0, &of.name.1).is_some();
            self.copies.insert(of.clone());
            self.complain_if(is_member, "a copy is told of a key whose partition the node is a member of");
        }
        if let CopyShift::Dropped(of) = &shift {
            self.copies.remove(of);
        }
        self.table.apply_copy(&mut self.program, shift);
    }

    /// What was answered is counted where it is reported (G7).
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

    /// The core has published all changes before its next datagram.
    pub fn grant(&mut self, core: &mut Replica) {
        self.count(core);
        let is_member = |of: &CopyOf| core.partition_of(of.name.0, &of.name.1).is_some();
        let is_both = self.copies.iter().any(is_member);
        self.complain_if(is_both, "copies of keys are kept whose partition the node is a member of");
        let grants: Vec<_> = core
            .served_elsewhere()
            .map(|(partition, until_ns, chain)| Grant { partition, until_ns, chain })
            .collect();
        self.table.grant(&mut self.program, &grants);
    }

    /// Time passes: lookups go on, or come to an end. What is for the process.
    pub fn pass(&mut self) -> impl Iterator<Item = (SocketAddrV4, Vec<u8>)> {
        let steps_max = self.program.random.pick(&[4, 12, STEPS_MAX, 1_000]);
        self.program.go_on(steps_max);
        self.program.up.drain(..)
    }

    /// What it has answered since the last time.
    pub fn answers(&mut self) -> Vec<Answer> {
        std::mem::take(&mut self.program.answers)
    }

    fn complain_if(&mut self, is_wrong: bool, what: impl Into<String>) {
        if is_wrong {
            self.program.violation.get_or_insert(what.into());
        }
    }

    /// What must not be, and was.
    pub fn violation(&self) -> Option<&str> {
        self.program.violation.as_deref()
    }
}
