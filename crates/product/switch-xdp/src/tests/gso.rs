//! GSO batches of datagrams are segmented, except for chunks with the same receivers.

use nicekv_proto::Opcode;
use nicekv_switch::{Backend as _, Counter, Table};
use nicekv_switch_fixtures::{frames, host, tables};

use super::hosts::{CLIENT_IP, CLIENT_MAC, PORT, udp_socket};
use super::namespaces::{as_root, enable_gso};
use super::{Lab, OBJECT, TC_DROP, TC_REDIRECT, at_both};
use crate::Hook;

/// A vnode of host 1 and one of host 2.
const VNODES: [[u8; 2]; 2] = [[0, 1], [1, 1]];

/// The datagrams of a batch may be different messages for different receivers, and the first header
/// does not describe the others.
#[test]
fn gso_batch_for_a_vring_or_server_is_dropped_without_a_segmenter() {
    as_root("gso_batch_for_a_vring_or_server_is_dropped_without_a_segmenter", || {
        let mut lab = Lab::new(OBJECT, Hook::Tc);
        lab.xdp.install(&tables()).unwrap();
        let to_server =
            frames::Udp { destination_port: frames::STORE_PORT, ..frames::Udp::request([10, 0, 0, 1]) };
        let to_client = frames::Udp { destination: [10, 0, 8, 1], ..to_server.clone() };
        for (frame, alone, batch, counter) in [
            (frames::Udp::request([10, 10, 0, 1]), TC_REDIRECT, TC_DROP, Counter::VringRefused),
            (frames::Udp::request([10, 11, 0, 1]), TC_REDIRECT, TC_DROP, Counter::VringRefused),
            (to_server, TC_DROP, TC_DROP, Counter::OpcodeRefused),
            (to_client, TC_DROP, TC_DROP, Counter::Flooded),
        ] {
            let frame = frame.build();
            let (before, payload_bytes) = (lab.xdp.counters().unwrap(), frame.len() as u32 - 42);
            assert_eq!(lab.test_run(0, &frame).0, alone);
            let single = lab.xdp.counters().unwrap();
            assert_eq!(lab.test_run_gso(0, &frame, payload_bytes / 2).0, batch);
            let counted = lab.xdp.counters().unwrap().since(&single);
            assert_eq!(counted.get(counter), 1, "{}", counter.name());
            assert_eq!(single.since(&before).get(counter), u64::from(counter == Counter::Flooded));
        }
    });
}

/// A chunk with this mask and `bytes` bytes of data.
fn chunk(number: u8, mask: u16, bytes: usize) -> Vec<u8> {
    let [upper, lower] = mask.to_be_bytes();
    let head = [0, 0, 0, number, upper, lower, 0, 0];
    frames::message(Opcode::Chunk, &[&head[..], &vec![number; bytes]].concat())
}

#[test]
fn only_batches_of_equal_chunks_are_routed_whole() {
    as_root("only_batches_of_equal_chunks_are_routed_whole", || {
        let mut lab = Lab::new(OBJECT, Hook::Tc);
        lab.xdp.install(&tables()).unwrap();
        let length = chunk(0, 1, 100).len();
        let mut forged = chunk(2, u16::MAX, 100);
        forged[3] = Opcode::Decisions as u8;
        for (name, rest, routed) in [
            ("alike", vec![chunk(1, u16::MAX, 100), chunk(2, u16::MAX, 100)], true),
            ("the last one shorter", vec![chunk(1, u16::MAX, 100), chunk(2, u16::MAX, 10)], true),
            ("another mask", vec![chunk(1, u16::MAX, 100), chunk(2, 1, 100)], false),
            ("another message behind the chunks", vec![chunk(1, u16::MAX, 100), forged], false),
            ("trailing bytes", vec![chunk(1, u16::MAX, 100), vec![7; 20]], false),
            ("many", vec![chunk(1, u16::MAX, 100); 20], true),
        ] {
            let payload = [vec![chunk(0, u16::MAX, 100)], rest].concat().concat();
            let frame = frames::Udp { payload, ..frames::Udp::request([10, 11, 0, 1]) }.build();
            let before = lab.xdp.counters().unwrap();
            let verdict = lab.test_run_gso(0, &frame, length as u32).0;
            let counted = lab.xdp.counters().unwrap().since(&before);
            let expected = if routed { (TC_REDIRECT, 0, 3) } else { (TC_DROP, 1, 0) };
            let copies = counted.get(Counter::MulticastCopies);
            assert_eq!((verdict, counted.get(Counter::VringRefused), copies), expected, "{name}");
        }
    });
}

#[test]
fn gso_batch_of_chunks_arrives_once_at_each_receiver() {
    at_both("gso_batch_of_chunks_arrives_once_at_each_receiver", |hook| {
        const CHUNKS: u8 = 40;
        let mut lab = Lab::with_cutter(hook);
        lab.xdp.install(&tables()).unwrap();
        lab.network.disable_segmentation(0);
        let client = lab.network.give_host(0, CLIENT_IP, CLIENT_MAC);
        let replicas = [1, 2, 3].map(|id| lab.network.give_host(id, host(id).ip, host(id).mac));
        let sockets = replicas.each_ref().map(|replica| replica.run(udp_socket));
        let client = client.run(udp_socket);
        // The chunks go to the first and the third host, then one datagram to all.
        let sent: Vec<Vec<u8>> = (0..CHUNKS).map(|number| chunk(number, 1 << 1 | 1 << 3, 1_000)).collect();
        let end = frames::message(Opcode::Update, b"the end");
        enable_gso(&client, sent[0].len());
        client.send_to(&sent.concat(), ("10.11.0.1", PORT)).unwrap();
        client.send_to(&end, ("10.11.0.1", PORT)).unwrap();
        let mut bytes = [0; 2_000];
        for (socket, is_meant) in sockets.iter().zip([true, false, true]) {
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

/// Offset of the digest in a header.
const DIGEST_AT: usize = 32;

/// The sender's end of the link segments the batch, or the switch does.
#[test]
fn segmented_datagrams_are_routed_by_their_own_headers() {
    at_both("segmented_datagrams_are_routed_by_their_own_headers", |hook| {
        send_mixed(Lab::new(OBJECT, hook));
        if hook == Hook::Tc {
            let lab = Lab::with_cutter(hook);
            lab.network.disable_segmentation(0);
            send_mixed(lab);
        }
    });
}

fn send_mixed(mut lab: Lab) {
    const DATAGRAMS: usize = 24;
    lab.xdp.install(&tables()).unwrap();
    let client = lab.network.give_host(0, CLIENT_IP, CLIENT_MAC);
    let replicas = [1, 2].map(|id| lab.network.give_host(id, host(id).ip, host(id).mac));
    let sockets = replicas.each_ref().map(|replica| replica.run(udp_socket));
    let client = client.run(udp_socket);
    // Datagrams alternately for the vnodes of both hosts, each with its number at the end.
    let datagram = |number: usize| {
        let mut message = frames::message(Opcode::Get, &[0, 0, 0, 0, 0, 0, 0, number as u8]);
        message[DIGEST_AT..DIGEST_AT + 2].copy_from_slice(&VNODES[number % 2]);
        message
    };
    enable_gso(&client, datagram(0).len());
    let batch: Vec<u8> = (0..DATAGRAMS).flat_map(datagram).collect();
    client.send_to(&batch, ("10.10.0.0", PORT)).unwrap();
    let mut bytes = [0; 128];
    for (host, socket) in sockets.iter().enumerate() {
        for number in (host..DATAGRAMS).step_by(2) {
            let length = socket.recv(&mut bytes).unwrap();
            assert_eq!(bytes[..length], datagram(number), "datagram {number} at host {}", host + 1);
        }
    }
    let counters = lab.xdp.counters().unwrap();
    assert_eq!(counters.get(Counter::Hits(Table::Unicast)), DATAGRAMS as u64);
}
