//! Random changes to copies and to members' entries, while lookups are in progress. At every store
//! of the table each lookup advances by a few words. An answer is right if the value could be shown
//! at some moment during the lookup.

use crate::{PARTITION, SIZE, Words, entry, get, of, owner};
use nicekv_kernel_gets::{Grant, Lookup, Memory, Outcome, Table, Word};
use nicekv_proto::Datagram;
use nicekv_proto::hot::Stamp;
use nicekv_proto::route::ChainHeader;
use nicekv_replica::{CopyShift, Lessor, Shift, ShiftKind};
use nicekv_testkit::Random;
use std::collections::BTreeMap;
use std::net::SocketAddrV4;

const KEYS: u64 = 4;
const OWNERS: u64 = 2;
const SERIALS: u64 = 3;
const ROUNDS: u64 = 30_000;
/// Upper bound of random times.
const TIMES: u64 = 100;

/// A get in progress, and the values with which it may be answered.
struct Reader {
    lookup: Lookup,
    key: u64,
    stamp: Stamp,
    now_ns: u64,
    allowed: Vec<Vec<u8>>,
}

/// The shared memory, and the lookups that advance whenever a word is stored.
struct Program {
    words: Words,
    readers: Vec<Reader>,
    random: Random,
    from_copies: u64,
    from_member: u64,
    wrong: Option<String>,
}

impl Program {
    fn go_on(&mut self, steps_max: u64) {
        for mut reader in std::mem::take(&mut self.readers) {
            let steps = 1 + self.random.below(steps_max);
            let ended = (0..steps).find_map(|_| reader.lookup.step(&mut self.words));
            match ended {
                None => self.readers.push(reader),
                Some(Outcome::Pass(_)) => {}
                Some(Outcome::Answer(body)) => self.judge(&reader, &body),
            }
        }
    }

    fn judge(&mut self, reader: &Reader, body: &[u8]) {
        let is_copy = reader.stamp.is_some();
        *(if is_copy { &mut self.from_copies } else { &mut self.from_member }) += 1;
        let reply = reader.lookup.get().reply(body);
        let Ok((_, Datagram::Reply(reply))) = Datagram::decode(&reply) else { panic!("no reply") };
        let value = reply.value.expect("the reply has a value").to_vec();
        if !reader.allowed.contains(&value) {
            let (stamp, allowed) = (reader.stamp, &reader.allowed);
            self.wrong.get_or_insert(format!("{stamp:?}: answered {value:?}, allowed {allowed:?}"));
        }
    }
}

impl Memory for Program {
    fn load(&self, at: Word) -> u64 {
        self.words.load(at)
    }

    fn store(&mut self, at: Word, word: u64) {
        self.go_on(4);
        self.words.store(at, word);
    }
}

#[derive(Clone)]
struct Copy {
    stamp: Stamp,
    lessor: Lessor,
    value: Vec<u8>,
}

/// A model without bounds: everything that the table was notified of.
#[derive(Default)]
struct Truth {
    copies: BTreeMap<u64, Copy>,
    /// The newest lease of each owner: its serial, and when it ends.
    leases: BTreeMap<SocketAddrV4, (u64, u64)>,
    members: BTreeMap<u64, Vec<u8>>,
    member_until_ns: u64,
}

impl Truth {
    /// The value with which a get may be answered at present.
    fn shows(&self, key: u64, stamp: Stamp, now_ns: u64) -> Option<Vec<u8>> {
        if !stamp.is_some() {
            return self.members.get(&key).filter(|_| now_ns < self.member_until_ns).cloned();
        }
        let copy = self.copies.get(&key)?;
        let (serial, until_ns) = *self.leases.get(&copy.lessor.owner)?;
        let has_lease = serial == copy.lessor.serial && now_ns < until_ns;
        let is_right = copy.stamp.instance == stamp.instance && copy.stamp.seen >= stamp.seen;
        (has_lease && is_right).then(|| copy.value.clone())
    }
}

struct Run {
    table: Table,
    program: Program,
    truth: Truth,
    values: u64,
    random: Random,
}

impl Run {
    fn new() -> Self {
        let words = Words::new();
        let table = Table::new(SIZE);
        let program = Program {
            words,
            readers: Vec::new(),
            random: Random::new(0x77),
            from_copies: 0,
            from_member: 0,
            wrong: None,
        };
        Self { table, program, truth: Truth::default(), values: 0, random: Random::new(0x636f_7079) }
    }

    /// Adds the value that may be shown at present to what each get in progress may be answered.
    fn allow(&mut self) {
        for reader in &mut self.program.readers {
            reader.allowed.extend(self.truth.shows(reader.key, reader.stamp, reader.now_ns));
        }
    }

    fn value(&mut self) -> Vec<u8> {
        self.values += 1;
        self.values.to_be_bytes().repeat(1 + self.random.below(8) as usize)
    }

    fn stamp(&mut self) -> Stamp {
        Stamp { instance: 1 + self.random.below(2), seen: self.random.below(4) }
    }

    fn tell(&mut self, shift: CopyShift) {
        self.allow();
        self.table.apply_copy(&mut self.program, shift);
        self.program.go_on(2);
    }

    fn keep(&mut self, key: u64) {
        let (stamp, value) = (self.stamp(), self.value());
        let owner = owner(self.random.below(OWNERS));
        let leased = self.truth.leases.get(&owner).map(|(serial, _)| *serial);
        let leased = leased.filter(|_| self.random.below(4) > 0);
        let lessor = Lessor { owner, serial: leased.unwrap_or(self.random.below(SERIALS)) };
        // The program never shows a copy that expires (G5).
        let expires = self.random.below(8) == 0;
        let kept = Copy { stamp, lessor, value: value.clone() };
        match expires {
            true => self.truth.copies.remove(&key),
            false => self.truth.copies.insert(key, kept),
        };
        let entry = entry(&value, expires.into()).into();
        self.tell(CopyShift::Kept { of: of(key), stamp, lessor, entry });
    }

    fn lease(&mut self) {
        let (owner, serial) = (owner(self.random.below(OWNERS)), self.random.below(SERIALS));
        let until_ns = if self.random.below(4) == 0 { 0 } else { self.random.below(2 * TIMES) };
        self.truth.leases.insert(owner, (serial, until_ns));
        self.tell(CopyShift::Leased { lessor: Lessor { owner, serial }, until_ns });
    }

    fn member(&mut self, key: u64) {
        let kind = match self.random.below(6) {
            0 => {
                self.truth.members.clear();
                self.truth.member_until_ns = 0;
                ShiftKind::Unknown
            }
            _ => {
                let value = self.value();
                let entry = entry(&value, 0);
                self.truth.members.insert(key, value);
                ShiftKind::Read(of(key).key, entry)
            }
        };
        self.allow();
        let shift = Shift { partition: PARTITION, kind };
        self.table.apply(&mut self.program, shift, |_, _| Some(of(key).name));
        self.truth.member_until_ns = self.random.below(2 * TIMES);
        self.allow();
        let (until_ns, chain) = (self.truth.member_until_ns, ChainHeader::EMPTY);
        self.table.grant(&mut self.program, &[Grant { partition: PARTITION, until_ns, chain }]);
    }

    fn ask(&mut self, key: u64) {
        let stamp = if self.random.below(3) == 0 { Stamp::NONE } else { self.stamp() };
        let now_ns = self.random.below(TIMES);
        let lookup = Lookup::new(get(key, stamp), SIZE.entries, now_ns);
        let allowed = self.truth.shows(key, stamp, now_ns).into_iter().collect();
        self.program.readers.push(Reader { lookup, key, stamp, now_ns, allowed });
    }

    fn round(&mut self) {
        let key = self.random.below(KEYS);
        match self.random.below(16) {
            0..2 => self.keep(key),
            2 if self.random.below(2) == 0 => {
                self.truth.copies.remove(&key);
                self.tell(CopyShift::Dropped(of(key)));
            }
            2 => self.lease(),
            3 => self.member(key),
            4..7 => self.program.go_on(200),
            _ => self.ask(key),
        }
    }

    /// Runs all rounds. The error describes the first wrong answer or count.
    fn go(mut self) -> Result<Self, String> {
        let (mut of_copies, mut of_member) = (0, 0);
        for _ in 0..ROUNDS {
            self.round();
            of_copies += self.table.hits_of_copies(&self.program);
            of_member += self.table.hits(&self.program).map(|(_, hits)| hits).sum::<u64>();
            if let Some(wrong) = self.program.wrong.take() {
                return Err(wrong);
            }
            let counted = (self.program.from_copies, self.program.from_member);
            if (of_copies, of_member) != counted {
                return Err(format!(
                    "(copies, member) hits: {counted:?} happened, {:?} were reported",
                    (of_copies, of_member)
                ));
            }
        }
        Ok(self)
    }
}

#[test]
fn every_answer_was_showable_during_the_lookup() {
    let run = Run::new().go().expect("all answers and counts are right");
    let Program { from_copies, from_member, .. } = run.program;
    println!("{from_copies} gets were answered from copies, {from_member} from members' entries");
    assert!(from_copies > 500 && from_member > 500, "{from_copies}, {from_member}");
}
