//! Datagrams through real sockets on the loopback interface.

use nicekv_runtime::{Left, Message, UdpEndpoint, readable, wait};
use std::net::{Ipv4Addr, SocketAddrV4};

fn endpoint(ip: [u8; 4]) -> UdpEndpoint {
    UdpEndpoint::bind(SocketAddrV4::new(Ipv4Addr::from(ip), 0)).unwrap()
}

fn receive(endpoint: &mut UdpEndpoint, count: usize) -> Vec<(SocketAddrV4, Vec<u8>)> {
    let mut received = Vec::new();
    while received.len() < count {
        wait(&mut [readable(endpoint)], None).unwrap();
        endpoint.receive(|message| received.push((message.from, message.bytes.to_vec()))).unwrap();
    }
    received
}

fn send(endpoint: &mut UdpEndpoint, datagrams: &[Vec<u8>], to: SocketAddrV4) {
    let mut left = datagrams.iter();
    endpoint
        .send_with(|out| {
            out.extend_from_slice(left.next()?);
            Some(to)
        })
        .unwrap();
}

#[test]
fn batches_arrive_in_order_with_their_sender() {
    let (mut one, mut other) = (endpoint([127, 0, 0, 1]), endpoint([127, 0, 0, 2]));
    let datagrams: Vec<Vec<u8>> = (0..150u32).map(|count| vec![count as u8; count as usize]).collect();
    send(&mut one, &datagrams, other.local_address());
    let received = receive(&mut other, datagrams.len());
    assert!(received.iter().all(|(from, _)| *from == one.local_address()));
    assert!(received.iter().map(|(_, bytes)| bytes).eq(&datagrams));
    assert_eq!((one.counters().sent, one.counters().lost, other.counters().received), (150, 0, 150));
}

#[test]
fn single_datagrams_are_received_with_few_extra_slots() {
    let (mut one, mut other) = (endpoint([127, 0, 0, 1]), endpoint([127, 0, 0, 2]));
    let take = |other: &mut UdpEndpoint| {
        let mut count = 0;
        let left = other.receive(|_| count += 1).unwrap();
        (count, left)
    };
    let lone: Vec<_> = (0..16)
        .map(|_| {
            send(&mut one, &[vec![1]], other.local_address());
            take(&mut other)
        })
        .collect();
    let looked = lone.iter().filter(|seen| **seen == (1, Left::Nothing)).count();
    assert!(lone.iter().all(|(count, left)| *count == 1 && *left != Left::More), "{lone:?}");
    assert_eq!(looked, 3, "the first two and the ninth of {lone:?}");
    send(&mut one, &(1..40).map(|length| vec![2; length]).collect::<Vec<_>>(), other.local_address());
    let taken: Vec<_> = (0..20).map(|_| take(&mut other)).take_while(|seen| seen.0 > 0).collect();
    assert_eq!(taken.iter().map(|(count, _)| count).sum::<usize>(), 39, "datagrams are missing: {taken:?}");
    assert!(taken.len() < 12, "calls do not request more messages again: {taken:?}");
}

/// Callers send and receive single datagrams: GSO and GRO batches are visible to the kernel only.
#[test]
fn datagrams_of_several_lengths_and_destinations_arrive_whole() {
    let mut from = endpoint([127, 0, 0, 1]);
    let mut others = [endpoint([127, 0, 0, 2]), endpoint([127, 0, 0, 3])];
    let datagrams: Vec<(usize, Vec<u8>)> =
        (0..300usize).map(|count| (count % 2, vec![count as u8; [64, 1472, 0, 64, 90][count % 5]])).collect();
    let mut left = datagrams.iter();
    let addresses = others.each_ref().map(UdpEndpoint::local_address);
    from.send_with(|out| {
        let (other, bytes) = left.next()?;
        out.extend_from_slice(bytes);
        Some(addresses[*other])
    })
    .unwrap();
    for (number, other) in others.iter_mut().enumerate() {
        let mut expected: Vec<_> =
            datagrams.iter().filter(|(to, _)| *to == number).map(|(_, bytes)| bytes.clone()).collect();
        let mut received: Vec<_> =
            receive(other, expected.len()).into_iter().map(|(_, bytes)| bytes).collect();
        expected.sort();
        received.sort();
        assert!(expected == received, "endpoint {number}");
        assert_eq!(other.counters().too_long, 0);
    }
    assert_eq!((from.counters().sent, from.counters().lost), (300, 0));
}

#[test]
fn oversized_datagrams_are_dropped_and_losses_counted() {
    let (mut one, mut other) = (endpoint([127, 0, 0, 1]), endpoint([127, 0, 0, 2]));
    send(&mut one, &[vec![1; 1473], vec![2; 9000], vec![3; 1472]], other.local_address());
    assert_eq!(receive(&mut other, 1), [(one.local_address(), vec![3; 1472])]);
    assert_eq!(other.counters().too_long, 2);
    // A forged reply address may name such destinations. The kernel refuses them, and the endpoint
    // continues.
    let nobody = [Ipv4Addr::BROADCAST, Ipv4Addr::new(127, 255, 255, 255), Ipv4Addr::new(240, 0, 0, 1)];
    send(&mut one, &[vec![1]], SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 3), 0));
    for ip in nobody {
        send(&mut one, &[vec![1]], SocketAddrV4::new(ip, 7));
    }
    assert!(
        (2..=4).contains(&one.counters().lost),
        "port 0 and broadcasts are refused: {:?}",
        one.counters()
    );
}

#[test]
fn switch_socket_reports_destinations_and_copies_datagrams() {
    let mut switch = UdpEndpoint::bind_switch("lo", 0).unwrap();
    let port = switch.local_address().port();
    assert!(UdpEndpoint::bind_switch("lo", port).is_err(), "a second switch is refused");
    switch.share_port(true).unwrap();
    let node =
        |last| UdpEndpoint::bind_beside_switch(SocketAddrV4::new(Ipv4Addr::new(127, 20, 0, last), port));
    let mut nodes = [node(1).unwrap(), node(2).unwrap()];
    assert!(node(1).is_err(), "a second process on a node's address is refused");
    switch.share_port(false).unwrap();
    assert!(node(3).is_err(), "the port is closed to others once the cluster has started");

    let vnode = Ipv4Addr::new(127, 11, 3, 4);
    let mut client = endpoint([127, 0, 0, 1]);
    send(&mut client, &[vec![7; 100]], SocketAddrV4::new(vnode, port));
    wait(&mut [readable(&switch)], None).unwrap();
    let members = nodes.each_ref().map(UdpEndpoint::local_address);
    switch
        .forward(|Message { from, destination, bytes }, forward| {
            assert_eq!((from, destination), (client.local_address(), Some(vnode)));
            bytes[0] = 9;
            forward(members[1], Some(bytes));
            bytes[0] = 8;
            members.into_iter().for_each(|member| forward(member, None));
        })
        .unwrap();
    for (node, expected) in nodes.iter_mut().zip([&[8][..], &[9, 8]]) {
        let received = receive(node, expected.len());
        assert!(received.iter().all(|(_, bytes)| bytes.len() == 100));
        assert!(received.iter().map(|(_, bytes)| bytes[0]).eq(expected.iter().copied()));
    }
}

#[test]
fn batch_reports_whether_more_may_follow() {
    let (mut one, mut other) = (endpoint([127, 0, 0, 1]), endpoint([127, 0, 0, 2]));
    for count in [1, 7, 8, 9, 63, 64, 65, 150] {
        send(&mut one, &vec![vec![1]; count], other.local_address());
        wait(&mut [readable(&other)], None).unwrap();
        let (mut received, mut batches) = (0, 1);
        while other.receive(|_| received += 1).unwrap() != Left::Nothing {
            batches += 1;
            assert!(batches <= count + 1, "more batches than datagrams");
        }
        assert_eq!(received, count);
    }
}

#[test]
fn switch_forwards_the_longest_datagram_and_nothing_longer() {
    let mut switch = UdpEndpoint::bind_switch("lo", 0).unwrap();
    let vnode = SocketAddrV4::new(Ipv4Addr::new(127, 11, 3, 4), switch.local_address().port());
    let (mut client, mut node) = (endpoint([127, 0, 0, 1]), endpoint([127, 0, 0, 2]));
    send(&mut client, &[vec![1; 1473], vec![2; 1472]], vnode);
    let to = node.local_address();
    let mut passed_on = 0;
    while passed_on == 0 {
        wait(&mut [readable(&switch)], None).unwrap();
        let left = switch
            .forward(|_, forward| {
                passed_on += 1;
                forward(to, None);
            })
            .unwrap();
        assert_eq!(left, Left::Nothing);
    }
    assert_eq!(receive(&mut node, 1)[0].1, vec![2; 1472]);
    let counters = switch.counters();
    assert_eq!((counters.received, counters.too_long, counters.sent, counters.lost), (2, 1, 1, 0));
}
