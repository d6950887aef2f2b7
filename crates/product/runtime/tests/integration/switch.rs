//! The user-space switch: the controller installs tables over TCP, and datagrams follow them.

use nicekv_proto::placement::{GroupRing, Vrings, key_digest};
use nicekv_proto::{ClientId, Get, HeaderLayout, KeyspaceId, OpId, Opcode};
use nicekv_runtime::control_plane::{CONTROL_LIMITS, Greeting, Role};
use nicekv_runtime::{
    AgentLink, FramedStream, Stop, TermFile, UdpEndpoint, UserSpaceSwitch, accept, listen, readable, wait,
};
use nicekv_store::{DataDirectory, Expected, Files, RealFiles};
use nicekv_switch::control::{ControlReply, ControlRequest, decode, encode};
use nicekv_switch::{
    Counter, Host, HostId, HostRole, MemberSet, MulticastEntry, Prefix, TableSet, UnicastEntry, VringConfig,
    VringSet, masked_entry,
};
use nicekv_switch_fixtures::frames;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::Path;
use std::sync::Arc;

const RINGS: VringConfig =
    VringConfig { unicast: Prefix::new([127, 10, 0, 0], 16), multicast: Prefix::new([127, 11, 0, 0], 16) };

/// Tables of three hosts, which all receive at `port`: gets go to host 2, updates to all three.
fn tables(generation: u64, port: u16) -> TableSet {
    let host = |last: u8| Host {
        id: HostId(last.into()),
        role: HostRole::Node,
        ip: [127, 20, 0, last],
        udp_port: port,
        mac: [2, 0, 0, 0, 0, last],
        port: last.into(),
        is_remote: false,
    };
    TableSet {
        generation,
        trunks: vec![],
        hosts: vec![host(1), host(2), host(3)],
        unicast: vec![UnicastEntry {
            destination: RINGS.unicast,
            partition: 0,
            host: HostId(2),
            chain: None,
        }],
        division: vec![],
        multicast: vec![MulticastEntry {
            destination: RINGS.multicast,
            members: MemberSet::new([1, 2, 3].map(HostId)),
            chain: None,
            places: None,
        }],
        record: vec![],
    }
}

/// Sends a control request to the switch's agent, and returns the answer.
fn ask(stream: &mut FramedStream, request: &ControlRequest) -> ControlReply {
    stream.queue(&encode(request).unwrap()).unwrap();
    stream.flush().unwrap();
    let mut frames = Vec::new();
    while frames.is_empty() {
        wait(&mut [stream.interest()], None).unwrap();
        stream.receive(|frame| frames.push(decode(frame).unwrap())).unwrap();
    }
    frames.pop().unwrap()
}

fn greeted(listener: &std::net::TcpListener) -> FramedStream {
    wait(&mut [readable(listener)], None).unwrap();
    let mut stream = FramedStream::new(accept(listener).unwrap().unwrap(), CONTROL_LIMITS);
    let mut greeting = None;
    while greeting.is_none() {
        wait(&mut [stream.interest()], None).unwrap();
        stream.receive(|frame| greeting = Some(Greeting::decode(frame).unwrap())).unwrap();
    }
    assert_eq!(greeting.unwrap().role, Role::Switch { name: "switch".into() });
    stream
}

/// Receives the next datagram. Returns its bytes and its reply address.
fn receive(endpoint: &mut UdpEndpoint) -> (Vec<u8>, Option<SocketAddrV4>) {
    let mut received = None;
    while received.is_none() {
        wait(&mut [readable(endpoint)], None).unwrap();
        endpoint.receive(|message| received = Some(message.bytes.to_vec())).unwrap();
    }
    let bytes = received.unwrap();
    let reply_to = HeaderLayout::peek(&bytes).unwrap().reply_to();
    (bytes, reply_to)
}

fn send(endpoint: &mut UdpEndpoint, bytes: &[u8], to: SocketAddrV4) {
    let mut once = Some(to);
    endpoint
        .send_with(|out| {
            out.extend_from_slice(bytes);
            once.take()
        })
        .unwrap();
}

#[test]
fn datagrams_follow_the_installed_tables() {
    let listener = listen(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
    let SocketAddr::V4(metadata) = listener.local_addr().unwrap() else { panic!("IPv4") };
    let endpoint = UdpEndpoint::bind_switch("lo", 0).unwrap();
    let port = endpoint.local_address().port();
    endpoint.share_port(true).unwrap();
    let mut nodes = [1, 2, 3].map(|last| {
        UdpEndpoint::bind_beside_switch(SocketAddrV4::new(Ipv4Addr::new(127, 20, 0, last), port)).unwrap()
    });
    endpoint.share_port(false).unwrap();
    let stop = Stop::new();
    let switch = UserSpaceSwitch::new(endpoint, RINGS, AgentLink::new("switch", &[metadata]), None).unwrap();
    let thread = {
        let stop = stop.clone();
        std::thread::spawn(move || switch.run(&stop))
    };

    // The agent dials again after its stream was broken.
    drop(greeted(&listener));
    let mut controller = greeted(&listener);
    let install = ControlRequest::Install { term: 1, tables: tables(1, port) };
    assert_eq!(ask(&mut controller, &install), ControlReply::Installed { term: 1, generation: 1 });

    let vrings = Vrings::on_loopback(port);
    let digest = key_digest(b"color");
    let op = OpId { client: ClientId(1), sequence: 1 };
    let mut bytes = Vec::new();
    Get {
        keyspace: KeyspaceId::DEFAULT,
        op,
        digest,
        reply_to: None,
        forwarded: None,
        key: b"color",
        padding: 0,
    }
    .encode(&mut bytes);

    let mut client = UdpEndpoint::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
    send(&mut client, &bytes, vrings.unicast_address(&digest));
    assert_eq!(receive(&mut nodes[1]).1, Some(client.local_address()), "the client's address is stamped");
    let update = frames::message(Opcode::Update, b"an update");
    send(&mut client, &update, vrings.multicast_address(&digest));
    for node in &mut nodes {
        assert_eq!(receive(node).1, Some(client.local_address()));
    }
    // Decisions from a member go to the other members, without a stamp. Decisions from a client are
    // dropped.
    let decisions = frames::message(Opcode::Decisions, b"a decision");
    send(&mut client, &decisions, vrings.multicast_address(&digest));
    send(&mut nodes[0], &decisions, vrings.multicast_address(&digest));
    assert_eq!(receive(&mut nodes[1]), (decisions.clone(), None));
    assert_eq!(receive(&mut nodes[2]), (decisions.clone(), None));
    let first = nodes[0].local_address();
    send(&mut nodes[1], &bytes, first);
    assert_eq!(receive(&mut nodes[0]).0, bytes, "node 0 got the client's decisions, or its own");

    let ControlReply::Status { tables, counters, .. } =
        ask(&mut controller, &ControlRequest::Status { term: 1 })
    else {
        panic!("unexpected answer to Status")
    };
    let hits: Vec<_> = tables.iter().map(|table| (table.name.as_str(), table.hits)).collect();
    assert_eq!(hits, [("unicast_vring", 1), ("division", 0), ("multicast_vring", 2), ("record", 0)]);
    assert_eq!(counters.get(Counter::OpcodeRefused), 1);
    stop.stop();
    thread.join().unwrap().unwrap();
}

#[test]
fn group_subset_reaches_its_targets() {
    let listener = listen(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
    let SocketAddr::V4(metadata) = listener.local_addr().unwrap() else { panic!("IPv4") };
    let endpoint = UdpEndpoint::bind_switch("lo", 0).unwrap();
    let port = endpoint.local_address().port();
    let bind =
        |last, port| UdpEndpoint::bind(SocketAddrV4::new(Ipv4Addr::new(127, 20, 0, last), port)).unwrap();
    // All targets receive at the same port, which differs from the nodes' port on the same hosts.
    let first = bind(1, 0);
    let target_port = first.local_address().port();
    let mut targets = [first, bind(2, target_port), bind(3, target_port)];
    let ring = GroupRing { target_port, ..GroupRing::on_loopback(port) };
    let vrings = VringSet::new([RINGS]).unwrap().with_group(ring).unwrap();
    let stop = Stop::new();
    let switch = UserSpaceSwitch::new(endpoint, vrings, AgentLink::new("switch", &[metadata]), None).unwrap();
    let thread = {
        let stop = stop.clone();
        std::thread::spawn(move || switch.run(&stop))
    };
    let mut controller = greeted(&listener);
    let mut tables = tables(1, port);
    tables.multicast.extend(masked_entry(&ring, 200, &[3, 1, 2].map(|id| Some(HostId(id)))));
    let install = ControlRequest::Install { term: 1, tables };
    assert_eq!(ask(&mut controller, &install), ControlReply::Installed { term: 1, generation: 1 });

    let client = UdpEndpoint::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
    // Two senders: a client on another host, and one on the host of a target.
    let mut senders = [client, bind(1, 0)];
    let chunk = |body: &[u8]| frames::message(Opcode::Chunk, body);
    // The masks select: hosts 3 and 1; all hosts, without the sender's own; hosts 1 and 2; no
    // existing host; host 2.
    for (sender, mask, receivers) in [
        (0, 0b011, &[2, 0][..]),
        (1, 0xfff, &[1, 2]),
        (0, 0b110, &[0, 1]),
        (0, 0b1000, &[]),
        (0, 0b100, &[1]),
    ] {
        let sender: &mut UdpEndpoint = &mut senders[sender];
        let (sent, from) = (chunk(&u32::from(mask).to_be_bytes().repeat(3)), sender.local_address());
        send(sender, &sent, ring.address(200, mask));
        for receiver in receivers {
            let (received, reply_to) = receive(&mut targets[*receiver]);
            assert_eq!((received.len(), reply_to), (sent.len(), Some(from)));
            assert_eq!(received[sent.len() - 12..], sent[sent.len() - 12..], "mask {mask:#b}");
        }
    }
    let status = ask(&mut controller, &ControlRequest::Status { term: 1 });
    let ControlReply::Status { counters, .. } = status else { panic!("{status:?}") };
    let counted = [Counter::MulticastCopies, Counter::VringMiss].map(|counter| counters.get(counter));
    assert_eq!(counted, [7, 1]);
    stop.stop();
    thread.join().unwrap().unwrap();
}

fn term_file(path: &Path) -> TermFile {
    let files: Arc<dyn Files> = Arc::new(RealFiles);
    let expected =
        Expected { cluster_id: Some(1), owner: "switch", cluster_id_if_new: 1, storage_id_if_new: 2 };
    TermFile::open(files.clone(), DataDirectory::open(&files, path, expected).unwrap()).unwrap()
}

#[test]
fn restarted_switch_is_empty_and_refuses_older_controllers() {
    let directory = tempfile::tempdir().unwrap();
    let listener = listen(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
    let SocketAddr::V4(metadata) = listener.local_addr().unwrap() else { panic!("IPv4") };
    let life = |scene: &mut dyn FnMut(&mut FramedStream)| {
        let (stop, link) = (Stop::new(), AgentLink::new("switch", &[metadata]));
        let endpoint = UdpEndpoint::bind_switch("lo", 0).unwrap();
        let memory = Some(term_file(directory.path()));
        let switch = UserSpaceSwitch::new(endpoint, RINGS, link, memory).unwrap();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| switch.run(&stop).unwrap());
            scene(&mut greeted(&listener));
            stop.stop();
            thread.join().unwrap();
        });
    };
    let install = |term| ControlRequest::Install { term, tables: tables(1, 7400) };
    life(&mut |controller| {
        assert_eq!(ask(controller, &install(5)), ControlReply::Installed { term: 5, generation: 1 });
    });
    life(&mut |controller| {
        assert_eq!(ask(controller, &install(4)), ControlReply::Refused { current_term: 5 });
        let status = ask(controller, &ControlRequest::Status { term: 5 });
        assert!(matches!(status, ControlReply::Status { term: 5, generation: None, .. }), "{status:?}");
        assert_eq!(ask(controller, &install(6)), ControlReply::Installed { term: 6, generation: 1 });
    });
    life(&mut |controller| {
        assert_eq!(ask(controller, &install(5)), ControlReply::Refused { current_term: 6 });
    });
}
