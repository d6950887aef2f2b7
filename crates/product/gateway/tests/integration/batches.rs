//! The requests of one read leave in few datagrams: gets of one partition share a datagram.

use crate::support;

use nicekv_client::{Config, Keyspace};
use nicekv_gateway::{Gateway, GatewayConfig};
use nicekv_proto::placement::Vrings;
use nicekv_proto::{Datagram, Duration};
use nicekv_runtime::{Stop, UdpEndpoint, new_client_id};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};
use support::{Resp, request};

const PARTITION_BITS: u32 = 2;
const KEYS: usize = 64;

/// The number of requests in each datagram that the gateway sends when a connection sends these
/// bytes. Nobody answers the datagrams.
fn requests_of_each_datagram(bytes: &[u8]) -> Vec<usize> {
    use std::io::Write;
    // Bound to every address: all vnodes of 127.10/16 and 127.11/16 lead to this socket.
    let network = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    let vrings = Vrings::on_loopback(network.local_addr().unwrap().port());
    let keyspace = Keyspace { partition_bits: Some(PARTITION_BITS), ..vrings.into() };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let uplink = UdpEndpoint::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
    let config = GatewayConfig {
        timeout: Duration::from_secs(60),
        ..GatewayConfig::new(Config::new(new_client_id().unwrap(), keyspace))
    };
    let gateway = Gateway::new(listener, uplink, config).unwrap();
    let stop = Stop::new();
    let mut counts = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| gateway.run(&stop).unwrap());
        let mut connection = Resp::connect(address);
        connection.stream.write_all(bytes).unwrap();
        let mut buffer = [0; 65_536];
        while counts.iter().sum::<usize>() < KEYS {
            let (count, _) = network.recv_from(&mut buffer).unwrap();
            counts.push(match Datagram::decode(&buffer[..count]).unwrap() {
                (header, Datagram::Bundle(bundle)) => bundle.datagrams(&header).count(),
                _ => 1,
            });
        }
        stop.stop();
    });
    counts
}

fn keys() -> Vec<Vec<u8>> {
    (0..KEYS).map(|number| format!("key{number}").into_bytes()).collect()
}

fn check(bytes: &[u8]) {
    let counts = requests_of_each_datagram(bytes);
    assert_eq!(counts.iter().sum::<usize>(), KEYS, "each once: {counts:?}");
    // One datagram for each partition, and one more where they do not fit.
    assert!(counts.len() <= 2 << PARTITION_BITS, "{counts:?}");
}

#[test]
fn a_pipeline_of_gets_leaves_in_few_datagrams() {
    check(&keys().iter().flat_map(|key| request(&[b"GET", key])).collect::<Vec<_>>());
}

#[test]
fn a_command_on_many_keys_leaves_in_few_datagrams() {
    let keys = keys();
    for name in ["MGET", "DEL", "EXISTS"] {
        let words: Vec<&[u8]> = [name.as_bytes()].into_iter().chain(keys.iter().map(Vec::as_slice)).collect();
        check(&request(&words));
    }
    let pairs = keys.iter().flat_map(|key| [key.as_slice(), b"v"]);
    check(&request(&[&b"MSET"[..]].into_iter().chain(pairs).collect::<Vec<_>>()));
}
