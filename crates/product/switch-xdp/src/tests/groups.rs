//! The ring of groups: random tables, full tables, and GSO batches of chunks between real hosts.

use std::net::UdpSocket;

use nicekv_proto::Opcode;
use nicekv_switch::{
    Backend as _, Counter, HostId, MemberSet, MulticastEntry, Prefix, TableSet, masked_entry, subset_entries,
};
use nicekv_switch_fixtures::{frames, group_ring, host, tables};
use proptest::prelude::*;

use super::hosts::{CLIENT_IP, CLIENT_MAC, PORT, udp_socket};
use super::namespaces::{RECEIVE_TIMEOUT, as_root, enable_gso};
use super::{Lab, OBJECT, TC_DROP, TC_REDIRECT, at_both};
use crate::Hook;

/// Number of places in the groups of [`any_entries`].
const PLACES: usize = 5;

pub(super) fn to_vnodes(destination: Prefix, members: impl IntoIterator<Item = u16>) -> MulticastEntry {
    let members = MemberSet::new(members.into_iter().map(HostId));
    MulticastEntry { destination, members, chain: None, places: None }
}

/// A masked entry for a group of hosts 1 to 3, some of which may be missing, and entries for some
/// subsets of this group and another one.
pub(super) fn any_entries() -> impl Strategy<Value = Vec<MulticastEntry>> {
    let order = Just([Some(1), Some(2), Some(3), None, None]).prop_shuffle();
    let members = prop::collection::btree_set(1u16..=3, 1..=3);
    let subsets = prop::collection::btree_map((1u8..=2, 0u16..1 << PLACES), members, 0..4);
    (order, 0u16..8, subsets).prop_map(|(order, away, subsets)| {
        let there = |id: &u16| away >> id & 1 == 0;
        let order = order.map(|id| id.filter(there).map(HostId));
        let address = |(group, mask)| Prefix::new(group_ring().address(group, mask).ip().octets(), 32);
        let subsets = subsets.into_iter().map(|(at, members)| to_vnodes(address(at), members));
        masked_entry(&group_ring(), 1, &order).into_iter().chain(subsets).collect()
    })
}

/// Datagrams for every mask of both groups.
pub(super) fn probes() -> impl Iterator<Item = Vec<u8>> {
    let masks = || 0..1u16 << PLACES;
    let all = masks().map(|mask| (1, mask)).chain(masks().step_by(3).map(|mask| (2, mask)));
    all.map(|(group, mask)| frames::Udp::request(group_ring().address(group, mask).ip().octets()).build())
}

#[test]
fn full_table_of_subsets_is_replaced() {
    as_root("full_table_of_subsets_is_replaced", || {
        let mut lab = Lab::new(OBJECT, Hook::Tc);
        // 31 groups of nine places. Each has three hosts, so subsets without any of them get no
        // entry.
        let order = |first: usize| {
            let mut order = [None; 9];
            (1..=3).for_each(|id| order[(first + usize::from(id)) % 9] = Some(HostId(id)));
            order
        };
        let subsets = |first: u8| -> Vec<MulticastEntry> {
            let groups =
                (first..first + 31).map(|group| subset_entries(&group_ring(), group, &order(group.into())));
            groups.flatten().collect()
        };
        let send = |lab: &mut Lab, group: u8, mask: u16| {
            let sent = frames::Udp::request(group_ring().address(group, mask).ip().octets()).build();
            let frames = lab.send(0, &sent).frames;
            frames.iter().map(|(port, _)| *port).collect::<Vec<u16>>()
        };
        for (generation, first) in [(1, 0), (2, 100), (3, 0)] {
            lab.xdp.install(&TableSet { generation, multicast: subsets(first), ..tables() }).unwrap();
            let other = 100 - first;
            let place = |id: u8| 1 << ((usize::from(first) + usize::from(id)) % 9);
            assert_eq!(send(&mut lab, first, place(2)), [2]);
            assert_eq!(send(&mut lab, first, place(1) | place(3)), [1, 3]);
            assert_eq!(send(&mut lab, first, 0xfff), [1, 2, 3]);
            assert!(send(&mut lab, other, 0xfff).is_empty(), "a group of the previous generation");
        }
    });
}

/// A chunk with `bytes` bytes of data. The mask in its header is zero and must be ignored.
fn chunk(number: u8, bytes: usize) -> Vec<u8> {
    let head = [0, 0, 0, number, 0, 0, 0, 0];
    frames::message(Opcode::Chunk, &[&head[..], &vec![number; bytes]].concat())
}

#[test]
fn gso_batch_for_some_members_is_routed_whole() {
    as_root("gso_batch_for_some_members_is_routed_whole", || {
        let mut lab = Lab::new(OBJECT, Hook::Tc);
        lab.xdp.install(&tables()).unwrap();
        let mut forged = chunk(2, 100);
        forged[3] = Opcode::Decisions as u8;
        for (name, second, mask, expected) in [
            ("to two", chunk(1, 100), 0b1100, (TC_REDIRECT, 0, 2)),
            ("to one", chunk(1, 100), 0b0001, (TC_REDIRECT, 0, 1)),
            ("to no member", chunk(1, 100), 0b0010, (TC_DROP, 0, 0)),
            ("another message behind the chunk", forged, 0b1100, (TC_DROP, 1, 0)),
        ] {
            let payload = [chunk(0, 100), second].concat();
            let to = group_ring().address(1, mask).ip().octets();
            let frame = frames::Udp { payload, ..frames::Udp::request(to) }.build();
            let before = lab.xdp.counters().unwrap();
            let verdict = lab.test_run_gso(0, &frame, chunk(0, 100).len() as u32).0;
            let counted = lab.xdp.counters().unwrap().since(&before);
            let copies = counted.get(Counter::MulticastCopies);
            assert_eq!((verdict, counted.get(Counter::VringRefused), copies), expected, "{name}");
        }
    });
}

#[test]
fn gso_batch_of_chunks_arrives_at_the_addressed_targets() {
    at_both("gso_batch_of_chunks_arrives_at_the_addressed_targets", |hook| {
        const CHUNKS: u8 = 40;
        let mut lab = Lab::with_cutter(hook);
        lab.xdp.install(&tables()).unwrap();
        lab.network.disable_segmentation(0);
        let client = lab.network.give_host(0, CLIENT_IP, CLIENT_MAC);
        let replicas = [1, 2, 3].map(|id| lab.network.give_host(id, host(id).ip, host(id).mac));
        let target = || {
            let socket = UdpSocket::bind(("0.0.0.0", frames::TARGET_PORT)).unwrap();
            socket.set_read_timeout(Some(RECEIVE_TIMEOUT)).unwrap();
            socket
        };
        let sockets = replicas.each_ref().map(|replica| replica.run(target));
        let client = client.run(udp_socket);
        let sent: Vec<Vec<u8>> = (0..CHUNKS).map(|number| chunk(number, 1_000)).collect();
        let end = chunk(CHUNKS, 3);
        enable_gso(&client, sent[0].len());
        // A batch to hosts 1 and 2, in places 2 and 3, then one datagram to all.
        let to = |mask| (group_ring().address(1, mask).ip().to_owned(), PORT);
        client.send_to(&sent.concat(), to(0b1100)).unwrap();
        client.send_to(&end, to(0xfff)).unwrap();
        let mut bytes = [0; 2_000];
        for (socket, is_meant) in sockets.iter().zip([true, true, false]) {
            let mut received: Vec<Vec<u8>> = Vec::new();
            for _ in 0..if is_meant { sent.len() + 1 } else { 1 } {
                let length = socket.recv(&mut bytes).unwrap();
                received.push(bytes[..length].to_vec());
            }
            // The single datagram may overtake a batch that is still being reassembled.
            received.sort_by_key(|datagram| datagram == &end);
            let expected: Vec<&Vec<u8>> = sent.iter().filter(|_| is_meant).chain([&end]).collect();
            assert!(received.iter().eq(expected), "{} datagrams", received.len());
        }
        let copies = lab.xdp.counters().unwrap().get(Counter::MulticastCopies);
        let most = if hook == Hook::Tc { 2 + 3 } else { 2 * u64::from(CHUNKS) + 3 };
        assert!(copies <= most, "a batch is copied as a whole: {copies} copies");
    });
}
