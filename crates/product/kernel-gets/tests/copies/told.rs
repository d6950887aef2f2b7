//! Notifications about one key. No lookup is in progress while the table applies one.

use crate::{PARTITION, SIZE, Words, entry, get, of, owner};
use nicekv_kernel_gets::{Grant, Lookup, Miss, Outcome, Table};
use nicekv_proto::Datagram;
use nicekv_proto::hot::Stamp;
use nicekv_proto::route::ChainHeader;
use nicekv_replica::{CopyShift, Lessor, Shift, ShiftKind};
use std::net::{Ipv4Addr, SocketAddrV4};

struct Quiet {
    table: Table,
    words: Words,
}

const LESSOR: Lessor = Lessor { owner: SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 3), 7400), serial: 1 };
const STAMP: Stamp = Stamp { instance: 9, seen: 4 };

impl Quiet {
    fn new() -> Self {
        Self { table: Table::new(SIZE), words: Words::new() }
    }

    fn tell(&mut self, shift: CopyShift) {
        self.table.apply_copy(&mut self.words, shift);
    }

    fn keep(&mut self, stamp: Stamp, lessor: Lessor, value: &[u8]) {
        self.tell(CopyShift::Kept { of: of(0), stamp, lessor, entry: entry(value, 0).into() });
    }

    fn lease(&mut self, lessor: Lessor, until_ns: u64) {
        self.tell(CopyShift::Leased { lessor, until_ns });
    }

    fn member(&mut self, kind: ShiftKind) {
        let shift = Shift { partition: PARTITION, kind };
        self.table.apply(&mut self.words, shift, |_, _| Some(of(0).name));
        let grant = Grant { partition: PARTITION, until_ns: 50, chain: ChainHeader::EMPTY };
        self.table.grant(&mut self.words, &[grant]);
    }

    /// Looks the key up, to the end: the value, or why the get is passed to the process.
    fn ask(&mut self, stamp: Stamp, now_ns: u64) -> Result<Vec<u8>, Miss> {
        let mut lookup = Lookup::new(get(0, stamp), SIZE.entries, now_ns);
        let outcome = std::iter::repeat_with(|| lookup.step(&mut self.words)).find_map(|ended| ended);
        match outcome.expect("the lookup ends") {
            Outcome::Pass(miss) => Err(miss),
            Outcome::Answer(body) => {
                let reply = lookup.get().reply(&body);
                let Ok((_, Datagram::Reply(reply))) = Datagram::decode(&reply) else { panic!("no reply") };
                assert_eq!(reply.integer as usize, reply.length(), "the integer is the reply's length (G8)");
                Ok(reply.value.expect("the reply has a value").to_vec())
            }
        }
    }
}

#[test]
fn get_of_a_copy_needs_its_instance_and_no_later_number() {
    let mut quiet = Quiet::new();
    quiet.keep(STAMP, LESSOR, b"copy");
    assert_eq!(quiet.ask(STAMP, 10), Err(Miss::Lease), "no lease yet");
    quiet.lease(LESSOR, 30);
    for (seen, expected) in [(0, Ok(b"copy".to_vec())), (4, Ok(b"copy".to_vec())), (5, Err(Miss::Stamp))] {
        assert_eq!(quiet.ask(Stamp { seen, ..STAMP }, 10), expected, "{seen}");
    }
    assert_eq!(quiet.ask(Stamp { instance: 8, ..STAMP }, 10), Err(Miss::Absent), "another instance");
    assert_eq!(quiet.ask(Stamp::NONE, 10), Err(Miss::Absent), "a get without a stamp needs a member's entry");
    assert_eq!((quiet.ask(STAMP, 29).is_ok(), quiet.ask(STAMP, 30)), (true, Err(Miss::Lease)));
    quiet.tell(CopyShift::Dropped(of(0)));
    assert_eq!(quiet.ask(STAMP, 10), Err(Miss::Closed));
}

#[test]
fn lease_belongs_to_one_serial() {
    let (mut quiet, later) = (Quiet::new(), Lessor { serial: 2, ..LESSOR });
    quiet.lease(LESSOR, 30);
    quiet.keep(STAMP, LESSOR, b"first");
    quiet.lease(later, 60);
    assert_eq!(quiet.ask(STAMP, 10), Err(Miss::Lease), "the lease of the copy's serial has ended");
    quiet.keep(STAMP, later, b"second");
    assert_eq!(quiet.ask(STAMP, 40), Ok(b"second".to_vec()));
    let another = Lessor { owner: owner(9), ..later };
    quiet.lease(another, 0);
    assert_eq!(quiet.ask(STAMP, 40), Ok(b"second".to_vec()), "another owner's lease does not matter");
    // Gates of ended serials are freed: this needs far more than the four gates of lessors.
    for serial in 3..100 {
        let lessor = Lessor { serial, ..LESSOR };
        quiet.keep(STAMP, lessor, &[serial as u8]);
        quiet.lease(lessor, 60);
        assert_eq!(quiet.ask(STAMP, 40), Ok(vec![serial as u8]));
    }
}

#[test]
fn copies_of_a_lessor_without_a_gate_are_left_to_the_process() {
    let mut quiet = Quiet::new();
    for number in 0..4 {
        quiet.lease(Lessor { owner: owner(number), serial: 1 }, 60);
    }
    let beyond = Lessor { owner: owner(4), serial: 1 };
    quiet.keep(STAMP, Lessor { owner: owner(0), serial: 1 }, b"first");
    assert_eq!(quiet.ask(STAMP, 10), Ok(b"first".to_vec()));
    quiet.keep(STAMP, beyond, b"second");
    quiet.lease(beyond, 60);
    assert_eq!(quiet.ask(STAMP, 10), Err(Miss::Closed), "the older copy was removed");
    quiet.lease(Lessor { owner: owner(1), serial: 1 }, 0);
    quiet.lease(beyond, 60);
    quiet.keep(STAMP, beyond, b"second");
    assert_eq!(quiet.ask(STAMP, 10), Ok(b"second".to_vec()), "a gate became free");
}

#[test]
fn key_changes_from_copy_to_member_entry_and_back() {
    let mut quiet = Quiet::new();
    let read = || ShiftKind::Read(of(0).key, entry(b"member", 0));
    quiet.lease(LESSOR, 50);
    for _ in 0..3 {
        quiet.keep(STAMP, LESSOR, b"copy");
        assert_eq!(quiet.ask(STAMP, 10), Ok(b"copy".to_vec()));
        assert!(quiet.ask(Stamp::NONE, 10).is_err(), "the entry is a copy's");
        quiet.tell(CopyShift::Dropped(of(0)));
        quiet.member(read());
        assert_eq!(quiet.ask(Stamp::NONE, 10), Ok(b"member".to_vec()));
        assert!(quiet.ask(STAMP, 10).is_err(), "the entry is a member's");
        quiet.member(ShiftKind::Unknown);
        assert!(quiet.ask(Stamp::NONE, 10).is_err() && quiet.ask(STAMP, 10).is_err());
    }
}
