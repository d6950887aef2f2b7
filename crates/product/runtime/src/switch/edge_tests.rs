use super::*;
use crate::{now, readable, wait};
use nicekv_proto::hot::{HotConfirm, HotLease, HotValue, Stamp};
use nicekv_proto::placement::key_digest;
use nicekv_proto::route::leave_room_for_stamp;
use nicekv_proto::{ClientId, Condition, Datagram, Get, KeyspaceId, OpId, Operation, Update};
use nicekv_switch::{
    Counter, Host, HostId, HostRole, MemberSet, MulticastEntry, Prefix, UnicastEntry, VringConfig,
};
use std::net::Ipv4Addr;
use std::sync::mpsc;
use std::time::Duration;

const VRINGS: VringConfig = VringConfig::DEFAULT;

/// Endpoints of two nodes and of a sender, and the routers of a switch without tables.
fn world() -> ([UdpEndpoint; 2], UdpEndpoint, EdgeRouters) {
    let bind = |last| UdpEndpoint::bind(SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, last), 0)).unwrap();
    ([bind(1), bind(2)], bind(1), EdgeRouters::new(Router::new(VRINGS).unwrap()))
}

/// Tables that send gets to node `reader`, and updates to both nodes.
fn tables(generation: u64, nodes: &[UdpEndpoint; 2], reader: u16) -> TableSet {
    let host = |(index, node): (usize, &UdpEndpoint)| Host {
        id: HostId(index as u16),
        role: HostRole::Node,
        // Hosts need different addresses; the loopback interface has all of 127.0.0.0/8.
        ip: [127, 0, 0, 1 + index as u8],
        udp_port: node.local_address().port(),
        mac: [2, 0, 0, 0, 0, index as u8],
        port: index as u16,
        is_remote: false,
    };
    let ring = |address: Prefix| Prefix::new(address.first().to_be_bytes(), 17);
    TableSet {
        generation,
        trunks: vec![],
        hosts: nodes.iter().enumerate().map(host).collect(),
        unicast: vec![UnicastEntry {
            destination: ring(VRINGS.unicast),
            partition: 0,
            host: HostId(reader),
            chain: None,
        }],
        division: vec![],
        multicast: vec![MulticastEntry {
            destination: ring(VRINGS.multicast),
            members: MemberSet::new([0, 1].map(HostId)),
            chain: None,
            places: None,
        }],
        record: vec![],
    }
}

const CLIENT: ClientId = ClientId(1 << 32);

fn get(out: &mut Vec<u8>) -> Option<SocketAddrV4> {
    let (op, key) = (OpId { client: CLIENT, sequence: 1 }, b"color".as_slice());
    let digest = key_digest(key);
    out.clear();
    Get { keyspace: KeyspaceId::DEFAULT, op, digest, reply_to: None, forwarded: None, key, padding: 0 }
        .encode(out);
    Some(SocketAddrV4::new(Ipv4Addr::new(10, 10, 0, 7), 7400))
}

fn update(out: &mut Vec<u8>) -> Option<SocketAddrV4> {
    let (op, key) = (OpId { client: CLIENT, sequence: 2 }, b"color".as_slice());
    let (digest, keyspace) = (key_digest(key), KeyspaceId::DEFAULT);
    let (condition, operation) = (Condition::Always, Operation::Delete);
    out.clear();
    Update {
        keyspace,
        op,
        digest,
        reply_to: None,
        watermark: 1,
        condition,
        return_old: false,
        operation,
        key,
    }
    .encode(out);
    Some(SocketAddrV4::new(Ipv4Addr::new(10, 11, 0, 7), 7400))
}

type Write = fn(&mut Vec<u8>) -> Option<SocketAddrV4>;

fn send(edge: &mut Edge, endpoint: &mut UdpEndpoint, datagrams: &[Write]) {
    let mut datagrams = datagrams.iter();
    edge.send_with(endpoint, |out| datagrams.next().and_then(|write| write(out))).unwrap();
}

/// For each datagram that has arrived: its sender and its reply address.
fn arrived(node: &mut UdpEndpoint) -> Vec<(SocketAddrV4, Option<SocketAddrV4>)> {
    let mut all = Vec::new();
    node.receive(|message| {
        let reply_to = match Datagram::decode(message.bytes).unwrap().1 {
            Datagram::Get(get) => get.reply_to,
            Datagram::Update(update) => update.reply_to,
            other => panic!("{other:?}"),
        };
        all.push((message.from, reply_to));
    })
    .unwrap();
    all
}

#[test]
fn edge_sends_directly_to_hosts_in_its_tables() {
    let (mut nodes, mut endpoint, mut routers) = world();
    let mut edge = routers.edges().attach(&endpoint).unwrap();
    send(&mut edge, &mut endpoint, &[get, update]);
    assert_eq!(nodes.each_mut().map(arrived), [vec![], vec![]], "without tables an edge drops everything");
    routers.install(&tables(1, &nodes, 1)).unwrap();
    send(&mut edge, &mut endpoint, &[get, update, get]);
    let own = endpoint.local_address();
    let datagram = (own, Some(own));
    assert_eq!(nodes.each_mut().map(arrived), [vec![datagram], vec![datagram; 3]]);
    // An edge that is attached later has the installed tables, and counters of all edges are
    // summed.
    let mut late = routers.edges().attach(&endpoint).unwrap();
    send(&mut late, &mut endpoint, &[get as Write; ROUTED_MAX + 1]);
    assert_eq!(endpoint.counters().sent, 4 + ROUTED_MAX as u64 + 1);
    assert_eq!(routers.entry_hits(Table::Unicast).unwrap(), [2 + ROUTED_MAX as u64 + 1]);
    let counters = routers.counters().unwrap();
    assert_eq!([Counter::VringMiss, Counter::MulticastCopies].map(|counter| counters.get(counter)), [2, 2]);
}

#[test]
fn refused_tables_change_nothing_and_updates_reach_all_edges() {
    let (mut nodes, mut endpoint, mut routers) = world();
    let mut edge = routers.edges().attach(&endpoint).unwrap();
    routers.install(&tables(1, &nodes, 0)).unwrap();
    assert!(routers.install(&tables(2, &nodes, 7)).is_err(), "tables without host 7 were accepted");
    send(&mut edge, &mut endpoint, &[get]);
    assert_eq!(nodes.each_mut().map(arrived).map(|all| all.len()), [1, 0]);
    let update = TableUpdate::between(&tables(1, &nodes, 0), &tables(2, &nodes, 1)).unwrap();
    routers.update(&update).unwrap();
    send(&mut edge, &mut endpoint, &[get]);
    assert_eq!(nodes.each_mut().map(arrived).map(|all| all.len()), [0, 1]);
}

#[test]
fn tables_are_acknowledged_once_no_edge_uses_older_ones() {
    let (nodes, mut endpoint, mut routers) = world();
    let mut edge = routers.edges().attach(&endpoint).unwrap();
    routers.install(&tables(1, &nodes, 0)).unwrap();
    let router = edge.router.clone();
    let mut datagrams = [get as Write; 2 * ROUTED_MAX].iter();
    edge.send_with(&mut endpoint, |out| {
        // The edge takes its lock after the first datagram was written, and holds it while further
        // ones are written, matched and sent.
        let is_first = datagrams.len() == 2 * ROUTED_MAX;
        assert_eq!(router.try_lock().is_err(), !is_first, "{} are left", datagrams.len());
        datagrams.next().and_then(|write| write(out))
    })
    .unwrap();
    let sending = router.lock().unwrap();
    std::thread::scope(|scope| {
        let (installed, is_installed) = mpsc::channel();
        let (routers, next) = (&mut routers, tables(2, &nodes, 1));
        scope.spawn(move || {
            routers.install(&next).unwrap();
            installed.send(()).unwrap();
        });
        let early = is_installed.recv_timeout(Duration::from_millis(20));
        assert!(early.is_err(), "acknowledged while an edge sends by the old tables");
        drop(sending);
        is_installed.recv().unwrap();
    });
    assert_eq!(router.lock().unwrap().tables(), Some(&tables(2, &nodes, 1)));
}

#[test]
fn edges_of_a_stopped_switch_send_nothing() {
    let (mut nodes, mut endpoint, mut routers) = world();
    let mut edge = routers.edges().attach(&endpoint).unwrap();
    routers.install(&tables(1, &nodes, 0)).unwrap();
    let edges = routers.edges();
    drop(routers);
    let mut late = edges.attach(&endpoint).unwrap();
    send(&mut edge, &mut endpoint, &[get, update]);
    send(&mut late, &mut endpoint, &[get, update]);
    assert_eq!(nodes.each_mut().map(arrived), [vec![], vec![]]);
}

#[test]
fn edge_needs_an_address_and_edges_are_bounded() {
    let (_, endpoint, routers) = world();
    let edges = routers.edges();
    let unspecified = UdpEndpoint::bind(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    assert!(edges.attach(&unspecified).is_err());
    let attached: Vec<_> = (0..EDGES_MAX).map(|_| edges.attach(&endpoint).unwrap()).collect();
    assert!(
        edges.attach(&endpoint).unwrap_err().to_string().contains(&format!("there are {}", attached.len()))
    );
}

#[test]
fn hot_key_messages_go_to_the_switch() {
    let ring = |second| Prefix::new([127, second, 0, 0], 16);
    let vrings = VringConfig { unicast: ring(10), multicast: ring(11) };
    let bind = |[a, b, c, d]: [u8; 4]| UdpEndpoint::bind(SocketAddrV4::new([a, b, c, d].into(), 0)).unwrap();
    let (mut switch, mut sender) = (bind([127, 10, 0, 7]), bind([127, 0, 0, 1]));
    let edges = EdgeRouters::new(Router::new(vrings).unwrap()).edges();
    let mut edge = edges.attach(&sender).unwrap();
    let to = switch.local_address();
    // An edge without tables sends no datagrams of its own.
    let (mut left, mut with_room) = (5, Vec::new());
    let (keyspace, digest) = (KeyspaceId::DEFAULT, key_digest(b"color"));
    let stamp = Stamp { instance: 9, seen: 1 };
    edge.send_with(&mut sender, |out| {
        left -= 1;
        match left {
            4 => drop(get(out)),
            3 => {
                get(out);
                leave_room_for_stamp(out);
                with_room.clone_from(out);
            }
            2 => {
                out.clear();
                HotConfirm { keyspace, digest, stamp }.encode(out);
            }
            1 => {
                out.clear();
                let reply = &[0; 40];
                HotValue { keyspace, digest, stamp, serial: 1, key: b"color", reply }.encode(out);
            }
            0 => {
                out.clear();
                HotLease { keyspace, digest, nonce: 1, until_ns: 2, serial: 1 }.encode(out);
            }
            _ => return None,
        }
        Some(to)
    })
    .unwrap();
    let mut received = Vec::new();
    while received.len() < 4 {
        let mut descriptors = [readable(&switch)];
        assert!(wait(&mut descriptors, Some(now().after(Duration::from_secs(5)))).is_ok());
        let before = received.len();
        switch.receive(|message| received.push(message.bytes.to_vec())).unwrap();
        assert!(received.len() > before, "no datagram has arrived: {received:?}");
    }
    assert_eq!(received[0], with_room, "the switch receives it unchanged");
    assert!(matches!(Datagram::decode(&received[1]), Ok((_, Datagram::HotConfirm(_)))));
    assert!(matches!(Datagram::decode(&received[2]), Ok((_, Datagram::HotValue(_)))));
    assert!(matches!(Datagram::decode(&received[3]), Ok((_, Datagram::HotLease(_)))));
}
