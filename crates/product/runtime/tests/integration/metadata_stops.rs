//! A metadata service that cannot persist a step stops, and has sent no message that depends on the
//! step (R13).

use nicekv_metadata::{
    Balancing, Config, LINK_BITS_PER_SECOND, Metadata, NodeConfig, StateStore, SwitchId, Timing,
};
use nicekv_proto::control::{DiskSpace, Heartbeat};
use nicekv_proto::placement::{KeyspaceDefaults, KeyspaceSpec, RingsBase};
use nicekv_proto::{KeyspaceId, NodeId};
use nicekv_runtime::metadata::{MetadataError, MetadataService};
use nicekv_runtime::{Stop, UdpEndpoint, now};
use std::net::UdpSocket;

#[derive(Debug, thiserror::Error)]
#[error("another metadata service leads")]
struct Conflict;

/// A store whose compare-and-swap always fails, as if another service had taken over.
struct TakenOver;

impl StateStore for TakenOver {
    type Error = Conflict;

    fn load(&mut self) -> Result<Option<Vec<u8>>, Conflict> {
        Ok(None)
    }

    fn compare_and_swap(&mut self, _: u64, _: &[u8]) -> Result<(), Conflict> {
        Err(Conflict)
    }

    fn exclusive_until_ns(&self) -> u64 {
        u64::MAX
    }
}

#[test]
fn a_leader_whose_compare_and_swap_fails_stops_at_once() {
    let node = UdpSocket::bind("127.0.0.1:0").unwrap();
    let std::net::SocketAddr::V4(address) = node.local_addr().unwrap() else { panic!("bound to IPv4") };
    let config = Config {
        cluster: 7,
        nodes: vec![NodeConfig {
            id: NodeId(1),
            name: "node-1".into(),
            address,
            mac: [2; 6],
            switch_port: 1,
            home: None,
        }],
        keyspaces: vec![KeyspaceSpec::of(&KeyspaceDefaults {
            id: KeyspaceId::DEFAULT,
            replicas: 1,
            partitions: 16,
            rings: RingsBase::Loopback,
        })],
        port: address.port(),
        group_ring: None,
        matching: Default::default(),
        link_bits_per_second: LINK_BITS_PER_SECOND,
        balancing: Balancing::None,
        switches: vec![SwitchId(0)],
        services: Vec::new(),
        topology: Default::default(),
        timing: Timing::default(),
        hot: Default::default(),
    };
    let endpoint = UdpEndpoint::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let mut bytes = Vec::new();
    Heartbeat {
        node: NodeId(1),
        incarnation: 1,
        storage: 1,
        sent_ns: 1,
        unanswered: 0,
        space: DiskSpace::Enough,
        opened: 0,
        durable: 0,
    }
    .encode(&mut bytes);
    node.send_to(&bytes, endpoint.local_address()).unwrap();

    let core = Metadata::new(config, None, now()).unwrap();
    let service = MetadataService::new(core, TakenOver, endpoint, Vec::new(), Vec::new()).unwrap();
    let ended = service.run(&Stop::new());
    assert!(matches!(&ended, Err(MetadataError::Storage(error)) if error.is::<Conflict>()), "{ended:?}");
    node.set_nonblocking(true).unwrap();
    let heard = node.recv(&mut [0; 100]).map_err(|error| error.kind());
    assert_eq!(heard, Err(std::io::ErrorKind::WouldBlock), "it answered before its term was persisted");
}
