//! What becomes of requests of hot keys behind a socket, and that each planted bug shows.

use alloc::string::{String, ToString};
use alloc::{format, vec};
use core::net::{Ipv4Addr, SocketAddrV4};

use nicekv_wire::hot::{HotClose, HotConfirm};
use nicekv_wire::route::{Room, leave_room_for_stamp, room_for_stamp, take_room};
use nicekv_wire::{
    ClientId, Condition, Datagram, Expiry, Get, KeyDigest, KeyspaceId, OpId, Operation, Update,
};

use super::*;
use crate::{
    Backend, Hop, Host, Ingress, MemberSet, MulticastEntry, Passed, Prefix, Router, TableSet, UnicastEntry,
    VringConfig,
};

const KEYSPACE: KeyspaceId = KeyspaceId(3);
const DIGEST: KeyDigest = KeyDigest([5; 16]);
const CLIENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 9, 9), 4000);
const LEASE_NS: u64 = 1_000;

fn host(id: u16) -> Host {
    let (ip, mac) = ([10, 0, 0, id as u8], [2, 0, 0, 0, 0, id as u8]);
    Host { id: HostId(id), role: HostRole::Node, ip, udp_port: 7000, mac, port: id, is_remote: id == 4 }
}

fn entry(instance: u64) -> HotEntry {
    let holders = vec![HostId(2), HostId(3)];
    HotEntry {
        keyspace: 3,
        digest: DIGEST.0,
        key: b"hot".to_vec(),
        instance,
        partition: 0,
        epoch: 7,
        holders,
    }
}

/// Node 1 owns everything, and nodes 2 and 3 hold what is hot.
struct Switch {
    router: Router,
    log: Vec<String>,
}

impl Switch {
    fn new(plant: Option<Plant>) -> Self {
        let mut router = Router::new(VringConfig::DEFAULT).unwrap();
        let (ring, multicast) = (Prefix::new([10, 10, 0, 0], 16), Prefix::new([10, 11, 0, 0], 16));
        let unicast = vec![UnicastEntry { destination: ring, partition: 0, host: HostId(1), chain: None }];
        let members = MemberSet::new([HostId(1)]);
        let multicast = vec![MulticastEntry { destination: multicast, members, chain: None }];
        let (hosts, trunks) = ((1..=4).map(host).collect(), vec![4]);
        let tables = TableSet { generation: 1, hosts, trunks, unicast, multicast, ..TableSet::default() };
        router.install(&tables).unwrap();
        if let Some(plant) = plant {
            router.plant(plant);
        }
        router.change_hot(&[], &[entry(1)]).unwrap();
        router.hot_mut().extend_lease(LEASE_NS);
        Self { router, log: Vec::new() }
    }

    /// To a vring: who receives it, and with which stamp.
    fn send(&mut self, from: SocketAddrV4, ring: Ring, mut bytes: Vec<u8>) -> String {
        let to =
            SocketAddrV4::new(Ipv4Addr::new(10, if ring == Ring::Unicast { 10 } else { 11 }, 5, 5), 7000);
        let told = match self.router.process(Ingress::Socket, from, to, &mut bytes) {
            Passed::Unicast(hop) => format!("{:?}", hop.host().map(|host| host.0)),
            Passed::Multicast(mut hops) => {
                format!("{:?}", hops.next().and_then(Hop::host).map(|host| host.0))
            }
            Passed::Dropped => "gone".to_string(),
            other => panic!("{other:?}"),
        };
        let mut plain = Vec::new();
        let stamp = match take_room(&bytes, &mut plain) {
            Some(Ok(Room::Stamp(stamp))) => Some((stamp.instance, stamp.seen)),
            Some(other) => panic!("{other:?}"),
            None => match Datagram::decode(&bytes) {
                Ok((_, Datagram::HotClosed(closed))) => Some((closed.stamp.instance, closed.stamp.seen)),
                _ => None,
            },
        };
        let told = format!("{told} {stamp:?}");
        self.log.push(told.clone());
        told
    }

    fn get(&mut self, key: &[u8], forged: Stamp) -> String {
        let bytes = with_room(|out| get(key).encode(out), forged);
        self.send(CLIENT, Ring::Unicast, bytes)
    }

    fn put(&mut self, key: &[u8], forged: Stamp) -> String {
        let bytes = with_room(|out| put(key).encode(out), forged);
        self.send(CLIENT, Ring::Multicast, bytes)
    }

    fn confirm(&mut self, node: u16, instance: u64, seen: u64) -> String {
        let mut bytes = Vec::new();
        let stamp = Stamp { instance, seen };
        HotConfirm { keyspace: KEYSPACE, digest: DIGEST, stamp }.encode(&mut bytes);
        self.send(address(node), Ring::Unicast, bytes)
    }

    fn close(&mut self, from: SocketAddrV4, instance: u64) -> String {
        let mut bytes = Vec::new();
        HotClose { keyspace: KEYSPACE, digest: DIGEST, stamp: Stamp { instance, seen: 0 } }
            .encode(&mut bytes);
        self.send(from, Ring::Unicast, bytes)
    }
}

fn address(node: u16) -> SocketAddrV4 {
    SocketAddrV4::new(host(node).ip.into(), 7000)
}

fn op() -> OpId {
    OpId { client: ClientId(7), sequence: 9 }
}

fn get(key: &[u8]) -> Get<'_> {
    Get { keyspace: KEYSPACE, op: op(), digest: DIGEST, reply_to: None, forwarded: None, key, padding: 0 }
}

fn put(key: &[u8]) -> Update<'_> {
    let operation = Operation::Set { value: b"value", expiry: Expiry::Never };
    let (condition, return_old, watermark) = (Condition::Always, false, 4);
    let (keyspace, op, digest, reply_to) = (KEYSPACE, op(), DIGEST, None);
    Update { keyspace, op, digest, reply_to, watermark, condition, return_old, key, operation }
}

fn with_room(encode: impl FnOnce(&mut Vec<u8>), forged: Stamp) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut bytes);
    leave_room_for_stamp(&mut bytes);
    *room_for_stamp(&mut bytes).unwrap() = forged.to_bytes();
    bytes
}

#[test]
fn an_entry_starts_closed_opens_by_confirmations_and_closes_by_updates() {
    let mut switch = Switch::new(None);
    let (none, forged) = (Stamp::NONE, Stamp { instance: 1, seen: 1 });
    assert_eq!(switch.get(b"hot", none), "Some(1) Some((0, 0))", "H1");
    assert_eq!(switch.put(b"hot", forged), "Some(1) Some((1, 2))", "H2");
    switch.confirm(2, 1, 1);
    assert_eq!(switch.get(b"hot", none), "Some(1) Some((0, 0))", "a copy from before the update");
    switch.confirm(2, 1, 2);
    let gets: Vec<_> = (0..6).map(|_| switch.get(b"hot", forged)).collect();
    let (holder, owner) = ("Some(2) Some((1, 2))", "Some(1) Some((0, 0))");
    assert_eq!(gets, [owner, holder, owner, owner, holder, owner], "one of three turns is node 2's");
    switch.confirm(3, 1, 2);
    let gets: Vec<_> = (0..3).map(|_| switch.get(b"hot", none)).collect();
    assert_eq!(gets, [owner, holder, "Some(3) Some((1, 2))"]);
    assert_eq!(
        switch.close(address(1), 1),
        "Some(1) Some((1, 3))",
        "H4: the answer is of the number that follows"
    );
    assert!((0..6).all(|_| switch.get(b"hot", none) == owner));
}

#[test]
fn only_holders_confirm_and_only_what_the_switch_has_seen_of_this_instance() {
    let mut switch = Switch::new(None);
    for (node, instance, seen) in [(1, 1, 1), (2, 2, 1), (2, 1, 2), (4, 1, 1)] {
        assert_eq!(switch.confirm(node, instance, seen), "gone None");
    }
    let mut forged = Vec::new();
    let stamp = Stamp { instance: 1, seen: 1 };
    HotConfirm { keyspace: KEYSPACE, digest: DIGEST, stamp }.encode(&mut forged);
    switch.send(CLIENT, Ring::Unicast, forged);
    assert!((0..6).all(|_| switch.get(b"hot", Stamp::NONE) == "Some(1) Some((0, 0))"));
    assert_eq!(switch.close(address(1), 2), "gone None", "an instance that is not here is no evidence");
    assert_eq!(switch.close(CLIENT, 1), "gone None");
    assert_eq!(switch.router.hot().seen(1), Some(1));
    let counted = switch.router.hot().counters();
    assert_eq!((counted.heard, counted.unheard, counted.redirected), (0, 5, 0));
}

#[test]
fn a_stamp_that_goes_to_a_server_itself_crosses_no_switch() {
    let mut switch = Switch::new(None);
    let mut bytes = with_room(|out| get(b"hot").encode(out), Stamp { instance: 1, seen: 1 });
    let passed = switch.router.process(Ingress::Socket, CLIENT, address(2), &mut bytes);
    assert!(matches!(passed, Passed::Dropped), "{passed:?}");
}

#[test]
fn changes_are_refused_by_name_and_as_a_whole() {
    let mut switch = Switch::new(None);
    let long = HotEntry { key: vec![1; 65], ..entry(3) };
    let holders =
        |holders: &[u16]| HotEntry { holders: holders.iter().copied().map(HostId).collect(), ..entry(3) };
    let many: Vec<u16> = (0..32).collect();
    let bad = |holder| HotError::BadHolder { instance: 3, holder: HostId(holder) };
    for (wrong, error) in [
        (long, HotError::KeyLength { bytes: 65 }),
        (HotEntry { key: vec![], ..entry(3) }, HotError::KeyLength { bytes: 0 }),
        (HotEntry { epoch: 8, ..entry(1) }, HotError::InstanceUsed { instance: 1, newest: 1 }),
        (entry(0), HotError::InstanceUsed { instance: 0, newest: 1 }),
        (holders(&[]), HotError::Holders { instance: 3, holders: 0 }),
        (holders(&many), HotError::Holders { instance: 3, holders: 32 }),
        (holders(&[9]), bad(9)),
        (holders(&[4]), bad(4)),
        (holders(&[2, 2]), bad(2)),
    ] {
        assert_eq!(switch.router.change_hot(&[1], &[wrong]), Err(error));
    }
    let all = (0..=HOT_CAPACITY as u64).map(|instance| {
        let mut digest = [0; 16];
        digest[..8].copy_from_slice(&instance.to_be_bytes());
        HotEntry { digest, ..entry(instance + 2) }
    });
    let all: Vec<_> = all.collect();
    let full = HotError::Full { entries: HOT_CAPACITY + 1 };
    assert_eq!(switch.router.change_hot(&[1], &all), Err(full));
    assert_eq!(switch.router.hot().entries().collect::<Vec<_>>(), [&entry(1)]);
    switch.router.change_hot(&[1], &all[1..]).unwrap();
    assert!(switch.router.change_hot(&[], &[entry(1)]).is_err(), "H1: an instance comes once");
}

#[test]
fn registers_are_those_of_the_instance() {
    let mut switch = Switch::new(None);
    switch.put(b"hot", Stamp::NONE);
    switch.router.change_hot(&[], &[entry(1)]).unwrap();
    assert_eq!(switch.router.hot().seen(1), Some(2), "told again");
    switch.router.change_hot(&[], &[entry(2)]).unwrap();
    assert_eq!((switch.router.hot().seen(1), switch.router.hot().seen(2)), (None, Some(1)));
    switch.router.hot_mut().remove_older(0, 7);
    assert_eq!(switch.router.hot().seen(2), Some(1));
    switch.router.hot_mut().remove_older(0, 8);
    assert_eq!(switch.router.hot().seen(2), None, "H5");
}

/// What is told of a run that goes past every rule.
fn run(plant: Option<Plant>) -> Vec<String> {
    let mut switch = Switch::new(plant);
    let forged = Stamp { instance: 1, seen: 99 };
    switch.get(b"hot", Stamp::NONE);
    switch.get(b"cold", forged);
    switch.put(b"hot", forged);
    for node in [2, 3] {
        switch.confirm(node, 1, 1);
        switch.confirm(node, 1, 2);
    }
    for key in [b"hot", b"cld", b"hot"] {
        switch.get(key, forged);
    }
    switch.put(b"hot", Stamp::NONE);
    switch.get(b"hot", Stamp::NONE);
    switch.confirm(2, 1, 3);
    switch.router.hot_mut().set_now(LEASE_NS);
    (0..3).for_each(|_| drop(switch.get(b"hot", forged)));
    switch.log
}

#[test]
fn every_plant_shows() {
    let honest = run(None);
    for plant in [
        Plant::HotEntryStartsOpen,
        Plant::StampBelieved,
        Plant::SeenNotCounted,
        Plant::HotLeaseIgnored,
        Plant::HotKeyNotCompared,
    ] {
        assert_ne!(run(Some(plant)), honest, "{plant:?}");
    }
}
