//! Gets that a switch behind a socket answers itself.

use alloc::vec;
use core::net::Ipv4Addr;

use nicekv_proto::route::leave_room_for_stamp;
use nicekv_proto::{ClientId, Datagram, KeyDigest, KeyspaceId, OpId, Reply, Status, Update};
use nicekv_proto::{Condition, Operation};

use super::*;
use crate::{
    Backend as _, Counter, DatagramVerdict, Host, HotEntry, HotError, Ingress, MemberSet, MulticastEntry,
    Prefix, Router, TableSet, UnicastEntry, VringConfig,
};
use crate::{BackendError, HOT_VALUES_MAX};

const KEYSPACE: KeyspaceId = KeyspaceId(3);
const DIGEST: KeyDigest = KeyDigest([5; 16]);
const CLIENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 9, 9), 4000);
const OP: OpId = OpId { client: ClientId(1 << 32), sequence: 9 };
const INCARNATION: u64 = 77;
const NOW: u64 = 1_000;
const VALUE: &[u8] = b"shown";

fn entry(instance: u64) -> HotEntry {
    let digest = DIGEST.0;
    HotEntry { keyspace: KEYSPACE.0, digest, instance, owner_turns: 1, holders: vec![], in_switch: true }
}

/// The reply to a get, which states its own length.
fn reply() -> Vec<u8> {
    let reply = Reply { version: OP, value: Some(VALUE), ..Reply::bare(OP, Status::Ok) };
    let mut bytes = Vec::new();
    Reply { integer: reply.length() as i64, ..reply }.encode(&mut bytes);
    bytes
}

struct Switch(Router);

impl Switch {
    /// A switch without values; node 1 owns every key.
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
        switch.0.begin_incarnation(INCARNATION);
        switch.0.change_hot(false, &[], &[entry(1)]).unwrap();
        switch
    }

    /// A switch with a value of node 1 that may be shown until time 2,000.
    fn full() -> Self {
        let mut switch = Self::new();
        assert!(switch.offers(1, (1, 1), 6));
        assert_eq!(switch.renews(1, INCARNATION, 2_000, 6), Some((INCARNATION, NOW)));
        switch
    }

    fn send(&mut self, now_ns: u64, from: SocketAddrV4, mut bytes: Vec<u8>) -> (bool, Vec<u8>) {
        let to = SocketAddrV4::new(Ipv4Addr::new(10, 10, 5, 5), 7000);
        match self.0.process(now_ns, Ingress::Socket, from, to, &mut bytes) {
            DatagramVerdict::Answered(length) => (true, bytes[..length].to_vec()),
            DatagramVerdict::Unicast(_) => (false, bytes),
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
        let stored = self.counted(Counter::HotKept);
        let (stamp, reply) = (Stamp { instance, seen }, reply());
        let reply = &reply[HEADER_BYTES..];
        let value = HotValue { keyspace: KEYSPACE, digest: DIGEST, stamp, serial, key: b"key", reply };
        let mut bytes = Vec::new();
        value.encode(&mut bytes);
        self.send(NOW, address(node), bytes);
        self.counted(Counter::HotKept) > stored
    }

    /// Renews a lease. Returns the incarnation and the clock in the reply, if there is one.
    fn renews(&mut self, node: u8, nonce: u64, until_ns: u64, serial: u64) -> Option<(u64, u64)> {
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
        assert!(matches!(
            self.0.process(NOW, Ingress::Socket, CLIENT, to, &mut bytes),
            DatagramVerdict::Multicast(_)
        ));
    }

    fn counted(&self, counter: Counter) -> u64 {
        self.0.counters().unwrap().get(counter)
    }
}

fn address(node: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, node), 7000)
}

#[test]
fn get_is_answered_until_an_update_passes_and_within_the_lease() {
    let mut switch = Switch::full();
    assert_eq!(switch.get(NOW, b"key", 100), (true, reply()));
    assert!(switch.answers(1_999) && !switch.answers(2_000));
    switch.update();
    assert!(!switch.answers(NOW), "an update has passed");
    assert!(!switch.offers(1, (1, 1), 6), "an older value");
    assert!(!switch.offers(1, (1, 3), 6) && !switch.offers(1, (2, 2), 6));
    assert!(switch.offers(1, (1, 2), 6) && switch.answers(NOW));
    let reading = switch.0.read_hot().unwrap();
    assert_eq!((reading.entries[0].requests, reading.entries[0].answered), (6, 3));
    let counted = [Counter::HotAnswered, Counter::HotKept, Counter::HotLeased, Counter::HotUnheard];
    assert_eq!(counted.map(|counter| switch.counted(counter)), [3, 2, 1, 3]);
}

#[test]
fn only_a_plain_get_with_enough_room_is_answered() {
    let mut switch = Switch::full();
    let bytes = reply().len();
    let fits = bytes - (HEADER_BYTES + Stamp::BYTES + FORWARDED_BYTES + 2 + b"key".len());
    assert!(switch.get(NOW, b"key", fits).0 && !switch.get(NOW, b"key", fits - 1).0, "G8");
    assert!(!switch.get(NOW, b"kex", 100).0 && !switch.get(NOW, b"key2", 100).0);
    let (_, get) = {
        switch.0.change_hot(true, &[], &[]).unwrap();
        switch.get(NOW, b"key", 100)
    };
    let mut switch = Switch::full();
    assert!(switch.send(NOW, CLIENT, get.clone()).0, "the first hop has written the reply address");
    let at = HEADER_BYTES + Stamp::BYTES;
    for wrong in [offset_of!(HeaderLayout, reserved), at, at + 9, get.len() - 1, at + 15] {
        let mut odd = get.clone();
        odd[wrong] = 1;
        assert!(!switch.send(NOW, CLIENT, odd).0, "byte {wrong}");
    }
    let mut cut = get.clone();
    cut.pop();
    assert!(!switch.send(NOW, CLIENT, cut).0);
    let mut other = get;
    other[offset_of!(HeaderLayout, reply_to_port)..][..2].copy_from_slice(&9_u16.to_be_bytes());
    assert_eq!(switch.send(NOW, CLIENT, other.clone()), (false, vec![]), "refused");
    assert!(!switch.send(NOW, address(2), other).0, "a node sends on behalf of another client");
}

#[test]
fn lease_belongs_to_an_owner_a_serial_and_an_incarnation() {
    let mut switch = Switch::full();
    assert_eq!(switch.renews(2, INCARNATION, 9_000, 6), Some((INCARNATION, NOW)), "another owner");
    assert_eq!(switch.renews(1, INCARNATION + 1, 9_000, 6), Some((INCARNATION, NOW)), "another incarnation");
    assert_eq!(switch.renews(1, 0, 9_000, 6), Some((INCARNATION, NOW)), "a query");
    assert!(!switch.answers(2_000));
    assert!(switch.renews(1, INCARNATION, 9_000, 7).is_some() && !switch.answers(NOW), "another serial");
    assert!(switch.offers(1, (1, 1), 7) && switch.answers(8_999));
    assert!(switch.renews(1, INCARNATION, 0, 7).is_some() && !switch.answers(NOW), "revoked");
    assert!(switch.renews(1, INCARNATION, 9_000, 7).is_some() && switch.answers(NOW));
    switch.0.begin_incarnation(INCARNATION + 1);
    assert!(!switch.0.hot().has_value(1) && !switch.answers(NOW));
    assert!(switch.offers(1, (1, 1), 7) && !switch.answers(NOW), "without a lease");
    assert_eq!(switch.renews(1, INCARNATION, 9_000, 7), Some((INCARNATION + 1, NOW)));
    assert!(
        !switch.answers(NOW) && switch.renews(1, INCARNATION + 1, 9_000, 7).is_some() && switch.answers(NOW)
    );
    switch.0.begin_incarnation(0);
    assert_eq!(switch.renews(1, 0, 9_000, 7), None, "no incarnation has begun");
}

#[test]
fn value_is_removed_with_its_instance_and_clients_cannot_store_one() {
    let mut switch = Switch::full();
    switch.0.change_hot(false, &[], &[entry(2)]).unwrap();
    assert!(!switch.answers(NOW) && !switch.offers(1, (1, 1), 6));
    assert!(switch.offers(1, (2, 1), 6) && switch.answers(NOW));
    switch.0.change_hot(false, &[], &[HotEntry { in_switch: false, ..entry(3) }]).unwrap();
    assert!(!switch.offers(1, (3, 1), 6), "the entry does not allow a value");
    let refused = switch.counted(Counter::OpcodeRefused);
    let mut bytes = Vec::new();
    HotLease { keyspace: KEYSPACE, digest: DIGEST, nonce: INCARNATION, until_ns: 9_000, serial: 6 }
        .encode(&mut bytes);
    assert_eq!(switch.send(NOW, CLIENT, bytes), (false, vec![]));
    assert_eq!(switch.counted(Counter::OpcodeRefused), refused + 1);
}

#[test]
fn malformed_values_are_refused() {
    let reply = [0; 40];
    let stamp = Stamp { instance: 1, seen: 1 };
    let mut bytes = Vec::new();
    HotValue { keyspace: KEYSPACE, digest: DIGEST, stamp, serial: 6, key: b"key", reply: &reply }
        .encode(&mut bytes);
    let body = &bytes[HEADER_BYTES..];
    assert!(OfferedValue::parse(body).is_some_and(|offered| offered.key == b"key" && offered.reply == reply));
    let with = |at: usize, byte: u8| {
        let mut odd = body.to_vec();
        odd[at] = byte;
        OfferedValue::parse(&odd).is_some()
    };
    assert!(!with(25, 0), "no key");
    assert!(!with(24, 1), "the key length exceeds the limit or the message");
    assert!(!with(26, 1) && !with(31, 1), "reserved bytes");
    assert!(
        OfferedValue::parse(&body[..34]).is_none() && OfferedValue::parse(&body[..31]).is_none(),
        "truncated"
    );
    let long = [body, &[0; REPLY_BODY_BYTES_MAX - 40]].concat();
    assert!(
        OfferedValue::parse(&long).is_some() && OfferedValue::parse(&[&long[..], &[0]].concat()).is_none()
    );
}

#[test]
fn number_of_entries_with_a_value_is_bounded() {
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
