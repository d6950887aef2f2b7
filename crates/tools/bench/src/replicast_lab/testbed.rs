//! A lab with limited links, and initiators and servers by hash on its hosts.

use super::hashed::{HashedClient, HashedServer};
use super::load::{Measured, Period, Puts, Snapshot, Store};
use super::traffic::Traffic;
use super::{CHUNK_BYTES, COPIES, Case, MBIT, NODES, NegotiatedArguments, System};
use crate::cost::MachineTime;
use crate::error::{BenchError, Result};
use crate::lab::{CLIENT, Engine, Lab, LabPlan, Size};
use crate::link_bytes::LinkBytes;
use crate::session::Session;
use nicekv_lab::topology::{Host, METADATA};
use nicekv_metadata::{ChunkInfo, ClusterInfo};
use nicekv_objects::InitiatorConfig;
use nicekv_objects::reservation::Delivery;
use nicekv_proto::chunk::ChunkId;
use nicekv_runtime::chunks::{
    ChunkClient, ChunkClientError, ChunkStore, Known, ring_of, start_chunk_client, timing, windows,
};
use nicekv_runtime::control_plane::AdminRequest;
use nicekv_runtime::{Stop, admin, new_client_id};
use nicekv_store::{LogIdentity, RealFiles};
use std::net::SocketAddrV4;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Burst of a link.
const BURST: &str = "32k";
/// Port of servers by hash.
const PORT: u16 = 7_950;
/// The node whose disk is slow, or whose link is busy.
const ODD: Host = Host::Node(0);
/// Share of a busy link that background traffic takes.
const BACKGROUND: f64 = 0.8;
/// Bytes per second of a link.
const LINK_BYTES: u64 = MBIT as u64 * 1_000_000 / 8;
/// Bytes per second of disks where one of them is slow.
const DISK_BYTES: u64 = 2 * LINK_BYTES;
const SLOW_DISK_BYTES: u64 = DISK_BYTES / 10;
/// Time limit until all nodes are targets.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
const READY_POLL: Duration = Duration::from_millis(100);
/// Pause between two measurements, for what is in flight.
const SETTLING: Duration = Duration::from_millis(500);
const ASK_TIMEOUT: Duration = Duration::from_secs(10);

/// Fields are dropped in this order: clients before servers, and servers before the lab.
pub(super) struct Testbed {
    under_way: u8,
    /// The clients of each system, in the order of [`System::ALL`].
    stores: [Vec<Store>; 3],
    #[allow(dead_code, reason = "ended when they are dropped, after those who use them")]
    traffic: Option<Traffic>,
    #[allow(dead_code, reason = "likewise")]
    servers: Vec<HashedServer>,
    clients: Vec<Host>,
    lab: Lab,
}

impl Testbed {
    pub(super) fn start(
        case: Case,
        arguments: &NegotiatedArguments,
        session: &Session,
        directory: &Path,
    ) -> Result<Self> {
        let size = Size { nodes: NODES, replicas: COPIES as u8 };
        let (mbit, disks) = (MBIT.to_string(), disks(case));
        let environment = disks.as_deref().map(|disks| ("NICEKV_BENCH_DISKS", disks));
        let plan = LabPlan::new(size, Engine::Durable, session.network, directory);
        // Background traffic has its own host.
        let clients = arguments.clients + u8::from(case == Case::BusyLink);
        let options = ["--link-mbit", mbit.as_str()];
        let plan = LabPlan { options: &options, environment, suffix: Some("replicast"), clients, ..plan };
        let lab = Lab::up(&plan)?;
        lab.operate(&["keyspace", "create", "objects", "--chunks", "multicast"])?;
        let chunks = groups(&lab)?;
        let clients: Vec<Host> = (0..arguments.clients).map(Host::Client).collect();
        let servers = (0..NODES).map(|node| start_server(&lab, case, node, directory));
        let servers = servers.collect::<Result<Vec<_>>>()?;
        let mut stores: [Vec<Store>; 3] = Default::default();
        for (system, stores) in System::ALL.into_iter().zip(&mut stores) {
            for client in &clients {
                stores.push(start_client(&lab, *client, system, &chunks, &session.stop)?);
            }
        }
        for host in (0..NODES).map(Host::Node).chain(clients.iter().copied()) {
            lab.hosts().limit(host, MBIT, BURST)?;
            lab.hosts().limit_ingress(host, MBIT, BURST)?;
        }
        let bits_per_second = BACKGROUND * f64::from(MBIT) * 1e6;
        let traffic = (case == Case::BusyLink)
            .then(|| Traffic::start(&lab, Host::Client(arguments.clients), ODD, bits_per_second))
            .transpose()?;
        Ok(Self { under_way: arguments.under_way, stores, traffic, servers, clients, lab })
    }

    pub(super) fn measure(&mut self, system: System, period: Period, stop: &Stop) -> Result<Measured> {
        std::thread::sleep(SETTLING);
        let before = self.snapshot(system)?;
        let puts = Puts::run(&self.stores[system as usize], self.under_way, period, stop)?;
        puts.measured(&before, &self.snapshot(system)?)
    }

    fn snapshot(&self, system: System) -> Result<Snapshot> {
        Ok(Snapshot {
            at: Instant::now(),
            machine: MachineTime::now(),
            sent_bytes: self.sent_bytes()?,
            negotiations: self.negotiations(system)?,
            background: self.traffic.as_ref().map(|traffic| traffic.count(&self.lab)).transpose()?,
        })
    }

    /// Requests of all clients so far.
    fn negotiations(&self, system: System) -> Result<u64> {
        let of = |store: &Store| match store {
            Store::Negotiated(client) => client.counters().map(|counters| counters.requests),
            Store::Hashed(_) => Ok(0),
        };
        let all = self.stores[system as usize].iter().map(of).collect::<std::result::Result<Vec<_>, _>>();
        Ok(all.map_err(|error| BenchError::Failed(error.to_string()))?.iter().sum())
    }

    /// Bytes that the clients have sent so far.
    fn sent_bytes(&self) -> Result<u64> {
        let sent = self.clients.iter().map(|client| Ok(LinkBytes::of(self.lab.hosts(), *client)?.sent));
        Ok(sent.collect::<Result<Vec<_>>>()?.iter().sum())
    }
}

/// The limit of a node's disk in bytes per second, if it is limited.
fn disk_limit(case: Case, node: Host) -> Option<u64> {
    match case {
        Case::SlowDisk if node == ODD => Some(SLOW_DISK_BYTES),
        Case::SlowDisk => Some(DISK_BYTES),
        Case::Full | Case::BusyLink => None,
    }
}

/// The limits of all disks, in the form of the nodes' environment variable.
fn disks(case: Case) -> Option<String> {
    let nodes = (0..NODES).map(Host::Node);
    let disks: Vec<String> =
        nodes.filter_map(|node| Some(format!("{node}={}", disk_limit(case, node)?))).collect();
    (!disks.is_empty()).then(|| disks.join(","))
}

fn groups(lab: &Lab) -> Result<ChunkInfo> {
    let ask = || admin::ask(&[METADATA], &AdminRequest::ClusterInfo, ASK_TIMEOUT);
    let json = lab.inside(CLIENT, ask)?.map_err(|error| BenchError::Failed(error.to_string()))?;
    let info: Option<ClusterInfo> = serde_json::from_slice(&json).ok();
    info.and_then(|info| info.chunks)
        .ok_or_else(|| BenchError::Failed("there are no groups of targets".into()))
}

/// Starts a server by hash on a node's host.
fn start_server(lab: &Lab, case: Case, node: u8, directory: &Path) -> Result<HashedServer> {
    let host = Host::Node(node);
    let place = directory.join(format!("hashed-{host}"));
    let identity = LogIdentity { cluster_id: 1, storage_id: u128::from(node) + 1, node_id: node.into() };
    let store = ChunkStore::on_disk(Arc::new(RealFiles), &place, identity);
    let store = store.map_err(|error| BenchError::Failed(format!("{}: {error}", place.display())))?;
    let store = match disk_limit(case, host) {
        Some(bytes_per_second) => store.limited(bytes_per_second),
        None => store,
    };
    lab.inside(host, || HashedServer::start(SocketAddrV4::new(host.address(), PORT), store))?
}

/// Starts a client of a system on a client host.
fn start_client(lab: &Lab, client: Host, system: System, chunks: &ChunkInfo, stop: &Stop) -> Result<Store> {
    let failed = || BenchError::system("start a client");
    let delivery = match system {
        System::Multicast => Delivery::Multicast,
        System::Unicast => Delivery::Unicast,
        System::Hashed => {
            let servers: Vec<SocketAddrV4> =
                (0..NODES).map(|node| SocketAddrV4::new(Host::Node(node).address(), PORT)).collect();
            let client = lab.inside(client, || HashedClient::connect(&servers, COPIES))?;
            return Ok(Store::Hashed(client.map_err(failed())?));
        }
    };
    let config = InitiatorConfig {
        client: new_client_id().map_err(failed())?,
        copies: COPIES,
        reservation: windows(delivery, chunks.link_bits_per_second),
        timing: timing(chunks.link_bits_per_second),
    };
    let ring = ring_of(chunks);
    let known = known_of(chunks)?;
    let start = || start_chunk_client(stop, client.address(), ring, config, move || Some(known.clone()));
    let (initiator, _) = lab.inside(client, start)?.map_err(failed())?;
    wait_until_ready(&initiator, stop)?;
    Ok(Store::Negotiated(initiator))
}

fn known_of(chunks: &ChunkInfo) -> Result<Known> {
    Known::of(chunks).ok_or_else(|| BenchError::Failed("invalid groups of targets".into()))
}

/// Waits until all nodes are targets: a get fails with "not found" once all targets of the chunk's
/// group have answered.
fn wait_until_ready(initiator: &ChunkClient, stop: &Stop) -> Result<()> {
    let deadline = Instant::now() + READY_TIMEOUT;
    while Instant::now() < deadline {
        match initiator.get(ChunkId::default()).wait() {
            Err(ChunkClientError::Get(nicekv_objects::GetError::NotFound)) => return Ok(()),
            _ if stop.is_stopped() => return Err(BenchError::Interrupted),
            _ => std::thread::sleep(READY_POLL),
        }
    }
    Err(BenchError::Failed("not all nodes are targets in time".into()))
}

// Windows have the length of a chunk on a link, which must be less than a second.
const _: () = assert!((CHUNK_BYTES as u64) < LINK_BYTES);
