//! Requests of hot keys at a switch behind a socket, and their counts.

use alloc::string::{String, ToString};
use alloc::{format, vec};
use core::net::{Ipv4Addr, SocketAddrV4};

use nicekv_proto::hot::{HotClose, HotConfirm};
use nicekv_proto::route::{Room, leave_room_for_stamp, room_for_stamp, take_room};
use nicekv_proto::{
    ClientId, Condition, Datagram, Expiry, Get, KeyDigest, KeyspaceId, OpId, Operation, Update,
};

use super::detection::HotCandidate;
use super::*;
use crate::{
    Backend, BackendError, Counter, DatagramVerdict, Hop, Host, HotConfig, Ingress, MemberSet,
    MulticastEntry, Prefix, Ring, Router, TableSet, UnicastEntry, VringConfig,
};

const KEYSPACE: KeyspaceId = KeyspaceId(3);
const DIGEST: KeyDigest = KeyDigest([5; 16]);
const COLD: KeyDigest = KeyDigest([6; 16]);
const CLIENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 9, 9), 4000);
const NONE: &str = "Some(1) Some((0, 0))";

fn host(id: u16) -> Host {
    Host { is_remote: id == 4, ..Host::node(id) }
}

fn entry(instance: u64) -> HotEntry {
    HotEntry {
        keyspace: 3,
        digest: DIGEST.0,
        instance,
        owner_turns: 1,
        holders: vec![HostId(2), HostId(3)],
        in_switch: false,
    }
}

fn tables(generation: u64, hosts: impl Iterator<Item = u16>) -> TableSet {
    let (ring, multicast) = (Prefix::new([10, 10, 0, 0], 16), Prefix::new([10, 11, 0, 0], 16));
    let unicast = vec![UnicastEntry { destination: ring, partition: 0, host: HostId(1), chain: None }];
    let members = MemberSet::new([HostId(1)]);
    let multicast = vec![MulticastEntry { destination: multicast, members, chain: None, places: None }];
    TableSet {
        generation,
        hosts: hosts.map(host).collect(),
        trunks: vec![4],
        unicast,
        multicast,
        ..TableSet::default()
    }
}

/// A switch with three nodes: node 1 owns every key, nodes 2 and 3 hold copies of the hot key.
struct Switch {
    router: Router,
}

impl Switch {
    fn new() -> Self {
        let mut router = Router::new(VringConfig::DEFAULT).unwrap();
        router.install(&tables(1, 1..5)).unwrap();
        router.change_hot(false, &[], &[entry(1)]).unwrap();
        Self { router }
    }

    /// Sends a datagram to a vring; returns its receiver and its stamp.
    fn send(&mut self, from: SocketAddrV4, ring: Ring, mut bytes: Vec<u8>) -> String {
        let to =
            SocketAddrV4::new(Ipv4Addr::new(10, if ring == Ring::Unicast { 10 } else { 11 }, 5, 5), 7000);
        let receiver = match self.router.process(0, Ingress::Socket, from, to, &mut bytes) {
            DatagramVerdict::Unicast(hop) => format!("{:?}", hop.host().map(|host| host.0)),
            DatagramVerdict::Multicast(mut hops) => {
                format!("{:?}", hops.next().and_then(Hop::host).map(|host| host.0))
            }
            DatagramVerdict::Dropped => "dropped".to_string(),
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
        format!("{receiver} {stamp:?}")
    }

    fn get(&mut self, digest: KeyDigest, forged: Stamp) -> String {
        let bytes = with_room(|out| get(digest).encode(out), forged);
        self.send(CLIENT, Ring::Unicast, bytes)
    }

    fn gets(&mut self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.get(DIGEST, Stamp { instance: 1, seen: 1 })).collect()
    }

    fn put(&mut self, digest: KeyDigest, forged: Stamp) -> String {
        let bytes = with_room(|out| put(digest).encode(out), forged);
        self.send(CLIENT, Ring::Multicast, bytes)
    }

    /// Sends a get and a put without room for a stamp.
    fn plain(&mut self, digest: KeyDigest) -> [String; 2] {
        let (mut get_bytes, mut put_bytes) = (Vec::new(), Vec::new());
        get(digest).encode(&mut get_bytes);
        put(digest).encode(&mut put_bytes);
        [self.send(CLIENT, Ring::Unicast, get_bytes), self.send(CLIENT, Ring::Multicast, put_bytes)]
    }

    fn confirm(&mut self, node: u16, instance: u64, seen: u64) -> String {
        let mut bytes = Vec::new();
        let stamp = Stamp { instance, seen };
        HotConfirm { keyspace: KEYSPACE, digest: DIGEST, stamp }.encode(&mut bytes);
        self.send(address(node), Ring::Multicast, bytes)
    }

    /// Sends a close of copies with labels up to `seen`.
    fn close(&mut self, from: SocketAddrV4, (instance, seen): (u64, u64)) -> String {
        let mut bytes = Vec::new();
        HotClose { keyspace: KEYSPACE, digest: DIGEST, stamp: Stamp { instance, seen } }.encode(&mut bytes);
        self.send(from, Ring::Unicast, bytes)
    }

    fn spread(&mut self) {
        let config = HotConfig { keyspaces: vec![9, 3], keys_max: 8, stages: 2, seed: 7 };
        self.router.set_hot(&config).unwrap();
    }

    fn counted(&self, counter: Counter) -> u64 {
        self.router.counters().unwrap().get(counter)
    }
}

fn address(node: u16) -> SocketAddrV4 {
    SocketAddrV4::new(host(node).ip.into(), 7000)
}

fn op() -> OpId {
    OpId { client: ClientId(7), sequence: 9 }
}

fn get(digest: KeyDigest) -> Get<'static> {
    Get { keyspace: KEYSPACE, op: op(), digest, reply_to: None, forwarded: None, key: b"k", padding: 0 }
}

fn put(digest: KeyDigest) -> Update<'static> {
    let operation = Operation::Set { value: b"value", expiry: Expiry::Never };
    let (condition, return_old, watermark) = (Condition::Always, false, 4);
    let (keyspace, op, reply_to, key) = (KEYSPACE, op(), None, b"k");
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
fn entry_starts_closed_opens_by_confirmation_and_closes_by_update() {
    let mut switch = Switch::new();
    let forged = Stamp { instance: 1, seen: 1 };
    assert_eq!(switch.gets(3), [NONE; 3], "H1");
    assert_eq!(switch.put(DIGEST, forged), "Some(1) Some((1, 2))", "H2");
    switch.confirm(2, 1, 1);
    assert_eq!(switch.gets(3), [NONE; 3], "a copy from before the update");
    switch.confirm(2, 1, 2);
    let (two, three) = ("Some(2) Some((1, 2))", "Some(3) Some((1, 2))");
    assert_eq!(switch.gets(6), [two, two, NONE, two, two, NONE], "node 2 takes the turns of node 3");
    switch.confirm(3, 1, 2);
    assert_eq!(switch.gets(4), [two, three, NONE, two]);
    switch.confirm(2, 1, 0);
    assert_eq!(switch.gets(3), [three, NONE, three], "node 2 has lost its copy");
    assert_eq!(
        switch.close(address(1), (1, 1)),
        "Some(1) Some((1, 2))",
        "H4: seen is already above the label"
    );
    assert_eq!(switch.gets(3), [three, NONE, three], "the copy of node 3 stays valid");
    assert_eq!(switch.close(address(1), (1, 2)), "Some(1) Some((1, 3))", "H4: the close counts");
    assert_eq!(switch.gets(3), [NONE; 3]);
    assert_eq!(switch.counted(Counter::HotRedirected), 11);
}

#[test]
fn owner_turns_take_the_default_route_and_missing_hosts_are_skipped() {
    let mut switch = Switch::new();
    switch.router.change_hot(false, &[], &[HotEntry { owner_turns: 3, ..entry(2) }]).unwrap();
    switch.confirm(2, 2, 1);
    switch.confirm(3, 2, 1);
    let (two, three) = ("Some(2) Some((2, 1))", "Some(3) Some((2, 1))");
    assert_eq!(switch.gets(6), [two, three, NONE, NONE, NONE, two]);
    switch.router.install(&tables(2, [1, 3, 4].into_iter())).unwrap();
    assert_eq!(switch.gets(5), [three, NONE, NONE, NONE, three]);
    switch.router.install(&tables(3, 1..5)).unwrap();
    assert_eq!(switch.gets(1), [three]);
    switch.gets(3);
    assert_eq!(switch.gets(1), [two], "node 2 is attached again, and its copy was never closed");
}

#[test]
fn only_holders_confirm_and_only_seen_numbers_of_this_instance() {
    let mut switch = Switch::new();
    for (node, instance, seen) in [(1, 1, 1), (2, 2, 1), (2, 1, 2), (4, 1, 1)] {
        assert_eq!(switch.confirm(node, instance, seen), "dropped None");
    }
    let mut forged = Vec::new();
    let stamp = Stamp { instance: 1, seen: 1 };
    HotConfirm { keyspace: KEYSPACE, digest: DIGEST, stamp }.encode(&mut forged);
    switch.send(CLIENT, Ring::Unicast, forged);
    assert_eq!(switch.gets(6), [NONE; 6]);
    assert_eq!(switch.close(CLIENT, (1, 7)), "dropped None");
    assert_eq!(switch.router.hot().seen(1), Some(1));
    let counted = [Counter::HotConfirmed, Counter::HotClosed, Counter::HotUnheard, Counter::OpcodeRefused];
    assert_eq!(counted.map(|counter| switch.counted(counter)), [0, 0, 4, 2]);
}

#[test]
fn removed_instance_is_closed_for_good_and_unknown_instance_gets_no_answer() {
    let mut switch = Switch::new();
    assert_eq!(switch.close(address(3), (2, 7)), "dropped None");
    switch.router.change_hot(false, &[], &[entry(2)]).unwrap();
    let gone = format!("Some(3) Some((1, {HOT_GONE}))");
    assert_eq!(switch.close(address(3), (1, 7)), gone, "instance 1 was replaced");
    assert_eq!(switch.close(address(3), (2, 7)), "Some(3) Some((2, 2))");
    switch.router.change_hot(true, &[], &[]).unwrap();
    assert_eq!(switch.router.hot().entries().count(), 0);
    assert_eq!(switch.close(address(3), (1, 7)), gone);
    let gone = format!("Some(3) Some((2, {HOT_GONE}))");
    assert_eq!(switch.close(address(3), (2, 7)), gone);
    assert_eq!(switch.close(address(3), (3, 7)), "dropped None");
    assert_eq!(switch.router.hot().newest(), 2, "a new controller continues after that");
}

#[test]
fn stamp_sent_to_a_server_directly_is_dropped() {
    let mut switch = Switch::new();
    let mut bytes = with_room(|out| get(DIGEST).encode(out), Stamp { instance: 1, seen: 1 });
    let verdict = switch.router.process(0, Ingress::Socket, CLIENT, address(2), &mut bytes);
    assert!(matches!(verdict, DatagramVerdict::Dropped), "{verdict:?}");
}

#[test]
fn change_is_refused_as_a_whole() {
    let mut switch = Switch::new();
    let holders =
        |holders: &[u16]| HotEntry { holders: holders.iter().copied().map(HostId).collect(), ..entry(3) };
    let many: Vec<u16> = (0..32).collect();
    let bad = |holder| HotError::BadHolder { instance: 3, holder: HostId(holder) };
    for (wrong, error) in [
        (HotEntry { owner_turns: 0, ..entry(3) }, HotError::OwnerTurns { instance: 3, turns: 0 }),
        (HotEntry { owner_turns: 17, ..entry(3) }, HotError::OwnerTurns { instance: 3, turns: 17 }),
        (HotEntry { owner_turns: 2, ..entry(1) }, HotError::InstanceUsed { instance: 1, newest: 1 }),
        (entry(1), HotError::InstanceUsed { instance: 1, newest: 1 }),
        (entry(0), HotError::InstanceUsed { instance: 0, newest: 1 }),
        (holders(&many), HotError::Holders { instance: 3, holders: 32 }),
        (holders(&[9]), bad(9)),
        (holders(&[4]), bad(4)),
        (holders(&[2, 2]), bad(2)),
    ] {
        let refused = switch.router.change_hot(false, &[1], &[wrong]);
        assert_eq!(refused, Err(BackendError::HotRefused(error)));
    }
    let all = (0..=HOT_CAPACITY as u64).map(|instance| {
        let mut digest = [0; 16];
        digest[..8].copy_from_slice(&instance.to_be_bytes());
        HotEntry { digest, ..entry(instance + 2) }
    });
    let all: Vec<_> = all.collect();
    let full = HotError::Full { entries: HOT_CAPACITY + 1 };
    for (clear, set) in [(false, &all[1..]), (true, &all[..])] {
        assert_eq!(switch.router.change_hot(clear, &[], set), Err(full.clone().into()));
    }
    assert_eq!(switch.router.hot().entries().collect::<Vec<_>>(), [&entry(1)]);
    switch.router.change_hot(false, &[1], &all[1..]).unwrap();
    assert!(switch.router.change_hot(false, &[], &[entry(1)]).is_err(), "H1: an instance is installed once");
}

#[test]
fn registers_belong_to_the_instance() {
    let mut switch = Switch::new();
    switch.put(DIGEST, Stamp::NONE);
    switch.router.change_hot(false, &[], &[entry(1)]).unwrap();
    assert_eq!(switch.router.hot().seen(1), Some(2), "installing the same entry again keeps its registers");
    switch.router.install(&tables(2, 1..5)).unwrap();
    assert_eq!(switch.router.hot().seen(1), Some(2), "other tables do not change the registers");
    switch.router.change_hot(false, &[], &[entry(2)]).unwrap();
    assert_eq!((switch.router.hot().seen(1), switch.router.hot().seen(2)), (None, Some(1)));
}

#[test]
fn candidates_are_reported_once_and_other_counts_accumulate() {
    let mut switch = Switch::new();
    let loads = |one, two| vec![(HostId(1), one), (HostId(2), two), (HostId(3), 0)];
    let _ = (switch.gets(1), switch.plain(DIGEST), switch.put(COLD, Stamp::NONE));
    let reading = switch.router.read_hot().unwrap();
    assert_eq!(
        reading.entries,
        [HotCount { instance: 1, requests: 1, answered: 0 }],
        "requests without room count only in a keyspace that spreads"
    );
    assert_eq!((reading.newest, reading.candidates.len(), reading.loads), (1, 0, loads(0, 0)));

    switch.spread();
    switch.confirm(2, 1, 1);
    assert_eq!(switch.gets(2), ["Some(2) Some((1, 1))", NONE]);
    assert_eq!(switch.plain(DIGEST)[0], "Some(1) None");
    assert_eq!(switch.router.hot().seen(1), Some(2), "requests without room count too");
    let _ = (switch.get(COLD, Stamp::NONE), switch.put(COLD, Stamp::NONE), switch.plain(COLD));
    switch.spread();
    let reading = switch.router.read_hot().unwrap();
    assert_eq!(reading.entries, [HotCount { instance: 1, requests: 5, answered: 0 }]);
    assert_eq!(reading.candidates, [HotCandidate { keyspace: 3, digest: COLD.0, count: 4 }]);
    assert_eq!((reading.dropped, reading.loads), (0, loads(7, 1)));
    let reading = switch.router.read_hot().unwrap();
    assert_eq!(
        (reading.candidates.len(), reading.loads),
        (0, loads(7, 1)),
        "candidates are counted anew after each reading"
    );

    let wrong = HotConfig { stages: 0, ..HotConfig::default() };
    assert!(matches!(switch.router.set_hot(&wrong), Err(BackendError::HotConfigRefused(_))));
    switch.router.set_hot(&HotConfig::default()).unwrap();
    switch.get(COLD, Stamp::NONE);
    let reading = switch.router.read_hot().unwrap();
    assert_eq!((reading.candidates.len(), reading.loads), (0, loads(7, 1)), "detection is off again");
}
