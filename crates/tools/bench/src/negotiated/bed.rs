//! What is measured on: a lab with shaped cables, with initiators and servers by hash on its hosts.

use super::hashed::{HashedClient, HashedServer};
use super::load::{CHUNK_BYTES, Measured, Period, Puts, Seen, Store};
use super::traffic::Traffic;
use super::{Case, MBIT, NegotiatedArguments, System};
use crate::cables::Carried;
use crate::cost::MachineTime;
use crate::error::{BenchError, Result};
use crate::lab::{Engine, Lab, LabPlan, Size};
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

/// Targets, and servers by hash.
pub(super) const NODES: u8 = 9;
/// Of each chunk.
pub(super) const COPIES: usize = 3;
/// What may leave at once.
const BURST: &str = "32k";
/// Where servers by hash listen.
const PORT: u16 = 7_950;
/// Whose disk is slow, and whose link is busy.
const ODD: Host = Host::Node(0);
/// Of a busy link, others have this part.
const OTHERS: f64 = 0.8;
/// Bytes a second that a link carries.
const LINK_BYTES: u64 = MBIT as u64 * 1_000_000 / 8;
/// What disks write where one of them is slow.
const DISK_BYTES: u64 = 2 * LINK_BYTES;
const SLOW_DISK_BYTES: u64 = DISK_BYTES / 10;
/// Until all nodes are targets.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
const READY_POLL: Duration = Duration::from_millis(100);
/// Between two measurements, for what is on its way.
const SETTLING: Duration = Duration::from_millis(500);
const ASK_TIMEOUT: Duration = Duration::from_secs(10);

/// See the module. What is first here ends first.
pub(super) struct Bed {
    under_way: u8,
    /// Of each client, in the order of [`System::ALL`].
    stores: [Vec<Store>; 3],
    #[allow(dead_code, reason = "ended when they are dropped, after those who use them")]
    traffic: Option<Traffic>,
    #[allow(dead_code, reason = "likewise")]
    servers: Vec<HashedServer>,
    clients: Vec<Host>,
    lab: Lab,
}

impl Bed {
    pub(super) fn up(
        case: Case,
        arguments: &NegotiatedArguments,
        directory: &Path,
        stop: &Stop,
    ) -> Result<Self> {
        let size = Size { nodes: NODES, replicas: COPIES as u8 };
        let (mbit, disks) = (MBIT.to_string(), disks(case));
        let environment = disks.as_deref().map(|disks| ("NICEKV_BENCH_DISKS", disks));
        let plan = LabPlan::new(size, Engine::Durable, arguments.network.network(), directory);
        // Others' traffic comes from one more.
        let clients = arguments.clients + u8::from(case == Case::BusyLink);
        let further = ["--link-mbit", mbit.as_str()];
        let plan = LabPlan { further: &further, environment, apart: Some(super::NAME), clients, ..plan };
        let lab = Lab::up(&plan)?;
        lab.operate(&["keyspace", "create", "objects", "--chunks", "multicast"])?;
        let chunks = groups(&lab)?;
        let clients: Vec<Host> = (0..arguments.clients).map(Host::Client).collect();
        let servers = (0..NODES).map(|node| serve(&lab, case, node, directory));
        let servers = servers.collect::<Result<Vec<_>>>()?;
        let mut stores: [Vec<Store>; 3] = Default::default();
        for (system, stores) in System::ALL.into_iter().zip(&mut stores) {
            for client in &clients {
                stores.push(open(&lab, *client, system, &chunks, stop)?);
            }
        }
        for host in (0..NODES).map(Host::Node).chain(clients.iter().copied()) {
            lab.hosts().limit(host, MBIT, BURST)?;
            lab.hosts().limit_ingress(host, MBIT, BURST)?;
        }
        let others = OTHERS * f64::from(MBIT) * 1e6;
        let traffic = (case == Case::BusyLink)
            .then(|| Traffic::start(&lab, Host::Client(arguments.clients), ODD, others))
            .transpose()?;
        Ok(Self { under_way: arguments.under_way, stores, traffic, servers, clients, lab })
    }

    pub(super) fn measure(&mut self, system: System, period: Period, stop: &Stop) -> Result<Measured> {
        std::thread::sleep(SETTLING);
        let before = self.look(system)?;
        let puts = Puts::run(&self.stores[system as usize], self.under_way, period, stop)?;
        puts.measured(&before, &self.look(system)?)
    }

    fn look(&self, system: System) -> Result<Seen> {
        Ok(Seen {
            at: Instant::now(),
            machine: MachineTime::now(),
            sent_bytes: self.sent()?,
            negotiations: self.negotiations(system)?,
            others: self.traffic.as_ref().map(|traffic| traffic.seen(&self.lab)).transpose()?,
        })
    }

    /// Of all clients, so far.
    fn negotiations(&self, system: System) -> Result<u64> {
        let of = |store: &Store| match store {
            Store::Negotiated(client) => client.counters().map(|counters| counters.requests),
            Store::Hashed(_) => Ok(0),
        };
        let all = self.stores[system as usize].iter().map(of).collect::<std::result::Result<Vec<_>, _>>();
        Ok(all.map_err(|error| BenchError::Failed(error.to_string()))?.iter().sum())
    }

    /// Bytes that have left the clients.
    fn sent(&self) -> Result<u64> {
        let sent = self.clients.iter().map(|client| Ok(Carried::by(self.lab.hosts(), *client)?.sent));
        Ok(sent.collect::<Result<Vec<_>>>()?.iter().sum())
    }
}

/// What a node's disk is to be taken to write in a second, if not as much as it does.
fn disk(case: Case, node: Host) -> Option<u64> {
    match case {
        Case::SlowDisk if node == ODD => Some(SLOW_DISK_BYTES),
        Case::SlowDisk => Some(DISK_BYTES),
        Case::Full | Case::BusyLink => None,
    }
}

/// The same for all of them, as nodes are told.
fn disks(case: Case) -> Option<String> {
    let nodes = (0..NODES).map(Host::Node);
    let disks: Vec<String> = nodes.filter_map(|node| Some(format!("{node}={}", disk(case, node)?))).collect();
    (!disks.is_empty()).then(|| disks.join(","))
}

fn groups(lab: &Lab) -> Result<ChunkInfo> {
    let ask = || admin::ask(&[METADATA], &AdminRequest::ClusterInfo, ASK_TIMEOUT);
    let json = lab.inside(Host::Client(0), ask)?.map_err(|error| BenchError::Failed(error.to_string()))?;
    let info: Option<ClusterInfo> = serde_json::from_slice(&json).ok();
    info.and_then(|info| info.chunks)
        .ok_or_else(|| BenchError::Failed("there are no groups of targets".into()))
}

/// A server by hash on a node's host.
fn serve(lab: &Lab, case: Case, node: u8, directory: &Path) -> Result<HashedServer> {
    let host = Host::Node(node);
    let place = directory.join(format!("hashed-{host}"));
    let identity = LogIdentity { cluster_id: 1, storage_id: u128::from(node) + 1, node_id: node.into() };
    let store = ChunkStore::on_disk(Arc::new(RealFiles), &place, identity);
    let store = store.map_err(|error| BenchError::Failed(format!("{}: {error}", place.display())))?;
    let store = match disk(case, host) {
        Some(bytes_per_second) => store.limited(bytes_per_second),
        None => store,
    };
    lab.inside(host, || HashedServer::start(SocketAddrV4::new(host.address(), PORT), store))?
}

/// Who puts from a client's host.
fn open(lab: &Lab, client: Host, system: System, chunks: &ChunkInfo, stop: &Stop) -> Result<Store> {
    let failed = || BenchError::system("make a client");
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
    Known::of(chunks).ok_or_else(|| BenchError::Failed("groups of targets that make no sense".into()))
}

/// That nobody holds a chunk is said when all of its group have said so.
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

/// A chunk's share of a link's second: windows are of this order.
const _: () = assert!((CHUNK_BYTES as u64) < LINK_BYTES);
