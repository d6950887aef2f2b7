//! A cluster on the loopback interface whose roles all run on threads of the test.

use nicekv_client::facade::Client;
use nicekv_metadata::{
    Balancing, Config, LINK_BITS_PER_SECOND, Metadata, NodeConfig, Status, SwitchId, Timing,
};
use nicekv_proto::placement::{KeyspaceDefaults, KeyspaceSpec, RingsBase, Vrings};
use nicekv_proto::{Duration, KeyspaceId, NodeId};
use nicekv_replica::Timing as ReplicaTiming;
use nicekv_runtime::control_plane::AdminRequest;
use nicekv_runtime::metadata::{MetadataService, StateFile};
use nicekv_runtime::node::{Node, NodeInquirer, NodeObservation, StorageOptions, open_durable};
use nicekv_runtime::{
    AgentLink, Stop, UdpEndpoint, UserSpaceSwitch, Waker, admin, listen, new_client_id, now, random,
    start_client,
};
use nicekv_store::{DataDirectory, Expected, Files, RealFiles};
use nicekv_switch::{Prefix, VringConfig};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

const METADATA: Ipv4Addr = Ipv4Addr::new(127, 20, 255, 1);
const PARTITION_BITS: u8 = 2;
const READY_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Cluster {
    pub(crate) stop: Stop,
    pub(crate) client: Client,
    path: PathBuf,
    port: u16,
    options: StorageOptions,
    /// The nodes in the order of their numbers; `None` if a node was stopped.
    nodes: Vec<Option<RunningNode>>,
    threads: Vec<JoinHandle<()>>,
}

struct RunningNode {
    stop: Stop,
    inquirer: NodeInquirer,
    thread: JoinHandle<()>,
}

/// A node's UDP endpoint and TCP listener.
type Sockets = (UdpEndpoint, TcpListener);

fn directory(files: &Arc<dyn Files>, path: &Path, owner: &str) -> DataDirectory {
    let storage_id_if_new = u128::from(random().unwrap());
    let expected = Expected { cluster_id: Some(7), owner, cluster_id_if_new: 7, storage_id_if_new };
    DataDirectory::open(files, &path.join(owner), expected).unwrap()
}

fn address(node: u8, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(127, 20, 0, node), port)
}

fn configuration(nodes: u8, port: u16) -> Config {
    let node = |number: u8| NodeConfig {
        id: NodeId(number.into()),
        name: format!("node-{number}"),
        address: address(number, port),
        mac: [2, 0, 0, 0, 0, number],
        switch_port: number.into(),
        home: None,
    };
    let replicas = nodes.into();
    let (id, partitions, rings) = (KeyspaceId::DEFAULT, 1 << PARTITION_BITS, RingsBase::Loopback);
    Config {
        cluster: 7,
        nodes: (1..=nodes).map(node).collect(),
        keyspaces: vec![KeyspaceSpec::of(&KeyspaceDefaults { id, replicas, partitions, rings })],
        port,
        group_ring: None,
        matching: Default::default(),
        link_bits_per_second: LINK_BITS_PER_SECOND,
        balancing: Balancing::None,
        switches: vec![SwitchId(0)],
        services: Vec::new(),
        topology: Default::default(),
        timing: Timing::default(),
        hot: Default::default(),
    }
}

impl Cluster {
    /// Starts a cluster with the data in `path`, if any. Every node is a replica of every
    /// partition.
    pub(crate) fn start(path: &Path, nodes: u8, options: StorageOptions) -> Self {
        let stop = Stop::new();
        let switch = UdpEndpoint::bind_switch("lo", 0).unwrap();
        let vrings = Vrings::on_loopback(switch.local_address().port());
        switch.share_port(true).unwrap();
        let sockets: Vec<_> = (1..=nodes).map(|node| sockets(address(node, vrings.port))).collect();
        let metadata = SocketAddrV4::new(METADATA, vrings.port);
        let metadata_endpoint = UdpEndpoint::bind_beside_switch(metadata).unwrap();
        let rings = VringConfig {
            unicast: Prefix::new(vrings.unicast.octets(), 16),
            multicast: Prefix::new(vrings.multicast.octets(), 16),
        };
        let switch =
            UserSpaceSwitch::new(switch, rings, AgentLink::new("switch", &[metadata]), None).unwrap();
        let owned = stop.clone();
        let mut threads = vec![std::thread::spawn(move || switch.run(&owned).unwrap())];

        let files: Arc<dyn Files> = Arc::new(RealFiles);
        let mut state = StateFile::new(files.clone(), directory(&files, path, "metadata"));
        let persisted = nicekv_metadata::StateStore::load(&mut state).unwrap();
        let core = Metadata::new(configuration(nodes, vrings.port), persisted.as_deref(), now()).unwrap();
        let (listeners, switches) = (vec![listen(metadata).unwrap()], vec![("switch".into(), SwitchId(0))]);
        let service = MetadataService::new(core, state, metadata_endpoint, listeners, switches).unwrap();
        let owned = stop.clone();
        threads.push(std::thread::spawn(move || service.run(&owned).unwrap()));

        let (client, _) = start_client(&stop, Ipv4Addr::LOCALHOST, vrings).unwrap();
        let (path, port) = (path.to_path_buf(), vrings.port);
        let mut cluster = Self { stop, client, path, port, options, nodes: Vec::new(), threads };
        for (number, sockets) in (1..).zip(sockets) {
            let node = cluster.run_node(number, sockets);
            cluster.nodes.push(Some(node));
        }
        cluster.wait_until_ready();
        cluster
    }

    fn run_node(&self, number: u8, (endpoint, listener): Sockets) -> RunningNode {
        let (stop, files): (_, Arc<dyn Files>) = (Stop::new(), Arc::new(RealFiles));
        let config = nicekv_replica::NodeConfig {
            node: NodeId(number.into()),
            metadata: vec![SocketAddrV4::new(METADATA, self.port)],
            switch: Some(SocketAddrV4::new(Ipv4Addr::LOCALHOST, self.port)),
            coordinates: false,
            incarnation: random().unwrap(),
            storage: 0,
            internal_client: new_client_id().unwrap(),
            value_bytes_max: nicekv_proto::limits::LARGE_VALUE_BYTES_MAX,
            hash_seed: 1,
            tells_visibility: false,
            timing: ReplicaTiming::default(),
        };
        let (waker, directory) =
            (Waker::new().unwrap(), directory(&files, &self.path, &format!("node-{number}")));
        let (core, storage) =
            open_durable(config, now(), files, directory, self.options, waker.clone()).unwrap();
        let node = Node::new(core, storage, endpoint, listener, waker, Duration::ZERO);
        let (owned, inquirer) = (stop.clone(), node.inquirer());
        RunningNode { stop, inquirer, thread: std::thread::spawn(move || node.run(&owned).unwrap()) }
    }

    /// Waits until every partition has all its members, and all of them are consistent.
    pub(crate) fn wait_until_ready(&self) {
        admin::ask(&[SocketAddrV4::new(METADATA, self.port)], &AdminRequest::Ready, READY_TIMEOUT).unwrap();
    }

    /// Cluster state, as reported by the metadata service.
    pub(crate) fn status(&self) -> Status {
        let answer =
            admin::ask(&[SocketAddrV4::new(METADATA, self.port)], &AdminRequest::Status, READY_TIMEOUT);
        serde_json::from_slice(&answer.unwrap()).unwrap()
    }

    /// Statistics of a node.
    pub(crate) fn observe(&self, number: u8) -> NodeObservation {
        let node = self.nodes[usize::from(number) - 1].as_ref().expect("it runs");
        node.inquirer.ask((), READY_TIMEOUT).expect("it answers")
    }

    pub(crate) fn stop_node(&mut self, number: u8) {
        let node = self.nodes[usize::from(number) - 1].take().expect("it runs");
        node.stop.stop();
        node.thread.join().unwrap();
    }

    pub(crate) fn start_node(&mut self, number: u8) {
        let node = self.run_node(number, sockets(address(number, self.port)));
        self.nodes[usize::from(number) - 1] = Some(node);
    }

    pub(crate) fn stop(mut self) {
        let numbers = (1..).zip(&self.nodes).filter(|(_, node)| node.is_some()).map(|(number, _)| number);
        numbers.collect::<Vec<_>>().into_iter().for_each(|number| self.stop_node(number));
        self.stop.stop();
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

fn sockets(address: SocketAddrV4) -> Sockets {
    (UdpEndpoint::bind_beside_switch(address).unwrap(), listen(address).unwrap())
}
