//! Edge switches: the pipeline runs inside of hosts, on a network without NICEKV switches.

use std::net::UdpSocket;

use nicekv_proto::Opcode;
use nicekv_switch::{Backend as _, Counter, Verdict};
use nicekv_switch_fixtures::{PORTS, cases, frames, host, tables, vrings};

use super::namespaces::{Namespace, Network, RECEIVE_TIMEOUT, as_root, enable_gso};
use super::{Lab, OBJECT, assert_none, check_by_test_run};
use crate::{Hook, KernelSwitch, Port, XdpError};

const CLIENT: u16 = 0;
const CLIENT_MAC: [u8; 6] = [0x02, 0, 0, 0, 0x08, 0x01];
const CLIENT_IP: [u8; 4] = [10, 0, 0, 100];
const WIRE_PORT: u16 = 7000;

/// An edge passes all fixtures except those in which a switch learns or floods.
#[test]
fn fixtures_at_an_edge_by_test_run() {
    as_root("fixtures_at_an_edge_by_test_run", || {
        for own in PORTS {
            let hook_of = |port| if port == own { Hook::Tc } else { Hook::None };
            let mut lab = Lab::of_hooks(OBJECT, Hook::Tc, hook_of);
            let fixtures = cases::all().into_iter().filter(|fixture| {
                let is_for_edges = matches!(
                    fixture.expected.verdict,
                    Verdict::Dropped | Verdict::Routed | Verdict::Multicast
                );
                is_for_edges && fixture.ingress == own && fixture.learned.is_empty()
            });
            assert_none(&lab.run(&fixtures.collect::<Vec<_>>(), &tables(), check_by_test_run));
        }
    });
}

/// A host on a plain network, with its edge switch.
struct EdgeHost {
    edge: KernelSwitch,
    host: Namespace,
    socket: UdpSocket,
}

impl EdgeHost {
    fn new(network: &Network, port: u16, ip: [u8; 4], mac: [u8; 6]) -> Self {
        let host = network.give_host(port, ip, mac);
        let (inner, outer) = host.add_edge_link(port, mac);
        let sending = |index| Port { index, ifindex: outer, hook: Hook::None, is_trunk: false };
        let ports: Vec<Port> = PORTS
            .map(|index| {
                let own = Port { index, ifindex: inner, hook: Hook::Auto, is_trunk: false };
                if index == port { own } else { sending(index) }
            })
            .collect();
        let (edge, socket) = host.run(|| {
            let mut edge = KernelSwitch::load(vrings(), mac, &ports).unwrap();
            edge.install(&tables()).unwrap();
            let socket = UdpSocket::bind(("0.0.0.0", WIRE_PORT)).unwrap();
            socket.set_read_timeout(Some(RECEIVE_TIMEOUT)).unwrap();
            (edge, socket)
        });
        assert!(edge.hooks().eq([(port, Hook::Tc)]));
        Self { edge, host, socket }
    }

    fn send(&self, message: &[u8], to: &str) {
        self.socket.send_to(message, (to, WIRE_PORT)).unwrap();
    }

    #[track_caller]
    fn expect(&self, message: &[u8], from: [u8; 4]) {
        let mut bytes = [0; 256];
        let (length, sender) = self.socket.recv_from(&mut bytes).unwrap();
        assert_eq!((&bytes[..length], sender.ip()), (message, from.into()));
    }
}

#[test]
fn hosts_with_edges_talk_over_a_plain_network() {
    as_root("hosts_with_edges_talk_over_a_plain_network", || {
        let network = Network::enter(PORTS.end, |_| Hook::Tc);
        network.bridge();
        let client = EdgeHost::new(&network, CLIENT, CLIENT_IP, CLIENT_MAC);
        let nodes = [1, 2, 3].map(|id| EdgeHost::new(&network, id, host(id).ip, host(id).mac));
        let get = frames::message(Opcode::Get, b"get");
        let put = frames::message(Opcode::Update, b"put");
        let decision = frames::message(Opcode::Decisions, b"a decision");
        let next = frames::message(Opcode::Get, b"the next");
        let last = frames::message(Opcode::Get, b"end");

        client.send(&get, "10.10.0.1");
        nodes[0].expect(&get, CLIENT_IP);
        nodes[0].send(b"value", "10.0.0.100");
        client.expect(b"value", host(1).ip);
        client.send(&put, "10.11.0.1");
        nodes.iter().for_each(|node| node.expect(&put, CLIENT_IP));
        // The primary sends its decision to the other members. The next datagram that it receives,
        // from itself, proves that it got no copy.
        nodes[0].send(&decision, "10.11.0.1");
        nodes[1..].iter().for_each(|node| node.expect(&decision, host(1).ip));
        nodes[0].send(&next, "10.10.0.1");
        nodes[0].expect(&next, host(1).ip);

        // An opcode that clients may not send does not leave their host, and the datagrams of a GSO
        // batch are separated before they are checked.
        client.send(&decision, "10.11.0.1");
        assert_eq!(client.edge.counters().unwrap().get(Counter::OpcodeRefused), 1);
        enable_gso(&client.socket, get.len());
        client.send(&[&get[..], &get, &get].concat(), "10.10.0.1");
        (0..3).for_each(|_| nodes[0].expect(&get, CLIENT_IP));

        // Without its edge switch a host reaches nobody by the vrings, and all other addresses as
        // before.
        let EdgeHost { edge, host: namespace, socket } = client;
        drop(edge);
        socket.send_to(&get, ("10.10.0.1", WIRE_PORT)).unwrap();
        socket.send_to(&last, ("10.0.0.1", WIRE_PORT)).unwrap();
        nodes[0].expect(&last, CLIENT_IP);
        drop(namespace);
    });
}

#[test]
fn edge_switch_uses_tc() {
    let ports = [(0, 1, Hook::Xdp), (1, 2, Hook::None)];
    let ports = ports.map(|(index, ifindex, hook)| Port { index, ifindex, hook, is_trunk: false });
    let error = KernelSwitch::load(vrings(), CLIENT_MAC, &ports).err().expect("must fail");
    assert!(matches!(error, XdpError::SharedAtXdp { index: 0 }), "{error}");
}
