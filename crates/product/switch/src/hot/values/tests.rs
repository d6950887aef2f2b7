//! The switch answers behind a socket, or does not.

use alloc::vec;
use core::net::Ipv4Addr;

use nicekv_proto::route::leave_room_for_stamp;
use nicekv_proto::{ClientId, Datagram, KeyDigest, KeyspaceId, OpId, Reply, Status, Update};
use nicekv_proto::{Condition, Operation};

use super::*;
use crate::{
    Backend as _, Counter, Host, HotEntry, HotError, Ingress, MemberSet, MulticastEntry, Passed, Prefix,
    Router, TableSet, UnicastEntry, VringConfig,
};
use crate::{BackendError, HOT_VALUES_MAX};

const KEYSPACE: KeyspaceId = KeyspaceId(3);
const DIGEST: KeyDigest = KeyDigest([5; 16]);
const CLIENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 9, 9), 4000);
const OP: OpId = OpId { client: ClientId(1 << 32), sequence: 9 };
const LIFE: u64 = 77;
const NOW: u64 = 1_000;
const VALUE: &[u8] = b"shown";

fn entry(instance: u64) -> HotEntry {
    let digest = DIGEST.0;
    HotEntry { keyspace: KEYSPACE.0, digest, instance, usual_turns: 1, holders: vec![], in_switch: true }
}

/// Of a get; so long that it says so.
fn reply() -> Vec<u8> {
    let reply = Reply { version: OP, value: Some(VALUE), ..Reply::bare(OP, Status::Ok) };
    let mut bytes = Vec::new();
    Reply { integer: reply.length() as i64, ..reply }.encode(&mut bytes);
    bytes
}

struct Switch(Router);

impl Switch {
    /// Node 1 owns everything, and its value is shown until 2,000.
    fn new() -> Self {
        let mut switch = Self(Router::new(VringConfig::DEFAULT).unwrap());
        let (ring, multicast) = (Prefix::new([10, 10, 0, 0], 16), Prefix::new([10, 11, 0, 0], 16));
        let tables = TableSet {
            generation: 1,
            hosts: vec![Host::node(1), Host::node(2)],
            unicast: vec![UnicastEntry { destination: ring, partition: 0, host: HostId(1), chain: None }],
            multicast: vec![MulticastEntry {
                destination: multicast,
                members: MemberSet::new([HostId(1)]),
                chain: None,
                places: None,
            }],
            ..TableSet::default()
        };
        switch.0.install(&tables).unwrap();
        switch.0.begin_life(LIFE);
        switch.0.change_hot(false, &[], &[entry(1)]).unwrap();
        switch
    }

    /// And node 1 has given it its value.
    fn full() -> Self {
        let mut switch = Self::new();
        assert!(switch.offers(1, (1, 1), 6));
        assert_eq!(switch.pulses(1, LIFE, 2_000, 6), Some((LIFE, NOW)));
        switch
    }

    fn send(&mut self, now_ns: u64, from: SocketAddrV4, mut bytes: Vec<u8>) -> (bool, Vec<u8>) {
        let to = SocketAddrV4::new(Ipv4Addr::new(10, 10, 5, 5), 7000);
        match self.0.process(now_ns, Ingress::Socket, from, to, &mut bytes) {
            Passed::Answered(length) => (true, bytes[..length].to_vec()),
            Passed::Unicast(_) => (false, bytes),
            _ => (false, Vec::new()),
        }
    }

    fn get(&mut self, now_ns: u64, key: &[u8], padding: usize) -> (bool, Vec<u8>) {
        let (keyspace, op, digest) = (KEYSPACE, OP, DIGEST);
        let mut bytes = Vec::new();
        Get { keyspace, op, digest, reply_to: None, forwarded: None, key, padding }.encode(&mut bytes);
        leave_room_for_stamp(&mut bytes);
        self.send(now_ns, CLIENT, bytes)
    }

    fn answers(&mut self, now_ns: u64) -> bool {
        self.get(now_ns, b"key", 100).0
    }

    fn offers(&mut self, node: u8, (instance, seen): (u64, u64), serial: u64) -> bool {
        let kept = self.counted(Counter::HotKept);
        let (stamp, reply) = (Stamp { instance, seen }, reply());
        let reply = &reply[HEADER_BYTES..];
        let value = HotValue { keyspace: KEYSPACE, digest: DIGEST, stamp, serial, key: b"key", reply };
        let mut bytes = Vec::new();
        value.encode(&mut bytes);
        self.send(NOW, address(node), bytes);
        self.counted(Counter::HotKept) > kept
    }

    /// Life and clock.
    fn pulses(&mut self, node: u8, nonce: u64, until_ns: u64, serial: u64) -> Option<(u64, u64)> {
        let mut bytes = Vec::new();
        HotLease { keyspace: KEYSPACE, digest: DIGEST, nonce, until_ns, serial }.encode(&mut bytes);
        let (_, bytes) = self.send(NOW, address(node), bytes);
        match Datagram::decode(&bytes) {
            Ok((_, Datagram::HotLeased(leased))) => {
                assert_eq!((leased.keyspace, leased.digest, leased.serial), (KEYSPACE, DIGEST, serial));
                Some((leased.nonce, leased.clock_ns))
            }
            _ => None,
        }
    }

    fn update(&mut self) {
        let (keyspace, op, digest) = (KEYSPACE, OP, DIGEST);
        let update = Update {
            keyspace,
            op,
            digest,
            reply_to: None,
            watermark: 1,
            condition: Condition::Always,
            return_old: false,
            operation: Operation::Delete,
            key: b"key",
        };
        let mut bytes = Vec::new();
        update.encode(&mut bytes);
        leave_room_for_stamp(&mut bytes);
        let to = SocketAddrV4::new(Ipv4Addr::new(10, 11, 5, 5), 7000);
        assert!(matches!(self.0.process(NOW, Ingress::Socket, CLIENT, to, &mut bytes), Passed::Multicast(_)));
    }

    fn counted(&self, counter: Counter) -> u64 {
        self.0.counters().unwrap().get(counter)
    }
}

fn address(node: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, node), 7000)
}

#[test]
fn a_get_is_answered_while_nothing_has_passed_and_within_the_lease() {
    let mut switch = Switch::full();
    assert_eq!(switch.get(NOW, b"key", 100), (true, reply()));
    assert!(switch.answers(1_999) && !switch.answers(2_000));
    switch.update();
    assert!(!switch.answers(NOW), "an update has passed");
    assert!(!switch.offers(1, (1, 1), 6), "what is offered is older");
    assert!(!switch.offers(1, (1, 3), 6) && !switch.offers(1, (2, 2), 6));
    assert!(switch.offers(1, (1, 2), 6) && switch.answers(NOW));
    let reading = switch.0.read_hot().unwrap();
    assert_eq!((reading.entries[0].requests, reading.entries[0].answered), (6, 3));
    let counted = [Counter::HotAnswered, Counter::HotKept, Counter::HotLeased, Counter::HotUnheard];
    assert_eq!(counted.map(|counter| switch.counted(counter)), [3, 2, 1, 3]);
}

#[test]
fn only_what_asks_for_just_that_and_brings_the_room_is_answered() {
    let mut switch = Switch::full();
    let bytes = reply().len();
    let fits = bytes - (HEADER_BYTES + Stamp::BYTES + FORWARDED_BYTES + 2 + b"key".len());
    assert!(switch.get(NOW, b"key", fits).0 && !switch.get(NOW, b"key", fits - 1).0, "G8");
    assert!(!switch.get(NOW, b"kex", 100).0 && !switch.get(NOW, b"key2", 100).0);
    let (_, asked) = {
        switch.0.change_hot(true, &[], &[]).unwrap();
        switch.get(NOW, b"key", 100)
    };
    let mut switch = Switch::full();
    assert!(switch.send(NOW, CLIENT, asked.clone()).0, "the first hop has stamped who asks");
    let at = HEADER_BYTES + Stamp::BYTES;
    for wrong in [offset_of!(HeaderLayout, reserved), at, at + 9, asked.len() - 1, at + 15] {
        let mut odd = asked.clone();
        odd[wrong] = 1;
        assert!(!switch.send(NOW, CLIENT, odd).0, "byte {wrong}");
    }
    let mut cut = asked.clone();
    cut.pop();
    assert!(!switch.send(NOW, CLIENT, cut).0);
    let mut other = asked;
    other[offset_of!(HeaderLayout, reply_to_port)..][..2].copy_from_slice(&9_u16.to_be_bytes());
    assert_eq!(switch.send(NOW, CLIENT, other.clone()), (false, vec![]), "refused");
    assert!(!switch.send(NOW, address(2), other).0, "a node asks for somebody else");
}

#[test]
fn a_lease_is_of_an_owner_a_serial_and_a_life() {
    let mut switch = Switch::full();
    assert_eq!(switch.pulses(2, LIFE, 9_000, 6), Some((LIFE, NOW)), "another node's");
    assert_eq!(switch.pulses(1, LIFE + 1, 9_000, 6), Some((LIFE, NOW)), "for another life");
    assert_eq!(switch.pulses(1, 0, 9_000, 6), Some((LIFE, NOW)), "it asks");
    assert!(!switch.answers(2_000));
    assert!(switch.pulses(1, LIFE, 9_000, 7).is_some() && !switch.answers(NOW), "of another serial");
    assert!(switch.offers(1, (1, 1), 7) && switch.answers(8_999));
    assert!(switch.pulses(1, LIFE, 0, 7).is_some() && !switch.answers(NOW), "taken back");
    assert!(switch.pulses(1, LIFE, 9_000, 7).is_some() && switch.answers(NOW));
    switch.0.begin_life(LIFE + 1);
    assert!(!switch.0.hot().has_value(1) && !switch.answers(NOW));
    assert!(switch.offers(1, (1, 1), 7) && !switch.answers(NOW), "without a lease");
    assert_eq!(switch.pulses(1, LIFE, 9_000, 7), Some((LIFE + 1, NOW)));
    assert!(!switch.answers(NOW) && switch.pulses(1, LIFE + 1, 9_000, 7).is_some() && switch.answers(NOW));
    switch.0.begin_life(0);
    assert_eq!(switch.pulses(1, 0, 9_000, 7), None, "no life has begun");
}

#[test]
fn a_value_goes_with_its_instance_and_clients_bring_none() {
    let mut switch = Switch::full();
    switch.0.change_hot(false, &[], &[entry(2)]).unwrap();
    assert!(!switch.answers(NOW) && !switch.offers(1, (1, 1), 6));
    assert!(switch.offers(1, (2, 1), 6) && switch.answers(NOW));
    switch.0.change_hot(false, &[], &[HotEntry { in_switch: false, ..entry(3) }]).unwrap();
    assert!(!switch.offers(1, (3, 1), 6), "it wants none");
    let refused = switch.counted(Counter::OpcodeRefused);
    let mut bytes = Vec::new();
    HotLease { keyspace: KEYSPACE, digest: DIGEST, nonce: LIFE, until_ns: 9_000, serial: 6 }
        .encode(&mut bytes);
    assert_eq!(switch.send(NOW, CLIENT, bytes), (false, vec![]));
    assert_eq!(switch.counted(Counter::OpcodeRefused), refused + 1);
}

#[test]
fn what_is_offered_is_looked_at() {
    let reply = [0; 40];
    let stamp = Stamp { instance: 1, seen: 1 };
    let mut bytes = Vec::new();
    HotValue { keyspace: KEYSPACE, digest: DIGEST, stamp, serial: 6, key: b"key", reply: &reply }
        .encode(&mut bytes);
    let body = &bytes[HEADER_BYTES..];
    assert!(Offered::of(body).is_some_and(|offered| offered.key == b"key" && offered.reply == reply));
    let with = |at: usize, byte: u8| {
        let mut odd = body.to_vec();
        odd[at] = byte;
        Offered::of(&odd).is_some()
    };
    assert!(!with(25, 0), "no key");
    assert!(!with(24, 1), "a key that is too long, or cut off");
    assert!(!with(26, 1) && !with(31, 1), "what is to be zero");
    assert!(Offered::of(&body[..34]).is_none() && Offered::of(&body[..31]).is_none(), "cut off");
    let long = [body, &[0; REPLY_BODY_BYTES_MAX - 40]].concat();
    assert!(Offered::of(&long).is_some() && Offered::of(&[&long[..], &[0]].concat()).is_none());
}

#[test]
fn only_so_many_entries_want_a_value() {
    let mut switch = Switch::new();
    let many = |count: u64, first: u64| -> Vec<HotEntry> {
        let entry = |number: u64| HotEntry {
            digest: [[0; 8], number.to_be_bytes()].concat().try_into().unwrap(),
            ..entry(first + number)
        };
        (0..count).map(entry).collect()
    };
    let most = HOT_VALUES_MAX as u64;
    let full = BackendError::from(HotError::Values { entries: HOT_VALUES_MAX + 1 });
    assert_eq!(switch.0.change_hot(false, &[], &many(most, 2)), Err(full.clone()));
    assert_eq!(switch.0.change_hot(true, &[], &many(most + 1, 2)), Err(full.clone()));
    switch.0.change_hot(false, &[1], &many(most, 2)).unwrap();
    assert_eq!(switch.0.change_hot(false, &[], &[entry(5_000)]), Err(full));
    let counts = HotEntry { in_switch: false, ..many(1, 5_000).remove(0) };
    switch.0.change_hot(false, &[], &[counts, entry(5_001)]).unwrap();
    switch.0.change_hot(false, &[], &many(most, 6_000)[1..]).unwrap();
}
