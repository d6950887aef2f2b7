//! Real hosts talk through the switch. They have addresses, and their kernels verify checksums.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};

use nicekv_switch::{Backend as _, Counter, Table};
use nicekv_switch_fixtures::{frames, host, tables};

use nicekv_proto::Opcode;

use super::at_both;
use super::namespaces::RECEIVE_TIMEOUT;
use super::{Lab, OBJECT};

pub(super) const CLIENT_MAC: [u8; 6] = [0x02, 0, 0, 0, 0x08, 0x01];
pub(super) const CLIENT_IP: [u8; 4] = [10, 0, 0, 100];
pub(super) const PORT: u16 = 7000;

pub(super) fn udp_socket() -> UdpSocket {
    let socket = UdpSocket::bind(("0.0.0.0", PORT)).unwrap();
    socket.set_read_timeout(Some(RECEIVE_TIMEOUT)).unwrap();
    socket
}

#[test]
fn hosts_talk_through_the_switch() {
    at_both("hosts_talk_through_the_switch", |hook| {
        let mut lab = Lab::new(OBJECT, hook);
        lab.xdp.install(&tables()).unwrap();
        let client = lab.network.give_host(0, CLIENT_IP, CLIENT_MAC);
        let replicas = [1, 2, 3].map(|id| lab.network.give_host(id, host(id).ip, host(id).mac));

        // Traffic that is not for a vring: ARP or neighbour discovery, then TCP, over IPv4 and
        // IPv6.
        for (any, port) in [("0.0.0.0", PORT), ("::", PORT + 1)] {
            let listener = replicas[0].run(|| TcpListener::bind((any, port)).unwrap());
            let address = if any == "::" { "fd00::1" } else { "10.0.0.1" };
            let mut from = client.run(|| TcpStream::connect((address, port)).unwrap());
            let mut to = listener.accept().unwrap().0;
            let sent: Vec<u8> = (0..100_000u32).map(|number| number as u8).collect();
            let mut received = vec![0; sent.len()];
            std::thread::scope(|scope| {
                scope.spawn(|| from.write_all(&sent).unwrap());
                to.read_exact(&mut received).unwrap();
            });
            assert!(received == sent, "TCP to {address}");
        }

        let sockets = replicas.each_ref().map(|replica| replica.run(udp_socket));
        let client = client.run(udp_socket);
        let get = frames::message(Opcode::Get, b"get");
        let put = frames::message(Opcode::Update, b"put");
        let decision = frames::message(Opcode::Decisions, b"a decision");
        let next = frames::message(Opcode::Get, b"the next");
        let mut bytes = [0; 128];
        client.send_to(&get, ("10.10.0.1", PORT)).unwrap();
        let (length, from) = sockets[0].recv_from(&mut bytes).unwrap();
        assert_eq!((&bytes[..length], from.to_string()), (&get[..], "10.0.0.100:7000".into()));
        sockets[0].send_to(b"value", from).unwrap();
        assert_eq!(client.recv(&mut bytes).unwrap(), 5);

        client.send_to(&put, ("10.11.0.1", PORT)).unwrap();
        for socket in &sockets {
            assert_eq!(socket.recv(&mut bytes).unwrap(), put.len());
        }
        // The primary sends its decision to the other members. The next datagram that it receives
        // proves that it got no copy.
        sockets[0].send_to(&decision, ("10.11.0.1", PORT)).unwrap();
        for socket in &sockets[1..] {
            assert_eq!(socket.recv(&mut bytes).unwrap(), decision.len());
        }
        client.send_to(&next, ("10.10.0.1", PORT)).unwrap();
        assert_eq!(sockets[0].recv(&mut bytes).unwrap(), next.len());

        let counters = lab.xdp.counters().unwrap();
        assert_eq!(counters.get(Counter::Hits(Table::Unicast)), 2);
        assert_eq!(counters.get(Counter::MulticastCopies), 5);
        assert_eq!((counters.get(Counter::VringMiss), counters.get(Counter::Malformed)), (0, 0));
    });
}
