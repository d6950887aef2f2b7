//! A node's log stays bounded, what was let go is in the engine, and what has expired leaves both: one node with tiny segments behind the user-space switch.

use nicekv_client::facade::Client;
use nicekv_dataplane::{Prefix, VringConfig};
use nicekv_metadata::{Balancing, Config, Metadata, NodeConfig, SwitchId, Timing};
use nicekv_node::Timing as ReplicaTiming;
use nicekv_placement::{KeyspaceDefaults, KeyspaceSpec, RingsBase, Vrings};
use nicekv_runtime::control_plane::AdminRequest;
use nicekv_runtime::metadata::{MetadataService, StateFile};
use nicekv_runtime::node::{Node, StorageOptions, open_durable};
use nicekv_runtime::{
    AgentLink, Stop, UdpEndpoint, UserSpaceSwitch, Waker, admin, listen, new_client_id, now, random,
    start_client,
};
use nicekv_store::{DataDirectory, Expected, Files, RealFiles};
use nicekv_wire::{Duration, Expiry, KeyspaceId, NodeId};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

const NODE: Ipv4Addr = Ipv4Addr::new(127, 20, 0, 1);
const METADATA: Ipv4Addr = Ipv4Addr::new(127, 20, 255, 1);
const PARTITION_BITS: u8 = 2;
const OPTIONS: StorageOptions = StorageOptions {
    segment_bytes_max: 64 << 10,
    engine_sync_bytes: 48 << 10,
    reserve_bytes: 128 << 10,
    ..StorageOptions::DEFAULT
};
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// A cluster of one node, all of whose roles run on threads of the test.
struct Cluster {
    stop: Stop,
    client: Client,
    threads: Vec<JoinHandle<()>>,
}

fn directory(files: &Arc<dyn Files>, path: &Path, owner: &str) -> DataDirectory {
    let expected = Expected { cluster_id: Some(7), owner, cluster_id_if_new: 7, storage_id_if_new: 9 };
    DataDirectory::open(files, &path.join(owner), expected).unwrap()
}

impl Cluster {
    fn start(path: &Path, options: StorageOptions) -> Self {
        let stop = Stop::new();
        let files: Arc<dyn Files> = Arc::new(RealFiles);
        let switch = UdpEndpoint::bind_switch("lo", 0).unwrap();
        let vrings = Vrings::on_loopback(switch.local_address().port());
        let [node, metadata] = [NODE, METADATA].map(|ip| SocketAddrV4::new(ip, vrings.port));
        switch.share_port(true).unwrap();
        let node_endpoint = UdpEndpoint::bind_beside_switch(node).unwrap();
        let metadata_endpoint = UdpEndpoint::bind_beside_switch(metadata).unwrap();
        switch.share_port(false).unwrap();
        let mut threads: Vec<JoinHandle<()>> = Vec::new();

        let rings = VringConfig {
            unicast: Prefix::new(vrings.unicast.octets(), 16),
            multicast: Prefix::new(vrings.multicast.octets(), 16),
        };
        let switch = UserSpaceSwitch::new(switch, rings, AgentLink::new("switch", metadata), None).unwrap();
        let owned = stop.clone();
        threads.push(std::thread::spawn(move || switch.run(&owned).unwrap()));

        let config = Config {
            cluster: 7,
            nodes: vec![NodeConfig {
                id: NodeId(1),
                name: "node-1".into(),
                address: node,
                mac: [2; 6],
                switch_port: 1,
            }],
            keyspaces: vec![KeyspaceSpec::of(&KeyspaceDefaults {
                id: KeyspaceId::DEFAULT,
                replicas: 1,
                partitions: 1 << PARTITION_BITS,
                rings: RingsBase::Loopback,
            })],
            port: vrings.port,
            balancing: Balancing::None,
            switches: vec![SwitchId(0)],
            services: Vec::new(),
            topology: Default::default(),
            timing: Timing::default(),
        };
        let mut state = StateFile::new(files.clone(), directory(&files, path, "metadata"));
        let persisted = nicekv_metadata::StateStore::load(&mut state).unwrap();
        let core = Metadata::new(config, persisted.as_deref(), now()).unwrap();
        let (listeners, switches) = (vec![listen(metadata).unwrap()], vec![("switch".into(), SwitchId(0))]);
        let service = MetadataService::new(core, state, metadata_endpoint, listeners, switches);
        let owned = stop.clone();
        threads.push(std::thread::spawn(move || service.run(&owned).unwrap()));

        let replica = nicekv_node::NodeConfig {
            node: NodeId(1),
            metadata,
            switch: Some(SocketAddrV4::new(Ipv4Addr::LOCALHOST, metadata.port())),
            incarnation: random().unwrap(),
            storage: 0,
            internal_client: new_client_id().unwrap(),
            hash_seed: 1,
            timing: ReplicaTiming::default(),
        };
        let (waker, directory) = (Waker::new().unwrap(), directory(&files, path, "node-1"));
        let (core, storage) = open_durable(replica, now(), files, directory, options, waker.clone()).unwrap();
        let node = Node::new(core, storage, node_endpoint, listen(node).unwrap(), waker, Duration::ZERO);
        let owned = stop.clone();
        threads.push(std::thread::spawn(move || node.run(&owned).unwrap()));

        admin::ask(metadata, AdminRequest::Ready, READY_TIMEOUT).unwrap();
        let (client, _) = start_client(&stop, Ipv4Addr::LOCALHOST, vrings).unwrap();
        Self { stop, client, threads }
    }

    fn stop(self) {
        self.stop.stop();
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

fn log_bytes(path: &Path) -> u64 {
    bytes_in(&path.join("node-1/log"))
}

/// Of all files below a directory; one that goes meanwhile has none.
fn bytes_in(directory: &Path) -> u64 {
    let bytes = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => bytes_in(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    };
    std::fs::read_dir(directory).map_or(0, |entries| entries.flatten().map(bytes).sum())
}

#[test]
fn a_log_is_let_go_and_nothing_with_it() {
    const ROUNDS: u32 = 4;
    const PUTS: u32 = 1_000;
    let path = tempfile::tempdir().unwrap();
    let key = |number: u32| format!("key {}", number % 300).into_bytes();
    let value = |number: u32| vec![number as u8; 400];
    let mut last = 0;
    for _ in 0..ROUNDS {
        let cluster = Cluster::start(path.path(), OPTIONS);
        let client = cluster.client.clone();
        for number in last.max(300) - 300..last {
            let read = futures_executor::block_on(client.get(&key(number))).unwrap();
            assert_eq!(read.map(|read| read.bytes), Some(value(number)), "put {number} of {last}");
        }
        for number in last..last + PUTS {
            futures_executor::block_on(client.put(&key(number), &value(number), Expiry::Never)).unwrap();
        }
        last += PUTS;
        drop(client);
        cluster.stop();
        // About 450 KB a round. Three segments: one is written, one waits for the engine, and one may have begun meanwhile.
        let bytes = log_bytes(path.path());
        assert!(bytes < 4 * OPTIONS.segment_bytes_max, "the log has {bytes} bytes after {last} puts");
    }
}

#[test]
fn what_has_expired_gives_its_space_back_though_nothing_else_is_written() {
    const VALUES: u32 = 4_000;
    const BYTES: usize = 400;
    /// After the last has expired: 2 s for deletes at 2,000 a second, 1 s for the trim, all the rest for a busy machine.
    const PATIENCE: Duration = Duration::from_secs(30);
    let options = StorageOptions {
        trim_interval: Duration::from_secs(1),
        trim_bytes_min: 16 << 10,
        ..StorageOptions::DEFAULT
    };
    let path = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(path.path(), options);
    let sizes = || [bytes_in(&path.path().join("node-1/engine")), log_bytes(path.path())];
    let at_ms = now().unix_ms + 10_000;
    let puts = (0..VALUES).map(|number| {
        let client = cluster.client.clone();
        async move {
            let (key, value) = (format!("key {number}"), vec![number as u8; BYTES]);
            client.put(key.as_bytes(), &value, Expiry::At(at_ms)).await.unwrap();
        }
    });
    puts.for_each(futures_executor::block_on);
    // The first steps bring the values from the log into the engine.
    let stored = u64::from(VALUES) * BYTES as u64;
    let wait_until = |what: &str, until_ms: u64, holds: &dyn Fn([u64; 2]) -> bool| {
        while !holds(sizes()) {
            assert!(now().unix_ms < until_ms, "{what}: {:?} bytes in engine and log", sizes());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    wait_until("values are in the engine", at_ms, &|[engine, _]| engine > stored / 4);
    let until_ms = at_ms + PATIENCE.as_millis() as u64;
    wait_until("the space is back", until_ms, &|[engine, log]| engine < stored / 20 && log < stored / 4);
    cluster.stop();
}
